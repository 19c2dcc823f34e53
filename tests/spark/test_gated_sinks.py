"""A topic and files behind a gate: what no recovery can take back is published, once."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytest.importorskip("confluent_kafka")

from kafka_topics import rows, tuple_ids
from test_protocol import EVENTS, RATE, wait_for

import holdfast as hf
from holdfast.api.protections import Protection
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast_chaos.kafka_broker import KafkaBroker
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow
FEW = 2_000
OFTEN = {"interval": "200 milliseconds"}


@pytest.mark.parametrize(
    ("topic", "protection"),
    [
        ("gated-rounds", hf.Coordinated(**OFTEN)),
        ("gated-induced", hf.CommunicationInduced(**OFTEN, jitter="50 milliseconds")),
    ],
)
def test_topics_and_files_get_each_result_once_and_before_the_end(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, topic: str, protection: Protection
) -> None:
    kafka.create_topic(topic, 1)
    tap, origin = Tap(tmp_path / "tap", FEW), now_us() + 1_500_000
    flow = hf.Dataflow("gated")
    halves = []
    for name, seed in (("one", 1), ("other", 2)):
        config = NexmarkConfig(events_per_second=2_000, seed=seed)
        bids = NexmarkSource("bid", EVENTS, config, RATE, origin)
        halves.append(flow.source_generator(tap.on(bids), name=name).select("bidder", "price"))
    merged = halves[0].union(halves[1], order="arrival")
    merged.sink("merged")
    merged.sink_kafka("topic", servers=kafka.servers, topic=topic)
    merged.sink_files(str(tmp_path / "files"), every="100 milliseconds", name="files")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=protection)
    for _ in range(2):
        known = len(rows(kafka, topic))
        wait_for(query, lambda known=known: len(rows(kafka, topic)) > known, tap)
        former = query.pid("union[0]")
        os.kill(former, signal.SIGKILL)
        wait_for(query, lambda former=former: query.pid("union[0]") not in (0, former), tap)
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify("merged").is_identical
    assert query.verify("files").is_identical
    expected = query.to_dataframe("merged").collect()
    wanted = Counter((row["bidder"], str(row["price"])) for row in expected)
    assert Counter((row["bidder"], str(row["price"])) for row in rows(kafka, topic)) == wanted
    assert tuple_ids(kafka, topic, "topic[0]") == list(range(len(expected)))
    assert len(query.failures) >= 2
