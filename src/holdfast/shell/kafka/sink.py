"""Writes a stream to a topic: exactly once by Kafka's transactions, or sooner at least once.

Exactly once, every `sync` is one transaction. It holds the tuples appended since the last one, and
the id of the tuple that comes next, as an offset committed for a group of the stream's own. So the
topic and that id change together or not at all, and whoever opens the sink next goes on where the
topic is:

1. `init_transactions` with the stream's transactional ids. The broker fences whoever had them
   before, and ends what they left: a transaction on its way to being committed is, any other is
   not. That settles what became of a commit whose outcome nobody had heard of.
2. Read the committed id. Tuples before it are in the topic; the node passes over them.

A crash before the commit leaves nothing that a reader of committed records sees; a crash behind it,
before the node heard of it, costs a look at the id. A zombie is refused by the broker at its next
call, and its open transaction was ended in step 1; should it come back and open the sink once more,
it finds the number of a later incarnation beside the id. What somebody else has committed for the
group is not believed (core/queues/committed_id.py).

The broker ends a transaction that is open for longer than `transaction.timeout.ms`. One begins when
its tuples are there, so that none is open while they wait for a line. Of many that come at once, as
when a line has moved, it holds the first ones only. Else it might take that long, and so might each
attempt to repeat it.

Transactions have two transactional ids in turn, so that they can follow one another at once: while
the broker still marks the end of one in all partitions, it keeps its producer from beginning
another, and librdkafka asks again only 20 ms later. None is begun before the one before it is
committed, so they count in the order of their tuples, and readers see them in that order.

At least once, `append` hands tuples to the library at once, outside of transactions. `sync` waits
until the broker has them, and then commits the id, in a transaction that holds nothing else.
Whoever opens the sink next writes again what came after that id: the same ids, which each record
names. A zombie may do so too, but the id is no longer its to set.

While the broker is away `sync` waits. What fails is not mended: the sink is opened again, as after
a crash, and the id says from where on tuples are written once more. An attempt to settle them runs
in a thread of its own, so that it can be given up: librdkafka was seen not to return from
`send_offsets_to_transaction` after a broker's restart, whatever its time limit. What was given up
can do no harm: opening the sink again fences it, and lets no more tuples into its producer.

Kafka forgets the offsets of a group that has committed none for a week (`offsets.retention.
minutes`); a sink without output commits its own anew every day. If it is gone all the same, or
somebody else's stands in its place, the sink refuses to go on rather than write everything a second
time or leave tuples out. A file `next_id` at its place then says where it is, until it has
committed an offset of its own.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, NO_ID, Incarnation
from holdfast.core.queues.committed_id import Foreign, GoOn, Lost, Superseded, metadata_of, next_of
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.kafka.client import (
    KafkaCluster,
    KafkaError,
    KafkaInterrupted,
    code_of,
    is_waiting_worth_it,
    library,
    open_looker,
    partitions_of,
)
from holdfast.shell.kafka.encoding import HEADER, Encoder
from holdfast.shell.kafka.sending import Batches, Sending, first_part, from_id
from holdfast.shell.sinks.base import Waits
from holdfast.shell.storage.errors import FileMissing, LogSuperseded, StorageError
from holdfast.shell.storage.places import put_or_read, read_if_any, store_at
from holdfast.shell.storage.small_files import decode

# The end of the former transaction may be on its way yet: that takes a moment.
_DEFAULTS = {"retry.backoff.ms": "5"}
_SOONER = {"linger.ms": "1"}
_CALL_S = 1.0
_COMMIT_S = 30.0
_LOOK_S = 0.5
_STUCK_S = 2.0
_STUCK_MAX_S = 60.0
_REFRESH_S = 86_400.0
_TRANSACTION_TUPLES = 100_000
_TRANSACTION_BYTES = 16 << 20
_TRANSACTION_MS = 60_000  # librdkafka's own
_WAIT_S = 0.1
_PAUSE_MAX_S = 10.0
_NAME_FILE = "sink.json"
_WRITTEN_FILE = "written"
_NEXT_ID_FILE = "next_id"


@dataclass(frozen=True, slots=True)
class KafkaSinkSpec:
    """One sink stream.

    Attributes:
        stream: Its name, e.g. `counts[0]`.
        cluster: The brokers.
        topic: The topic.
        encoder: How tuples become records.
        place: A folder or URL for what is to be remembered of it.
        transactional_id: What the broker knows it by; None: one is made up, once.
        is_exactly_once: Whether results are written in transactions.
        interval_s: From the beginning of a transaction to that of the next, at least.
    """

    stream: str
    cluster: KafkaCluster
    topic: str
    encoder: Encoder
    place: str
    transactional_id: str | None = None
    is_exactly_once: bool = True
    interval_s: float = 0.0

    def open(self, incarnation: int, closing: threading.Event, waits: Waits) -> KafkaSinkWriter:
        """Open it; waits for the broker. Raises as `KafkaSinkWriter`."""
        return KafkaSinkWriter(self, incarnation, closing, waits)

    def named(self) -> str:
        """Its own name, which goes with what it commits; made up, the first time.

        Raises:
            StorageError: It is lost, or is not what was made up.
        """
        return _made_up(self.place, self.stream, has_own_id=self.transactional_id is not None)

    def looker(self, writer: str) -> Any:
        """A consumer that looks up how far the topic has been written. Raises `KafkaError`."""
        group = self.transactional_id or writer
        return open_looker(self.cluster, {"group.id": group, "isolation.level": "read_committed"})

    def settled(self) -> int:
        """See `OutsideSpec`: a transaction that is open has not been decided."""
        store = store_at(self.place)
        known = [read_if_any(store, name) for name in (_NAME_FILE, _WRITTEN_FILE)]
        store.close()
        if known == [None, None]:
            return 0
        writer, at = self.named(), library().TopicPartition(self.topic, 0)
        looker = self.looker(writer)
        try:
            found = looker.committed([at], timeout=_COMMIT_S)[0]
        except library().KafkaException as error:
            raise KafkaError(f"sink {self.stream}: {code_of(error).str()}") from error
        finally:
            looker.close()
        return _known_next_id(self, writer, found, Incarnation(NO_ID))


class KafkaSinkWriter:
    """Writes a sink stream as one incarnation; has the methods of a log's writer.

    `append` belongs to the node's thread, `sync` to another.
    """

    def __init__(
        self, spec: KafkaSinkSpec, incarnation: int, closing: threading.Event, waits: Waits
    ) -> None:
        """Fence whoever wrote before, and find out which tuple comes next.

        Raises:
            KafkaError: There is no such topic, or the sink's committed id is gone, or is another's.
            KafkaInterrupted: The node ends meanwhile.
            LogSuperseded: A later incarnation has written.
        """
        self._spec = spec
        self._incarnation = incarnation
        self._closing = closing
        self._waits = waits
        self.boundary_us = BEGINNING_US
        self.has_ended = False
        self.next_id = 0
        self._waiting: Batches = []  # what is not settled
        self._lock = threading.Lock()  # over the two above
        self._committed_s = time.monotonic()
        self._refusal = ""  # why the last attempt failed
        self._is_written = False  # it has been noted that the broker must know an id
        self._writer = spec.named()
        self._name = spec.transactional_id or self._writer
        self._looker = spec.looker(self._writer)
        self._group = self._looker.consumer_group_metadata()
        self._transactions: deque[Any] = deque()  # producers that take turns
        self._sending: Sending | None = None  # at least once, outside of transactions
        self.next_id = self._open()

    def _open(self) -> int:
        """Begin anew, fencing whoever did so before; the id of the tuple that comes next."""
        kafka = library()
        while partitions_of(self._looker, self._spec.topic) is None:
            self._wait()
        if self._sending is not None:
            self._sending.give_up()
        self._transactions = deque(
            self._producer({"transactional.id": name, "delivery.report.only.error": True})
            for name in (self._name, f"{self._name}b")
        )
        for producer in self._transactions:
            self._patiently(producer.init_transactions)
        at = kafka.TopicPartition(self._spec.topic, 0)
        found = self._patiently(lambda s: self._looker.committed([at], timeout=s))[0]
        self._waits.trouble = ""
        next_id = _known_next_id(self._spec, self._writer, found, Incarnation(self._incarnation))
        if not self._spec.is_exactly_once:
            at_once = {
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "delivery.report.only.error": False,
            }
            self._sending = Sending(self._spec, self._producer(at_once), next_id)
        return next_id

    def _producer(self, settings: Mapping[str, Any]) -> Any:
        own = {"partitioner": "murmur2_random", "error_cb": lambda error: None}
        defaults = _DEFAULTS if self._spec.is_exactly_once else _DEFAULTS | _SOONER
        return self._spec.cluster.client("Producer", {**own, **settings}, defaults)

    # -- a log's writer ---------------------------------------------------------------------

    def append(
        self,
        tuple_type: int,
        first_id: int,
        batch: pa.RecordBatch,
        boundary_us: int,
        created_us: int,
    ) -> None:
        """Take tuples; those of exactly-once sinks wait for the next transaction.

        Raises:
            StorageError: They are not those that come next.
        """
        del tuple_type, created_us
        if first_id != self.next_id:
            raise StorageError(f"{self._spec.stream}: tuple {first_id}, expected {self.next_id}")
        with self._lock:
            self._waiting.append((first_id, batch))
            self.next_id += batch.num_rows
            self.boundary_us = max(self.boundary_us, boundary_us)
        if self._sending is not None:
            self._sending.offer(self._waiting_from)

    def _waiting_from(self, first: int) -> Batches:
        """What is not settled, from an id on."""
        with self._lock:
            number = len(self._waiting)
            while number and self._waiting[number - 1][0] >= first:
                number -= 1
            return from_id(self._waiting[max(0, number - 1) :], first)

    def sync(self) -> None:
        """Settle everything appended so far; waits for the broker.

        Raises:
            KafkaError: The broker will never take it.
            LogSuperseded: A later incarnation writes.
            KafkaInterrupted: The node ends.
        """
        with self._lock:
            batches, next_id = list(self._waiting), self.next_id
        if not batches and not self.is_stale:
            return
        settled = batches[0][0] if batches else next_id
        patience_s, pause_s = _STUCK_S, _WAIT_S
        is_over = False
        while not is_over:
            part = self._transaction_of(from_id(batches, settled))
            end_id = part[-1][0] + part[-1][1].num_rows if part else next_id
            if self._attempt(part, end_id, patience_s):
                settled, is_over = end_id, end_id == next_id
                patience_s, pause_s = _STUCK_S, _WAIT_S
                continue
            patience_s = min(2 * patience_s, _STUCK_MAX_S)  # Perhaps it was only slow.
            settled = self._open()
            is_over = bool(batches) and settled >= next_id  # Settled, and the answer was lost.
            if settled < end_id or not part:
                self._waits.trouble = self._refusal
                self._closing.wait(min(pause_s, _PAUSE_MAX_S))
                pause_s *= 2
        with self._lock:
            del self._waiting[: len(batches)]
        self._note_written()
        self._committed_s = time.monotonic()
        self._waits.trouble = ""

    @property
    def is_prompt(self) -> bool:
        """Whether readers wait for every `sync`, as they see nothing that is not settled."""
        return self._spec.is_exactly_once

    @property
    def interval_s(self) -> float:
        """See `KafkaSinkSpec.interval_s`."""
        return self._spec.interval_s

    @property
    def is_full(self) -> bool:
        """It holds no more than the node's limits allow."""
        return False

    @property
    def is_stale(self) -> bool:
        """Whether the last commit was so long ago that it should be made again."""
        return self.next_id > 0 and time.monotonic() - self._committed_s > _REFRESH_S

    def end(self) -> None:
        """A topic has no end."""
        self.has_ended = True

    def publish(self) -> None:
        """See `sync`."""
        self.sync()

    def tidy(self) -> None:
        """There is nothing to tidy."""

    def skip_to(self, first_id: int) -> None:
        """Sinks leave nothing out."""
        raise StorageError(f"{self._spec.stream}: a topic cannot skip to {first_id}")

    def trim(self, before: int) -> None:
        """What a topic keeps is its own affair."""

    def close(self) -> None:
        """Let go of the broker; what was not committed is dropped."""
        if self._sending is not None:
            self._sending.give_up()
        self._transactions.clear()
        self._looker.close()

    # -- settling ---------------------------------------------------------------------------

    def _transaction_of(self, batches: Batches) -> Batches:
        """What is settled next: all of it, or as much as a transaction may hold."""
        if not self._spec.is_exactly_once:
            return batches
        return first_part(batches, _TRANSACTION_TUPLES, _TRANSACTION_BYTES)

    def _attempt(self, batches: Batches, next_id: int, patience_s: float) -> bool:
        """One attempt; False: the sink must be opened again to see what became of it.

        Args:
            batches: What is to be settled.
            next_id: The id behind them.
            patience_s: How long it may come no further while the broker answers.
        """
        said = library().TopicPartition(
            self._spec.topic,
            0,
            next_id,
            metadata=metadata_of(self._writer, Incarnation(self._incarnation)),
        )
        first_id = batches[0][0] if batches else next_id
        self._transactions.rotate()
        producer = self._transactions[0]
        sending = self._sending or Sending(self._spec, producer, first_id)
        settle = self._write if self._spec.is_exactly_once else self._deliver
        attempt = _Attempt(
            sending,
            partial(settle, producer, sending, batches, said),
            f"kafka-{self._spec.stream}",
        )
        answered_s: float | None = None  # since when the broker has answered
        while not attempt.is_over.wait(_LOOK_S):
            self._check_closing()
            if self._is_away():
                answered_s = None
            else:
                answered_s = answered_s or time.monotonic()
                is_slow = time.monotonic() - answered_s > _STUCK_S
                self._waits.trouble = f"{self._trouble()} to take results" if is_slow else ""
            if answered_s is not None and attempt.is_stuck(answered_s, patience_s):
                self._refusal = f"sink {self._spec.stream}: the broker comes no further with it"
                return False
        error = attempt.error
        if isinstance(error, library().KafkaException):
            self._require_hope(attempt, code_of(error))
            self._refusal = f"sink {self._spec.stream}: {code_of(error).str()}"
            return False
        if error is not None:
            raise error
        return True

    def _write(self, producer: Any, sending: Sending, batches: Batches, said: Any) -> None:
        """Tuples and id in one transaction; the id while the tuples are on their way."""
        producer.begin_transaction()
        sending.give(batches)
        try:
            self._say(producer, sending, said)
        finally:
            sending.hear()  # If a tuple was refused, that is why the id is.
        sending.flush()
        producer.commit_transaction(_COMMIT_S)

    def _deliver(self, producer: Any, sending: Sending, batches: Batches, said: Any) -> None:
        """First the tuples, and then the id."""
        sending.give(batches)
        sending.await_delivery(said.offset)
        producer.begin_transaction()
        self._say(producer, sending, said)
        producer.commit_transaction(_COMMIT_S)

    def _say(self, producer: Any, sending: Sending, said: Any) -> None:
        producer.send_offsets_to_transaction([said], self._group, _COMMIT_S)
        sending.moved_s = time.monotonic()

    def _is_away(self) -> bool:
        """Whether the broker does not answer, or does not know its topics yet."""
        try:
            if partitions_of(self._looker, self._spec.topic) is not None:
                return False
            self._waits.trouble = self._trouble()
        except KafkaError as error:
            self._waits.trouble = f"sink {self._spec.stream}: {error}"
        return True

    def _require_hope(self, attempt: _Attempt, error: Any) -> None:
        """Raise if another attempt would meet the same."""
        kafka = library().KafkaError
        failed = attempt.sending.failed or error
        hopeless = (
            *(kafka.MSG_SIZE_TOO_LARGE, kafka.RECORD_LIST_TOO_LARGE, kafka.INVALID_MSG_SIZE),
            *(kafka.TOPIC_AUTHORIZATION_FAILED, kafka.POLICY_VIOLATION, kafka.INVALID_RECORD),
            *(kafka._UNKNOWN_TOPIC, kafka._UNKNOWN_PARTITION, kafka.INVALID_REQUIRED_ACKS),
            *(kafka.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, kafka.GROUP_AUTHORIZATION_FAILED),
        )
        if failed.code() in hopeless:
            raise KafkaError(
                f"sink {self._spec.stream}: topic {self._spec.topic!r} does not take "
                f"{attempt.sending.at}: {failed.str()}"
            )
        fenced = (kafka._FENCED, kafka.INVALID_PRODUCER_EPOCH, kafka._FATAL)
        is_of_transactions = self._spec.is_exactly_once or attempt.sending.is_delivered
        if is_of_transactions and (error.fatal() or error.code() in fenced):
            why = _why_ended(self._spec, attempt.age_s)
            raise LogSuperseded(f"sink {self._spec.stream}: {error.str()}{why}")

    def _patiently(self, call: Callable[[float], Any]) -> Any:
        """Call until it is done; it may be called again after it has timed out."""
        while True:
            try:
                return call(_CALL_S)
            except library().KafkaException as error:
                found = code_of(error)
                if found.fatal() and found.code() not in _refusals():
                    raise LogSuperseded(f"sink {self._spec.stream}: {found.str()}") from None
                if not is_waiting_worth_it(found):
                    raise KafkaError(f"sink {self._spec.stream}: {found.str()}") from None
                self._wait()

    def _note_written(self) -> None:
        if not self._is_written:
            _note_written(self._spec)
            self._is_written = True

    def _wait(self) -> None:
        self._waits.trouble = self._trouble()
        self._check_closing()
        self._closing.wait(_WAIT_S)

    def _trouble(self) -> str:
        spec = self._spec
        return f"sink {spec.stream} waits for the Kafka broker at {spec.cluster.servers}"

    def _check_closing(self) -> None:
        if self._closing.is_set():
            raise KafkaInterrupted(f"sink {self._spec.stream}: the node ends")


class _Attempt:
    """Settles tuples with the broker, in a thread."""

    def __init__(self, sending: Sending, settle: Callable[[], None], name: str) -> None:
        """Begin it.

        Args:
            sending: What tells how far it has come.
            settle: Does it.
            name: The thread's.
        """
        self.sending = sending
        self.error: Exception | None = None
        self._settle = settle
        self._began_s = time.monotonic()
        self.is_over = threading.Event()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def age_s(self) -> float:
        """For how long it has gone on."""
        return time.monotonic() - self._began_s

    def is_stuck(self, since_s: float, patience_s: float) -> bool:
        """Whether, with the broker there since then, it should have come further by now."""
        return time.monotonic() - max(since_s, self.sending.moved_s) > patience_s

    def _run(self) -> None:
        try:
            self._settle()
        except Exception as error:  # Whoever waits for the attempt sorts it out.
            self.error = error
        finally:
            self.is_over.set()


def _refusals() -> tuple[Any, ...]:
    """What the broker says of a producer that it will never let begin."""
    kafka = library().KafkaError
    return (
        *(kafka.INVALID_TRANSACTION_TIMEOUT, kafka.UNSUPPORTED_VERSION),
        *(kafka.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, kafka.CLUSTER_AUTHORIZATION_FAILED),
    )


def _why_ended(spec: KafkaSinkSpec, open_s: float) -> str:
    """What may have ended a transaction, if no successor did: the library tells no difference."""
    limit_ms = int(spec.cluster.options.get("transaction.timeout.ms", _TRANSACTION_MS))
    if 1000 * open_s <= limit_ms:
        return ""
    return (
        f"; the transaction was open for {open_s:.0f} s, and the broker ends one after "
        f"transaction.timeout.ms={limit_ms}"
    )


def _known_next_id(spec: KafkaSinkSpec, writer: str, found: Any, incarnation: Incarnation) -> int:
    """The next id that the broker knows, or else the user.

    Args:
        spec: The sink.
        writer: Its own name.
        found: What the broker says of the sink's group.
        incarnation: On whose behalf it is asked.

    Raises:
        KafkaError: It is gone, or is another's.
        LogSuperseded: A later incarnation has written.
    """
    if found.error is not None:
        raise KafkaError(f"sink {spec.stream}: {found.error.str()}")
    store = store_at(spec.place)
    try:
        has_written = read_if_any(store, _WRITTEN_FILE) is not None
        told = read_if_any(store, _NEXT_ID_FILE)
    finally:
        store.close()
    said = next_of(
        found.offset,
        found.metadata or "",
        writer=writer,
        incarnation=incarnation,
        has_written=has_written,
    )
    match said:
        case GoOn():
            if found.offset >= 0:
                _note_written(spec)
            return said.next_id
        case Superseded():
            raise LogSuperseded(f"sink {spec.stream}: incarnation {said.incarnation} writes")
    return _unknown(spec, writer, said, found) if told is None else _said_in(spec, told)


def _note_written(spec: KafkaSinkSpec) -> None:
    """From now on the broker must know the id."""
    store = store_at(spec.place)
    put_or_read(store, _WRITTEN_FILE, [b"1"])
    store.delete(_NEXT_ID_FILE)  # What it says would be wrong from now on.
    store.close()


def _unknown(spec: KafkaSinkSpec, writer: str, said: Lost | Foreign, found: Any) -> NoReturn:
    """The broker does not say how far the topic has been written."""
    where = f"group {spec.transactional_id or writer!r} on {spec.topic}[0]"
    if isinstance(said, Lost):
        why = (
            f"Kafka has lost the offset of {where}, which says up to which tuple the topic has "
            "been written (offsets.retention.minutes)"
        )
    else:
        why = (
            f"{where} has the offset {found.offset} with metadata {found.metadata or ''!r}, "
            "which this sink has not committed: another consumer or another query uses the "
            "group. Have that use another one, or give this sink another transactional_id"
        )
    raise KafkaError(
        f"sink {spec.stream}: {why}. Then say where the sink is: the newest record's header "
        f"{HEADER!r} names the last tuple; write the id behind it, or 0 if there is none, into "
        f"{spec.place}/{_NEXT_ID_FILE}, and start again"
    )


def _said_in(spec: KafkaSinkSpec, content: bytes) -> int:
    """What the user says, where the broker does not know."""
    text = content.decode(errors="replace").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise KafkaError(
            f"{spec.place}/{_NEXT_ID_FILE} holds {text[:40]!r}; it is the id of the "
            "tuple that comes next, e.g. 18"
        )
    return int(text)


def _made_up(place: str, stream: str, *, has_own_id: bool = False) -> str:
    """The sink's name: of this stream at this place, and of no other anywhere.

    Args:
        place: Where it is remembered.
        stream: The sink's stream.
        has_own_id: The broker knows the sink by an id that the user gave. Whoever had written by
            one before names were kept has none yet; should a name be lost, the offset that
            it stands beside is not believed.
    """
    store = store_at(place)
    try:
        found = read_if_any(store, _NAME_FILE)
        if found is None:
            if not has_own_id and read_if_any(store, _WRITTEN_FILE) is not None:
                raise FileMissing(f"{place}/{_NAME_FILE}", "the topic has been written by its id")
            wanted = encode_sealed({"id": f"holdfast-{secrets.token_hex(8)}-{stream}"})
            found = put_or_read(store, _NAME_FILE, [wanted])
        return decode(found, f"{place}/{_NAME_FILE}", lambda said: str(said["id"]))
    finally:
        store.close()
