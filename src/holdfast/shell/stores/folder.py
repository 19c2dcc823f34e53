"""A folder of a local or mounted file system as checkpoint store."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.shell.storage.errors import FileDamaged, StorageError
from holdfast.shell.storage.paths import object_parts, refuse_links, sync_path
from holdfast.shell.storage.rights import create_file, is_forbidden, make_folder, storage_error
from holdfast.shell.storage.small_files import open_regular
from holdfast.shell.stores.base import (
    CheckpointStore,
    NameTaken,
    ObjectDamaged,
    ObjectMissing,
    ObjectWriter,
    StoreUnavailable,
)
from holdfast.shell.stores.drafts import Drafts

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.checkpoint.loading import PageRun

_BAD_SECTOR = (errno.EIO, errno.EBADMSG)
_SPARE = ".spare"
_SPARE_BYTES = 4096
_SYNC_BYTES = 8 << 20
"""So much is on its way to the disk at most: with more, the system makes every writer wait, and
the node that puts out results is one."""


@dataclass(frozen=True, slots=True)
class FolderStoreSpec:
    """The folder's path."""

    path: str

    def open(self) -> FolderStore:
        """Use the folder; it is made if need be."""
        return FolderStore(self.path)


class FolderStore(CheckpointStore):
    """One file per object. Files are created exclusively and synced before they count."""

    def __init__(self, path: str) -> None:
        """Use a folder. Raises `StoreUnavailable` when it cannot be made."""
        self._root = Path(path)
        self._drafts = Drafts(self._root)
        try:
            make_folder(self._root)
        except OSError as error:
            raise _unavailable(path, error) from error

    def create(self, name: str) -> ObjectWriter:
        """See the base."""
        return _FileWriter(self._path(name))

    def put(self, name: str, parts: Sequence[bytes | pa.Buffer]) -> None:
        """See the base. Readers see the object whole or not at all."""
        path = self._path(name)
        with _errors(path), self._drafts.new() as draft:
            _write_durably(draft.file, parts)
            make_folder(path.parent)
            draft.publish(path)

    def put_soon(self, name: str, text: bytes) -> None:
        """See the base. It goes into a spare file, if there is one.

        A new file is durable when the file system has written its journal, which beside busy cores
        took 4 ms where the blocks of a file that had been there took 0.5 ms (nine in ten).
        """
        path = self._path(name)
        try:
            with _errors(path), self._drafts.of(self._root / _SPARE) as draft:
                if draft is not None and _has_filled(draft.file, text):
                    make_folder(path.parent)
                    draft.publish(path)
                    return
            self.put(name, [text])
        finally:
            self._make_spare()

    def _make_spare(self) -> None:
        """A file of blanks whose blocks the file system has, and will not write of again."""
        spare = self._root / _SPARE
        with contextlib.suppress(OSError):  # There is none then.
            if not spare.exists():
                with self._drafts.new() as draft:
                    _write_durably(draft.file, [b" " * _SPARE_BYTES])
                    draft.path.rename(spare)

    def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        """See the base."""
        with self._reading(name) as file:
            _fill(file, name, offset, buffer)

    def read(self, name: str) -> memoryview:
        """See the base; the file is looked up once."""
        with self._reading(name) as file:
            buffer = memoryview(bytearray(os.fstat(file).st_size))
            _fill(file, name, 0, buffer)
        return buffer

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[int]:
        """An object's file, open; raises as `read_into` for what goes wrong with it."""
        path = self._path(name)
        try:
            file = open_regular(path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError as error:
            raise ObjectMissing(f"{path} is missing") from error
        except FileDamaged as error:
            raise ObjectDamaged(str(error)) from error
        except OSError as error:
            raise _unavailable(path, error) from error
        try:
            yield file
        except OSError as error:
            if error.errno in _BAD_SECTOR:
                raise ObjectDamaged(f"{path}: {error.strerror}") from error
            raise _unavailable(path, error) from error
        finally:
            os.close(file)

    def read_pages(self, name: str, run: PageRun) -> None:
        """See the base. Compiled; whatever goes wrong is found out by the plain way."""
        # Here alone: whoever only wants small files need not load a compiler.
        from holdfast.shell.stores.checked_reading import read_checked

        with contextlib.suppress(OSError):
            file = os.open(self._path(name), os.O_RDONLY)
            try:
                whole = read_checked(
                    file, run.offset, run.words, run.shift, run.seeds, run.checksums
                )
            finally:
                os.close(file)
            if whole == len(run.seeds):
                return
        super().read_pages(name, run)

    def size(self, name: str) -> int:
        """See the base."""
        path = self._path(name)
        try:
            return path.stat().st_size
        except FileNotFoundError as error:
            raise ObjectMissing(f"{path} is missing") from error
        except OSError as error:
            raise _unavailable(path, error) from error

    def names(self, folder_prefix: str = "") -> list[str]:
        """See the base."""
        try:
            folders = [
                f
                for f in os.scandir(self._root)
                if f.name.startswith(folder_prefix) and not f.name.startswith(".")
            ]
            found: list[str] = []
            for folder in folders:
                with contextlib.suppress(FileNotFoundError):  # Deleted just now.
                    if folder.is_dir(follow_symlinks=False):
                        files = (f.name for f in os.scandir(folder) if not f.name.startswith("."))
                        found += [f"{folder.name}/{name}" for name in files]
        except OSError as error:
            raise _unavailable(self._root, error) from error
        return sorted(found)

    def children(self) -> list[str]:
        """See the base."""
        try:
            return sorted(name for name in os.listdir(self._root) if not name.startswith("."))
        except OSError as error:
            raise _unavailable(self._root, error) from error

    def delete(self, name: str) -> None:
        """See the base; an empty folder goes too."""
        path = self._path(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _unavailable(path, error) from error
        with contextlib.suppress(OSError):  # Others are still in it.
            path.parent.rmdir()

    def _path(self, name: str) -> Path:
        return refuse_links(self._root, object_parts(name))


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    """What the system says of making an object, as our own errors."""
    try:
        yield
    except FileExistsError as error:
        raise NameTaken(f"{path} exists already") from error
    except OSError as error:
        raise _unavailable(path, error) from error


def _unavailable(path: Path | str, error: OSError) -> StorageError:
    """It may work later; or never, for this user."""
    if is_forbidden(error):
        return storage_error(error, path)
    return StoreUnavailable(f"{path}: {error.strerror}")


def _write_durably(file: int, parts: Sequence[bytes | pa.Buffer]) -> None:
    for part in parts:
        view = memoryview(part).cast("B")
        while len(view):
            view = view[os.write(file, view) :]
    os.fsync(file)


def _has_filled(file: int, text: bytes) -> bool:
    """Make a text durable in a spare file; False: it cannot be used."""
    if len(text) > _SPARE_BYTES:
        return False
    try:
        is_whole = os.pwrite(file, text.ljust(_SPARE_BYTES), 0) == _SPARE_BYTES
        os.fdatasync(file)
    except OSError:  # A new one may find room.
        return False
    return is_whole


def _fill(file: int, name: str, offset: int, buffer: memoryview) -> None:
    """Fill `buffer` from `offset` on. Raises `ObjectMissing` if there is less."""
    done = 0
    while done < len(buffer):
        count = os.preadv(file, [buffer[done:]], offset + done)
        if count == 0:
            raise ObjectMissing(f"{name} is cut short at byte {offset + done}")
        done += count


class _FileWriter:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._unsynced = 0
        try:
            make_folder(path.parent)
            self._file = create_file(path, os.O_WRONLY)
        except FileExistsError as error:
            raise NameTaken(f"{path} exists already") from error
        except OSError as error:
            raise _unavailable(path, error) from error

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        try:
            self._unsynced += len(view)
            while len(view):
                view = view[os.write(self._file, view) :]
            if self._unsynced >= _SYNC_BYTES:
                os.fdatasync(self._file)
                self._unsynced = 0
        except OSError as error:
            raise _unavailable(self._path, error) from error

    def close(self) -> None:
        try:
            os.fdatasync(self._file)
            sync_path(self._path.parent)
            sync_path(self._path.parent.parent)
        except OSError as error:
            raise _unavailable(self._path, error) from error
        finally:
            os.close(self._file)

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._file)
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
