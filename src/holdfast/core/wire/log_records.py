"""The records of stream logs: bytes to values and back, without files.

A segment is a segment header followed by records, each a fixed header and a payload, both padded
to 64 bytes so that a payload is read without copying it. A checksum covers header and payload.
Decoding never raises on any bytes: it gives the value, `CorruptRecord`, or `Incomplete` when more
bytes are needed. Byte by byte in docs/formats.md.
"""

from __future__ import annotations

import enum
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Final, Protocol

import pyarrow as pa
import xxhash

from holdfast.core.model.ids import Incarnation
from holdfast.core.model.tuples import TupleType
from holdfast.core.wire.arrow_batches import BatchRefused, message_parts
from holdfast.core.wire.log_owners import OWNERS_MAX, Owners, chained
from holdfast.core.wire.narrow_columns import read_with, take_out

SEGMENT_MAGICS: Final = tuple(b"HFSEG\x00\x00" + bytes([version]) for version in range(1, 6))
"""Of segments without narrow columns, as they once were; with columns of one value; with any; of
those that name the log's owners, and may have any; of those that may have packed records. Whoever
knows the former alone must not take a record of the latter for a torn end."""
RECORD_MAGICS: Final = (b"HFR\x01", b"HFR\x02", b"HFR\x03", b"HFR\x04")
"""Of a record; of one with columns of one value; of one with offsets; of a packed one."""
_PACKED: Final = RECORD_MAGICS[3]
_PACKED_MAX: Final = 1 << 14
"""Of a message of so many bytes, what Arrow says of its columns may be most: it is packed."""
_PACKED_SIZE: Final = struct.Struct("<I")
ALIGNMENT: Final = 64
MAX_PAYLOAD_BYTES: Final = 1 << 30
MAX_NAME_BYTES: Final = 512
# magic, name bytes, schema bytes, incarnation, owners, first id, checksum
_SEGMENT: Final = struct.Struct("<8sIIIIqQ")
# incarnation, first id
_OWNER: Final = struct.Struct("<Ixxxxq")
# magic, kind, tuple type, narrow columns, incarnation, first id, boundary, created, rows, payload
_RECORD: Final = struct.Struct("<4sBBHIqqqIIQ")
_CHECKED: Final = _RECORD.size - 8  # the checksum itself is the last field
RECORD_HEADER_BYTES: Final = ALIGNMENT
HEADER_READ_BYTES: Final = 4096
"""Few schemas need more."""
_SCHEMAS_KNOWN: Final = 16
Parts = list[bytes | pa.Buffer]


class RecordKind(enum.IntEnum):
    """What a record says."""

    DATA = 1
    BOUNDARY = 2
    END = 3


@dataclass(frozen=True, slots=True)
class CorruptRecord:
    """Bytes that are no record, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The bytes end before the record does.

    Attributes:
        needed: How many bytes are needed from the record's start, as far as is known.
    """

    needed: int


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The beginning of a segment.

    Attributes:
        stream: The stream's name.
        incarnation: Of the writer.
        first_id: Id of the segment's first tuple.
        schema: Of its batches, time column included.
        size: Bytes of the header, padding included.
        owners: Of the log, when its writer opened it, and the writer; empty where they are not
            named: in logs of before, and in parts.
    """

    stream: str
    incarnation: int
    first_id: int
    schema: pa.Schema
    size: int
    owners: Owners = ()


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record.

    Attributes:
        kind: What it says.
        tuple_type: Type of its tuples.
        incarnation: Of the writer.
        first_id: Id of row 0, or the next id for a record without rows.
        count: Rows.
        boundary_us: Nothing older follows after this record.
        created_us: Creation time of the oldest row; 0 if unknown.
        batch: The rows with the time column; None without rows.
        size: Bytes of the record, padding included.
    """

    kind: RecordKind
    tuple_type: TupleType
    incarnation: int
    first_id: int
    count: int
    boundary_us: int
    created_us: int
    batch: pa.RecordBatch | None
    size: int


class EncodeRecord(Protocol):
    """What `encode_record` does, in one way or another."""

    def __call__(
        self,
        kind: RecordKind,
        tuple_type: int,
        incarnation: int,
        first_id: int,
        boundary_us: int,
        created_us: int,
        /,
        *,
        batch: pa.RecordBatch | None,
    ) -> Parts:
        """A record as parts to be written one after the other."""


def encode_segment_header(
    stream: str, incarnation: int, first_id: int, schema: pa.Schema, owners: Owners = ()
) -> bytes:
    """The beginning of a segment, padded."""
    name, schema_bytes = stream.encode(), schema.serialize().to_pybytes()
    body = name + schema_bytes + b"".join(_OWNER.pack(o.incarnation, o.first_id) for o in owners)
    fields = (len(name), len(schema_bytes), incarnation, len(owners), first_id)
    head = _SEGMENT.pack(SEGMENT_MAGICS[-1], *fields, 0)[:-8]
    return _padded(head + struct.pack("<Q", _checksum(head, body)) + body)


def decode_segment_header(data: bytes) -> SegmentHeader | CorruptRecord | Incomplete:
    """The inverse of `encode_segment_header`, from the segment's first bytes."""
    if len(data) < _SEGMENT.size:
        return Incomplete(_SEGMENT.size)
    magic, name_size, schema_size, incarnation, count, first_id, checksum = _SEGMENT.unpack_from(
        data
    )
    if magic not in SEGMENT_MAGICS:
        return CorruptRecord(f"no segment of this format: begins with {magic!r}")
    if name_size > MAX_NAME_BYTES or schema_size > MAX_PAYLOAD_BYTES or count > OWNERS_MAX:
        return CorruptRecord("sizes out of bounds")
    owners_at = _SEGMENT.size + name_size + schema_size
    end = owners_at + count * _OWNER.size
    if len(data) < end:
        return Incomplete(end)
    body = data[_SEGMENT.size : end]
    if _checksum(data[: _SEGMENT.size - 8], body) != checksum:
        return CorruptRecord("checksum of the segment header is wrong")
    try:
        schema = _schema_of(data[_SEGMENT.size + name_size : owners_at])
        stream = body[:name_size].decode()
    except (pa.ArrowException, UnicodeDecodeError, ValueError, OSError, EOFError) as error:
        return CorruptRecord(f"segment header: {error}")
    pairs = [(Incarnation(i), first) for i, first in _OWNER.iter_unpack(data[owners_at:end])]
    if any(a[1] >= b[1] for a, b in itertools.pairwise(pairs)):
        return CorruptRecord("owners of the log out of order")
    owners = chained(pairs) if pairs else ()
    return SegmentHeader(stream, incarnation, first_id, schema, _aligned(end), owners)


@lru_cache(maxsize=_SCHEMAS_KNOWN)
def _schema_of(message: bytes) -> pa.Schema:
    """Raises whatever Arrow says of bytes that are none; the same log has the same ones."""
    return pa.ipc.read_schema(pa.py_buffer(message))


def encode_record(
    kind: RecordKind,
    tuple_type: int,
    incarnation: int,
    first_id: int,
    boundary_us: int,
    created_us: int,
    batch: pa.RecordBatch | None,
    *,
    narrows: bool = False,
) -> Parts:
    """A record as parts to be written one after the other.

    `narrows`: as short as it easily can be, with offsets if it is large, or packed if it is small.
    A small one is copied to the system's memory: where Arrow's own pool grows, the kernel clears a
    huge page, and whoever waits for a short record would wait for some milliseconds.
    """
    payload: Parts = []
    entries: list[bytes] = []
    rows, has_offsets = 0, False
    if batch is not None:
        rows = batch.num_rows
        rest, entries, has_offsets = take_out(batch, narrows=narrows)
        payload = [*message_parts(rest, _system_pool() if narrows else None), *entries]
    magic = RECORD_MAGICS[2 if has_offsets else bool(entries)]
    size = sum(len(part) for part in payload)
    if narrows and not entries and 0 < size <= _PACKED_MAX:
        magic, payload = _PACKED, [_packed(b"".join(payload))]
        size = len(payload[0])
    head = _RECORD.pack(
        magic,
        kind,
        tuple_type,
        len(entries),
        incarnation,
        first_id,
        boundary_us,
        created_us,
        rows,
        size,
        0,
    )[:_CHECKED]
    header = _padded(head + struct.pack("<Q", _checksum(head, *payload)))
    if not size:
        return [header]
    return [header, *payload, bytes(_aligned(size) - size)]


encode_narrow: Final[EncodeRecord] = partial(encode_record, narrows=True)


def decode_record(
    data: memoryview, schema: pa.Schema | None
) -> LogRecord | CorruptRecord | Incomplete:
    """The record at the start of `data`. Arrow batches are fully validated.

    Without a schema, a batch is left where it is: only the checksum says that it is whole.
    """
    if len(data) < RECORD_HEADER_BYTES:
        return Incomplete(RECORD_HEADER_BYTES)
    head = _RECORD.unpack_from(data)
    magic, kind, tuple_type, narrow, incarnation = head[:5]
    first_id, boundary, created, rows, size, checksum = head[5:]
    if magic not in (RECORD_MAGICS[1:3] if narrow else (RECORD_MAGICS[0], _PACKED)):
        return CorruptRecord("no record begins here")
    if size > MAX_PAYLOAD_BYTES:
        return CorruptRecord(f"payload of {size} bytes")
    whole = RECORD_HEADER_BYTES + _aligned(size)
    if len(data) < whole:
        return Incomplete(whole)
    payload = data[RECORD_HEADER_BYTES : RECORD_HEADER_BYTES + size]
    if _checksum(data[:_CHECKED], payload) != checksum:
        return CorruptRecord("checksum is wrong")
    if kind not in RecordKind._value2member_map_ or tuple_type not in TupleType._value2member_map_:
        return CorruptRecord(f"kind {kind}, tuple type {tuple_type}")
    batch = None
    if kind == RecordKind.DATA and schema is not None:
        try:
            has_offsets = magic == RECORD_MAGICS[2]
            if magic == _PACKED:
                payload = _unpacked(payload)
            batch = read_with(payload, narrow, schema, rows, has_offsets=has_offsets)
        except BatchRefused as error:
            return CorruptRecord(str(error))
    return LogRecord(
        RecordKind(kind),
        TupleType(tuple_type),
        incarnation,
        first_id,
        rows,
        boundary,
        created,
        batch,
        whole,
    )


@cache
def _system_pool() -> pa.MemoryPool:
    """Made when it is needed: a fork has the one of its parent."""
    return pa.system_memory_pool()


def _packed(message: bytes) -> bytes:
    """A message behind its size, as an LZ4 block."""
    packed: bytes = pa.compress(message, codec="lz4_raw", asbytes=True)
    return _PACKED_SIZE.pack(len(message)) + packed


def _unpacked(payload: memoryview) -> memoryview:
    """The inverse of `_packed`. Raises `BatchRefused` for anything else."""
    if len(payload) < _PACKED_SIZE.size:
        raise BatchRefused("a packed record without a size")
    (size,) = _PACKED_SIZE.unpack_from(payload)
    if size > _PACKED_MAX:
        raise BatchRefused(f"a packed record of {size} bytes")
    try:
        return memoryview(pa.decompress(payload[_PACKED_SIZE.size :], size, codec="lz4_raw"))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BatchRefused(f"a packed record: {error}") from error


def records_of(segment: memoryview) -> Iterator[tuple[LogRecord, int]]:
    """The whole records of a segment with the offset behind each, up to its end or a torn one.

    Raises:
        ValueError: It has no whole header.
    """
    header = decode_segment_header(bytes(segment[:HEADER_READ_BYTES]))
    if isinstance(header, Incomplete):
        header = decode_segment_header(bytes(segment[: header.needed]))
    if not isinstance(header, SegmentHeader):
        raise ValueError(str(header))
    at = header.size
    while isinstance(record := decode_record(segment[at:], header.schema), LogRecord):
        at += record.size
        yield record, at


def has_record_beyond(data: memoryview, offset: int, schema: pa.Schema | None) -> bool:
    """Whether a whole record follows the bytes at `offset` that are none, so that they are damage.

    A crash of the machine tears off what was not durable, and nobody relies on that. Damage with
    good records behind it is something else. Without a schema their checksums alone are looked at.
    """
    return any(
        bytes(data[at : at + len(RECORD_MAGICS[0])]) in RECORD_MAGICS
        and isinstance(decode_record(data[at:], schema), LogRecord)
        for at in range(offset + ALIGNMENT, len(data), ALIGNMENT)
    )


def _checksum(*parts: bytes | memoryview | pa.Buffer) -> int:
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    return digest.intdigest()


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _padded(data: bytes) -> bytes:
    return data + bytes(_aligned(len(data)) - len(data))
