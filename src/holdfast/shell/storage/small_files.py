"""Reading the files of a location, all in one way.

Whoever reads a small one says how it is made of its members. Whatever is wrong then, with the bytes
or with what they say, is one error here, which names the file and the cure.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.sealed_json import decode_sealed
from holdfast.shell.storage.errors import FileDamaged, StorageError
from holdfast.shell.storage.rights import storage_error

_T = TypeVar("_T")


def decode(content: bytes, place: str, make: Callable[[dict[str, Any]], _T]) -> _T:
    """What a file of `encode_sealed` says.

    Args:
        content: Its bytes.
        place: Its path or URL.
        make: Of its members; may raise what comes of members that are missing or make no sense.

    Raises:
        FileDamaged: It is not what was written.
    """
    value = decode_sealed(content)
    if isinstance(value, CorruptRecord):
        raise FileDamaged(place, value.reason)
    try:
        return make(value)
    except KeyError as error:
        raise FileDamaged(place, f"it lacks {error}") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise FileDamaged(place, str(error)) from error


def decode_text(content: bytes, place: str) -> str:
    """A text. Raises `FileDamaged` if it is none."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise FileDamaged(place, "it is no text") from error


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a file. Raises `StorageError` for what is none, or not for us to read; and `OSError`."""
    try:
        file = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    except IsADirectoryError:
        raise FileDamaged(path, "it is a folder") from None
    except PermissionError as error:
        raise storage_error(error, path) from error
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        raise FileDamaged(path, "it is a folder" if stat.S_ISDIR(mode) else "it is no file")
    return file


def read_at(file: int, path: str | os.PathLike[str], size: int, offset: int) -> bytes:
    """So many bytes of an open file, or all there are.

    A file system may give them in pieces, as those of networks do: only none at all is the end.

    Args:
        file: Its descriptor.
        path: Its name, for errors.
        size: How many bytes.
        offset: Where they begin.

    Raises:
        StorageError: The disk refuses.
    """
    try:
        found = os.pread(file, size, offset)
        if len(found) == size:
            return found
        end = os.fstat(file).st_size
        while len(found) < size and offset + len(found) < end:
            more = os.pread(file, size - len(found), offset + len(found))
            if not more:
                break
            found += more
    except OSError as error:
        raise StorageError(
            f"{os.fspath(path)}: reading at byte {offset} failed: {error.strerror or error}; see "
            "to the disk, then start again"
        ) from error
    return found
