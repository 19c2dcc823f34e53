"""Comparisons, null logic and choices. A branch that is not taken is not evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions.casts import coerce
from holdfast.api.expressions.nested import per_array
from holdfast.api.expressions.types import common_type, decimal_of, name_of
from holdfast.api.expressions.values import (
    Column,
    Value,
    as_array,
    constant,
    derived,
    derived_from_all,
    folded,
    is_true,
    where,
)
from holdfast.core.model.nested_types import is_nested
from holdfast.errors import DataflowError, UnsupportedError

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
    left, right = _two_alike(left, right, text)
    return derived(pa.bool_(), text, _comparison(symbol, left.type), left, right)


def _two_alike(left: Value, right: Value, text: str) -> list[Value]:
    """Both as their common type; a whole number as written meets a decimal with its digits."""
    pair = [left, right]
    if any(pa.types.is_decimal(value.type) for value in pair):
        pair = [
            coerce(value, decimal_of(value)) if pa.types.is_integer(value.type) else value
            for value in pair
        ]
    return _alike(pair, text)


def _alike(values: Sequence[Value], text: str) -> list[Value]:
    of = common_type(values, text)
    return [coerce(value, of) for value in values]


def _comparison(symbol: str, of: pa.DataType) -> Callable[..., Column]:
    if pa.types.is_struct(of) and symbol in ("=", "<>"):
        return _of_structs(symbol, of)
    if is_nested(of):
        raise UnsupportedError(f"{name_of(of)}: {symbol} is not supported")
    return _with_nan(symbol) if pa.types.is_floating(of) else _COMPARISONS[symbol]


def _of_structs(symbol: str, of: pa.DataType) -> Callable[..., Column]:
    """Field by field; two fields that are null are equal."""
    fields = [_comparison("=", field.type) for field in of]

    def equal(left: pa.Array, right: pa.Array) -> pa.Array:
        result = pa.repeat(pa.scalar(True), len(left))
        for compare, a, b in zip(fields, left.flatten(), right.flatten(), strict=True):
            both_null = pc.and_(pc.is_null(a), pc.is_null(b))
            result = pc.and_(result, pc.or_(is_true(compare(a, b)), both_null))
        result = result if symbol == "=" else pc.invert(result)
        return pc.if_else(pc.and_(pc.is_valid(left), pc.is_valid(right)), result, _NULL)

    return per_array(equal)


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
    left, right = _two_alike(left, right, text)
    if pa.types.is_null(left.type):
        return constant(pa.scalar(True), text)
    equal = _comparison("=", left.type)

    def kernel(a: Column, b: Column) -> Column:
        return pc.or_(is_true(equal(a, b)), pc.and_(pc.is_null(a), pc.is_null(b)))

    return derived_from_all(pa.bool_(), text, kernel, left, right)


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


def combined(kind: str, operands: Sequence[Value], text: str) -> Value:
    """Operands between AND or OR: each only where those before it do not decide."""
    operands = [boolean(operand, text) for operand in operands]
    decisive = pa.scalar(kind == "OR")
    kernel = pc.and_kleene if kind == "AND" else pc.or_kleene
    if not any(o.failure for o in operands) and any(o.constant == decisive for o in operands):
        return constant(decisive, text)

    def evaluate(batch: pa.RecordBatch) -> Column:
        result = operands[0].evaluate(batch)
        for operand in operands[1:]:
            if operand.is_total:
                result = kernel(result, operand.evaluate(batch))
                continue
            is_open = pc.fill_null(pc.not_equal(result, decisive), True)
            rest = kernel(result, where(operand, batch, is_open))
            result = pc.if_else(is_open, rest, decisive)
        return result

    is_total = all(operand.is_total for operand in operands)
    return folded(Value(pa.bool_(), evaluate, is_total, text), operands)


def is_null(value: Value, text: str) -> Value:
    """`value IS NULL`."""
    return derived_from_all(pa.bool_(), text, pc.is_null, value)


def between(value: Value, low: Value, high: Value, text: str) -> Value:
    """`value BETWEEN low AND high`, both ends included."""
    parts = [compared(">=", value, low, text), compared("<=", value, high, text)]
    return combined("AND", parts, text)


def contained(value: Value, options: Sequence[Value], text: str) -> Value:
    """`value IN (...)`: null if nothing equals and something is null.

    Options behind one that equals are not evaluated.
    """
    value, *options = _alike([value, *options], text)
    if value.is_null:
        return constant(_NULL, text)
    constants = [option.constant for option in options if option.constant is not None]
    is_looked_up = not (pa.types.is_floating(value.type) or is_nested(value.type))
    if len(constants) == len(options) and is_looked_up:
        return derived(pa.bool_(), text, _look_up(constants, value.type), value)
    equal = _comparison("=", value.type)

    def evaluate(batch: pa.RecordBatch) -> Column:
        subject = as_array(value.evaluate(batch), batch.num_rows)
        is_unknown = pc.is_null(subject)
        is_open = pc.is_valid(subject)
        found = pa.repeat(pa.scalar(False), batch.num_rows)
        for option in options:
            column = where(option, batch, is_open)
            found = pc.or_(found, is_true(equal(subject, column)))
            is_unknown = pc.or_(is_unknown, pc.is_null(column))
            is_open = pc.and_not(is_open, found)
        return pc.if_else(found, True, pc.if_else(is_unknown, _NULL, False))

    is_total = all(each.is_total for each in [value, *options])
    return folded(Value(pa.bool_(), evaluate, is_total, text), [value, *options])


def _look_up(constants: Sequence[pa.Scalar], of: pa.DataType) -> Callable[[Column], Column]:
    valid = [scalar for scalar in constants if scalar.is_valid]
    known = pa.concat_arrays([pa.array([], of), *(pa.repeat(scalar, 1) for scalar in valid)])
    otherwise = pa.scalar(False) if len(valid) == len(constants) else _NULL

    def look_up(column: Column) -> Column:
        if isinstance(column, pa.Scalar):
            return look_up(pa.repeat(column, 1))[0]
        found = pc.if_else(pc.is_in(column, known), True, otherwise)
        return pc.if_else(pc.is_valid(column), found, _NULL)

    return look_up


# -- choices ------------------------------------------------------------------------------------


def chosen(branches: Sequence[tuple[Value, Value]], default: Value | None, text: str) -> Value:
    """`CASE WHEN condition THEN value ... ELSE default END`: the first true condition counts."""
    missing = constant(pa.scalar(None, pa.null()), "NULL")
    results = _alike([*(value for _, value in branches), default or missing], text)
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

    parts = [*conditions, *results]
    is_total = all(value.is_total for value in parts)
    return folded(Value(of, evaluate, is_total, text), parts, chooses=True)


def first_valid(values: Sequence[Value], text: str) -> Value:
    """`coalesce(...)`: the first value that is not null; later ones only where needed."""
    values = _alike(values, text)
    of = values[0].type

    def evaluate(batch: pa.RecordBatch) -> Column:
        result = as_array(values[0].evaluate(batch), batch.num_rows)
        for value in values[1:]:
            missing = pc.is_null(result)
            result = pc.if_else(missing, where(value, batch, missing), result)
        return result

    is_total = all(value.is_total for value in values)
    return folded(Value(of, evaluate, is_total, text), values, chooses=True)


def null_if_equal(left: Value, right: Value, text: str) -> Value:
    """`nullif(left, right)`."""
    missing = constant(pa.scalar(None, left.type), "NULL")
    return chosen([(compared("=", left, right, text), missing)], left, text)


def extreme(values: Sequence[Value], symbol: str, text: str) -> Value:
    """`greatest(...)` and `least(...)`: nulls are skipped, NaN is the largest number."""
    values = _alike(values, text)
    of = values[0].type
    if all(value.is_null for value in values):
        return constant(pa.scalar(None, of), text)
    compare = _comparison(symbol, of)

    def fold(*columns: Column) -> Column:
        result = columns[0]
        for column in columns[1:]:
            better = pc.or_(pc.is_null(result), is_true(compare(column, result)))
            result = pc.if_else(pc.and_(better, pc.is_valid(column)), column, result)
        return result

    return derived_from_all(of, text, fold, *values)
