"""What the primary and the secondary of an instance tell each other. [HA §4.2]

The secondary subscribes to the instance's replica stream; the primary then tells it every M what
receivers have and need no more, and repeats it with every keep-alive even if nothing has changed.
Like all frames these name both incarnations, so that a former primary has no say.

Invariants: the replicas of an instance are two; only an active secondary that is there is told by
this link; unchanged positions are kept back once at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import SendPositions, SendSubscribe
from holdfast.core.haunit.plan import Standby
from holdfast.core.model.ids import NOBODY, Incarnation, NodeId

if TYPE_CHECKING:
    from holdfast.core.haunit.events import (
        DeltaAckReceived,
        PeerIncarnationLearned,
        PositionsReceived,
        SubscribeReceived,
    )
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect

_REPEATED_EVERY = 2
"""Unchanged positions are told at every so manyth occasion."""


class ReplicaLink:
    """One replica's end of the link to the other one. Volatile: all fields."""

    def __init__(self, plan: NodePlan) -> None:
        """Nothing is known of the other replica yet."""
        self._plan = plan
        self._primary = NOBODY  # as the secondary knows it
        self._secondary = NOBODY  # as the primary knows it
        self._is_subscribed = False
        self._positions_told: tuple[tuple[int, int], ...] = ()
        self._untold = 0  # occasions since positions were last told
        self._heard_ms = 0
        self.refused_frames = 0

    def learn(self, learned: PeerIncarnationLearned) -> bool:
        """The coordinator says who the replicas are; whether the secondary is another one."""
        self._primary = learned.incarnation
        if learned.secondary == self._secondary:
            return False
        self._secondary = learned.secondary
        self._is_subscribed = False
        return True

    # -- at the primary -----------------------------------------------------------------------

    def is_from_secondary(
        self, got: SubscribeReceived | DeltaAckReceived, own: Incarnation
    ) -> bool:
        """Whether it is the secondary that speaks, to this node, whose incarnation is `own`."""
        if got.receiver == own == self._primary and got.sender == self._secondary:
            return True
        self.refused_frames += 1
        return False

    def subscribed(self) -> None:
        """The secondary wants to be told; a passive one is told with its deltas."""
        self._is_subscribed = self._plan.standby is Standby.ACTIVE
        self._positions_told = ()

    def tell(
        self,
        needed_from: dict[str, int],
        of_outputs: Callable[[], tuple[tuple[int, int], ...]],
    ) -> list[Effect]:
        """Tell the secondary how far this node is, if there is one and that is news to it.

        Args:
            needed_from: Per input stream the level-1 position; told where replicas diverge.
            of_outputs: Per output stream what receivers have and need no more; else told.
        """
        if not self._is_subscribed:
            return []
        positions = (
            tuple((needed, needed) for needed in needed_from.values())
            if self._plan.diverges
            else of_outputs()
        )
        self._untold += 1
        if positions == self._positions_told and self._untold < _REPEATED_EVERY:
            return []
        self._positions_told, self._untold = positions, 0
        return [SendPositions(self._plan.replica_stream, self._secondary, positions)]

    # -- at the secondary ---------------------------------------------------------------------

    def subscribe(self, now_ms: int) -> list[Effect]:
        """Ask the primary to tell."""
        self._heard_ms = now_ms
        if self._primary:
            return [
                SendSubscribe(self._plan.replica_stream, self._primary, 0, 0, 0, is_secondary=True)
            ]
        return []

    def subscribe_if_silent(self, now_ms: int) -> list[Effect]:
        """Ask again when nothing has been heard for long."""
        if now_ms - self._heard_ms > self._plan.limits.resubscribe_ms:
            return self.subscribe(now_ms)
        return []

    def is_told(self, got: PositionsReceived, now_ms: int, *, is_meant: bool) -> bool:
        """Whether it is the primary that says what this secondary has to know.

        Args:
            got: The frame.
            now_ms: The time.
            is_meant: Whether this is a secondary, of the incarnation that the frame is for.
        """
        told = self._plan.inputs if self._plan.diverges else self._plan.output_streams()
        is_whole = is_meant and len(got.positions) == len(told)
        if is_whole and self.heard(got.sender, now_ms):
            return True
        self.refused_frames += 1
        return False

    def heard(self, sender: Incarnation, now_ms: int) -> bool:
        """Whether it is the primary that speaks."""
        self._heard_ms = now_ms
        return sender == self._primary

    # -- looking ----------------------------------------------------------------------------

    def other(self, *, is_secondary: bool) -> Incarnation:
        """The incarnation of the secondary, or of the primary, as far as it is known."""
        return self._secondary if is_secondary else self._primary

    def known_primary(self) -> dict[NodeId, Incarnation]:
        """The primary, if it is known."""
        return {self._plan.node: self._primary} if self._primary else {}

    def known_secondary(self) -> dict[NodeId, Incarnation]:
        """The secondary, if there is one."""
        return {self._plan.node: self._secondary} if self._secondary else {}

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when nobody, or the wrong one, is told."""
        plan = self._plan
        if self._secondary == self._primary != NOBODY:
            raise InvariantViolation(f"{plan.node} is its own secondary, {self._secondary}")
        if self._is_subscribed and self._secondary == NOBODY:
            raise InvariantViolation(f"nobody is subscribed to {plan.replica_stream}")
        if self._is_subscribed and plan.standby is not Standby.ACTIVE:
            raise InvariantViolation(f"the secondary of {plan.node} is told with its deltas")
        if not 0 <= self._untold < _REPEATED_EVERY:
            raise InvariantViolation(
                f"{plan.node} has kept its positions back {self._untold} times"
            )
