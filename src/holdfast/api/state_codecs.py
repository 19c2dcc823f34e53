"""Values of states as JSON, by their schemas; one that a schema has no place for is an error."""

from __future__ import annotations

import base64
import datetime as dt
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.api.functions import FunctionError
from holdfast.errors import UnsupportedError

_EPOCH: Final = dt.datetime(1970, 1, 1)
_DAY: Final = dt.date(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
Turned = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class StateCodec:
    """Rows of a schema, as tuples, and what is stored of them."""

    name: str
    columns: tuple[tuple[str, bool, Turned, Turned], ...]

    def dump(self, row: Any) -> list[Any]:
        """What is stored. Raises `FunctionError` if the row is not of the schema."""
        if not isinstance(row, tuple | list):
            raise FunctionError(f"state {self.name!r}: {row!r} is no tuple")
        if len(row) != len(self.columns):
            raise FunctionError(
                f"state {self.name!r}: {row!r} has {len(row)} values; there are "
                f"{', '.join(column for column, *_ in self.columns)}"
            )
        return [
            self._dumped(value, *column) for value, column in zip(row, self.columns, strict=True)
        ]

    def load(self, stored: list[Any]) -> tuple[Any, ...]:
        """The row again; columns that it did not have then are null."""
        more = len(self.columns) - len(stored)
        values = stored + [None] * more if more else stored
        return tuple(
            None if value is None else load(value)
            for value, (_, _, _, load) in zip(values, self.columns, strict=True)
        )

    def _dumped(
        self, value: Any, column: str, is_nullable: bool, dump: Turned, _load: Turned
    ) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None:
            if not is_nullable:
                raise FunctionError(f"state {self.name!r}: null for {column}, which is NOT NULL")
            return None
        try:
            return dump(value)
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise FunctionError(f"state {self.name!r}: {value!r} for {column}: {error}") from error


def state_codec(name: str, schema: pa.Schema, *, is_key: bool = False) -> StateCodec:
    """How rows of a schema are stored.

    Args:
        name: Of the state.
        schema: Its columns.
        is_key: Whether rows are keys of a map.

    Raises:
        UnsupportedError: Of a column's type nothing can be kept.
    """
    columns = []
    for field in schema:
        if is_key and pa.types.is_nested(field.type):
            raise UnsupportedError(f"state {name!r}: a key has a column {field.name} {field.type}")
        try:
            columns.append((field.name, field.nullable, *_turns(field.type)))
        except KeyError:
            raise UnsupportedError(f"state {name!r}: column {field.name} is {field.type}") from None
    return StateCodec(name, tuple(columns))


def _turns(of: pa.DataType) -> tuple[Turned, Turned]:
    """How a value of a type is stored, and read again. Raises `KeyError`: it is not."""
    t = pa.types
    if t.is_integer(of):
        return _whole(of.bit_width), int
    if t.is_float64(of):
        return _checked(float), float
    if t.is_float32(of):
        return _single, float
    if t.is_boolean(of):
        return _checked(bool), bool
    if t.is_string(of):
        return _checked(str), str
    if t.is_binary(of):
        return _binary, base64.b64decode
    if t.is_date32(of):
        return _day, lambda days: _DAY + dt.timedelta(days=days)
    if t.is_timestamp(of):
        return _moment, lambda us: _EPOCH + us * _MICROSECOND
    if t.is_decimal(of):
        return _decimal(of.precision, of.scale), Decimal
    if t.is_list(of):
        dump, load = map(_or_null, _turns(of.value_type))
        return lambda value: [dump(each) for each in value], lambda s: [load(each) for each in s]
    raise KeyError(of)


def _or_null(turn: Turned) -> Turned:
    return lambda value: None if value is None else turn(value)


def _checked(kind: type) -> Turned:
    def same(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"it is {type(value).__name__}, not {kind.__name__}")
        return value

    return same


def _whole(bits: int) -> Turned:
    most = 1 << (bits - 1)

    def same(value: Any) -> Any:
        if type(value) is not int:
            raise TypeError(f"it is {type(value).__name__}, not int")
        if not -most <= value < most:
            raise ValueError(f"it does not fit in {bits} bits")
        return value

    return same


def _single(value: Any) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", _checked(float)(value)))[0]
    return rounded


def _binary(value: Any) -> str:
    return base64.b64encode(bytes(value) if isinstance(value, bytearray) else value).decode()


def _day(value: Any) -> int:
    if isinstance(value, dt.datetime) or not isinstance(value, dt.date):
        raise TypeError(f"it is {type(value).__name__}, not date")
    return (value - _DAY).days


def _moment(value: Any) -> int:
    """Without a time zone it is UTC's."""
    if not isinstance(value, dt.datetime):
        raise TypeError(f"it is {type(value).__name__}, not datetime")
    if value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return int((value - _EPOCH) // _MICROSECOND)


def _decimal(precision: int, scale: int) -> Turned:
    def stored(value: Any) -> str:
        exact = _checked(Decimal)(value).quantize(Decimal(1).scaleb(-scale))
        if exact != value or len(exact.as_tuple().digits) > precision:
            raise ValueError(f"it is no DECIMAL({precision},{scale})")
        return str(exact)

    return stored
