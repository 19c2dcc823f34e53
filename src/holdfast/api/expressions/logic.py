"""Comparisons, null logic and choices. A branch that is not taken is not evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.errors import DataflowError
from holdfast.api.expressions.types import coerce, common_type, name_of
from holdfast.api.expressions.values import (
    Column,
    Value,
    as_array,
    constant,
    derived,
    is_true,
    where,
)

_COMPARISONS: dict[str, Callable[..., Column]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_NULL = pa.scalar(None, pa.bool_())


def compared(symbol: str, left: Value, right: Value, text: str) -> Value:
    """`left symbol right`; NaN equals itself and is larger than every number."""
    left, right = _alike([left, right], text)
    kernel = _COMPARISONS[symbol]
    if pa.types.is_floating(left.type):
        return derived(pa.bool_(), text, _with_nan(symbol), left, right)
    return derived(pa.bool_(), text, kernel, left, right)


def _alike(values: Sequence[Value], text: str) -> list[Value]:
    """All cast to their common type; a text literal is read as the type it is compared with."""
    from holdfast.api.expressions.casts import cast

    others = [v for v in values if not (v.literal is not None and pa.types.is_string(v.type))]
    if others and len(others) < len(values):
        of = common_type(others, text)
        if pa.types.is_timestamp(of) or pa.types.is_date(of):
            values = [v if v in others else cast(v, of, v.text) for v in values]
    of = common_type(values, text)
    return [coerce(value, of) for value in values]


def _with_nan(symbol: str) -> Callable[..., Column]:
    kernel = _COMPARISONS[symbol]

    def compare(left: Column, right: Column) -> Column:
        plain = kernel(left, right)
        a, b = pc.is_nan(left), pc.is_nan(right)
        either = pc.or_(a, b)
        found = either.as_py() if isinstance(either, pa.Scalar) else pc.any(either).as_py()
        if not found:
            return plain
        # With NaN as the largest number, comparing the two flags decides.
        return pc.if_else(either, kernel(a.cast(pa.int8()), b.cast(pa.int8())), plain)

    return compare


def null_safe_equal(left: Value, right: Value, text: str) -> Value:
    """`left <=> right`: never null."""
    equal = compared("=", left, right, text)

    def evaluate(batch: pa.RecordBatch) -> Column:
        a, b = left.evaluate(batch), right.evaluate(batch)
        both_null = pc.and_(pc.is_null(a), pc.is_null(b))
        return pc.or_(is_true(equal.evaluate(batch)), both_null)

    return Value(pa.bool_(), evaluate, equal.is_total, text)


def inverted(value: Value, text: str) -> Value:
    """`NOT value`."""
    return derived(pa.bool_(), text, pc.invert, boolean(value, text))


def boolean(value: Value, text: str) -> Value:
    """The value, if it is a boolean or NULL."""
    if pa.types.is_null(value.type):
        return coerce(value, pa.bool_())
    if not pa.types.is_boolean(value.type):
        raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not BOOLEAN")
    return value


def combined(kind: str, left: Value, right: Value, text: str) -> Value:
    """`left AND right`, `left OR right`: the right side only where the left does not decide."""
    left, right = boolean(left, text), boolean(right, text)
    kernel = pc.and_kleene if kind == "AND" else pc.or_kleene
    if right.is_total:
        return derived(pa.bool_(), text, kernel, left, right)
    undecided = pc.not_equal if kind == "AND" else pc.equal

    def evaluate(batch: pa.RecordBatch) -> Column:
        first = as_array(left.evaluate(batch), batch.num_rows)
        open_rows = pc.fill_null(undecided(first, False), True)
        second = where(right, batch, open_rows)
        decided = pa.scalar(kind == "OR")
        return pc.if_else(open_rows, kernel(first, second), decided)

    return Value(pa.bool_(), evaluate, False, text)


def is_null(value: Value, text: str) -> Value:
    """`value IS NULL`."""
    return derived(pa.bool_(), text, pc.is_null, value)


def between(value: Value, low: Value, high: Value, text: str) -> Value:
    """`value BETWEEN low AND high`, both ends included."""
    return combined(
        "AND", compared(">=", value, low, text), compared("<=", value, high, text), text
    )


def contained(value: Value, options: Sequence[Value], text: str) -> Value:
    """`value IN (...)`: null if nothing equals and something is null."""
    value, *options = _alike([value, *options], text)
    literals = [option.literal for option in options]
    if all(s is not None and s.is_valid for s in literals) and not pa.types.is_floating(value.type):
        known = pa.array([s.as_py() for s in literals if s is not None], value.type)

        def look_up(column: Column) -> Column:
            found = pc.is_in(
                as_array(column, 1) if isinstance(column, pa.Scalar) else column, known
            )
            found = found[0] if isinstance(column, pa.Scalar) else found
            return pc.if_else(pc.is_valid(column), found, _NULL)

        return derived(pa.bool_(), text, look_up, value)
    result = compared("=", value, options[0], text)
    for option in options[1:]:
        result = combined("OR", result, compared("=", value, option, text), text)
    return result


# -- choices ------------------------------------------------------------------------------------


def chosen(branches: Sequence[tuple[Value, Value]], default: Value | None, text: str) -> Value:
    """`CASE WHEN condition THEN value ... ELSE default END`: the first true condition counts."""
    missing = constant(pa.scalar(None, pa.null()), "NULL")
    results = _same_type([*(value for _, value in branches), default or missing], text)
    conditions = [boolean(condition, text) for condition, _ in branches]
    of = results[0].type

    def evaluate(batch: pa.RecordBatch) -> Column:
        rows = batch.num_rows
        result = pa.nulls(rows, of)
        rest = pa.repeat(pa.scalar(True), rows)
        for condition, value in zip(conditions, results, strict=False):
            here = pc.and_(rest, is_true(where(condition, batch, rest)))
            result = pc.if_else(here, where(value, batch, here), result)
            rest = pc.and_not(rest, here)
        return pc.if_else(rest, where(results[-1], batch, rest), result)

    is_total = all(value.is_total for value in [*conditions, *results])
    return Value(of, evaluate, is_total, text)


def first_valid(values: Sequence[Value], text: str) -> Value:
    """`coalesce(...)`: the first value that is not null; later ones only where needed."""
    values = _same_type(values, text)
    of = values[0].type
    if all(value.is_total for value in values):
        return derived(of, text, lambda *columns: pc.coalesce(*columns), *values)

    def evaluate(batch: pa.RecordBatch) -> Column:
        result = as_array(values[0].evaluate(batch), batch.num_rows)
        for value in values[1:]:
            missing = pc.is_null(result)
            result = pc.if_else(missing, where(value, batch, missing), result)
        return result

    return Value(of, evaluate, False, text)


def null_if_equal(left: Value, right: Value, text: str) -> Value:
    """`nullif(left, right)`."""
    return chosen([(compared("=", left, right, text), _null_of(left))], left, text)


def _null_of(value: Value) -> Value:
    return constant(pa.scalar(None, value.type), "NULL")


def extreme(values: Sequence[Value], symbol: str, text: str) -> Value:
    """`greatest(...)` and `least(...)`: nulls are skipped, NaN is the largest number."""
    values = _same_type(values, text)
    of = values[0].type
    compare = _with_nan(symbol) if pa.types.is_floating(of) else _COMPARISONS[symbol]

    def fold(*columns: Column) -> Column:
        result = columns[0]
        for column in columns[1:]:
            better = pc.or_(pc.is_null(result), is_true(compare(column, result)))
            result = pc.if_else(pc.and_(better, pc.is_valid(column)), column, result)
        return result

    return derived(of, text, fold, *values)


def _same_type(values: Sequence[Value], text: str) -> list[Value]:
    of = common_type(values, text)
    return [coerce(value, of) for value in values]
