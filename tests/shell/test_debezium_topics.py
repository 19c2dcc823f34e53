"""Changes of a table through a broker: what is computed of them, in a compacted topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from kafka_topics import produce, wait_for_records
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast_chaos.kafka_broker import KafkaBroker

pytestmark = pytest.mark.slow


def row(number: int, city: int) -> dict[str, Any]:
    return {"id": number, "city": f"city {city}"}


def told(op: str, before: Any, after: Any) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after}).encode()


def test_counts_follow_the_table_over_a_restart(kafka: KafkaBroker, tmp_path: Path) -> None:
    """Everybody of city 0 moves to city 1, but for one who goes; somebody alone in city 2 stays."""
    kafka.create_topic("dbz-people", 2)
    kafka.create_topic("dbz-counts", 1)
    came = [(n % 2, told("r", None, row(n, 0 if n < 20 else 1))) for n in range(40)]
    came.append((0, told("c", None, row(40, 2))))
    moved = [(n % 2, told("u", row(n, 0), row(n, 1))) for n in range(1, 20)]
    produce(kafka, "dbz-people", [*came, (0, b"no JSON")])

    def flow() -> Dataflow:
        made = Dataflow("people")
        people = made.source_kafka(
            servers=kafka.servers,
            topic="dbz-people",
            format="debezium",
            schema=pa.schema([("id", pa.int64()), ("city", pa.string())]),
            key="id",
            dead_letters="undecodable",
        )
        counts = people.key_by("city").aggregate("count(*) AS n", emit="changelog", name="counts")
        counts.sink_kafka("counts", servers=kafka.servers, topic="dbz-counts")
        return made

    with without_spark() as session:
        for part in range(2):
            query = flow().start(
                session,
                checkpointLocation=str(tmp_path / "q"),
                protection=hf.Checkpointed(interval="100 milliseconds"),
            )
            if part == 1:
                produce(kafka, "dbz-people", [*moved, (0, told("d", row(0, 0), None))])
            # One who comes or goes changes one row, and one who moves changes two.
            written = len(came) + part * (2 * len(moved) + 1)
            records = wait_for_records(kafka, "dbz-counts", written, query)
            query.stop()
    assert len(records) == written
    newest = {record.key(): record.value() for record in records}
    assert newest == {
        b"city 0": None,
        b"city 1": b'{"city":"city 1","n":39}',
        b"city 2": b'{"city":"city 2","n":1}',
    }
