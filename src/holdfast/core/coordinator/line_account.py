"""An account of a region's checkpoints: which of them came to nothing, and how the line went on.

Theory of operation. Two kinds of checkpoints are invalid, for different reasons. One that is
*useless* lies on a Z-cycle (recovery/z_paths.py): no line can ever pass it. One that was *rolled
past* was newer than the line of a recovery, and void from then on. The paper counts both as one.

A useless one can only be among those that the line skips, and is known for certain when it does:

1. A Z-cycle of a checkpoint ends with a tuple that was received before it.
2. A line behind the checkpoint has no orphans, so that tuple was sent before the line, too.
3. Whatever leads to that tuple was received in the interval in which it was sent, or earlier.

So all of a Z-cycle lies between the line before and the new one. Mostly nothing is skipped, and
nothing has to be looked for.

What the line has passed, and what a recovery has gone back behind, is collected by the nodes and
the registry; here it is only counted. The counts are of one life of the coordinator. Volatile: all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.core.machine import Effect
from holdfast.core.recovery.checkpoint_graph import BEGINNING, CheckpointGraph
from holdfast.core.recovery.z_paths import useless_checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.core.coordinator.journal_entries import PointNoted
    from holdfast.core.model.ids import NodeId, PointId
    from holdfast.core.recovery.checkpoint_graph import Channel, Place
    from holdfast.core.recovery.recovery_plan import RecoveryPlan


@dataclass(slots=True)
class MemberCount:
    """Checkpoints of one member.

    Attributes:
        noted: Points that became durable, void ones included.
        forced: Those of them that were taken for what others said.
        useless: Those on a Z-cycle.
        rolled_past: Those that recoveries went back behind, and those that came later still.
        noted_ms: When the one that the line stands at became durable; None: none did in this life.
        line_ms: For how long that one waited until the line came to it; None: the same.
    """

    noted: int = 0
    forced: int = 0
    useless: int = 0
    rolled_past: int = 0
    noted_ms: int | None = None
    line_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReportLine(Effect):
    """The line of a region has moved, or a recovery has gone back to it.

    Attributes:
        members: Per member its counts so far.
        now_ms: When.
    """

    members: Mapping[NodeId, MemberCount]
    now_ms: int


@dataclass(slots=True)
class LineAccount:
    """See the module.

    Attributes:
        counts: Per member.
    """

    counts: dict[NodeId, MemberCount]
    _last: dict[NodeId, PointId] = field(default_factory=dict)  # that was noted
    _noted_ms: dict[tuple[NodeId, int], int] = field(default_factory=dict)
    _skipped: list[tuple[NodeId, int]] = field(default_factory=list)

    @staticmethod
    def of(members: Iterable[NodeId]) -> LineAccount:
        """Nothing has been counted."""
        return LineAccount({node: MemberCount() for node in members})

    def noted(self, noted: PointNoted, now_ms: int, *, is_void: bool) -> None:
        """A point is durable; a void one is of a life that a recovery went back behind."""
        if self._last.get(noted.node) == noted.point_id:
            return  # Its node has asked twice.
        self._last[noted.node] = noted.point_id
        count = self.counts[noted.node]
        count.noted += 1
        count.forced += noted.point.is_forced
        if is_void:
            count.rolled_past += 1
        else:
            self._noted_ms[noted.node, noted.point.sequence] = now_ms

    def moving(
        self,
        places: Mapping[NodeId, tuple[Place, ...]],
        channels: tuple[Channel, ...],
        line: Mapping[NodeId, Place],
    ) -> None:
        """The line is to move there from the oldest places; what is useless between is found."""
        between = {
            node: tuple(place for place in own if place.sequence <= line[node].sequence)
            for node, own in places.items()
        }
        skips = any(len(own) > 2 for own in between.values())
        self._skipped = useless_checkpoints(CheckpointGraph(between, channels)) if skips else []

    def moved(self, line: Mapping[NodeId, Place], now_ms: int) -> None:
        """The line has moved there."""
        for node, _ in self._skipped:
            self.counts[node].useless += 1
        self._skipped = []
        for node, place in line.items():
            noted_ms, count = self._noted_ms.get((node, place.sequence)), self.counts[node]
            if place.sequence != BEGINNING and noted_ms is not None and noted_ms != count.noted_ms:
                count.noted_ms, count.line_ms = noted_ms, now_ms - noted_ms
        self._noted_ms = {
            (node, sequence): noted_ms
            for (node, sequence), noted_ms in self._noted_ms.items()
            if sequence >= line[node].sequence
        }

    def went_back(self, plan: RecoveryPlan, places: Mapping[NodeId, tuple[Place, ...]]) -> None:
        """A recovery has been decided over these places; some of them are void now."""
        for node, back_to in plan.back_to.items():
            void = [place.sequence for place in places[node] if place.sequence > back_to]
            self.counts[node].rolled_past += len(void)
            for sequence in void:
                self._noted_ms.pop((node, sequence), None)

    def report(self, now_ms: int) -> ReportLine:
        """What has been counted so far, for people."""
        counts = {node: replace(count) for node, count in self.counts.items()}
        return ReportLine(counts, now_ms)
