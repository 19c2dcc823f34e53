"""Tentative results and their corrections. [DPC §4, Properties 1 to 4]

I-REC    no stable tuple is sent behind tentative ones, and none of a run behind those of another,
         without undo between them.
I-REC    a feed is runs of tentative tuples behind a stable prefix: each is undone, by whoever comes
         next, before anything else follows; an undo leaves the prefix; a correction is said to be
         over once it is, of the run that was undone last. In the end nothing is tentative.
I-MIN    only what was put out as tentative is undone.
I-TENT   what is tentative says without which sources it was made, and on what part it rests.
I-AVAIL  where nothing but input is missing, none waits for it longer than the bound.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.core.haunit import events
from holdfast.core.model.feed_rows import FEED_COLUMNS
from holdfast.core.model.ids import BEGINNING_US, StreamId
from holdfast.core.model.notes import Undo
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.replication.feed_reading import (
    TENTATIVE,
    FeedBroken,
    FeedReading,
    UndoneTwice,
)
from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.checkers.waiting import has_bound
from holdfast.sim.faults import SILENCES

if TYPE_CHECKING:
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.ids import Incarnation, NodeId, Run
    from holdfast.sim.process import Process
    from holdfast.sim.world import RunResult, World

_SLACK_MS: Final = 100
"""For what the node has to do before, and for its timers."""


class _Feed(NamedTuple):
    """A feed, as its readers know it, and the stream of the sink beside it."""

    sink: StreamId
    reading: FeedReading


class Corrections(Checker):
    """See the module."""

    looks_at = MappingProxyType(
        {
            "performing": (
                events.SendBatch,
                events.SendNotes,
                events.SendBoundary,
                events.WriteSink,
            ),
        }
    )

    def __init__(self) -> None:
        """Nothing has been said."""
        self._world: World | None = None
        self._feeds: dict[StreamId, _Feed] = {}
        self._sources: set[str] = set()
        self._newest_us: dict[tuple[StreamId, str], int] = {}  # of a run's tuples
        self._open: dict[tuple[StreamId, Incarnation], tuple[Run, int]] = {}  # sent, not undone
        self._was_full: dict[NodeId, None] = {}  # its readers had no room for its output

    def begin(self, world: World) -> None:
        """Find the feeds."""
        self._world = world
        is_undisturbed = all(f.kind in SILENCES for f in world.faults.values())
        has_delays = any(plan.delays is not None for plan in world.plans.values())
        self.idle = () if is_undisturbed and has_delays else ("stepped",)
        self._sources = {
            str(read.stream)
            for plan in world.plans.values()
            for read in plan.inputs
            if read.producer is None
        }
        self._feeds = {
            output.streams[0]: _Feed(output.feed_of, FeedReading())
            for plan in world.plans.values()
            for output in plan.outputs
            if output.feed_of is not None
        }

    def performing(self, process: Process, effect: Effect) -> None:
        """I-REC: between nodes, and the end of a correction is not said too early."""
        if isinstance(effect, events.SendBatch | events.SendNotes):
            self._sending(process, effect)
        if isinstance(effect, events.SendBoundary) and effect.standing is not None:
            said_by = (effect.stream, process.incarnation)
            if said_by in self._open and self._open[said_by][0] != effect.standing.run:
                self._count("tentative tuples of a replica undone")
                del self._open[said_by]
        if not isinstance(effect, events.WriteSink):
            return
        if effect.stream not in self._feeds:
            self._count_beside(process)
            return
        for row, time_us in zip(
            effect.batch.batch.select(FEED_COLUMNS).to_pylist(),
            effect.batch.time_us.tolist(),
            strict=True,
        ):
            key = (effect.stream, row["_run"])
            if row["_type"] == TENTATIVE:
                self._count("tentative tuple")
                self._newest_us[key] = max(time_us, self._newest_us.get(key, BEGINNING_US))
            elif row["_type"] == "rec_done" and process.machine is not None:
                self._count("corrected")
                boundary_us = process.machine.statistics().boundary_us
                if boundary_us < self._newest_us.get(key, BEGINNING_US):
                    raise Violation(
                        "I-REC",
                        f"{effect.stream}: run {row['_run']} is said to be corrected at "
                        f"{boundary_us}, and has tuples of up to {self._newest_us[key]}",
                    )

    def _count_beside(self, process: Process) -> None:
        """A sink is written, perhaps while other outputs of the node are tentative."""
        said = process.machine.consistency if process.machine is not None else None
        if said is not None and said.state is Consistency.UP_FAILURE:
            self._count("stable rows beside tentative ones")

    def _sending(self, process: Process, effect: events.SendBatch | events.SendNotes) -> None:
        """I-REC between nodes; a run begins behind the last stable tuple."""
        key = (effect.stream, process.incarnation)
        for placed in effect.notes:
            if isinstance(placed.note, Undo) and placed.note.run == self._open.get(key, (None,))[0]:
                self._count("tentative tuples of another node undone")
                del self._open[key]
        if isinstance(effect, events.SendNotes) or not effect.batch.count:
            return
        run, begins = self._open.get(key, (None, effect.batch.next_id))
        if effect.run is None and effect.batch.next_id > begins:
            raise Violation("I-REC", f"{effect.stream}: stable {begins} is sent behind {run}")
        if effect.run is not None:
            if run not in (None, effect.run):
                raise Violation("I-REC", f"{effect.stream}: {effect.run} is sent behind {run}")
            self._open.setdefault(key, (effect.run, effect.batch.first_id))

    def _count(self, name: str) -> None:
        if self._world is not None:
            self._world.count(name)

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """I-AVAIL, as the node counts; of one whose receivers took no more see waiting.py."""
        del stimulus, effects
        if not has_bound(process.plan):
            return
        machine = process.machine
        if machine is None or machine.plan.delays is None:
            return
        if not machine.has_room:
            self._was_full[process.node] = None
        if process.node in self._was_full:
            return
        bound_ms = machine.plan.delays.bound_ms
        waited_ms = machine.consistency.delay_max_ms if machine.consistency is not None else 0
        if waited_ms > bound_ms + _SLACK_MS:
            raise Violation(
                "I-AVAIL",
                f"{process.node}: input has waited {waited_ms} ms for streams that were missing, "
                f"the bound is {bound_ms} ms",
            )

    def end(self, result: RunResult) -> None:
        """I-REC, I-MIN and I-TENT, over what the feeds hold."""
        for stream, feed in self._feeds.items():
            stable = len(result.rows[feed.sink])
            for _, _, values in result.rows[stream]:
                self._take_row(stream, feed, stable, *values[-len(FEED_COLUMNS) :])
            if feed.reading.run:
                raise Violation("I-REC", f"{stream}: {feed.reading.run} still stands in the end")

    def _take_row(self, stream: StreamId, feed: _Feed, stable: int, *row: Any) -> None:
        kind, tuple_id, run, missing, share = row
        try:
            feed.reading.take(kind, tuple_id, run)
        except UndoneTwice as error:
            raise Violation("I-MIN", f"{stream}: {error}") from error
        except FeedBroken as error:
            raise Violation("I-REC", f"{stream}: {error}") from error
        if kind == TENTATIVE:
            lacks = set(missing.split(", ")) if missing else set()
            is_said = bool(lacks) and lacks <= self._sources
            _require(
                is_said, "I-TENT", f"{stream}: {tuple_id} of {run} lacks {missing or 'nothing'}"
            )
            _require(0 <= share < 1, "I-TENT", f"{stream}: {tuple_id} of {run} rests on {share}")
        else:
            _require(tuple_id <= stable, "I-REC", f"{stream}: {tuple_id} stable, not {stable}")


def _require(is_so: bool, invariant: str, text: str) -> None:
    if not is_so:
        raise Violation(invariant, text)
