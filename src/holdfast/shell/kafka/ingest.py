"""Reads an instance's partitions of a topic into its log, in a thread of the primary's.

1. Settle where to begin and to end, and of which topic, unless that was settled before. A topic of
   another id is refused, now and every half a second.
2. Assign the instance its partitions, those whose number leaves its own when divided by the number
   of instances: there is no consumer group, so that nothing is ever rebalanced.
3. Take what there is, decode it, put late tuples aside, append the rest to the log as one record,
   make it durable. Only then may the node see it, if nobody else has claimed the log.

A record of the log holds whole Kafka records with their offsets. So after a failure the log says
how far each partition has come: nothing is lost, and nothing read twice. What was read and not
logged nobody has seen; it is read again, and may then come in another order.

While the broker is away the thread waits, and says so in `trouble`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, END_US, Incarnation
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.queues.idle_floor import Reached
from holdfast.core.queues.partition_boundaries import PartitionBoundaries
from holdfast.core.queues.reach import DAY_US, spans_of
from holdfast.core.queues.topic_positions import FROM_THE_FIRST, Span
from holdfast.shell.kafka.client import (
    KafkaCluster,
    KafkaError,
    ask_topic_id,
    ends_of,
    library,
    open_admin,
    open_looker,
    partitions_of,
    topic_id_in,
    topic_id_of,
)
from holdfast.shell.kafka.debezium import FORMAT as DEBEZIUM
from holdfast.shell.kafka.decoding import Decoder, Records
from holdfast.shell.kafka.positions import Positions
from holdfast.shell.storage.claim import Claim
from holdfast.shell.storage.logs import open_writer

_POLL_S = 0.02
_AT_ONCE = 1024
_RECORDS_MAX = 8192
_BYTES_MAX = 8 << 20
_SAVE_S = 5.0
_ID_S = 0.5
_LOOK_S = 0.5
_CLOSE_S = 10.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class TopicReading:
    """What is to be read, and how.

    Attributes:
        source: The source's name, for messages.
        cluster: The brokers.
        topic: The topic.
        decoder: How records become tuples.
        delay_us: How far tuples of one partition may be out of order.
        idle_ms: When a partition without records holds up time no more; None: never.
        ahead_us: How far a record may be ahead of its partition, and of the clock, and still move
            time; None: at will.
        begin: `earliest`, `latest`, or offsets by partition (others from the earliest on).
        end: None, `latest`: what there is at the first start, or offsets by partition.
        instance: Number of the instance.
        instances: How many there are.
    """

    source: str
    cluster: KafkaCluster
    topic: str
    decoder: Decoder
    delay_us: int
    idle_ms: int | None
    begin: str | dict[int, int]
    end: str | dict[int, int] | None
    instance: int
    instances: int
    ahead_us: int | None = DAY_US

    def own(self, partitions: tuple[int, ...]) -> list[int]:
        """The partitions of this instance."""
        return [p for p in partitions if p % self.instances == self.instance]


class KafkaIngest:
    """The thread, and what it tells the reader: fields are written by it alone."""

    def __init__(
        self,
        reading: TopicReading,
        place: str,
        incarnation: Incarnation,
        on_news: Callable[[], None],
        *,
        is_draining: bool = False,
    ) -> None:
        """Fence whoever wrote the log before, and begin.

        Args:
            reading: What is read.
            place: The log's.
            incarnation: Which writes it.
            on_news: Called by the thread when more is durable, or something has failed.
            is_draining: Whether nothing is read of the topic: the log stays as it is.

        Raises:
            LogSuperseded: The log is claimed by this incarnation or a later one.
            SchemaMismatch: The log has other columns.
        """
        self._reading = reading
        self._on_news = on_news
        self._is_draining = is_draining
        schema = with_time(reading.decoder.log_schema)
        stream = f"{reading.source}[{reading.instance}]"
        self._claim = Claim(place, incarnation)
        self._writer = open_writer(place, schema, stream, incarnation)
        self._place = place
        self._incarnation = incarnation
        self.begun_at = self._writer.next_id
        self.owners = self._writer.owners  # of the log
        self.durable_before = self._writer.next_id  # the reader may show ids before it
        self.boundary_us = self._writer.boundary_us  # durable too
        self.floor_us = BEGINNING_US  # what the reader was told that an idle instance may promise
        self.reached: Reached | None = None  # None: nothing is known yet
        self.slowest = ""  # the partitions that hold back its boundary
        self.is_held_up = False  # others of its partitions are further
        self.late_rows = 0  # of the log, from its beginning
        self.rows_ahead = 0  # too far ahead to move time, in this life
        self.trouble = ""
        self.error: Exception | None = None
        self._client: Any = None
        self._admin: Any = None
        self._closing = threading.Event()
        self.disturbed = False  # something is wrong with the broker, or was
        self._thread = threading.Thread(target=self._run, name=f"kafka-{stream}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; what it has not logged nobody has seen."""
        self._closing.set()
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._writer.close()
            self._claim.close()

    # -- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        positions = None
        try:
            ahead_us = self._reading.ahead_us
            positions = Positions(self._place, self._incarnation, ahead_us)
            positions.find(self._writer.next_id)
            self.late_rows = positions.late_rows
            if self._writer.has_ended:
                # Others that are idle wait for no more of it, and go by how far it has come.
                self.reached = self._boundaries(positions, [*positions.of]).reached(END_US)
            elif not self._is_draining:
                self._read(positions)
        except Exception as error:  # The reader raises it in the node.
            self.error = error
            self._on_news()
        finally:
            if positions is not None:
                positions.close()
            if self._client is not None:
                self._client.close()

    def _read(self, positions: Positions) -> None:
        self._client = open_looker(
            self._reading.cluster,
            {
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "error_cb": self.note,
            },
        )
        self._admin = open_admin(self._reading.cluster)
        own = self._await_partitions()
        topic_id = self._await_id() if own is not None else None
        if own is None or topic_id is None:
            return  # Closing.
        span = self._await_span(positions, own, topic_id)
        if span is None:
            return  # The same.
        self.require_topic(span, topic_id)
        self._require_own({*span.begin, *positions.of})
        self._follow(positions, span, own)

    def _await_partitions(self) -> list[int] | None:
        """The partitions of this instance; None: it closes first."""
        while not self._closing.is_set():
            found = partitions_of(self._client, self._reading.topic)
            if found is not None:
                own = self._reading.own(found)
                if not own:
                    raise KafkaError(
                        too_few(self._reading.topic, len(found), self._reading.instances)
                    )
                return own
            self._wait()
        return None

    def _await_id(self) -> str | None:
        """The topic's id; None: it closes first."""
        while not self._closing.is_set():
            found = topic_id_of(self._admin, self._reading.topic)
            if found is not None:
                return found
            self._wait()
        return None

    def require_topic(self, span: Span, topic_id: str) -> None:
        """Raise `KafkaError` if the topic is another one than that of the offsets."""
        if not span.is_of(topic_id):
            raise KafkaError(
                f"topic {self._reading.topic!r} is not the one that source {self._reading.source} "
                f"has read so far: its id is {topic_id}, and was {span.topic_id}. It was deleted "
                "and made anew, so that offsets mean other records. Begin at another "
                "checkpointLocation"
            )

    def _require_own(self, partitions: set[int]) -> None:
        """Raise `KafkaError` if the log has partitions of others.

        1. A change drops the source. 2. A later one brings it back under its name, with other
        instances. 3. Of these, two would have the records of a partition.
        """
        reading = self._reading
        others = sorted(partitions.difference(reading.own(tuple(partitions))))
        if others:
            raise KafkaError(
                f"the log of source {reading.source} has partitions {others} of topic "
                f"{reading.topic!r}, which another of its {reading.instances} instances reads now: "
                "it was read by another number of them; give the source another name"
            )

    def _await_span(self, positions: Positions, own: list[int], topic_id: str) -> Span | None:
        """Where to begin and to end; None: it closes first."""
        while not self._closing.is_set():
            span = positions.span() or self._look_up_span(positions, own, topic_id)
            if span is not None:
                return span
            self._wait()
        return None

    def _look_up_span(self, positions: Positions, own: list[int], topic_id: str) -> Span | None:
        reading = self._reading
        ends = {p: ends_of(self._client, reading.topic, p) for p in own}
        known = {p: found for p, found in ends.items() if found is not None}
        if len(known) < len(own):
            return None
        begin = {p: _offset(reading.begin, p, found) for p, found in known.items()}
        end = None
        if reading.end is not None:
            end = {p: _offset(reading.end, p, (last, last)) for p, (_, last) in known.items()}
        return positions.settle(Span(begin, end, topic_id))

    def _wait(self) -> None:
        """The broker is away."""
        self.trouble = (
            f"source {self._reading.source} waits for the Kafka broker at "
            f"{self._reading.cluster.servers}"
        )
        self._closing.wait(_LOOK_S)

    def note(self, error: Any) -> None:
        """What the library tells beside messages."""
        if error.fatal():
            self.error = KafkaError(f"topic {self._reading.topic!r}: {error.str()}")
        else:
            self.disturbed = True

    # -- following --------------------------------------------------------------------------

    def _follow(self, positions: Positions, span: Span, own: list[int]) -> None:
        kafka, topic = library(), self._reading.topic
        if span.end is not None:
            own = [p for p in own if p in span.end]
        boundaries = self._boundaries(positions, own)
        begin = positions.begin(own, span)
        first = kafka.OFFSET_BEGINNING
        assigned = [
            kafka.TopicPartition(topic, p, first if offset == FROM_THE_FIRST else offset)
            for p, offset in begin.items()
        ]
        self._client.assign(assigned)
        self.trouble = ""
        following = _Following(self, positions, boundaries, span)
        while not self._closing.is_set() and not following.turn():
            pass

    def _boundaries(self, positions: Positions, partitions: list[int]) -> PartitionBoundaries:
        """How far its partitions have come, by the log."""
        return PartitionBoundaries(
            partitions,
            delay_us=self._reading.delay_us,
            idle_ms=self._reading.idle_ms,
            boundary_us=self._writer.boundary_us,
            newest_us={p: found.newest_us for p, found in positions.of.items()},
            is_sole=self._reading.instances == 1,
            ahead_us=self._reading.ahead_us,
        )

    def is_away(self) -> bool:
        """Whether the broker is away; asks it, if it may be."""
        if not self.disturbed:
            return False
        try:
            self.disturbed = partitions_of(self._client, self._reading.topic) is None
        except KafkaError as error:  # It may know its topics again in a moment.
            self.trouble = f"source {self._reading.source}: {error}"
            return True
        if self.disturbed:
            self._wait()
        else:
            self.trouble = ""
        return self.disturbed

    def append(self, batch: pa.RecordBatch, boundary_us: int, created_us: int) -> None:
        """Log rows, which may be none, and the boundary after them; they count when it returns.

        Raises:
            LogSuperseded: They may not: a later incarnation has claimed the log.
        """
        writer = self._writer
        writer.append(TupleType.STABLE, writer.next_id, batch, boundary_us, created_us)
        writer.sync()
        self._claim.require_newest()
        writer.tidy()
        self._show()

    def end(self, reached: Reached) -> None:
        """Nothing follows, so that `reached` is the last word. Raises as `append`."""
        self._writer.end()
        self._claim.require_newest()
        self.reached = reached  # Before the node hears of the end: it may be over then.
        self._show()
        self.boundary_us = END_US
        self._on_news()

    def _show(self) -> None:
        """What is durable now. The reader looks at the boundary first, and then at the ids."""
        self.durable_before = self._writer.next_id
        self.boundary_us = self._writer.boundary_us
        self._on_news()

    @property
    def admin(self) -> Any:
        """A client that asks of topics."""
        return self._admin

    @property
    def reading(self) -> TopicReading:
        """What is read."""
        return self._reading

    @property
    def client(self) -> Any:
        """The consumer."""
        return self._client

    @property
    def next_id(self) -> int:
        """Of the log's next tuple."""
        return self._writer.next_id


class _Following:
    """The state of a thread that follows its partitions."""

    def __init__(
        self, ingest: KafkaIngest, positions: Positions, boundaries: PartitionBoundaries, span: Span
    ) -> None:
        self._ingest = ingest
        self._positions = positions
        self._boundaries = boundaries
        self._span = span
        self._asked_id: Any = None  # the answer to come
        self._asked_s = time.monotonic()
        self._wanted_before = dict(span.end or {})  # of the partitions that have an end
        self._is_bounded = span.end is not None
        self._saved_s = time.monotonic()
        self._at_end: list[int] = []  # partitions that the last messages have read to their end
        for partition in list(self._wanted_before):
            self._end_if_due(partition, positions.of[partition].next_offset)

    def turn(self) -> bool:
        """Take what there is; True when all that is wanted has been read."""
        records = self._take_records()
        self._look_at_topic()
        self._boundaries.looked(time.monotonic_ns() // 1_000_000)
        if records.offsets:
            self._log(records)
        self._look_at_ends()
        self._boundaries.told(self._ingest.floor_us)
        if self._boundaries.advance() > self._ingest.boundary_us and not self._is_done:
            self._ingest.append(self._nothing(), self._boundaries.boundary_us, 0)
        if self._is_done:
            self._ingest.end(self._boundaries.reached(END_US))
            self._positions.save(self._ingest.next_id)
            self._tell()
            return True
        self._tell()
        if time.monotonic() - self._saved_s > _SAVE_S:
            self._saved_s = time.monotonic()
            self._positions.save(self._ingest.next_id)
        return False

    def _look_at_topic(self) -> None:
        """Whether it is still the same; asks now and then, and does not wait for the answer."""
        topic = self._ingest.reading.topic
        if self._asked_id is not None and self._asked_id.done():
            found = topic_id_in(self._asked_id, topic)
            self._asked_id = None
            if found is not None:
                self._ingest.require_topic(self._span, found)
        if self._asked_id is None and time.monotonic() - self._asked_s > _ID_S:
            self._asked_s = time.monotonic()
            self._asked_id = ask_topic_id(self._ingest.admin, topic)

    def _tell(self) -> None:
        """How far the instance is, and what holds it up."""
        self._ingest.reached = self._boundaries.reached(self._ingest.boundary_us)
        slowest, self._ingest.is_held_up = self._boundaries.slowest()
        self._ingest.slowest = _named(slowest, self._ingest.reading.topic)

    def _look_at_ends(self) -> None:
        """Which partitions hold up time no more."""
        is_away = self._ingest.is_away()
        now_ms = time.monotonic_ns() // 1_000_000
        for partition in self._at_end:
            self._boundaries.reached_end(partition, now_ms)
        self._at_end.clear()
        if self._is_bounded:
            for partition in self._positions.of:
                if partition not in self._wanted_before:
                    self._boundaries.ended(partition)
        if is_away:
            self._boundaries.resumed(now_ms)
        else:
            self._find_idle(now_ms)

    @property
    def _is_done(self) -> bool:
        return self._is_bounded and not self._wanted_before

    def _nothing(self) -> pa.RecordBatch:
        schema = with_time(self._ingest.reading.decoder.log_schema)
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)

    def _take_records(self) -> Records:
        """What the library has fetched; waits a moment for the first message only."""
        client = self._ingest.client
        records = Records()
        size = 0
        first = client.poll(_POLL_S)
        messages = [] if first is None else [first, *client.consume(_AT_ONCE, timeout=0)]
        while messages:
            size += self._add(messages, records)
            is_full = len(records.offsets) >= _RECORDS_MAX or size >= _BYTES_MAX
            if is_full or len(messages) < _AT_ONCE:
                break
            messages = client.consume(_AT_ONCE, timeout=0)
        return records

    def _add(self, messages: list[Any], records: Records) -> int:
        """Take messages; their size."""
        good: list[Any] = []
        failed: list[tuple[Any, Any]] = []
        for message in messages:
            error = message.error()
            if error is not None:
                failed.append((error, message))
            elif not self._is_bounded or self._is_wanted(message):
                good.append(message)
        partitions, offsets = [m.partition() for m in good], [m.offset() for m in good]
        values, stamps = [m.value() for m in good], [m.timestamp() for m in good]
        records.partitions += partitions
        records.offsets += offsets
        records.timestamps_us += [ms * 1000 if kind and ms > 0 else 0 for kind, ms in stamps]
        records.keys += [m.key() for m in good]
        records.values += values
        for partition, offset in dict(zip(partitions, offsets, strict=True)).items():
            self._positions.advance(partition, offset + 1)
            self._end_if_due(partition, offset + 1)
        for error, message in failed:  # Behind the records: a partition's end comes after them.
            self._on_message_error(error, message.partition(), message.offset())
        return 64 * len(good) + sum(len(value) for value in values if value)

    def _is_wanted(self, message: Any) -> bool:
        """Whether the message lies before the end of its partition, if that has one."""
        self._end_if_due(message.partition(), message.offset())
        return message.partition() in self._wanted_before

    def _on_message_error(self, error: Any, partition: int, offset: int) -> None:
        kafka = library().KafkaError
        where = f"{self._ingest.reading.topic}[{partition}]"
        if error.code() == kafka._PARTITION_EOF:
            # Offsets may go on, behind the last record, with the marks of transactions.
            self._positions.advance(partition, offset)
            self._at_end.append(partition)
            self._end_if_due(partition, offset)
            return
        if error.code() in (kafka._AUTO_OFFSET_RESET, kafka.OFFSET_OUT_OF_RANGE):
            now_id = topic_id_of(self._ingest.admin, self._ingest.reading.topic)
            self._ingest.require_topic(self._span, now_id or "")
            wanted = self._positions.of[partition].next_offset
            raise KafkaError(
                f"{where} does not hold offset {wanted}, which comes next: its retention has "
                "deleted it, or the topic has been cut. Begin at another checkpointLocation, and "
                "have the topic keep records for longer than the job may stand still"
            )
        if error.code() in (kafka.TOPIC_AUTHORIZATION_FAILED, kafka._UNKNOWN_PARTITION):
            raise KafkaError(f"{where}: {error.str()}")
        self._ingest.note(error)

    def _end_if_due(self, partition: int, offset: int) -> None:
        """All before this offset of a partition has been read."""
        end = self._wanted_before.get(partition)
        if end is not None and offset >= end:
            del self._wanted_before[partition]

    def _log(self, records: Records) -> None:
        """Decode, put late tuples aside, append."""
        boundaries = self._boundaries
        floor_us = boundaries.boundary_us
        if self._ingest.reading.decoder.kind == DEBEZIUM:  # Changes stay in the order of the log.
            newest = [position.newest_us for position in self._positions.of.values()]
            floor_us = max([floor_us, *newest])
        decoded = self._ingest.reading.decoder.decode(records, floor_us)
        good_us = np.where(decoded.is_bad, BEGINNING_US, decoded.times_us)
        self._note_newest(decoded.partitions, good_us)
        batch = decoded.batch
        is_late = decoded.times_us < floor_us
        if is_late.any():
            self._positions.put_aside(decoded.partitions[is_late])
            batch = batch.filter(pa.array(~is_late))
        if batch.num_rows and self._positions.late_rows > self._positions.late_saved:
            self._positions.save(self._ingest.next_id + batch.num_rows, is_ahead=True)
        self._ingest.late_rows = self._positions.late_rows
        self._ingest.append(batch, boundaries.advance(), time.time_ns() // 1000)

    def _note_newest(self, partitions: np.ndarray, times_us: np.ndarray) -> None:
        """What the good tuples say of time, those too far ahead of their partition aside."""
        now_us = time.time_ns() // 1000
        ahead_us = self._ingest.reading.ahead_us
        for partition in {*partitions.tolist()}:
            mine = times_us[(partitions == partition) & (times_us > BEGINNING_US)]
            spans = spans_of(mine, ahead_us, now_us) if len(mine) else []
            self._boundaries.received_spans(partition, spans, now_us)
            position = self._positions.of[partition]
            position.newest_us = self._boundaries.newest_us(partition)
        self._ingest.rows_ahead = self._boundaries.tuples_beyond

    def _find_idle(self, now_ms: int) -> None:
        """Ask the broker whether there is really nothing more in partitions that are quiet."""
        for partition in self._boundaries.quiet(now_ms):
            found = ends_of(self._ingest.client, self._ingest.reading.topic, partition)
            if found is None:
                self._ingest.disturbed = True
            elif found[1] <= self._positions.of[partition].next_offset:
                self._boundaries.set_idle(partition)


def _offset(wanted: str | dict[int, int], partition: int, known: tuple[int, int]) -> int:
    """An offset that was asked for; of a partition that was not named, the first one known."""
    first, last = known
    if isinstance(wanted, str):
        return last if wanted == "latest" else first
    return wanted.get(partition, first)


def _named(partitions: list[int], topic: str) -> str:
    """Partitions, for people; empty: there are none."""
    if not partitions:
        return ""
    shown = ", ".join(map(str, partitions[:_SHOWN]))
    more = f" and {len(partitions) - _SHOWN} more" if len(partitions) > _SHOWN else ""
    return f"partition{'s' * (len(partitions) > 1)} {shown}{more} of topic {topic!r}"


def too_few(topic: str, partitions: int, instances: int) -> str:
    """What is wrong with a topic of so few partitions."""
    return (
        f"topic {topic!r} has {partitions} partitions, fewer than the {instances} instances that "
        f"are to read it; use partitions={partitions} or less, or give the topic more"
    )
