"""Record schemas and their packing: rows of Arrow columns as fixed numbers of int64 words.

A packed row is: null bitmap words (bit c % 64 of word c // 64 is set if column c is null), then
per column one word, or two for a decimal (low, high). Strings are references into string pages of
the same operator, and so are arrays, maps and structs (nested_values.py). A null has zero words, so
packed rows are equal exactly if their values are. [SGuard §4, "page content is flat records"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.nested_types import is_nested
from holdfast.core.model.stable_hash import (
    fixed_words,
    is_text,
    normal_float_words,
    validity,
    word_dtype,
)

_INT64: Final = pa.int64()


class StringStore(Protocol):
    """Where strings live. The reference 0 means null."""

    def intern(self, column: pa.Array) -> np.ndarray:
        """References of the values, int64 (n,); equal ones have equal references."""
        ...

    def gather(self, references: np.ndarray, kind: pa.DataType) -> pa.Array:
        """The values again, as an array of type `kind`."""
        ...


class RecordPacking:
    """Maps columns of given types to rows of words and back."""

    def __init__(self, types: Sequence[pa.DataType], *, is_key: bool = False) -> None:
        """Pack columns of these types.

        Args:
            types: One per column.
            is_key: Whether rows are compared as group or join keys: floats are then packed with
                -0.0 = 0.0 and a single NaN, as Spark compares keys.

        Raises:
            LocalProtocolError: A type cannot be stored, or not be compared as a key.
        """
        self._types = list(types)
        self._is_key = is_key
        self.null_words = (len(self._types) + 63) // 64
        self._starts: list[int] = []
        width = self.null_words
        for kind in self._types:
            self._starts.append(width)
            if is_key:
                require_key(kind)
            _require_storable(kind)
            width += 2 if pa.types.is_decimal(kind) else 1
        self.width = width
        self.has_text = any(is_interned(kind) for kind in self._types)
        self.text_words = [
            start
            for start, kind in zip(self._starts, self._types, strict=True)
            if is_interned(kind)
        ]
        """Which words of a row are references to strings."""

    def pack(
        self,
        columns: Sequence[pa.Array],
        strings: StringStore | None,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Rows of words, int64 (n, width), C order.

        Args:
            columns: One array per type, of equal length n.
            strings: Receives the strings; may be None if no column is text.
            out: Filled and returned instead of a new array; may be a slice of wider rows.
        """
        n = len(columns[0]) if columns else 0
        if out is None:
            out = np.empty((n, self.width), dtype=np.int64)
        out[:, : self.null_words] = 0
        for c, (column, kind, start) in enumerate(
            zip(columns, self._types, self._starts, strict=True)
        ):
            if n == 0:
                continue
            for part, words in enumerate(self._words(column, kind, strings)):
                out[:, start + part] = words
            mask = validity(column)
            if len(mask):
                is_null = mask == 0
                bit = np.uint64(1 << (c % 64)).astype(np.int64)
                out[is_null, c // 64] |= bit
                out[is_null, start] = 0
                if pa.types.is_decimal(kind):
                    out[is_null, start + 1] = 0
        return out

    def unpack(self, rows: np.ndarray, strings: StringStore | None) -> list[pa.Array]:
        """The columns of packed rows, int64 (n, width). Inverse of `pack`."""
        return [self.unpack_column(rows, c, strings) for c in range(len(self._types))]

    def unpack_column(self, rows: np.ndarray, c: int, strings: StringStore | None) -> pa.Array:
        """Column `c` of packed rows."""
        kind = self._types[c]
        start = self._starts[c]
        nulls = rows[:, c // 64]
        is_any = int(np.bitwise_or.reduce(nulls)) >> (c % 64) & 1
        is_null = (nulls >> (c % 64)) & 1 != 0 if is_any else None
        if is_interned(kind):
            assert strings is not None
            return strings.gather(np.ascontiguousarray(rows[:, start]), kind)
        high = rows[:, start + 1] if pa.types.is_decimal(kind) else None
        if self._is_key and pa.types.is_float32(kind):
            doubles = np.ascontiguousarray(rows[:, start]).view(np.float64)
            return column_of(
                doubles.astype(np.float32).view(np.int32).astype(np.int64), is_null, kind
            )
        return column_of(rows[:, start], is_null, kind, high)

    def is_any_null(self, rows: np.ndarray) -> np.ndarray:
        """Which packed rows have a null in any column. bool (n,)."""
        result: np.ndarray = (rows[:, : self.null_words] != 0).any(axis=1)
        return result

    def _words(
        self, column: pa.Array, kind: pa.DataType, strings: StringStore | None
    ) -> list[np.ndarray]:
        if is_interned(kind):
            assert strings is not None
            return [strings.intern(column)]
        if self._is_key and pa.types.is_floating(kind):
            return [normal_float_words(column)]
        return fixed_words(column)


def array_over(words: np.ndarray, kind: pa.DataType = _INT64) -> pa.Array:
    """An Arrow array without nulls over the memory of words of its kind, (n,), all side by side.

    As `pa.array`, which looks first whether they might be something of pandas, at ten times the
    cost.
    """
    return pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(words)])


def column_of(
    words: np.ndarray, is_null: np.ndarray | None, kind: pa.DataType, high: np.ndarray | None = None
) -> pa.Array:
    """An Arrow array of a fixed-width type from its words.

    Its memory is its own: whoever keeps one column does not keep the words of all others with it.

    Args:
        words: int64 (n,), as `fixed_words` gives them.
        is_null: bool (n,), or None if no row is null.
        kind: The type.
        high: Second words of a decimal.
    """
    n = len(words)
    if pa.types.is_null(kind):
        return pa.nulls(n)
    if pa.types.is_decimal(kind) and not pa.types.is_decimal128(kind):
        wide = column_of(words, is_null, pa.decimal128(kind.precision, kind.scale), high)
        return wide.cast(kind)
    bitmap = None
    if is_null is not None and bool(is_null.any()):
        bitmap = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    if pa.types.is_boolean(kind):
        content = np.packbits(words != 0, bitorder="little")
    elif high is not None:
        content = np.empty(2 * n, dtype=np.int64)
        content[0::2] = words
        content[1::2] = high
    else:
        content = words.astype(word_dtype(kind), order="C")
    return pa.Array.from_buffers(kind, n, [bitmap, pa.py_buffer(content)])


def is_interned(kind: pa.DataType) -> bool:
    """Whether pages keep values of this type apart from their records, as byte strings."""
    return is_text(kind) or is_nested(kind)


def require_key(kind: pa.DataType) -> None:
    """Raise `LocalProtocolError` for a type whose values are not compared as keys."""
    if is_nested(kind):
        raise LocalProtocolError(f"a key is of type {kind}; keys are no arrays, maps and structs")


def _require_storable(kind: pa.DataType) -> None:
    """Raise `LocalProtocolError` for a type that pages cannot keep."""
    if is_nested(kind):
        parts = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else None
        for part in parts or [kind.field(n).type for n in range(kind.num_fields)]:
            _require_storable(part)
    elif not (is_text(kind) or _is_plain(kind)):
        word_dtype(kind)


def _is_plain(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_boolean(kind) or t.is_null(kind) or t.is_decimal(kind))
