"""Elastic restarts of dataflows that read topics of a real broker, to which records keep coming."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

pytest.importorskip("confluent_kafka")

from kafka_topics import produce
from kafka_topics import rows as rows_in
from test_elastic_without_spark import SCHEMA, counted
from without_spark import without_spark

import holdfast as hf
from holdfast.driver.query import Query
from holdfast.driver.rescaling import Rescaling
from holdfast.shell.spark.launch import Cluster
from holdfast_chaos.kafka_broker import KafkaBroker

pytestmark = pytest.mark.slow

PARTITIONS = 3
COLUMNS = ("key", "nth", "total")
PATIENCE_S = 300.0
CHECKPOINTED = hf.Checkpointed(interval="100 milliseconds")


def event(number: int) -> tuple[int, bytes]:
    at = f"2026-01-01T00:{number // 6000:02d}:{number // 100 % 60:02d}.{number % 100:02d}0Z"
    return number % PARTITIONS, json.dumps({"at": at, "key": number % 7, "id": number}).encode()


def taken(rows: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    return [tuple(row[name] for name in COLUMNS) for row in rows]


def ids_of(rows: list[tuple[int, ...]]) -> list[int]:
    """What was counted and added up one by one, sorted; each count of a key is there once."""
    found: list[int] = []
    of_key: dict[int, tuple[int, int]] = {}
    for key, nth, total in sorted(rows):
        before, sum_before = of_key.get(key, (0, 0))
        assert nth == before + 1, f"key {key}: {nth} after {before}"
        found.append(total - sum_before)
        of_key[key] = nth, total
    return sorted(found)


class Job:
    """A dataflow over a topic that ends before offsets which it will get to."""

    def __init__(
        self, broker: KafkaBroker, topic: str, place: Path, records: int, instances: int
    ) -> None:
        self.broker, self.topic, self.place = broker, topic, place
        self.records, self.instances = records, instances
        broker.create_topic(topic, PARTITIONS)
        broker.create_topic(f"{topic}-out", 2)
        broker.create_topic(f"{topic}-table", 2)

    def flow(self, *, is_changed: bool = False) -> hf.Dataflow:
        flow = hf.Dataflow("elastic")
        events = flow.source_kafka(
            servers=self.broker.servers,
            topic=self.topic,
            name="events",
            schema=SCHEMA,
            time="at",
            idle=None,
            end={p: len(range(p, self.records, PARTITIONS)) for p in range(PARTITIONS)},
            partitions=self.instances,
        )
        keyed = events.key_by("key")
        sums = keyed.window(hf.tumbling("70 milliseconds")).aggregate(
            "count(*) AS n", "sum(id) AS total", name="sums"
        )
        sums.sink("sums")
        seen = keyed.aggregate("count(*) AS nth", "sum(id) AS total", emit="changes", name="seen")
        seen.sink("plain")
        seen.sink_files(str(self.place / "files"), name="files", every="200 milliseconds")
        seen.sink_delta(str(self.place / "delta"), name="delta", every="200 milliseconds")
        seen.sink_kafka("out", servers=self.broker.servers, topic=f"{self.topic}-out")
        counts = keyed.aggregate("count(*) AS n", emit="changelog", name="counts")
        counts.sink_kafka("table", servers=self.broker.servers, topic=f"{self.topic}-table")
        counts.sink_delta(str(self.place / "table"), name="by_key", every="200 milliseconds")
        if is_changed:
            keyed.aggregate("sum(id) AS total", emit="changes", name="later").sink("later")
        return flow

    def started(self, session: Any, parallelism: int, *, is_changed: bool = False) -> Query:
        return self.flow(is_changed=is_changed).start(session, **self.where(parallelism))

    def where(self, parallelism: int) -> dict[str, Any]:
        return {
            "checkpointLocation": str(self.place / "location"),
            "protection": CHECKPOINTED,
            "parallelism": parallelism,
        }

    def require_each_row_once(self) -> None:
        streams = self.place / "location" / "streams"
        written = {"log": counted(streams / "plain", COLUMNS)}
        files = map(parquet.read_table, sorted((self.place / "files").glob("*.parquet")))
        written["files"] = taken(pa.concat_tables(files).to_pylist())
        table = pa.table(DeltaTable(str(self.place / "delta")).to_pyarrow_table())
        written["delta"] = taken(table.to_pylist())
        written["topic"] = taken(rows_in(self.broker, f"{self.topic}-out"))
        for kind, rows in written.items():
            assert ids_of(rows) == list(range(self.records)), kind
        wanted: dict[tuple[int, int], list[int]] = {}
        for number in range(self.records):
            wanted.setdefault((number * 10 // 70, number % 7), []).append(number)
        found = counted(streams / "sums", ("key", "n", "total"))
        assert sorted(found) == sorted((k, len(of), sum(of)) for (_, k), of in wanted.items())
        self.require_tables_by_key()

    def require_tables_by_key(self) -> None:
        counts = {key: len(range(key, self.records, 7)) for key in range(7)}
        table = pa.table(DeltaTable(str(self.place / "table")).to_pyarrow_table()).to_pylist()
        assert sorted((row["key"], row["n"]) for row in table) == sorted(counts.items())
        newest: dict[int, int] = {}
        for row in rows_in(self.broker, f"{self.topic}-table"):
            assert row["n"] == newest.get(row["key"], 0) + 1
            newest[row["key"]] = row["n"]
        assert newest == counts


class Producing:
    """Records come one after the other, up to a number that is raised from life to life."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._allowed = 0
        self._changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Producing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def allow(self, records: int) -> None:
        """So many may come; they do so from now on."""
        with self._changed:
            self._allowed = records
            self._changed.notify()

    def wait_for(self, results: int) -> None:
        """Until so many have been counted."""
        deadline_s = time.monotonic() + PATIENCE_S
        place = self._job.place / "location" / "streams" / "plain"
        while not place.exists() or len(counted(place, COLUMNS)) < results:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)

    def _run(self) -> None:
        for first in range(0, self._job.records, 20):
            numbers = range(first, first + 20)
            with self._changed:
                self._changed.wait_for(lambda n=first: self._is_over or n + 20 <= self._allowed)
                if self._is_over:
                    return
            produce(self._job.broker, self._job.topic, [event(number) for number in numbers])


def test_records_of_a_topic_come_once_whatever_the_number_of_instances(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    job = Job(kafka, "elastic-in", tmp_path, 1_800, 1)
    with without_spark() as session, Producing(job) as records:
        for parallelism, number in ((1, 600), (3, 1_200)):
            records.allow(number)
            query = job.started(session, parallelism)
            records.wait_for(number - 300)
            query.stop()
        records.allow(1_800)
        query = job.started(session, 2)
        assert query.awaitTermination(PATIENCE_S)
    job.require_each_row_once()


class Killed(Exception):
    """The driver is gone."""


def test_a_driver_that_is_killed_in_a_drain_costs_nothing(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once before there is a cut, with nodes that live on, and once when all is divided."""
    job = Job(kafka, "killed-in", tmp_path, 1_800, 2)

    def die(*_: object) -> None:
        raise Killed

    with without_spark() as session, Producing(job) as records:
        records.allow(600)
        query = job.started(session, 1)
        records.wait_for(300)
        query.stop()
        records.allow(1_200)
        for place in ("_drain", "_decide"):
            with monkeypatch.context() as patch:
                patch.setattr(Rescaling, place, die)
                if place == "_drain":
                    patch.setattr(Cluster, "stop", lambda *_: None)
                with pytest.raises(Killed):
                    job.started(session, 3)
        query = job.started(session, 3)
        records.wait_for(900)
        query.stop()
        records.allow(1_800)
        query = job.started(session, 2)
        assert query.awaitTermination(PATIENCE_S)
    job.require_each_row_once()


def test_a_record_is_read_by_the_former_dataflow_or_by_the_changed_one(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    job = Job(kafka, "changed-in", tmp_path, 1_200, 1)
    streams = tmp_path / "location" / "streams"
    with without_spark() as session, Producing(job) as records:
        records.allow(600)
        query = job.started(session, 2)
        records.wait_for(300)
        query.stop()
        records.allow(900)
        job.flow().drain(session, **job.where(2))
        before = sorted(counted(streams / "plain", COLUMNS))
        records.allow(1_200)
        query = job.started(session, 2, is_changed=True)
        assert query.awaitTermination(PATIENCE_S)
    job.require_each_row_once()
    assert 300 <= len(before) <= 900
    later = counted(streams / "later", ("total",))
    assert len(later) == job.records - len(before)
