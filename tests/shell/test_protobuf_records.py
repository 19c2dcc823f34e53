"""Records in Protobuf, as a schema registry's own serializers frame them, to tuples and back."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from registry_records import check_dead_letters, records

from holdfast.driver.kafka import kafka_sink, kafka_source
from holdfast.errors import DataflowError
from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.kafka.decoding import Decoder, attributes_of
from holdfast.shell.kafka.encoding import Encoder
from holdfast.shell.kafka.protobuf import registry_for
from holdfast.shell.kafka.registry import Registry
from holdfast_chaos.schema_registry import SchemaRegistry, schema_registry

AT = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", AT)])
MOMENT = datetime(2026, 1, 1, 0, 0, 1, 5, tzinfo=UTC)
STAMP = ".google.protobuf.Timestamp"
FIELDS = {"id": (1, "INT64"), "name": (2, "STRING"), "at": (3, STAMP)}
Fields = dict[str, tuple[int, str]]


@pytest.fixture
def running() -> Iterator[tuple[SchemaRegistry, Registry]]:
    with schema_registry() as (known, url):
        yield known, registry_for("protobuf", url)


def described(fields: Fields, syntax: str = "proto3") -> FileDescriptorProto:
    """The file of a producer of theirs: another message first, then an order."""
    file = FileDescriptorProto(name="orders.proto", package="shop", syntax=syntax)
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("NEW", "OLD")):
        kind.value.add(name=name, number=number)
    message = file.message_type.add(name="Order")
    file.message_type.add(name="Other")
    for name, (number, of) in fields.items():
        field = message.field.add(name=name, number=number)
        field.label = FieldDescriptorProto.LABEL_OPTIONAL
        repeated, _, of = of.rpartition(" ")
        if repeated:
            field.label = FieldDescriptorProto.LABEL_REPEATED
        if of.startswith("."):
            is_enum = of == ".shop.Kind"
            field.type = 14 if is_enum else 11
            field.type_name = of
        else:
            field.type = FieldDescriptorProto.Type.Value(f"TYPE_{of}")
    return file


def text(fields: Fields) -> str:
    return base64.standard_b64encode(described(fields).SerializeToString()).decode()


def value(registry: Registry, fields: Fields, message: str = "Order", **row: Any) -> bytes:
    """What any producer of theirs writes."""
    pool = DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(described(fields))
    made = GetMessageClass(pool.FindMessageTypeByName(f"shop.{message}"))
    settings = {"use.deprecated.format": False}
    write = ProtobufSerializer(made, SchemaRegistryClient(dict(registry.settings)), settings)
    found = made()
    for name, given in row.items():
        if isinstance(given, datetime):
            getattr(found, name).FromDatetime(given)
        elif fields[name][1].startswith(".google.protobuf."):
            getattr(found, name).value = given
        elif isinstance(given, list):
            getattr(found, name).extend(given)
        else:
            setattr(found, name, given)
    written: bytes = write(found, SerializationContext("orders", MessageField.VALUE))
    return written


def decoder(
    registry: Registry, columns: pa.Schema = COLUMNS, *, has_dead_letters: bool = False
) -> Decoder:
    attributes = attributes_of("protobuf", columns)
    return Decoder("protobuf", attributes, "at", has_dead_letters, registry)


def test_schemas_evolve_and_fields_go_to_columns_by_their_names(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    known, registry = running
    old = value(registry, FIELDS, id=1, name="a", at=MOMENT)
    less = {name: of for name, of in FIELDS.items() if name != "name"}
    new = value(registry, less | {"more": (4, "DOUBLE")}, id=2, at=MOMENT, more=1.5)
    assert len(known.subjects["orders-value"]) == 2
    made = pickle.loads(pickle.dumps(decoder(registry)))  # As it comes to a node.
    decoded = made.decode(records(old, new, old), 0)
    assert decoded.batch.column("id").to_pylist() == [1, 2, 1]
    assert decoded.batch.column("name").to_pylist() == ["a", None, "a"]
    assert decoded.batch.column("at").to_pylist() == [MOMENT] * 3
    asked = known.asked
    made.decode(records(*[old] * 100), 0)
    assert known.asked == asked  # A schema never changes: it is asked for once.


def test_messages_tell_what_is_not_set_as_far_as_they_can(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    _, registry = running
    wrapped = ".google.protobuf.Int64Value"
    fields = FIELDS | {"count": (4, wrapped), "kind": (5, ".shop.Kind"), "tags": (6, "r STRING")}
    whole = value(registry, fields, id=1, at=MOMENT, count=0, kind=1)
    bare = value(registry, fields, at=MOMENT)
    columns = pa.schema([*COLUMNS, ("count", pa.int64()), ("kind", pa.string())])
    decoded = decoder(registry, columns).decode(records(whole, bare), 0)
    rows = [{k: row[k] for k in columns.names} for row in decoded.batch.to_pylist()]
    assert rows == [
        {"id": 1, "name": "", "at": MOMENT, "count": 0, "kind": "OLD"},
        {"id": 0, "name": "", "at": MOMENT, "count": None, "kind": "NEW"},
    ]
    assert registry.columns("orders").field("tags").type == pa.list_(pa.string())


def test_lists_of_plain_values_are_columns_and_other_parts_are_refused(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    _, registry = running
    fields = FIELDS | {"tags": (4, "r STRING"), "shares": (5, "r DOUBLE")}
    bytes_ = value(registry, fields, id=1, at=MOMENT, tags=["a", "b"], shares=[1.5])
    columns = pa.schema([*COLUMNS, ("tags", pa.list_(pa.string()))])
    found = decoder(registry, columns).decode(records(bytes_), 0).batch
    assert found.column("tags").to_pylist() == [["a", "b"]]
    whole = pa.schema([*COLUMNS, ("shares", pa.list_(pa.int64()))])
    bad = decoder(registry, whole, has_dead_letters=True).decode(records(bytes_), 0).batch
    assert "'shares' is the DOUBLE 1.5" in bad.column("kafka_error")[0].as_py()
    for of in (pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())):
        with pytest.raises(KafkaError, match=r"column 'x' is .* not read from Protobuf"):
            attributes_of("protobuf", pa.schema([("x", of)]))


def test_what_is_no_record_of_a_known_schema_is_a_dead_letter(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    _, registry = running
    good = value(registry, FIELDS, id=1, name="a", at=MOMENT)
    bad = {
        b"\x00\x00\x00\x00\x63" + good[5:]: "does not know its schema",
        b"\x02" + good[1:]: "it has no schema's number",
        good[:3]: "it has no schema's number",
        good[:-2]: "no Protobuf of its schema",
        good[:5] + b"\x02\x12" + good[6:]: "no Protobuf of its schema",  # The tenth message.
        value(registry, FIELDS, "Other"): "its time column 'at' is null",
    }
    check_dead_letters(good, bad, decoder(registry, has_dead_letters=True), decoder(registry))


def test_a_registry_that_is_away_makes_no_record_bad() -> None:
    with schema_registry() as (_, url):
        registry = registry_for("protobuf", {"url": url, "max.retries": 0})
        good = value(registry_for("protobuf", url), FIELDS, id=1, name="a", at=MOMENT)
    with pytest.raises(KafkaError, match=r"does not give a schema.*; is it up, and is registry="):
        decoder(registry, has_dead_letters=True).decode(records(good), 0)


def test_what_is_written_is_read_as_it_was(running: tuple[SchemaRegistry, Registry]) -> None:
    known, registry = running
    schema = pa.schema(
        [
            *COLUMNS,
            ("on", pa.date32()),
            ("price", pa.decimal128(12, 2)),
            ("share", pa.float64()),
            ("is_new", pa.bool_()),
            ("raw", pa.binary()),
            ("small", pa.int32()),
        ]
    )
    rows = [
        {
            "id": 0,
            "name": "ä",
            "at": MOMENT,
            "on": date(2026, 1, 2),
            "price": Decimal("-12.50"),
            "share": 0.1,
            "is_new": False,
            "raw": b"\x00\xff",
            "small": -7,
        },
        dict.fromkeys(schema.names) | {"at": datetime(1, 1, 1, tzinfo=UTC)},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema)
    encoder = Encoder("protobuf", ("id",), registry, "results")
    encoder.check(schema)
    timed = batch.append_column("__time", pa.array([0, 0]))
    keys, values = zip(*encoder.records(timed), strict=True)
    assert keys == (b"0", None)
    decoded = decoder(registry, schema).decode(records(*values), 0)
    assert decoded.batch.select(schema.names).to_pylist() == rows
    assert len(known.schemas) == 1
    plain = pa.schema([f for f in schema if f.name != "price"])
    other = Encoder("protobuf", (), registry, "plain")
    list(other.records(timed.select([*plain.names, "__time"])))
    assert registry.columns("plain") == plain


def test_an_incompatible_schema_is_refused_by_name(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    known, registry = running
    rows = pa.record_batch({"id": [1], "__time": [0]})
    list(Encoder("protobuf", (), registry, "orders").records(rows))
    more = pa.record_batch({"id": [1], "more": ["x"], "__time": [0]})
    list(Encoder("protobuf", (), registry, "orders").records(more))
    assert len(known.subjects["orders-value"]) == 2
    rows = pa.record_batch({"id": ["text"], "__time": [0]})
    with pytest.raises(KafkaError, match=r"does not give a schema for orders: .*incompatible"):
        list(Encoder("protobuf", (), registry, "orders").records(rows))


def test_columns_come_from_the_newest_schema_of_the_topic(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    known, registry = running
    known.register("orders-value", text(FIELDS | {"kind": (4, ".shop.Kind")}), "PROTOBUF")
    assert registry.columns("orders") == pa.schema([*COLUMNS, ("kind", pa.string())])
    known.register("others-value", text(FIELDS | {"huge": (4, "UINT64")}), "PROTOBUF")
    with pytest.raises(KafkaError, match="no column has the type of its field 'huge'"):
        registry.columns("others")
    with pytest.raises(KafkaError, match=r"has no nobodys-value: register .*schema='name TYPE"):
        registry.columns("nobodys")


def test_arguments_that_make_no_sense_are_refused() -> None:
    others = ("schema", "time", "delay", "ahead", "idle", "end", "options")
    rest: dict[str, Any] = dict.fromkeys(others) | {"begin": "earliest", "has_dead_letters": False}
    with pytest.raises(DataflowError, match="format='protobuf' needs registry="):
        kafka_source(servers="localhost:1", topic="orders", format="protobuf", **rest)
    sink: dict[str, Any] = {
        "servers": "localhost:1",
        "topic": "orders",
        "format": "protobuf",
        "key": (),
        "transactional_id": None,
        "exactly_once": True,
        "commit_interval": None,
        "options": None,
        "registry": "http://localhost:1",
    }
    for schema, why in (
        (pa.schema([("a b", pa.int64())]), "Protobuf has no field 'a b'"),
        (pa.schema([("a", pa.list_(pa.int64()))]), "Protobuf has no list"),
        (pa.schema([("a", pa.timestamp("us"))]), "Protobuf has no timestamp"),
    ):
        with pytest.raises(DataflowError, match=why):
            kafka_sink(schema=schema, **sink)
