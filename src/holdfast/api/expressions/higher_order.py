"""Functions that take functions: a lambda is evaluated once, over the elements of all rows.

A lambda's body is an expression over its own variables and the columns outside. It is compiled over
a schema that has both, and evaluated on a batch with one row per element.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import parser as tree
from holdfast.api.expressions.array_functions import SORT, array
from holdfast.api.expressions.map_functions import checked_map, map_
from holdfast.api.expressions.nested import (
    Parts,
    aligned,
    arrays_from,
    arrays_of_positions,
    check_comparable,
    maps_from,
    parts_of,
    ranked,
)
from holdfast.api.expressions.types import name_of
from holdfast.api.expressions.values import (
    Column,
    EvaluationError,
    Value,
    as_array,
    folded,
    is_true,
)
from holdfast.errors import DataflowError

Compile = Callable[[tree.Tree, pa.Schema], Value]
Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Function:
    """A compiled lambda.

    Attributes:
        value: Its body, over `schema`.
        schema: The columns outside that its variables do not hide, then its variables.
        outside: The places of those columns, None for one that the body does not read.
        reads: The columns outside that it reads.
    """

    value: Value
    schema: pa.Schema
    outside: tuple[int | None, ...]
    reads: tuple[Value, ...]

    def over(self, batch: pa.RecordBatch, rows: Places, *variables: pa.Array) -> pa.Array:
        """The body for each element: `rows` says to which row of the batch each belongs."""
        at = pa.array(rows)
        columns = [
            pa.nulls(len(rows), field.type) if place is None else batch.column(place).take(at)
            for place, field in zip(self.outside, self.schema, strict=False)
        ]
        inner = pa.RecordBatch.from_arrays([*columns, *variables], schema=self.schema)
        return as_array(self.value.evaluate(inner), len(rows))


class _Call:
    """One call under construction: it compiles what the call is given, in its order."""

    def __init__(self, part: tree.Call, schema: pa.Schema, compile_: Compile) -> None:
        self.text = part.text
        self.arguments = part.arguments
        self._name = part.name
        self._schema = schema
        self._compile = compile_
        self._inputs: list[Value] = []

    def count(self, low: int, high: int) -> None:
        """Check how many arguments there are."""
        if not low <= len(self.arguments) <= high:
            counts = low if low == high else f"{low} to {high}"
            raise DataflowError(
                f"{self.text}: {self._name} takes {counts} arguments, not {len(self.arguments)}"
            )

    def value(self, index: int, kind: Callable[[Value, str], Value] | None = None) -> Value:
        """An argument that is a value."""
        value = self._compile(self.arguments[index], self._schema)
        value = value if kind is None else kind(value, self.text)
        self._inputs.append(value)
        return value

    def function(self, index: int, *types: pa.DataType, at_least: int | None = None) -> _Function:
        """An argument that is a lambda of variables of these types, or of the first of them."""
        given = self.arguments[index]
        low = len(types) if at_least is None else at_least
        if not isinstance(given, tree.Lambda) or not low <= len(given.names) <= len(types):
            counts = low if low == len(types) else f"{low} or {len(types)}"
            raise DataflowError(f"{self.text}: {given.text} is no lambda of {counts} variables")
        own = [name.lower() for name in given.names]
        if len(set(own)) < len(own):
            raise DataflowError(f"{self.text}: two variables have the same name")
        read = {column.name.lower() for column in tree.columns_of(given)}
        seen = [n for n, field in enumerate(self._schema) if field.name.lower() not in own]
        outside = tuple(n if self._schema.field(n).name.lower() in read else None for n in seen)
        variables = [pa.field(n, of) for n, of in zip(given.names, types, strict=False)]
        schema = pa.schema([*(self._schema.field(n) for n in seen), *variables])
        reads = tuple(self._compile(c, self._schema) for c in tree.columns_of(given))
        value = self._compile(given.body, schema)
        if pa.types.is_null(value.type):
            raise DataflowError(f"{self.text}: {given.body.text} is NULL without a type")
        self._inputs.extend(reads)
        return _Function(value, schema, outside, reads)

    def made(
        self,
        of: pa.DataType,
        evaluate: Callable[[pa.RecordBatch], Column],
        *functions: _Function,
        is_total: bool = True,
    ) -> Value:
        """The call's value; `is_total`: it has one if all that it is given has one."""
        parts = [*self._inputs, *(function.value for function in functions)]
        is_total = is_total and all(part.is_total for part in parts)
        value = Value(of, evaluate, is_total, self.text)
        return folded(value, self._inputs)


def higher_order(part: tree.Call, schema: pa.Schema, compile_: Compile) -> Value:
    """A call of one of `HIGHER_ORDER`. Raises `DataflowError` when its arguments do not fit."""
    return HIGHER_ORDER[part.name](_Call(part, schema, compile_))


def _taken_apart(value: Value, batch: pa.RecordBatch) -> Parts:
    return parts_of(as_array(value.evaluate(batch), batch.num_rows))


def _numbers(parts: Parts) -> pa.Array:
    """The place of each element in its row, from 0."""
    return pa.array(np.arange(len(parts.values)) - parts.begins[parts.rows], pa.int32())


def _over_elements(
    whole: Value, function: _Function, batch: pa.RecordBatch
) -> tuple[Parts, pa.Array]:
    """The elements of an array, and the lambda for each; its second variable is the place."""
    parts = _taken_apart(whole, batch)
    variables = [parts.values, _numbers(parts)][: len(function.schema) - len(function.outside)]
    return parts, function.over(batch, parts.rows, *variables)


def _boolean(function: _Function, text: str) -> None:
    if not pa.types.is_boolean(function.value.type):
        of = name_of(function.value.type)
        raise DataflowError(f"{text}: {function.value.text} is {of}, not BOOLEAN")


def _transform(call: _Call) -> Value:
    call.count(2, 2)
    whole = call.value(0, array)
    function = call.function(1, whole.type.value_type, pa.int32(), at_least=1)

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        parts, results = _over_elements(whole, function, batch)
        return arrays_from(parts.lengths, parts.valid, results)

    return call.made(pa.list_(function.value.type), evaluate, function)


def _filter(call: _Call) -> Value:
    call.count(2, 2)
    whole = call.value(0, array)
    function = call.function(1, whole.type.value_type, pa.int32(), at_least=1)
    _boolean(function, call.text)

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        parts, results = _over_elements(whole, function, batch)
        keep = is_true(results)
        kept = np.bincount(parts.rows[np.asarray(keep)], minlength=batch.num_rows)
        return arrays_from(kept, parts.valid, parts.values.filter(keep))

    return call.made(whole.type, evaluate, function)


def _any(decisive: bool) -> Callable[[_Call], Value]:
    """`exists` is decided by true, `forall` by false; a null leaves it open."""

    def build(call: _Call) -> Value:
        call.count(2, 2)
        whole = call.value(0, array)
        function = call.function(1, whole.type.value_type)
        _boolean(function, call.text)

        def evaluate(batch: pa.RecordBatch) -> pa.Array:
            parts, results = _over_elements(whole, function, batch)
            is_open = np.asarray(results.is_null())
            is_hit = np.asarray(pc.fill_null(pc.equal(results, decisive), False))
            hits, opens = (
                np.bincount(parts.rows[flags], minlength=batch.num_rows) > 0
                for flags in (is_hit, is_open)
            )
            is_known = parts.valid & (hits | ~opens)
            return pa.array(hits == decisive, mask=~is_known)

        return call.made(pa.bool_(), evaluate, function)

    return build


def _aggregate(call: _Call) -> Value:
    call.count(3, 4)
    whole, start = call.value(0, array), call.value(1)
    merge = call.function(2, start.type, whole.type.value_type)
    if merge.value.type != start.type:
        of = f"{name_of(start.type)}, {merge.value.text} {name_of(merge.value.type)}"
        raise DataflowError(f"{call.text}: {start.text} is {of}; cast one of them")
    functions = [merge]
    finish = call.function(3, start.type) if len(call.arguments) == 4 else None
    if finish is not None:
        functions.append(finish)

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        parts = _taken_apart(whole, batch)
        total = as_array(start.evaluate(batch), batch.num_rows)
        for number in range(int(parts.lengths.max(initial=0))):
            rows = np.flatnonzero(parts.lengths > number)
            elements = parts.values.take(pa.array(parts.begins[rows] + number))
            merged = merge.over(batch, rows, total.take(pa.array(rows)), elements)
            total = _replaced(total, rows, merged)
        if finish is not None:
            total = finish.over(batch, np.arange(batch.num_rows), total)
        return pc.if_else(pa.array(parts.valid), total, pa.scalar(None, total.type))

    of = start.type if finish is None else finish.value.type
    return call.made(of, evaluate, *functions)


def _replaced(column: pa.Array, rows: Places, by: pa.Array) -> pa.Array:
    at = np.arange(len(column))
    at[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, by]).take(pa.array(at))


_PAIRS_MAX = 2**22
"""Pairs of elements that a comparison sees at once: arrays of some two thousand elements."""


def _array_sort(call: _Call) -> Value:
    """By the order of the elements, or by a lambda that says which of two comes first."""
    call.count(1, 2)
    whole = call.value(0, array)
    if len(call.arguments) == 1:
        return SORT([whole], call.text)
    element = whole.type.value_type
    function = call.function(1, element, element)
    if function.value.type != pa.int32():
        of = name_of(function.value.type)
        raise DataflowError(f"{call.text}: {function.value.text} is {of}, not INT")

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        parts = _taken_apart(whole, batch)
        squares = parts.lengths**2
        if squares.max(initial=0) > _PAIRS_MAX:
            raise EvaluationError(f"{parts.lengths.max()} elements are too many to compare")
        rows: list[list[int] | None] = []
        for number, positions in enumerate(parts.positions()):
            rows.append(positions and _in_order(function, batch, number, positions, parts.values))
        return arrays_of_positions(rows, parts.values)

    return call.made(whole.type, evaluate, function, is_total=False)


def _in_order(
    function: _Function, batch: pa.RecordBatch, row: int, positions: list[int], pool: pa.Array
) -> list[int]:
    """A row's positions as a comparison of two elements orders them."""
    count, first = len(positions), positions[0]

    def signs_of(left: Places, right: Places) -> list[int | None]:
        variables = [pool.take(pa.array(first + side)) for side in (left, right)]
        signs: list[int | None] = function.over(
            batch, np.full(len(left), row), *variables
        ).to_pylist()
        return signs

    signs: list[int | None] | None = None
    with contextlib.suppress(pa.ArrowInvalid, EvaluationError):  # Perhaps of no pair that counts.
        signs = signs_of(*np.divmod(np.arange(count * count), count))

    def compare(one: int, other: int) -> int:
        left, right = one - first, other - first
        if signs is None:
            (sign,) = signs_of(np.array([left]), np.array([right]))
        else:
            sign = signs[left * count + right]
        if sign is None:
            raise EvaluationError("the comparison of two elements is null")
        return int(sign)

    return sorted(positions, key=functools.cmp_to_key(compare))


def _zip_with(call: _Call) -> Value:
    """The shorter array goes on with nulls."""
    call.count(3, 3)
    sides = [call.value(0, array), call.value(1, array)]
    function = call.function(2, *(side.type.value_type for side in sides))

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        found = aligned([_taken_apart(side, batch) for side in sides])
        results = function.over(batch, found.rows, *found.columns)
        return arrays_from(found.lengths, found.valid, results)

    return call.made(pa.list_(function.value.type), evaluate, function)


def _over_entries(call: _Call) -> tuple[Value, _Function]:
    call.count(2, 2)
    whole = call.value(0, map_)
    return whole, call.function(1, whole.type.key_type, whole.type.item_type)


def _transform_keys(call: _Call) -> Value:
    whole, function = _over_entries(call)
    check_comparable(function.value.type, call.text)

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        parts = _taken_apart(whole, batch)
        keys, items = parts.values.flatten()
        changed = function.over(batch, parts.rows, keys, items)
        return checked_map(parts.lengths, parts.valid, changed, items, call.text)

    of = pa.map_(function.value.type, whole.type.item_type)
    return call.made(of, evaluate, function, is_total=False)


def _transform_values(call: _Call) -> Value:
    whole, function = _over_entries(call)

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        parts = _taken_apart(whole, batch)
        keys, items = parts.values.flatten()
        changed = function.over(batch, parts.rows, keys, items)
        return maps_from(parts.lengths, parts.valid, keys, changed)

    return call.made(pa.map_(whole.type.key_type, function.value.type), evaluate, function)


def _map_filter(call: _Call) -> Value:
    whole, function = _over_entries(call)
    _boolean(function, call.text)

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        parts = _taken_apart(whole, batch)
        keys, items = parts.values.flatten()
        keep = is_true(function.over(batch, parts.rows, keys, items))
        kept = np.bincount(parts.rows[np.asarray(keep)], minlength=batch.num_rows)
        return maps_from(kept, parts.valid, keys.filter(keep), items.filter(keep))

    return call.made(whole.type, evaluate, function)


def _map_zip_with(call: _Call) -> Value:
    """All keys of both maps, those of the first before the others."""
    call.count(3, 3)
    sides = [call.value(0, map_), call.value(1, map_)]
    key = sides[0].type.key_type
    check_comparable(key, call.text)
    if sides[1].type.key_type != key:
        raise DataflowError(f"{call.text}: the keys have different types; cast one of them")
    function = call.function(2, key, *(side.type.item_type for side in sides))

    def evaluate(batch: pa.RecordBatch) -> pa.Array:
        parts = [_taken_apart(side, batch) for side in sides]
        valid = parts[0].valid & parts[1].valid
        first, second = (part.values.flatten() for part in parts)
        pool = pa.concat_arrays([first[0], second[0]])
        ranks, _ = ranked(pool, call.text)
        known = ranks.tolist()
        places: list[tuple[int | None, int | None]] = []
        lengths = np.zeros(batch.num_rows, np.int64)
        rows = zip(parts[0].positions(), parts[1].positions(len(first[0])), strict=True)
        for number, (left, right) in enumerate(rows):
            if left is None or right is None:
                continue
            there = {known[at]: at - len(first[0]) for at in right}
            here = {known[at] for at in left}
            both = [(at, there.get(known[at])) for at in left]
            rest = [(None, there[known[at]]) for at in right if known[at] not in here]
            places += [*both, *rest]
            lengths[number] = len(both) + len(rest)
        ours, theirs = (pa.array([place[n] for place in places], pa.int64()) for n in (0, 1))
        keys = pc.coalesce(first[0].take(ours), second[0].take(theirs))
        of_rows = np.repeat(np.arange(batch.num_rows), lengths)
        items = function.over(batch, of_rows, keys, first[1].take(ours), second[1].take(theirs))
        return maps_from(lengths, valid, keys, items)

    return call.made(pa.map_(key, function.value.type), evaluate, function)


HIGHER_ORDER: dict[str, Callable[[_Call], Value]] = {
    "aggregate": _aggregate,
    "array_sort": _array_sort,
    "exists": _any(True),
    "filter": _filter,
    "forall": _any(False),
    "map_filter": _map_filter,
    "map_zip_with": _map_zip_with,
    "reduce": _aggregate,
    "transform": _transform,
    "transform_keys": _transform_keys,
    "transform_values": _transform_values,
    "zip_with": _zip_with,
}
