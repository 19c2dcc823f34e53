"""The folder into which a sink's files go, for anybody to read: a local one, or a URL of fsspec.

Files are written under temporary names and renamed. Where a file system cannot rename, as object
stores cannot, fsspec copies and deletes; the copy shows up when it is whole.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import fsspec

from holdfast.core.queues.file_cuts import CutFile
from holdfast.shell.storage.paths import check_url, sync_path
from holdfast.shell.storage.places import is_remote, local_path
from holdfast.shell.storage.rights import storage_error
from holdfast.shell.stores.base import StoreUnavailable


class LocalFolder:
    """A folder; what is made there has the rights that the umask says, as other files of users."""

    def __init__(self, place: str) -> None:
        """Nothing is made before it is needed."""
        self._root = Path(local_path(place))

    def write(self, name: str, write: Callable[[Any], None]) -> None:
        """Make a file, durably; `write` is given it, open. Raises `StorageError`."""
        path = self._root / name
        with _named(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            sync_path(path.parent)

    def rename(self, files: tuple[CutFile, ...]) -> None:
        """Give files their names, durably, unless they have them. Raises `StorageError`."""
        folders: dict[Path, None] = {}
        with _named(self._root):
            for file in files:
                path = self._root / file.name
                path.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    os.rename(self._root / file.temporary, path)
                folder = path.parent
                while folder not in folders and folder.is_relative_to(self._root):
                    folders[folder] = None
                    folder = folder.parent
            for folder in folders:
                sync_path(folder)

    def names(self, folder: str) -> list[str]:
        """The files of a folder, not of those below. Raises `StorageError`."""
        with _named(self._root / folder):
            try:
                return sorted(f"{folder}/{name}" for name in os.listdir(self._root / folder))
            except FileNotFoundError:
                return []

    def has(self, name: str) -> bool:
        """Whether there is a file of this name. Raises `StorageError`."""
        with _named(self._root / name):
            return (self._root / name).exists()

    def delete(self, name: str) -> None:
        """Delete a file, if it is there. Raises `StorageError`."""
        with _named(self._root / name):
            (self._root / name).unlink(missing_ok=True)


class RemoteFolder:
    """A URL; methods as of `LocalFolder`."""

    def __init__(self, place: str) -> None:
        """Raises `StoreUnavailable` if the file system is unknown, `BadName` for a password."""
        check_url(place)
        with _unavailable(place):
            self._system, root = fsspec.core.url_to_fs(place)
            self._root = root.rstrip("/")

    def write(self, name: str, write: Callable[[Any], None]) -> None:
        """See `LocalFolder`."""
        path = f"{self._root}/{name}"
        with _unavailable(path):
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            with self._system.open(path, "wb") as file:
                write(file)

    def rename(self, files: tuple[CutFile, ...]) -> None:
        """See `LocalFolder`."""
        for file in files:
            path, temporary = f"{self._root}/{file.name}", f"{self._root}/{file.temporary}"
            with _unavailable(path):
                self._system.invalidate_cache()
                if self._system.exists(temporary):
                    self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
                    with suppress(FileNotFoundError):  # Somebody else has done it meanwhile.
                        self._system.mv(temporary, path)

    def names(self, folder: str) -> list[str]:
        """See `LocalFolder`."""
        with _unavailable(f"{self._root}/{folder}"):
            self._system.invalidate_cache()
            found = self._system.find(f"{self._root}/{folder}", maxdepth=1)
            return sorted(f"{folder}/{path.rpartition('/')[2]}" for path in found)

    def has(self, name: str) -> bool:
        """See `LocalFolder`."""
        with _unavailable(f"{self._root}/{name}"):
            self._system.invalidate_cache()
            return bool(self._system.exists(f"{self._root}/{name}"))

    def delete(self, name: str) -> None:
        """See `LocalFolder`."""
        with _unavailable(f"{self._root}/{name}"), suppress(FileNotFoundError):
            self._system.rm_file(f"{self._root}/{name}")


UserFolder = LocalFolder | RemoteFolder


def user_folder(place: str) -> UserFolder:
    """The folder at a path or URL."""
    return RemoteFolder(place) if is_remote(place) else LocalFolder(place)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(error, path, "give the sink another folder") from error


@contextmanager
def _unavailable(path: str) -> Iterator[None]:
    """Clients of stores raise what they like; a replacement may not meet it again."""
    try:
        yield
    except Exception as error:
        raise StoreUnavailable(f"{path}: {type(error).__name__}: {error}") from error
