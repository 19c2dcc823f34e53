"""Structs: made of values, and taken apart into their fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from holdfast.api.expressions.nested import arrays_from, parts_of, per_array
from holdfast.api.expressions.signatures import ANY, Function, fixed, string
from holdfast.api.expressions.types import name_of, struct_of
from holdfast.api.expressions.values import Value, derived, derived_from_all
from holdfast.errors import DataflowError, UnsupportedError


def _struct(names: Sequence[str], values: Sequence[Value], text: str) -> Value:
    """Never null itself."""
    for value in values:
        if pa.types.is_null(value.type):
            raise UnsupportedError(f"{text}: {value.text} has no type; cast it")
    of = struct_of([(n, v.type) for n, v in zip(names, values, strict=True)], text)

    def kernel(*columns: pa.Array) -> pa.Array:
        return pa.StructArray.from_arrays(columns, fields=list(of))

    return derived_from_all(of, text, per_array(kernel), *values)


def _of_values(args: Sequence[Value], text: str) -> Value:
    """A column's field has its name, others are col1, col2 and so on."""
    names = [arg.text if arg.is_column else f"col{n}" for n, arg in enumerate(args, 1)]
    return _struct(names, args, text)


def _of_names_and_values(args: Sequence[Value], text: str) -> Value:
    if len(args) % 2:
        raise DataflowError(f"{text}: a value is missing behind the last name")
    names = [fixed(string(arg, text), text) for arg in args[::2]]
    if None in names:
        raise DataflowError(f"{text}: a field's name is NULL")
    return _struct(names, args[1::2], text)


def field_of(value: Value, name: str, text: str) -> Value:
    """`value.name`; of an array of structs an array of the fields.

    Raises:
        DataflowError: There is no such field, or several, or the value has none.
    """
    of = value.type
    is_array = pa.types.is_list(of)
    struct = of.value_type if is_array else of
    if not pa.types.is_struct(struct):
        raise DataflowError(f"{text}: {value.text} is {name_of(of)}, which has no fields")
    found = [field for field in struct if field.name == name]
    found = found or [field for field in struct if field.name.lower() == name.lower()]
    if len(found) != 1:
        names = ", ".join(field.name for field in struct)
        problem = "has no field" if not found else "has several fields"
        raise DataflowError(f"{text}: {value.text} {problem} {name!r}; there are {names}")
    index = struct.get_field_index(found[0].name)

    def one(column: pa.Array) -> pa.Array:
        return column.flatten()[index]

    def each(column: pa.Array) -> pa.Array:
        parts = parts_of(column)
        return arrays_from(parts.lengths, parts.valid, one(parts.values))

    result = pa.list_(found[0].type) if is_array else found[0].type
    made = derived(result, text, per_array(each if is_array else one), value)
    return replace(made, text=found[0].name, is_column=True)


FUNCTIONS: dict[str, Function] = {
    "named_struct": Function(_of_names_and_values, 2, ANY),
    "struct": Function(_of_values, 1, ANY),
}
