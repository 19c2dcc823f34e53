"""Who counts.

I-INC    incarnations of a node only grow, also over the driver's lives. [HA §4]
I-FENCE  nothing of an incarnation that the receiver knows to be replaced has an effect.
I-COORD  a node begins an incarnation only after the journal holds it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from holdfast.core.haunit import events
from holdfast.core.model.ids import NodeId
from holdfast.sim.checkers.base import Checker, Entries, Violation, incarnations_in

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import Assignment
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.wire.messages import NodeMessage
    from holdfast.sim.process import Process

_FRAMES = (
    events.BatchReceived,
    events.NotesReceived,
    events.BoundaryReceived,
    events.SubscribeReceived,
    events.AckReceived,
    events.PositionsReceived,
)


class Fencing(Checker):
    """See the module."""

    looks_at = MappingProxyType(
        {
            "stepping": (*_FRAMES,),
            "stepped": (*_FRAMES,),
        }
    )

    def __init__(self) -> None:
        """Nobody has an incarnation yet."""
        self._begun: set[tuple[NodeId, int]] = set()
        self._journalled: dict[NodeId, int] = {}
        self._stale: tuple[NodeMessage, int] | None = None

    def journalled(self, entries: Entries) -> None:
        """Note the incarnations that are durable."""
        for node, incarnation in incarnations_in(entries):
            newest = self._journalled.get(node, 0)
            if incarnation <= newest:
                raise Violation("I-INC", f"{node} is given {incarnation} after {newest}")
            self._journalled[node] = incarnation

    def recovered(self, entries: Entries) -> None:
        """What was durable is still there."""
        found: dict[NodeId, int] = {}
        for node, incarnation in incarnations_in(entries):
            found[node] = max(incarnation, found.get(node, 0))
        for node, incarnation in self._journalled.items():
            if found.get(node, 0) < incarnation:
                raise Violation("I-COORD", f"the journal has lost {node}'s {incarnation}")
        self._journalled |= found

    def assigned(self, process: Process, assignment: Assignment) -> None:
        """I-INC and I-COORD. The word may be late, and the node a zombie from the start."""
        node, incarnation = process.node, assignment.incarnation
        if (node, incarnation) in self._begun:
            raise Violation("I-INC", f"{node} begins {incarnation} twice")
        self._begun.add((node, incarnation))
        if incarnation > self._journalled.get(node, 0):
            raise Violation("I-COORD", f"{node} begins {incarnation} before it is in the journal")

    def promoted(self, process: Process, incarnation: int) -> None:
        """I-COORD of a secondary that takes over."""
        if incarnation > self._journalled.get(process.node, 0):
            raise Violation("I-COORD", f"{process.node} takes over before it is in the journal")

    def stepping(self, process: Process, stimulus: Stimulus) -> None:
        """Note whether a frame is one that must have no effect."""
        self._stale = None
        machine = process.machine
        if machine is None or not isinstance(stimulus, _FRAMES):
            return
        is_secondary = getattr(stimulus, "is_secondary", False)
        known = machine.peer_incarnation(stimulus.stream, is_secondary=is_secondary) or 0
        if stimulus.receiver != machine.incarnation or stimulus.sender < known:
            self._stale = (stimulus, machine.statistics().refused_frames)

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """I-FENCE: such a frame is counted as refused, and that is all."""
        machine = process.machine
        if self._stale is None or machine is None:
            return
        frame, refused_before = self._stale
        refused = machine.statistics().refused_frames
        if effects or refused != refused_before + 1:
            raise Violation(
                "I-FENCE",
                f"{process.endpoint.name} acts on {type(frame).__name__} of incarnation "
                f"{frame.sender}, meant for {frame.receiver}",
            )
