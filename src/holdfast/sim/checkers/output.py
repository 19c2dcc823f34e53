"""What leaves a node, and what arrives in the end.

I-ID    ids of a stream count up from 0, without gap or repeat. [DPC §3.1, HA §6]
I-DET   whoever sends tuple n of a stream, and however often, sends the same tuple. [DPC "SUnion"]
I-PRECISE   the output is that of a run without failures; promises.py has what weaker guarantees
        leave of this. [HA §3.1]
I-TIME  tuples in sinks have the tuple times that they should.
I-ORDER   sinks hold their tuples in the order that is promised. [DPC "SUnion"]
I-SUM   what chance or the clock decides adds up to its input: rows stand for all of it, or a part.
I-STEADY   without faults nothing is lost, replayed or sent twice.
"""

from __future__ import annotations

from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.core.haunit import events
from holdfast.core.model.ids import StreamId
from holdfast.core.model.tuples import TupleBatch, between
from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.workload.promises import (
    repeated_streams,
    shared_streams,
    skipping_streams,
    touched_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import NodeId
    from holdfast.sim.process import Process
    from holdfast.sim.workload.oracle import Adding, Expected, TimedValues
    from holdfast.sim.world import RunResult, World

_SHOWN = 3
Row = tuple[Any, ...]


class Tape(Checker):
    """Records the first copy of every tuple put out, and compares all later copies with it.

    Attributes:
        touched: Nodes whose ids may stand for other tuples after a failure.
        unrecorded: Their streams, those on which a receiver may skip what it has missed, and sinks
            whose results may come again.
    """

    looks_at = MappingProxyType(
        {
            "performing": (events.SendBatch, events.WriteSink),
        }
    )

    def __init__(self) -> None:
        """An empty tape."""
        self._batches: dict[StreamId, list[TupleBatch]] = {}
        self.touched: frozenset[NodeId] = frozenset()
        self.unrecorded: frozenset[StreamId] = frozenset()
        self._shared: dict[StreamId, StreamId] = {}

    def begin(self, world: World) -> None:
        """Look where ids stay the same, whichever replica puts them out."""
        plans = world.plans
        self._shared = shared_streams(plans.values())
        self.touched = touched_nodes(plans.values())
        of_touched = (s for node in self.touched for s in plans[node].output_streams())
        self.unrecorded = frozenset(of_touched) | skipping_streams(plans.values())
        self.unrecorded |= repeated_streams(plans.values())

    def performing(self, process: Process, effect: Effect) -> None:
        """Record or compare what is sent or written."""
        if isinstance(effect, events.SendBatch) and effect.run is not None:
            return  # The same of what is tentative.
        if isinstance(effect, events.SendBatch | events.WriteSink):
            if effect.stream in process.plan.own_logs:
                return  # A zombie's differ, and do not count: what leaves the node shows it.
            if effect.stream in process.plan.feed_streams():
                return  # What was put out without some input is not put out again.
            if effect.stream in self.unrecorded:
                return
            if effect.stream in process.plan.changing_streams():
                return  # It may come otherwise after a failure; nobody keeps what it made of it.
            self._take_written(effect.stream, effect.batch, process.endpoint.name)

    def _take_written(self, stream: StreamId, batch: TupleBatch, sender: str) -> None:
        batches = self._batches.setdefault(self._shared.get(stream, stream), [])
        next_id = batches[-1].next_id if batches else 0
        if batch.first_id > next_id:
            raise Violation("I-ID", f"{sender} sends {stream} from {batch.first_id}, not {next_id}")
        if batch.first_id < next_id:
            old = self.rows(stream, batch.first_id, batch.next_id)
            new = batch.batch.slice(0, old.num_rows)
            if not new.equals(old):
                raise Violation(
                    "I-DET",
                    f"{sender} sends other tuples {stream} {batch.first_id} to {batch.next_id - 1}"
                    f" than were sent before: {_difference(old, new)}",
                )
        if batch.next_id > next_id:
            batches.append(batch.starting_at(next_id))

    def rows(self, stream: StreamId, from_id: int, to_id: int) -> pa.RecordBatch:
        """The recorded tuples [from_id, to_id), as far as there are any."""
        recorded = self._batches[self._shared.get(stream, stream)]
        found = [b.batch for b in between(recorded, from_id, to_id)]
        return found[0] if len(found) == 1 else pa.concat_batches(found)

    def batches(self, stream: StreamId, from_id: int) -> list[TupleBatch]:
        """The recorded tuples from an id on."""
        recorded = self._batches.get(self._shared.get(stream, stream), [])
        return list(between(recorded, from_id, recorded[-1].next_id)) if recorded else []


def _difference(old: pa.RecordBatch, new: pa.RecordBatch) -> str:
    for i, (a, b) in enumerate(zip(old.to_pylist(), new.to_pylist(), strict=True)):
        if a != b:
            return f"row {i}: {b} instead of {a}"
    return "types differ"


class PreciseOutput(Checker):
    """I-PRECISE, I-TIME, I-ORDER, I-SUM and I-STEADY."""

    def __init__(
        self, expected: Expected, weaker: Iterable[str] = (), *, replays: bool = False
    ) -> None:
        """Of sinks that are to hold what is expected.

        Args:
            expected: From an evaluation that shares no code with the cores.
            weaker: Sinks of which nothing is asked.
            replays: The run begins with nodes that have something to replay.
        """
        self._replays = replays
        self._expected = expected
        self._weaker = frozenset(weaker)
        self._has_faults = True
        self._has_replicas = False  # of producers: who goes over to another one may get some twice

    def begin(self, world: World) -> None:
        """Note whether anything can go wrong."""
        self._has_faults = bool(world.faults)
        self._has_replicas = any(plan.replicas for plan in world.plans.values())

    def end(self, result: RunResult) -> None:
        """Compare every sink, tuple by tuple, copies counted."""
        for stream, tuples in result.rows.items():
            ids = [tuple_id for tuple_id, _, _ in tuples]
            if ids != list(range(len(ids))):
                raise Violation("I-ID", f"{stream} holds ids with a gap or a repeat")
        for sink in self._expected.sinks():
            if sink not in self._weaker:
                check_exact(sink, self._expected, result)
        twice = 0 if self._has_replicas else result.duplicates_dropped
        replayed = 0 if self._replays else result.replayed_tuples + twice
        if not self._has_faults and (result.failures or replayed):
            raise Violation(
                "I-STEADY",
                f"without a fault: {result.failures} losses detected, {replayed} tuples again",
            )


def check_exact(sink: str, expected: Expected, result: RunResult) -> None:
    """A sink holds what it would without failures: rows, their times and order, sums."""
    tuples = tuples_of(sink, result)
    if sink in expected.rows:
        check_precise(sink, expected.rows[sink], Counter(values for _, values in tuples))
    if sink in expected.timed:
        check_times(sink, expected.timed[sink], Counter(tuples))
    for name, ordered in expected.ordered.items():
        if name.rpartition("[")[0] == sink:
            found = [(time_us, row) for _, time_us, row in result.rows[StreamId(name)]]
            check_order(name, ordered, found)
    if sink in expected.adding:
        check_sum(sink, expected.adding[sink], tuples)


def tuples_of(sink: str, result: RunResult) -> list[TimedValues]:
    """Tuple times and rows of a sink, over its instances."""
    return [
        (time_us, values)
        for stream, tuples in result.rows.items()
        if stream.rpartition("[")[0] == sink
        for _, time_us, values in tuples
    ]


def check_times(sink: str, expected: Counter[TimedValues], found: Counter[TimedValues]) -> None:
    """Every row has the tuple time that it should."""
    if expected != found:
        wrong, right = list((found - expected).items()), list((expected - found).items())
        raise Violation("I-TIME", f"{sink}: {wrong[:_SHOWN]} instead of {right[:_SHOWN]}")


def check_order(stream: str, expected: list[TimedValues], found: list[TimedValues]) -> None:
    """Every row is where it should be."""
    for number, (wanted, there) in enumerate(zip(expected, found, strict=True)):
        if wanted != there:
            raise Violation("I-ORDER", f"{stream}: tuple {number} is {there} instead of {wanted}")


def check_sum(sink: str, adding: Adding, tuples: list[TimedValues]) -> None:
    """Rows stand for the whole input, or for a part of it."""
    given, found = adding.given, adding.found(tuples)
    lost, extra = given - found, found - given
    if extra or (lost and adding.conserved.is_whole):
        raise Violation("I-SUM", f"{sink}: {difference(given, lost, extra)}")


def check_precise(sink: str, expected: Counter[Row], found: Counter[Row]) -> None:
    """Precise recovery: exactly what a run without failures puts out. [HA §3.1]"""
    lost, extra = expected - found, found - expected
    if lost or extra:
        raise Violation("I-PRECISE", f"{sink}: {difference(expected, lost, extra)}")


def difference(expected: Counter[Row], lost: Counter[Row], extra: Counter[Row]) -> str:
    """What kind of difference it is, with examples."""
    doubled = Counter({row: n for row, n in extra.items() if row in expected})
    phantom = extra - doubled
    parts = [
        f"{rows.total()} {kind}, e.g. {list(rows)[:_SHOWN]}"
        for kind, rows in (("lost", lost), ("doubled", doubled), ("never expected", phantom))
        if rows
    ]
    return "; ".join(parts)
