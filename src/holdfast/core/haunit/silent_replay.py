"""The replay by which a node without a copy of its state rebuilds it. [HA §5.2.2]

Theory of operation. A node that starts at a restart point processes again what its state goes back
to. What it puts out meanwhile, its predecessor has put out; so it is silent up to the *cut* that
the point names, and numbers its outputs from there as the point says. What it promises it says:
who waits for that may be who keeps from it what lies before the cut.

    SILENT --the input order has reached the cut--> OVER
    SILENT --a producer's stream is another one, so that the cut will not come--> OVER
    OVER from the beginning: there is nothing to replay, or what comes twice does no harm

    in either state: operators that stand behind state are left out up to cuts of their own

Until it is over, and all operators take part, no restart point is noted, no delta is sent, and no
end is reported.

The input order goes no further than the next cut until that is over, so that nothing is put out
that is discarded and would have counted, and an operator is given nothing that is partial
(taking_part.py). A cut between logged passes needs no stop: the log leads.
"""

from __future__ import annotations

import enum
from collections import deque
from itertools import groupby
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.haunit.events import ReportCaughtUp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.haunit.input_order import InputOrder, Progress
    from holdfast.core.machine import Effect
    from holdfast.core.recovery.restart_point import RestartPoint


class ReplayState(enum.Enum):
    """See the module."""

    SILENT = "silent"
    OVER = "over"


class SilentReplay:
    """One incarnation's. Volatile: all fields."""

    def __init__(
        self,
        cut: RestartPoint | None,
        order: InputOrder,
        taking_part: Mapping[str, RestartPoint] | None = None,
    ) -> None:
        """Be silent up to a cut.

        Args:
            cut: None: there is nothing to replay in silence.
            order: Of the input.
            taking_part: Per operator that is left out at first the cut where that is over.
        """
        self._cut = cut
        self._order = order
        self._joining = deque(_by_cut(taking_part or {}))
        self.state = ReplayState.OVER if cut is None else ReplayState.SILENT
        self.tuples = 0
        """Tuples processed in silence."""
        if not self.is_over:
            order.stop_at(self._next)

    @property
    def _next(self) -> RestartPoint:
        return self._joining[0][0] if self._joining else self.cut

    @property
    def is_silent(self) -> bool:
        """Whether what is put out is to be discarded."""
        return self.state is ReplayState.SILENT

    @property
    def cut(self) -> RestartPoint:
        """Up to where it is silent. Raises `LocalProtocolError` when there is nothing to replay."""
        if self._cut is None:
            raise LocalProtocolError("a node that replays nothing has no cut to replay up to")
        return self._cut

    def has_come(self, progress: Progress) -> bool:
        """Whether it is silent, and all before the cut has been processed."""
        is_alone = self.is_silent and not self._joining
        return is_alone and self._order.has_reached(self.cut, progress)

    @property
    def left_out(self) -> list[str]:
        """The operators that do not take part yet."""
        return [name for _, names in self._joining for name in names]

    def joining(self, progress: Progress) -> RestartPoint | None:
        """The cut that has come, and where operators begin to take part (`join`)."""
        if not self._joining:
            return None
        cut = self._joining[0][0]
        return cut if self._order.has_reached(cut, progress) else None

    def join(self) -> None:
        """Those of the next cut take part from here on."""
        self._joining.popleft()
        if self.is_over:
            self._order.go_on()
        else:
            self._order.stop_at(self._next)

    @property
    def is_over(self) -> bool:
        """Whether what is put out counts, and all operators take part."""
        return not self.is_silent and not self._joining

    def end(self) -> list[Effect]:
        """From here on what is put out counts, and all operators take part."""
        if self.is_over:
            raise LocalProtocolError("a replay ends twice")
        was_silent = self.is_silent
        self.state = ReplayState.OVER
        self._joining.clear()
        self._order.go_on()
        return [ReportCaughtUp(self.tuples)] if was_silent else []

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the order stops at another cut, or for nobody."""
        stop = self._order.stop
        if stop is not None and (self.is_over or stop is not self._next):
            raise InvariantViolation(f"a replay that is {self.state.value} stops the input")


def _by_cut(taking_part: Mapping[str, RestartPoint]) -> list[tuple[RestartPoint, list[str]]]:
    """Cuts in the order in which they come, each with the operators that begin there."""

    def position(name: str) -> tuple[int, int, int]:
        cut = taking_part[name]
        return cut.boundary_us, sum(cut.next_ids.values()), sum(cut.processed_before.values())

    names = sorted(taking_part, key=position)
    found = [list(each) for _, each in groupby(names, key=position)]
    return [(taking_part[each[0]], each) for each in found]
