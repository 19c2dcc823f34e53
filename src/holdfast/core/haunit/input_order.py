"""In which order a node takes its input, and how much a pass takes. [HA §3.2, §6; DPC "SUnion"]

Theory of operation. The order of processing must not depend on the network, or it must be written
down. Three orders do that:

- `IdOrder`, of one stream: its ids are the order. A pass takes what has come.
- `TimeOrder`, of several: SUnion sorts them by (time, stream, id). A pass takes what is older than
  the slowest stream's boundary. So the order is a function of the tuples alone.
- `ArrivalOrder`: as it comes, stream after stream. Each pass is decided on first, and may be
  logged; whoever repeats a logged pass takes what it took (passes.py).

A pass can be kept from going beyond a *stop*: a cut. That lies at ids where ids are the order, at a
time where time is, and between passes where these are logged.

Invariant: no order takes a tuple twice, or passes one over.
"""

from __future__ import annotations

import abc
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import ReadPasses, TrimPasses
from holdfast.core.haunit.passes import Passes, PassStart
from holdfast.core.haunit.taking_part import InputCut
from holdfast.core.machine import SetTimer
from holdfast.core.model.ids import END_US, NO_ID
from holdfast.core.model.positions import positions
from holdfast.core.operators.base import Rows
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.sunion import SUnion

if TYPE_CHECKING:
    from holdfast.core.haunit.arrivals import Arrivals
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.events import Proceed
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.dropped import Ranges
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.replication.sunion import Release

_FOLLOW_MS = 5
"""How often a secondary looks for passes that the primary has logged."""


@dataclass(slots=True)
class Taken:
    """What a pass takes.

    Attributes:
        ports: Rows per port of the node, None where there are none.
        low: int64 per input stream, the oldest id among the rows, NO_ID if there is none.
        boundary_us: After these rows nothing older follows on any stream.
        tuples: How many rows.
        decided: What the pass depends on beside its input, where that has to be decided.
    """

    ports: list[Rows | None]
    low: np.ndarray
    boundary_us: int
    tuples: int = 0
    decided: Pass | None = None


class Progress(Protocol):
    """How far the operators are: an `OperatorNetwork`."""

    boundary_us: int
    is_woken: bool

    def has_news(self, boundary_us: int) -> bool:
        """Whether a pass without rows would change anything."""
        ...


class InputOrder(abc.ABC):
    """What all orders do. Volatile: all fields."""

    def __init__(self, plan: NodePlan, arrivals: Arrivals) -> None:
        """Take from these streams."""
        self._plan = plan
        self._arrivals = arrivals
        self.stop: RestartPoint | None = None
        """The cut that passes do not go beyond; None: there is none, or logged passes lead."""

    # -- passes -----------------------------------------------------------------------------

    def has_pass(self, progress: Progress) -> bool:
        """Whether there is something to take, or a boundary to act on. Cost: O(1)."""
        arrivals = self._arrivals
        if arrivals.has_fresh:
            return True
        # A recorded pass acts on the boundary of then; tuples that are sent again may bring a later
        # one with them, and be the last.
        return self._within_stop(self._slowest_us()) > progress.boundary_us

    def _slowest_us(self) -> int:
        """What all streams have passed, as of the last pass."""
        return self._arrivals.slowest_us

    @abc.abstractmethod
    def take(self, proceed: Proceed, progress: Progress) -> Taken | None:
        """Take the input of the next pass; None: there is nothing to do yet.

        Args:
            proceed: The clock and the chance of now, should they be asked for.
            progress: How far the operators are.
        """

    # -- cuts -------------------------------------------------------------------------------

    @property
    def can_stop(self) -> bool:
        """Whether a cut means the same whenever it comes."""
        return True

    def stop_at(self, cut: RestartPoint) -> None:
        """Do not go beyond a cut until `go_on`."""
        self.stop = cut

    def go_on(self) -> None:
        """Go as far as there is input."""
        self.stop = None

    def _within_stop(self, boundary_us: int) -> int:
        """A boundary, or that of the stop if it is earlier."""
        return boundary_us if self.stop is None else min(boundary_us, self.stop.boundary_us)

    def check_invariants(self, progress: Progress) -> None:
        """Raise `InvariantViolation` when something beyond the stop has been acted on."""
        if self.stop is not None and progress.boundary_us > self.stop.boundary_us:
            raise InvariantViolation(f"{progress.boundary_us} is acted on, beyond {self.stop}")

    def place(self, boundary_us: int) -> InputCut:
        """The present cut; `boundary_us` has been acted on. Cost: O(tuples held)."""
        taken_before = self._arrivals.processed_before
        return InputCut(taken_before, boundary_us, 0, taken_before)

    def cut_at(self, place: InputCut, needed_from: dict[str, int]) -> RestartPoint:
        """A place as it is stored, with the ids from which on a replay leads there."""
        processed: dict[str, int] = {
            spec.stream: before
            for spec, before in zip(self._plan.inputs, place.taken_before, strict=True)
        }
        passes: dict[str, int] = {}
        if self._plan.keeps_passes:
            passes[self._plan.pass_stream] = place.passes_before
        return RestartPoint(0, needed_from, processed, place.boundary_us, passes)

    def place_of(self, cut: RestartPoint) -> InputCut:
        """The inverse of `cut_at`; the ids of the cut stand for those that were not processed."""
        streams = [spec.stream for spec in self._plan.inputs]
        return InputCut(
            tuple(cut.processed_before.get(stream, 0) for stream in streams),
            cut.boundary_us,
            cut.next_ids.get(self._plan.pass_stream, 0),
            tuple(cut.needed_from.get(stream, 0) for stream in streams),
        )

    @abc.abstractmethod
    def has_reached(self, cut: RestartPoint, progress: Progress) -> bool:
        """Whether all that comes before a cut has been processed, but for its boundary."""

    def rest_of(self, cut: RestartPoint) -> Taken | None:
        """What is left to act on before a cut that has been reached: its boundary alone."""
        return Taken([None] * self._plan.port_count, self._no_ids(), cut.boundary_us)

    def has_passed(self, point: RestartPoint, progress: Progress) -> bool:
        """Whether what has been processed lies at or behind the cut of another replica."""
        return progress.boundary_us >= point.boundary_us and all(
            stream.processed_before >= point.processed_before.get(stream.spec.stream, 0)
            for stream in self._arrivals.streams
        )

    def needed_from(self, low: np.ndarray, *, is_state_kept: bool) -> dict[str, int]:
        """What a restart point at the present cut needs, per stream the oldest id.

        Args:
            low: Per input stream the oldest tuple that the operators' state goes back to. int64.
            is_state_kept: Whether a copy of the state goes with the point.
        """
        del is_state_kept
        return {
            s.spec.stream: max(min(int(low[s.number]), s.processed_before), s.needed_from)
            for s in self._arrivals.streams
        }

    def dropped(self, needed_from: dict[str, int]) -> dict[str, Ranges]:
        """What a replacement that begins at these ids leaves out, per stream; mostly nothing."""
        del needed_from
        return {}

    @property
    def held_tuples(self) -> int:
        """Tuples that have been taken from their streams and wait here."""
        return 0

    # -- passes that are logged: most orders have none, and do nothing about them -----------

    @property
    def clock_us(self) -> int | None:
        """The processing time of the last pass; None: passes have none."""
        return None

    def skip_recorded(self) -> tuple[Pass, ...] | None:
        """Forget the passes that are recorded and not run; what they were; None: none ever are."""
        return None

    def follow(self) -> list[Effect]:
        """Look for what the primary has logged, if this is a secondary."""
        return []

    def recorded(self, passes: tuple[Pass, ...], now_ms: int) -> list[Effect]:
        """The answer to that."""
        return []

    def promote(self, passes: tuple[Pass, ...]) -> None:  # noqa: B027
        """From now on this is the primary's, which goes on behind these passes of the log."""

    def may_follow(self, logged_before: int | None) -> bool:
        """Whether a secondary can take over where the log of passes ends; None: there is none."""
        del logged_before
        return True

    def forget(self, low: np.ndarray) -> None:  # noqa: B027
        """Forget the passes that nothing goes back to; args as in `needed_from`."""

    def trim(self, oldest: RestartPoint) -> list[Effect]:
        """No replacement will begin before this point."""
        return []

    def _no_ids(self) -> np.ndarray:
        return np.full(len(self._plan.inputs), NO_ID, dtype=np.int64)


class IdOrder(InputOrder):
    """The order of one stream's ids."""

    def take(self, proceed: Proceed, progress: Progress) -> Taken:
        """Some of what has come."""
        del proceed, progress
        return self.take_some()

    def take_some(self) -> Taken:
        """The same."""
        batches = self._arrivals.take_first()
        boundary_us = self._within_stop(self._arrivals.slowest_us)
        taken = Taken([None] * self._plan.port_count, self._no_ids(), boundary_us)
        if batches:
            taken.low[0] = batches[0].first_id
            taken.ports[0] = rows = rows_of_batches(batches)
            taken.tuples = len(rows.time_us)
        return taken

    def stop_at(self, cut: RestartPoint) -> None:
        """Do not go beyond the cut's ids."""
        super().stop_at(cut)
        self._arrivals.stop_at(self._ids_of(cut))

    def go_on(self) -> None:
        """See `InputOrder`."""
        super().go_on()
        self._arrivals.go_on()

    def has_reached(self, cut: RestartPoint, progress: Progress) -> bool:
        """Whether its ids have been processed."""
        del progress
        done = self._arrivals.processed_before
        return all(p >= b for p, b in zip(done, self._ids_of(cut), strict=True))

    def _ids_of(self, cut: RestartPoint) -> tuple[int, ...]:
        streams = self._arrivals.streams
        return tuple(cut.processed_before.get(s.spec.stream, 0) for s in streams)

    def check_invariants(self, progress: Progress) -> None:
        """See `InputOrder`."""
        super().check_invariants(progress)
        if self.stop is None:
            return
        done, stop = self._arrivals.processed_before, self._ids_of(self.stop)
        if any(p > b for p, b in zip(done, stop, strict=True)):
            raise InvariantViolation(f"{done} are processed, beyond {self.stop}")


class TimeOrder(InputOrder):
    """The order of (time, stream, id), by SUnion."""

    def __init__(self, plan: NodePlan, arrivals: Arrivals, at: RestartPoint | None) -> None:
        """Merge the streams; go on at the cut of `at`, if the state is that of it."""
        super().__init__(plan, arrivals)
        self._sunion = SUnion([spec.port for spec in plan.inputs], plan.port_count)
        if at is not None:
            processed = [at.processed_before[spec.stream] for spec in plan.inputs]
            self._sunion.resume(at.boundary_us, processed)
        arrivals.held_tuples = self._sunion.held_tuples

    def take(self, proceed: Proceed, progress: Progress) -> Taken | None:
        """What all streams have passed the time of; None: it has been taken before."""
        del proceed
        for number, batches in self._arrivals.take_fresh():
            for batch in batches:
                self._sunion.add(number, batch)
        boundary_us = self._within_stop(self._arrivals.slowest_us)
        if boundary_us <= progress.boundary_us and boundary_us != END_US:
            return None
        release = self._sunion.release(boundary_us)
        return Taken(rows_of(release), release.low, boundary_us, release.tuples)

    def has_reached(self, cut: RestartPoint, progress: Progress) -> bool:
        """Whether that time has been acted on."""
        return progress.boundary_us >= cut.boundary_us

    def has_passed(self, point: RestartPoint, progress: Progress) -> bool:
        """The same: what has come beyond it is held, or comes again."""
        return progress.boundary_us >= point.boundary_us

    def needed_from(self, low: np.ndarray, *, is_state_kept: bool) -> dict[str, int]:
        """See `InputOrder`; what is held has not been processed."""
        held = np.minimum(low, self._sunion.oldest_held())
        return super().needed_from(held, is_state_kept=is_state_kept)

    def place(self, boundary_us: int) -> InputCut:
        """See `InputOrder`; what is held has not been processed."""
        place = super().place(boundary_us)
        held = self._sunion.oldest_held().tolist()
        untaken = zip(place.taken_before, held, strict=True)
        return place._replace(untaken_from=tuple(min(each) for each in untaken))

    @property
    def held_tuples(self) -> int:
        """Tuples in SUnion."""
        return sum(self._sunion.held_tuples)


class _Decider(enum.Enum):
    """Who decides on passes."""

    THIS_NODE = "decided here"
    THE_PRIMARY = "decided by the primary"


class ArrivalOrder(InputOrder):
    """As it comes; passes are decided on, and repeated from their log."""

    def __init__(self, plan: NodePlan, arrivals: Arrivals, begins: Beginning) -> None:
        """Go on with the pass that the restart point begins with."""
        super().__init__(plan, arrivals)
        is_rerun = plan.keeps_passes and begins.is_replayed
        self._passes = Passes(
            _start_of(plan, begins.point),
            begins.passes,
            replayed_from=_start_of(plan, begins.point.oldest()) if is_rerun else None,
        )
        self._passes.clock_us = max(self._passes.clock_us, begins.point.clock_us)
        is_led = begins.is_secondary and not plan.diverges
        self._decider = _Decider.THE_PRIMARY if is_led else _Decider.THIS_NODE
        self._make_room()

    # -- passes -----------------------------------------------------------------------------

    def has_pass(self, progress: Progress) -> bool:
        """Whether a recorded pass has its input, or none is recorded and there is something."""
        if self._passes.recorded is not None:
            return self._arrivals.has_received(self._passes.recorded.processed_before)
        if self._decider is _Decider.THE_PRIMARY:
            return False
        return progress.is_woken or super().has_pass(progress)

    def take(self, proceed: Proceed, progress: Progress) -> Taken | None:
        """The input of the next recorded pass, or some of what has come; None: nothing has."""
        arrivals = self._arrivals
        decided = self._passes.recorded
        if decided is not None:
            batches = arrivals.take_recorded(decided.processed_before)
        else:
            before = arrivals.processed_before
            batches = self._take_some()
            after, boundary_us = arrivals.processed_before, self._slowest_us()
            if after == before and not progress.has_news(boundary_us):
                return None
            boundary_us = max(boundary_us, progress.boundary_us)
            decided = self._passes.decide(proceed.clock_us, proceed.seed, boundary_us, after)
        self._passes.begun(decided)
        if self._plan.loses_input and progress.boundary_us == END_US:
            batches = [[] for _ in batches]  # It comes again, behind a gap, and has been put out.
        low = np.array([b[0].first_id if b else NO_ID for b in batches], dtype=np.int64)
        ports = self._ports_of(batches)
        tuples = sum(len(rows.time_us) for rows in ports if rows is not None)
        return Taken(ports, low, decided.boundary_us, tuples, decided)

    def _take_some(self) -> list[list[TupleBatch]]:
        """Per stream some of what has come."""
        return self._arrivals.take_some()

    def _ports_of(self, taken: list[list[TupleBatch]]) -> list[Rows | None]:
        """Batches per input stream as rows per port, stream after stream."""
        ports: list[Rows | None] = [None] * self._plan.port_count
        position = 0
        for spec, batches in zip(self._plan.inputs, taken, strict=True):
            if not batches:
                continue
            rows = rows_of_batches(batches)
            rows.order = rows.order + position
            rows.batch_starts = None
            position += len(rows.time_us)
            before = ports[spec.port]
            ports[spec.port] = rows if before is None else _one_after_the_other(before, rows)
        return ports

    # -- cuts -------------------------------------------------------------------------------

    @property
    def can_stop(self) -> bool:
        """Where passes are logged: else nothing is as it was then."""
        return self._plan.keeps_passes

    def place(self, boundary_us: int) -> InputCut:
        """See `InputOrder`; passes have numbers, if they are logged."""
        return super().place(boundary_us)._replace(passes_before=self._passes.next_number)

    def stop_at(self, cut: RestartPoint) -> None:
        """Nothing: the passes before the cut are in the log, or none are run again."""

    def has_reached(self, cut: RestartPoint, progress: Progress) -> bool:
        """Whether the passes before the cut have been run."""
        del progress
        return self._passes.next_number >= cut.next_ids.get(self._plan.pass_stream, 0)

    def rest_of(self, cut: RestartPoint) -> None:
        """None: a pass that brought but a boundary is not needed again, and is not run again."""
        del cut

    def needed_from(self, low: np.ndarray, *, is_state_kept: bool) -> dict[str, int]:
        """See `InputOrder`; where passes are logged, whole ones are run again."""
        if not self._plan.keeps_passes:
            return super().needed_from(low, is_state_kept=is_state_kept)
        begins = PassStart(self._passes.next_number, self._passes.starts)
        if not is_state_kept:
            begins = self._passes.needed_from(low)
        needed: dict[str, int] = {
            spec.stream: start for spec, start in zip(self._plan.inputs, begins.starts, strict=True)
        }
        needed[self._plan.pass_stream] = begins.number
        return needed

    # -- passes that are logged ---------------------------------------------------------------

    @property
    def clock_us(self) -> int:
        """The processing time of the last pass."""
        return self._passes.clock_us

    def skip_recorded(self) -> tuple[Pass, ...]:
        """See `InputOrder`."""
        skipped = self._passes.skip_recorded()
        self._make_room()
        return skipped

    def follow(self) -> list[Effect]:
        """A secondary runs what the primary has logged."""
        if self._decider is _Decider.THE_PRIMARY and self._plan.keeps_passes:
            return [ReadPasses(self._passes.known_before)]
        return []

    def recorded(self, passes: tuple[Pass, ...], now_ms: int) -> list[Effect]:
        """Run these, and look again in a moment; nothing once this decides itself."""
        if self._decider is _Decider.THE_PRIMARY:
            self._add(passes)
            return [SetTimer("passes", now_ms + _FOLLOW_MS)]
        return []

    def promote(self, passes: tuple[Pass, ...]) -> None:
        """Run what the log holds, and decide from there on."""
        self._decider = _Decider.THIS_NODE
        self._add(passes)

    def may_follow(self, logged_before: int | None) -> bool:
        """Not if the log has lost, with its machine, a pass that this secondary has run."""
        return logged_before is None or self._passes.next_number <= logged_before

    def forget(self, low: np.ndarray) -> None:
        """See `InputOrder`."""
        self._passes.needed_from(low)

    def check_invariants(self, progress: Progress) -> None:
        """See `InputOrder`; and passes follow one another."""
        super().check_invariants(progress)
        self._passes.check_invariants()

    def trim(self, oldest: RestartPoint) -> list[Effect]:
        """The log begins a pass earlier than the point: the clock goes on from there."""
        if self._plan.keeps_passes:
            needed_from = oldest.needed_from.get(self._plan.pass_stream, 0)
            return [TrimPasses(max(0, needed_from - 1))]
        return []

    def _add(self, passes: tuple[Pass, ...]) -> None:
        self._passes.add(passes)
        self._make_room()

    def _make_room(self) -> None:
        self._arrivals.make_room(self._passes.decided_before)


def input_order(
    plan: NodePlan, arrivals: Arrivals, begins: Beginning, *, is_arbitrary: bool
) -> InputOrder:
    """The order in which a node takes its input.

    Args:
        plan: The node's.
        arrivals: What comes.
        begins: Where the node begins.
        is_arbitrary: Whether an operator depends on more than its input.
    """
    if is_arbitrary or plan.merges_by_arrival:
        return ArrivalOrder(plan, arrivals, begins)
    if len(plan.inputs) > 1:
        return TimeOrder(plan, arrivals, begins.point if begins.is_at_cut else None)
    return IdOrder(plan, arrivals)


def _start_of(plan: NodePlan, point: RestartPoint) -> PassStart:
    """The pass that a restart point begins with."""
    starts = tuple(point.needed_from.get(spec.stream, 0) for spec in plan.inputs)
    return PassStart(point.needed_from.get(plan.pass_stream, 0), starts)


def rows_of_batches(batches: list[TupleBatch]) -> Rows:
    """The rows of consecutive batches as one pass's input, in id order."""
    batch = batches[0].batch if len(batches) == 1 else pa.concat_batches([b.batch for b in batches])
    time_us = batch.column(batch.num_columns - 1).to_numpy()
    created = [b.created_us for b in batches if b.created_us]
    return Rows(
        _without_time(batch),
        time_us,
        positions(len(time_us)),
        min(created, default=0),
        np.array([b.first_id - batches[0].first_id for b in batches], dtype=np.int64),
    )


def _one_after_the_other(first: Rows, second: Rows) -> Rows:
    """The rows of two streams on one port, the second stream's behind the first's."""
    created = [r.created_us for r in (first, second) if r.created_us]
    return Rows(
        pa.concat_batches([first.batch, second.batch]),
        np.concatenate([first.time_us, second.time_us]),
        np.concatenate([first.order, second.order]),
        min(created, default=0),
    )


def rows_of(release: Release) -> list[Rows | None]:
    """What SUnion has released, as rows per port."""
    return [
        None
        if port is None
        else Rows(_without_time(port.batch), port.time_us, port.order, port.created_us)
        for port in release.ports
    ]


def _without_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(range(batch.num_columns - 1))
