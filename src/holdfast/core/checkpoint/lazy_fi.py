"""Lazy-FI: HMNR whose clocks rise only when something has made them. [arXiv 1702.06167]

A cut of HMNR raises the clock. Here it does only if, since the last rise, a note was received whose
clock was no less than the node's own. Otherwise the new checkpoint may have the clock of the one
before it: whatever Z-path came in ended at a lower one. A node that cuts often, or receives little,
so forces fewer cuts on others.

What has to hold along every Z-path is that the clock of the checkpoint at its end is greater than
that of the one at its beginning. So what counts of a member is the clock that its *next* checkpoint
will have at least: its clock, plus one if it is to rise. `greater` compares with that, and its own
bit is set while the node's next checkpoint would have the present clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.checkpoint.hmnr import HMNR

if TYPE_CHECKING:
    from holdfast.core.checkpoint.scope import Scope
    from holdfast.core.model.notes import CheckpointClocks


class LazyFI(HMNR):
    """A `CutRule`. Durable: as in `HMNR`; whether the clock is to rise is the own bit there."""

    def __init__(self, scope: Scope) -> None:
        """Begin at the node's first point."""
        super().__init__(scope)
        self.greater |= self._own

    def _receive(self, note: CheckpointClocks) -> None:
        is_to_rise = note.clock >= self.clock or not self.greater & self._own
        super()._receive(note)
        self.greater &= ~self._own
        if not is_to_rise:
            self.greater |= self._own

    def _raise_clock(self) -> None:
        if not self.greater & self._own:
            super()._raise_clock()
        self.greater |= self._own
