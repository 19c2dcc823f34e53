"""A sink stream: it is written to a log exactly once, by tuple id. [HA §5.2]

Three positions, all exclusive: ids before `durable_before` are on disk, those before
`written_before` are in the log, `next_id` is the next tuple's. After a failure `next_id` may lie
before the others: what is put out again then is in the log already, and is not written.

What must not be written yet is held: by a secondary until it is promoted, behind a gate until that
opens. So `written_before` lies at or before the first tuple held, unless the log had that already.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import EndSink, HastenSink, SyncSink, WriteSink
from holdfast.core.haunit.prepared import OutputTuples
from holdfast.core.model.tuples import TupleBatch, between, in_parts

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.haunit.outputs.first_output import FirstOutput
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import StreamId


class Sink:
    """One sink stream. Volatile: all fields; its log is durable."""

    def __init__(
        self,
        stream: StreamId,
        next_id: int,
        in_log: int,
        first_output: FirstOutput,
        *,
        unsynced_max: int | None = None,
    ) -> None:
        """Number from an id on.

        Args:
            stream: Its name.
            next_id: Id of the next tuple.
            in_log: The first id that its log does not hold yet.
            first_output: Is told when something is written.
            unsynced_max: See `OutputSpec`.
        """
        self.stream = stream
        self.next_id = next_id
        self.durable_before = in_log  # level-1 position of the log
        self.written_before = in_log
        self._unsynced_max = unsynced_max
        self.is_sync_due = False
        self.is_ended = False
        self._is_hastened = False
        self.held: deque[TupleBatch] = deque()  # what must not be written yet
        self.held_bytes = 0  # of that
        self._first_output = first_output

    @property
    def held_tuples(self) -> int:
        """How many tuples are kept from the log."""
        return self.next_id - self.held[0].first_id if self.held else 0

    @property
    def held_from(self) -> int:
        """The first tuple that is kept from the log; the next one if none is."""
        return self.held[0].first_id if self.held else self.next_id

    def restore(self, batches: tuple[TupleBatch, ...]) -> None:
        """A checkpoint has kept these from the log, up to the next tuple."""
        self.held.extend(batches)
        self.held_bytes += sum(each.batch.nbytes for each in batches)

    def to_be_stored(self, from_id: int) -> OutputTuples | None:
        """What is kept from the log from an id on, for a checkpoint; None: nothing is."""
        first_id = max(from_id, self.held_from)
        if first_id >= self.next_id:
            return None
        batches = tuple(between(tuple(self.held), first_id, self.next_id))
        return OutputTuples(self.stream, first_id, self.next_id, batches, is_held=True)

    @property
    def unsynced_tuples(self) -> int:
        """How many tuples are in the log and may be lost with the machine."""
        return self.written_before - self.durable_before

    def has_room(self, unsent_max: int) -> bool:
        """Whether more may be put out, as a stream may have so many unsent tuples."""
        if self._unsynced_max is None:
            return True
        return self.unsynced_tuples < (self._unsynced_max or unsent_max)

    # -- putting out --------------------------------------------------------------------------

    def put_out(
        self,
        batch: pa.RecordBatch,
        boundary_us: int,
        created_us: int,
        *,
        is_held: bool,
    ) -> list[Effect]:
        """Number some rows, and write them, or hold them."""
        tuples = TupleBatch(self.next_id, batch, boundary_us, created_us)
        self.next_id = tuples.next_id
        effects: list[Effect] = []
        for part in in_parts(tuples):
            if is_held:
                self.held.append(part)
                self.held_bytes += part.batch.nbytes
            else:
                effects += self.write(part)
        return effects

    def write(self, tuples: TupleBatch) -> list[Effect]:
        """Write what the log does not hold yet: exactly once by tuple id."""
        if tuples.next_id <= self.written_before:
            return []
        tuples = tuples.starting_at(self.written_before)
        self.written_before = tuples.next_id
        self.is_sync_due = True
        return [WriteSink(self.stream, tuples), *self._first_output.note()]

    # -- what is held ---------------------------------------------------------------------------

    def let_out(self, before: int) -> list[Effect]:
        """Write what is held from before an id; what was put out together leaves together."""
        effects: list[Effect] = []
        while self.held and self.held[0].next_id <= before:
            effects += self.write(self._taken())
        return effects

    def let_go(self, before: int) -> None:
        """What is held from before an id has been written by another replica."""
        while self.held and self.held[0].next_id <= before:
            self._taken()

    def _taken(self) -> TupleBatch:
        """The first of what is held, which is held no more."""
        taken = self.held.popleft()
        self.held_bytes -= taken.batch.nbytes
        return taken

    def go_on_from(self, in_log: int) -> None:
        """The log, and nothing else, says which ids have been written."""
        self.durable_before = self.written_before = in_log

    def number_anew(self) -> None:
        """Number from where the log ends, what is held first."""
        self.next_id = self.written_before
        held, self.held = self.held, deque()
        for tuples in held:
            self.held.append(replace(tuples, first_id=self.next_id))
            self.next_id = self.held[-1].next_id

    # -- durability -----------------------------------------------------------------------------

    def sync(self) -> list[Effect]:
        """Have what was written made durable."""
        if self.is_sync_due:
            self.is_sync_due = False
            return [SyncSink(self.stream)]
        return []

    def synced(self, durable_before: int) -> None:
        """The log is on disk up to an id."""
        self.durable_before = max(self.durable_before, durable_before)

    def hasten(self) -> list[Effect]:
        """Nothing follows; if nothing is held, all is written, and need not wait for more.

        Nor does it wait for the next time at which positions are told.
        """
        if self.held or self._is_hastened:
            return []
        self._is_hastened = True
        return [*self.sync(), HastenSink(self.stream)]

    def end(self) -> list[Effect]:
        """All of it is durable, and nothing follows."""
        if not self.is_ended:
            self.is_ended = True
            return [EndSink(self.stream)]
        return []

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when positions or held tuples do not fit."""
        if self.durable_before > self.written_before:
            raise InvariantViolation(f"{self.stream}: durable beyond what was written")
        expected = self.held[0].first_id if self.held else self.next_id
        for batch in self.held:
            if batch.first_id != expected:
                raise InvariantViolation(f"{self.stream}: gap at {expected} of what is held")
            expected = batch.next_id
        if expected != self.next_id:
            raise InvariantViolation(f"{self.stream}: what is held ends at {expected}")
