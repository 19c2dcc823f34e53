"""Which of the nodes that run an instance side by side may correct now. [DPC §3.3]

Theory of operation. A replica that corrects gives nothing new, so at least one of those that serve
does not: all but one have a turn at a time. A replica that is alone, because the others are lost or
still replay what they had processed, has one at once: nobody else would ever correct. Turns are
given in the order in which they were asked for.

A replica says when it is done. Its word can be lost, and so can it be itself; who has a turn, or
wants one, asks again with every keep-alive, and is forgotten when it has not for `SILENT_MS`.

One arbiter, and no vote of the replicas as in the paper: whoever is cut off from the coordinator
stays tentative, until its lease ends and it is replaced. A new life of the coordinator begins
without turns; so do all nodes then.

Invariant: two replicas have a turn at a time only if another one serves, or did when the later one
was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator.events import TurnLeft, TurnWanted
from holdfast.core.machine import Effect

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import Incarnation, NodeId

SILENT_MS: Final = 3_000


@dataclass(frozen=True, slots=True)
class GrantTurn(Effect):
    """Tell a node that it may correct, this once."""

    node: NodeId
    incarnation: Incarnation
    asking: int


@dataclass(slots=True)
class _Asking:
    """A replica that wants a turn, or has one."""

    incarnation: Incarnation
    asking: int
    heard_ms: int
    is_held: bool = False


class Turns:
    """The turns of all instances with replicas. Volatile: all fields; nodes ask again."""

    def __init__(self, plans: Iterable[NodePlan], serves: Callable[[NodeId], bool]) -> None:
        """Nobody wants one.

        Args:
            plans: Of all nodes.
            serves: Whether a node is at work, and has processed again what it had processed.
        """
        self._replicas = {plan.node: plan.replicas for plan in plans if plan.replicas}
        self._serves = serves
        self._asking: dict[NodeId, _Asking] = {}  # in the order in which they asked

    def said(
        self,
        word: TurnWanted | TurnLeft,
        now_ms: int,
        primary: Callable[[NodeId, Incarnation, int], object | None],
    ) -> list[Effect]:
        """What a replica says; nothing, if `primary` does not know it as one that counts."""
        if primary(word.node, word.incarnation, now_ms) is None:
            return []
        if isinstance(word, TurnWanted):
            return self.wanted(word, now_ms)
        return self.left(word.node, word.incarnation)

    def wanted(self, word: TurnWanted, now_ms: int) -> list[Effect]:
        """A replica wants a turn, or wants to keep it; said again, it is answered again.

        The word that it has left the one before may be lost; one that asked for that may be late.
        """
        node, said = word.node, (word.incarnation, word.asking)
        if node not in self._replicas:
            return []
        asking = self._asking.get(node)
        if asking and asking.incarnation == word.incarnation and word.asking < asking.asking:
            return []
        if asking is None or (asking.incarnation, asking.asking) != said:
            self._asking.pop(node, None)
            asking = self._asking[node] = _Asking(*said, now_ms)
        asking.heard_ms = now_ms
        return [GrantTurn(node, *said)] if asking.is_held else self._give(node)

    def left(self, node: NodeId, incarnation: Incarnation) -> list[Effect]:
        """It has corrected, or wants no turn any more."""
        asking = self._asking.get(node)
        return self.gone(node) if asking and asking.incarnation == incarnation else []

    def gone(self, node: NodeId) -> list[Effect]:
        """It is lost, or has not been heard of for long."""
        self._asking.pop(node, None)
        return self._give(node) if node in self._replicas else []

    def check(self, now_ms: int) -> list[Effect]:
        """Forget who is silent."""
        silent = [n for n, asking in self._asking.items() if now_ms - asking.heard_ms > SILENT_MS]
        return [effect for node in silent for effect in self.gone(node)]

    def _give(self, of: NodeId) -> list[Effect]:
        """Give turns to those replicas of an instance that may have one now."""
        replicas, effects = self._replicas[of], list[Effect]()
        for node in [n for n in self._asking if n in replicas]:
            asking = self._asking[node]
            if not asking.is_held and self._may_correct(node, replicas):
                asking.is_held = True
                effects.append(GrantTurn(node, asking.incarnation, asking.asking))
        return effects

    def _may_correct(self, node: NodeId, replicas: tuple[NodeId, ...]) -> bool:
        others = [other for other in replicas if other != node]
        holders = [other for other in others if self.has_turn(other)]
        return not holders or any(self._serves(o) for o in others if o not in holders)

    def has_turn(self, node: NodeId) -> bool:
        """Whether it may correct."""
        asking = self._asking.get(node)
        return asking is not None and asking.is_held
