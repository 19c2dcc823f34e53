"""Spark's types and how they meet: common types and the types of decimal results. [Spark ANSI]"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from holdfast.api.expressions.parser import TypeName
from holdfast.api.expressions.values import Value
from holdfast.core.model.nested_types import canonical, holds, is_nested, of_stream
from holdfast.errors import DataflowError, UnsupportedError

CARRIED = (
    "numbers, decimals, strings, bytes, booleans, dates, timestamps, and arrays, maps and structs "
    "of these"
)
"""What streams carry, for messages."""
TIMESTAMP = pa.timestamp("us", tz="UTC")
TIMESTAMP_NTZ = pa.timestamp("us")
MAX_PRECISION = 38
_MIN_SCALE = 6
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_NAMES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bool": "BOOLEAN",
    "date32[day]": "DATE",
    "null": "VOID",
    "duration[us]": "INTERVAL",
    "binary": "BINARY",
    "timestamp[us]": "TIMESTAMP_NTZ",
    "timestamp[us, tz=UTC]": "TIMESTAMP",
}
_TYPES = {
    **dict.fromkeys(("TINYINT", "BYTE"), pa.int8()),
    **dict.fromkeys(("SMALLINT", "SHORT"), pa.int16()),
    **dict.fromkeys(("INT", "INTEGER"), pa.int32()),
    **dict.fromkeys(("BIGINT", "LONG"), pa.int64()),
    **dict.fromkeys(("FLOAT", "REAL"), pa.float32()),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_LTZ"), TIMESTAMP),
    "TIMESTAMP_NTZ": TIMESTAMP_NTZ,
    "BINARY": pa.binary(),
}
_NESTED = {"ARRAY": 1, "MAP": 2, "STRUCT": 0}
"""How many types stand in the brackets; of a STRUCT as many as it has fields."""


def named(name: TypeName, text: str) -> pa.DataType:
    """The type of this name. Raises `UnsupportedError`, and `DataflowError` for odd decimals."""
    if name.name in ("DECIMAL", "DEC", "NUMERIC") and len(name.numbers) <= 2:
        precision, scale = (*name.numbers, 0)[:2] if name.numbers else (10, 0)
        if not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
            raise DataflowError(f"{text}: DECIMAL({precision},{scale}) is no type")
        return pa.decimal128(precision, scale)
    if name.name in _NESTED:
        return _nested(name, text)
    if name.name not in _TYPES or name.numbers:
        raise UnsupportedError(f"{text}: type {name.name} is not supported")
    return _TYPES[name.name]


def _nested(name: TypeName, text: str) -> pa.DataType:
    parts = [(field, named(of, text)) for field, of in name.parts]
    if len(parts) != _NESTED[name.name] and name.name != "STRUCT":
        raise DataflowError(f"{text}: {name.name} has {_NESTED[name.name]} types in its brackets")
    match name.name:
        case "ARRAY":
            return pa.list_(parts[0][1])
        case "MAP":
            return pa.map_(parts[0][1], parts[1][1])
        case _:
            return struct_of(parts, text)


def struct_of(fields: Sequence[tuple[str, pa.DataType]], text: str) -> pa.DataType:
    """A STRUCT. Raises `UnsupportedError` for two fields of one name, which Arrow cannot tell."""
    if len({name for name, _ in fields}) < len(fields):
        raise UnsupportedError(f"{text}: two fields have the same name")
    return pa.struct(list(fields))


def name_of(of: pa.DataType, *, spelt: Callable[[str], str] = str.upper) -> str:
    """The type as Spark writes it; `spelt`: its words, not the names of fields."""

    def inner(each: pa.DataType) -> str:
        return name_of(each, spelt=spelt)

    if pa.types.is_decimal(of):
        return spelt(f"DECIMAL({of.precision},{of.scale})")
    if pa.types.is_list(of):
        return f"{spelt('ARRAY')}<{inner(of.value_type)}>"
    if pa.types.is_map(of):
        return f"{spelt('MAP')}<{inner(of.key_type)},{inner(of.item_type)}>"
    if pa.types.is_struct(of):
        return f"{spelt('STRUCT')}<{','.join(f'{f.name}:{inner(f.type)}' for f in of)}>"
    return spelt(_NAMES.get(str(of), str(of)))


def is_carried(of: pa.DataType) -> bool:
    """Whether streams and state can carry the type; see `canonical`."""
    if is_nested(of):
        names = [of.field(n).name.lower() for n in range(of.num_fields)]
        is_clear = len(set(names)) == len(names) > 0
        parts = [of.field(n).type for n in range(of.num_fields)]
        if pa.types.is_map(of):
            parts = [of.key_type, of.item_type]
        return is_clear and canonical(of) == of and all(map(is_carried, parts))
    is_plain = pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_boolean(of)
    is_text = pa.types.is_string(of) or pa.types.is_binary(of)
    is_text = is_text or pa.types.is_decimal(of) or pa.types.is_date(of)
    return bool(is_plain or is_text or (pa.types.is_timestamp(of) and (of.tz or of.unit == "us")))


def carried_schema(schema: pa.Schema) -> pa.Schema:
    """A schema whose arrays, maps and structs are as streams have them."""
    return pa.schema([f.with_type(of_stream(f.type)) for f in schema])


def holds_interval(of: pa.DataType) -> bool:
    """Whether it is an interval, or holds one."""
    return holds(of, pa.types.is_duration)


def is_number(of: pa.DataType) -> bool:
    """Whether arithmetic is defined for it."""
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of))


def is_time(of: pa.DataType) -> bool:
    """A date or timestamp."""
    return bool(pa.types.is_timestamp(of) or pa.types.is_date(of))


def as_decimal(of: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of an integer type."""
    return of if pa.types.is_decimal(of) else pa.decimal128(_INTEGER_DIGITS[of.bit_width], 0)


def decimal_of(value: Value) -> pa.DataType:
    """The decimal type as which a number meets a decimal: a literal's has just its digits."""
    if value.is_literal and value.constant is not None and pa.types.is_integer(value.type):
        return pa.decimal128(len(str(abs(value.constant.as_py()))), 0)
    return as_decimal(value.type)


def bounded_decimal(precision: int, scale: int) -> pa.DataType:
    """At most 38 digits: the scale gives way, but not below six digits."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    digits = precision - scale
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - digits, min(scale, _MIN_SCALE)))


def common_type(values: Sequence[Value], text: str) -> pa.DataType:
    """The type that all values are cast to before they are compared or chosen between.

    Raises:
        DataflowError: Spark has none either.
        UnsupportedError: Spark has one that depends on the order of the values.
    """
    of = [value.type for value in values]
    strings = [each for each in of if pa.types.is_string(each)]
    others = [each for each in of if not pa.types.is_string(each) and not pa.types.is_null(each)]
    result = others[0] if others else of[0]
    for each in others[1:]:
        result = _wider(result, each, text)
    if strings and others:
        # Text takes the other's type, but a whole number's is BIGINT and a fraction's DOUBLE.
        if len(set(others)) > 1:
            raise UnsupportedError(f"{text}: STRING with several other types; cast it")
        if pa.types.is_integer(result):
            return pa.int64()
        return pa.float64() if is_number(result) else _with_text(result, text)
    return pa.string() if strings else result


def _with_text(of: pa.DataType, text: str) -> pa.DataType:
    if pa.types.is_duration(of):
        raise DataflowError(f"{text}: STRING and INTERVAL have no common type")
    return of


def _wider(left: pa.DataType, right: pa.DataType, text: str) -> pa.DataType:
    if left == right:
        return left
    pair = (left, right)
    if all(pa.types.is_integer(t) for t in pair):
        return max(pair, key=lambda t: t.bit_width)
    if all(is_number(t) for t in pair):
        return _wider_number(left, right)
    if all(is_time(t) for t in pair):
        return TIMESTAMP if TIMESTAMP in pair else TIMESTAMP_NTZ
    if all(pa.types.is_list(t) for t in pair):
        return pa.list_(_meeting(left.value_type, right.value_type, text))
    if all(pa.types.is_map(t) for t in pair):
        key = _meeting(left.key_type, right.key_type, text)
        return pa.map_(key, _meeting(left.item_type, right.item_type, text))
    if all(pa.types.is_struct(t) for t in pair) and _names(left) == _names(right):
        fields = zip(left, right, strict=True)
        return struct_of([(a.name, _meeting(a.type, b.type, text)) for a, b in fields], text)
    raise DataflowError(
        f"{text}: {name_of(left)} and {name_of(right)} have no common type; cast one of them"
    )


def _names(of: pa.DataType) -> list[str]:
    return [field.name for field in of]


def _meeting(left: pa.DataType, right: pa.DataType, text: str) -> pa.DataType:
    """The common type of what two nested types hold."""
    if pa.types.is_null(left) or pa.types.is_null(right):
        return left if pa.types.is_null(right) else right
    return _wider(left, right, text)


def _wider_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        return pa.float64()
    a, b = as_decimal(left), as_decimal(right)
    scale = max(a.scale, b.scale)
    digits = max(a.precision - a.scale, b.precision - b.scale)
    if digits + scale > MAX_PRECISION:
        # Digits before the point are kept, those behind it give way.
        return pa.decimal128(MAX_PRECISION, max(0, MAX_PRECISION - digits))
    return pa.decimal128(digits + scale, scale)
