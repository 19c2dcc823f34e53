"""Packs of commits as bytes; see core/queues/packing.py.

records of the files, commit by commit, as in stream logs
the commits, as they were written
an index as sealed JSON: of each commit its place, and the places of its files
length of the index, and a magic: an object without them is not whole
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.wire.log_records import CorruptRecord, LogRecord, decode_record
from holdfast.core.wire.sealed_json import decode_sealed, encode_sealed

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC: Final = b"HFPACK\x00\x01"
_TAIL: Final = struct.Struct("<Q8s")
TAIL_BYTES: Final = _TAIL.size


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes of a pack: from where, and how many."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class PackedCommit:
    """Where one commit lies in its pack, and each of its files; a user's file has no bytes."""

    place: Place
    files: tuple[Place, ...]

    @property
    def size_bytes(self) -> int:
        """Of its rows."""
        return sum(file.size for file in self.files)


class PackMaker:
    """Puts a pack together, commit by commit."""

    def __init__(self) -> None:
        """Nothing is in it yet."""
        self._rows: list[bytes | pa.Buffer] = []
        self._commits: list[bytes] = []
        self._files: list[list[Place]] = []
        self._size = 0

    def begin_commit(self, content: bytes) -> None:
        """The next commit, as it was written."""
        self._commits.append(content)
        self._files.append([])

    def add_file(self, parts: Sequence[bytes | pa.Buffer]) -> None:
        """The records of its next file; none of a user's file."""
        size = sum(len(part) for part in parts)
        self._files[-1].append(Place(self._size, size))
        self._rows += parts
        self._size += size

    def made(self) -> list[bytes | pa.Buffer]:
        """The pack, in parts to be written one after the other."""
        entries, offset = [], self._size
        for content, files in zip(self._commits, self._files, strict=True):
            entries.append([offset, len(content), [[f.offset, f.size] for f in files]])
            offset += len(content)
        index = encode_sealed({"commits": entries})
        return [*self._rows, *self._commits, index, _TAIL.pack(len(index), MAGIC)]


def index_place(tail: bytes, size: int) -> Place | CorruptRecord:
    """Where the index lies in a pack of a size, by its last `TAIL_BYTES` bytes."""
    if len(tail) != TAIL_BYTES or tail[-len(MAGIC) :] != MAGIC:
        return CorruptRecord("it is not whole")
    length = int(_TAIL.unpack(tail)[0])
    if length > size - TAIL_BYTES:
        return CorruptRecord("its index is longer than itself")
    return Place(size - TAIL_BYTES - length, length)


def decode_index(data: bytes) -> tuple[PackedCommit, ...] | CorruptRecord:
    """The commits of a pack, in order. Any bytes may come."""
    value = decode_sealed(data)
    if isinstance(value, CorruptRecord):
        return value
    try:
        return tuple(
            PackedCommit(_place(offset, size), tuple(_place(*file) for file in files))
            for offset, size, files in value["commits"]
        )
    except (KeyError, TypeError, ValueError) as error:
        return CorruptRecord(f"its index makes no sense: {error}")


def _place(offset: object, size: object) -> Place:
    if not (isinstance(offset, int) and isinstance(size, int) and offset >= 0 and size >= 0):
        raise ValueError(f"no place: {offset!r}, {size!r}")
    return Place(offset, size)


def records_in(data: memoryview, schema: pa.Schema) -> Iterator[LogRecord | CorruptRecord]:
    """The records of one file; what is none comes last."""
    at = 0
    while at < len(data):
        record = decode_record(data[at:], schema)
        if not isinstance(record, LogRecord):
            found = (
                record if isinstance(record, CorruptRecord) else CorruptRecord("it is cut short")
            )
            yield found
            return
        yield record
        at += record.size
