"""Background work of a node: windows are written while nothing else is waiting. [CEC §III]

Between two turns of the loop the node may be asked to write windows: so many that it takes half a
millisecond, as it has cost of late, and so often that it keeps to its share of the time. It takes
their footprints, and writes them when it is asked again, behind whatever has come meanwhile. What
has opened and closed it takes and writes likewise. A node that has nothing to write is asked again
a little later. With the question it hears what recoveries cost: how long it took this process to
come to work, and what its passes take.

The records before restart points are paid from the same share. The node hears how far apart points
are to be, twice a second even if there is no time for windows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from holdfast.core.checkpoint.eventual import Pacer, RecoveryCosts
from holdfast.core.haunit.events import CheckWindows, FootprintsTaken, WriteSink
from holdfast.core.machine import TimerFired
from holdfast.core.model.footprints import has_checks

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.extent import Extent
    from holdfast.shell.spark.meter import Meter

_NOTHING_TO_DO_NS: Final = 10_000_000
_COST_LASTS_NS: Final = 500_000_000
_CONNECTS_IN_NS: Final = 200_000_000
"""If no input has come by then, nobody had any."""
_BYTES_TELL: Final = 1 << 20
_FOOTPRINTS_TELL: Final = 1_000
_TUPLES_TELL: Final = 10_000
"""From so many on they tell what one costs; fewer take what anybody takes."""


class Background:
    """Of one process. Without footprints in the plan there is none.

    Attributes:
        watched: Of which steps `stepped` is to be told.
    """

    def __init__(self, plan: NodePlan, meter: Meter, born_ns: int) -> None:
        """Nothing is due.

        Args:
            plan: The node's.
            meter: Has measured what its tuples cost.
            born_ns: When its process began, by the monotonic clock.
        """
        self._recovery = OwnRecovery(meter, born_ns)
        self._meter = meter
        self._pass_tuples = plan.limits.pass_tuples
        self._pacer = None if plan.footprints is None else Pacer(plan.footprints.share)
        self._log = plan.footprint_stream
        self.watched: frozenset[type[Stimulus]] = (
            frozenset() if self._pacer is None else frozenset({TimerFired})
        )
        self._told_ns = self._began_ns = time.monotonic_ns()
        self._rests_to_ns = 0
        self._tuple_us, self._measured_ns = 0.0, 0
        self._asked = 0  # how many windows it may have written
        self._taking_us = 0.0  # how long footprints took that are not written yet
        self._saying_us = 0.0  # and what had to be said, where it is written first
        self._has_more = False

    @property
    def is_eager(self) -> bool:
        """Whether there is more to do, and time for it."""
        return self._has_more and self._pacer is not None and self._pacer.windows > 0

    @property
    def recovery(self) -> OwnRecovery:
        """How this process has come to work."""
        return self._recovery

    def due(self) -> CheckWindows | None:
        """What to ask the node now; then `done` has to be called. None: not now."""
        if self._pacer is None:
            return None
        now_ns = time.monotonic_ns()
        self._recovery.look(now_ns)
        self._pacer.worked((now_ns - self._told_ns) / 1000)
        self._told_ns = now_ns
        windows = 0 if now_ns < self._rests_to_ns else self._pacer.windows
        is_news = now_ns - self._measured_ns > _COST_LASTS_NS
        if not windows and not is_news:
            return None
        if is_news:
            self._tuple_us = self._meter.replay_cost_us(self._pass_tuples)
            self._measured_ns = now_ns
        self._began_ns, self._asked = time.monotonic_ns(), windows
        costs = self._recovery.costs(self._tuple_us, self._pacer.footprint_us)
        pacer = self._pacer
        return CheckWindows(windows, costs, pacer.windows_per_s, pacer.marks_apart_ms)

    def stepped(self, effects: list[Effect], took_ns: int) -> None:
        """A watched step is over; it was for a restart point if it has written footprints.

        What else the node does at that time counts with it.
        """
        if self._pacer is not None and (records := self._records(effects)):
            self._pacer.marked(took_ns / 1000)
            self._wrote(records, 0.0)  # A restart point does not come before what was taken.

    def _records(self, effects: list[Effect]) -> list[TupleBatch]:
        """Those of footprints among effects."""
        return [e.batch for e in effects if isinstance(e, WriteSink) and e.stream == self._log]

    def done(self, effects: list[Effect]) -> None:
        """What was asked for has been done, the effects performed."""
        if self._pacer is None:
            return
        now_ns = time.monotonic_ns()
        took_us = (now_ns - self._began_ns) / 1000
        records = self._records(effects)
        taken = [effect.windows for effect in effects if isinstance(effect, FootprintsTaken)]
        if taken:
            if any(taken):
                self._taking_us = took_us
            else:
                self._saying_us = took_us
        else:
            self._wrote(records, took_us)
        if not self._asked:
            return
        self._has_more = bool(taken or records)
        if not self._has_more:
            self._rests_to_ns = now_ns + _NOTHING_TO_DO_NS

    def _wrote(self, records: list[TupleBatch], took_us: float) -> None:
        """Tell what these records have cost, and to take what is in them."""
        assert self._pacer is not None
        written = sum(each.count for each in records if has_checks(each))  # Others had to be said.
        self._pacer.wrote(written, took_us, self._taking_us if written else self._saying_us)
        if written:
            self._taking_us = 0.0
        else:
            self._saying_us = 0.0


class OwnRecovery:
    """What the process itself has taken to come to work, part by part: the next one will, too.

    Where there was too little of something to tell what one costs, it is part of what every
    recovery takes.
    """

    def __init__(self, meter: Meter, born_ns: int) -> None:
        """Args as of `Background`."""
        self._meter = meter
        self._born_ns = born_ns
        self._read_ns = 0  # when an extent had been read
        self._footprints = 0  # of the extent
        self._ready_ns = 0  # when it was at work
        self._connected_ns = 0  # when input came, or nobody had any
        self._fixed_us = 0.0
        self._byte_us = self._footprint_us = self._replayed_us = 0.0

    def costs(self, tuple_us: float, footprint_us: float) -> RecoveryCosts:
        """All that is known.

        Args:
            tuple_us: What a tuple costs in passes of late.
            footprint_us: What it costs to write a footprint.
        """
        footprint_us = self._footprint_us or footprint_us
        return RecoveryCosts(
            tuple_us, self._replayed_us, footprint_us, self._byte_us, self._fixed_us
        )

    def leave_out(self, took_ns: int) -> None:
        """The process has done something for so long that others have not to do.

        It has waited for its assignment, which comes when all are there.
        """
        self._born_ns += took_ns

    def has_read(self, extent: Extent, took_ns: int) -> None:
        """An extent was read in so long; its footprints are about to be taken over."""
        nbytes = sum(record.nbytes for record in extent.records)
        if nbytes >= _BYTES_TELL:
            self._byte_us = took_ns / 1000 / nbytes
            self._born_ns += took_ns
        self._footprints = extent.last.open_windows
        self._read_ns = time.monotonic_ns()

    def look(self, now_ns: int) -> None:
        """The node works.

        It is measured how long it took until then, and from there until the first input. Where
        input is long in coming, as from a quiet source, no more than that is known.
        """
        if self._connected_ns:
            return
        if not self._ready_ns:
            self._ready_ns = now_ns
            if self._footprints >= _FOOTPRINTS_TELL:
                self._footprint_us = (now_ns - self._read_ns) / 1000 / self._footprints
                self._born_ns += now_ns - self._read_ns
            self._fixed_us = (now_ns - self._born_ns) / 1000
        since_ns = now_ns - self._ready_ns
        if self._meter.has_received or since_ns > _CONNECTS_IN_NS:
            self._connected_ns = now_ns
            self._fixed_us += since_ns / 1000 if since_ns <= _CONNECTS_IN_NS else 0.0

    def has_replayed(self, tuples: int) -> None:
        """The silent replay is over."""
        if self._connected_ns and tuples >= _TUPLES_TELL:
            self._replayed_us = (time.monotonic_ns() - self._connected_ns) / 1000 / tuples
