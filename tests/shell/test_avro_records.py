"""Records in Avro, as a schema registry's own serializers frame them, to tuples and back."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from registry_records import check_dead_letters, records

from holdfast.driver.kafka import kafka_sink, kafka_source
from holdfast.errors import DataflowError
from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.kafka.decoding import Decoder, attributes_of
from holdfast.shell.kafka.encoding import Encoder
from holdfast.shell.kafka.registry import Registry, registry_of, rows_of
from holdfast_chaos.schema_registry import SchemaRegistry, schema_registry

AT = pa.timestamp("us", tz="UTC")
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", AT)])
MOMENT = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
]
MORE = {"name": "more", "type": "double", "default": 0.5}


@pytest.fixture
def running() -> Iterator[tuple[SchemaRegistry, Registry]]:
    with schema_registry() as (known, url):
        yield known, registry_of(url)


def value(registry: Registry, fields: list[dict[str, Any]], **row: Any) -> bytes:
    """What any producer of theirs writes."""
    schema = json.dumps({"type": "record", "name": "order", "fields": fields})
    write = AvroSerializer(SchemaRegistryClient(dict(registry.settings)), schema)
    found: bytes = write(row, SerializationContext("orders", MessageField.VALUE))
    return found


def decoder(registry: Registry, *, has_dead_letters: bool = False) -> Decoder:
    attributes = attributes_of("avro", COLUMNS)
    return Decoder("avro", attributes, "at", has_dead_letters, registry)


def test_schemas_evolve_and_fields_go_to_columns_by_their_names(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    known, registry = running
    old = value(registry, FIELDS, id=1, name="a", at=MOMENT)
    new = value(registry, [*FIELDS[::2], MORE], id=2, at=MOMENT, more=1.5)
    assert len(known.subjects["orders-value"]) == 2
    made = pickle.loads(pickle.dumps(decoder(registry)))  # As it comes to a node.
    decoded = made.decode(records(old, new, old), 0)
    assert decoded.batch.column("id").to_pylist() == [1, 2, 1]
    assert decoded.batch.column("name").to_pylist() == ["a", None, "a"]
    assert decoded.times_us.tolist() == [int(MOMENT.timestamp() * 1e6)] * 3
    asked = known.asked
    made.decode(records(*[old] * 100), 0)
    assert known.asked == asked  # A schema never changes: it is asked for once.


def test_what_is_no_record_of_a_known_schema_is_a_dead_letter(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    _, registry = running
    good = value(registry, FIELDS, id=1, name="a", at=MOMENT)
    text = {"type": "record", "name": "order", "fields": [{"name": "id", "type": "string"}]}
    other = AvroSerializer(SchemaRegistryClient(dict(registry.settings)), json.dumps(text))
    wrong = other({"id": "x"}, SerializationContext("others", MessageField.VALUE))
    bad = {
        b"\x00\x00\x00\x00\x63" + good[5:]: "does not know its schema",
        b"\x02" + good[1:]: "no Avro of its schema",
        good[:6]: "no Avro of its schema",
        b'{"id": 1}': "no Avro of its schema",
        wrong: "field 'id' is no int64",
    }
    check_dead_letters(good, bad, decoder(registry, has_dead_letters=True), decoder(registry))


def test_a_registry_that_is_away_makes_no_record_bad() -> None:
    with schema_registry() as (_, url):
        registry = registry_of({"url": url, "max.retries": 0})
        good = value(registry_of(url), FIELDS, id=1, name="a", at=MOMENT)
    with pytest.raises(KafkaError, match=r"does not give a schema.*; is it up, and is registry="):
        decoder(registry, has_dead_letters=True).decode(records(good), 0)


def test_what_is_written_is_read_as_it_was(running: tuple[SchemaRegistry, Registry]) -> None:
    known, registry = running
    schema = pa.schema(
        [
            *COLUMNS,
            ("local", pa.timestamp("us")),
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
            "id": 1,
            "name": "ä",
            "at": MOMENT,
            "local": MOMENT.replace(tzinfo=None),
            "on": date(2026, 1, 2),
            "price": Decimal("12.50"),
            "share": 0.1,
            "is_new": True,
            "raw": b"\x00\xff",
            "small": -7,
        },
        dict.fromkeys(schema.names) | {"at": MOMENT},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema)
    encoder = Encoder("avro", ("id",), registry, "results")
    encoder.check(schema)
    timed = batch.append_column("__time", pa.array([0, 0]))
    keys, values = zip(*encoder.records(timed), strict=True)
    assert keys == (b"1", None)
    assert registry.columns("results") == schema
    again = Decoder("avro", attributes_of("avro", schema), "at", False, registry)
    decoded = again.decode(records(*values), 0)
    assert decoded.batch.select(schema.names).to_pylist() == rows
    assert len(known.schemas) == 1


def test_an_incompatible_schema_is_refused_by_name(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    known, registry = running
    known.register("orders-value", json.dumps({"type": "record", "name": "o", "fields": FIELDS}))
    rows = pa.record_batch({"id": ["text"], "__time": [0]})
    with pytest.raises(KafkaError, match=r"does not give a schema for orders: .*incompatible"):
        list(Encoder("avro", (), registry, "orders").records(rows))


def test_columns_come_from_the_newest_schema_of_the_topic(
    running: tuple[SchemaRegistry, Registry],
) -> None:
    known, registry = running
    kinds = {"type": "enum", "name": "kind", "symbols": ["A", "B"]}
    fields = [*FIELDS, {"name": "kind", "type": kinds}]
    known.register("orders-value", json.dumps({"type": "record", "name": "o", "fields": fields}))
    assert registry.columns("orders") == pa.schema([*COLUMNS, ("kind", pa.string())])
    odd = {"name": "odd", "type": ["int", "string"]}
    known.register(
        "others-value", json.dumps({"type": "record", "name": "o", "fields": [*FIELDS, odd]})
    )
    with pytest.raises(KafkaError, match="no column has the type of its field 'odd'"):
        registry.columns("others")
    with pytest.raises(KafkaError, match=r"has no nobodys-value: register .*schema='name TYPE"):
        registry.columns("nobodys")


BOX = {
    "type": "record",
    "name": "box",
    "fields": [{"name": "n", "type": "long"}, {"name": "day", "type": ["null", "string"]}],
}
NESTED = [
    *FIELDS[::2],
    {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
    {"name": "parts", "type": {"type": "map", "values": "double"}},
    {"name": "box", "type": ["null", BOX]},
]


def test_arrays_maps_and_records_are_columns(running: tuple[SchemaRegistry, Registry]) -> None:
    _, registry = running
    row = {"id": 1, "at": MOMENT, "tags": ["a", None], "parts": {"x": 1.5}}
    given = [
        value(registry, NESTED, **row, box={"n": 1, "day": None}),
        value(registry, NESTED, **row, box=None),
    ]
    columns = registry.columns("orders")
    box = pa.struct([("n", pa.int64()), ("day", pa.string())])
    assert columns.types[2:] == [pa.list_(pa.string()), pa.map_(pa.string(), pa.float64()), box]
    made = Decoder("avro", attributes_of("avro", columns), "at", True, registry)
    first, second = made.decode(records(*given), 0).batch.select(columns.names).to_pylist()
    assert first == {**row, "parts": [("x", 1.5)], "box": {"n": 1, "day": None}}
    assert second == {**first, "box": None}


@pytest.mark.parametrize(
    ("name", "of", "said"),
    [
        ("parts", pa.map_(pa.string(), pa.int64()), "field 'parts' is the DOUBLE 1.5"),
        ("name", pa.list_(pa.string()), "field 'name' is a text"),
        ("box", pa.map_(pa.string(), pa.struct([("N", pa.int64())])), "'box{}.n', and none"),
        ("tags", pa.struct([("a", pa.int64())]), "field 'tags' is no struct"),
    ],
)
def test_a_part_of_another_kind_makes_a_record_bad(name: str, of: pa.DataType, said: str) -> None:
    row = {"parts": {"x": 1.5}, "name": "ab", "box": {"x": {"n": 1}}, "tags": ["a"]}
    with pytest.raises((TypeError, ValueError), match=re.escape(said)):
        rows_of([row], pa.schema([(name, of)]))


def test_arguments_that_make_no_sense_are_refused() -> None:
    def source(**given: Any) -> None:
        usual: dict[str, Any] = {"servers": "localhost:1", "topic": "orders", "format": "avro"}
        others = ("schema", "time", "delay", "ahead", "idle", "end", "options")
        rest: dict[str, Any] = dict.fromkeys(others) | {"begin": "earliest"}
        kafka_source(**rest | {"has_dead_letters": False} | usual | given)

    with pytest.raises(DataflowError, match="needs registry="):
        source()
    with pytest.raises(DataflowError, match="the registry's settings"):
        source(registry={"url": "http://localhost:1", "no.such": "x"})
    with pytest.raises(DataflowError, match="is of avro and protobuf"):
        source(format="json", registry="http://localhost:1", schema=COLUMNS)
    sink: dict[str, Any] = {
        "servers": "localhost:1",
        "topic": "orders",
        "format": "avro",
        "key": (),
        "transactional_id": None,
        "exactly_once": True,
        "commit_interval": None,
        "options": None,
        "registry": "http://localhost:1",
    }
    with pytest.raises(DataflowError, match="Avro has no field 'a b'"):
        kafka_sink(schema=pa.schema([("a b", pa.int64())]), **sink)
    with pytest.raises(DataflowError, match="Avro has no list"):
        kafka_sink(schema=pa.schema([("a", pa.list_(pa.int64()))]), **sink)
