"""Deliberate bugs of sources that read a topic: each must be found by its simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from holdfast.core.coordinator import idle_floors
from holdfast.core.coordinator.idle_floors import IdleFloors
from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.queues import idle_floor, topic_positions
from holdfast.core.queues.partition_boundaries import PartitionBoundaries
from holdfast.core.queues.topic_positions import Span, TopicPositions, end_of
from holdfast.sim import topic_instances
from holdfast.sim.topic_instances import Instance


@dataclass(frozen=True, slots=True)
class TopicMutant:
    """A bug: what replaces a method of a class, or a function of modules.

    Attributes:
        owners: Who has it.
        name: What is replaced.
        bug: Makes the replacement from the original.
        invariants: One of these must be what is violated.
    """

    owners: tuple[Any, ...]
    name: str
    bug: Callable[[Any], Any]
    invariants: tuple[str, ...]

    @contextmanager
    def switched_in(self) -> Iterator[None]:
        """The bug is there within the block."""
        mutated = self.bug(getattr(self.owners[0], self.name))
        with ExitStack() as stack:
            for owner in self.owners:
                stack.enter_context(patch.object(owner, self.name, mutated))
            yield


def _follow_the_fastest(_: Any) -> Any:
    return lambda instances: max(
        (one.boundary_us for one in instances if one is not None and not one.is_idle),
        default=BEGINNING_US,
    )


def _go_on_without_the_unknown(original: Any) -> Any:
    return lambda instances: original([one for one in instances if one is not None])


def _wait_for_the_idle(original: Any) -> Any:
    def floor_us(instances: Any) -> int:
        return int(original([one and replace(one, is_idle=False) for one in instances]))

    return floor_us


def _believe_former_primaries(original: Any) -> Any:
    def heard(self: IdleFloors, node: Any, incarnation: Any, reached: Any, _: Any) -> Any:
        said = self._said

        def newest(name: Any) -> Incarnation:
            known = [s.incarnation for stream, s in said.items() if self._node_of[stream] == name]
            return max(known, default=Incarnation(0))

        return original(self, node, incarnation, reached, newest)

    return heard


def _say_nothing(_: Any) -> Any:
    return lambda *_: []


def _stay_idle_over_pauses(_: Any) -> Any:
    def resumed(self: PartitionBoundaries, now_ms: int) -> None:
        for found in self._partitions.values():
            if found.at_end_ms is not None and not found.is_idle:
                found.at_end_ms = now_ms

    return resumed


def _notice_no_pause(_: Any) -> Any:
    return lambda self, now_ms: None


def _be_as_far_as_its_own_furthest(_: Any) -> Any:
    def reached_us(self: PartitionBoundaries) -> int:
        counting = [self._boundary_of(p) for p in self._partitions.values() if not p.is_idle]
        return min(counting) if counting else max(self._floor_us, self._furthest_us())

    return reached_us


def _forget_the_promise(original: Any) -> Any:
    def init(self: PartitionBoundaries, partitions: Any, **more: Any) -> None:
        original(self, partitions, **{**more, "boundary_us": BEGINNING_US})

    return init


def _forget_the_newest_times(original: Any) -> Any:
    def advance(
        self: TopicPositions, partition: int, next_offset: int, newest_us: int = BEGINNING_US
    ) -> None:
        original(self, partition, next_offset)

    return advance


def _wake_without_a_record(_: Any) -> Any:
    def received(self: PartitionBoundaries, partition: int, newest_us: int) -> None:
        self._partitions[partition].reach.admit([(newest_us, newest_us, 1)], newest_us)

    return received


def _believe_the_furthest_positions(_: Any) -> Any:
    return lambda names, end_id: max(names, key=end_of, default=None)


def _begin_anew(_: Any) -> Any:
    def begin(self: TopicPositions, partitions: Any, span: Span) -> dict[int, int]:
        self.of.clear()
        for partition in partitions:
            self.advance(partition, span.begin.get(partition, 0))
        return {p: found.next_offset for p, found in self.of.items()}

    return begin


def _skip_one(original: Any) -> Any:
    def begin(self: TopicPositions, partitions: Any, span: Span) -> dict[int, int]:
        original(self, partitions, span)
        for found in self.of.values():
            found.next_offset += found.next_offset > 0
        return {p: found.next_offset for p, found in self.of.items()}

    return begin


def _take_any_topic(_: Any) -> Any:
    return lambda self, topic_id: True


def _show_in_spite_of_claims(_: Any) -> Any:
    return lambda self: True


def _compare_ids_alone(_: Any) -> Any:
    return lambda read, before, owners: None


_FLOOR = (idle_floor, idle_floors)
_POSITIONS = (topic_positions, topic_instances)
TOPIC_MUTANTS: dict[str, TopicMutant] = {
    "idle instances follow the fastest": TopicMutant(
        _FLOOR, "idle_floor_us", _follow_the_fastest, ("K-FLOOR",)
    ),
    "idle instances go on without one of which nothing is known": TopicMutant(
        _FLOOR, "idle_floor_us", _go_on_without_the_unknown, ("K-FLOOR",)
    ),
    "idle instances wait for idle ones": TopicMutant(
        _FLOOR, "idle_floor_us", _wait_for_the_idle, ("K-LIVE",)
    ),
    "what former primaries have said counts": TopicMutant(
        (IdleFloors,), "heard", _believe_former_primaries, ("K-FLOOR",)
    ),
    "idle instances are told nothing": TopicMutant(
        (IdleFloors,), "heard", _say_nothing, ("K-LIVE",)
    ),
    "what was idle before an outage is idle behind it": TopicMutant(
        (PartitionBoundaries,), "resumed", _stay_idle_over_pauses, ("K-LATE",)
    ),
    "a pause of the process is not noticed": TopicMutant(
        (PartitionBoundaries,), "looked", _notice_no_pause, ("K-LATE",)
    ),
    "an idle instance goes by its own furthest partition": TopicMutant(
        (PartitionBoundaries,), "_reached_us", _be_as_far_as_its_own_furthest, ("K-FLOOR",)
    ),
    "a replacement forgets what was promised": TopicMutant(
        (PartitionBoundaries,), "__init__", _forget_the_promise, ("K-BND",)
    ),
    "a replacement forgets the newest times": TopicMutant(
        (TopicPositions,), "advance", _forget_the_newest_times, ("K-LIVE",)
    ),
    "a record does not end idleness": TopicMutant(
        (PartitionBoundaries,), "received", _wake_without_a_record, ("K-IDLE",)
    ),
    "positions beyond the log's end are believed": TopicMutant(
        _POSITIONS, "believed", _believe_the_furthest_positions, ("K-ONCE", "K-LIVE")
    ),
    "a replacement begins anew": TopicMutant(
        (TopicPositions,), "begin", _begin_anew, ("K-ONCE", "K-LATE")
    ),
    "a replacement skips a record": TopicMutant((TopicPositions,), "begin", _skip_one, ("K-ONCE",)),
    "a topic of another id is read on": TopicMutant(
        (Span,), "is_of", _take_any_topic, ("K-TOPIC",)
    ),
    "a replica that has read a zombie's tuples takes over": TopicMutant(
        (topic_instances,), "read_in_vain", _compare_ids_alone, ("K-SHOWN",)
    ),
    "what a successor may have missed is shown": TopicMutant(
        (Instance,), "is_newest", _show_in_spite_of_claims, ("K-SHOWN", "K-BND")
    ),
}
