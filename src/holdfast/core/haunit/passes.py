"""The determinants of an arbitrary unit: what its passes depended on beside their input. [HA §6]

Theory of operation. The outcome of a pass of an arbitrary unit depends on where the pass was cut,
on how its input streams were interleaved, on the clock and on chance. Before a pass is run, all
of that is decided and becomes a `Pass`, one record of the unit's pass log. Output leaves the node
only once the record is durable. Whoever takes the node's place, a replacement or a secondary, runs
the recorded passes again, each as soon as its input is there, and decides for itself only when no
record is left: so its output is the same, and the same ids fit.

The pass log is a log as sinks have: written exactly once by number, fenced by incarnation. A
restart point names the pass of its cut, and the oldest pass that has to be run again to rebuild
the state; both are positions in the pass log.

Whoever goes on from a copy of the state (passive standby) has not run the passes that the state
depends on, but has to say which ones these are: should the copy be lost too, the next one begins
there. It takes them from the log, from the durable restart point on.

Credit must know of recorded passes: their tuples use up none. 1. A source feeds this node, and a
union by time beside it. 2. A replacement takes in as much of the source as an input holds; its next
recorded pass waits for a tuple of another node. 3. That one is full towards the union. 4. The
union waits for the source, which is full towards this node. The predecessor had room for all
that recorded passes have taken, or they would not have been recorded; so has its replacement. And
who feeds it puts out as much as then, even past a full stream (`OutputEdge.is_awaited`).

Departure from the paper: there determinants go to the secondary, and in upstream backup to a log
at the secondary. Here one durable log serves all approaches, several failures at a time included.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import NO_ID
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.core.model.ids import StreamId
    from holdfast.core.recovery.restart_point import RestartPoint

PASS_SCHEMA: Final = pa.schema(
    [
        ("seed", pa.uint64()),
        ("boundary_us", pa.int64()),
        ("processed_before", pa.list_(pa.int64())),
        (TIME_COLUMN, pa.int64()),
    ]
)
"""A record of the pass log; its time is the processing time."""


class PassesLost(RuntimeError):
    """A secondary has run a pass that the pass log has lost; its replacement has not."""


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass depends on.

    Attributes:
        number: Counts the passes of the node, over all its incarnations.
        clock_us: Processing time, microseconds since the epoch.
        seed: For random draws, uint64.
        boundary_us: The boundary that it acts on.
        processed_before: Per input stream, in the order of the plan, the id up to which tuples have
            been processed after it.
    """

    number: int
    clock_us: int
    seed: int
    boundary_us: int
    processed_before: tuple[int, ...]

    def to_batch(self) -> TupleBatch:
        """As a record of the pass log."""
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([self.seed], type=pa.uint64()),
                pa.array([self.boundary_us], type=pa.int64()),
                pa.array([list(self.processed_before)], type=pa.list_(pa.int64())),
                pa.array([self.clock_us], type=pa.int64()),
            ],
            schema=PASS_SCHEMA,
        )
        return TupleBatch(self.number, batch, self.boundary_us, 0)


def passes_of(batches: tuple[TupleBatch, ...]) -> tuple[Pass, ...]:
    """The passes that records of a pass log stand for."""
    found: list[Pass] = []
    for batch in batches:
        seeds, boundaries, processed, clocks = (c.to_pylist() for c in batch.batch.columns)
        for i in range(batch.count):
            found.append(
                Pass(batch.first_id + i, clocks[i], seeds[i], boundaries[i], tuple(processed[i]))
            )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class PassStart:
    """Where a pass begins.

    Attributes:
        number: The pass's.
        starts: Per input stream, in the order of the plan, the first tuple that it may take.
    """

    number: int
    starts: tuple[int, ...]


def _starts(first: PassStart, before: int, recorded: tuple[Pass, ...]) -> Iterator[PassStart]:
    """Where the recorded passes from `first` on begin: each where the one before it has ended."""
    starts = first.starts
    for pass_ in recorded:
        if first.number <= pass_.number < before:
            yield PassStart(pass_.number, starts)
            starts = pass_.processed_before


def first_to_read(point: RestartPoint | None, pass_stream: StreamId) -> int:
    """Where to read a pass log: a pass before the one that the oldest candidate begins with."""
    if point is None:
        return 0
    return max(0, point.oldest().needed_from.get(pass_stream, 0) - 1)


class Passes:
    """The passes of one incarnation: those to be run again, and those its state depends on.

    Volatile: all fields; the pass log is durable.
    """

    def __init__(
        self,
        first: PassStart,
        recorded: tuple[Pass, ...],
        *,
        replayed_from: PassStart | None,
    ) -> None:
        """Go on at a pass.

        Args:
            first: The pass.
            recorded: What the pass log holds from the pass before `replayed_from` on, whose
                clock counts.
            replayed_from: With which pass a replacement without the state would begin; None: the
                state is not rebuilt by running passes again, and only the present one matters.
                It lies before `first` where a copy of the state is gone on from.
        """
        self.next_number = first.number
        self.starts = first.starts  # per input stream where the next pass begins
        self._is_replayed = replayed_from is not None
        self._recorded = deque(r for r in recorded if r.number >= first.number)
        self._run: deque[PassStart] = deque()  # those that the state may depend on
        if replayed_from is not None:
            self._run.extend(_starts(replayed_from, first.number, recorded))
        self.clock_us = max((r.clock_us for r in recorded if r.number < first.number), default=0)

    @property
    def recorded(self) -> Pass | None:
        """The next pass, if it has been decided already."""
        return self._recorded[0] if self._recorded else None

    @property
    def decided_before(self) -> tuple[int, ...]:
        """Per input stream the id up to which the passes that are known will have taken."""
        return self._recorded[-1].processed_before if self._recorded else self.starts

    @property
    def known_before(self) -> int:
        """The first number of which no record is known."""
        return self.next_number + len(self._recorded)

    def add(self, recorded: tuple[Pass, ...]) -> None:
        """More of the pass log has become known; of the pass before the next one its clock."""
        known_before = self.known_before
        earlier = (r.clock_us for r in recorded if r.number < self.next_number)
        self.clock_us = max(self.clock_us, *earlier, 0)
        self._recorded += [r for r in recorded if r.number >= known_before]

    def skip_recorded(self) -> tuple[Pass, ...]:
        """The input is not what it was: what was decided for it does not hold. What that was."""
        skipped = tuple(self._recorded)
        self.next_number = self.known_before
        self.clock_us = max(self.clock_us, *(r.clock_us for r in skipped), 0)
        self._recorded.clear()
        return skipped

    def decide(
        self, clock_us: int, seed: int, boundary_us: int, processed_before: tuple[int, ...]
    ) -> Pass:
        """A pass that has not been run before. The clock never moves back."""
        clock_us = max(clock_us, self.clock_us)
        return Pass(self.next_number, clock_us, seed, boundary_us, processed_before)

    def begun(self, pass_: Pass) -> None:
        """A pass is run."""
        if self._recorded and self._recorded[0].number == pass_.number:
            self._recorded.popleft()
        if self._is_replayed:
            self._run.append(PassStart(pass_.number, self.starts))
        self.starts = pass_.processed_before
        self.next_number = pass_.number + 1
        self.clock_us = pass_.clock_us

    def needed_from(self, low: np.ndarray) -> PassStart:
        """The oldest pass to be run again; those before it are forgotten.

        Args:
            low: Per input stream the oldest tuple that the state depends on, NO_ID if on none; it
                never moves back.
        """
        while len(self._run) > 1 and self._is_before(self._run[1].starts, low):
            self._run.popleft()
        if not self._run or self._is_before(self.starts, low):
            self._run.clear()
            return PassStart(self.next_number, self.starts)
        return self._run[0]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless passes follow one another.

        Cost: O(passes that are recorded, or that the state depends on).
        """
        for number, pass_ in enumerate(self._recorded, self.next_number):
            if pass_.number != number:
                raise InvariantViolation(f"pass {pass_.number} is recorded, {number} comes next")
        run = [start.number for start in self._run]
        if run != sorted(set(run)) or (run and run[-1] >= self.next_number):
            raise InvariantViolation(f"passes {run} were run, {self.next_number} comes next")

    @staticmethod
    def _is_before(starts: tuple[int, ...], low: np.ndarray) -> bool:
        """Whether nothing before `starts` is needed."""
        return all(
            start <= int(oldest) or int(oldest) == NO_ID
            for start, oldest in zip(starts, low, strict=True)
        )
