"""What a simulated process says to the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.core.coordinator import events as c
from holdfast.core.haunit import events
from holdfast.core.haunit.plan import Standby
from holdfast.core.haunit.restoration import ReportPointDamaged

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import Incarnation, NodeId
    from holdfast.core.wire.node_words import CoordinatorStimulus
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_KEEP_ALIVE_US = 100_000

WORDS: Final[dict[type[Effect], Callable[[NodeId, Incarnation, Any], CoordinatorStimulus]]] = {
    events.StoreRestartPoint: lambda node, own, e: c.RestartPointReceived(node, own, e.point),
    events.ReportHalted: lambda node, own, e: c.NodeHalted(
        node, own, e.attempt, e.went_on, e.place
    ),
    events.WantRound: lambda node, own, _: c.RoundWanted(node, own),
    events.ReportRoundFailed: lambda node, own, e: c.RoundFailed(node, own, e.round),
    ReportPointDamaged: lambda node, own, e: c.PointDamaged(node, own, e.sequence, e.reason),
    events.ReportCaughtUp: lambda node, own, e: c.NodeCaughtUp(node, own, e.replayed_tuples),
    events.ReportPromoted: lambda node, own, _: c.NodePromoted(node, own),
    events.ReportFirstOutput: lambda node, own, _: c.FirstOutput(node, own),
    events.ReportFinished: lambda node, own, _: c.NodeFinished(node, own),
    events.AskForTurn: lambda node, own, e: c.TurnWanted(node, own, e.asking),
    events.LeaveTurn: lambda node, own, _: c.TurnLeft(node, own),
    events.AskToWrite: lambda node, own, _: c.WriteWanted(node, own),
    events.LeaveWriters: lambda node, own, _: c.WriteEnded(node, own),
}
"""By effect, the word that it is."""


class ProcessReports:
    """Speaks for one process, as the incarnation that it is at the time."""

    def __init__(self, process: Process, world: World) -> None:
        """Nothing has been said."""
        self._process = process
        self._world = world

    def report(self, effect: Effect) -> None:
        """Say what an effect asks to be said."""
        process = self._process
        self.say(WORDS[type(effect)](process.node, process.incarnation, effect))

    def say(self, word: CoordinatorStimulus) -> None:
        """Send a word on its way."""
        self._process.life.receive(self._process, word, self._process.incarnation)

    def promoted(self, effect: events.ReportPromoted) -> None:
        """It is the primary; whether a passive one has used the image, is counted."""
        if self._process.plan.standby is Standby.PASSIVE:
            is_used = self._process.core.began_at is not None
            self._world.count("image taken over" if is_used else "image of no use")
        self.report(effect)

    def keep_alive(self) -> None:
        """Say now and again that it lives, and whom it knows."""
        process = self._process
        if process.is_dead or process.life.is_over:
            return
        if self._world.scheduler.now_us >= process.paused_until_us:
            known = process.core.known_peers(), process.core.known_secondaries()
            self.say(
                c.KeepAliveReceived(
                    process.node, process.incarnation, *known, process.core.has_joined
                )
            )
        self._world.scheduler.after(_KEEP_ALIVE_US, self.keep_alive)
