"""The functions, each with its arity and what it means; what is not here is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from holdfast.api.expressions import logic, number_functions, text_functions, time_functions
from holdfast.api.expressions.casts import cast
from holdfast.api.expressions.parser import TypeName
from holdfast.api.expressions.signatures import ANY, Function
from holdfast.api.expressions.types import named
from holdfast.api.expressions.values import Value
from holdfast.errors import DataflowError, UnsupportedError


def known(name: str) -> Function:
    """The function of this name. Raises `UnsupportedError` for an unknown one."""
    function = FUNCTIONS.get(name.lower())
    if function is None:
        raise UnsupportedError(
            f"function {name.lower()} is not supported; there are {', '.join(sorted(FUNCTIONS))}"
        )
    return function


def call(name: str, arguments: Sequence[Value], text: str) -> Value:
    """A function call. Raises `DataflowError` when the arguments do not fit."""
    function = known(name)
    if not function.low <= len(arguments) <= function.high:
        count = (
            f"{function.low} to {function.high}" if function.low < function.high else function.low
        )
        raise DataflowError(f"{text}: {name.lower()} takes {count} arguments, not {len(arguments)}")
    return function.build(arguments, text)


def _if(args: Sequence[Value], text: str) -> Value:
    return logic.chosen([(args[0], args[1])], args[2], text)


def _nvl2(args: Sequence[Value], text: str) -> Value:
    condition = logic.inverted(logic.is_null(args[0], text), text)
    return logic.chosen([(condition, args[1])], args[2], text)


def _coalesce(args: Sequence[Value], text: str) -> Value:
    return logic.first_valid(args, text)


def _is_not_null(args: Sequence[Value], text: str) -> Value:
    return logic.inverted(logic.is_null(args[0], text), text)


def _equal_null(args: Sequence[Value], text: str) -> Value:
    return logic.null_safe_equal(args[0], args[1], text)


def _converted(to: pa.DataType) -> Function:
    """A type's name as a function casts to it."""
    return Function(lambda args, text: cast(replace(args[0], is_literal=False), to, text), 1, 1)


_TYPES = {
    name: _converted(named(TypeName(name.upper(), ()), name))
    for name in (
        *("bigint", "boolean", "date", "decimal", "double", "float", "int", "smallint", "string"),
        *("timestamp", "tinyint"),
    )
}

_CHOICES: dict[str, Function] = {
    "coalesce": Function(_coalesce, 1, ANY),
    "equal_null": Function(_equal_null, 2, 2),
    "greatest": Function(lambda args, text: logic.extreme(args, ">", text), 2, ANY),
    "if": Function(_if, 3, 3),
    "ifnull": Function(_coalesce, 2, 2),
    "isnotnull": Function(_is_not_null, 1, 1),
    "isnull": Function(lambda args, text: logic.is_null(args[0], text), 1, 1),
    "least": Function(lambda args, text: logic.extreme(args, "<", text), 2, ANY),
    "nullif": Function(lambda args, text: logic.null_if_equal(args[0], args[1], text), 2, 2),
    "nvl": Function(_coalesce, 2, 2),
    "nvl2": Function(_nvl2, 3, 3),
}

FUNCTIONS: dict[str, Function] = {
    **_CHOICES,
    **_TYPES,
    **text_functions.FUNCTIONS,
    **number_functions.FUNCTIONS,
    **time_functions.FUNCTIONS,
}
