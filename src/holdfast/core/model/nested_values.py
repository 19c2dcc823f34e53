"""Arrays, maps and structs as byte strings, so that pages keep them where they keep strings.

Equal values have equal bytes, of which each begins with 1, or with 0 for a null. Behind that stand:

| value            | bytes                                                                      |
| ---------------- | -------------------------------------------------------------------------- |
| of a fixed width | 8; of a decimal 16; all zero for a null                                    |
| string, binary   | length (4), the bytes                                                      |
| struct           | its fields; those of a null are nulls                                      |
| array            | elements (4), their bytes in all (4), the length of each (4), the elements |
| map              | as an array of structs of key and value                                    |

Numbers are little-endian. The lengths stand first, so that the elements of all rows are found at
once, and each type is read and written for all rows in a few steps.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.nested_types import is_nested
from holdfast.core.model.schema import column_of
from holdfast.core.model.stable_hash import fixed_words, is_text, string_parts

_FLAG: Final = 1
_LENGTH: Final = 4
_BYTES_MAX: Final = 2**31 - 1


def to_bytes(column: pa.Array) -> pa.Array:
    """Values as byte strings, large binary; nulls stay nulls.

    Raises:
        LocalProtocolError: An array takes more than 2 GiB.
    """
    sizes = _sizes(column)
    offsets = _ends(sizes)
    data = np.zeros(int(offsets[-1]), dtype=np.uint8)
    _write(column, data, offsets[:-1])
    valid = None
    if column.null_count:
        is_valid = column.is_valid().to_numpy(zero_copy_only=False)
        valid = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(column), buffers)


def from_bytes(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The inverse of `to_bytes`: values of type `kind`."""
    offsets, data = string_parts(column)
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    found, _ = _read(kind, data, offsets[:-1][is_valid])
    if not column.null_count:
        return found
    places = np.cumsum(is_valid) - 1
    return found.take(pa.array(places, mask=~is_valid))


def from_places(kind: pa.DataType, data: np.ndarray, places: np.ndarray) -> pa.Array:
    """The values whose bytes begin at these places, int64 (n,), of `data`, uint8."""
    return _read(kind, data, places)[0]


def _entries_of(kind: pa.DataType) -> pa.DataType:
    """The type of an array's elements, or of a map's entries."""
    if not pa.types.is_map(kind):
        return kind.value_type
    key = pa.field("key", kind.key_type, nullable=False)
    return pa.struct([key, pa.field("value", kind.item_type)])


def _ends(sizes: np.ndarray) -> np.ndarray:
    """Where things of these sizes begin when laid end to end, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def _within(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All places of ranges that begin at `starts`, range by range."""
    ends = _ends(lengths)
    return np.repeat(starts - ends[:-1], lengths) + np.arange(int(ends[-1]))


# -- writing ------------------------------------------------------------------------------------


def _taken_apart(column: pa.Array) -> tuple[np.ndarray, pa.Array]:
    """How many elements each row has, 0 where it is null; and all of them."""
    if not pa.types.is_map(column.type):
        counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        return counts.astype(np.int64), column.flatten()
    # Of a slice pyarrow gives the keys and values of the whole.
    fresh = column.take(pa.array(np.arange(len(column)), pa.int64()))
    fields = list(_entries_of(column.type))
    entries = pa.StructArray.from_arrays([fresh.keys, fresh.items], fields=fields)
    return np.diff(fresh.offsets.to_numpy()).astype(np.int64), entries


def _sizes(column: pa.Array) -> np.ndarray:
    """How many bytes each row takes, int64 (n,)."""
    kind, n = column.type, len(column)
    if is_text(kind):
        offsets, _ = string_parts(column)
        lengths = np.diff(offsets)
        if column.null_count:
            lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
        return _FLAG + _LENGTH + lengths
    if pa.types.is_struct(kind):
        whole = np.full(n, _FLAG, np.int64)
        for part in column.flatten():
            whole += _sizes(part)
        return whole
    if is_nested(kind):
        counts, elements = _taken_apart(column)
        ends = _ends(_LENGTH + _sizes(elements))
        rows = _ends(counts)
        sizes: np.ndarray = ends[rows[1:]] - ends[rows[:-1]] + _FLAG + 2 * _LENGTH
        if n and int(sizes.max()) > _BYTES_MAX:
            raise LocalProtocolError(f"a value of type {kind} takes more than 2 GiB")
        return sizes
    return np.full(n, _FLAG + _fixed_bytes(kind), np.int64)


def _fixed_bytes(kind: pa.DataType) -> int:
    return 16 if pa.types.is_decimal(kind) else 8


def _write(column: pa.Array, out: np.ndarray, starts: np.ndarray) -> None:
    """Write each row at its place in `out`, which is zero there."""
    kind = column.type
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    out[starts] = is_valid
    if is_text(kind):
        offsets, data = string_parts(column)
        lengths = np.where(is_valid, np.diff(offsets), 0)
        _write_numbers(lengths, out, starts + _FLAG)
        source = _within(offsets[:-1], lengths)
        out[_within(starts + _FLAG + _LENGTH, lengths)] = data[source]
    elif pa.types.is_struct(kind):
        at = starts + _FLAG
        for part in column.flatten():
            _write(part, out, at)
            at = at + _sizes(part)
    elif is_nested(kind):
        counts, elements = _taken_apart(column)
        sizes, rows = _sizes(elements), _ends(counts)
        ends = _ends(sizes)
        _write_numbers(counts, out, starts + _FLAG)
        _write_numbers(ends[rows[1:]] - ends[rows[:-1]], out, starts + _FLAG + _LENGTH)
        table = starts + _FLAG + 2 * _LENGTH
        _write_numbers(sizes, out, _within(table, counts * _LENGTH)[::_LENGTH])
        bodies = table + _LENGTH * counts
        _write(elements, out, np.repeat(bodies - ends[rows[:-1]], counts) + ends[:-1])
    else:
        words = np.stack(fixed_words(column), axis=1)
        words = np.where(is_valid[:, np.newaxis], words, 0).astype("<i8")
        places = starts[:, np.newaxis] + _FLAG + np.arange(_fixed_bytes(kind))
        out[places] = words.view(np.uint8).reshape(places.shape)


def _write_numbers(numbers: np.ndarray, out: np.ndarray, at: np.ndarray) -> None:
    places = at[:, np.newaxis] + np.arange(_LENGTH)
    out[places] = np.ascontiguousarray(numbers, "<u4").view(np.uint8).reshape(-1, _LENGTH)


# -- reading ------------------------------------------------------------------------------------


def _read_numbers(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    places = at[:, np.newaxis] + np.arange(_LENGTH)
    found = np.ascontiguousarray(data[places]).view("<u4").reshape(-1)
    return found.astype(np.int64)


def _read(kind: pa.DataType, data: np.ndarray, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """The values at these places, and where what follows them begins."""
    is_null = data[at] == 0 if len(at) else np.zeros(0, np.bool_)
    at = at + _FLAG
    if is_text(kind):
        lengths = _read_numbers(data, at)
        at = at + _LENGTH
        return _texts(kind, data[_within(at, lengths)], lengths, is_null), at + lengths
    if pa.types.is_struct(kind):
        parts = []
        for field in kind:
            part, at = _read(field.type, data, at)
            parts.append(part)
        mask = pa.array(is_null)
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask), at
    if is_nested(kind):
        counts, body = _read_numbers(data, at), _read_numbers(data, at + _LENGTH)
        at = at + 2 * _LENGTH
        sizes = _read_numbers(data, _within(at, counts * _LENGTH)[::_LENGTH])
        at = at + _LENGTH * counts
        rows, ends = _ends(counts), _ends(sizes)
        places = np.repeat(at - ends[rows[:-1]], counts) + ends[:-1]
        elements, _ = _read(_entries_of(kind), data, places)
        return _put_together(kind, rows, elements, is_null), at + body
    words = np.empty((len(at), _fixed_bytes(kind) // 8), dtype=np.int64)
    if len(at):
        places = at[:, np.newaxis] + np.arange(_fixed_bytes(kind))
        words = np.ascontiguousarray(data[places]).view("<i8")
    high = words[:, 1] if words.shape[1] > 1 else None
    return column_of(words[:, 0], is_null, kind, high), at + _fixed_bytes(kind)


def _texts(
    kind: pa.DataType, data: np.ndarray, lengths: np.ndarray, is_null: np.ndarray
) -> pa.Array:
    valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    wide = pa.large_binary() if is_binary else pa.large_string()
    buffers = [valid, pa.py_buffer(_ends(lengths)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(wide, len(lengths), buffers).cast(kind)


def _put_together(
    kind: pa.DataType, rows: np.ndarray, elements: pa.Array, is_null: np.ndarray
) -> pa.Array:
    offsets, mask = pa.array(rows, pa.int32()), pa.array(is_null)
    if pa.types.is_map(kind):
        keys, items = elements.flatten()
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask)
    return pa.ListArray.from_arrays(offsets, elements, type=kind, mask=mask)
