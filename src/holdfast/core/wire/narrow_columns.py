"""Columns whose values lie close together, kept as their least value and small offsets from it.

A column that holds one value all through a batch, as a window's edges do, needs no offsets at all.
Columns are of 64-bit words without nulls; those of whole numbers and times may have offsets of 1,
2 or 4 bytes. So may decimals of 128 bits that fit into 64, or else offsets of 8 bytes. What a disk
takes in a second is the bound of many a sink, and a page that the kernel has to bring for a file
costs more than making the offsets.

One column at least stays in the batch. How much memory few bytes can ask for has a bound.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.wire.arrow_batches import BatchRefused, read_batch

_ROWS_MIN: Final = 4096
"""Of fewer rows the search costs more than it saves."""
_COLUMNS_MAX: Final = 64
_BYTES_MAX: Final = 256 << 20
"""Of the columns that are made again."""
_ENTRY: Final = struct.Struct("<HBxxxxxq")
"""Number of the column in the schema, bytes of its offsets, its least word."""
_OFFSETS: Final = {
    1: (pa.uint8(), "u1"),
    2: (pa.uint16(), "u2"),
    4: (pa.uint32(), "u4"),
    8: (pa.int64(), "i8"),
}
_WORD_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class _Narrow:
    """A column as it is kept.

    Attributes:
        base: Its least word.
        width: Bytes of each offset from it; 0: there are none.
        offsets: Of all rows; None without.
    """

    base: int
    width: int
    offsets: pa.Array | None


def take_out(
    batch: pa.RecordBatch, *, narrows: bool = False
) -> tuple[pa.RecordBatch, list[bytes], bool]:
    """What is left of a batch.

    Args:
        batch: The rows.
        narrows: Whether columns may have offsets; else those of one value are taken out alone.

    Returns:
        The batch without columns of one value, and with offsets in the place of others; an entry of
        16 bytes for each of them; whether any has offsets.
    """
    if batch.num_rows < _ROWS_MIN or not _are_few(batch.num_columns, batch.num_rows):
        return batch, [], False
    found = [_narrow(column, narrows=narrows) for column in batch.columns]
    if all(narrow is not None and narrow.offsets is None for narrow in found):
        found[0] = None
    entries = [_ENTRY.pack(i, n.width, n.base) for i, n in enumerate(found) if n is not None]
    kinds = [field.type for field, n in zip(batch.schema, found, strict=True) if n is not None]
    if not (entries and _fit(kinds, batch.num_rows)):
        return batch, [], False
    fields: list[pa.Field] = []
    columns: list[pa.Array] = []
    for field, column, narrow in zip(batch.schema, batch.columns, found, strict=True):
        if narrow is None:
            fields.append(field)
            columns.append(column)
        elif narrow.offsets is not None:
            fields.append(pa.field(field.name, narrow.offsets.type))
            columns.append(narrow.offsets)
    rest = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
    return rest, entries, any(n is not None and n.width > 0 for n in found)


def read_with(
    payload: memoryview, count: int, schema: pa.Schema, rows: int, *, has_offsets: bool = False
) -> pa.RecordBatch:
    """The inverse: a batch out of its message and the entries behind it.

    Args:
        payload: The message, then `count` entries.
        count: How many; 0: it is a message alone.
        schema: As declared, of all columns.
        rows: So many are announced.
        has_offsets: Whether columns may have offsets.

    Raises:
        BatchRefused: Whatever is wrong with it.
    """
    if not count:
        return read_batch(payload, schema, rows)
    end = len(payload) - count * _ENTRY.size
    if end < 0 or count > len(schema) or not _are_few(count, rows):
        raise BatchRefused(f"{count} narrow columns of {len(schema)}, {rows} rows")
    entries = {i: (width, base) for i, width, base in _ENTRY.iter_unpack(payload[end:])}
    widths = (0, *_OFFSETS) if has_offsets else (0,)
    can_be = all(
        i < len(schema) and width in widths and _can_have(schema.types[i], width)
        for i, (width, _) in entries.items()
    )
    constants = sum(width == 0 for width, _ in entries.values())
    if len(entries) < count or not can_be or constants == len(schema):
        raise BatchRefused("a narrow column that cannot be one")
    if not _fit([schema.types[i] for i in entries], rows):
        raise BatchRefused(f"{count} narrow columns of {rows} rows")
    kept = [
        pa.field(field.name, _OFFSETS[entries[i][0]][0], nullable=False) if i in entries else field
        for i, field in enumerate(schema)
        if i not in entries or entries[i][0]
    ]
    rest = iter(read_batch(payload[:end], pa.schema(kept), rows).columns)
    columns = []
    for i, field in enumerate(schema):
        width, base = entries.get(i, (-1, 0))
        if width < 0:
            columns.append(next(rest))
        elif width == 0:
            columns.append(_constant(field.type, base, rows))
        else:
            columns.append(_widened(field.type, base, next(rest)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _are_few(columns: int, rows: int) -> bool:
    return columns <= _COLUMNS_MAX and columns * rows * 8 <= _BYTES_MAX


def _fit(kinds: list[pa.DataType], rows: int) -> bool:
    """Whether columns of these types may be made again."""
    return rows * sum(int(kind.bit_width) // 8 for kind in kinds) <= _BYTES_MAX


def _is_word(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) and kind.bit_width == 64)


def _can_have(kind: pa.DataType, width: int) -> bool:
    """Whether a column of a type may have offsets of so many bytes."""
    if pa.types.is_decimal128(kind):
        return width > 0
    return _is_word(kind) and width < _WORD_BYTES


def _narrow(column: pa.Array, *, narrows: bool) -> _Narrow | None:
    """The column as it is kept; None: as it is."""
    if column.null_count:
        return None
    if pa.types.is_decimal128(column.type):
        lows = _lows(column) if narrows else None
        return None if lows is None else _with_offsets(lows, _WORD_BYTES)
    if not _is_word(column.type):
        return None
    words = np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)
    first, last = int(words[0]), int(words[-1])
    if first == last and bool((words == first).all()):
        return _Narrow(first, 0, None)
    if not narrows or pa.types.is_floating(column.type) or abs(last - first) >> 32:
        return None
    return _with_offsets(words, _WORD_BYTES - 1)


def _lows(column: pa.Array) -> np.ndarray | None:
    """The lower words of decimals, if they say all; cost: O(rows)."""
    pairs = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), 16 * column.offset)
    lows = pairs[0::2].copy()
    return lows if bool((pairs[1::2] == lows >> 63).all()) else None


def _with_offsets(words: np.ndarray, most: int) -> _Narrow | None:
    """Words as offsets of so many bytes at most; None: they lie too far apart."""
    base = int(words.min())
    spread = int(words.max()) - base
    width = next((w for w in _OFFSETS if w <= most and not spread >> 8 * w), None)
    if width is None:
        return None
    if width == _WORD_BYTES:
        return _Narrow(0, width, pa.array(words))
    kind, made_of = _OFFSETS[width]
    offsets = np.subtract(words, base).astype(made_of)
    return _Narrow(
        base, width, pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(offsets)])
    )


def _constant(kind: pa.DataType, word: int, rows: int) -> pa.Array:
    return _checked(kind, np.full(max(rows, 1), word, dtype=np.int64), 1)[:rows]


def _widened(kind: pa.DataType, base: int, offsets: pa.Array) -> pa.Array:
    if offsets.null_count:
        raise BatchRefused("a narrow column with nulls")
    words = offsets.to_numpy().astype(np.int64)
    words += base
    if pa.types.is_decimal128(kind):
        words = np.stack([words, words >> 63], axis=1)
    return _checked(kind, words, len(words))


def _checked(kind: pa.DataType, words: np.ndarray, looked_at: int) -> pa.Array:
    """A column of these words. Raises `BatchRefused` unless so many of them are values."""
    column = pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words)], null_count=0)
    try:
        column[:looked_at].validate(full=True)
    except pa.ArrowInvalid as error:
        raise BatchRefused(f"a narrow column: {error}") from error
    return column
