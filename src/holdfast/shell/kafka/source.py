"""A Kafka source inside a node: it follows its log, and the primary's fills the log meanwhile.

The log is an ordinary stream log. Every replica reads it, so that the same ids give the same tuples
whoever asks, whenever; only what `lead` was told of writes it (ingest.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from holdfast.core.model.ids import BEGINNING_US, END_US, Incarnation
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.queues.idle_floor import Reached
from holdfast.core.wire.log_owners import read_in_vain
from holdfast.shell.kafka.ingest import KafkaIngest, TopicReading
from holdfast.shell.sources.base import SourceRows
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage.errors import LogSuperseded
from holdfast.shell.transport.waker import Waker


@dataclass(frozen=True, slots=True)
class KafkaSourceSpec:
    """One instance of a Kafka source.

    Attributes:
        reading: What is read.
        place: The log's folder or URL.
        is_draining: Whether what the log holds is all that is given; the topic is not read.
    """

    reading: TopicReading
    place: str
    is_draining: bool = False

    def open(self) -> KafkaReader:
        """Open the log; nothing is asked of the broker yet."""
        return KafkaReader(self)


class KafkaReader:
    """Follows the log; see `SourceReader`."""

    def __init__(self, spec: KafkaSourceSpec) -> None:
        """Follow only, until `lead`."""
        self._spec = spec
        self._log = LogSourceSpec(spec.place, "stream").follow()
        self._ingest: KafkaIngest | None = None
        self._read_before = -1  # in the log
        self._held: deque[TupleBatch] = deque()  # read, and perhaps not durable yet
        self._boundary_us = BEGINNING_US
        self._late_rows = 0  # as told last
        self._waker = Waker()

    def fileno(self) -> int:
        """See `StirringReader`."""
        return self._waker.fileno()

    def lead(self, incarnation: Incarnation) -> None:
        """From now on this is the primary's: fill the log.

        Raises:
            LogSuperseded: What was read of the log so far is not what it holds.
            StorageError: The log has a writer of this incarnation or a later one.
        """
        if self._ingest is not None:
            return
        spec = self._spec
        self._ingest = KafkaIngest(
            spec.reading, spec.place, incarnation, self._waker.wake, is_draining=spec.is_draining
        )
        lost = read_in_vain(self._log.read_of, self._read_before, self._ingest.owners)
        if lost is None and self._read_before > self._ingest.begun_at:
            lost = self._ingest.begun_at
        if lost is not None:
            raise LogSuperseded(
                f"{self._spec.place} has lost tuples from {lost} on, which this replica has read"
            )
        # What a zombie wrote up to now may have been read ahead; what is read from now on is not.
        self._log.close()
        self._log = LogSourceSpec(spec.place, "stream").follow()

    @property
    def trouble(self) -> str:
        """What the source waits for; empty: nothing."""
        return "" if self._ingest is None else self._ingest.trouble

    @property
    def warning(self) -> str:
        """What the user should know of its tuples; empty: nothing."""
        reading = self._spec.reading
        rows = 0 if self._ingest is None else self._ingest.rows_ahead
        if not rows or reading.ahead_us is None:
            return ""
        return (
            f"source {reading.source}: {rows} tuples of topic {reading.topic!r} are more than "
            f"{reading.ahead_us // 1_000_000} s ahead of their partitions, and of the clock; time "
            "does not follow them"
        )

    @property
    def slowest(self) -> str:
        """What within the source holds back its boundary; empty: nothing is known."""
        return "" if self._ingest is None else self._ingest.slowest

    @property
    def is_held_up(self) -> bool:
        """Whether others of its partitions are further."""
        return self._ingest is not None and self._ingest.is_held_up

    @property
    def reached(self) -> Reached | None:
        """How far it is; None as long as it does not lead, or nothing is known."""
        return None if self._ingest is None else self._ingest.reached

    def tell_floor(self, floor_us: int) -> None:
        """What it may promise as long as it is idle."""
        if self._ingest is not None:
            self._ingest.floor_us = floor_us

    def newest_id(self) -> int:
        """The end of what has been logged when this node came up."""
        return 0 if self._ingest is None else self._ingest.begun_at

    @property
    def rows_read(self) -> int | None:
        """Rows of a log that gets no more, once all have been given; None: nobody counts.

        With the last of them, the newest boundary has been given.
        """
        ingest = self._ingest
        if ingest is None or not self._spec.is_draining or self._held:
            return None
        return self._read_before if self._read_before >= ingest.durable_before else None

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """What is durable from an id on. Raises what the thread that fills the log met."""
        self._waker.clear()
        ingest = self._ingest
        if ingest is not None and ingest.error is not None:
            raise ingest.error
        held_from = self._held[0].first_id if self._held else self._read_before
        if from_id != held_from:
            self._held.clear()
            self._read_before, self._boundary_us = from_id, BEGINNING_US
        if ingest is None:
            durable_us, durable_before, late = END_US, END_US, 0
        else:
            # In this order: the boundary may be that of fewer tuples, never of more.
            durable_us, durable_before = ingest.boundary_us, ingest.durable_before
            late = ingest.late_rows
        known = (self._read_before, self._boundary_us, self._late_rows)
        if not self._held and known == (durable_before, durable_us, late):
            return SourceRows((), durable_us, late)  # The log holds nothing new.
        rows = self._log.read(self._read_before, max_tuples)
        self._held.extend(rows.batches)
        if rows.batches:
            self._read_before = rows.batches[-1].next_id
        batches = []
        while self._held and self._held[0].next_id <= durable_before:
            batches.append(self._held.popleft())
        if not self._held:
            self._boundary_us = max(self._boundary_us, min(rows.boundary_us, durable_us))
        if ingest is not None and not self._held and self._read_before >= durable_before:
            # A promise at the very end may stand in a segment that its successor has taken over.
            self._boundary_us = max(self._boundary_us, durable_us)
        self._late_rows = late
        return SourceRows(tuple(batches), self._boundary_us, late)

    def close(self) -> None:
        """See `SourceReader.close`."""
        if self._ingest is not None:
            self._ingest.close()
        self._log.close()
        self._waker.close()
