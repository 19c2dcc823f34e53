"""Records in Protobuf, framed as a schema registry's serializers frame them.

A zero, the id of a schema, which of its messages it is, the message. As in Avro (registry.py) the
record is read by the schema that it was written by, and its fields go to columns by their names.
One that was not set is null if its message can tell; others have Protobuf's default.

What is written has a schema that its columns make. Every field can tell whether it is set. Fields
are numbered as the columns stand, so that columns may only be added at the end: the registry
refuses another schema.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.kafka.registry import (
    NOT_FOUND,
    NoRecord,
    Registry,
    client,
    is_transport,
    registry_of,
)

_MAIN: Final = "holdfast/row.proto"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DATE: Final = "google.type.Date"
_DECIMAL: Final = "confluent.type.Decimal"
_PLAIN: Final[dict[str, pa.DataType]] = {
    "BOOL": pa.bool_(),
    "INT32": pa.int32(),
    "SINT32": pa.int32(),
    "SFIXED32": pa.int32(),
    "UINT32": pa.int64(),
    "FIXED32": pa.int64(),
    "INT64": pa.int64(),
    "SINT64": pa.int64(),
    "SFIXED64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "ENUM": pa.string(),
}
_WRAPPED: Final[dict[str, pa.DataType]] = {
    "BoolValue": pa.bool_(),
    "Int32Value": pa.int32(),
    "UInt32Value": pa.int64(),
    "Int64Value": pa.int64(),
    "FloatValue": pa.float32(),
    "DoubleValue": pa.float64(),
    "StringValue": pa.string(),
    "BytesValue": pa.binary(),
}
_WRAPPERS: Final = "google.protobuf."


@dataclass(frozen=True, slots=True)
class ProtobufRegistry(Registry):
    """A schema registry of topics whose values are Protobuf; see `Registry`."""

    def columns(self, topic: str) -> pa.Schema:
        """See the base: the first message of the file is that of the topic."""
        subject = f"{topic}-value"
        try:
            found = client(self.settings).get_latest_version(subject, fmt="serialized")
            file = _file_of(self.settings, found.schema)
        except Exception as error:  # Transports have errors of their own.
            raise self.no_columns(error, subject) from None
        messages = list(file.message_types_by_name.values())
        if not messages:
            raise KafkaError("its schema has no message; give schema='name TYPE, ...'")
        return pa.schema([pa.field(f.name, _type(f)) for f in messages[0].fields])

    def read(self, value: bytes | None) -> dict[str, Any]:
        """See the base."""
        from google.protobuf.message import DecodeError

        if value is None:
            raise NoRecord("it is null")
        framed, payload = _unframed(value)
        try:
            made = _message_of(self.settings, *framed)
        except Exception as error:  # Transports have errors of their own.
            status = getattr(error, "http_status_code", None)
            if status == NOT_FOUND:
                raise NoRecord(f"{self.url} does not know its schema") from None
            if status is not None or is_transport(error):
                raise self.away(error, "a schema") from None
            raise NoRecord(f"it is no Protobuf of its schema: {error!r}"[:500]) from None
        message = made()
        try:
            message.ParseFromString(payload)
            return {field.name: _value(field, message) for field in made.DESCRIPTOR.fields}
        except (DecodeError, ValueError, OverflowError) as error:
            raise NoRecord(f"it is no Protobuf of its schema: {error!r}"[:500]) from None

    def check(self, columns: pa.Schema) -> None:
        """See the base."""
        _described(columns)

    def write(self, topic: str, rows: pa.RecordBatch) -> Iterator[bytes]:
        """See the base."""
        from confluent_kafka.serialization import MessageField, SerializationContext

        context = SerializationContext(topic, MessageField.VALUE)
        made, write = _writer(self.settings, rows.schema)
        setters = [_setter(field) for field in rows.schema]
        for row in rows.to_pylist():
            message = made()
            for set_field, value in zip(setters, row.values(), strict=True):
                if value is not None:
                    set_field(message, value)
            try:
                yield write(message, context)
            except Exception as error:  # Transports have errors of their own.
                if getattr(error, "http_status_code", None) is None and not is_transport(error):
                    raise
                raise self.away(error, f"a schema for {topic}") from None


def registry_for(format: str, given: str | Mapping[str, Any] | None) -> Registry:
    """The registry of values in one of registry.py's `FORMATS`; raises as `registry_of`."""
    return registry_of(given, format, ProtobufRegistry if format == "protobuf" else Registry)


def _unframed(value: bytes) -> tuple[tuple[int, tuple[int, ...]], bytes]:
    """The id of the schema, the way to the message in it, and the message's bytes."""
    from confluent_kafka.schema_registry.serde import SchemaId

    framed = SchemaId("PROTOBUF")
    try:
        rest = framed.from_bytes(io.BytesIO(value)).read()
    except Exception as error:  # Foreign bytes.
        raise NoRecord(f"it has no schema's number: {error!r}"[:500]) from None
    if framed.id is None:
        raise NoRecord("its schema has a name of another kind")
    return (framed.id, tuple(framed.message_indexes or (0,))), rest


@lru_cache(maxsize=1_024)
def _message_of(settings: tuple[tuple[str, Any], ...], schema_id: int, way: tuple[int, ...]) -> Any:
    """The class of a message of a schema; a schema never changes."""
    from google.protobuf.message_factory import GetMessageClass

    file = _file_of(settings, client(settings).get_schema(schema_id, fmt="serialized"))
    found = list(file.message_types_by_name.values())[way[0]]
    for index in way[1:]:
        found = found.nested_types[index]
    return GetMessageClass(found)


def _file_of(settings: tuple[tuple[str, Any], ...], schema: Any) -> Any:
    """A schema's file, with all that it refers to, apart from all other schemas."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    _add(settings, pool, f"{_MAIN}.read", schema)
    return pool.FindFileByName(f"{_MAIN}.read")


def _add(settings: tuple[tuple[str, Any], ...], pool: Any, name: str, schema: Any) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    file.ParseFromString(base64.standard_b64decode(schema.schema_str))
    file.name = name
    references = {each.name: each for each in schema.references or ()}
    for needed in file.dependency:
        if _has(pool, needed):
            continue
        of = references.get(needed)
        if of is None:
            _add_known(pool, needed)
        else:
            found = client(settings).get_version(of.subject, of.version, fmt="serialized")
            _add(settings, pool, needed, found.schema)
    pool.Add(file)


def _has(pool: Any, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _add_known(pool: Any, name: str) -> None:
    """A file that comes with Protobuf or with the client. Raises `KeyError` for others."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    found = _known().FindFileByName(name)
    for needed in found.dependencies:
        if not _has(pool, needed.name):
            _add_known(pool, needed.name)
    file = FileDescriptorProto()
    found.CopyToProto(file)
    pool.Add(file)


@lru_cache(maxsize=1)
def _known() -> Any:
    """Where the files are that everybody has."""
    from confluent_kafka.schema_registry import protobuf  # noqa: F401  (loads its own)
    from google.protobuf.descriptor_pool import Default

    return Default()


def _type(field: Any) -> pa.DataType:
    """The type of the column for a field. Raises `KafkaError`: there is none."""
    if (name := _kind(field)) in _PLAIN:
        return pa.list_(_PLAIN[name]) if field.is_repeated else _PLAIN[name]
    if not field.is_repeated and field.message_type is not None:
        of = field.message_type.full_name
        known = {_TIMESTAMP: pa.timestamp("us", tz="UTC"), _DATE: pa.date32()}
        if of in known:
            return known[of]
        wrapped = _WRAPPED.get(of.removeprefix(_WRAPPERS))
        if wrapped is not None:
            return wrapped
    raise KafkaError(
        f"no column has the type of its field {field.name!r}; give schema=... without it"
    )


def _kind(field: Any) -> str:
    """The name of a field's type, such as `INT32`."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    return str(FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_")


def _value(field: Any, message: Any) -> Any:
    """A field as a column takes it; what no column has comes as it is, and does no harm."""
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if field.message_type is None:
        return (
            [_plain(field, each) for each in value] if field.is_repeated else _plain(field, value)
        )
    if field.is_repeated:  # No column has it: it is a map, or messages.
        return dict(value) if field.message_type.GetOptions().map_entry else list(value)
    of = field.message_type.full_name
    if of == _TIMESTAMP:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if of == _DATE:
        return date(value.year, value.month, value.day)
    if of == _DECIMAL:
        return _client_part().protobuf_to_decimal(value)
    return value.value if of.removeprefix(_WRAPPERS) in _WRAPPED else value


def _plain(field: Any, value: Any) -> Any:
    """A value that is no message; of an enum its name."""
    if field.enum_type is None:
        return value
    named = field.enum_type.values_by_number.get(value)
    return str(value) if named is None else named.name


def _client_part() -> Any:
    """What the client knows of decimals."""
    from confluent_kafka.schema_registry import protobuf

    return protobuf


# -- writing --------------------------------------------------------------------------------------

_FILES: Final = {
    _TIMESTAMP: "google/protobuf/timestamp.proto",
    _DATE: "google/type/date.proto",
    _DECIMAL: "confluent/type/decimal.proto",
}
_WRITTEN: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "BOOL",
    pa.int8(): "INT32",
    pa.int16(): "INT32",
    pa.int32(): "INT32",
    pa.int64(): "INT64",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BYTES",
}


def _described(columns: pa.Schema) -> Any:
    """The file that columns make. Raises `KafkaError` for a name or type that Protobuf has not."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    file = FileDescriptorProto(name=_MAIN, package="holdfast", syntax="proto3")
    row = file.message_type.add(name="row")
    for number, column in enumerate(columns, 1):
        if not (column.name.isascii() and column.name.isidentifier()):
            raise KafkaError(f"Protobuf has no field {column.name!r}; rename the column")
        field = row.field.add(name=column.name, number=number)
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
        of = _message(column.type)
        if of is not None:
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{of}"
            if _FILES[of] not in file.dependency:
                file.dependency.append(_FILES[of])
            continue
        if column.type not in _WRITTEN:
            raise KafkaError(
                f"Protobuf has no {column.type}; select what it has, or use format='json'"
            )
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{_WRITTEN[column.type]}")
        field.proto3_optional = True
        field.oneof_index = len(row.oneof_decl)
        row.oneof_decl.add(name=f"_{column.name}")
    return file


def _message(of: pa.DataType) -> str | None:
    """The message that stands for a type; None: it is a plain one."""
    if pa.types.is_timestamp(of) and of.tz is not None:
        return _TIMESTAMP
    if pa.types.is_date32(of):
        return _DATE
    return _DECIMAL if pa.types.is_decimal128(of) else None


@lru_cache(maxsize=16)
def _writer(settings: tuple[tuple[str, Any], ...], columns: pa.Schema) -> tuple[Any, Any]:
    """The class of rows, and what frames them."""
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message_factory import GetMessageClass

    file, pool = _described(columns), DescriptorPool()
    for needed in file.dependency:
        _add_known(pool, needed)
    pool.Add(file)
    made = GetMessageClass(pool.FindMessageTypeByName("holdfast.row"))
    return made, ProtobufSerializer(made, client(settings), {"use.deprecated.format": False})


def _setter(column: pa.Field) -> Callable[[Any, Any], None]:
    """How a value is put into its field."""
    name, of = column.name, _message(column.type)
    if of is None:
        return lambda message, value: setattr(message, name, value)
    if of == _TIMESTAMP:
        return lambda message, value: _put_time(getattr(message, name), value)
    if of == _DATE:
        return lambda message, value: _put_date(getattr(message, name), value)
    scale = column.type.scale
    return lambda message, value: getattr(message, name).ParseFromString(
        _client_part().decimal_to_protobuf(value, scale).SerializeToString()
    )


def _put_time(field: Any, value: datetime) -> None:
    since = value - _EPOCH
    field.SetInParent()
    field.seconds = since.days * 86_400 + since.seconds
    field.nanos = since.microseconds * 1_000


def _put_date(field: Any, value: date) -> None:
    field.year, field.month, field.day = value.year, value.month, value.day
