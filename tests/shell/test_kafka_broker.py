"""Kafka's side of sources and sinks on a real broker, killed and restarted."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from kafka_topics import committed, produce, tuple_ids
from test_elastic_without_spark import META, put
from without_spark import without_spark

import holdfast as hf
from holdfast.core.model.ids import END_US, Incarnation
from holdfast.core.queues.idle_floor import idle_floor_us
from holdfast.core.wire.log_opening import BeginAt
from holdfast.shell.kafka.client import KafkaCluster, KafkaError
from holdfast.shell.kafka.decoding import Decoder, attributes_of
from holdfast.shell.kafka.encoding import Encoder
from holdfast.shell.kafka.ingest import TopicReading
from holdfast.shell.kafka.sending import GivenUp
from holdfast.shell.kafka.sink import KafkaSinkSpec, KafkaSinkWriter, Waits
from holdfast.shell.kafka.source import KafkaReader, KafkaSourceSpec
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.errors import LogSuperseded, StorageError
from holdfast.shell.storage.stream_log import StreamLogWriter
from holdfast_chaos.kafka_broker import KafkaBroker

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
SECOND_US = 1_000_000
_PATIENCE_S = 300.0


def event(number: int, second: int) -> bytes:
    return json.dumps({"id": number, "at": f"2026-01-01T00:00:{second:02d}Z"}).encode()


def source(
    broker: KafkaBroker,
    topic: str,
    place: Path,
    *,
    instance: int = 0,
    instances: int = 1,
    end: str | dict[int, int] | None = None,
    begin: str | dict[int, int] = "earliest",
    idle_ms: int | None = None,
    delay_us: int = 0,
) -> KafkaSourceSpec:
    decoder = Decoder("json", attributes_of("json", SCHEMA), "at")
    cluster = KafkaCluster(broker.servers)
    reading = TopicReading(
        "s", cluster, topic, decoder, delay_us, idle_ms, begin, end, instance, instances
    )
    return KafkaSourceSpec(reading, str(place / str(instance)))


class Node:
    """Reads a source as a node does, from an id on."""

    def __init__(self, reader: KafkaReader, from_id: int = 0) -> None:
        self.reader = reader
        self.next_id = from_id
        self.boundary_us = -(2**63)
        self.late_rows = 0
        self.rows: list[int] = []

    def read_until(self, is_enough: Callable[["Node"], bool]) -> "Node":
        deadline_s = time.monotonic() + _PATIENCE_S
        while not is_enough(self):
            assert time.monotonic() < deadline_s, f"{self.next_id} {self.reader.trouble}"
            self.read()
            time.sleep(0.002)
        return self

    def read(self) -> None:
        found = self.reader.read(self.next_id, 10_000)
        self.boundary_us = max(self.boundary_us, found.boundary_us)
        self.late_rows = found.late_rows
        for batch in found.batches:
            assert batch.first_id == self.next_id
            self.next_id = batch.next_id
            self.rows += batch.batch.column("id").to_pylist()


def led(spec: KafkaSourceSpec, incarnation: int, from_id: int = 0) -> Node:
    reader = spec.open()
    reader.lead(Incarnation(incarnation))
    return Node(reader, from_id)


def has_ended(node: Node) -> bool:
    return node.boundary_us == END_US


def test_instances_share_the_partitions_and_end_where_they_were_told(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("shared", 5)
    produce(kafka, "shared", [(n % 5, event(n, 1)) for n in range(500)])
    specs = [
        source(kafka, "shared", tmp_path, instance=i, instances=2, end="latest") for i in (0, 1)
    ]
    nodes = [led(spec, 1).read_until(has_ended) for spec in specs]
    assert sorted(nodes[0].rows) == [n for n in range(500) if n % 5 % 2 == 0]
    assert sorted(nodes[1].rows) == [n for n in range(500) if n % 5 % 2 == 1]
    for node in nodes:
        node.reader.close()
    produce(kafka, "shared", [(n % 5, event(n, 2)) for n in range(50)])
    again = led(specs[0], 2).read_until(has_ended)
    assert again.rows == nodes[0].rows  # The end was settled at the first start.
    again.reader.close()


def test_offsets_say_where_to_begin_and_to_end(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("span", 2)
    produce(kafka, "span", [(n % 2, event(n, 1)) for n in range(100)])
    spec = source(kafka, "span", tmp_path, begin={0: 10}, end={0: 20, 1: 5})
    node = led(spec, 1).read_until(has_ended)
    assert sorted(node.rows) == sorted([*range(20, 40, 2), *range(1, 10, 2)])
    node.reader.close()


def test_every_incarnation_and_every_follower_reads_the_same_tuples(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("again", 3)
    spec = source(kafka, "again", tmp_path)
    read: list[int] = []
    for incarnation in (1, 2, 3):
        first = 1000 * incarnation
        produce(kafka, "again", [(n % 3, event(n, 1)) for n in range(first, first + 1000)])
        node = led(spec, incarnation).read_until(lambda n, due=1000 * incarnation: n.next_id == due)
        assert node.rows[: len(read)] == read
        read = node.rows
        node.reader.close()
        if incarnation == 2:  # As after a long time: positions come from the log alone.
            for name in tmp_path.glob("0/positions/*"):
                name.unlink()
    assert sorted(read) == list(range(1000, 4000))
    follower = Node(spec.open(), 1500).read_until(lambda n: n.next_id == 3000)
    assert follower.rows == read[1500:]
    follower.reader.close()


def test_what_a_successor_may_have_missed_no_zombie_shows(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The successor finds the log's end. 2. The zombie logs a record. 3. A segment begins."""
    kafka.create_topic("missed", 1)
    spec = source(kafka, "missed", tmp_path)
    produce(kafka, "missed", [(0, event(0, 0))])
    zombie = led(spec, 1).read_until(lambda node: node.next_id == 1)
    begin = StreamLogWriter._begin

    def found(writer: StreamLogWriter, at: BeginAt) -> None:
        produce(kafka, "missed", [(0, event(1, 1))])
        with pytest.raises(LogSuperseded, match="claimed by incarnation 2"):
            zombie.read_until(lambda node: node.next_id == 2)
        begin(writer, at)

    monkeypatch.setattr(StreamLogWriter, "_begin", found)
    successor = led(spec, 2)
    monkeypatch.undo()
    assert zombie.rows == [0]
    successor.read_until(lambda node: node.next_id == 2)
    assert successor.rows == [0, 1]
    zombie.reader.close()
    successor.reader.close()


def test_a_log_that_other_instances_have_filled_is_refused(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("divided", 2)
    produce(kafka, "divided", [(n % 2, event(n, 1)) for n in range(10)])
    led(source(kafka, "divided", tmp_path), 1).read_until(lambda n: n.next_id == 10).reader.close()
    node = led(source(kafka, "divided", tmp_path, instances=2), 2)
    with pytest.raises(KafkaError, match=r"has partitions \[1\] of topic 'divided'"):
        node.read_until(has_ended)
    node.reader.close()


def test_what_drains_gives_what_is_logged_and_its_successor_reads_on(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("drained", 2)
    spec = source(kafka, "drained", tmp_path)
    produce(kafka, "drained", [(n % 2, event(n, 1)) for n in range(100)])
    led(spec, 1).read_until(lambda node: node.next_id == 100).reader.close()
    produce(kafka, "drained", [(n % 2, event(n, 2)) for n in range(100, 150)])
    node = led(replace(spec, is_draining=True), 2)
    assert node.reader.rows_read is None
    node.read_until(lambda node: node.reader.rows_read is not None)
    assert (node.next_id, node.reader.rows_read) == (100, 100)
    assert node.boundary_us == (1_767_225_600 + 1) * SECOND_US
    node.reader.close()
    after = led(spec, 3).read_until(lambda node: node.next_id == 150)
    assert after.rows[:100] == node.rows
    assert sorted(after.rows) == list(range(150))
    after.reader.close()


def test_a_superseded_incarnation_cannot_lead(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("fenced", 1)
    spec = source(kafka, "fenced", tmp_path)
    newer = led(spec, 2)
    with pytest.raises(StorageError, match="claimed by incarnation 2"):
        led(spec, 1)
    newer.reader.close()
    ahead = spec.open()
    ahead._read_before = 17  # It has read what the log has lost.
    with pytest.raises(LogSuperseded, match="has lost tuples from 0 on"):
        ahead.lead(Incarnation(3))
    ahead.close()


def test_late_tuples_are_put_aside_and_an_idle_partition_holds_up_nothing(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("idle", 2)
    waiting = led(source(kafka, "idle", tmp_path / "waits"), 1)
    node = led(source(kafka, "idle", tmp_path / "idle", idle_ms=200), 1)
    produce(kafka, "idle", [(0, event(n, n)) for n in range(10)])
    start_us = 1_767_225_600 * SECOND_US
    node.read_until(lambda n: n.boundary_us == start_us + 9 * SECOND_US)
    waiting.read_until(lambda n: n.next_id == 10)
    assert waiting.boundary_us < 0  # Nothing is known of partition 1.
    waiting.reader.close()
    produce(kafka, "idle", [(1, event(100, 3)), (1, event(101, 9))])
    node.read_until(lambda n: n.next_id == 11)  # Later ones of the other would make it late.
    produce(kafka, "idle", [(0, event(102, 20))])
    node.read_until(lambda n: n.next_id == 12)
    assert node.rows[10:] == [101, 102] or node.rows[10:] == [102, 101]
    node.reader.close()


def test_an_idle_instance_promises_what_the_others_have_and_so_does_its_replacement(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("floor", 2)
    busy, idle = (
        led(source(kafka, "floor", tmp_path, instance=i, instances=2, idle_ms=200), 1)
        for i in (0, 1)
    )
    start_us = 1_767_225_600 * SECOND_US
    produce(kafka, "floor", [(0, event(n, n)) for n in range(10)])

    def hears(node: Node) -> bool:
        busy.read()
        floor_us = idle_floor_us([busy.reader.reached, node.reader.reached])
        node.reader.tell_floor(floor_us)
        return node.boundary_us == start_us + 9 * SECOND_US

    idle.read_until(lambda _: idle.reader.reached is not None and idle.reader.reached.is_idle)
    assert idle.boundary_us < 0
    idle.read_until(hears)
    idle.reader.close()
    produce(kafka, "floor", [(1, event(100, 8)), (1, event(101, 9))])
    again = led(source(kafka, "floor", tmp_path, instance=1, instances=2, idle_ms=200), 2)
    again.read_until(lambda n: n.next_id == 1)
    assert again.rows == [101]
    late = again.reader._ingest
    assert late is not None
    assert late.late_rows == 1
    again.reader.close()
    heir = led(source(kafka, "floor", tmp_path, instance=1, instances=2, idle_ms=200), 3)
    heir.read_until(lambda n: n.late_rows == 1)
    heir.reader.close()
    busy.reader.close()


def test_a_promise_at_the_end_of_a_log_is_shown_by_whoever_takes_over(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("promised", 2)
    spec = source(kafka, "promised", tmp_path, idle_ms=200)
    produce(kafka, "promised", [(0, event(1, 9))])
    promised_us = (1_767_225_600 + 9) * SECOND_US
    node = led(spec, 1).read_until(lambda n: n.boundary_us == promised_us)
    node.reader.close()
    spec = source(kafka, "promised", tmp_path, idle_ms=None)  # Nothing moves it any more.
    for incarnation in (2, 3):
        again = led(spec, incarnation).read_until(lambda n: n.boundary_us == promised_us)
        assert again.rows == [1]
        again.reader.close()


def test_the_partition_that_holds_up_time_is_named(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("held", 3)
    node = led(source(kafka, "held", tmp_path), 1)
    produce(kafka, "held", [(p, event(p, 9)) for p in (0, 2)])
    node.read_until(lambda n: n.next_id == 2 and n.reader.is_held_up)
    assert node.reader.slowest == "partition 1 of topic 'held'"
    node.reader.close()


def test_a_broker_that_is_killed_and_restarted_costs_a_source_nothing(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("restarted", 3)
    spec = source(kafka, "restarted", tmp_path)
    produce(kafka, "restarted", [(n % 3, event(n, 1)) for n in range(3000)])
    node = led(spec, 1).read_until(lambda n: n.next_id > 0)
    kafka.kill()
    node.read_until(lambda n: "waits for the Kafka broker" in n.reader.trouble)
    node.reader.close()
    other = led(spec, 2)  # The node dies too, and its replacement finds no broker.
    other.read_until(lambda n: "waits for the Kafka broker" in n.reader.trouble)
    kafka.start()
    produce(kafka, "restarted", [(n % 3, event(n, 2)) for n in range(3000, 6000)])
    other.read_until(lambda n: n.next_id >= 6000)
    assert sorted(other.rows) == list(range(6000))
    assert other.reader.trouble == ""
    other.reader.close()


def test_records_that_retention_took_are_missed_aloud(kafka: KafkaBroker, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition

    kafka.create_topic("retained", 1)
    produce(kafka, "retained", [(0, event(n, 1)) for n in range(100)])
    spec = source(kafka, "retained", tmp_path, end={0: 20})
    node = led(spec, 1).read_until(has_ended)
    node.reader.close()
    spec = source(kafka, "retained", tmp_path / "next", begin={0: 20})
    admin = kafka.admin()
    for deleted in admin.delete_records([TopicPartition("retained", 0, 50)]).values():
        deleted.result(30)
    node = led(spec, 1)
    with pytest.raises(KafkaError, match=r"retained\[0\] does not hold offset 20"):
        node.read_until(has_ended)
    node.reader.close()


@pytest.mark.parametrize("records", [0, 5, 300])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_topic_that_was_made_anew_is_refused_by_name(
    kafka: KafkaBroker, tmp_path: Path, is_running: bool, records: int
) -> None:
    """With no record, fewer than were read, or more: nothing is skipped in silence."""
    topic = f"anew-{is_running}-{records}"
    kafka.create_topic(topic, 1)
    produce(kafka, topic, [(0, event(n, 1)) for n in range(100)])
    spec = source(kafka, topic, tmp_path)
    node = led(spec, 1).read_until(lambda n: n.next_id == 100)
    if not is_running:
        node.reader.close()
    admin = kafka.admin()
    for gone in admin.delete_topics([topic]).values():
        gone.result(30)
    kafka.create_topic(topic, 1)
    produce(kafka, topic, [(0, event(1_000 + n, 2)) for n in range(records)])
    if not is_running:
        node = led(spec, 2, from_id=100)
    with pytest.raises(KafkaError, match=f"topic '{topic}' is not the one that source s has read"):
        node.read_until(has_ended)
    node.reader.close()


# -- sinks ----------------------------------------------------------------------------------


def batch(first: int, count: int) -> pa.RecordBatch:
    numbers = list(range(first, first + count))
    return pa.RecordBatch.from_pydict({"id": numbers, "__time_us": numbers})


def sink(
    broker: KafkaBroker,
    topic: str,
    place: Path,
    incarnation: int,
    waits: Waits | None = None,
    *,
    is_exactly_once: bool = True,
    options: dict[str, str] | None = None,
    transactional_id: str | None = None,
) -> KafkaSinkWriter:
    cluster = KafkaCluster(broker.servers, options or {})
    encoder = Encoder("json", ("id",))
    spec = KafkaSinkSpec(
        *("out[0]", cluster, topic, encoder, str(place), transactional_id),
        is_exactly_once=is_exactly_once,
    )
    return spec.open(incarnation, threading.Event(), waits or Waits())


def write(writer: KafkaSinkWriter, first: int, count: int) -> None:
    writer.append(0, first, batch(first, count), 0, 0)


def test_a_sink_goes_on_where_the_last_transaction_was_committed(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("sunk", 3)
    former = sink(kafka, "sunk", tmp_path, 1)
    assert former.next_id == 0
    write(former, 0, 100)
    former.sync()
    write(former, 100, 50)  # Appended, and never committed.
    with pytest.raises(StorageError, match="tuple 200, expected 150"):
        write(former, 200, 1)
    writer = sink(kafka, "sunk", tmp_path, 2)
    assert writer.next_id == 100
    write(writer, 100, 60)
    writer.sync()
    assert tuple_ids(kafka, "sunk", "out[0]") == list(range(160))
    keys = {m.key(): m.partition() for m in committed(kafka, "sunk")}
    assert len(keys) == 160
    assert set(keys.values()) == {0, 1, 2}


@pytest.mark.parametrize("turn", [0, 1])
def test_a_zombie_writes_nothing_that_a_reader_sees(
    kafka: KafkaBroker, tmp_path: Path, turn: int
) -> None:
    topic = f"undead-{turn}"
    kafka.create_topic(topic, 1)
    zombie = sink(kafka, topic, tmp_path, 1)
    write(zombie, 0, 10)
    zombie.sync()
    # 1. It has begun a transaction, and records of it are in the topic. 2. It stalls.
    producer = zombie._transactions[turn]
    producer.begin_transaction()
    producer.produce(topic, b'{"id": -1}')
    assert producer.flush(30) == 0
    # 3. Its successor takes over. 4. It comes back.
    writer = sink(kafka, topic, tmp_path, 2)
    assert writer.next_id == 10
    with pytest.raises(Exception, match=r"(?i)fatal|fenced"):
        producer.commit_transaction(30)
    write(zombie, 10, 10)
    with pytest.raises(LogSuperseded):
        zombie.sync()
    write(writer, 10, 5)
    writer.sync()
    with pytest.raises(LogSuperseded, match="incarnation 2 writes"):
        sink(kafka, topic, tmp_path, 1)
    assert tuple_ids(kafka, topic, "out[0]") == list(range(15))


def test_transactions_that_follow_one_another_count_in_the_order_of_their_tuples(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("in-turn", 1)
    incarnation, written = 0, 0
    for number in range(60):
        if number % 20 == 0:  # The former one is not closed: its successor fences it.
            incarnation += 1
            writer = sink(kafka, "in-turn", tmp_path, incarnation)
            assert writer.next_id == written
        write(writer, written, 7)
        writer.sync()
        written += 7
    assert tuple_ids(kafka, "in-turn", "out[0]") == list(range(written))


def test_a_commit_whose_answer_was_lost_is_not_made_again(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topic("unheard", 1)
    writer = sink(kafka, "unheard", tmp_path, 1)
    attempts: list[bool] = []
    original = KafkaSinkWriter._attempt

    def deaf(*arguments: object) -> bool:
        attempts.append(original(*arguments))  # type: ignore[arg-type]
        return attempts[-1] and len(attempts) != 2

    monkeypatch.setattr(KafkaSinkWriter, "_attempt", deaf)
    for first in (0, 10, 20):
        write(writer, first, 10)
        writer.sync()
    assert attempts == [True, True, True]
    assert tuple_ids(kafka, "unheard", "out[0]") == list(range(30))


@pytest.mark.parametrize("is_exactly_once", [True, False])
def test_a_broker_that_is_killed_meanwhile_costs_a_sink_nothing(
    kafka: KafkaBroker, tmp_path: Path, is_exactly_once: bool
) -> None:
    topic = f"cut-{is_exactly_once}"
    kafka.create_topic(topic, 2)
    waits = Waits()
    writer = sink(kafka, topic, tmp_path, 1, waits, is_exactly_once=is_exactly_once)
    write(writer, 0, 20_000)
    syncing = threading.Thread(target=writer.sync)
    syncing.start()
    kafka.kill()
    deadline_s = time.monotonic() + _PATIENCE_S
    while syncing.is_alive() and not waits.trouble and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert "waits for the Kafka broker" in waits.trouble
    kafka.start()
    syncing.join(_PATIENCE_S)
    assert not syncing.is_alive()
    write(writer, 20_000, 10)
    writer.sync()
    found = tuple_ids(kafka, topic, "out[0]")
    assert (found if is_exactly_once else sorted(set(found))) == list(range(20_010))
    assert waits.trouble == ""


def test_at_least_once_results_are_there_before_they_are_settled(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("soon", 3)
    former = sink(kafka, "soon", tmp_path, 1, is_exactly_once=False)
    write(former, 0, 100)
    former.sync()
    write(former, 100, 50)
    deadline_s = time.monotonic() + _PATIENCE_S
    while len(tuple_ids(kafka, "soon", "out[0]")) < 150 and time.monotonic() < deadline_s:
        time.sleep(0.01)
    # It dies, and its successor has to write again what was not settled.
    writer = sink(kafka, "soon", tmp_path, 2, is_exactly_once=False)
    assert writer.next_id == 100
    write(writer, 100, 60)
    writer.sync()
    wanted = [*range(100), *sorted([*range(100, 150), *range(100, 160)])]
    assert tuple_ids(kafka, "soon", "out[0]") == wanted
    with pytest.raises(LogSuperseded, match="incarnation 2 writes"):
        sink(kafka, "soon", tmp_path, 1, is_exactly_once=False)
    # The same place goes on exactly once.
    assert sink(kafka, "soon", tmp_path, 3).next_id == 160


def test_at_least_once_a_zombie_cannot_set_the_id(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("unset", 1)
    zombie = sink(kafka, "unset", tmp_path, 1, is_exactly_once=False)
    write(zombie, 0, 10)
    zombie.sync()
    writer = sink(kafka, "unset", tmp_path, 2, is_exactly_once=False)
    write(writer, 10, 30)
    writer.sync()
    write(zombie, 10, 5)
    with pytest.raises(LogSuperseded):
        zombie.sync()
    assert sink(kafka, "unset", tmp_path, 3, is_exactly_once=False).next_id == 40
    assert sorted(set(tuple_ids(kafka, "unset", "out[0]"))) == list(range(40))


def test_at_least_once_what_was_given_up_writes_no_more(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("given-up", 1)
    writer = sink(kafka, "given-up", tmp_path, 1, is_exactly_once=False)
    write(writer, 0, 10)
    writer.sync()
    former = writer._sending
    assert former is not None
    assert writer._open() == 10
    with pytest.raises(GivenUp):
        former.give([(10, batch(10, 5))])
    write(writer, 10, 5)
    writer.sync()
    assert tuple_ids(kafka, "given-up", "out[0]") == list(range(15))


def test_at_least_once_results_that_are_not_taken_are_waited_for_and_told_of(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("slow", 1)
    waits = Waits()
    options = {"linger.ms": "5000"}  # The broker answers, and has nothing of it for so long.
    writer = sink(kafka, "slow", tmp_path, 1, waits, is_exactly_once=False, options=options)
    sending = writer._sending
    write(writer, 0, 10)
    syncing = threading.Thread(target=writer.sync)
    syncing.start()
    while syncing.is_alive() and not waits.trouble:
        time.sleep(0.01)
    assert waits.trouble.endswith("to take results")
    syncing.join(_PATIENCE_S)
    assert not syncing.is_alive()
    assert waits.trouble == ""
    assert writer._sending is sending, "it is not opened again, which would write them twice"
    assert tuple_ids(kafka, "slow", "out[0]") == list(range(10))


def test_at_least_once_a_full_queue_holds_up_nobody(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("full", 1)
    options = {"queue.buffering.max.messages": "1000", "linger.ms": "50"}
    writer = sink(kafka, "full", tmp_path, 1, is_exactly_once=False, options=options)
    for first in range(0, 5_000, 100):
        write(writer, first, 100)
    sending = writer._sending
    assert sending is not None
    assert sending.is_held_up
    writer.sync()
    assert not sending.is_held_up
    write(writer, 5_000, 10)
    writer.sync()
    numbers = [json.loads(m.value())["id"] for m in committed(kafka, "full")]
    assert numbers == list(range(5_010))


@pytest.mark.parametrize("is_exactly_once", [True, False])
def test_a_record_that_the_topic_does_not_take_is_named(
    kafka: KafkaBroker, tmp_path: Path, is_exactly_once: bool
) -> None:
    topic = f"small-{is_exactly_once}"
    kafka.create_topic(topic, 1, max_message_bytes="1000")
    cluster = KafkaCluster(kafka.servers)
    encoder = Encoder("string")
    spec = KafkaSinkSpec(
        "out[0]", cluster, topic, encoder, str(tmp_path), is_exactly_once=is_exactly_once
    )
    for size in (5_000, 5_000_000):  # Too large for the broker; too large for the library.
        writer = spec.open(size, threading.Event(), Waits())
        wide = {"value": ["x" * size], "__time_us": [0]}
        writer.append(0, 0, pa.RecordBatch.from_pydict(wide), 0, 0)
        named = "one of the tuples" if size < 1_000_000 else "tuple 0"
        with pytest.raises(KafkaError, match=f"does not take {named}"):
            writer.sync()
        writer.close()
    assert committed(kafka, topic) == []


def test_a_sink_whose_offset_is_lost_refuses_to_go_on(kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic("forgotten", 1)
    writer = sink(kafka, "forgotten", tmp_path, 1)
    write(writer, 0, 10)
    writer.sync()
    group = writer._name
    writer.close()
    admin = kafka.admin()
    for deleted in admin.delete_consumer_groups([group]).values():
        deleted.result(30)
    with pytest.raises(KafkaError, match="has lost the offset of group"):
        sink(kafka, "forgotten", tmp_path, 2)


@pytest.mark.parametrize("had_written", [True, False])
def test_an_offset_that_somebody_else_has_committed_is_not_believed(
    kafka: KafkaBroker, tmp_path: Path, had_written: bool
) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = f"shared-group-{had_written}"
    kafka.create_topic(topic, 1)
    writer = sink(kafka, topic, tmp_path, 1)
    group, written = writer._name, 10 * had_written
    if had_written:
        write(writer, 0, 10)
        writer.sync()
    writer.close()
    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": group, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, 17)], asynchronous=False)
    consumer.close()
    with pytest.raises(KafkaError, match=r"offset 17 with metadata '', which this sink has not"):
        sink(kafka, topic, tmp_path, 2)
    told = tmp_path / "next_id"
    told.write_text("here")
    with pytest.raises(KafkaError, match="holds 'here'; it is the id"):
        sink(kafka, topic, tmp_path, 3)
    told.write_text(f"{written}\n")
    writer = sink(kafka, topic, tmp_path, 4)
    assert writer.next_id == written
    write(writer, written, 5)
    writer.sync()
    writer.close()
    assert not told.exists(), "from now on the broker knows"
    assert sink(kafka, topic, tmp_path, 5).next_id == written + 5
    assert tuple_ids(kafka, topic, "out[0]") == list(range(written + 5))


def test_a_transactional_id_that_another_location_uses_is_refused(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("two-places", 1)
    former = sink(kafka, "two-places", tmp_path / "a", 5, transactional_id="mine-0")
    write(former, 0, 10)
    former.sync()
    former.close()
    assert sink(kafka, "two-places", tmp_path / "a", 6, transactional_id="mine-0").next_id == 10
    with pytest.raises(KafkaError, match="another query uses the group"):
        sink(kafka, "two-places", tmp_path / "b", 7, transactional_id="mine-0")


def test_what_is_not_there_is_named(kafka: KafkaBroker, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match="there is no topic 'nowhere'"):
        sink(kafka, "nowhere", tmp_path, 1)
    node = led(source(kafka, "nowhere", tmp_path), 1)
    with pytest.raises(KafkaError, match="there is no topic 'nowhere'"):
        node.read_until(has_ended)
    node.reader.close()
    kafka.create_topic("narrow", 1)
    node = led(source(kafka, "narrow", tmp_path / "n", instance=1, instances=2), 1)
    with pytest.raises(KafkaError, match="has 1 partitions, fewer than the 2 instances"):
        node.read_until(has_ended)
    node.reader.close()


def test_a_topic_has_each_row_once_whatever_the_number_of_instances(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("elastic", 2)
    root = str(tmp_path / "log")
    ingest_log.prepare(root, META)
    with without_spark() as session:
        for number, parallelism in enumerate((1, 3, 1, 2)):
            flow = hf.Dataflow("elastic")
            rows = flow.source_log(root, name="rows").key_by("key").filter("id % 2 = 0")
            rows.sink_kafka("out", servers=kafka.servers, topic="elastic")
            query = flow.start(
                session,
                checkpointLocation=str(tmp_path / "location"),
                protection=hf.Checkpointed(interval="1 hour"),
                parallelism=parallelism,
            )
            put(root, 700 * number, 700 * (number + 1))
            query.processAllAvailable()
            query.stop()
    found = [json.loads(message.value())["id"] for message in committed(kafka, "elastic")]
    assert sorted(found) == list(range(0, 2_800, 2))
