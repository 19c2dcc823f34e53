"""Where the chunks of writers go when Peace does not decide. [SGuard §5]

`LeastLoaded` understands Peace's stimuli and answers with Peace's effects, so that the chunk master
owns either and asks both in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.peace.messages import (
    ChunkPlacement,
    GrantWrite,
    RefuseWrite,
    ServerJoined,
    ServerLost,
    WriteRequested,
)
from holdfast.core.peace.network_model import ServerName

if TYPE_CHECKING:
    from holdfast.core.machine import Effect, Stimulus


@dataclass(frozen=True, slots=True)
class Candidate:
    """A live data node, as one who may hold a chunk.

    Attributes:
        node: Its name.
        host: Where it runs.
        load: How many chunks it holds or is to hold.
    """

    node: str
    host: str
    load: int


def least_loaded(
    candidates: Iterable[Candidate], copies: int, hosts: Iterable[str] = ()
) -> tuple[str, ...]:
    """Up to `copies` distinct data nodes: on hosts not used yet if possible, then by load and name.

    Cost: O(candidates × copies).
    """
    left = list(candidates)
    used = list(hosts)
    chosen: list[str] = []
    while left and len(chosen) < copies:
        best = min(left, key=lambda c: (used.count(c.host), c.load, c.node))
        left.remove(best)
        used.append(best.host)
        chosen.append(best.node)
    return tuple(chosen)


class LeastLoaded:
    """The machine that places at once, on the data nodes with the fewest chunks. Volatile."""

    def __init__(self, candidate: Callable[[ServerName], Candidate]) -> None:
        """Begin without data nodes; `candidate` says what is known of one."""
        self._candidate = candidate
        self._servers: dict[ServerName, None] = {}

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one of Peace's stimuli."""
        del now_ms
        if isinstance(stimulus, WriteRequested):
            return [self._answer(stimulus)]
        if isinstance(stimulus, ServerJoined):
            self._servers[stimulus.server] = None
        elif isinstance(stimulus, ServerLost):
            self._servers.pop(stimulus.server, None)
        return []

    def _answer(self, asked: WriteRequested) -> Effect:
        chosen = least_loaded(map(self._candidate, self._servers), asked.copies)
        if len(chosen) < asked.copies:
            return RefuseWrite(asked.request_id)
        chain = tuple(ServerName(name) for name in chosen)
        return GrantWrite(
            asked.request_id, tuple(ChunkPlacement(n, chain) for n in range(asked.chunks))
        )

    def check_invariants(self) -> None:
        """There is nothing to violate."""

    def statistics(self) -> object:
        """How many data nodes there are."""
        return len(self._servers)
