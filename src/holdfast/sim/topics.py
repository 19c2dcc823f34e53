"""A source read from a topic by several instances, under one seeded scheduler.

Real are the cores: positions (queues/topic_positions.py), partitions and who of them is idle
(queues/partition_boundaries.py), what idle instances may promise (queues/idle_floor.py,
coordinator/idle_floors.py). Simulated is what lies around them: a topic whose partitions are busy
without end, come in bursts, stop, or never have a record; the logs with their claims, opened in
steps; keep-alives and floors that are late or lost. Instances are killed, paused and replaced while
they still write, by replicas that have followed the log with stale listings or by others; the
broker is away, for the instances alone or for all; the driver forgets what it
has heard; the topic is made anew.

The invariants, by name:

    K-ONCE   every record of a partition is in its log once, or late
    K-LATE   what is late is older than what its log had promised, and what was in the topic long
             before that promise is not late, unless it is older than its own partition allows
    K-BND    a log holds no tuple that is older than a boundary before it, and shows none
    K-SHOWN  what was shown under an id is what the log holds there for ever, and what a replica
             that takes over has read of it
    K-IDLE   no boundary passes a partition that had a record within the time after which it is idle
    K-FLOOR  an idle instance promises no more than it was told, nor than one that has not been idle
             since then
    K-LIVE   in the end everything has been read, and idle instances are where the others are
    K-TOPIC  a topic that was made anew is refused: at the opening, or within a moment
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.core.coordinator.idle_floors import IdleFloors
from holdfast.core.haunit.plan import InputSpec, NodePlan
from holdfast.core.model.ids import BEGINNING_US, NOBODY, Incarnation, NodeId, StreamId
from holdfast.sim.checkers.base import Violation
from holdfast.sim.scheduler import Scheduler, Trace
from holdfast.sim.topic_instances import (
    ASK_ID_MS,
    Entry,
    Follower,
    Instance,
    Place,
    Row,
    TopicRecord,
)

if TYPE_CHECKING:
    from holdfast.core.queues.idle_floor import Reached

_FAULTS_END_MS: Final = 12_000
_END_MS: Final = 18_000
_KEEP_ALIVE_MS: Final = 100
_WORD_MS: Final = 50
_KNOWN_MS: Final = 2 * _KEEP_ALIVE_MS + 3 * _WORD_MS
"""After so long the driver knows that an instance is not idle, unless several words are lost."""
_LOOKED_MS: Final = 1_000
"""A record that has been there for so long has been looked at, or nobody has looked."""
_BOUND_MS: Final = 2_500
"""An idle instance is no further behind the others."""

FAULTS: Final = (
    "kill",
    "replace while it writes",
    "pause",
    "broker away",
    "broker out of reach",
    "driver forgets",
    "topic made anew",
)
_DRAWN: Final = (*FAULTS[:-1], "kill", "pause", "pause")


@dataclass(frozen=True, slots=True)
class TopicOutcome:
    """How a run ended.

    Attributes:
        seed: Its seed.
        invariant: The one violated; None: all held.
        violation: In words.
        digest: Equal for equal runs.
        rows: In the logs.
        late: Records that were late.
        promises: Of idle instances.
        faults: Which struck.
        reached: How often rare situations were met.
    """

    seed: int
    invariant: str | None
    violation: str
    digest: str
    rows: int
    late: int
    promises: int
    faults: tuple[str, ...]
    reached: dict[str, int]


class TopicWorld:
    """One run."""

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        """Draw a topic, its instances and what happens to them."""
        self._scheduler = Scheduler(seed, trace)
        self.partitions = self.draw("topic", 1, 5)
        self.instances = self.draw("topic", 1, min(3, self.partitions))
        self.idle_ms = None if self.percent("topic", 20) else self.draw("topic", 150, 900)
        self.delay_us = self.draw("topic", 0, 300) * 1_000
        self.topic = 0
        self.places = [Place() for _ in range(self.instances)]
        self.records = [self._produced(partition) for partition in range(self.partitions)]
        self.current: list[Instance] = []
        self.primaries = dict.fromkeys(map(self.node, range(self.instances)), NOBODY)
        self.floors = self._floors()
        self.is_over = False
        self.is_broker_away = False
        self.anew_at_ms: int | None = None
        self.refusals: set[int] = set()
        self.promises = 0
        self.struck: list[str] = []
        self.has_followers = self.percent("followers", 50)
        self.followers: dict[int, Follower] = {}
        self.reached: dict[str, int] = {}

    # -- chance and time ----------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The time."""
        return self._scheduler.now_us // 1_000

    def draw(self, concern: str, low: int, high: int) -> int:
        """A number in [low, high]."""
        return self._scheduler.uniform(concern, low, high)

    def percent(self, concern: str, probability: int) -> bool:
        """True so many times in a hundred."""
        return self._scheduler.percent(concern, probability)

    def after(self, delay_ms: int, action: object) -> None:
        """Do something later."""
        assert callable(action)
        self._scheduler.after(1_000 * delay_ms, action)

    # -- the topic ------------------------------------------------------------------------------

    @property
    def topic_id(self) -> str:
        """Of the topic as it is now."""
        return f"id-{self.topic}"

    def _produced(self, partition: int) -> list[TopicRecord]:
        """All records that ever come to a partition, in order."""
        concern = f"produce/{self.topic}/{partition}"
        kind = min(3, self.draw(concern, 0, 6) // 2)  # endless, in bursts, stops; seldom silent
        at_ms, records = self.draw(concern, 0, 500), list[TopicRecord]()
        stops_ms = (_END_MS, _FAULTS_END_MS, self.draw(concern, 500, 8_000), 0)[kind]
        while at_ms < stops_ms:
            slack = self.delay_us // 1_000
            behind_ms = self.draw(concern, 0, slack)
            is_old = self.percent(concern, 3)
            behind_ms += 2_000 + slack if is_old else 0
            records.append(TopicRecord(at_ms, 1_000 * (at_ms - behind_ms), is_old))
            is_pause = kind == 1 and self.percent(concern, 15)
            at_ms += self.draw(concern, 600, 3_000) if is_pause else self.draw(concern, 5, 120)
        return records

    def end_of(self, partition: int, lag_ms: int = 0) -> int:
        """The offset behind the last record that is there, or was so long ago."""
        now_ms = self.now_ms - lag_ms
        return sum(record.at_ms <= now_ms for record in self.records[partition])

    # -- the driver -----------------------------------------------------------------------------

    @staticmethod
    def node(number: int) -> NodeId:
        """Of an instance."""
        return NodeId(f"s[{number}]")

    def _floors(self) -> IdleFloors:
        schema = pa.schema([])
        return IdleFloors(
            NodePlan(
                self.node(i), "s", i, (InputSpec(StreamId(f"s[{i}]"), 0, schema, None),), 1, (), ()
            )
            for i in range(self.instances)
        )

    def _keep_alive(self) -> None:
        for instance in self.current:
            is_stopped = instance.is_dead or self.now_ms < instance.paused_until_ms
            if instance.reached is not None and not is_stopped and not self.percent("words", 5):
                self._say(instance, instance.reached)
        if not self.is_over:
            self.after(_KEEP_ALIVE_MS, self._keep_alive)

    def _say(self, instance: Instance, reached: Reached) -> None:
        node, incarnation = self.node(instance.number), Incarnation(instance.incarnation)

        def arrive() -> None:
            if self.primaries[node] != incarnation:
                return
            said = {StreamId(node): reached}
            for _, floor_us in self.floors.heard(
                node, incarnation, said, self.primaries.__getitem__
            ):
                if not self.percent("words", 5):
                    at_ms = self.now_ms
                    delay_ms = self.draw("words", 1, _WORD_MS)
                    self.after(delay_ms, lambda told=floor_us, at=at_ms: tell(told, at))

        def tell(floor_us: int, at_ms: int) -> None:
            instance.floor_us, instance.floor_at_ms = floor_us, at_ms

        self.after(self.draw("words", 1, _WORD_MS), arrive)

    def _launch(self, number: int, incarnation: int) -> None:
        if self.is_over:
            return
        follower = None
        if self.has_followers:
            follower = self.followers.get(number) if self.percent("followers", 70) else None
            if follower is not None or number not in self.followers:
                self.followers[number] = Follower(self, number)
                self.after(self.draw("followers", 50, 400), self.followers[number].poll)
        instance = Instance(self, number, incarnation, follower)
        if number < len(self.current):
            self.current[number] = instance
        else:
            self.current.append(instance)
        self.primaries[self.node(number)] = Incarnation(incarnation)
        instance.later(0, 100, "claim")

    def _replace(self, number: int) -> None:
        """The driver takes an instance for dead, rightly or not."""
        self.primaries[self.node(number)] = NOBODY
        self.places[number].not_idle_since_ms = self.now_ms
        incarnation = self.current[number].incarnation + 1
        self.after(self.draw("faults", 0, 900), lambda: self._launch(number, incarnation))

    # -- faults -----------------------------------------------------------------------------------

    def _plan(self) -> None:
        for _ in range(self.draw("faults", 0, 12)):
            kind = _DRAWN[self.draw("faults", 0, len(_DRAWN) - 1)]
            at_ms = self.draw("faults", 300, _FAULTS_END_MS - 1_000)
            number = self.draw("faults", 0, self.instances - 1)
            length_ms = self.draw("faults", 1_500, 5_000)
            self.after(at_ms, lambda k=kind, n=number, ms=length_ms: self._strike(k, n, ms))
        if self.percent("faults", 15):
            at_ms = self.draw("faults", 1_000, _FAULTS_END_MS)
            self.after(at_ms, lambda: self._strike("topic made anew", 0, 0))

    def _strike(self, kind: str, number: int, length_ms: int) -> None:
        instance = self.current[number]
        self.struck.append(kind)
        self._scheduler.note(f"{kind} {number} {length_ms}")
        if kind == "kill":
            instance.is_dead = True
            self._is_silent(instance, 400)
            self.after(self.draw("faults", 50, 400), lambda: self.replace_if(instance))
        elif kind == "replace while it writes":
            self.replace_if(instance)
        elif kind == "pause":
            instance.paused_until_ms = self.now_ms + length_ms
            self._is_silent(instance, length_ms)
            if self.percent("faults", 50):
                self.after(length_ms // 2, lambda: self.replace_if(instance))
        elif kind in ("broker away", "broker out of reach"):
            self.is_broker_away = True
            if kind == "broker away":  # Nobody can write either: what would have come comes later.
                self._hold_back(length_ms)
            self.after(length_ms, self._broker_is_back)
        elif kind == "driver forgets":
            self.floors = self._floors()
        else:
            self._make_anew()

    def _is_silent(self, instance: Instance, length_ms: int) -> None:
        """It says nothing for so long; nor has it, perhaps, that it is not idle any more."""
        place = instance.place
        said_ms = place.not_idle_since_ms + _KNOWN_MS
        is_current = self.current[instance.number] is instance
        if is_current and place.not_idle_since_ms <= self.now_ms < said_ms:
            place.not_idle_since_ms = self.now_ms + length_ms

    def replace_if(self, instance: Instance) -> None:
        """Replace it, unless that has been done."""
        if self.current[instance.number] is instance:
            node = self.node(instance.number)
            if self.primaries[node] == instance.incarnation:
                self._replace(instance.number)

    def _broker_is_back(self) -> None:
        self.is_broker_away = False

    def _hold_back(self, length_ms: int) -> None:
        until_ms = self.now_ms + length_ms
        self.records = [
            [
                TopicRecord(max(r.at_ms, until_ms), r.time_us, r.is_out_of_order)
                if r.at_ms > self.now_ms
                else r
                for r in records
            ]
            for records in self.records
        ]

    def _make_anew(self) -> None:
        self.topic += 1
        self.anew_at_ms = self.now_ms
        self.records = [self._produced(partition) for partition in range(self.partitions)]

    # -- what is checked ------------------------------------------------------------------------

    def refused(self, instance: Instance) -> None:
        """A topic of another id was refused: the query has failed."""
        instance.is_dead = True
        if self.anew_at_ms is None:
            raise Violation("K-TOPIC", f"instance {instance.number} refuses the topic it has read")
        self.refusals.add(instance.number)
        self.is_over = True

    def appended(self, instance: Instance, entry: Entry) -> None:
        """An instance has written."""
        anew_ms = self.anew_at_ms
        if anew_ms is None or not any(row.topic for row in entry.rows):
            return
        seen_ms = max(anew_ms, instance.opened_ms)
        paused_ms = max(0, instance.paused_until_ms - seen_ms)
        if instance.place.span is not None and instance.place.span.topic_id == self.topic_id:
            return  # It began with the new one.
        if self.now_ms - seen_ms > ASK_ID_MS + 400 + paused_ms and not self.is_broker_away:
            raise Violation("K-TOPIC", f"instance {instance.number} reads on in another topic")

    def promised(self, instance: Instance, boundary_us: int) -> None:
        """An instance promises something without a record."""
        boundaries = instance.boundaries
        if boundaries is None or not boundaries.reached(0).is_idle or self.instances == 1:
            return
        self.promises += 1
        if boundary_us > instance.floor_us:
            raise Violation("K-FLOOR", f"instance {instance.number} promises more than it was told")
        for number, place in enumerate(self.places):
            is_other = number != instance.number
            known_ms = place.not_idle_since_ms + _KNOWN_MS
            if is_other and known_ms < instance.floor_at_ms and boundary_us > place.boundary_us:
                raise Violation(
                    "K-FLOOR",
                    f"idle instance {instance.number} promises {boundary_us}, and {number}, which "
                    f"has not been idle since {place.not_idle_since_ms} ms, {place.boundary_us}",
                )

    def passed(self, instance: Instance, boundary_us: int) -> None:
        """A boundary is written that may be further than the one before."""
        if self.topic or boundary_us <= max(instance.durable_us, instance.place.boundary_us):
            return
        for partition, taken_ms in instance.taken_ms.items():
            if self.idle_ms is not None and self.now_ms - taken_ms >= self.idle_ms:
                continue
            read = self.records[partition][: instance.positions.of[partition].next_offset]
            own_us = max(record.time_us for record in read) - self.delay_us
            if boundary_us > own_us:
                raise Violation(
                    "K-IDLE", f"{boundary_us} is promised, and partition {partition} is at {own_us}"
                )

    def judged_late(self, instance: Instance, row: Row) -> None:
        """An instance leaves a record out."""
        if row.topic != 0 or self.topic:
            return
        place, record = instance.place, self.records[row.partition][row.offset]
        passed = [e.at_ms for e in place.log if e.boundary_us > row.time_us]
        if instance.incarnation == place.owner:
            if not passed:
                raise Violation("K-LATE", f"{row} is late, and nothing was promised")
            place.late[(row.partition, row.offset)] = row.time_us
            if not record.is_out_of_order and min(passed) > record.at_ms + _LOOKED_MS:
                raise Violation(
                    "K-LATE",
                    f"{row} came at {record.at_ms} ms and is late, promised at {min(passed)} ms",
                )

    def count(self, what: str) -> None:
        """Something rare was met."""
        self.reached[what] = self.reached.get(what, 0) + 1

    def showed(self, instance: Instance) -> None:
        """A node sees the log of an instance as it is."""
        place = instance.place
        rows = [row for entry in place.log for row in entry.rows]
        if instance.follower is not None:
            read = instance.follower.rows
            if read != rows[: len(read)]:
                raise Violation("K-SHOWN", f"replica {instance.number} has read other tuples")
            self.count("replica took over")
        known = len(place.shown)
        if rows[:known] != place.shown[: len(rows)] or len(rows) < known:
            raise Violation("K-SHOWN", f"instance {instance.number} has shown other tuples before")
        for row in rows[known:]:
            if row.time_us < place.shown_us:
                raise Violation("K-BND", f"{row} is shown behind the boundary {place.shown_us}")
        place.shown = rows
        place.shown_us = max(place.shown_us, instance.durable_us)
        self._scheduler.note(f"{instance.number} shows {len(rows)} up to {place.shown_us}")

    def _check_log(self, number: int, place: Place) -> None:
        boundary_us = BEGINNING_US
        seen: dict[tuple[int, int], None] = {}
        for entry in place.log:
            for row in entry.rows:
                if row.time_us < boundary_us:
                    raise Violation("K-BND", f"{row} is logged behind the boundary {boundary_us}")
                if (row.partition, row.offset) in seen:
                    raise Violation("K-ONCE", f"{row} is there twice")
                seen[(row.partition, row.offset)] = None
            boundary_us = max(boundary_us, entry.boundary_us)
        if self.topic:
            return
        for partition in range(number, self.partitions, self.instances):
            for offset, record in enumerate(self.records[partition]):
                if record.at_ms > self.now_ms - _BOUND_MS or (partition, offset) in seen:
                    continue
                if (partition, offset) not in place.late:
                    is_read = any(p == partition and o > offset for p, o in seen)
                    what = f"record {offset} of partition {partition}"
                    raise Violation("K-ONCE" if is_read else "K-LIVE", f"{what} is nowhere")

    def _check_bound(self) -> None:
        """All are where their partitions are, and idle ones where the others are."""
        if self.topic:
            return
        settled_ms = self.now_ms - _BOUND_MS
        newest: dict[int, int] = {}
        busy: dict[int, None] = {}
        for partition, records in enumerate(self.records):
            here = [r for r in records if r.at_ms <= self.now_ms]
            settled = [r.time_us for r in here if r.at_ms < settled_ms]
            if settled:
                newest[partition] = max(settled) - self.delay_us
            if here and (self.idle_ms is None or here[-1].at_ms > settled_ms - self.idle_ms):
                busy[partition] = None
        due_us = BEGINNING_US
        if self.idle_ms is not None and all(partition in newest for partition in busy):
            reached = [newest[partition] for partition in busy or newest]
            due_us = (min if busy else max)(reached, default=BEGINNING_US)
        for number, place in enumerate(self.places):
            own = range(number, self.partitions, self.instances)
            own_us = min(newest.get(partition, BEGINNING_US) for partition in own)
            if place.shown_us < max(due_us, own_us):
                raise Violation(
                    "K-LIVE",
                    f"instance {number} is at {place.shown_us}, not at {max(due_us, own_us)}",
                )

    def run(self) -> None:
        """Until the end. Raises `Violation`."""
        for number in range(self.instances):
            self._launch(number, 1)
        self._keep_alive()
        self._plan()
        self._scheduler.run(lambda: self.is_over, lambda: 1_000 * _END_MS)
        if self.anew_at_ms is not None and not self.is_over:
            read = [place for place in self.places if place.span is not None]
            if any(place.span is not None and place.span.topic_id == "id-0" for place in read):
                raise Violation("K-TOPIC", "a topic that was made anew is not refused")
        for number, place in enumerate(self.places):
            self._check_log(number, place)
        self._check_bound()

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return self._scheduler.digest()


def simulate_topics(seed: int, trace: Trace | None = None) -> TopicOutcome:
    """One run by its seed; `trace` is told of what happens. Cost: some 50 ms."""
    world = TopicWorld(seed, trace)
    invariant, violation = None, ""
    try:
        world.run()
    except Violation as found:
        invariant, violation = found.invariant, str(found)
    return TopicOutcome(
        seed,
        invariant,
        violation,
        world.digest,
        sum(place.next_id for place in world.places),
        sum(len(place.late) for place in world.places),
        world.promises,
        tuple(world.struck),
        world.reached,
    )
