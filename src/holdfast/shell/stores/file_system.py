"""Any file system that fsspec knows as checkpoint store: S3 and its like, memory for tests.

Object stores publish an object when it is closed; a file system may show a part of it before. Both
will do, because nothing leads to an object before it is whole, and parts of logs say whether they
are.

S3 and its like, Google's and Azure's stores, local files and memory create an object exclusively
when asked to. For other file systems fsspec has no such call: there the store looks first, so that
of two writers at the same moment both may believe that they were first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

from holdfast.shell.storage.errors import FileDamaged
from holdfast.shell.storage.paths import check_url, object_parts, refuse_links
from holdfast.shell.storage.rights import CannotName, give_name, unnamed_file
from holdfast.shell.stores.base import (
    CheckpointStore,
    NameTaken,
    ObjectDamaged,
    ObjectMissing,
    ObjectWriter,
    StoredObject,
    StoreUnavailable,
)
from holdfast.shell.stores.webhdfs import SCHEMES, WebHdfsStore

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class FileSystemStoreSpec:
    """Where the store is.

    Attributes:
        url: As fsspec takes it, e.g. `s3://bucket/checkpoints`, `webhdfs://host:9870/path`.
        options: Of the file system; they may hold credentials and are never shown.
    """

    url: str
    options: dict[str, Any] = field(default_factory=dict, repr=False)

    def open(self) -> CheckpointStore:
        """Connect. Raises as `open_url`."""
        return open_url(self.url, self.options)


def open_url(url: str, options: dict[str, Any]) -> CheckpointStore:
    """The store behind a URL: HDFS by a client of our own, all others by fsspec.

    Raises:
        BadName: The URL has a password in it, or is none.
        StoreUnavailable: The file system is unknown or does not answer.
    """
    if url.partition("://")[0] in SCHEMES:
        return WebHdfsStore(url, options)
    return FileSystemStore(url, options)


class FileSystemStore(CheckpointStore):
    """One file per object."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        """Connect. Raises `StoreUnavailable` when the file system is unknown or does not answer."""
        check_url(url)
        self._url = url.rstrip("/")
        with _errors(url):
            self._system, root = fsspec.core.url_to_fs(self._url, **options)
            self._root = root.rstrip("/")
        self.is_exclusive = _is_exclusive(self._system)

    def put(self, name: str, parts: Sequence[bytes | pa.Buffer]) -> None:
        """See the base. One request, where the file system has objects."""
        path, data = self._path(name), b"".join(parts)
        with _errors(f"{self._url}/{name}"):
            try:
                self._create(path, data)
            except FileNotFoundError:
                self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
                self._create(path, data)

    def _create(self, path: str, data: bytes) -> None:
        if isinstance(self._system, LocalFileSystem):
            _create_local(path, data)
        else:
            self._system.pipe_file(path, data, mode="create")

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

    def read(self, name: str) -> memoryview:
        """See the base."""
        with _errors(f"{self._url}/{name}"):
            return memoryview(self._system.cat_file(self._path(name)))

    def size(self, name: str) -> int:
        """See the base."""
        with _errors(f"{self._url}/{name}"):
            return int(self._system.size(self._path(name)))

    def names(self, folder_prefix: str = "") -> list[str]:
        """See the base."""
        with _errors(self._url):
            start = len(self._root) + 1
            folders = [name for name in self.children() if name.startswith(folder_prefix)]
            return sorted(
                path[start:]
                for folder in folders
                for path in self._system.find(f"{self._root}/{folder}")
            )

    def listing(self) -> list[StoredObject]:
        """See the base."""
        with _errors(self._url):
            start = len(self._root) + 1
            return [
                StoredObject(path[start:], int(info["size"]), round(modified_s(info) * 1e6))
                for folder in self.children()
                for path, info in sorted(
                    self._system.find(f"{self._root}/{folder}", detail=True).items()
                )
            ]

    def children(self) -> list[str]:
        """See the base. Folders come to be with what is in them."""
        with _errors(self._url):
            self._system.invalidate_cache()
            try:
                listed = self._system.ls(self._root, detail=False)
            except FileNotFoundError:
                return []
            return sorted(path.rstrip("/").rpartition("/")[2] for path in listed)

    def delete(self, name: str) -> None:
        """See the base."""
        with contextlib.suppress(ObjectMissing), _errors(f"{self._url}/{name}"):
            self._system.rm_file(self._path(name))
        with contextlib.suppress(Exception):  # Object stores have no folders; others may be full.
            self._system.rmdir(self._path(name).rpartition("/")[0])

    def _path(self, name: str) -> str:
        parts = object_parts(name)
        if isinstance(self._system, LocalFileSystem):
            refuse_links(Path(self._root), parts)
        return f"{self._root}/{name}"


def modified_s(info: Mapping[str, Any]) -> float:
    """When a file was modified last, in seconds since 1970; each client says it in its own way."""
    modified = info.get("LastModified") or info.get("mtime") or info.get("created") or 0.0
    return modified if isinstance(modified, (int, float)) else float(modified.timestamp())


def _is_exclusive(system: Any) -> bool:
    """Whether the file system itself refuses to create what exists: then it has its own way to."""
    if isinstance(system, LocalFileSystem):
        return True
    own = [getattr(type(system), name, None) for name in ("pipe_file", "_pipe_file")]
    generic = (AbstractFileSystem.pipe_file, getattr(AsyncFileSystem, "_pipe_file", None))
    return any(
        method is not None and method not in generic and "mode" in signature(method).parameters
        for method in own
    )


def _create_local(path: str, data: bytes) -> None:
    """A file appears with all that is in it, as objects do. Raises `OSError`."""
    try:
        with os.fdopen(unnamed_file(os.path.dirname(path), os.O_WRONLY, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            give_name(file.fileno(), path)
    except CannotName:  # Or there is no such folder: this says so.
        with open(path, "xb") as file:
            file.write(data)


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
    except (ObjectDamaged, ObjectMissing, StoreUnavailable):
        raise
    except IsADirectoryError as error:
        raise ObjectDamaged(str(FileDamaged(shown, "it is a folder"))) from error
    except FileExistsError as error:
        raise NameTaken(f"{shown} exists already") from error
    except FileNotFoundError as error:
        raise ObjectMissing(f"{shown} is missing") from error
    except Exception as error:  # Each client has its own classes.
        raise StoreUnavailable(f"{shown}: {type(error).__name__}: {error}") from error
