"""Record batches to bytes, and out of bytes that nobody vouches for.

Arrow checks that a message is well formed; it does not check that string offsets lie within their
data, and a compressed body says itself how much memory it wants. So nothing compressed is read, and
what is read is validated in full before anybody uses it, or writes it to a log.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

MAX_ROWS: Final = 1 << 24
_COPIED_ROWS: Final = 4096
"""So few rows are copied sooner than their columns are listed."""
_PARTS_MAX: Final = 900
"""Systems take so many parts in one write, and a few more (1,024 on Linux)."""
_HEADER_SLOT: Final = 2  # of a Message [Arrow, Message.fbs]
_COMPRESSION_SLOT: Final = 3  # of a RecordBatch


def message_parts(
    batch: pa.RecordBatch, pool: pa.MemoryPool | None = None
) -> list[bytes | pa.Buffer]:
    """The batch as an Arrow IPC message, in parts to be written one after the other.

    Those of large batches are the columns' own memory: they are not copied. A small one is copied
    to memory of a pool; None: Arrow's default.
    """
    if batch.num_rows < _COPIED_ROWS:
        return [batch.serialize(memory_pool=pool)]
    parts = _Parts()
    with pa.ipc.new_stream(parts, batch.schema) as stream:
        stream.write_batch(batch.slice(0, 0))  # The schema goes before it.
        parts.taken.clear()
        stream.write_batch(batch)
        taken = list(parts.taken)
    return taken if len(taken) <= _PARTS_MAX else [batch.serialize()]


class _Parts:
    """A file that Arrow writes to, which keeps what it is given."""

    closed = False

    def __init__(self) -> None:
        self.taken: list[bytes | pa.Buffer] = []

    def write(self, part: bytes | pa.Buffer) -> int:
        self.taken.append(part)
        return len(part)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


class BatchRefused(ValueError):
    """Bytes that are no batch as declared; the text says why."""


def read_batch(data: object, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """The batch, validated in full; its columns lie in `data`, nothing is copied.

    Args:
        data: An Arrow IPC message, bytes-like.
        schema: As declared; what the bytes say of it does not count.
        rows: So many are announced.

    Raises:
        BatchRefused: Whatever is wrong with it.
    """
    if not 0 <= rows <= MAX_ROWS:
        raise BatchRefused(f"{rows} rows")
    try:
        message = pa.ipc.read_message(pa.py_buffer(data))
        if _is_compressed(memoryview(message.metadata)):
            raise BatchRefused("a compressed batch")
        batch = pa.ipc.read_record_batch(message, schema)
        if batch.num_rows != rows:
            raise BatchRefused(f"{batch.num_rows} rows, {rows} announced")
        batch.validate(full=True)
    except BatchRefused:
        raise
    except (pa.ArrowException, ValueError, TypeError, OSError, EOFError, struct.error) as error:
        raise BatchRefused(f"not a record batch of the declared schema: {error}") from error
    return batch


def _is_compressed(metadata: memoryview) -> bool:
    """Whether a message's header is a table with a field `compression`. Raises `struct.error`."""
    (root,) = struct.unpack_from("<I", metadata)
    place = _slot(metadata, root, _HEADER_SLOT)
    if not place:
        return False  # It has no header: the reader refuses it.
    (offset,) = struct.unpack_from("<I", metadata, root + place)
    return bool(_slot(metadata, root + place + offset, _COMPRESSION_SLOT))


def _slot(metadata: memoryview, table: int, number: int) -> int:
    """Where a field of a flatbuffer's table is, relative to the table; 0: it is not there."""
    (back,) = struct.unpack_from("<i", metadata, table)
    begin = table - back
    if not 0 <= begin < len(metadata):
        raise BatchRefused("metadata out of bounds")
    (size,) = struct.unpack_from("<H", metadata, begin)
    at = 4 + 2 * number
    if at >= size:
        return 0
    (place,) = struct.unpack_from("<H", metadata, begin + at)
    return int(place)
