"""What a reader of a feed knows: which tentative suffix stands, and behind what. [DPC §3.1]

A feed is runs of tentative tuples, each behind a stable prefix. A run is undone, by whoever comes
next, before anything else follows. An undo leaves the prefix. A correction is said to be over of
the run that was undone last. A row that says otherwise breaks the feed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.core.model.feed_rows import TYPE_NAMES
from holdfast.core.model.tuples import TupleType

TENTATIVE: Final = TYPE_NAMES[TupleType.TENTATIVE]
UNDO: Final = TYPE_NAMES[TupleType.UNDO]


class FeedBroken(Exception):
    """A row of a feed cannot stand where it does."""


class UndoneTwice(FeedBroken):
    """What is undone does not stand."""


@dataclass(slots=True)
class FeedReading:
    """What the rows so far have come to.

    Attributes:
        run: The suffix that stands; empty: none.
        tuples: How many tuples it has.
        begins: The id of the first one: so many stable tuples stand before it.
        correcting: The run that was undone and is not corrected; empty: none.
        stands_at: So many stable tuples stand before the last row.
        tentative: Tentative rows so far.
        undone: How many of them are void.
        corrections: How many corrections are over.
    """

    run: str = ""
    tuples: int = 0
    begins: int = 0
    correcting: str = ""
    stands_at: int = 0
    tentative: int = 0
    undone: int = 0
    corrections: int = 0

    @property
    def is_closed(self) -> bool:
        """Whether a reader who knows nothing of the rows so far reads on as one who does."""
        return not self.run and not self.correcting

    def take(self, kind: str, tuple_id: int, run: str | None) -> None:
        """The next row; its `_type`, `_tuple_id` and `_run`.

        Raises:
            FeedBroken: It cannot come there.
        """
        if kind == TENTATIVE:
            self._take_tentative(tuple_id, run or "")
            return
        if kind == UNDO:
            self._take_undo(tuple_id, run)
        elif run is None or self.correcting != run:
            raise FeedBroken(f"{kind} of {run} behind the undo of {self.correcting or 'no run'}")
        else:
            self.correcting = ""
            self.corrections += 1
        self.stands_at = tuple_id

    def _take_tentative(self, tuple_id: int, run: str) -> None:
        if not self.run:
            self.run, self.tuples, self.begins = run, 0, tuple_id
        if self.run != run:
            raise FeedBroken(f"{run} behind {self.run}, without undo")
        if tuple_id != self.begins + self.tuples:
            raise FeedBroken(f"{tuple_id} of {run} behind {self.tuples} tuples")
        self.tuples += 1
        self.tentative += 1
        self.stands_at = self.begins

    def _take_undo(self, tuple_id: int, run: str | None) -> None:
        if run is not None and self.run != run:
            raise UndoneTwice(f"{run} is undone, {self.run or 'no run'} stands")
        if run is not None and tuple_id != self.begins:
            raise FeedBroken(f"undo of {run} leaves {tuple_id} tuples, not {self.begins}")
        if self.run:
            self.undone += self.tuples
        self.run, self.correcting = "", run or ""
