"""Where logs lie under a checkpoint location, and which names may be part of a path."""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.shell.storage.errors import BadName

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def checked_name(name: str) -> str:
    """The name itself. Raises `BadName` unless it is safe as part of a path."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None or ".." in name:
        raise BadName(
            f"{name!r} cannot be a name: use letters, digits, '.', '_' and '-', beginning with a "
            "letter or digit, at most 128 characters"
        )
    return name


def stream_path(root: str, stream: str, partition: int) -> str:
    """The folder, or URL, of one partition of a stream's log."""
    return os.path.join(root, "streams", checked_name(stream), str(partition))


def ingest_path(root: str, source: str) -> str:
    """The folder, or URL, of a source's ingest log."""
    return os.path.join(root, "ingest", checked_name(source))


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
