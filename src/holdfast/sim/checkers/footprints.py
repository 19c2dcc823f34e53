"""What eventual checkpoints are made of. [CEC §II.B, "Constructing an EC"]

I-CEC     an eventual checkpoint has one footprint of every window that was open at its cut, and of
          no other; each is the newest that there was; none is older than T, from where its node
          replays. Found by going through the whole log, not by searching backwards.
I-EXTENT  neither the footprint log nor upstream lets go of what a durable restart point needs: see
          trimming.py. And no durable point needs less of them than its eventual checkpoint does.
"""

from __future__ import annotations

import contextlib
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from holdfast.core.haunit.extent_restoration import ExtentRead
from holdfast.core.model.footprints import (
    KEY,
    PART,
    WINDOW,
    FootprintKind,
    FootprintRecord,
    record_of,
)
from holdfast.sim.checkers.base import Checker, DurablePoints, Entries, Violation
from holdfast.sim.disk import Damage
from holdfast.sim.process_sinks import extent_of

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.recovery.extent import Extent
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_Window = tuple[Any, ...]
_LOOKED_AT = 20


class Footprints(Checker):
    """I-CEC, and of I-EXTENT what points need."""

    looks_at = MappingProxyType(
        {
            "stepped": (ExtentRead,),
        }
    )

    def __init__(self) -> None:
        """No point is durable."""
        self._found = DurablePoints()
        self._world: World | None = None
        self._looks = 0

    def begin(self, world: World) -> None:
        """Remember the plans and logs."""
        self._world = world

    def journalled(self, entries: Entries) -> None:
        """A restart point is durable: what it needs must be enough."""
        if self._world is None:
            return
        for node, point in self._found.take(entries):
            plan = self._world.plans[node]
            if plan.footprints is None:
                continue
            self._looks += 1
            if self._looks <= _LOOKED_AT:
                self._look_at(self._world, plan, point)

    def recovered(self, entries: Entries) -> None:
        """Points may be durable of which nobody was told."""
        self._found = DurablePoints()
        deque(self._found.take(entries), maxlen=0)

    def _look_at(self, world: World, plan: NodePlan, point: RestartPoint) -> None:
        """Do what a replacement would do now."""
        self._require_enough(plan, point)
        stream = plan.footprint_stream
        with contextlib.suppress(Damage):  # Somebody has flipped a bit.
            first, end = point.needed_from[stream], point.next_ids[stream]
            extent = extent_of(world.sinks[stream], first, end, len(plan.inputs))
            self._compare(plan, point, extent)

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """A replacement has its eventual checkpoint."""
        del effects
        if not isinstance(stimulus, ExtentRead) or process.core.machine is None:
            return
        point = process.core.began_at
        if point is not None:
            self._compare(process.plan, point, stimulus.extent)

    def _open_windows(
        self, plan: NodePlan, point: RestartPoint
    ) -> dict[_Window, FootprintRecord] | None:
        """By window the record with its newest footprint; None: somebody has damaged the log."""
        if self._world is None:
            return None
        stream = plan.footprint_stream
        try:
            batches = self._world.sinks[stream].read()
        except Damage:
            return None
        records = {b.next_id: record_of(b, len(plan.inputs)) for b in batches}
        chain: list[FootprintRecord] = []
        at = point.next_ids[stream]
        while at in records:
            chain.append(records[at])
            at = records[at].mark.follows
        newest: dict[_Window, FootprintRecord] = {}
        for record in reversed(chain):
            for kind, window in zip(record.kinds.tolist(), windows_in(record.bodies), strict=True):
                if kind == FootprintKind.R:
                    newest.pop(window, None)
                elif kind != FootprintKind.PASS:
                    newest[window] = record
        return newest

    def _require_enough(self, plan: NodePlan, point: RestartPoint) -> None:
        newest = self._open_windows(plan, point)
        if not newest:
            return
        oldest = min(newest.values(), key=lambda record: record.first_id)
        if point.needed_from[plan.footprint_stream] > oldest.first_id:
            raise Violation("I-EXTENT", f"{plan.node}: a point lets go of row {oldest.first_id}")
        binding = min(_binding(newest), key=lambda record: record.first_id)
        for spec, start in zip(plan.inputs, binding.mark.starts, strict=True):
            if point.needed_from[spec.stream] > start:
                raise Violation(
                    "I-EXTENT", f"{plan.node}: T is {start} on {spec.stream}; a point lets go of it"
                )

    def _compare(self, plan: NodePlan, point: RestartPoint, extent: Extent) -> None:
        newest = self._open_windows(plan, point)
        if newest is None:
            return
        found: dict[_Window, int] = {}
        for record in extent.records:
            for window in windows_in(record.bodies):
                if window in found:
                    raise Violation("I-CEC", f"{plan.node}: two footprints of {window}")
                found[window] = record.first_id
        wanted = {window: record.first_id for window, record in newest.items()}
        if found != wanted:
            different = dict(set(found.items()) ^ set(wanted.items()))
            raise Violation(
                "I-CEC", f"{plan.node} goes on with {len(found)} of {len(wanted)}: {different}"
            )
        cuts = [record.mark.cut for record in newest.values()]
        oldest = min(_binding(newest), key=lambda r: r.mark.cut, default=None)
        if oldest is not None and extent.starts != oldest.mark.starts:
            raise Violation("I-CEC", f"{plan.node} replays from {extent.starts}, not {min(cuts)}")


def _binding(newest: dict[_Window, FootprintRecord]) -> list[FootprintRecord]:
    """Of each window the record from whose cut on it has to be replayed: of its newest part, those
    that leave something for later left out.
    """
    found: dict[_Window, FootprintRecord] = {}
    for window, record in newest.items():
        names = [n for n in record.bodies.schema.names if n == WINDOW or n.startswith(KEY)]
        if any(n == PART and word < 0 for n, word in zip(names, window, strict=True)):
            continue
        whole = tuple(word for name, word in zip(names, window, strict=True) if name != PART)
        if whole not in found or record.first_id > found[whole].first_id:
            found[whole] = record
    return list(found.values())


def windows_in(bodies: pa.RecordBatch) -> list[_Window]:
    """The names of windows: equal ones as operators compare keys."""
    names = [name for name in bodies.schema.names if name == WINDOW or name.startswith(KEY)]
    columns = [bodies.column(name).to_pylist() for name in names]
    return [tuple(map(_named, values)) for values in zip(*columns, strict=True)]


def _named(value: object) -> object:
    """NaN = NaN, and -0.0 = 0.0."""
    return repr(value + 0.0) if isinstance(value, float) else value
