"""A partition of a topic falls silent; what is tentative goes into a topic of its own. [DPC]"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytest.importorskip("confluent_kafka")

from kafka_topics import committed, produce, rows, tuple_ids

import holdfast as hf
from holdfast.core.replication.feed_reading import FeedReading
from holdfast.driver.query import Query
from holdfast_chaos.kafka_broker import KafkaBroker

pytestmark = pytest.mark.slow
PER_SECOND = 10


def readings(partition: int, seconds: range) -> list[tuple[int, bytes]]:
    """Ten a second, of one partition."""
    times = [f"2026-01-01T00:00:{s:02d}.{n}Z" for s in seconds for n in range(PER_SECOND)]
    return [(partition, json.dumps({"at": at}).encode()) for at in times]


def counting(kafka: KafkaBroker) -> hf.Dataflow:
    """Readings per second of both partitions, each of which an instance reads."""
    flow = hf.Dataflow("silent-partition")
    read = flow.source_kafka(
        servers=kafka.servers,
        topic="readings",
        name="readings",
        schema="at TIMESTAMP",
        time="at",
        idle=None,
        end={0: 200, 1: 200},
        partitions=2,
    )
    counts = read.unit("all").window(hf.tumbling("1 second")).aggregate("count(*) AS n")
    counts.sink_kafka(
        "out", servers=kafka.servers, topic="counted", key="n", tentative="counted-tentative"
    )
    return flow


def wait_until(is_so: Callable[[], bool], query: Query) -> None:
    while not is_so():
        assert not query.awaitTermination(0.1)


def kinds(said: list[Any]) -> list[str]:
    return [json.loads(message.value())["_type"] for message in said]


def test_a_silent_partition_is_corrected_and_what_is_tentative_has_a_topic_of_its_own(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    for topic, partitions in (("readings", 2), ("counted", 2), ("counted-tentative", 3)):
        kafka.create_topic(topic, partitions)
    query = counting(kafka).start(
        spark,
        checkpointLocation=str(tmp_path),
        # So long that the second partition is missed only where it is silent, however slow the
        # machine is.
        protection=hf.Replicated(delay="10 seconds"),
    )

    def said() -> list[Any]:
        return committed(kafka, "counted-tentative")

    try:
        for partition in (0, 1):
            produce(kafka, "readings", readings(partition, range(5)))
        wait_until(lambda: len(rows(kafka, "counted")) >= 4, query)
        produce(kafka, "readings", readings(0, range(5, 10)))
        wait_until(lambda: "tentative" in kinds(said()), query)
        former = query.nodes["all[0]"]
        assert former is not None
        os.kill(former, signal.SIGKILL)
        wait_until(lambda: kinds(said()).count("undo") > 0, query)
        produce(kafka, "readings", readings(0, range(10, 20)))
        produce(kafka, "readings", readings(1, range(5, 20)))
        assert query.awaitTermination(300)
    finally:
        query.stop()
    assert {message.key() for message in said()} == {b"out[0]"}
    assert len({message.partition() for message in said()}) == 1, "they come in order"
    reading = FeedReading()
    for message in said():
        row = json.loads(message.value())
        reading.take(row["_type"], row["_tuple_id"], row["_run"])
        if row["_type"] == "tentative":
            assert (row["_missing"], row["_share"]) == ("readings[1]", 0.5)
            assert row["n"] in (PER_SECOND, 2 * PER_SECOND), "the first window had all"
    assert (reading.run, reading.undone) == ("", reading.tentative)
    stable = Counter(row["n"] for row in rows(kafka, "counted"))
    assert stable == {2 * PER_SECOND: 20}, "each once, of both partitions"
    assert sorted(tuple_ids(kafka, "counted", "out[0]")) == list(range(20))
