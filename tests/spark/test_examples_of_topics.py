"""The examples of topics do what they say: Avro from Kafka into Delta, and from Delta to Kafka."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytest.importorskip("confluent_kafka")

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from kafka_topics import committed, produce

from holdfast.shell.kafka.registry import registry_of
from holdfast_chaos.kafka_broker import KafkaBroker
from holdfast_chaos.schema_registry import schema_registry

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"
ORDERS = 1_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def example(name: str) -> Callable[..., None]:
    run: Callable[..., None] = runpy.run_path(str(EXAMPLES / f"{name}.py"))["run"]
    return run


def orders(url: str) -> list[tuple[int, bytes | None]]:
    """Of two versions of a schema, and one record that is none."""
    fields: list[dict[str, Any]] = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "country", "type": "string"},
        {"name": "amount", "type": "int"},
    ]
    note = {"name": "note", "type": ["null", "string"], "default": None}
    client = SchemaRegistryClient({"url": url})
    writers = [
        AvroSerializer(client, json.dumps({"type": "record", "name": "order", "fields": each}))
        for each in (fields, [*fields, note])
    ]
    context = SerializationContext("orders", MessageField.VALUE)
    found: list[tuple[int, bytes | None]] = [(0, b"no Avro")]
    for number in range(ORDERS):
        row = {
            "at": BEGIN + timedelta(seconds=number),
            "country": ("de", "fr", "nl")[number % 3],
            "amount": number % 500,
        }
        found.append((0, writers[number * 2 // ORDERS](row, context)))
    return found


def test_kafka_avro_to_delta_and_delta_to_kafka(
    spark: SparkSession,
    kafka: KafkaBroker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka.create_topic("orders", 1)
    kafka.create_topic("large-orders", 1)
    with schema_registry() as (known, url):
        produce(kafka, "orders", orders(url))
        example("kafka_avro_to_delta")(spark, kafka.servers, url, tmp_path)
        shown = capsys.readouterr().out
        assert f"{ORDERS} orders of de, fr, nl" in shown
        assert "no Avro" in shown
        table = str(tmp_path / "table")
        example("delta_to_kafka")(spark, table, kafka.servers, url, tmp_path / "told")
        assert "200 large orders told" in capsys.readouterr().out
        read = registry_of(url).read
        told = [read(message.value()) for message in committed(kafka, "large-orders")]
        assert sorted(row["amount"] for row in told) == sorted([*range(400, 500)] * 2)
        assert len(known.subjects["large-orders-value"]) == 1
