"""Columns that hold one value all through a batch, as a window's edges do: kept as that value.

They are columns of 64-bit words without nulls. One column at least stays as it is. How much memory
few bytes can ask for so has a bound.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.wire.arrow_batches import BatchRefused, read_batch

_ROWS_MIN: Final = 4096
"""Of fewer rows the search costs more than it saves."""
_COLUMNS_MAX: Final = 64
_BYTES_MAX: Final = 256 << 20
"""Of the columns that are made again."""
_ENTRY: Final = struct.Struct("<Hxxxxxxq")
"""Number of the column in the schema, its word."""


def take_out(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, list[bytes]]:
    """The batch without these columns, and an entry of 16 bytes for each of them."""
    if batch.num_rows < _ROWS_MIN or not _are_few(batch.num_columns, batch.num_rows):
        return batch, []
    words = [_word_of(column) for column in batch.columns]
    kept = [i for i, word in enumerate(words) if word is None] or [0]
    if len(kept) == len(words):
        return batch, []
    entries = [_ENTRY.pack(i, word) for i, word in enumerate(words) if i not in kept]
    return batch.select(kept), entries


def read_with(payload: memoryview, count: int, schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """The inverse: a batch out of its message and the entries behind it.

    Args:
        payload: The message, then `count` entries.
        count: How many; 0: it is a message alone.
        schema: As declared, of all columns.
        rows: So many are announced.

    Raises:
        BatchRefused: Whatever is wrong with it.
    """
    if not count:
        return read_batch(payload, schema, rows)
    end = len(payload) - count * _ENTRY.size
    if end < 0 or count >= len(schema) or not _are_few(count, rows):
        raise BatchRefused(f"{count} constant columns of {len(schema)}, {rows} rows")
    constants = dict(_ENTRY.iter_unpack(payload[end:]))
    can_be = all(i < len(schema) and _is_word(schema.types[i]) for i in constants)
    if len(constants) < count or not can_be:
        raise BatchRefused("a constant column that cannot be one")
    others_schema = pa.schema([field for i, field in enumerate(schema) if i not in constants])
    rest = read_batch(payload[:end], others_schema, rows)
    others = iter(rest.columns)
    columns = [
        _column(field.type, constants[i], rows) if i in constants else next(others)
        for i, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _are_few(columns: int, rows: int) -> bool:
    return columns <= _COLUMNS_MAX and columns * rows * 8 <= _BYTES_MAX


def _is_word(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) and kind.bit_width == 64)


def _word_of(column: pa.Array) -> int | None:
    """The word of all rows; None if there is no such."""
    if not _is_word(column.type) or column.null_count:
        return None
    words = np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)
    if words[0] != words[-1] or not bool((words == words[0]).all()):
        return None
    return int(words[0])


def _column(kind: pa.DataType, word: int, rows: int) -> pa.Array:
    words = np.full(max(rows, 1), word, dtype=np.int64)
    column = pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words)], null_count=0)
    try:
        column[:1].validate(full=True)
    except pa.ArrowInvalid as error:
        raise BatchRefused(f"a constant column: {error}") from error
    return column[:rows]
