"""The replay by which a node without a copy of its state rebuilds it. [HA §5.2.2]

Theory of operation. A node that starts at a restart point processes again what its state goes back
to. What it puts out meanwhile, its predecessor has put out; so it is silent up to the *cut* that
the point names, and numbers its outputs from there as the point says.

    SILENT --the input order has reached the cut--> OVER
    SILENT --a producer's stream is another one, so that the cut will not come--> OVER
    OVER from the beginning: there is nothing to replay, or what comes twice does no harm

Until it is over no restart point is noted, no delta is sent, and no end is reported.

The input order goes no further than the cut until the replay is over, so that nothing is put out
that is discarded and would have counted. A cut between logged passes needs no stop: the log leads.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.haunit.events import ReportCaughtUp

if TYPE_CHECKING:
    from holdfast.core.haunit.input_order import InputOrder, Progress
    from holdfast.core.machine import Effect
    from holdfast.core.recovery.restart_point import RestartPoint


class ReplayState(enum.Enum):
    """See the module."""

    SILENT = "silent"
    OVER = "over"


class SilentReplay:
    """One incarnation's. Volatile: all fields."""

    def __init__(self, cut: RestartPoint | None, order: InputOrder) -> None:
        """Be silent up to a cut; None: there is nothing to replay."""
        self._cut = cut
        self._order = order
        self.state = ReplayState.OVER if cut is None else ReplayState.SILENT
        self.tuples = 0
        """Tuples processed in silence."""
        if cut is not None:
            order.stop_at(cut)

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
        return self.is_silent and self._order.has_reached(self.cut, progress)

    def end(self) -> list[Effect]:
        """From here on what is put out counts."""
        if not self.is_silent:
            raise LocalProtocolError("a silent replay ends twice")
        self.state = ReplayState.OVER
        self._order.go_on()
        return [ReportCaughtUp(self.tuples)]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the order stops at another cut, or for nobody."""
        if self._order.stop is not None and (
            not self.is_silent or self._order.stop is not self._cut
        ):
            raise InvariantViolation(f"a replay that is {self.state.value} stops the input")
