"""Records in Avro, framed as a schema registry's serializers frame them: zero, schema id, value.

A record names the schema that it was written by, and the registry has that. Its fields go to
columns by their names: one that the record lacks is null, one that no column has is passed over. So
schemas may evolve in every way in which a field that stays keeps its kind. A record of another
kind, or of a schema that the registry does not know, is a bad one. A registry that does not answer
is no bad record: the node fails then, and is tried again.

What is written has a schema that its columns make. All fields may be null, so that columns may come
and go later; the registry says whether a new schema is compatible.
"""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from holdfast.core.model.nested_types import is_nested
from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.storage.json_values import require_fields

FORMATS: Final = ("avro", "protobuf")
"""Of values whose schemas a registry has."""
NOT_FOUND: Final = 404
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_CLIENT: Final = "a schema registry needs pip install 'holdfast-streaming[{}]'"
_PLAIN: Final[dict[Any, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_LOGICAL: Final[dict[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}


class NoRecord(ValueError):
    """A value is no record of a schema that the registry knows; the text says why."""


@dataclass(frozen=True, slots=True)
class Registry:
    """A schema registry, as the user names it.

    Attributes:
        settings: Of confluent-kafka's `SchemaRegistryClient`: `url`, and what else it needs.
    """

    settings: tuple[tuple[str, Any], ...]

    @property
    def url(self) -> str:
        """Where it is."""
        return str(dict(self.settings)["url"])

    def columns(self, topic: str) -> pa.Schema:
        """The columns of the newest schema of a topic's values.

        Raises:
            KafkaError: There is none, its types are others than columns have, or the registry does
                not answer.
        """
        subject = f"{topic}-value"
        try:
            found = client(self.settings).get_latest_version(subject)
        except Exception as error:  # Transports have errors of their own.
            raise self.no_columns(error, subject) from None
        return columns_of(json.loads(found.schema.schema_str))

    def read(self, value: bytes | None) -> dict[str, Any]:
        """A record's fields.

        Raises:
            NoRecord: It is none.
            KafkaError: The registry does not answer.
        """
        if value is None:
            raise NoRecord("it is null")
        try:
            found = _reader(self.settings)(value, None)
        except Exception as error:  # A decoder of foreign bytes raises what it likes.
            status = getattr(error, "http_status_code", None)
            if status == NOT_FOUND:
                raise NoRecord(f"{self.url} does not know its schema") from None
            if status is not None or is_transport(error):
                raise self.away(error, "a schema") from None
            raise NoRecord(f"it is no Avro of its schema: {error!r}"[:500]) from None
        if not isinstance(found, dict):
            raise NoRecord("it is no Avro record")
        return found

    def check(self, columns: pa.Schema) -> None:
        """Raises `KafkaError` if such rows cannot be written."""
        schema_of(columns)

    def write(self, topic: str, rows: pa.RecordBatch) -> Iterator[bytes]:
        """Each row as a value of a topic.

        Raises:
            KafkaError: The registry refuses the schema, or does not answer.
        """
        from confluent_kafka.serialization import MessageField, SerializationContext

        context = SerializationContext(topic, MessageField.VALUE)
        write = _writer(self.settings, json.dumps(schema_of(rows.schema)))
        for row in rows.to_pylist():
            try:
                yield write(row, context)
            except Exception as error:  # Transports have errors of their own.
                if getattr(error, "http_status_code", None) is None and not is_transport(error):
                    raise
                raise self.away(error, f"a schema for {topic}") from None

    def away(self, error: Exception, what: str) -> KafkaError:
        """What to raise when it does not give something."""
        said = f"the schema registry at {self.url} does not give {what}: {error!r}"
        is_silent = getattr(error, "http_status_code", None) is None and is_transport(error)
        return KafkaError(f"{said}; is it up, and is registry=... right?" if is_silent else said)

    def no_columns(self, error: Exception, subject: str) -> KafkaError:
        """What to raise when it does not give the newest schema of a subject."""
        if getattr(error, "http_status_code", None) != NOT_FOUND:
            return self.away(error, subject)
        return KafkaError(
            f"the schema registry at {self.url} has no {subject}: register a schema, correct "
            "topic=..., or give schema='name TYPE, ...'"
        )


def registry_of(
    given: str | Mapping[str, Any] | None, format: str = "avro", kind: type[Registry] = Registry
) -> Registry:
    """The registry that an argument names, of values in one of `FORMATS`.

    Raises:
        KafkaError: It names none, or the client is not there or refuses the settings.
    """
    settings = {"url": given} if isinstance(given, str) else dict(given or {})
    if not settings.get("url"):
        raise KafkaError(f"format={format!r} needs registry='http://host:8081', or its settings")
    registry = kind(tuple(sorted(settings.items())))
    try:
        client(registry.settings)
        importlib.import_module(f"confluent_kafka.schema_registry.{format}")
    except ImportError:
        raise KafkaError(_CLIENT.format(format)) from None
    except (ValueError, TypeError) as error:
        raise KafkaError(f"the registry's settings: {error}") from None
    return registry


@lru_cache(maxsize=16)
def client(settings: tuple[tuple[str, Any], ...]) -> Any:
    """One for each process: it keeps the schemas that it was given."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient(dict(settings))


@lru_cache(maxsize=16)
def _reader(settings: tuple[tuple[str, Any], ...]) -> Any:
    from confluent_kafka.schema_registry.avro import AvroDeserializer

    return AvroDeserializer(client(settings))


@lru_cache(maxsize=16)
def _writer(settings: tuple[tuple[str, Any], ...], schema: str) -> Any:
    from confluent_kafka.schema_registry.avro import AvroSerializer

    return AvroSerializer(client(settings), schema)


def schema_of(columns: pa.Schema) -> dict[str, Any]:
    """The Avro schema of columns. Raises `KafkaError` for a name or type that Avro has not."""
    fields = []
    for field in columns:
        if not _NAME.fullmatch(field.name):
            raise KafkaError(f"Avro has no field {field.name!r}; rename the column")
        fields.append({"name": field.name, "type": ["null", _written(field.type)], "default": None})
    return {"type": "record", "name": "row", "namespace": "holdfast", "fields": fields}


def _written(of: pa.DataType) -> Any:
    if pa.types.is_timestamp(of):
        local = "" if of.tz else "local-"
        return {"type": "long", "logicalType": f"{local}timestamp-micros"}
    if pa.types.is_date32(of):
        return {"type": "int", "logicalType": "date"}
    if pa.types.is_decimal128(of):
        size = {"precision": of.precision, "scale": of.scale}
        return {"type": "bytes", "logicalType": "decimal", **size}
    if pa.types.is_int8(of) or pa.types.is_int16(of):
        return "int"
    for name, kind in _PLAIN.items():
        if kind == of:
            return name
    raise KafkaError(f"Avro has no {of}; select what it has, or use format='json'")


def is_transport(error: Exception) -> bool:
    """Whether the way to the registry is broken."""
    import httpx2

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (httpx2.HTTPError, OSError)):
            return True
        cause = cause.__cause__
    return False


def columns_of(schema: Any) -> pa.Schema:
    """The columns of an Avro schema. Raises `KafkaError` for a type that no column has."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise KafkaError("its schema is no Avro record; give schema='name TYPE, ...'")
    return pa.schema([pa.field(f["name"], _type(f["type"], f["name"])) for f in schema["fields"]])


def _type(given: Any, name: str) -> pa.DataType:
    if isinstance(given, list):  # A union; columns have null and one other type.
        others = [each for each in given if each != "null"]
        return _type(others[0] if len(others) == 1 else None, name)
    if isinstance(given, dict):
        logical = given.get("logicalType")
        if logical in _LOGICAL:
            return _LOGICAL[logical]
        if logical == "decimal":
            return pa.decimal128(given["precision"], given.get("scale", 0))
        if given.get("type") == "enum":
            return pa.string()
        nested = _nested(given, name)
        return _type(given.get("type"), name) if nested is None else nested
    if given not in _PLAIN:
        raise KafkaError(
            f"no column has the type of its field {name!r}; give schema=... without it"
        )
    return _PLAIN[given]


def _nested(given: dict[str, Any], name: str) -> pa.DataType | None:
    """Of an array, a map or a record; None of others. Raises as `_type`."""
    match given.get("type"):
        case "array":
            return pa.list_(_type(given["items"], f"{name}[]"))
        case "map":
            return pa.map_(pa.string(), _type(given["values"], f"{name}{{}}"))
        case "record":
            parts = [(f["name"], _type(f["type"], f"{name}.{f['name']}")) for f in given["fields"]]
            if len({part.lower() for part, _ in parts}) == len(parts) > 0:
                return pa.struct(parts)
            return _type(None, name)
    return None


def rows_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Records as rows.

    Raises:
        TypeError: A field is of another kind than its column.
        ValueError: A field has a column's name in other capitals.
    """
    names, has_parts = {*schema.names}, any(is_nested(field.type) for field in schema)
    for row in rows:
        if has_parts or not names <= row.keys():
            require_fields(row, schema)
    columns = [_column([row.get(field.name) for row in rows], field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _other_kind(value: Any, of: pa.DataType) -> str:
    """What a value is that Arrow would take for another one of a type; empty: it takes it as it is.

    Of a number it would cut off what does not fit, and of a moment the time of day.
    """
    types = pa.types
    if isinstance(value, int):
        return "a number" if types.is_temporal(of) else ""
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            is_float = math.isnan(value) or float(np.float32(value)) == value
        is_other = types.is_integer(of) or (types.is_float32(of) and not is_float)
        return f"the DOUBLE {value}" if is_other else ""
    if isinstance(value, datetime):
        return "a moment" if types.is_date(of) else ""
    if isinstance(value, str | bytes):  # Arrow would take each of its letters.
        return "a text" if types.is_list(of) else ""
    parts: Iterable[tuple[Any, pa.DataType]] = ()
    if isinstance(value, list) and types.is_list(of):
        parts = ((each, of.value_type) for each in value)
    elif isinstance(value, dict) and types.is_struct(of):
        parts = ((value.get(part.name), part.type) for part in of)
    elif isinstance(value, dict) and types.is_map(of):
        keys = ((key, of.key_type) for key in value)
        parts = chain(keys, ((each, of.item_type) for each in value.values()))
    return next(filter(None, (_other_kind(*part) for part in parts)), "")


def _may_be_taken_otherwise(of: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_float32, pa.types.is_temporal, pa.types.is_nested)
    return any(is_kind(of) for is_kind in kinds)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    for each in values if _may_be_taken_otherwise(field.type) else ():
        if other := _other_kind(each, field.type):
            raise TypeError(f"field {field.name!r} is {other}, no {field.type}")
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise TypeError(f"field {field.name!r} is no {field.type}: {error}") from None
