"""Parts of URLs, which are read as `java.net.URI` reads them. [RFC 2396, with Java's deviations]"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from holdfast.api.expressions.patterns import from_java
from holdfast.api.expressions.signatures import Build, Function, fixed, rows, string
from holdfast.api.expressions.values import EvaluationError, Value, constant

_TEXT = pa.string()
_ALNUM = "a-zA-Z0-9"
_UNRESERVED = _ALNUM + r"_\-!.~'()*"
_URIC = re.compile(rf"(?:[{_UNRESERVED};/?:@&=+$,\[\]\x80-\U0010ffff]|%[0-9a-fA-F]{{2}})*")
_PATH = re.compile(rf"(?:[{_UNRESERVED}:@&=+$,;/\x80-\U0010ffff]|%[0-9a-fA-F]{{2}})*")
_USER = re.compile(rf"(?:[{_UNRESERVED};:&=+$,\x80-\U0010ffff]|%[0-9a-fA-F]{{2}})*")
_REGISTRY = re.compile(rf"(?:[{_UNRESERVED}$,;:@&=+\x80-\U0010ffff]|%[0-9a-fA-F]{{2}})*")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]*")
_LABEL = rf"[{_ALNUM}](?:[{_ALNUM}\-]*[{_ALNUM}])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)*(?P<last>{_LABEL})\.?")
_SERVER = re.compile(r"(?:(?P<user>[^@/?#]*)@)?(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>\d*))?")


@dataclass(frozen=True, slots=True)
class _Url:
    """A URL's parts; None: it has none."""

    scheme: str | None = None
    authority: str | None = None
    user: str | None = None
    host: str | None = None
    path: str | None = None
    query: str | None = None
    fragment: str | None = None


def _legal(part: str, allowed: re.Pattern[str]) -> bool:
    """Whether every character may stand there; beyond ASCII neither spaces nor controls may."""
    odd = any(ord(c) > 127 and (unicodedata.category(c)[0] in "Z" or ord(c) < 160) for c in part)
    return not odd and allowed.fullmatch(part) is not None


def _parsed(url: str) -> _Url | None:
    """The parts; None: Java refuses it."""
    rest, sharp, fragment = url.partition("#")
    if sharp and not _legal(fragment, _URIC):
        return None
    anchor = fragment if sharp else None
    before = re.match(r"[^/?:]*", rest)
    head = before[0] if before else ""
    scheme = None
    if rest[len(head) : len(head) + 1] == ":":
        if not _SCHEME.fullmatch(head) or len(rest) == len(head) + 1:
            return None
        scheme, rest = head, rest[len(head) + 1 :]
        if not rest.startswith("/"):
            return _Url(scheme, fragment=anchor) if _legal(rest, _URIC) else None
    path, mark, query = rest.partition("?")
    if mark and not _legal(query, _URIC):
        return None
    authority: tuple[str | None, str | None, str | None] | None = (None, None, None)
    if path.startswith("//"):
        whole, slash, behind = path[2:].partition("/")
        path = slash + behind
        if whole:
            authority = _authority(whole)
        elif not (path or mark or sharp):
            return None
    if authority is None or not _legal(path, _PATH):
        return None
    given, user, host = authority
    return _Url(scheme, given, user, host, path, query if mark else None, anchor)


def _authority(whole: str) -> tuple[str | None, str | None, str | None] | None:
    """Authority, user and host; a registry's name has no host. None: it is illegal."""
    server = _SERVER.fullmatch(whole)
    if server is not None:
        user, host, port = server["user"], server["host"], server["port"]
        is_user = user is None or _legal(user, _USER)
        if is_user and _is_host(host) and (not port or int(port) < 2**31):
            return whole, user, host
    return (whole, None, None) if _legal(whole, _REGISTRY) else None


def _is_host(host: str) -> bool:
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1].partition("%")[0])
        except ValueError:
            return False
        return True
    if re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", host) and all(
        int(part) < 256 for part in host.split(".")
    ):
        return True
    name = _NAME.fullmatch(host)
    return name is not None and (name["last"][0].isalpha() or name["last"] == host.rstrip("."))


def _file(url: _Url) -> str | None:
    return url.path if url.query is None else f"{url.path}?{url.query}"


_PARTS: dict[str, Callable[[_Url], str | None]] = {
    "HOST": lambda url: url.host,
    "PATH": lambda url: url.path,
    "QUERY": lambda url: url.query,
    "REF": lambda url: url.fragment,
    "PROTOCOL": lambda url: url.scheme,
    "FILE": _file,
    "AUTHORITY": lambda url: url.authority,
    "USERINFO": lambda url: url.user,
}


def _parse_url(*, is_tried: bool) -> Build:
    def build(args: Sequence[Value], text: str) -> Value:
        part = fixed(string(args[1], text), text)
        key = fixed(string(args[2], text), text) if len(args) == 3 else ""
        if (
            part is None
            or key is None
            or part not in _PARTS
            or (len(args) == 3 and part != "QUERY")
        ):
            return constant(pa.scalar(None, _TEXT), text)
        wanted = from_java(f"(&|^){key}=([^&]*)", text) if len(args) == 3 else None

        def one(given: str) -> str | None:
            url = _parsed(given)
            if url is None:
                if is_tried:
                    return None
                raise EvaluationError(f"{given!r} is no URL")
            found = _PARTS[part](url)
            if wanted is None or found is None:
                return found
            match = wanted.search(found)
            return None if match is None else match[2]

        return rows(_TEXT, one, string, is_total=is_tried)(args[:1], text)

    return build


FUNCTIONS: dict[str, Function] = {
    "parse_url": Function(_parse_url(is_tried=False), 2, 3),
    "try_parse_url": Function(_parse_url(is_tried=True), 2, 3),
}
