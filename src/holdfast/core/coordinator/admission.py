"""Who may write a checkpoint now, when the store is to take only so many at once. [SGuard §5]

Peace without placement, for stores that place data themselves: every node is a server, every
checkpoint one request, and the store takes `writers_max` of them in a timestep. A node asks before
it prepares, so that a checkpoint which has to wait freezes nothing and is as large as the state is
when its turn comes.

Departure from the paper: there a refused checkpoint has been prepared, and is cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.core.machine import Effect, SetTimer, TimerFired
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.peace.messages import (
    ChunkWritten,
    GrantWrite,
    PeaceSettings,
    WriteRequested,
    WriteRequestId,
    WriteWithdrawn,
)
from holdfast.core.peace.network_model import NetworkModel, ServerName
from holdfast.core.peace.peace import Peace


@dataclass(frozen=True, slots=True)
class AdmitWrite(Effect):
    """Tell a node that it may write a checkpoint."""

    node: NodeId
    incarnation: Incarnation


class _NoChance:
    """There is one way into the store: nothing is left to chance."""

    def shuffle(self, elements: list[int], /) -> None:
        """Leave them as they are."""


class Admission:
    """Grants places one after another. Volatile: all fields; nodes ask again."""

    def __init__(self, writers_max: int, nodes: Iterable[NodeId]) -> None:
        """At most so many checkpoints of these nodes begin in a timestep."""
        self._peace = Peace(
            NetworkModel.of_racks({"nodes": list(nodes)}, store_capacity=writers_max),
            settings=PeaceSettings(),
            random=_NoChance(),
        )
        self._asked: dict[WriteRequestId, tuple[NodeId, Incarnation]] = {}
        self._admitted: dict[WriteRequestId, None] = {}

    def wanted(self, node: NodeId, incarnation: Incarnation, now_ms: int) -> list[Effect]:
        """A node has something to write; said again, it is answered again."""
        request = _request(node, incarnation)
        self._asked[request] = (node, incarnation)
        asked = WriteRequested(request, ServerName(node), 0, 1)
        return self._translated(self._peace.step(asked, now_ms))

    def ended(self, node: NodeId, incarnation: Incarnation, now_ms: int) -> list[Effect]:
        """It has written, or failed, or had nothing to write after all."""
        request = _request(node, incarnation)
        if request not in self._asked:
            return []
        return self._translated(self._leave(request, now_ms))

    def gone(self, node: NodeId, now_ms: int) -> list[Effect]:
        """The node has been taken for lost: its place is free."""
        effects: list[Effect] = []
        for request in [r for r, (asker, _) in self._asked.items() if asker == node]:
            effects += self._leave(request, now_ms)
        return self._translated(effects)

    def _leave(self, request: WriteRequestId, now_ms: int) -> list[Effect]:
        del self._asked[request]
        if request in self._admitted:
            del self._admitted[request]
            return self._peace.step(ChunkWritten(request, 0), now_ms)
        return self._peace.step(WriteWithdrawn(request), now_ms)

    def timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        """A timestep has taken too long: whoever is silent loses its place."""
        return self._translated(self._peace.step(timer, now_ms))

    def _translated(self, effects: list[Effect]) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            if isinstance(effect, SetTimer):
                out.append(effect)
            elif isinstance(effect, GrantWrite) and effect.request_id in self._asked:
                self._admitted[effect.request_id] = None
                out.append(AdmitWrite(*self._asked[effect.request_id]))
        return out

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when Peace's own state makes no sense."""
        self._peace.check_invariants()


def _request(node: NodeId, incarnation: Incarnation) -> WriteRequestId:
    return WriteRequestId(f"{node}/{incarnation}")
