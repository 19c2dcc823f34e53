"""Background work of a node: windows are written while nothing else is waiting. [CEC §III]

Between two turns of the loop the node may be asked to write windows: so many that it takes half a
millisecond, as it has cost of late, and so often that it keeps to its share of the time. A node
that has nothing to write is asked again a little later.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from holdfast.core.checkpoint.eventual import Pacer
from holdfast.core.haunit.events import CheckWindows, WriteSink

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.shell.spark.meter import Meter

_NOTHING_TO_DO_NS: Final = 10_000_000
_COST_LASTS_NS: Final = 500_000_000


class Background:
    """Of one process. Without footprints in the plan there is none."""

    def __init__(self, plan: NodePlan, meter: Meter) -> None:
        """Nothing is due.

        Args:
            plan: The node's.
            meter: Has measured what its tuples cost.
        """
        self._meter = meter
        self._pass_tuples = plan.limits.pass_tuples
        self._pacer = None if plan.footprints is None else Pacer(plan.footprints.share)
        self._told_ns = self._began_ns = time.monotonic_ns()
        self._rests_to_ns = 0
        self._tuple_us, self._measured_ns = 0.0, 0
        self._has_more = False

    @property
    def is_eager(self) -> bool:
        """Whether there is more to do, and time for it."""
        return self._has_more and self._pacer is not None and self._pacer.windows > 0

    def due(self) -> CheckWindows | None:
        """What to ask the node now; then `done` has to be called. None: not now."""
        if self._pacer is None:
            return None
        now_ns = time.monotonic_ns()
        self._pacer.worked((now_ns - self._told_ns) / 1000)
        self._told_ns = now_ns
        windows = self._pacer.windows
        if not windows or now_ns < self._rests_to_ns:
            return None
        if now_ns - self._measured_ns > _COST_LASTS_NS:
            self._tuple_us = self._meter.replay_cost_us(self._pass_tuples)
            self._measured_ns = now_ns
        self._began_ns = time.monotonic_ns()
        return CheckWindows(windows, self._tuple_us, self._pacer.windows_per_s)

    def done(self, effects: list[Effect]) -> None:
        """What was asked for has been done, the effects performed."""
        if self._pacer is None:
            return
        now_ns = time.monotonic_ns()
        written = sum(e.batch.count for e in effects if isinstance(e, WriteSink))
        self._pacer.wrote(written, (now_ns - self._began_ns) / 1000)
        self._has_more = written > 0
        if not written:
            self._rests_to_ns = now_ns + _NOTHING_TO_DO_NS
