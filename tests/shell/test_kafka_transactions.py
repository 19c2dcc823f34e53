"""How long a sink's transaction may be open, and what becomes of one that was open for longer."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException
from kafka_topics import tuple_ids

from holdfast.shell.kafka import sink as sinks
from holdfast.shell.kafka.client import KafkaCluster, KafkaError
from holdfast.shell.kafka.encoding import Encoder
from holdfast.shell.kafka.sending import Sending, first_part
from holdfast.shell.kafka.sink import KafkaSinkSpec, KafkaSinkWriter
from holdfast.shell.sinks.base import Waits
from holdfast.shell.storage.errors import LogSuperseded
from holdfast_chaos.kafka_broker import KafkaBroker


def batch(first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    return pa.RecordBatch.from_pydict({"id": numbers, "__time_us": numbers})


def spec_of(servers: str, topic: str, place: Path, timeout_ms: int = 60_000) -> KafkaSinkSpec:
    options = {"transaction.timeout.ms": str(timeout_ms)}
    encoder = Encoder("json", ("id",))
    return KafkaSinkSpec("out[0]", KafkaCluster(servers, options), topic, encoder, str(place))


def opened(spec: KafkaSinkSpec, incarnation: int = 1) -> KafkaSinkWriter:
    return spec.open(incarnation, threading.Event(), Waits())


# -- how much is in one ---------------------------------------------------------------------


def sizes(batches: list[tuple[int, pa.RecordBatch]]) -> list[tuple[int, int]]:
    return [(first_id, batch.num_rows) for first_id, batch in batches]


def test_a_transaction_holds_as_much_as_may_be_and_one_tuple_at_least() -> None:
    all_of_them = [(10, batch(10, 4)), (14, batch(14, 6))]  # 16 bytes each.
    assert sizes(first_part(all_of_them, 100, 1_000)) == [(10, 4), (14, 6)]
    assert sizes(first_part(all_of_them, 7, 1_000)) == [(10, 4), (14, 3)]
    assert sizes(first_part(all_of_them, 4, 1_000)) == [(10, 4)]
    assert sizes(first_part(all_of_them, 100, 16 * 5)) == [(10, 4), (14, 1)]
    assert sizes(first_part(all_of_them, 100, 1)) == [(10, 1)]
    assert first_part([], 100, 1) == []
    empty = pa.RecordBatch.from_pydict({"nothing": pa.nulls(3)})
    assert sizes(first_part([(0, empty)], 2, 1)) == [(0, 2)]


@pytest.mark.slow
def test_much_that_comes_at_once_goes_out_in_several(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "_TRANSACTION_TUPLES", 100)
    kafka.create_topic("in-parts", 2)
    writer = opened(spec_of(kafka.servers, "in-parts", tmp_path))
    asked: list[int] = []
    attempt = KafkaSinkWriter._attempt

    def unlucky(self: KafkaSinkWriter, batches: object, next_id: int, patience_s: float) -> bool:
        asked.append(next_id)
        done = attempt(self, batches, next_id, patience_s)  # type: ignore[arg-type]
        return done and len(asked) not in (2, 4)  # Those of which nobody hears.

    monkeypatch.setattr(KafkaSinkWriter, "_attempt", unlucky)
    writer.append(0, 0, batch(0, 250), 0, 0)
    writer.append(0, 250, batch(250, 120), 0, 0)
    writer.sync()
    assert asked == [100, 200, 300, 370]
    assert tuple_ids(kafka, "in-parts", "out[0]") == list(range(370))
    writer.append(0, 370, batch(370, 5), 0, 0)
    writer.sync()
    assert opened(spec_of(kafka.servers, "in-parts", tmp_path), 2).next_id == 375


# -- one that is open for too long ----------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        Code.INVALID_TRANSACTION_TIMEOUT,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_what_the_broker_will_never_allow_is_no_successor(tmp_path: Path, code: int) -> None:
    """Whoever is taken for superseded is started again, and would meet the same."""
    writer = object.__new__(KafkaSinkWriter)
    writer._spec = spec_of("localhost:1", "t", tmp_path)

    def init_transactions(_: float) -> None:
        raise KafkaException(Code(code, "as it says", fatal=True))

    with pytest.raises(KafkaError, match=r"sink out\[0\]: as it says"):
        writer._patiently(init_transactions)


def test_what_a_successor_has_fenced_is_superseded(tmp_path: Path) -> None:
    writer = object.__new__(KafkaSinkWriter)
    writer._spec = spec_of("localhost:1", "t", tmp_path)

    def init_transactions(_: float) -> None:
        raise KafkaException(Code(Code._FENCED, "as it says", fatal=True))

    with pytest.raises(LogSuperseded, match=r"sink out\[0\]: as it says"):
        writer._patiently(init_transactions)


@pytest.mark.slow
def test_a_timeout_that_the_broker_does_not_allow_is_named(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("too-patient", 1)
    with pytest.raises(KafkaError, match=r"sink out\[0\]: .*max\.transaction\.timeout\.ms"):
        opened(spec_of(kafka.servers, "too-patient", tmp_path, 3_600_000))


@pytest.mark.slow
def test_a_transaction_that_the_broker_has_ended_is_named_and_made_again(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topic("too-slow", 1)
    spec = spec_of(kafka.servers, "too-slow", tmp_path, 1_000)
    writer = opened(spec)
    flush = Sending.flush

    def slow(self: Sending) -> None:
        flush(self)
        ended_s = time.monotonic() + 4
        while time.monotonic() < ended_s:
            self.moved_s = time.monotonic()
            time.sleep(0.1)

    monkeypatch.setattr(Sending, "flush", slow)
    writer.append(0, 0, batch(0, 10), 0, 0)
    with pytest.raises(LogSuperseded, match=r"open for \d+ s, .*transaction\.timeout\.ms=1000"):
        writer.sync()
    monkeypatch.setattr(Sending, "flush", flush)
    replacement = opened(spec, 2)
    assert replacement.next_id == 0
    replacement.append(0, 0, batch(0, 10), 0, 0)
    replacement.sync()
    assert tuple_ids(kafka, "too-slow", "out[0]") == list(range(10))
