"""Bytes as text and back: base 64 and 32, UTF-8 that may be broken, signed digests."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from holdfast.api.expressions.bit_functions import bytes_of
from holdfast.api.expressions.signatures import Build, Function, fixed, rows, string
from holdfast.api.expressions.values import EvaluationError, Value, constant
from holdfast.errors import DataflowError, UnsupportedError

_TEXT, _BYTES, _FLAG = pa.string(), pa.binary(), pa.bool_()
_LINE = 76
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DIGESTS = {"SHA-224": "sha224", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
_SPACE = re.compile(r"[ \t-\r\x1c-\x1f]")
_PARTED = re.compile(r"=\s+=", re.ASCII)
_STRICT = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2,3}|[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _validated(data: bytes) -> str:
    if not _is_utf8(data):
        raise EvaluationError(f"{data!r} is no UTF-8")
    return data.decode()


def _without_noise(data: bytes) -> bytes:
    """Base 64 as Java's MIME decoder reads it: other characters are passed over."""
    if len(data) < 2:
        return b""
    digits = bytearray()
    for at, code in enumerate(data):
        if code == ord("="):
            rest = data[at + 1 :]
            held = len(digits) % 4
            if held < 2 or (held == 2 and rest[:1] != b"="):
                raise EvaluationError(f"{data!r} is no base 64")
            if any(each in _ALPHABET for each in rest):
                raise EvaluationError(f"{data!r} goes on behind its end")
            break
        if code in _ALPHABET:
            digits.append(code)
    if len(digits) % 4 == 1:
        raise EvaluationError(f"{data!r} is no base 64")
    return _from_digits(bytes(digits))


def _from_digits(digits: bytes) -> bytes:
    """Bytes by their digits of base 64 alone."""
    return base64.b64decode(digits + b"=" * (-len(digits) % 4))


def _in_lines(data: bytes) -> str:
    """Base 64 in lines of 76 characters, as in mails."""
    digits = base64.b64encode(data).decode()
    return "\r\n".join(digits[at : at + _LINE] for at in range(0, len(digits), _LINE))


def _strictly(text: str) -> bytes:
    plain = _SPACE.sub("", text)
    if not _STRICT.fullmatch(plain) or _PARTED.search(text):
        raise EvaluationError(f"{text!r} is no base 64")
    return _from_digits(plain.rstrip("=").encode())


def _from_hex(text: str) -> bytes:
    digits = text if len(text) % 2 == 0 else f"0{text}"
    if not re.fullmatch("[0-9a-fA-F]*", digits):
        raise EvaluationError(f"{text!r} is no hexadecimal number")
    return bytes.fromhex(digits)


_READERS: dict[str, Callable[[str], bytes]] = {
    "hex": _from_hex,
    "base64": _strictly,
    "utf-8": str.encode,
    "utf8": str.encode,
}


def _tried(compute: Callable[..., Any]) -> Callable[..., Any]:
    def attempt(*values: Any) -> Any:
        try:
            return compute(*values)
        except EvaluationError:
            return None

    return attempt


def _to_binary(*, is_tried: bool) -> Build:
    def build(args: Sequence[Value], text: str) -> Value:
        name = fixed(string(args[1], text), text) if len(args) == 2 else "hex"
        if name is None:
            return constant(pa.scalar(None, _BYTES), text)
        read = _READERS.get(name.lower())
        if read is None:
            raise DataflowError(f"{text}: formats are {', '.join(_READERS)}")
        if is_tried:
            return rows(_BYTES, _tried(read), string)(args[:1], text)
        return rows(_BYTES, read, string, is_total=False)(args[:1], text)

    return build


def _hmac(args: Sequence[Value], text: str) -> Value:
    name = fixed(string(args[2], text), text) if len(args) == 3 else "SHA-256"
    if name not in _DIGESTS:
        raise UnsupportedError(f"{text}: digests are {', '.join(_DIGESTS)}")

    def sign(key: bytes, message: bytes) -> bytes:
        if not key:
            raise EvaluationError("an empty key")
        return hmac.digest(key, message, _DIGESTS[name])

    return rows(_BYTES, sign, bytes_of, bytes_of, is_total=False)(args[:2], text)


def binary_in(form: str, value: Value, text: str) -> Value:
    """BINARY as text: `base64`, `hex` or `utf-8`. Raises `DataflowError` for another form."""
    writers: dict[str, Callable[[bytes], str]] = {
        "base64": _in_lines,
        "hex": lambda data: data.hex().upper(),
        "utf-8": _validated,
    }
    if form.lower() not in writers:
        raise DataflowError(f"{text}: forms of BINARY are {', '.join(writers)}")
    return rows(_TEXT, writers[form.lower()], bytes_of, is_total=False)([value], text)


FUNCTIONS: dict[str, Function] = {
    "base64": Function(rows(_TEXT, _in_lines, bytes_of), 1, 1),
    "bitmap_count": Function(
        rows(pa.int64(), lambda b: int.from_bytes(b).bit_count(), bytes_of), 1, 1
    ),
    "hmac": Function(_hmac, 2, 3),
    "is_valid_utf8": Function(rows(_FLAG, _is_utf8, bytes_of), 1, 1),
    "make_valid_utf8": Function(rows(_TEXT, lambda b: b.decode(errors="replace"), bytes_of), 1, 1),
    "to_base32": Function(rows(_TEXT, lambda b: base64.b32encode(b).decode(), bytes_of), 1, 1),
    "to_binary": Function(_to_binary(is_tried=False), 1, 2),
    "try_to_binary": Function(_to_binary(is_tried=True), 1, 2),
    "try_validate_utf8": Function(rows(_TEXT, _tried(_validated), bytes_of), 1, 1),
    "unbase64": Function(rows(_BYTES, _without_noise, bytes_of, is_total=False), 1, 1),
    "validate_utf8": Function(rows(_TEXT, _validated, bytes_of, is_total=False), 1, 1),
}
