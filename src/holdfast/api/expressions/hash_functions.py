"""Spark's hashes of rows: Murmur 3 of 32 bits and XXH64, each value over those before it.

What is null leaves the hash as it is. [Spark, Murmur3_x86_32, XXH64, HashExpression]
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from holdfast.api.expressions.nested import parts_of, per_array
from holdfast.api.expressions.signatures import ANY, Function
from holdfast.api.expressions.types import holds_interval, name_of
from holdfast.api.expressions.values import Value, derived_from_all
from holdfast.core.model.nested_types import holds
from holdfast.errors import DataflowError, UnsupportedError

Seeds = npt.NDArray[Any]
_SEED = 42
_M32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Hash:
    """A hash.

    Attributes:
        type: Of its result.
        kind: The unsigned numbers that it computes with.
        of_bytes: A value's bytes and the hash before it to the hash; values of 4 and 8 bytes are
            taken for whole numbers.
    """

    type: pa.DataType
    kind: type[np.unsignedinteger[Any]]
    of_bytes: Callable[[bytes, int], int]


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> (32 - by)) & _M32


def _mixed(hashed: int, word: int) -> int:
    word = _rotated(word * 0xCC9E2D51 & _M32, 15) * 0x1B873593 & _M32
    return (_rotated(hashed ^ word, 13) * 5 + 0xE6546B64) & _M32


def murmur(data: bytes, seed: int) -> int:
    """As Spark has it: the bytes behind the last whole word are words of their own, with a sign."""
    whole = len(data) // 4
    hashed = seed
    for word in struct.unpack(f"<{whole}I", data[: 4 * whole]):
        hashed = _mixed(hashed, word)
    for byte in struct.unpack(f"{len(data) - 4 * whole}b", data[4 * whole :]):
        hashed = _mixed(hashed, byte & _M32)
    hashed ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = (hashed ^ hashed >> shift) * factor & _M32
    return hashed ^ hashed >> 16


_MURMUR = _Hash(pa.int32(), np.uint32, murmur)
_XX = _Hash(pa.int64(), np.uint64, lambda data, seed: xxhash.xxh64_intdigest(data, seed))


def _as_bytes(column: pa.Array) -> list[bytes | None]:
    """What is hashed of each value of a type that is not nested."""
    of = column.type
    if pa.types.is_string(of) or pa.types.is_binary(of):
        return list(column.cast(pa.binary()).to_pylist())
    if pa.types.is_decimal(of):
        return [None if each is None else _of_decimal(each, of) for each in column.to_pylist()]
    if pa.types.is_floating(of):
        form = "<f" if of == pa.float32() else "<d"
        return [None if v is None else _of_real(v, form) for v in column.to_pylist()]
    if pa.types.is_boolean(of) or (pa.types.is_integer(of) and of.bit_width < 64):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(of) or pa.types.is_date(of):
        column = column.cast(pa.int64() if pa.types.is_timestamp(of) else pa.int32())
    form = "<i" if column.type == pa.int32() else "<q"
    return [None if each is None else struct.pack(form, each) for each in column.to_pylist()]


def _of_real(value: float, form: str) -> bytes:
    if value != value:
        return b"\0\0\xc0\x7f" if form == "<f" else b"\0\0\0\0\0\0\xf8\x7f"
    return struct.pack(form, value + 0.0)  # No -0.0.


def _of_decimal(value: Any, of: pa.DataType) -> bytes:
    unscaled = int(value.scaleb(of.scale))
    if of.precision <= 18:
        return struct.pack("<q", unscaled)
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _over(hash_: _Hash, column: pa.Array, seeds: Seeds) -> Seeds:
    """The hashes after one more column."""
    of = column.type
    if pa.types.is_null(of):
        return seeds
    if pa.types.is_struct(of):
        after = seeds
        for field in column.flatten():  # A null struct's fields are null, too.
            after = _over(hash_, field, after)
        return after
    if pa.types.is_list(of):
        parts = parts_of(column)
        after = seeds.copy()
        for number in range(int(parts.lengths.max(initial=0))):
            rows = np.flatnonzero(parts.lengths > number)
            elements = parts.values.take(pa.array(parts.begins[rows] + number))
            after[rows] = _over(hash_, elements, after[rows])
        return after
    hashed = [
        seed if data is None else hash_.of_bytes(data, seed)
        for data, seed in zip(_as_bytes(column), seeds.tolist(), strict=True)
    ]
    return np.array(hashed, hash_.kind)


def _function(hash_: _Hash) -> Function:
    def build(args: Sequence[Value], text: str) -> Value:
        for arg in args:
            if holds(arg.type, pa.types.is_map):
                raise DataflowError(f"{text}: {arg.text} is {name_of(arg.type)}; maps have no hash")
            if holds_interval(arg.type):
                raise UnsupportedError(f"{text}: {arg.text} is an interval; it has no hash here")

        def kernel(*columns: pa.Array) -> pa.Array:
            hashed = np.full(len(columns[0]), _SEED, hash_.kind)
            for column in columns:
                hashed = _over(hash_, column, hashed)
            return pa.array(hashed.view(np.int32 if hash_ is _MURMUR else np.int64), hash_.type)

        return derived_from_all(hash_.type, text, per_array(kernel), *args)

    return Function(build, 1, ANY)


FUNCTIONS: dict[str, Function] = {"hash": _function(_MURMUR), "xxhash64": _function(_XX)}
