"""Where logs lie under a checkpoint location, and which names may be part of a path."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.shell.storage.errors import BadName

FEEDS: Final = "feeds"
"""The folder with the feeds of all sinks."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PASSWORD = re.compile(r"[^:/]+://[^/@]*:[^/@]*@")
_OBJECT_NAME_MAX = 1_024
_PART_BYTES_MAX = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


def checked_name(name: str) -> str:
    """The name itself. Raises `BadName` unless it is safe as part of a path."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or ".." in name:
        raise BadName(
            f"{name!r} cannot be a name: use letters, digits, '.', '_' and '-', beginning with a "
            "letter or digit, at most 128 characters"
        )
    return name


def object_parts(name: str) -> list[str]:
    """The parts of an object's name, between `/`. Raises `BadName` if one leads elsewhere."""
    parts = name.split("/")
    is_fit = (
        len(name) <= _OBJECT_NAME_MAX
        and _CONTROL.search(name) is None
        and all(
            part not in ("", ".", "..") and len(part.encode(errors="replace")) <= _PART_BYTES_MAX
            for part in parts
        )
    )
    if not is_fit:
        raise BadName(f"{name[:200]!r} is no name of an object")
    return parts


def refuse_links(root: Path, parts: Sequence[str]) -> Path:
    """The path of an object under a folder. Raises `BadName` if a link leads away on the way."""
    path = os.fspath(root)
    for part in parts:
        path = os.path.join(path, part)
        if os.path.islink(path):
            raise BadName(f"{path} is a link: what is kept in {root} has to lie there")
    return Path(path)


def within(root: str, *parts: str) -> str:
    """A folder, or URL, under a root. Raises `BadName` if it is elsewhere by way of a link."""
    if "://" not in root:
        refuse_links(Path(root), [each for part in parts for each in object_parts(part)])
    return os.path.join(root, *parts)


def stream_path(root: str, stream: str, partition: int) -> str:
    """The folder, or URL, of one partition of a stream's log."""
    return within(root, "streams", checked_name(stream), str(partition))


def feed_path(root: str, sink: str, partition: int) -> str:
    """The folder, or URL, of the feed beside one partition of a sink's log."""
    return within(root, FEEDS, checked_name(sink), str(partition))


def ingest_path(root: str, source: str) -> str:
    """The folder, or URL, of a source's ingest log."""
    return within(root, "ingest", checked_name(source))


def check_url(url: str) -> None:
    """Refuse URLs that hold secrets, which would show wherever the place is named, or lead on.

    Raises:
        BadName: It has a password, or is made of several URLs.
    """
    if "::" in url:
        raise BadName("a location is one URL, not a chain of several")
    refuse_password(url)


def refuse_password(url: str) -> None:
    """Raise `BadName` for a URL with a password, which would show wherever the place is named."""
    if _PASSWORD.match(url):
        scheme = url.partition("://")[0]
        raise BadName(
            f"a {scheme} place with a password in its URL: give it to fsspec in its "
            "configuration files or by the environment, where nobody sees it"
        )


def kafka_path(root: str, source: str, instance: int) -> str:
    """The folder, or URL, of what one instance of a Kafka source has read."""
    return os.path.join(root, "kafka", checked_name(source), str(instance))


def metrics_path(root: str) -> str:
    """The folder, or URL, of the log of progress reports."""
    return os.path.join(root, "metrics")


def sync_path(path: Path) -> None:
    """Make a file's bytes durable, whoever wrote them, or a folder's list of files."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
