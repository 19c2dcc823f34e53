"""JSON texts: parts of them by a path, and values of a schema from and to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from holdfast.api.expressions import json_texts
from holdfast.api.expressions.json_texts import NoJson, Number, Object, Odd
from holdfast.api.expressions.nested import per_array
from holdfast.api.expressions.parser import Cast, parse
from holdfast.api.expressions.signatures import Function, fixed, rows, string
from holdfast.api.expressions.time_formats import writer
from holdfast.api.expressions.types import name_of, named
from holdfast.api.expressions.values import Value, constant, derived, per_row
from holdfast.errors import DataflowError, UnsupportedError

_TEXT = pa.string()
_STEP = re.compile(r"\.([^.\[\]*?()'\"]+)|\['([^'?*]+)'\]|\[(\d{1,9})\]")
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"
"""Spark's pattern of times in JSON; the last letters are the zone."""


def _text(value: Value, text: str) -> Value:
    """A STRING; nothing else is cast to one here."""
    if not (pa.types.is_string(value.type) or pa.types.is_null(value.type)):
        raise DataflowError(f"{text}: {value.text} is {name_of(value.type)}, not STRING")
    return string(value, text)


_NOTHING = object()


def _read(text: str) -> Any:
    """The value in a text; `_NOTHING`: it is no JSON."""
    try:
        return json_texts.value_of(text, takes_controls=True)
    except NoJson:
        return _NOTHING


# -- parts --------------------------------------------------------------------------------------


def _path(written: str, text: str) -> list[str | int] | None:
    """Names and places; None: it is no path."""
    if not written.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(written):
        match = _STEP.match(written, at)
        if match is None:
            raise UnsupportedError(f"{text}: the path {written!r}; steps are .name, ['name'], [0]")
        name = match[1] or match[2]
        steps.append(name if name is not None else int(match[3]))
        at = match.end()
    return steps


def _at(value: Any, steps: Sequence[str | int]) -> Any:
    """What a path leads to, `_NOTHING` if nowhere; of equal names the first that leads on."""
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        is_there = isinstance(value, list) and step < len(value)
        return _at(value[step], rest) if is_there else _NOTHING
    if isinstance(value, Object):
        for name, inner in value.fields:
            if name == step and inner is not None:
                found = _at(inner, rest)
                if found is not _NOTHING:
                    return found
    return _NOTHING


def _get_json_object(args: Sequence[Value], text: str) -> Value:
    written = fixed(_text(args[1], text), text)
    steps = None if written is None else _path(written, text)
    if steps is None:
        return constant(pa.scalar(None, _TEXT), text)

    def one(given: str) -> str | None:
        found = _at(_read(given), steps)
        if found is _NOTHING:
            return None
        if isinstance(found, str):
            return found
        try:
            return json_texts.escaped(json_texts.written(found))
        except NoJson:  # A number that is too large.
            return None

    return rows(_TEXT, one, _text)(args[:1], text)


def _length(text: str) -> int | None:
    found = _read(text)
    return len(found) if isinstance(found, list) else None


def _names(text: str) -> list[str] | None:
    found = _read(text)
    return [name for name, _ in found.fields] if isinstance(found, Object) else None


# -- written ------------------------------------------------------------------------------------

Write = Callable[[Any], str]


def _writer(of: pa.DataType, text: str) -> Write:
    """From a value as `_plain` gives it to JSON. Raises `UnsupportedError` by the type's name."""
    if pa.types.is_struct(of):
        fields = [(json_texts.quoted(f.name), f.name, _writer(f.type, text)) for f in of]
        return lambda value: (
            "{"
            + ",".join(
                f"{name}:{write(value[key])}"
                for name, key, write in fields
                if value[key] is not None
            )
            + "}"
        )
    if pa.types.is_list(of):
        write = _or_null(_writer(of.value_type, text))
        return lambda value: "[" + ",".join(map(write, value)) + "]"
    if pa.types.is_map(of):
        if not (pa.types.is_string(of.key_type) or pa.types.is_integer(of.key_type)):
            raise UnsupportedError(f"{text}: keys of {name_of(of.key_type)} as JSON")
        write = _or_null(_writer(of.item_type, text))
        return lambda value: (
            "{"
            + ",".join(f"{json_texts.quoted(str(key))}:{write(item)}" for key, item in value)
            + "}"
        )
    if pa.types.is_string(of):
        return json_texts.quoted
    if pa.types.is_boolean(of):
        return lambda value: str(value).lower()
    if pa.types.is_integer(of) or pa.types.is_decimal(of):
        return str
    if pa.types.is_timestamp(of) or pa.types.is_date(of):
        return _time_writer(of, text)
    raise UnsupportedError(f"{text}: {name_of(of)} as JSON; cast it")


def _or_null(write: Write) -> Write:
    return lambda value: "null" if value is None else write(value)


def _time_writer(of: pa.DataType, text: str) -> Write:
    if pa.types.is_date(of):
        write_day = writer("yyyy-MM-dd", text)
        return lambda days: json_texts.quoted(write_day(days * 86_400_000_000))
    write = writer(_TIME, text)
    return lambda micros: json_texts.quoted(write(micros))


def _numbered(of: pa.DataType) -> pa.DataType:
    """The type with numbers in place of times, which Python's are too narrow for."""
    if pa.types.is_date(of):
        return pa.int32()
    if pa.types.is_timestamp(of):
        return pa.int64()
    if pa.types.is_struct(of):
        return pa.struct([(f.name, _numbered(f.type)) for f in of])
    if pa.types.is_list(of):
        return pa.list_(_numbered(of.value_type))
    if pa.types.is_map(of):
        return pa.map_(_numbered(of.key_type), _numbered(of.item_type))
    return of


def _to_json(args: Sequence[Value], text: str) -> Value:
    (value,) = args
    of = value.type
    if not (pa.types.is_struct(of) or pa.types.is_list(of) or pa.types.is_map(of)):
        raise DataflowError(f"{text}: {value.text} is {name_of(of)}, no ARRAY, MAP or STRUCT")
    write, plain = _or_none(_writer(of, text)), _numbered(of)

    def kernel(column: pa.Array) -> pa.Array:
        return pa.array([write(each) for each in column.cast(plain).to_pylist()], _TEXT)

    return derived(_TEXT, text, per_array(kernel), value)


def _or_none(write: Write) -> Callable[[Any], str | None]:
    return lambda value: None if value is None else write(value)


# -- read ---------------------------------------------------------------------------------------

Read = Callable[[Any], Any]
"""From a value of JSON to one for Arrow; `_NOTHING`: it is of another kind."""


def _reader(of: pa.DataType, text: str) -> Read:
    """Raises `UnsupportedError` by the type's name."""
    if pa.types.is_struct(of):
        fields = {f.name: _reader(f.type, text) for f in of}

        def read_struct(value: Any) -> Any:
            if not isinstance(value, Object):
                return _null_or_nothing(value)
            found: dict[str, Any] = dict.fromkeys(fields)
            for name, inner in value.fields:
                if name in fields:
                    read_field = fields[name](inner)
                    found[name] = None if read_field is _NOTHING else read_field
            return found

        return read_struct
    if pa.types.is_list(of):
        return _list_reader(_reader(of.value_type, text))
    if pa.types.is_string(of):
        return lambda value: value if isinstance(value, str) else _as_text(value)
    if pa.types.is_boolean(of):
        return lambda value: value if isinstance(value, bool) else _null_or_nothing(value)
    if pa.types.is_integer(of) and of.bit_width >= 32:
        return lambda value: _whole(value, of.bit_width)
    if of == pa.float64():
        return _real
    raise UnsupportedError(f"{text}: {name_of(of)} from JSON; read a STRING and cast it")


def _list_reader(read: Read) -> Read:
    """One element of another kind spoils the array."""

    def read_list(value: Any) -> Any:
        if not isinstance(value, list):
            return _null_or_nothing(value)
        found = [read(each) for each in value]
        return _NOTHING if any(each is _NOTHING for each in found) else found

    return read_list


def _null_or_nothing(value: Any) -> Any:
    return None if value is None else _NOTHING


def _as_text(value: Any) -> str | None:
    return None if value is None else json_texts.written(value)


def _whole(value: Any, bits: int) -> Any:
    if not isinstance(value, Number) or not value.is_whole:
        return _null_or_nothing(value)
    number = int(value.text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else _NOTHING


def _real(value: Any) -> Any:
    if isinstance(value, str):
        words = {"NaN": "nan", "+INF": "inf", "-INF": "-inf", "Infinity": "inf"}
        words |= {"+Infinity": "inf", "-Infinity": "-inf"}
        return float(words[value]) if value in words else _NOTHING
    return float(value.text) if isinstance(value, Number | Odd) else _null_or_nothing(value)


def _schema(written: str, text: str) -> pa.DataType:
    """A STRUCT by its fields, or by its type."""
    is_type = written.lstrip().upper().startswith("STRUCT<")
    cast, _ = parse(f"CAST(NULL AS {written if is_type else f'STRUCT<{written}>'})")
    if not isinstance(cast, Cast) or cast.to.name != "STRUCT":
        raise DataflowError(f"{text}: {written!r} is no schema")
    of = named(cast.to, text)
    for field in of:
        if field.name.lower() == "_corrupt_record":
            raise UnsupportedError(f"{text}: a field for corrupt records")
    return of


def _from_json(args: Sequence[Value], text: str) -> Value:
    written = fixed(_text(args[1], text), text)
    if written is None:
        raise DataflowError(f"{text}: the schema is NULL")
    of = _schema(written, text)
    read = _reader(of, text)
    nothing = dict.fromkeys(field.name for field in of)

    def one(given: str) -> Any:
        if not given.strip(" \t\r\n"):
            return None
        try:
            found = json_texts.value_of(given, takes_controls=False)
        except NoJson:
            return nothing
        return read(found) if isinstance(found, Object) else nothing

    return derived(of, text, per_row(one, of), _text(args[0], text))


FUNCTIONS: dict[str, Function] = {
    "from_json": Function(_from_json, 2, 2),
    "get_json_object": Function(_get_json_object, 2, 2),
    "json_array_length": Function(rows(pa.int32(), _length, _text), 1, 1),
    "json_object_keys": Function(rows(pa.list_(_TEXT), _names, _text), 1, 1),
    "to_json": Function(_to_json, 1, 1),
}
