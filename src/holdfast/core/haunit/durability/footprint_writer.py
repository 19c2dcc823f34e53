"""Continuous eventual checkpoints of one node: when footprints are written, and what they allow.
[CEC §II.B, §III]

Theory of operation. The paper has three paths in one thread:

- *Foreground*: before a restart point is noted, and before windows are written in the background, a
  record says which windows have opened (G_open) and closed (R) since the last one. Nothing is ever
  read behind the record of a restart point, so that more records would serve nobody; and a window
  that has opened and closed in between leaves no trace.
- *Background*: when the shell has time to spare, the windows with the oldest footprints are written
  (G_check), in a record of their own. Each part of that is a piece of work, so that a tuple waits
  for one of them only. What has opened and closed is *taken* between two passes, footprints of
  windows between two later ones; each record is made and goes to the log in a piece behind, before
  anything else is taken, and before any restart point.
- *Recovery*: the eventual checkpoint that core/recovery/extent.py has found is adopted; the node
  replays from T in silence.

When the node notes a restart point, the log's last record must be of its present cut, so that a
`PASS` record is written if need be. The point needs the input from T on, and the log from T's
record to its own; it is safe once the log is durable up to there, as with sinks. So all that a
restart point ever leads to is in the log, and in upstream's queues.

Invariants: T never moves back, and lies in the log from `log_needed_from` on; the newest footprint
of each open window belongs to one generation; the numbers of records never fall, nor do cuts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.core.checkpoint.eventual import (
    ExtentSize,
    ExtentStatistics,
    FootprintOrder,
    Generation,
)
from holdfast.core.errors import InvariantViolation
from holdfast.core.model.footprints import (
    FootprintKind,
    FootprintRecord,
    PassMark,
    footprint_schema,
    no_window,
)
from holdfast.core.model.ids import BEGINNING_US

if TYPE_CHECKING:
    from holdfast.core.checkpoint.eventual import RecoveryObjective
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.operators.footprinted import Footprinted, WindowsOfPass
    from holdfast.core.recovery.extent import Extent


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands between two passes.

    Attributes:
        cut: In its own order: with one input stream an id, with several the boundary.
        boundary_us: What it has acted on.
        starts: Per input stream the oldest tuple that it has not processed.
        processed_before: Per input stream the id before which all was taken.
    """

    cut: int
    boundary_us: int
    starts: tuple[int, ...]
    processed_before: tuple[int, ...]


class FootprintWriter:
    """The footprints of one incarnation of a node. Durable: the log. Volatile: all fields."""

    def __init__(
        self,
        operator: Footprinted,
        objective: RecoveryObjective,
        next_id: int,
        extent: Extent | None,
        streams: int,
    ) -> None:
        """Go on behind an eventual checkpoint, or begin.

        Args:
            operator: The unit's only operator with state, without state yet.
            objective: How large the extent may become.
            next_id: Of the footprint log's next row.
            extent: The eventual checkpoint; None: the node begins with its input.
            streams: How many input streams the node has.
        """
        self._operator = operator
        self._schema = footprint_schema(operator.body_schema)
        self._no_window = no_window(operator.body_schema)
        self._objective = objective
        self.next_id = next_id
        self._follows = 0 if extent is None else extent.next_id
        self._order = FootprintOrder()
        self._bytes = 0  # written to the log, from the oldest record known on
        self._number = 0  # of the newest generation
        self._last: Place | None = None  # where the newest record stands
        self._last_id = self._follows  # and where it begins in the log
        self._replayed_to_us = BEGINNING_US  # the boundary at the cut that it goes on from
        first = 0 if streams == 1 else BEGINNING_US
        nothing = (0,) * streams
        self._stood_at = Place(first, BEGINNING_US, nothing, nothing)  # when it last said anything
        self._has_more_to_say = False
        self._may_have_closed = False  # windows of which that has not been said
        self._has_said_alone = False  # in the last piece of background work that took anything
        self._taken: deque[FootprintRecord] = deque()  # records that are not in the log yet
        self.cuts_ahead = 0
        """By how much cuts are ahead of the ids of the one input stream, which began anew."""
        if extent is not None:
            self._adopt(extent, streams)

    def _adopt(self, extent: Extent, streams: int) -> None:
        """Have the windows of an eventual checkpoint, and their order."""
        records = extent.records
        counts = [record.bodies.num_rows for record in records]
        generations = np.repeat(np.arange(len(records), dtype=np.int64), counts)
        cuts = np.array([record.mark.cut for record in records], dtype=np.int64)
        bodies = pa.concat_batches([record.bodies for record in records])
        last = extent.last
        self.cuts_ahead = last.cut - last.starts[0] if streams == 1 else 0
        cuts -= self.cuts_ahead
        windows = self._operator.adopt_footprints(bodies, generations, cuts, streams)
        ends = np.cumsum(counts).tolist()
        for number, record in enumerate(records):
            mark, first = record.mark, ends[number] - counts[number]
            generation = Generation(number, mark.cut, mark.starts, record.first_id, self._bytes)
            self._order.taken(generation, windows[first : ends[number]], record.binding)
            self._bytes += record.nbytes
        self._number = len(records)
        self._last = Place(last.cut, last.boundary_us, last.starts, last.starts)
        self._last_id = records[-1].first_id
        self._stood_at = self._last
        self._replayed_to_us = last.boundary_us

    def end_replay(self) -> None:
        """The node is at the cut that it goes on from."""
        self._operator.end_replay(self._replayed_to_us)

    def renumber(self, place: Place) -> list[TupleBatch]:
        """Amid the replay, here, the one input stream has become another one.

        1. A window's footprint is from behind this place. 2. Tuples come whose ids lie before its
        cut, and it takes them. 3. A replacement would leave them out. So cuts go on behind the last
        one whatever the ids are, and all windows get new footprints at once.
        """
        if self._last is None:
            return []
        records = self._written()
        self.cuts_ahead += self._last.cut + 1 - place.cut
        self._stood_at = place = replace(place, cut=self._last.cut + 1)
        return records + self.break_off_replay(place)

    def break_off_replay(self, place: Place) -> list[TupleBatch]:
        """The node is at the cut that it goes on from, or goes no further; some of the input that
        was to be replayed has been lost.

        So windows are not what they were. Without that input some may have closed, which is said.
        The others get new footprints at once, those of this very cut too: the ids from which they
        would be replayed are of other tuples now.
        """
        self.begin_pass()
        first = self._number
        self._operator.break_off_replay(self._replayed_to_us)
        records = self.say(place)
        while (oldest := self._order.oldest) is not None and oldest.number < first:
            self._take_footprints(max(1, self._operator.open_windows), place, place.cut + 1)
            records += self._written()
        return records

    # -- the foreground -------------------------------------------------------------------------

    def begin_pass(self) -> None:
        """The operator is about to be run, not in silence."""
        if not self._has_more_to_say:
            self._has_more_to_say = True
            self._number += 1
            self._operator.begin_pass(self._number)

    def say(self, place: Place) -> list[TupleBatch]:
        """What the passes since the last call have to say; nothing if none is open or closed now
        that was not then.

        Two records if what has opened is said of the cut before the first of them.
        """
        self._take_said(place)
        return self._written()

    def _take_said(self, place: Place, *, closing: bool = True) -> None:
        """Take what is to be said; where it can wait, only of what has opened unless `closing`."""
        if not (self._has_more_to_say or (closing and self._may_have_closed)):
            return
        self._has_more_to_say, self._may_have_closed = False, not closing
        said, before = self._operator.end_pass(closing=closing), self._stood_at
        self._stood_at = place
        if self._operator.opens_before and len(said.windows):
            closed, none = said.closed.num_rows, said.former[:0]
            opened = replace(said, closed=said.closed.slice(0, 0), former=none, let_go=none)
            self._keep(opened, FootprintKind.G_OPEN, before, closing=closed)
            said = replace(said, windows=said.windows[:0], bodies=said.bodies.slice(0, 0))
        if len(said.windows) or said.closed.num_rows:
            self._keep(said, FootprintKind.G_OPEN, place)

    def mark(self, place: Place) -> list[TupleBatch]:
        """The same, and if need be a record without windows: the newest says where the node is."""
        records = self.say(place)
        if self._last is None or not self._stands_at(place, self._last):
            self._stood_at = place
            kinds = np.array([FootprintKind.PASS], dtype=np.uint8)
            self._begin(kinds, self._no_window, place)
            records += self._written()
        return records

    @staticmethod
    def _stands_at(place: Place, last: Place) -> bool:
        return (place.cut, place.boundary_us, place.starts) == (
            last.cut,
            last.boundary_us,
            last.starts,
        )

    # -- the background -------------------------------------------------------------------------

    def is_check_due(self, place: Place) -> bool:
        """Whether there is a `piece`: of what was taken, or to bring recovery within bounds."""
        if self.has_taken:
            return True
        oldest = self._order.oldest
        if oldest is None or oldest.cut >= place.cut:
            return False
        return self._objective.is_due(self.size(place))

    def piece(self, windows_max: int, place: Place) -> list[TupleBatch]:
        """Write a record of what was taken; or take what has opened and closed, or footprints.

        Each is a piece of its own, so that no tuple waits for two. Only where every pass has more
        to say, each second time footprints are taken with it: else T would stand still there. What
        has closed waits for the next piece then, if the operator lets it.
        """
        if self.has_taken:
            return [self._numbered(self._taken.popleft())]
        if not self._has_said_alone:
            self._take_said(place)
            if self._taken:
                self._has_said_alone = True
                return []
        self._has_said_alone = False
        self._take_said(place, closing=False)
        self._take_footprints(windows_max, place, place.cut)
        return []

    @property
    def has_taken(self) -> bool:
        """Whether anything has been taken that is not in the log yet."""
        return bool(self._taken)

    @property
    def footprints_taken(self) -> int:
        """How many footprints of windows have been taken in the background, and are not there."""
        last = self._taken[-1] if self._taken else None
        return 0 if last is None else int((last.kinds == FootprintKind.G_CHECK).sum())

    def _take_footprints(self, windows_max: int, place: Place, before_cut: int) -> None:
        """Up to so many footprints, at least one, of windows whose newest ones are the oldest, and
        from before a cut.

        Of none, if none of those looked at is open any more, or has processed anything since.
        """
        if self._has_more_to_say:
            raise InvariantViolation("windows are written before it is said which are open")
        some = self._order.next(windows_max, before_cut)
        if some is None:
            return
        windows, former = some
        self._number += 1
        rest_bytes = self._objective.rest_bytes
        self._operator.rest_from = self._order.written_since(self._bytes - rest_bytes)
        said = self._operator.footprints(windows, former, self._number, windows_max)
        self._order.give_back(former, said.unfinished)
        if len(said.windows) or said.closed.num_rows:
            self._stood_at = place
            self._keep(said, FootprintKind.G_CHECK, place)

    def _written(self) -> list[TupleBatch]:
        """The records of what was taken, if anything was; none may come before them."""
        records = [self._numbered(record) for record in self._taken]
        self._taken.clear()
        return records

    # -- records --------------------------------------------------------------------------------

    def _keep(
        self, said: WindowsOfPass, kind: FootprintKind, place: Place, *, closing: int = 0
    ) -> None:
        """The next record, whose windows are of a generation of their own from now on."""
        kinds = np.full(len(said.windows) + said.closed.num_rows, FootprintKind.R, dtype=np.uint8)
        kinds[: len(said.windows)] = kind
        self._order.gone(said.former, said.let_go)
        starts, (first_id, _), written = place.starts, self._ends, self._bytes
        generation = Generation(self._number, place.cut, starts, first_id, written)
        self._order.taken(generation, said.windows, said.finished)
        bodies = said.bodies if len(said.windows) else said.closed
        if len(said.windows) and said.closed.num_rows:
            bodies = pa.concat_batches([bodies, said.closed])
        self._begin(kinds, bodies, place, closing=closing)

    def _begin(
        self, kinds: np.ndarray, bodies: pa.RecordBatch, place: Place, *, closing: int = 0
    ) -> None:
        """The next record, behind which `closing` windows are open that the pass has closed."""
        open_windows = self._operator.open_windows + closing
        first_id, follows = self._ends
        mark = PassMark(open_windows, place.cut, place.boundary_us, place.starts, follows)
        self._last, self._last_id = place, first_id
        self._taken.append(FootprintRecord(first_id, mark, kinds, bodies))

    @property
    def _ends(self) -> tuple[int, int]:
        """The first row of the next record, and where the one that it follows ends."""
        if not self._taken:
            return self.next_id, self._follows
        return self._taken[-1].next_id, self._taken[-1].next_id

    def _numbered(self, record: FootprintRecord) -> TupleBatch:
        """The same as it goes to the log."""
        batch = record.to_batch(self._schema)
        self.next_id = self._follows = batch.next_id
        self._bytes += batch.batch.get_total_buffer_size()  # Ten times as fast as `nbytes`.
        return batch

    # -- what is needed --------------------------------------------------------------------------

    @property
    def ends_at(self) -> int:
        """The id behind the newest record that counts; a restart point of its place names it."""
        return self._follows

    def starts(self, place: Place) -> tuple[int, ...]:
        """T: per input stream from where a replacement would replay, if the log is durable."""
        oldest = self._order.oldest
        return place.starts if oldest is None else oldest.starts

    @property
    def log_needed_from(self) -> int:
        """The first row of the log that an eventual checkpoint of the newest record needs."""
        oldest = self._order.oldest_needed
        return self._last_id if oldest is None else oldest.first_id

    def size(self, place: Place) -> ExtentSize:
        """What recovery from the present place would have to do."""
        oldest, needed = self._order.oldest, self._order.oldest_needed
        if oldest is None or needed is None:
            return ExtentSize(0, 0, 0)
        tuples = sum(place.processed_before) - sum(oldest.starts)
        return ExtentSize(self._bytes - needed.bytes_before, tuples, self._operator.open_windows)

    def statistics(self, place: Place) -> ExtentStatistics:
        """The same, and how long it would take."""
        size, objective = self.size(place), self._objective
        predicted_ms = objective.predicted_us(size) / 1000
        return ExtentStatistics(size, predicted_ms, objective.shortfall(size))

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if windows and generations disagree."""
        if self._has_more_to_say:
            return
        if self._order.open_windows != self._operator.open_windows:
            raise InvariantViolation(
                f"{self._operator.open_windows} open windows, of which "
                f"{self._order.open_windows} have footprints"
            )
