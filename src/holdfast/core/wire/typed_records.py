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
    """Turns records of some classes into bytes and back. Immutable."""

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
        types = _types(kind)
        if not isinstance(values, list) or len(values) != len(types):
            raise Unfit(f"{kind.__name__} has {len(types)} fields")
        return kind(
            *(self._field(kind, name, each) for name, each in zip(types, values, strict=True))
        )

    def _field(self, kind: type, name: str, value: object) -> object:
        try:
            return self._value(_types(kind)[name], value)
        except ValueError as unfit:
            raise Unfit(f"{kind.__name__}.{name}: {unfit}") from None

    def _value(self, wanted: Any, value: object) -> object:
        reader = self._readers.get(wanted)
        if reader is not None:
            return reader(value)
        origin, inner = get_origin(wanted), get_args(wanted)
        if origin is tuple:
            if not isinstance(value, list):
                raise Unfit("no list")
            return tuple(self._value(inner[0], each) for each in value)
        if origin is dict:
            if not isinstance(value, dict):
                raise Unfit("no object")
            return {self._key(inner[0], k): self._value(inner[1], v) for k, v in value.items()}
        if origin in (Union, UnionType):
            return None if value is None else self._value(inner[0], value)
        return self.record(wanted, value)

    def _key(self, wanted: Any, key: str) -> object:
        """A key of an object, which JSON has as text only."""
        if wanted is not int:
            return self._value(wanted, key)
        if not (key.isascii() and key.isdigit() and len(key) < 20):
            raise Unfit("no number as a key")
        return self._value(wanted, int(key))


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


@cache
def _types(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}
