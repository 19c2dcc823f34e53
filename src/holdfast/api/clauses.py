"""The texts that an application writes for columns and aggregates, taken apart and checked."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pyarrow as pa

from holdfast.api.expressions import CompiledExpression, compile_expression
from holdfast.api.expressions import parser as tree
from holdfast.api.expressions.types import name_of
from holdfast.api.steps import Aggregate, JoinField
from holdfast.core.model.column_names import unquoted
from holdfast.core.model.nested_types import is_nested
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.shell.storage.paths import checked_name

_AGGREGATE = re.compile(r"^\s*(\w+)\s*\((.*)\)\s*(?:\s[aA][sS]\s+`?(\w+)`?)?\s*$", re.DOTALL)
_FILTERED = re.compile(r"\)\s*filter\s*\(\s*where\s", re.IGNORECASE)
_IGNORES_NULLS = re.compile(r",\s*true\s*$", re.IGNORECASE)
_OF_NULLS = ("first", "last")
_BY = ("min_by", "max_by")
_LISTS = ("collect_list", "collect_set")
_PERCENTILES = ("percentile", "approx_percentile")
_ACCURACY_MAX = 2**31 - 1
AGGREGATE_FUNCTIONS = (
    *("count", "sum", "min", "max", "avg", "bit_and", "bit_or", "bit_xor"),
    *("stddev_samp", "stddev_pop", "var_samp", "var_pop", *_BY, *_OF_NULLS),
    *_LISTS,
    *_PERCENTILES,
)
_OTHER_NAMES = {
    "stddev": "stddev_samp",
    "std": "stddev_samp",
    "variance": "var_samp",
    "first_value": "first",
    "last_value": "last",
    "any_value": "first",
    "array_agg": "collect_list",
    "median": "percentile",
    "percentile_approx": "approx_percentile",
    "bool_and": "min",
    "every": "min",
    "bool_or": "max",
    "any": "max",
    "some": "max",
}
"""Aggregates that are others by another name; booleans are ordered, so that all are true if the
least one is."""
_OF_BOOLEANS = ("bool_and", "every", "bool_or", "any", "some")


def require_name(name: str) -> str:
    """The name. Raises `DataflowError` if files cannot be named by it."""
    try:
        return checked_name(name)
    except ValueError as error:
        raise DataflowError(str(error)) from None


def known_column(column: str, schema: pa.Schema) -> pa.Field:
    """The column. Raises `DataflowError` if there is none of this name."""
    if column not in schema.names:
        raise DataflowError(f"no column {column!r}; there are {', '.join(schema.names)}")
    return schema.field(column)


def require_key(column: str, schema: pa.Schema, what: str) -> None:
    """Raise `DataflowError` or `UnsupportedError` unless rows can be told apart by this column."""
    kind = known_column(column, schema).type
    if is_nested(kind):
        raise UnsupportedError(
            f"{what}({column!r}): it is {name_of(kind)}; keys are no arrays, maps and structs: "
            "select a part of it, or to_json(...) of it"
        )


def require_timestamp(column: str, schema: pa.Schema) -> None:
    """Raise `DataflowError` unless there is such a column, of moments."""
    kind = known_column(column, schema).type
    if not pa.types.is_timestamp(kind):
        raise DataflowError(f"time column {column!r} is {kind}, no timestamp")
    if kind.tz is None:
        raise DataflowError(
            f"time column {column!r} is TIMESTAMP_NTZ, no moment; cast it to TIMESTAMP before"
        )


def ddl(schema: pa.Schema) -> str:
    """Columns as text, for messages."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def parse_column(text: str, schema: pa.Schema) -> tuple[str, str]:
    """(column, result name) of `column [AS name]`.

    Raises:
        DataflowError: There is no such column.
    """
    source, _, name = text.partition(" AS ") if " AS " in text else text.partition(" as ")
    column = unquoted(source.strip())
    known_column(column, schema)
    return column, unquoted(name.strip()) or column


def parse_aggregate(text: str, schema: pa.Schema) -> Aggregate:
    """The aggregate of `function(expression) [FILTER (WHERE condition)] [AS name]`.

    Raises:
        DataflowError: It is none.
        UnsupportedError: There is no such function, or it is of distinct values.
    """
    match = _AGGREGATE.match(text)
    if match is None:
        raise DataflowError(f"{text!r} is no aggregate; write for example 'sum(price) AS total'")
    written, inside, name = match[1].lower(), match[2].strip(), match[3]
    written = "avg" if written == "mean" else written
    sql = f"{written}({inside})"
    argument, *conditions = _FILTERED.split(inside, maxsplit=1)
    argument = argument.strip()
    condition = conditions[0].strip() if conditions else None
    if argument.lower().startswith("distinct"):
        raise UnsupportedError(f"{text!r}: only aggregate(...) over plain windows counts distinct")
    if written == "count_if":
        both = argument if condition is None else f"({condition}) AND ({argument})"
        written, argument, condition = "count", "*", both
    function = _OTHER_NAMES.get(written, written)
    if function not in AGGREGATE_FUNCTIONS:
        raise UnsupportedError(
            f"aggregate {function!r}; supported are {', '.join(AGGREGATE_FUNCTIONS)}, "
            f"count_if, {', '.join(_OTHER_NAMES)}"
        )
    if argument == "*" and function != "count":
        raise DataflowError(f"{text!r}: only count takes *")
    if function in _OF_NULLS and _IGNORES_NULLS.search(argument):
        function, argument = f"{function}_valid", _IGNORES_NULLS.sub("", argument)
    percentages: tuple[float, ...] = ()
    if function in _PERCENTILES:
        if written == "median":
            argument = f"{argument}, 0.5"
        argument, percentages, is_plural = _percentages(text, function, argument)
        function = f"{function}s" if is_plural else function
    expression = _argument(text, function, argument, condition, schema)
    if written in _OF_BOOLEANS and not (expression and pa.types.is_boolean(expression.type)):
        raise DataflowError(f"{text!r}: {written} takes a condition")
    return Aggregate(function, expression, name or sql, sql, percentages)


def _percentages(text: str, function: str, arguments: str) -> tuple[str, tuple[float, ...], bool]:
    """What a percentile is of, its percentages, and whether they are an array."""
    call, _ = tree.parse(f"{function}({arguments})")
    given = call.arguments if isinstance(call, tree.Call) else ()
    if len(given) < 2:
        raise DataflowError(f"{text!r}: {function} takes a value, and a percentage from 0 to 1")
    is_exact = function == "percentile"
    if len(given) > 3 or (is_exact and len(given) > 2 and not _is_one(given[2])):
        raise UnsupportedError(f"{text!r}: of {function} there is no frequency; repeat the rows")
    if len(given) == 3 and not is_exact:
        accuracy = _constant(text, given[2])
        if not isinstance(accuracy, int) or not 0 < accuracy <= _ACCURACY_MAX:
            raise DataflowError(f"{text!r}: the accuracy {given[2].text} is no positive number")
    found = _constant(text, given[1])
    several = found if isinstance(found, list) else [found]
    is_known = [isinstance(each, int | float | Decimal) for each in several]
    if not several or not all(is_known) or not all(0 <= each <= 1 for each in several):
        raise DataflowError(f"{text!r}: {given[1].text} is no percentage from 0.0 to 1.0")
    return given[0].text, tuple(map(float, several)), isinstance(found, list)


def _is_one(part: tree.Tree) -> bool:
    """Whether it is 1, as Spark writes that each row counts once."""
    return isinstance(part, tree.Literal) and part.text.upper() in ("1", "1L")


def _constant(text: str, part: tree.Tree) -> Any:
    """The value of an expression that reads no column."""
    if any(tree.columns_of(part)):
        raise DataflowError(f"{text!r}: {part.text} must be known when the dataflow is built")
    compiled = compile_expression(part.text, pa.schema([]))
    one = pa.RecordBatch.from_struct_array(pa.array([{}], pa.struct([])))
    return compiled.evaluate(one)[0].as_py()


def _argument(
    text: str, function: str, argument: str, condition: str | None, schema: pa.Schema
) -> CompiledExpression | None:
    """What an aggregate computes for each row; null where the row does not count."""
    if function in _BY:
        value = compile_expression(f"struct({argument})", schema)
        if value.type.num_fields != 2:
            raise DataflowError(f"{text!r}: {function} takes a value, and what it goes by")
        if condition is not None:
            raise UnsupportedError(f"{text!r}: write {function}(x, CASE WHEN condition THEN y END)")
        return value
    if condition is None:
        return None if argument == "*" else compile_expression(argument, schema)
    if function in _OF_NULLS:
        raise UnsupportedError(f"{text!r}: nulls count for {function}; write {function}(x, true)")
    value_text = "1" if argument == "*" else argument
    return compile_expression(f"CASE WHEN {condition} THEN {value_text} END", schema)


def parse_join_field(text: str, left: pa.Schema, right: pa.Schema) -> JoinField:
    """(side, column, output name) of `side.column [AS name]`; side is `left` or `right`.

    Raises:
        DataflowError: It is not written like that, or there is no such column.
    """
    source, _, name = text.partition(" AS ") if " AS " in text else text.partition(" as ")
    side, _, column = source.strip().partition(".")
    if side not in ("left", "right") or not column:
        raise DataflowError(
            f"join select {text!r}: write 'left.column' or 'right.column', "
            "with AS name where wanted"
        )
    column = unquoted(column)
    known_column(column, left if side == "left" else right)
    return "left" if side == "left" else "right", column, unquoted(name.strip()) or column
