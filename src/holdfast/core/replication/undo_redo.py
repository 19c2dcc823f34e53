"""Undo/redo: the state at a cut is made again from input, instead of being copied. [DPC §4.2]

Theory of operation. Operators know, per input stream, the oldest tuple that their state goes back
to (`oldest_needed`): the paper's stream markers. The history keeps the passes that a node has
run as stable, from the markers on. To go back to a cut it begins with empty operators and runs them
in silence: what these passes put out has been put out. That is upstream backup's replay, within
the node.

Entering up_failure costs nothing then, and no page is there twice; a correction costs as much more
as the markers lie back. Whose state goes back to more input than the bound allows, copies it
instead (checkpoint/redo): nothing is kept that could not be run again. After a pause it is tried
anew, as the markers may move on. State that never closes has none that move: then each pause is
twice as long as the one before, and keeping costs less and less. A unit in which state stands
behind state copies it always: results of the middle of input are partial.

What is kept takes memory that passes would use again, still in the processor's cache. So markers
are looked at whenever twice as much is kept as was needed the last time.

Each operator takes part in that from its own markers on, or those of an operator behind it: a path
whose state goes back to little is not run again for one whose state goes back to much, and one
without state is not run again at all.

A pass may be forgotten when all that had come by its end is older than the markers: what is held
in SUnion counts as if it had been run, so a little more is kept than has to be.

Operators on paths that the failure did not touch stay where they are (reach.py), and take no part.

Departure from [DPC]: such an operator goes back, too, if it feeds one that does. What it gave would
have to be kept otherwise, row by row, in an order that missing rows change. And all go back before
a correction in part: its end is the next cut, and who stays would be ahead of that.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from holdfast.core.operators.base import Rows

LOOK_AT: Final = 1 << 16
"""No look at the markers for fewer tuples, unless the bound is lower."""
_PAUSE_LEAST: Final = 8
"""The first pause lasts for this part of the bound."""
_PAUSE_MOST: Final = 16
"""No pause lasts for more than so many bounds."""


class _Pass(NamedTuple):
    """What a pass has taken; `come_before`: per stream, all before this id had come by then."""

    ports: Sequence[Rows | None]
    low: np.ndarray
    boundary_us: int
    tuples: int
    come_before: tuple[int, ...]


class Replayed(Protocol):
    """Operators that are run again: an `OperatorNetwork`."""

    def process(
        self,
        ports: Sequence[Rows | None],
        low: np.ndarray,
        boundary_us: int,
        *,
        is_silent: bool,
        taking_part: Sequence[bool] | None,
    ) -> object:
        """Run one pass."""
        ...


class UndoHistory:
    """The stable passes of one node since its stream markers. Volatile: all fields."""

    def __init__(self, tuples_max: int) -> None:
        """Nothing has been run.

        Args:
            tuples_max: How many tuples to keep; if that is too few, nothing is kept for a while.
        """
        self._tuples_max = tuples_max
        self._passes: deque[_Pass] = deque()
        self.tuples = 0
        """How many tuples it keeps."""
        self._lost_before: tuple[int, ...] | None = None  # what passes that are not kept had taken
        self._look_at = self._next_look()
        self._passed_over = 0  # tuples still to come that are not kept
        self._pause_min = max(1, tuples_max // _PAUSE_LEAST)
        self._pause = self._pause_min  # the next time that too much would have to be kept

    def ran(
        self,
        ports: Sequence[Rows | None],
        low: np.ndarray,
        boundary_us: int,
        tuples: int,
        come_before: tuple[int, ...],
    ) -> None:
        """A pass has been run as stable; args as of `OperatorNetwork.process`.

        Args:
            tuples: How many rows it has taken.
            come_before: Per stream, all before this id had come.
        """
        if self._passed_over > 0:
            self._passed_over -= tuples
            self._lost_before = come_before
            return
        self._passes.append(_Pass(ports, low, boundary_us, tuples, come_before))
        self.tuples += tuples

    @property
    def is_to_be_trimmed(self) -> bool:
        """Whether so much has come that it is worth while to look for the markers."""
        return self.tuples > self._look_at

    def trim(self, markers: np.ndarray) -> None:
        """Forget what no state goes back to; all, if that leaves more than the bound.

        Args:
            markers: int64 per stream, the oldest id that the state goes back to, or `NO_ID`.
        """
        needed = markers.tolist()
        while self._passes and _is_before(self._passes[0].come_before, needed):
            self.tuples -= self._passes.popleft().tuples
            self._pause = self._pause_min
        if self.tuples > self._tuples_max:
            self._lost_before = self._passes[-1].come_before
            self._passes.clear()
            self.tuples = 0
            self._passed_over = self._pause
            self._pause = min(2 * self._pause, self._tuples_max * _PAUSE_MOST)
        self._look_at = self._next_look()

    def _next_look(self) -> int:
        return min(max(2 * self.tuples, LOOK_AT), self._tuples_max)

    def reaches(self, markers: np.ndarray) -> bool:
        """Whether the state at the present cut can be made again; args as of `trim`."""
        if self._lost_before is None:
            return True
        return _is_before(self._lost_before, markers.tolist())

    def replay(self, network: Replayed, markers: np.ndarray) -> int:
        """Run it in silence over empty operators; how many tuples that was, of any path.

        Args:
            network: Of the operators.
            markers: int64 (operators, streams), from where on each takes part, as at the cut.
        """
        needed = markers.tolist()
        tuples = 0
        for kept in self._passes:
            taking_part = [not _is_before(kept.come_before, each) for each in needed]
            if any(taking_part):
                tuples += kept.tuples
            network.process(
                kept.ports, kept.low, kept.boundary_us, is_silent=True, taking_part=taking_part
            )
        return tuples


def _is_before(come_before: tuple[int, ...], needed: list[int]) -> bool:
    return all(before <= first for before, first in zip(come_before, needed, strict=True))
