"""Records in Protobuf through a broker, with a schema registry beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")

from kafka_topics import committed, produce
from test_protobuf_records import FIELDS, MOMENT, value
from without_spark import without_spark

from holdfast.api.dataflow import Dataflow
from holdfast.shell.kafka.protobuf import registry_for
from holdfast_chaos.kafka_broker import KafkaBroker
from holdfast_chaos.schema_registry import schema_registry

pytestmark = pytest.mark.slow


def test_records_of_two_schemas_go_from_a_topic_to_another_each_once(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("proto-orders", 1)
    kafka.create_topic("proto-even", 1)
    more = FIELDS | {"note": (4, "STRING")}
    with schema_registry() as (known, url):
        theirs = registry_for("protobuf", url)
        old = [value(theirs, FIELDS, id=n, name="a", at=MOMENT) for n in range(50)]
        new = [value(theirs, more, id=n, at=MOMENT, note="late") for n in range(50, 100)]
        known.subjects["proto-orders-value"] = known.subjects["orders-value"]
        given = [*old, b"no Protobuf", *new]
        produce(kafka, "proto-orders", [(0, each) for each in given])
        flow = Dataflow("orders")
        orders = flow.source_kafka(
            servers=kafka.servers,
            topic="proto-orders",
            format="protobuf",
            registry=url,
            time="at",
            end="latest",
            dead_letters="undecodable",
        )
        assert orders.schema.names == ["id", "name", "at", "note"]
        orders.filter("id % 2 = 0").sink_kafka(
            "even",
            servers=kafka.servers,
            topic="proto-even",
            format="protobuf",
            registry=url,
        )
        with without_spark() as session:
            query = flow.start(session, checkpointLocation=str(tmp_path / "q"))
            assert query.awaitTermination(300)
            assert query.lastProgress["numInputRows"] == len(given)
        read = theirs.read
        told = [read(message.value()) for message in committed(kafka, "proto-even")]
        assert [row["id"] for row in told] == list(range(0, 100, 2))
        assert [row["note"] for row in told] == [None] * 25 + ["late"] * 25
        assert len(known.subjects["proto-even-value"]) == 1
