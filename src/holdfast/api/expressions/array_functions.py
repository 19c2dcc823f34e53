"""Functions of arrays. Nulls are elements; an array that is null makes most results null."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import logic
from holdfast.api.expressions.casts import coerce
from holdfast.api.expressions.nested import (
    Row,
    aligned,
    arrays_from,
    arrays_of_positions,
    check_comparable,
    parts_of,
    per_array,
    ranked,
)
from holdfast.api.expressions.signatures import (
    ANY,
    Build,
    Function,
    integer,
    string,
)
from holdfast.api.expressions.types import common_type, is_time, name_of, struct_of
from holdfast.api.expressions.values import (
    EvaluationError,
    Value,
    constant,
    derived,
    derived_from_all,
    per_row,
)
from holdfast.errors import DataflowError, UnsupportedError

LONGEST = 2**24
"""Elements of an array that a function may make: far beyond what a row of a stream should hold."""


def array(value: Value, text: str) -> Value:
    """The value, if it is an array."""
    if not pa.types.is_list(value.type):
        raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not ARRAY")
    return value


def _made(args: Sequence[Value], text: str) -> Value:
    """`array(...)`: its elements next to each other; never null."""
    if not args:
        raise UnsupportedError(f"{text}: an empty array has no type here; cast it")
    of = common_type(args, text)
    if pa.types.is_null(of):
        raise UnsupportedError(f"{text}: an array of NULL has no type here; cast an element")

    def together(*columns: pa.Array) -> pa.Array:
        count, width = len(columns[0]), len(columns)
        pool = pa.concat_arrays(columns)
        order = np.arange(count * width).reshape(width, count).T.ravel()
        lengths = np.full(count, width)
        return arrays_from(lengths, np.ones(count, bool), pool.take(pa.array(order)))

    elements = [coerce(arg, of) for arg in args]
    return derived_from_all(pa.list_(of), text, per_array(together), *elements)


# -- rearranging: positions ---------------------------------------------------------------------


def _alike(values: Sequence[Value], text: str) -> list[Value]:
    of = common_type([array(value, text) for value in values], text)
    return [coerce(value, of) for value in values]


def _with_element(args: Sequence[Value], text: str, at: int) -> tuple[Value, Value]:
    """An array and what is to be one of its elements, as the common type of both."""
    whole, element = array(args[0], text), args[at]
    if element.type == whole.type.value_type:
        return whole, element
    if pa.types.is_string(element.type) != pa.types.is_string(whole.type.value_type):
        of = f"{name_of(whole.type)} and {name_of(element.type)}"
        raise DataflowError(f"{text}: {of} do not fit; cast one of them")
    part = Value(whole.type.value_type, whole.evaluate, True, whole.text)
    of = common_type([part, element], text)
    return coerce(whole, pa.list_(of)), coerce(element, of)


def _rearranged(
    move: Callable[..., Sequence[int | None] | None], *kinds: Callable[[Value, str], Value]
) -> Build:
    """A function from a row's positions and numbers to positions; null if one is null."""

    def build(args: Sequence[Value], text: str) -> Value:
        whole = array(args[0], text)
        numbers = [kind(arg, text) for kind, arg in zip(kinds, args[1:], strict=False)]

        def kernel(column: pa.Array, *others: pa.Array) -> pa.Array:
            parts = parts_of(column)
            lists = [other.to_pylist() for other in others]
            rows = (
                None if row is None or None in rest else move(row, *rest)
                for row, *rest in zip(parts.positions(), *lists, strict=True)
            )
            return arrays_of_positions(rows, parts.values)

        return derived(whole.type, text, per_array(kernel), whole, *numbers, is_total=False)

    return build


def _slice(row: list[int], start: int, length: int) -> list[int]:
    if start == 0:
        raise EvaluationError("slice counts from 1")
    if length < 0:
        raise EvaluationError("slice takes no negative length")
    begin = start - 1 if start > 0 else len(row) + start
    return row[begin : begin + length] if begin >= 0 else []


def _compact(args: Sequence[Value], text: str) -> Value:
    whole = array(args[0], text)

    def kernel(column: pa.Array) -> pa.Array:
        parts = parts_of(column)
        keep = parts.values.is_valid()
        kept = np.bincount(parts.rows[np.asarray(keep)], minlength=len(column))
        return arrays_from(kept, parts.valid, parts.values.filter(keep))

    return derived(whole.type, text, per_array(kernel), whole)


def concatenated(args: Sequence[Value], text: str) -> Value:
    """`concat` of arrays: null if one of them is."""
    whole = _alike(args, text)

    def kernel(*columns: pa.Array) -> pa.Array:
        pool, rows = _pooled(columns)
        joined = (
            None if None in several else [at for row in several for at in row or ()]
            for several in zip(*rows, strict=True)
        )
        return arrays_of_positions(joined, pool)

    return derived_from_all(whole[0].type, text, per_array(kernel), *whole)


def _pooled(columns: Sequence[pa.Array]) -> tuple[pa.Array, list[list[Row]]]:
    """All elements of several columns in one pool, and the positions of each column's rows."""
    parts = [parts_of(column) for column in columns]
    rows, base = [], 0
    for part in parts:
        rows.append(part.positions(base))
        base += len(part.values)
    return pa.concat_arrays([part.values for part in parts]), rows


def _flatten(args: Sequence[Value], text: str) -> Value:
    """Null if one of the arrays within is."""
    whole = array(args[0], text)
    inner = whole.type.value_type
    if not pa.types.is_list(inner):
        raise DataflowError(f"{text}: {whole.text} holds {name_of(inner)}, not ARRAY")

    def kernel(column: pa.Array) -> pa.Array:
        outer = parts_of(column)
        within = parts_of(outer.values)
        missing = np.bincount(outer.rows[~within.valid], minlength=len(column)) > 0
        lengths = np.bincount(outer.rows, weights=within.lengths, minlength=len(column))
        valid = outer.valid & ~missing
        keep = np.repeat(valid[outer.rows], within.lengths)
        whole_lengths = np.where(valid, lengths, 0).astype(np.int64)
        return arrays_from(whole_lengths, valid, within.values.filter(pa.array(keep)))

    return derived(inner, text, per_array(kernel), whole)


def _put(place: Callable[[list[int], int], list[int]]) -> Build:
    """One element more, which may be null."""

    def build(args: Sequence[Value], text: str) -> Value:
        whole, element = _with_element(args, text, 1)

        def kernel(column: pa.Array, elements: pa.Array) -> pa.Array:
            parts = parts_of(column)
            base = len(parts.values)
            rows = (
                None if row is None else place(row, base + number)
                for number, row in enumerate(parts.positions())
            )
            return arrays_of_positions(rows, pa.concat_arrays([parts.values, elements]))

        return derived_from_all(whole.type, text, per_array(kernel), whole, element)

    return build


def _insert(args: Sequence[Value], text: str) -> Value:
    """`array_insert(array, position, element)`; nulls fill what lies between."""
    whole, element = _with_element(args, text, 2)
    place = integer(args[1], text)

    def kernel(column: pa.Array, places: pa.Array, elements: pa.Array) -> pa.Array:
        parts = parts_of(column)
        base = len(parts.values)
        rows = (
            None if row is None or at is None else _inserted(row, at, base + number)
            for number, (row, at) in enumerate(
                zip(parts.positions(), places.to_pylist(), strict=True)
            )
        )
        return arrays_of_positions(rows, pa.concat_arrays([parts.values, elements]))

    return derived_from_all(
        whole.type, text, per_array(kernel), whole, place, element, is_total=False
    )


def _inserted(row: list[int], at: int, element: int) -> list[int | None]:
    if at == 0:
        raise EvaluationError("array_insert counts from 1")
    if abs(at) > LONGEST:
        raise EvaluationError(f"an array of {abs(at)} elements")
    if at > 0:
        gap: list[int | None] = [None] * (at - 1 - len(row))
        return [*row[: at - 1], *gap, element, *row[at - 1 :]]
    behind = len(row) + at + 1  # Where it stands, of the elements that there will be.
    if behind >= 0:
        return [*row[:behind], element, *row[behind:]]
    return [element, *[None] * -behind, *row]


def _repeat(args: Sequence[Value], text: str) -> Value:
    element, times = args[0], integer(args[1], text)
    if pa.types.is_null(element.type):
        raise UnsupportedError(f"{text}: an array of NULL has no type here; cast the element")

    def kernel(elements: pa.Array, counts: pa.Array) -> pa.Array:
        lengths = np.maximum(counts.fill_null(0).to_numpy(zero_copy_only=False), 0)
        if lengths.sum() > LONGEST:
            raise EvaluationError(f"arrays of {lengths.sum()} elements")
        at = np.repeat(np.arange(len(elements)), lengths)
        valid = np.asarray(counts.is_valid())
        return arrays_from(lengths.astype(np.int64), valid, elements.take(pa.array(at)))

    of = pa.list_(element.type)
    return derived_from_all(of, text, per_array(kernel), element, times, is_total=False)


def _zipped(args: Sequence[Value], text: str) -> Value:
    """`arrays_zip`: structs of what stands at the same place; the shorter ones give nulls."""
    whole = [array(arg, text) for arg in args]
    names = [arg.text if arg.is_column else str(n) for n, arg in enumerate(args)]
    of = struct_of([(n, v.type.value_type) for n, v in zip(names, whole, strict=True)], text)

    def kernel(*columns: pa.Array) -> pa.Array:
        found = aligned([parts_of(column) for column in columns])
        structs = pa.StructArray.from_arrays(found.columns, fields=list(of))
        return arrays_from(found.lengths, found.valid, structs)

    return derived_from_all(pa.list_(of), text, per_array(kernel), *whole)


# -- comparing: ranks ---------------------------------------------------------------------------


def _compared(
    of: Callable[[pa.DataType], pa.DataType],
    compute: Callable[..., Any],
    finish: Callable[[list[Any], pa.Array], pa.Array],
) -> Build:
    """A function from the ranks of arrays to a result; null if an array is null."""

    def build(args: Sequence[Value], text: str) -> Value:
        whole = _alike(args, text)
        element = whole[0].type.value_type
        check_comparable(element, text)

        def kernel(*columns: pa.Array) -> pa.Array:
            pool, rows = _pooled(columns)
            ranks, by_rank = ranked(pool, text)
            known = ranks.tolist()
            results = [
                None if None in several else compute(*([known[at] for at in r] for r in several))
                for several in zip(*rows, strict=True)
            ]
            return finish(results, by_rank)

        return derived_from_all(of(element), text, per_array(kernel), *whole)

    return build


def _as_arrays(results: list[Any], by_rank: pa.Array) -> pa.Array:
    """Ranks as arrays again; -1 is null."""
    rows = (
        None if row is None else [None if rank < 0 else rank for rank in row] for row in results
    )
    return arrays_of_positions(rows, by_rank)


def _as_flags(results: list[Any], _: pa.Array) -> pa.Array:
    return pa.array(results, pa.bool_())


def _set_of(compute: Callable[..., Sequence[int]]) -> Build:
    return _compared(pa.list_, compute, _as_arrays)


def _distinct(row: list[int]) -> list[int]:
    return list(dict.fromkeys(row))


def _union(left: list[int], right: list[int]) -> list[int]:
    return _distinct([*left, *right])


def _intersect(left: list[int], right: list[int]) -> list[int]:
    there = set(right)
    return [rank for rank in _distinct(left) if rank in there]


def _except(left: list[int], right: list[int]) -> list[int]:
    there = set(right)
    return [rank for rank in _distinct(left) if rank not in there]


def _overlap(left: list[int], right: list[int]) -> bool | None:
    if any(rank >= 0 for rank in {*left} & {*right}):
        return True
    return None if left and right and -1 in (*left, *right) else False


def _ordered(order: Callable[[list[int], list[int]], list[int]]) -> Build:
    """A function that puts the positions of an array in order, given the ranks of all positions."""

    def build(args: Sequence[Value], text: str) -> Value:
        whole = array(args[0], text)
        check_comparable(whole.type.value_type, text)

        def kernel(column: pa.Array) -> pa.Array:
            parts = parts_of(column)
            ranks = ranked(parts.values, text)[0].tolist()
            rows = (None if row is None else order(row, ranks) for row in parts.positions())
            return arrays_of_positions(rows, parts.values)

        return derived(whole.type, text, per_array(kernel), whole)

    return build


def _nulls_last(row: list[int], ranks: list[int]) -> list[int]:
    return sorted(row, key=lambda at: (ranks[at] < 0, ranks[at]))


def _nulls_first(row: list[int], ranks: list[int]) -> list[int]:
    return sorted(row, key=ranks.__getitem__)


def _descending(row: list[int], ranks: list[int]) -> list[int]:
    return sorted(row, key=lambda at: -ranks[at])


def _extreme(choose: Callable[..., int]) -> Build:
    """Nulls do not count; of equal elements the first."""

    def build(args: Sequence[Value], text: str) -> Value:
        def best(row: list[int], ranks: list[int]) -> list[int]:
            valid = [at for at in row if ranks[at] >= 0]
            return [choose(valid, key=ranks.__getitem__)] if valid else []

        return GET([_ordered(best)(args, text), constant(pa.scalar(0, pa.int32()), "0")], text)

    return build


def _sort(args: Sequence[Value], text: str) -> Value:
    """`sort_array(array, ascending)`: nulls first, in descending order last."""
    is_ascending = True
    if len(args) == 2:
        flag = logic.boolean(args[1], text).constant
        if flag is None or not flag.is_valid:
            raise UnsupportedError(f"{text}: the order must be a literal here")
        is_ascending = flag.as_py()
    return _ordered(_nulls_first if is_ascending else _descending)(args, text)


def _searched(
    of: pa.DataType, compute: Callable[[list[int], int], Any], *, takes_null: bool = False
) -> Build:
    """A function of an array's ranks and the rank of a value, which may not be NULL as written."""

    def build(args: Sequence[Value], text: str) -> Value:
        if pa.types.is_null(args[1].type):
            raise DataflowError(f"{text}: {args[1].text} has no type")
        whole, value = _with_element(args, text, 1)
        check_comparable(value.type, text)
        result = whole.type if takes_null else of

        def kernel(column: pa.Array, wanted: pa.Array) -> pa.Array:
            parts = parts_of(column)
            ranks, by_rank = ranked(pa.concat_arrays([parts.values, wanted]), text)
            known = ranks.tolist()
            looked_for = known[len(parts.values) :]
            results = [
                None if row is None or rank < 0 else compute([known[at] for at in row], rank)
                for row, rank in zip(parts.positions(), looked_for, strict=True)
            ]
            return _as_arrays(results, by_rank) if takes_null else pa.array(results, of)

        return derived(result, text, per_array(kernel), whole, value)

    return build


def _contains(row: list[int], rank: int) -> bool | None:
    if rank in row:
        return True
    return None if -1 in row else False


def _position(row: list[int], rank: int) -> int:
    return row.index(rank) + 1 if rank in row else 0


def _removed(row: list[int], rank: int) -> list[int]:
    return [each for each in row if each != rank]


# -- one element, and numbers -------------------------------------------------------------------


def element_of(find: Callable[[int, int], int | None]) -> Build:
    """One element: `find(length, index)` says at which place, None for a null."""

    def build(args: Sequence[Value], text: str) -> Value:
        whole, index = array(args[0], text), integer(args[1], text)

        def kernel(column: pa.Array, indices: pa.Array) -> pa.Array:
            parts = parts_of(column)
            at: list[int | None] = []
            rows = (parts.begins.tolist(), parts.lengths.tolist(), parts.valid.tolist())
            for begin, length, is_valid, wanted in zip(*rows, indices.to_pylist(), strict=True):
                place = find(length, wanted) if is_valid and wanted is not None else None
                at.append(None if place is None else begin + place)
            return parts.values.take(pa.array(at, pa.int64()))

        of = whole.type.value_type
        return derived(of, text, per_array(kernel), whole, index, is_total=False)

    return build


def _from_zero(length: int, index: int) -> int | None:
    return index if 0 <= index < length else None


def _existing(length: int, index: int) -> int:
    if not 0 <= index < length:
        raise EvaluationError(f"an array of {length} elements has none at {index}")
    return index


def _from_one(length: int, index: int) -> int | None:
    if index == 0:
        raise EvaluationError("element_at counts from 1")
    return index - 1 if 0 < index <= length else length + index if -length <= index < 0 else None


def _existing_from_one(length: int, index: int) -> int:
    place = _from_one(length, index)
    if place is None:
        raise EvaluationError(f"an array of {length} elements has none at {index}")
    return place


GET = element_of(_from_zero)
SUBSCRIPT = element_of(_existing)
ELEMENT_AT = element_of(_existing_from_one)
TRY_ELEMENT_AT = element_of(_from_one)


def size(args: Sequence[Value], text: str) -> Value:
    """How many elements an array has; NULL of NULL."""
    whole = array(args[0], text)
    return derived(pa.int32(), text, pc.list_value_length, whole)


def _join(args: Sequence[Value], text: str) -> Value:
    """`array_join(array, delimiter, null replacement)`: nulls without one are left out."""
    whole = coerce(array(args[0], text), pa.list_(pa.string()))
    others = [string(arg, text) for arg in args[1:]]

    def one(row: list[str | None], delimiter: str, replacement: str | None = None) -> str:
        texts = (replacement if each is None else each for each in row)
        return delimiter.join(each for each in texts if each is not None)

    return derived(pa.string(), text, per_row(one, pa.string()), whole, *others)


def _sequence(args: Sequence[Value], text: str) -> Value:
    """`sequence(start, stop, step)` of whole numbers, both ends included."""
    if any(is_time(arg.type) or pa.types.is_duration(arg.type) for arg in args):
        raise UnsupportedError(f"{text}: sequences of times are not supported")
    of = common_type(args, text)
    if not pa.types.is_integer(of):
        raise DataflowError(f"{text}: sequence takes whole numbers")

    def one(start: int, stop: int, step: int | None = None) -> list[int]:
        step = (1 if stop >= start else -1) if step is None else step
        if (step == 0 and start != stop) or (stop - start) * step < 0:
            raise EvaluationError(f"no sequence from {start} to {stop} by {step}")
        count = (stop - start) // (step or 1) + 1
        if count > LONGEST:
            raise EvaluationError(f"a sequence of {count} elements")
        return [start + n * (step or 1) for n in range(count)]

    numbers = [coerce(arg, of) for arg in args]
    return derived(pa.list_(of), text, per_row(one, pa.list_(of)), *numbers, is_total=False)


def _prepended(row: list[int], element: int) -> list[int]:
    return [element, *row]


def _appended(row: list[int], element: int) -> list[int]:
    return [*row, element]


SORT = _ordered(_nulls_last)
REVERSE = _rearranged(lambda row: row[::-1])
FUNCTIONS: dict[str, Function] = {
    "array": Function(_made, 0, ANY),
    "array_append": Function(_put(_appended), 2, 2),
    "array_compact": Function(_compact, 1, 1),
    "array_contains": Function(_searched(pa.bool_(), _contains), 2, 2),
    "array_distinct": Function(_set_of(_distinct), 1, 1),
    "array_except": Function(_set_of(_except), 2, 2),
    "array_insert": Function(_insert, 3, 3),
    "array_intersect": Function(_set_of(_intersect), 2, 2),
    "array_join": Function(_join, 2, 3),
    "array_max": Function(_extreme(max), 1, 1),
    "array_min": Function(_extreme(min), 1, 1),
    "array_position": Function(_searched(pa.int64(), _position), 2, 2),
    "array_prepend": Function(_put(_prepended), 2, 2),
    "array_remove": Function(_searched(pa.null(), _removed, takes_null=True), 2, 2),
    "array_repeat": Function(_repeat, 2, 2),
    "array_size": Function(size, 1, 1),
    "array_union": Function(_set_of(_union), 2, 2),
    "arrays_overlap": Function(_compared(lambda _: pa.bool_(), _overlap, _as_flags), 2, 2),
    "arrays_zip": Function(_zipped, 1, ANY),
    "flatten": Function(_flatten, 1, 1),
    "get": Function(GET, 2, 2),
    "sequence": Function(_sequence, 2, 3),
    "slice": Function(_rearranged(_slice, integer, integer), 3, 3),
    "sort_array": Function(_sort, 1, 2),
}
