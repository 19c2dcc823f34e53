"""Users' own files: listing them, and knowing one again; user_rows.py reads them.

A file counts as it was when it was recorded. Whoever finds another size or version later, or no
file, says so and reads nothing. Names that begin with `_` or `.` are passed over, as Spark does:
who writes a file under such a name and renames it when it is whole is never read half-way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from glob import has_magic, iglob
from typing import Any, Final
from urllib.parse import unquote

import fsspec
import pyarrow as pa

from holdfast.core.queues.file_discovery import ListedFile
from holdfast.core.queues.recording import UserFile
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.places import is_remote, local_path
from holdfast.shell.stores.file_system import modified_s

_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


class UserFileError(StorageError):
    """A user's file cannot be read as it was recorded."""


class UserFileChanged(UserFileError):
    """A user's file was replaced, changed or removed after it had become part of a stream."""


class UserFileDamaged(UserFileError):
    """A user's file is not what its format and schema say."""


# -- listing --------------------------------------------------------------------------------------


def list_files(place: str) -> list[ListedFile]:
    """The files of a folder, of its partitions' folders (`key=value`), or of a glob.

    Raises:
        UserFileError: The place cannot be listed.
    """
    return _list_remote(place) if is_remote(place) else _list_local(local_path(place))


def _list_local(place: str) -> list[ListedFile]:
    place = os.path.abspath(place)  # Nodes, and later drivers, may run in other folders.
    roots = sorted(iglob(place)) if has_magic(place) else [place]
    try:
        return [found for root in roots for found in _walk(root)]
    except OSError as error:
        raise UserFileError(f"{place} cannot be listed: {error}") from None


def _walk(place: str) -> Iterator[ListedFile]:
    if not os.path.isdir(place):
        if os.path.lexists(place) and not _is_hidden(place):
            yield from _listed(place)
        return
    with os.scandir(place) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if not entry.is_dir():
                yield from _listed(entry.path)
            elif "=" in entry.name:
                yield from _walk(entry.path)


def _listed(path: str) -> Iterator[ListedFile]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return  # Gone since it was listed: it is not part of the stream.
    yield ListedFile(UserFile(path, found.st_size, str(found.st_mtime_ns)), found.st_mtime_ns)


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith(("_", "."))


def _list_remote(place: str, *, is_file: bool = False) -> list[ListedFile]:
    scheme = place.partition("://")[0]
    try:
        system, root = fsspec.core.url_to_fs(place)
        system.invalidate_cache()
        found = _matching(system, root) if has_magic(root) and not is_file else _below(system, root)
        return [
            _remote_file(f"{scheme}://{path.lstrip('/')}", info) for path, info in found.items()
        ]
    except Exception as error:  # File systems of fsspec raise whatever their clients do.
        raise UserFileError(f"{place} cannot be listed: {error}") from None


def _matching(system: Any, pattern: str) -> dict[str, dict[str, Any]]:
    """The files that a glob names, and those of the folders that it names."""
    found: dict[str, dict[str, Any]] = {}
    for path, info in system.glob(pattern, detail=True).items():
        if info["type"] != "file":
            found.update(_below(system, path))
        elif not _is_hidden(path):
            found[path] = info
    return found


def _below(system: Any, root: str) -> dict[str, dict[str, Any]]:
    """The files of a folder and of its partitions' folders, or a file itself."""
    base = root.rstrip("/")
    return {
        path: info
        for path, info in system.find(root, detail=True).items()
        if info["type"] == "file" and _is_in_partition(path.removeprefix(base))
    }


def _is_in_partition(path: str) -> bool:
    """Whether a file is not hidden and lies in partitions' folders alone, below the root."""
    *folders, name = path.strip("/").split("/")
    return not _is_hidden(name) and all("=" in folder for folder in folders)


def _remote_file(path: str, info: dict[str, Any]) -> ListedFile:
    seconds = modified_s(info)
    version = str(info.get("ETag") or info.get("etag") or int(seconds * 1e9))
    return ListedFile(UserFile(path, int(info["size"]), version), int(seconds * 1e9))


def require_unchanged(file: UserFile) -> None:
    """Raise `UserFileChanged` unless the file is the one that was recorded."""
    found = _as_it_is(file.path)
    if found != file:
        what = "is gone" if found is None else "was replaced or changed"
        raise UserFileChanged(
            f"{file.path} {what} after it had become part of the stream ({file.size_bytes} bytes, "
            f"version {file.version}). Put it back as it was, or begin again in a new "
            "checkpointLocation"
        )


def _as_it_is(path: str) -> UserFile | None:
    """A file by its very name, which may have characters of globs; None: there is none."""
    try:
        listed = _list_remote(path, is_file=True) if is_remote(path) else list(_listed(path))
    except OSError as error:
        raise UserFileError(f"{path} cannot be looked at: {error}") from None
    return next((each.file for each in listed), None)


def partition_of(path: str) -> dict[str, str | None]:
    """What a path says of the columns: `.../day=2026-11-25/part.parquet`; null by its own name."""
    pairs = (folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder)
    return {
        unquote(key): None if value == _NULL_PARTITION else unquote(value) for key, value in pairs
    }


@contextmanager
def opened(file: UserFile) -> Iterator[Any]:
    """The file's bytes.

    Raises:
        UserFileChanged: It is gone.
        UserFileDamaged: For whatever Arrow raises over them.
    """
    try:
        if is_remote(file.path):
            with fsspec.open(file.path, "rb") as remote:
                yield remote
        else:
            with pa.memory_map(file.path) as mapped:
                yield mapped
    except FileNotFoundError:
        raise UserFileChanged(f"{file.path} is gone while it is read; put it back") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserFileDamaged(f"{file.path} cannot be read: {error}") from error
