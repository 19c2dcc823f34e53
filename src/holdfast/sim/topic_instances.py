"""Instances that read partitions of a topic into their logs, replaced by replicas or by others.

They are the shell of the cores that topics.py names, as a real one is of theirs: see there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.queues.partition_boundaries import PartitionBoundaries
from holdfast.core.queues.topic_positions import (
    Span,
    TopicPositions,
    believed,
    end_of,
    positions_name,
    superseded,
)
from holdfast.core.wire.log_owners import Owners, owner_of, read_in_vain, succeeded

if TYPE_CHECKING:
    from holdfast.core.queues.idle_floor import Reached
    from holdfast.core.wire.log_owners import Place as Begun
    from holdfast.sim.topics import TopicWorld

_IS_IDLE: Final = 10**9
ASK_ID_MS: Final = 500
_SAVE_MS: Final = 700
_LISTED_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record of the topic."""

    at_ms: int
    time_us: int
    is_out_of_order: bool


@dataclass(frozen=True, slots=True)
class Row:
    """A tuple of a log."""

    topic: int
    partition: int
    offset: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of a log."""

    rows: tuple[Row, ...]
    boundary_us: int
    at_ms: int


@dataclass(slots=True)
class Place:
    """What lies at one instance's place. All of it is durable.

    Attributes:
        claims: Of the log.
        owner: Whose entries count.
        log: The entries that count.
        owners: Of the log.
        written: Per incarnation where it began, and all its tuples, whether they count or not.
        files: Of positions.
        span: Where to begin, once it is settled.
        shown: The tuples that any incarnation has shown, by id.
        shown_us: The boundary that was shown.
        late: The records judged late, with their times.
        not_idle_since_ms: Since when the instance has not been idle; `_IS_IDLE`: it is.
    """

    claims: set[int] = field(default_factory=set)
    owner: int = 0
    log: list[Entry] = field(default_factory=list)
    owners: Owners = ()
    written: dict[int, tuple[int, list[Row]]] = field(default_factory=dict)
    files: dict[str, dict[str, object]] = field(default_factory=dict)
    span: Span | None = None
    shown: list[Row] = field(default_factory=list)
    shown_us: int = BEGINNING_US
    late: dict[tuple[int, int], int] = field(default_factory=dict)
    not_idle_since_ms: int = 0

    @property
    def next_id(self) -> int:
        """The id behind the last row of the log."""
        return sum(len(entry.rows) for entry in self.log)

    @property
    def boundary_us(self) -> int:
        """The log's boundary."""
        return max((entry.boundary_us for entry in self.log), default=BEGINNING_US)


class Follower:
    """A second replica: it reads the log, by owners that it has seen up to a second ago."""

    def __init__(self, world: TopicWorld, number: int) -> None:
        """Follow the log of this instance from its beginning."""
        self.world = world
        self.number = number
        self.rows: list[Row] = []
        self.read_of: list[Begun] = []
        self.is_over = False
        self._owners: Owners = ()
        self._listed_ms = -_LISTED_MS

    def poll(self) -> None:
        """Read what there is, from whom it seems to be."""
        world, place = self.world, self.world.places[self.number]
        if self.is_over or world.is_over:
            return
        if world.now_ms - self._listed_ms >= _LISTED_MS:
            self._listed_ms, self._owners = world.now_ms, place.owners
        owner = owner_of(self._owners, len(self.rows))
        if owner is not None:
            first_id, written = place.written[owner.incarnation]
            end = min(owner.superseded_from, first_id + len(written))
            taken = written[len(self.rows) - first_id : end - first_id]
            if taken and (not self.read_of or self.read_of[-1][0] != owner.incarnation):
                self.read_of.append((owner.incarnation, len(self.rows)))
            self.rows += taken
        world.after(world.draw(f"follow/{self.number}", 20, 150), self.poll)

    def take_over(self, begun_at: int) -> bool:
        """Whether it can; as `KafkaReader.lead`."""
        self.is_over = True
        place = self.world.places[self.number]
        lost = read_in_vain(self.read_of, len(self.rows), place.owners)
        return lost is None and len(self.rows) <= begun_at


class Instance:
    """One incarnation that reads and writes."""

    def __init__(
        self, world: TopicWorld, number: int, incarnation: int, follower: Follower | None
    ) -> None:
        """Come up as this incarnation; `follower` is what it was, if it is promoted."""
        self.world = world
        self.number = number
        self.incarnation = incarnation
        self.place = world.places[number]
        self.follower = follower  # that it was
        self.is_dead = False
        self.paused_until_ms = 0
        self.floor_us = BEGINNING_US
        self.floor_at_ms = 0
        self.reached: Reached | None = None
        self.boundaries: PartitionBoundaries | None = None
        self.positions = TopicPositions()
        self.next_id = 0
        self.durable_us = BEGINNING_US
        self.asked_ms = self.saved_ms = 0
        self.left: list[str] = []
        self.taken_ms: dict[int, int] = {}  # when each partition's last record was taken
        self.at_end: list[int] = []
        self.opened_ms = world.now_ms
        self.partitions = [p for p in range(world.partitions) if p % world.instances == number]

    def later(self, low_ms: int, high_ms: int, action: str) -> None:
        """Take the next step; a paused process takes it when it goes on."""
        delay_ms = self.world.draw(f"steps/{self.number}", low_ms, high_ms)
        self.world.after(delay_ms, lambda: self._step(action))

    def _step(self, action: str) -> None:
        if self.is_dead or self.world.is_over:
            return
        if self.world.now_ms < self.paused_until_ms:
            self.world.after(self.paused_until_ms - self.world.now_ms, lambda: self._step(action))
            return
        getattr(self, action)()

    def claim(self) -> None:
        """Step 1 of opening."""
        if max(self.place.claims, default=0) >= self.incarnation:
            self.is_dead = True
            return
        self.place.claims.add(self.incarnation)
        self.later(0, 150, "find_end")

    def find_end(self) -> None:
        """Step 2: what is there now counts, and nothing that comes before step 3."""
        self._found = len(self.place.log)
        self.later(0, 150, "begin")

    def begin(self) -> None:
        """Step 3: from now on this incarnation's entries count."""
        place, world = self.place, self.world
        if place.owner < self.incarnation:
            del place.log[self._found :]
            place.owner = self.incarnation
            incarnation = Incarnation(self.incarnation)
            place.owners = succeeded(place.owners, incarnation, place.next_id)
            place.written[self.incarnation] = (place.next_id, [])
        if self.follower is not None and not self.follower.take_over(place.next_id):
            self.is_dead = True
            world.count("replica with other tuples")
            world.after(50, lambda: world.replace_if(self))
            return
        self.next_id, self.durable_us = place.next_id, place.boundary_us
        name = believed(place.files, self.next_id)
        from_id = 0
        if name is not None:
            self.positions.restore(place.files[name])
            from_id = end_of(name)
        for row in [row for entry in place.log for row in entry.rows][from_id:]:
            self.positions.advance(row.partition, row.offset + 1, row.time_us)
        self.save()
        if place.span is None:
            place.span = Span(dict.fromkeys(self.partitions, 0), None, world.topic_id)
        if not place.span.is_of(world.topic_id):
            world.refused(self)
            return
        self.positions.begin(self.partitions, place.span)
        self.boundaries = PartitionBoundaries(
            self.partitions,
            delay_us=world.delay_us,
            idle_ms=world.idle_ms,
            boundary_us=self.durable_us,
            newest_us={p: found.newest_us for p, found in self.positions.of.items()},
            is_sole=world.instances == 1,
        )
        self.show()
        self.asked_ms = world.now_ms
        self.later(0, 30, "turn")

    def save(self) -> None:
        """Leave the positions, as shell/kafka/positions.py does."""
        name = positions_name(self.incarnation, self.next_id)
        if name in self.left:
            return
        self.place.files[name] = self.positions.to_json()
        former, self.left = self.left, [name]
        earlier = () if former else list(self.place.files)
        for old in [*former, *superseded(earlier, self.incarnation)]:
            self.place.files.pop(old, None)

    def turn(self) -> None:
        """As the thread of shell/kafka/ingest.py."""
        world, boundaries, place = self.world, self.boundaries, self.place
        if boundaries is None or place.span is None:
            return
        now_ms = world.now_ms
        if world.is_broker_away:
            boundaries.looked(now_ms)
            boundaries.resumed(now_ms)
            self.told()
            self.later(100, 300, "turn")
            return
        if now_ms - self.asked_ms > ASK_ID_MS:
            self.asked_ms = now_ms
            if not place.span.is_of(world.topic_id):
                world.refused(self)
                return
        taken = self.take()
        boundaries.looked(now_ms)
        floor_us = boundaries.boundary_us
        for row in taken:
            boundaries.received(row.partition, row.time_us)
            self.taken_ms[row.partition] = now_ms
            self.positions.advance(row.partition, row.offset + 1, row.time_us)
        rows = tuple(row for row in taken if row.time_us >= floor_us)
        for row in taken:
            if row.time_us < floor_us:
                world.judged_late(self, row)
        for partition in self.at_end:
            boundaries.reached_end(partition, now_ms)
        self.at_end.clear()
        before_us = boundaries.advance() if rows else boundaries.boundary_us
        for partition in boundaries.quiet(now_ms):
            if world.end_of(partition) <= max(0, self.positions.of[partition].next_offset):
                boundaries.set_idle(partition)
        boundaries.told(self.floor_us)
        after_us = boundaries.advance()
        if rows:
            self.append(Entry(rows, before_us, now_ms))
        if after_us > max(before_us, self.durable_us):
            world.promised(self, after_us)
            self.append(Entry((), after_us, now_ms))
        if now_ms - self.saved_ms > _SAVE_MS:
            self.saved_ms = now_ms
            self.save()
        self.later(0, 20 if world.percent("disk", 90) else 600, "confirm")

    def take(self) -> list[Row]:
        """Some of what the topic has, partition by partition in any order."""
        taken: list[Row] = []
        world = self.world
        for partition in self.partitions:
            if world.percent("fetch", 30):
                continue
            at = max(0, self.positions.of[partition].next_offset)
            end = world.end_of(partition, world.draw("fetch", 0, 40))
            stop = min(end, at + world.draw("fetch", 1, 60))
            records = world.records[partition]
            taken += [
                Row(world.topic, partition, offset, records[offset].time_us)
                for offset in range(at, stop)
            ]
            if stop >= end:
                self.at_end.append(partition)
        return taken

    def append(self, entry: Entry) -> None:
        """Durable at once; it counts if this is still the owner."""
        self.next_id += len(entry.rows)
        self.world.passed(self, entry.boundary_us)
        if self.incarnation in self.place.written:
            self.place.written[self.incarnation][1].extend(entry.rows)
        if self.place.owner == self.incarnation:
            self.place.log.append(entry)
        self.world.appended(self, entry)

    def is_newest(self) -> bool:
        """Whether nobody else has claimed the log."""
        return max(self.place.claims) == self.incarnation

    def confirm(self) -> None:
        """What is durable is shown, unless somebody may have missed it."""
        if not self.is_newest():
            self.is_dead = True
            return
        self.durable_us = max(self.durable_us, self.place.boundary_us)
        self.show()
        self.told()
        self.later(10, 60, "turn")

    def show(self) -> None:
        """The node sees what the log holds."""
        self.world.showed(self)

    def told(self) -> None:
        """What the next keep-alive says."""
        if self.boundaries is not None:
            self.reached = self.boundaries.reached(self.durable_us)
            if self.reached.is_idle:
                self.place.not_idle_since_ms = _IS_IDLE
            elif self.place.not_idle_since_ms == _IS_IDLE:
                self.place.not_idle_since_ms = self.world.now_ms
