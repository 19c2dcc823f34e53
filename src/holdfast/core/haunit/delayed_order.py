"""The order of time where nothing waits for missing streams beyond a bound. [DPC "SUnion"]

SUnion merges as in `TimeOrder`; the consistency manager is told what has come and when, and says
how far a pass goes, with all streams or without some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.input_order import Taken, TimeOrder, rows_of
from holdfast.core.replication.consistency_manager import ConsistencyManager
from holdfast.core.replication.input_delay import InputDelay

if TYPE_CHECKING:
    from holdfast.core.haunit.arrivals import Arrivals
    from holdfast.core.haunit.plan import DelayPlan, NodePlan
    from holdfast.core.recovery.restart_point import RestartPoint


class DelayedOrder(TimeOrder):
    """See the module. Volatile: all fields."""

    def __init__(
        self, plan: NodePlan, arrivals: Arrivals, at: RestartPoint | None, delays: DelayPlan
    ) -> None:
        """Merge the streams; args as of `TimeOrder`, and how long to wait."""
        super().__init__(plan, arrivals, at)
        delay = InputDelay(len(plan.inputs), delays.bound_ms, delays.during_failure)
        self.manager = ConsistencyManager(len(plan.inputs), delay)

    def begin(self, boundary_us: int, now_ms: int) -> None:
        """Everything before this has been processed; what is held waits from now on."""
        self.manager.resume(boundary_us, now_ms)
        for stream in self._arrivals.streams:
            self.manager.promised(stream.number, stream.queue.taken_boundary_us, now_ms)
        newest_us = self._sunion.newest_held_us()
        if newest_us is not None:
            self.manager.delay.arrived(newest_us, now_ms)

    def merge(self, now_ms: int) -> None:
        """Hold what has come, and tell the manager of it."""
        for number, batches in self._arrivals.take_fresh():
            for batch in batches:
                self._sunion.add(number, batch)
                if batch.count:
                    self.manager.delay.arrived(int(batch.time_us.max()), now_ms)
            promised_us = self._arrivals.streams[number].queue.taken_boundary_us
            self.manager.promised(number, promised_us, now_ms)

    def up_to(self, boundary_us: int) -> Taken:
        """What is older than this, or a part of the way, of a pass's size."""
        boundary_us = self._sunion.boundary_for(self._plan.limits.pass_tuples, boundary_us)
        release = self._sunion.release(boundary_us)
        return Taken(rows_of(release), release.low, boundary_us, release.tuples)

    def hold_cut(self) -> None:
        """From now on keep what is taken without streams that are missing."""
        self._sunion.hold_cut()

    def without_missing(self, boundary_us: int) -> Taken:
        """What is older than this and has come."""
        release = self._sunion.release_tentative(boundary_us)
        return Taken(rows_of(release), release.low, boundary_us, release.tuples)

    def go_back(self) -> None:
        """What has been taken since the cut is to be taken again."""
        self._sunion.go_back()
