"""Topic to topic on real Spark tasks: brokers and nodes are killed, nothing is lost or doubled."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytest.importorskip("confluent_kafka")

from kafka_topics import produce, rows, tuple_ids

import holdfast as hf
from holdfast.api.protections import Protection
from holdfast.driver.query import Query
from holdfast.errors import DataflowError, QueryFailedError, UnsupportedError
from holdfast_chaos.kafka_broker import KafkaBroker

pytestmark = pytest.mark.slow

SCHEMA = "id BIGINT, bidder BIGINT, at TIMESTAMP"
_PATIENCE_S = 300.0


def events(count: int) -> list[tuple[int, bytes]]:
    """So many bids, a hundred per second, over three partitions."""
    return [
        (
            n % 3,
            json.dumps(
                {"id": n, "bidder": n % 7, "at": f"2026-01-01T{_clock(n)}.{n % 100:02d}Z"}
            ).encode(),
        )
        for n in range(count)
    ]


def _clock(number: int) -> str:
    second = number // 100
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def expected(count: int) -> Counter[tuple[str, int, int]]:
    """Bids per bidder and ten seconds."""
    counts = Counter((_clock(n // 1000 * 1000), n % 7) for n in range(count))
    return Counter((f"2026-01-01T{start}.000000Z", who, n) for (start, who), n in counts.items())


def flow_of(
    broker: KafkaBroker,
    name: str,
    *,
    end: Any = None,
    instances: int = 1,
    exactly_once: bool = True,
) -> hf.Dataflow:
    """Counts bids of topic `<name>-in` into `<name>-out`, and into a log."""
    flow = hf.Dataflow(name)
    bids = flow.source_kafka(
        servers=broker.servers,
        topic=f"{name}-in",
        name="bids",
        schema=SCHEMA,
        time="at",
        end=end,
        partitions=instances,
    )
    windows = bids.key_by("bidder").window(hf.tumbling("10 seconds"))
    counts = windows.aggregate("count(*) AS n", name="counts")
    counts.sink_kafka(
        "out",
        servers=broker.servers,
        topic=f"{name}-out",
        key="bidder",
        exactly_once=exactly_once,
    )
    counts.sink("logged")
    return flow


def counted(broker: KafkaBroker, topic: str) -> Counter[tuple[str, int, int]]:
    return Counter((row["window_start"], row["bidder"], row["n"]) for row in rows(broker, topic))


def wait_until(is_so: Callable[[], bool], query: Query) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not is_so():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline_s, query.status
        time.sleep(0.01)


def has_note(query: Query, text: str) -> bool:
    return any(text in note for note in query.status["notes"])


def kill(part: str, broker: KafkaBroker, query: Query) -> None:
    """Kill a broker or a node, and wait until a killed node is there again."""
    if part == "broker":
        broker.kill()
        return
    former = query.pid(part)
    os.kill(former, signal.SIGKILL)
    wait_until(lambda: query.pid(part) != former, query)


@pytest.mark.parametrize(
    ("name", "protection", "killed", "is_exactly_once"),
    [
        ("replayed", hf.UpstreamBackup(), ("broker", "counts[0]", "bids[0]"), True),
        ("stored", hf.Checkpointed(interval="300 milliseconds"), ("counts[0]", "broker"), True),
        ("standing", hf.ActiveStandby(), ("bids[1]", "counts[0]", "broker"), True),
        ("repeated", hf.UpstreamBackup(), ("broker", "counts[0]", "bids[0]"), False),
    ],
)
def test_killed_brokers_and_nodes_lose_nothing_and_double_nothing(
    spark: SparkSession,
    tmp_path: Path,
    kafka: KafkaBroker,
    name: str,
    protection: Protection,
    killed: tuple[str, ...],
    is_exactly_once: bool,
) -> None:
    total = 60_000
    kafka.create_topic(f"{name}-in", 3)
    kafka.create_topic(f"{name}-out", 2)
    flow = flow_of(
        kafka,
        name,
        end=dict.fromkeys(range(3), total // 3),
        instances=2,
        exactly_once=is_exactly_once,
    )
    query = flow.start(spark, checkpointLocation=str(tmp_path), protection=protection)
    try:
        produce(kafka, f"{name}-in", events(total)[: total // 2])
        wait_until(lambda: query.lastProgress["numOutputRows"] > 0, query)
        rest = threading.Thread(
            target=produce, args=(kafka, f"{name}-in", events(total)[total // 2 :])
        )
        rest.start()
        for part in killed:
            kill(part, kafka, query)
        wait_until(lambda: has_note(query, "waits for the Kafka broker"), query)
        kafka.start()
        rest.join()
        assert query.awaitTermination(_PATIENCE_S)
    finally:
        query.stop()
    wanted = expected(total)
    found, ids = counted(kafka, f"{name}-out"), tuple_ids(kafka, f"{name}-out", "out[0]")
    if not is_exactly_once:  # What is there twice is the same twice.
        assert set(found) == set(wanted)
        ids = sorted(set(ids))
    else:
        assert found == wanted
    assert ids == list(range(sum(wanted.values())))
    assert set(killed) - {"broker"} <= {failure["node"] for failure in query.failures}
    assert query.lastProgress["lateRows"] == 0
    assert query.verify("logged").is_identical
    with pytest.raises(UnsupportedError, match=f"the Kafka topic '{name}-out'; read it there"):
        query.to_dataframe("out")


def test_a_query_waits_for_a_broker_and_goes_on_where_it_was_stopped(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    kafka.create_topic("patient-in", 3)
    kafka.create_topic("patient-out", 1)
    produce(kafka, "patient-in", events(5_000))
    flow = flow_of(kafka, "patient")
    kafka.kill()
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    wait_until(lambda: has_note(query, "source bids waits for the Kafka broker"), query)
    wait_until(lambda: has_note(query, "sink out[0] waits for the Kafka broker"), query)
    kafka.start()
    # The last windows stay open: nothing newer comes.
    sinks, windows, bidders = 2, 4, 7
    wait_until(lambda: query.lastProgress["numOutputRows"] == sinks * windows * bidders, query)
    assert not query.failures
    query.stop()
    produce(kafka, "patient-in", events(10_000)[5_000:])
    again = flow_of(kafka, "patient").start(spark, checkpointLocation=str(tmp_path))
    wanted = expected(9_000)
    wait_until(lambda: counted(kafka, "patient-out").total() >= wanted.total(), again)
    again.stop()
    assert counted(kafka, "patient-out") == wanted


def test_an_instance_without_records_holds_up_no_window_and_a_source_that_does_is_named(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    kafka.create_topic("sparse", 2)
    kafka.create_topic("silent", 1)
    produce(kafka, "sparse", [(0, value) for _, value in events(1_000)])
    flow = hf.Dataflow("sparse")
    given: dict[str, Any] = {"servers": kafka.servers, "schema": SCHEMA, "time": "at"}
    bids = flow.source_kafka(
        topic="sparse", name="bids", idle="500 milliseconds", partitions=2, **given
    )
    counts = bids.window(hf.tumbling("2 seconds")).aggregate("count(*) AS n", name="counts")
    counts.sink("counted")
    silent = flow.source_kafka(topic="silent", name="silent", idle=None, **given)
    silent.union(bids).sink("merged")
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    note = "source silent[0] has held up event time at its beginning for"
    wait_until(lambda: query.lastProgress["numOutputRows"] == 4, query)
    query.kill("bids[1]")
    wait_until(lambda: has_note(query, note), query)
    (held,) = [each for each in query.lastProgress["heldUp"] if each["source"] == "silent"]
    assert held["why"] == "partition 0 of topic 'silent'"
    produce(kafka, "sparse", [(0, value) for _, value in events(1_500)[1_000:]])
    wait_until(lambda: query.lastProgress["numOutputRows"] == 7, query)
    query.stop()
    assert query.to_dataframe("merged").count() == 0
    assert [row.n for row in query.to_dataframe("counted").orderBy("window_start").collect()] == [
        200
    ] * 7


def test_records_that_cannot_be_decoded_are_dead_letters_or_an_error(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    kafka.create_topic("dirty-in", 3)
    kafka.create_topic("dirty-out", 1)
    bad = [(0, b"{"), (1, None), (2, b'{"id": "x"}')]
    produce(kafka, "dirty-in", [*events(300), *bad, *events(300)])
    flow = hf.Dataflow("dirty")
    bids = flow.source_kafka(
        servers=kafka.servers,
        topic="dirty-in",
        schema=SCHEMA,
        time="at",
        delay="1 minute",
        end="latest",
        dead_letters="dead",
    )
    bids.sink("good")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "dead"))
    assert query.awaitTermination(_PATIENCE_S)
    assert query.verify("good").is_identical
    assert query.verify("good").actual == 600
    dead = query.to_dataframe("dead").orderBy("partition").collect()
    assert [(r.partition, r.offset) for r in dead] == [(0, 100), (1, 100), (2, 100)]
    assert [r.value for r in dead] == [b"{", None, b'{"id": "x"}']
    assert all(r.error for r in dead)

    query = flow_of(kafka, "dirty", end="latest").start(
        spark, checkpointLocation=str(tmp_path / "failed")
    )
    with pytest.raises(QueryFailedError, match=r"partition \d, offset 100: .*dead_letters="):
        query.awaitTermination(_PATIENCE_S)


def test_strings_keep_their_keys_and_positions(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    kafka.create_topic("texts", 2)
    produce(kafka, "texts", [(n % 2, f"text {n}".encode()) for n in range(100)])
    for kind, value in (("string", "text 7"), ("bytes", b"text 7")):
        flow = hf.Dataflow(kind)
        texts = flow.source_kafka(servers=kafka.servers, topic="texts", format=kind, end="latest")
        texts.sink("copy")
        query = flow.start(spark, checkpointLocation=str(tmp_path / kind))
        assert query.awaitTermination(_PATIENCE_S)
        (row,) = query.to_dataframe("copy").where("partition = 1 AND offset = 3").collect()
        assert (row.key, row.value) == (None, value)
        assert row.timestamp.year >= 2024
        assert query.verify("copy").is_identical


def test_what_cannot_be_is_refused_before_anything_starts(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    servers = kafka.servers
    flow = hf.Dataflow("refused")

    def source(**more: Any) -> hf.Stream:
        given = {"servers": servers, "topic": "nowhere", "schema": SCHEMA, "time": "at"}
        return flow.source_kafka(**{**given, **more})  # type: ignore[arg-type]

    for more, reason in (
        ({"format": "xml"}, "one of bytes, string, json, arrow, debezium, avro, protobuf"),
        ({"format": "avro"}, "needs registry='http://host:8081'"),
        ({"schema": None}, "needs a schema"),
        ({"schema": "id BIGINT, of VARIANT"}, "Holdfast carries"),
        ({"schema": "id BIGINT, of MAP<STRING, INT>"}, "not read from JSON"),
        ({"time": "when"}, "no column 'when'"),
        ({"time": "id"}, "no timestamp"),
        ({"begin": "yesterday"}, "'earliest' or 'latest'"),
        ({"end": {0: -1}}, "offsets by partition"),
        ({"options": {"enable.auto.commit": "true"}}, "Holdfast's own"),
        ({"options": {"no.such.option": "true"}}, "no.such.option"),
        ({"servers": ""}, "host:port"),
        ({"topic": ""}, "name of one topic"),
        ({"delay": "soon"}, "soon"),
    ):
        with pytest.raises((DataflowError, UnsupportedError), match=reason):
            source(**more)
    stream = source()
    for more, reason in (
        ({"format": "string"}, "column 'value' of type string"),
        ({"key": "who"}, "no key column 'who'"),
        ({"commit_interval": "often"}, "often"),
    ):
        with pytest.raises(DataflowError, match=reason):
            stream.sink_kafka("out", servers=servers, topic="t", **more)
    stream.sink("out")
    with pytest.raises(DataflowError, match="there is no topic 'nowhere'"):
        flow.start(spark, checkpointLocation=str(tmp_path))
    kafka.create_topic("three", 3)
    wide = hf.Dataflow("wide")
    wide.source_kafka(servers=servers, topic="three", schema=SCHEMA, time="at", partitions=4).sink(
        "out"
    )
    with pytest.raises(DataflowError, match="has 3 partitions, fewer than the 4 instances"):
        wide.start(spark, checkpointLocation=str(tmp_path))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka", None)
    with pytest.raises(DataflowError, match="with the extra 'kafka'"):
        hf.Dataflow("d").source_kafka(servers="localhost:1", topic="t", format="string")
