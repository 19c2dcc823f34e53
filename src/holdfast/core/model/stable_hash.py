"""The only hash whose value may leave a process: the same in every process, version and machine.

A column becomes int64 words (integers and dates as they are, timestamps and durations in
microseconds, floats as the bits of a double with -0.0 = 0.0 and one NaN, decimals as two words,
strings and binary by `hash_bytes`); each word passes the finalizer of splitmix64; columns combine
in order. Equal integers of different widths hash alike. Changing any of this is a format change:
it moves keys between the instances of a unit. Golden values stand in the tests.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

import numba
import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError

_F = TypeVar("_F", bound=Callable[..., object])

_NULL: Final = np.uint64(0x9E3779B97F4A7C15)
_C1: Final = np.uint64(0xBF58476D1CE4E5B9)
_C2: Final = np.uint64(0x94D049BB133111EB)
_S27: Final = np.uint64(27)
_S30: Final = np.uint64(30)
_S31: Final = np.uint64(31)
_S32: Final = np.uint64(32)

_NO_MASK: Final = np.zeros(0, dtype=np.uint8)
_UNITS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


def _kernel(signature: str) -> Callable[[_F], _F]:
    return cast("Callable[[_F], _F]", numba.njit(signature, cache=True, nogil=True))


@_kernel("uint64(uint64)")
def mix(x: int) -> int:
    """The finalizer of splitmix64: a bijection in which every bit depends on every bit."""
    x = (x ^ (x >> _S30)) * _C1
    x = (x ^ (x >> _S27)) * _C2
    return x ^ (x >> _S31)


@_kernel("uint64(uint8[::1], int64, int64)")
def hash_bytes(data: np.ndarray, start: int, stop: int) -> int:
    """Hash of `data[start:stop]`: eight bytes at a time, little-endian, then the length."""
    h = np.uint64(0)
    i = start
    while i + 8 <= stop:
        word = np.uint64(0)
        for j in range(8):
            word |= np.uint64(data[i + j]) << np.uint64(8 * j)
        h = (h ^ word) * _C1
        h ^= h >> _S32
        i += 8
    word = np.uint64(0)
    for j in range(stop - i):
        word |= np.uint64(data[i + j]) << np.uint64(8 * j)
    h = (h ^ word) * _C1
    h ^= h >> _S32
    return mix(h ^ np.uint64(stop - start))


@_kernel("void(int64[::1], uint8[::1], uint64[::1], boolean)")
def _hash_column(
    words: np.ndarray, is_valid: np.ndarray, hashes: np.ndarray, is_first: bool
) -> None:
    """Hash one column of words; combined with what `hashes` holds unless it is the first."""
    with_nulls = len(is_valid) > 0
    if is_first and not with_nulls:
        for i in range(len(words)):
            hashes[i] = mix(np.uint64(words[i]) + _NULL)
        return
    for i in range(len(words)):
        h = mix(np.uint64(words[i]) + _NULL)
        if with_nulls and not is_valid[i]:
            h = _NULL
        hashes[i] = h if is_first else mix(hashes[i] * np.uint64(31) + h)


@_kernel("void(int64[::1], uint8[::1], int64[::1])")
def _hash_strings(offsets: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    for i in range(len(out)):
        out[i] = np.int64(hash_bytes(data, offsets[i], offsets[i + 1]))


def stable_hash(columns: Sequence[pa.Array]) -> np.ndarray:
    """One hash per row. Shape (n,), uint64.

    Args:
        columns: At least one, of equal length.

    Raises:
        LocalProtocolError: No column, or one of a type that has no stable hash.
    """
    if not columns:
        raise LocalProtocolError("stable_hash needs at least one column")
    hashes = np.empty(len(columns[0]), dtype=np.uint64)
    is_first = True
    for column in columns:
        mask = validity(column)
        for words in _hashable_words(column):
            _hash_column(words, mask, hashes, is_first)
            is_first = False
    return hashes


def partition_of(columns: Sequence[pa.Array], partitions: int) -> np.ndarray:
    """Which of `partitions` (1 to 2**31 - 1) each row belongs to. Shape (n,), int32."""
    high = stable_hash(columns) >> np.uint64(32)
    return ((high * np.uint64(partitions)) >> np.uint64(32)).astype(np.int32)


def validity(column: pa.Array) -> np.ndarray:
    """One byte per row, 1 where there is a value; of length 0 if no row is null."""
    if column.null_count == 0:
        return _NO_MASK
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(valid).view(np.uint8)


def string_parts(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """int64 offsets (n + 1) and uint8 bytes of a string or binary column of any kind."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not (pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)):
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            column = column.cast(
                pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
            )
            width = np.int64
        else:
            width = np.int32
    else:
        width = np.int64
    _, offsets, data = column.buffers()
    if offsets is None or offsets.size == 0:
        return np.zeros(len(column) + 1, dtype=np.int64), _NO_MASK
    raw = _array_over(offsets, width)[column.offset : column.offset + len(column) + 1]
    bytes_ = _NO_MASK if data is None else _array_over(data, np.uint8)
    return raw.astype(np.int64), bytes_


class _Memory:
    """Lends an Arrow buffer to numpy, and keeps it alive for as long as an array looks at it."""

    def __init__(self, buffer: pa.Buffer, dtype: np.dtype[np.generic]) -> None:
        self.buffer = buffer
        self.__array_interface__ = {
            "version": 3,
            "shape": (buffer.size // dtype.itemsize,),
            "typestr": dtype.str,
            "data": (buffer.address, False),
        }


def _array_over(buffer: pa.Buffer, dtype: object) -> np.ndarray:
    """A buffer as an array of the type that kernels are compiled for; they only read it.

    What came over a channel or out of a file is read-only memory, which numpy would mark as such,
    and compiled kernels take arrays of one exact type.
    """
    return np.asarray(_Memory(buffer, np.dtype(dtype)))  # type: ignore[call-overload]


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are byte strings of any length."""
    t = pa.types
    if t.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(
        t.is_string(kind)
        or t.is_large_string(kind)
        or t.is_string_view(kind)
        or t.is_binary(kind)
        or t.is_large_binary(kind)
        or t.is_binary_view(kind)
    )


def fixed_words(column: pa.Array) -> list[np.ndarray]:
    """The int64 word columns, one or (decimal) two, of a fixed-width column.

    Rows that are null have undefined words. Floats are their bits, float32 sign-extended.

    Raises:
        LocalProtocolError: The type has no fixed width that Holdfast knows.
    """
    kind = column.type
    n = len(column)
    t = pa.types
    if t.is_null(kind):
        return [np.zeros(n, dtype=np.int64)]
    if t.is_boolean(kind):
        bits = column.fill_null(False).to_numpy(zero_copy_only=False)
        return [bits.astype(np.int64)]
    if t.is_decimal128(kind):
        both = _array_over(column.buffers()[1], np.int64)
        both = both[2 * column.offset : 2 * (column.offset + n)]
        return [np.ascontiguousarray(both[0::2]), np.ascontiguousarray(both[1::2])]
    if t.is_decimal32(kind) or t.is_decimal64(kind):
        return fixed_words(column.cast(pa.decimal128(kind.precision, kind.scale)))
    dtype = word_dtype(kind)
    raw = _array_over(column.buffers()[1], dtype)[column.offset : column.offset + n]
    return [raw if dtype == np.int64 else raw.astype(np.int64)]


def word_dtype(kind: pa.DataType) -> np.dtype[np.generic]:
    """The integer type of the same width and signedness as the values of a fixed-width type."""
    t = pa.types
    if t.is_integer(kind):
        return np.dtype(kind.to_pandas_dtype())
    if t.is_float32(kind) or t.is_date32(kind) or t.is_time32(kind):
        return np.dtype(np.int32)
    if (
        t.is_float64(kind)
        or t.is_timestamp(kind)
        or t.is_date64(kind)
        or t.is_time64(kind)
        or t.is_duration(kind)
    ):
        return np.dtype(np.int64)
    raise LocalProtocolError(f"values of type {kind} cannot be hashed or stored in pages")


def normal_float_words(column: pa.Array) -> np.ndarray:
    """Bits of the floats as doubles, with -0.0 = 0.0 and a single NaN. int64 (n,)."""
    values = column.cast(pa.float64())
    raw = _array_over(values.buffers()[1], np.float64)
    raw = raw[values.offset : values.offset + len(values)] + 0.0
    raw[np.isnan(raw)] = np.nan
    return raw.view(np.int64)


def _hashable_words(column: pa.Array) -> list[np.ndarray]:
    kind = column.type
    t = pa.types
    if len(column) == 0:
        return [np.zeros(0, dtype=np.int64)]
    if is_text(kind):
        offsets, data = string_parts(column)
        out = np.empty(len(column), dtype=np.int64)
        _hash_strings(offsets, data, out)
        return [out]
    if t.is_dictionary(kind):
        return _hashable_words(column.dictionary_decode())
    if t.is_floating(kind):
        return [normal_float_words(column)]
    if t.is_timestamp(kind) or t.is_duration(kind):
        (words,) = fixed_words(column)
        if kind.unit == "ns":
            return [words // 1000]
        return [words if kind.unit == "us" else words * _UNITS[kind.unit]]
    return fixed_words(column)
