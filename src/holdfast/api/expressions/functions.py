"""The functions, each with its arity and what it means; what is not here is refused."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from holdfast.api.expressions import (
    array_functions,
    bit_functions,
    byte_functions,
    hash_functions,
    json_functions,
    logic,
    map_functions,
    more_numbers,
    more_texts,
    more_times,
    number_formats,
    number_functions,
    odd_functions,
    real_functions,
    regexp_functions,
    rounding,
    struct_functions,
    text_functions,
    time_functions,
    time_texts,
    url_functions,
)
from holdfast.api.expressions.casts import cast
from holdfast.api.expressions.parser import TypeName
from holdfast.api.expressions.signatures import ANY, Build, Function
from holdfast.api.expressions.types import named
from holdfast.api.expressions.values import Value
from holdfast.errors import DataflowError, UnsupportedError


def known(name: str) -> Function:
    """The function of this name. Raises `UnsupportedError` for an unknown one."""
    function = FUNCTIONS.get(name.lower())
    if function is None:
        near = difflib.get_close_matches(name.lower(), FUNCTIONS, n=4)
        hint = f"; similar ones are {', '.join(near)}" if near else ""
        raise UnsupportedError(
            f"function {name.lower()} is not supported{hint}; docs/expressions.md has the list"
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


def _element(of_array: Build) -> Build:
    """An element of an array by its place, or a value of a map by its key."""

    def build(args: Sequence[Value], text: str) -> Value:
        is_map = pa.types.is_map(args[0].type)
        return map_functions.value_at(args, text) if is_map else of_array(args, text)

    return build


def _size(args: Sequence[Value], text: str) -> Value:
    is_map = pa.types.is_map(args[0].type)
    return map_functions.size(args, text) if is_map else array_functions.size(args, text)


def _concat(args: Sequence[Value], text: str) -> Value:
    if any(pa.types.is_list(arg.type) for arg in args):
        return array_functions.concatenated(args, text)
    return text_functions.concatenated(args, text)


def _reverse(args: Sequence[Value], text: str) -> Value:
    if pa.types.is_list(args[0].type):
        return array_functions.REVERSE(args, text)
    return text_functions.REVERSE(args, text)


def ilike(args: Sequence[Value], text: str) -> Value:
    """`value ILIKE pattern ESCAPE escape`."""
    lower = text_functions.FUNCTIONS["lower"].build
    return regexp_functions.ilike(args, text, lambda each: lower([each], text))


_BY_TYPE = {
    "cardinality": Function(_size, 1, 1),
    "concat": Function(_concat, 1, ANY),
    "element_at": Function(_element(array_functions.ELEMENT_AT), 2, 2),
    "get []": Function(_element(array_functions.SUBSCRIPT), 2, 2),
    "reverse": Function(_reverse, 1, 1),
    "size": Function(_size, 1, 1),
    "try_element_at": Function(_element(array_functions.TRY_ELEMENT_AT), 2, 2),
}
"""What means one thing for arrays, another one for maps or texts."""

FUNCTIONS: dict[str, Function] = {
    **_CHOICES,
    **_TYPES,
    **array_functions.FUNCTIONS,
    **map_functions.FUNCTIONS,
    **struct_functions.FUNCTIONS,
    **text_functions.FUNCTIONS,
    **number_functions.FUNCTIONS,
    **time_functions.FUNCTIONS,
    **bit_functions.FUNCTIONS,
    **more_numbers.FUNCTIONS,
    **more_texts.FUNCTIONS,
    **more_times.FUNCTIONS,
    **byte_functions.FUNCTIONS,
    **hash_functions.FUNCTIONS,
    **json_functions.FUNCTIONS,
    **number_formats.FUNCTIONS,
    **odd_functions.FUNCTIONS,
    **real_functions.FUNCTIONS,
    **regexp_functions.FUNCTIONS,
    **rounding.FUNCTIONS,
    **time_texts.FUNCTIONS,
    **url_functions.FUNCTIONS,
    "decode": odd_functions.decoded(bit_functions.FUNCTIONS["decode"]),
    "ilike": Function(ilike, 2, 2),
    **_BY_TYPE,
}
