"""Frozen dataclasses as JSON lists and back, by the types that their fields declare.

A record is its class's name and the values of its fields, in order. What comes in is checked
against the declared types before anything is made of it: records, tuples, dicts and `X | None` are
looked into, and what else there is has a reader per type. So a class that is declared is a word on
the wire, with nothing more to write down.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from holdfast.core.wire.frames import CorruptFrame

Reader = Callable[[object], object]
"""Gives a value of the declared type for what JSON has; raises `ValueError`."""


_AS_THEY_ARE: Final = frozenset({int, str, float, bool, type(None)})


class Unfit(ValueError):
    """A value is not of the declared type."""


class RecordCodec:
    """Turns records of some classes into bytes and back; finds once how a class is read."""

    def __init__(
        self,
        classes: Iterable[type],
        readers: Mapping[Any, Reader],
        plain: Mapping[type, Callable[[Any], object]] | None = None,
    ) -> None:
        """For these classes.

        Args:
            classes: Told apart by their names.
            readers: Per declared type that is no record, tuple, dict or `X | None`.
            plain: Per class of a value that is not written as its fields, what JSON gets instead.
        """
        self._classes = {each.__name__: each for each in classes}
        self._readers = readers
        self._fields: dict[type, tuple[tuple[str, Reader], ...]] = {}  # by class
        self._plain_of = plain or {}

    def encode(self, record: object) -> bytes:
        """A record as bytes."""
        return json.dumps(self.named_values(record), separators=(",", ":")).encode()

    def named_values(self, record: object) -> list[object]:
        """A record as JSON takes it: its class's name, and its fields."""
        return [type(record).__name__, *self.values(record)]

    def values(self, record: Any) -> list[object]:
        """The values of its fields, as JSON takes them."""
        kind: type = type(record)
        return [self._plain(getattr(record, name)) for name in _names(kind)]

    def _plain(self, value: Any) -> object:
        if type(value) in _AS_THEY_ARE:  # Most are.
            return value
        plain = self._plain_of.get(type(value))
        if plain is not None:
            return plain(value)
        if isinstance(value, tuple):
            return [self._plain(each) for each in value]
        if isinstance(value, dict):
            return {key: self._plain(each) for key, each in value.items()}
        return self.values(value) if is_dataclass(value) else value

    def decode(self, text: bytes) -> object:
        """A record of one of the classes, or `CorruptFrame` with what is wrong."""
        try:
            return self.from_values(json.loads(text))
        except (ValueError, RecursionError) as error:
            return CorruptFrame(str(error)[:200])

    def from_values(self, values: object) -> object:
        """The inverse of `named_values`, or `CorruptFrame` with what is wrong."""
        try:
            if not isinstance(values, list) or not values or not isinstance(values[0], str):
                return CorruptFrame("no list that begins with a kind")
            kind = self._classes.get(values[0])
            if kind is None:
                return CorruptFrame(f"unknown kind {values[0][:100]!r}")
            return self.record(kind, values[1:])
        except (ValueError, RecursionError) as error:
            return CorruptFrame(str(error)[:200])

    def record(self, kind: type, values: object) -> object:
        """A record of a class, by the values of its fields. Raises `Unfit`."""
        fields = self._fields.get(kind)
        if fields is None:
            found = _types(kind).items()
            fields = tuple((name, self._reader(wanted)) for name, wanted in found)
            self._fields[kind] = fields
        if not isinstance(values, list) or len(values) != len(fields):
            raise Unfit(f"{kind.__name__} has {len(fields)} fields")
        taken: list[object] = []
        for (name, read), value in zip(fields, values, strict=True):
            try:
                taken.append(read(value))
            except ValueError as unfit:
                raise Unfit(f"{kind.__name__}.{name}: {unfit}") from None
        return kind(*taken)

    def _reader(self, wanted: Any) -> Reader:
        """Reads values of a declared type; of a record what its fields are is found later."""
        reader = self._readers.get(wanted)
        if reader is not None:
            return reader
        origin, inner = get_origin(wanted), [self._reader(each) for each in _inner(wanted)]
        if origin is tuple:
            return lambda value: _tuple_of(inner[0], value)
        if origin is dict:
            read_key = _number_of(inner[0]) if get_args(wanted)[0] is int else inner[0]
            return lambda value: _dict_of(read_key, inner[1], value)
        if origin in (Union, UnionType):
            return lambda value: None if value is None else inner[0](value)
        return lambda value: self.record(wanted, value)


def _inner(wanted: Any) -> list[Any]:
    """The types within a declared one, `None` and `...` left out."""
    return [each for each in get_args(wanted) if each not in (type(None), ...)]


def _tuple_of(read: Reader, value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise Unfit("no list")
    return tuple(map(read, value))


def _dict_of(read_key: Reader, read: Reader, value: object) -> dict[object, object]:
    if not isinstance(value, dict):
        raise Unfit("no object")
    return {read_key(key): read(each) for key, each in value.items()}


def _number_of(read: Reader) -> Reader:
    """Reads a key of an object, which JSON has as text only, as a number."""

    def read_key(key: Any) -> object:
        if not (key.isascii() and key.isdigit() and len(key) < 20):
            raise Unfit("no number as a key")
        return read(int(key))

    return read_key


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _types(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}
