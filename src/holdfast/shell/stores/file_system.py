"""Any file system that fsspec knows as checkpoint store: HDFS, S3 and its like, memory for tests.

Object stores publish an object when it is closed; a file system may show a part of it before. Both
will do, because nothing leads to an object before it is whole.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import fsspec

from holdfast.shell.stores.base import (
    CheckpointStore,
    NameTaken,
    ObjectMissing,
    ObjectWriter,
    StoreUnavailable,
)


@dataclass(frozen=True, slots=True)
class FileSystemStoreSpec:
    """Where the store is.

    Attributes:
        url: As fsspec takes it, e.g. `s3://bucket/checkpoints`, `webhdfs://host:9870/path`.
        options: Of the file system; they may hold credentials and are never shown.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    def open(self) -> FileSystemStore:
        """Connect."""
        return FileSystemStore(self.url, self.options)


class FileSystemStore(CheckpointStore):
    """One file per object."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        """Connect. Raises `StoreUnavailable` when the file system is unknown or does not answer."""
        self._url = url.rstrip("/")
        with _errors(url):
            self._system, root = fsspec.core.url_to_fs(self._url, **options)
            self._root = root.rstrip("/")
            self._system.makedirs(self._root, exist_ok=True)

    def create(self, name: str) -> ObjectWriter:
        """See the base."""
        path = self._path(name)
        with _errors(f"{self._url}/{name}"):
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            if self._system.exists(path):
                raise NameTaken(f"{self._url}/{name} exists already")
            return _Writer(self._system, path, f"{self._url}/{name}")

    def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        """See the base."""
        with _errors(f"{self._url}/{name}"):
            path = self._path(name)
            data = self._system.cat_file(path, start=offset, end=offset + len(buffer))
        if len(data) < len(buffer):
            raise ObjectMissing(f"{self._url}/{name} is cut short at byte {offset + len(data)}")
        buffer[:] = data

    def size(self, name: str) -> int:
        """See the base."""
        with _errors(f"{self._url}/{name}"):
            return int(self._system.size(self._path(name)))

    def names(self, folder_prefix: str = "") -> list[str]:
        """See the base."""
        with _errors(self._url):
            self._system.invalidate_cache()
            start = len(self._root) + 1
            folders = [
                path.rstrip("/")
                for path in self._system.ls(self._root, detail=False)
                if path.rstrip("/")[start:].startswith(folder_prefix)
            ]
            return sorted(path[start:] for folder in folders for path in self._system.find(folder))

    def delete(self, name: str) -> None:
        """See the base."""
        with contextlib.suppress(ObjectMissing), _errors(f"{self._url}/{name}"):
            self._system.rm_file(self._path(name))
        with contextlib.suppress(Exception):  # Object stores have no folders; others may be full.
            self._system.rmdir(self._path(name).rpartition("/")[0])

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


class _Writer:
    def __init__(self, system: Any, path: str, shown: str) -> None:
        self._system, self._path, self._shown = system, path, shown
        self._file = system.open(path, "wb")

    def write(self, data: bytes | memoryview) -> None:
        with _errors(self._shown):
            self._file.write(bytes(data))

    def close(self) -> None:
        with _errors(self._shown):
            self._file.close()

    def abort(self) -> None:
        with contextlib.suppress(Exception):  # Whatever the file system raises: it is given up.
            discard = getattr(self._file, "discard", None)
            if discard is not None:
                discard()
            self._file.close()
            self._system.rm_file(self._path)


@contextlib.contextmanager
def _errors(shown: str) -> Any:
    """What file systems raise, as our own errors. They are many: each has its own client."""
    try:
        yield
    except (ObjectMissing, StoreUnavailable):
        raise
    except FileNotFoundError as error:
        raise ObjectMissing(f"{shown} is missing") from error
    except Exception as error:  # Each client has its own classes.
        raise StoreUnavailable(f"{shown}: {type(error).__name__}: {error}") from error
