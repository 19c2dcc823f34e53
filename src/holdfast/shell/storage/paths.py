"""Where logs lie under a checkpoint location, and which names may be part of a path."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
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


def stream_path(root: str, stream: str, partition: int) -> Path:
    """The folder of one partition of a stream's log."""
    return Path(root) / "streams" / checked_name(stream) / str(partition)


def ingest_path(root: str, source: str) -> Path:
    """The folder of a source's ingest log."""
    return Path(root) / "ingest" / checked_name(source)


def location_id(location: str) -> str:
    """What tells a checkpoint location from all others; made up when it is first asked for."""
    path = Path(location, "location.id")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), path.open("x") as file:
            file.write(secrets.token_hex(8))
            file.flush()
            os.fsync(file.fileno())
        sync_path(path.parent)
    return checked_name(path.read_text())


def sync_path(path: Path) -> None:
    """Make a file's bytes durable, whoever wrote them, or a folder's list of files."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
