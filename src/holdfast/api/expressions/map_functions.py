"""Functions of maps. A key is never null and never there twice; a value may be null."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions.casts import coerce
from holdfast.api.expressions.nested import (
    arrays_from,
    check_comparable,
    maps_from,
    parts_of,
    per_array,
    ranked,
)
from holdfast.api.expressions.signatures import ANY, Function
from holdfast.api.expressions.types import common_type, name_of
from holdfast.api.expressions.values import EvaluationError, Value, derived, derived_from_all
from holdfast.errors import DataflowError, UnsupportedError


def map_(value: Value, text: str) -> Value:
    """The value, if it is a map."""
    if not pa.types.is_map(value.type):
        raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not MAP")
    return value


def checked_map(
    lengths: npt.NDArray[np.int64],
    valid: npt.NDArray[np.bool_],
    keys: pa.Array,
    items: pa.Array,
    text: str,
) -> pa.Array:
    """Maps of these entries. Raises `EvaluationError` for a key that is null or there twice."""
    if keys.null_count:
        raise EvaluationError("a map's key is null")
    ranks, _ = ranked(keys, text)
    row = np.repeat(np.arange(len(lengths)), lengths)
    pairs = row * (int(ranks.max(initial=0)) + 1) + ranks
    if len(np.unique(pairs)) < len(pairs):
        raise EvaluationError("a map has the same key twice")
    return maps_from(lengths, valid, keys, items)


def _typed(key: pa.DataType, item: pa.DataType, text: str) -> pa.DataType:
    check_comparable(key, text)
    for of in (key, item):
        if pa.types.is_null(of):
            raise UnsupportedError(f"{text}: NULL has no type here; cast it")
    return pa.map_(key, item)


def _made(args: Sequence[Value], text: str) -> Value:
    """`map(key, value, ...)`."""
    if len(args) % 2 or not args:
        raise DataflowError(f"{text}: map takes keys and values in turn")
    of = _typed(common_type(args[::2], text), common_type(args[1::2], text), text)
    half = len(args) // 2

    def kernel(*columns: pa.Array) -> pa.Array:
        count = len(columns[0])
        order = pa.array(np.arange(count * half).reshape(half, count).T.ravel())
        keys, items = (pa.concat_arrays(columns[n::2]).take(order) for n in (0, 1))
        return checked_map(np.full(count, half), np.ones(count, bool), keys, items, text)

    kinds = [of.key_type, of.item_type] * half
    parts = [coerce(arg, kind) for arg, kind in zip(args, kinds, strict=True)]
    return derived_from_all(of, text, per_array(kernel), *parts, is_total=False)


def _from_arrays(args: Sequence[Value], text: str) -> Value:
    for arg in args:
        if not pa.types.is_list(arg.type):
            raise DataflowError(f"{text}: {arg.text} is {name_of(arg.type)}, not ARRAY")
    of = _typed(args[0].type.value_type, args[1].type.value_type, text)

    def kernel(first: pa.Array, second: pa.Array) -> pa.Array:
        both = pc.and_(first.is_valid(), second.is_valid())
        nothing = pa.scalar(None, first.type), pa.scalar(None, second.type)
        keys = parts_of(pc.if_else(both, first, nothing[0]))
        items = parts_of(pc.if_else(both, second, nothing[1]))
        if (keys.lengths != items.lengths).any():
            raise EvaluationError("as many keys as values make a map")
        return checked_map(keys.lengths, keys.valid, keys.values, items.values, text)

    return derived(of, text, per_array(kernel), *args, is_total=False)


def _from_entries(args: Sequence[Value], text: str) -> Value:
    """From an array of structs of two fields; null if one of them is null."""
    (value,) = args
    entry = value.type.value_type if pa.types.is_list(value.type) else value.type
    if not pa.types.is_list(value.type) or not pa.types.is_struct(entry) or entry.num_fields != 2:
        raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, no array of pairs")
    of = _typed(entry[0].type, entry[1].type, text)

    def kernel(column: pa.Array) -> pa.Array:
        parts = parts_of(column)
        is_missing = ~np.asarray(parts.values.is_valid(), bool)
        valid = parts.valid & (np.bincount(parts.rows[is_missing], minlength=len(column)) == 0)
        keep = pa.array(valid[parts.rows])
        keys, items = parts.values.filter(keep).flatten()
        return checked_map(np.where(valid, parts.lengths, 0), valid, keys, items, text)

    return derived(of, text, per_array(kernel), value, is_total=False)


def _concatenated(args: Sequence[Value], text: str) -> Value:
    of = common_type([map_(arg, text) for arg in args], text)
    check_comparable(of.key_type, text)

    def kernel(*columns: pa.Array) -> pa.Array:
        several = [parts_of(column) for column in columns]
        valid = np.logical_and.reduce([parts.valid for parts in several])
        lengths = np.where(valid, np.sum([parts.lengths for parts in several], axis=0), 0)
        rows = np.concatenate([parts.rows for parts in several])
        order = np.argsort(rows, kind="stable")
        order = pa.array(order[valid[rows[order]]])
        entries = pa.concat_arrays([parts.values for parts in several]).take(order)
        keys, items = entries.flatten()
        return checked_map(lengths, valid, keys, items, text)

    maps = [coerce(arg, of) for arg in args]
    return derived_from_all(of, text, per_array(kernel), *maps, is_total=False)


def _column(index: int) -> Function:
    """`map_keys` and `map_values`."""

    def build(args: Sequence[Value], text: str) -> Value:
        value = map_(args[0], text)

        def kernel(column: pa.Array) -> pa.Array:
            parts = parts_of(column)
            return arrays_from(parts.lengths, parts.valid, parts.values.flatten()[index])

        of = value.type.item_type if index else value.type.key_type
        return derived(pa.list_(of), text, per_array(kernel), value)

    return Function(build, 1, 1)


def _entries(args: Sequence[Value], text: str) -> Value:
    value = map_(args[0], text)

    def kernel(column: pa.Array) -> pa.Array:
        parts = parts_of(column)
        return arrays_from(parts.lengths, parts.valid, parts.values)

    entry = pa.struct([("key", value.type.key_type), ("value", value.type.item_type)])
    return derived(pa.list_(entry), text, per_array(kernel), value)


def _found(args: Sequence[Value], text: str) -> tuple[Value, Value]:
    """A map and a key of its type."""
    value = map_(args[0], text)
    if pa.types.is_null(args[1].type):
        raise DataflowError(f"{text}: {args[1].text} has no type")
    check_comparable(value.type.key_type, text)
    of = common_type([Value(value.type.key_type, value.evaluate, True, value.text), args[1]], text)
    return coerce(value, pa.map_(of, value.type.item_type)), coerce(args[1], of)


def _places(column: pa.Array, wanted: pa.Array, text: str) -> tuple[pa.Array, pa.Array]:
    """Where each row's key stands among all entries, null if nowhere; and all entries."""
    parts = parts_of(column)
    keys = parts.values.field(0)
    ranks, _ = ranked(pa.concat_arrays([keys, wanted]), text)
    of_keys, of_wanted = ranks[: len(keys)], ranks[len(keys) :]
    hits = np.flatnonzero(of_keys == of_wanted[parts.rows])
    at = np.full(len(column), -1)
    at[parts.rows[hits]] = hits
    return pa.array(at, mask=at < 0), parts.values


def value_at(args: Sequence[Value], text: str) -> Value:
    """The value of a key; null where the map has no such key."""
    value, key = _found(args, text)

    def kernel(column: pa.Array, wanted: pa.Array) -> pa.Array:
        at, entries = _places(column, wanted, text)
        return entries.flatten()[1].take(at)

    return derived(value.type.item_type, text, per_array(kernel), value, key)


def _contains_key(args: Sequence[Value], text: str) -> Value:
    if pa.types.is_string(args[1].type) != pa.types.is_string(map_(args[0], text).type.key_type):
        raise DataflowError(f"{text}: {args[1].text} is of another kind than the map's keys")
    value, key = _found(args, text)

    def kernel(column: pa.Array, wanted: pa.Array) -> pa.Array:
        at, _ = _places(column, wanted, text)
        known = pc.and_(column.is_valid(), wanted.is_valid())
        return pc.if_else(known, at.is_valid(), pa.scalar(None, pa.bool_()))

    return derived(pa.bool_(), text, per_array(kernel), value, key)


def size(args: Sequence[Value], text: str) -> Value:
    """Entries of a map."""

    def kernel(column: pa.Array) -> pa.Array:
        parts = parts_of(column)
        return pa.array(parts.lengths, pa.int32(), mask=~parts.valid)

    return derived(pa.int32(), text, per_array(kernel), map_(args[0], text))


FUNCTIONS: dict[str, Function] = {
    "map": Function(_made, 2, ANY),
    "map_concat": Function(_concatenated, 1, ANY),
    "map_contains_key": Function(_contains_key, 2, 2),
    "map_entries": Function(_entries, 1, 1),
    "map_from_arrays": Function(_from_arrays, 2, 2),
    "map_from_entries": Function(_from_entries, 1, 1),
    "map_keys": _column(0),
    "map_values": _column(1),
}
