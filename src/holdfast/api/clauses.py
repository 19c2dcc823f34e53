"""The texts that an application writes for columns and aggregates, taken apart and checked."""

from __future__ import annotations

import re

import pyarrow as pa

from holdfast.api.expressions import compile_expression
from holdfast.api.steps import Aggregate, JoinField
from holdfast.core.model.column_names import unquoted
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.shell.storage.paths import checked_name

_AGGREGATE = re.compile(r"^\s*(\w+)\s*\((.*)\)\s*(?:\s[aA][sS]\s+`?(\w+)`?)?\s*$", re.DOTALL)
AGGREGATE_FUNCTIONS = ("count", "sum", "min", "max", "avg")


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


def require_timestamp(column: str, schema: pa.Schema) -> None:
    """Raise `DataflowError` unless there is such a column, of timestamps."""
    if not pa.types.is_timestamp(known_column(column, schema).type):
        raise DataflowError(f"time column {column!r} is {schema.field(column).type}, no timestamp")


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
    """The aggregate of `function(expression) [AS name]`.

    Raises:
        DataflowError: It is none.
        UnsupportedError: There is no such function, or it is of distinct values.
    """
    match = _AGGREGATE.match(text)
    if match is None:
        raise DataflowError(f"{text!r} is no aggregate; write for example 'sum(price) AS total'")
    function, argument, name = match[1].lower(), match[2].strip(), match[3]
    if argument.lower().startswith("distinct"):
        raise UnsupportedError(
            f"{text!r}: distinct aggregates keep every value; aggregate twice instead, "
            "first by the value, then count the groups"
        )
    if function == "mean":
        function = "avg"
    if function not in AGGREGATE_FUNCTIONS:
        raise UnsupportedError(
            f"aggregate {function!r}; supported are {', '.join(AGGREGATE_FUNCTIONS)}"
        )
    is_star = argument == "*"
    if is_star and function != "count":
        raise DataflowError(f"{text!r}: only count takes *")
    expression = None if is_star else compile_expression(argument, schema)
    sql = f"{function}({argument})"
    return Aggregate(function, expression, name or sql, sql)


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
