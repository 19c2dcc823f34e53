"""Peace schedules the writes of checkpoints so that few contend. [SGuard §5, Algorithm 1]

Theory of operation. Nodes ask to write: (writer, copies, chunks). Time is cut into timesteps. At
the beginning of one the network is taken as empty; then, request by request, every chunk gets a
chain of servers, copy by copy: the nearest server that the copy's constraint allows and that the
residual network still reaches, equals by chance. That is done a few times; the draft with the most
chunks is granted. A timestep ends when a share of its chunks is reported written. A request is in
one of three states:

    WAITING --first chunks granted--> BEGUN --last chunks granted--> GRANTED --all written--> (end)

- `WriteRequested`: tried at once on what the current timestep has left. A request that gets nothing
  is refused (the writer cancels and lets its pages be written again) and stays queued. The same id
  asked with another size, before any chunk is written, replaces the former and keeps its place.
- A timestep's order: the requests it continues, then all others by arrival. A request that does not
  fit is passed over, but at most `passed_over_max` younger ones may begin before it; then all
  younger ones stand back until it has begun.
- A portion is all or nothing. The portion of a request is what a trial placed of it on an empty
  network: usually all its chunks. If it is less, the request can never fit in one timestep; it gets
  one portion in each of consecutive timesteps until its last chunk.
- Both promises hold whatever chance does: the first request of an empty timestep falls back on the
  chains of its trial, and the continued ones, which fitted together in the last timestep, fall back
  on their chains of that one.
- `ServerLost`: chunks not yet written whose chain held it are granted again, elsewhere. `FailWrite`
  goes to requests that can never be placed, whose writer is lost, or that went silent.
- `copies=0`: admission without placement, for a store that places data itself. Only what leaves the
  writer and what the store takes is counted, and the chains are empty.

So a request waits at most as many timesteps as the requests before it and `passed_over_max` others
have chunks, whatever comes after it. All state is volatile: after a crash, writers ask again.

Invariants: no edge carries more than its capacity in a timestep; the servers of a chain are
distinct; something is granted in every timestep that begins; done <= awaited.

Departures from the paper:
- Algorithm 1 leaves a request scheduled in part when a later chunk does not fit. Here the residual
  network is rolled back and the request is refused whole, as its checkpoint is cancelled whole.
- Algorithm 1 may pass over a request for ever; here a bound is kept.
- Of equally near servers the one with the most room is taken, where the paper has chance alone
  decide: two chunks share a disk only when they must, and what has to be passed on goes to servers
  that can still send.
- A timestep is drafted several times and the fullest draft kept: what the greedy search still gives
  away, chance may find again. With `drafts_max` 1 there is one draft, as in the paper.
- A constraint that no server of the network could meet is dropped for that copy: a network of one
  rack can store checkpoints.
- A timestep also ends after `timestep_timeout_ms`, so that a writer that died stops nobody.
- As in the paper, a timestep takes the network as empty though some writes of the last one still
  run: the share says how much of that overlap is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.core.errors import InvariantViolation, RemoteProtocolError
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.peace.chunk_placer import Chain, ChunkPlacer
from holdfast.core.peace.messages import (
    ChunkPlacement,
    ChunkWritten,
    FailWrite,
    GrantWrite,
    PeaceSettings,
    PeaceStatistics,
    RefuseWrite,
    ServerJoined,
    ServerLost,
    WriteRequested,
    WriteRequestId,
    WriteWithdrawn,
)
from holdfast.core.peace.network_model import NetworkModel, ServerName
from holdfast.core.peace.residual_network import Chance, NetworkGraph, ResidualNetwork

_TIMER: Final = "timestep"


@dataclass(slots=True)
class _Grant:
    """A chunk granted and not yet reported written."""

    chain: Chain
    is_awaited: bool = True  # whether the current timestep waits for it


@dataclass(slots=True)
class _Request:
    """A request. WAITING: `granted_in` is 0; BEGUN: `to_grant` is not empty; GRANTED: it is."""

    asked: WriteRequested
    to_grant: list[int]  # chunks, ascending
    grants: dict[int, _Grant] = field(default_factory=dict)  # by chunk
    voided: set[int] = field(default_factory=set)  # of `to_grant`: were granted on a lost server
    granted_in: int = 0  # timestep of the newest grant
    last_chains: tuple[Chain, ...] = ()  # of the newest grant, while the graph is the same
    heard_ms: int = 0  # newest grant or report
    passed_over: int = 0  # younger requests that began before it


@dataclass(slots=True)
class _Draft:
    """A schedule for a timestep that may be carried out.

    Its portions are in the order in which they were placed, continued requests first.
    """

    residual: ResidualNetwork
    portions: list[tuple[_Request, tuple[Chain, ...]]] = field(default_factory=list)
    is_repeated: bool = False  # whether the continued requests keep their chains

    def chunks(self) -> int:
        return sum(len(chains) for _, chains in self.portions)


class Peace:
    """The machine of the chunk scheduler. Volatile as a whole."""

    def __init__(self, model: NetworkModel, *, settings: PeaceSettings, random: Chance) -> None:
        """Begin idle over a network. The same stimuli and chance give the same effects."""
        self._settings = settings
        self._random = random
        self._given_model = model  # a server that comes back has its capacities of this one
        self._model = model  # without the servers that are lost
        self._graph = NetworkGraph(model)
        self._residual = ResidualNetwork(self._graph)  # of this timestep; maybe over an older graph
        self._placer = ChunkPlacer(self._graph, settings, random)
        self._requests: dict[WriteRequestId, _Request] = {}  # by arrival
        self._timestep = 0
        self._deadline_ms = 0
        self._awaited = 0  # chunks of this timestep
        self._done = 0  # of them, written
        self._refusals = 0
        self._failures = 0
        self._repeated_timesteps = 0
        self._expired_timesteps = 0
        self._ignored_reports = 0

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus. Raises `RemoteProtocolError` when a writer breaks the protocol."""
        return _HANDLERS[type(stimulus)](self, stimulus, now_ms)

    # -- asking -----------------------------------------------------------------------------

    def _on_write_requested(self, asked: WriteRequested, now_ms: int) -> list[Effect]:
        if asked.copies < 0 or asked.chunks < 1:
            raise RemoteProtocolError(
                f"{asked.request_id} asks for {asked.chunks} chunks and {asked.copies} copies"
            )
        known = self._requests.get(asked.request_id)
        if known is not None:
            if known.asked == asked:
                return self._answered_again(known)
            if len(known.to_grant) + len(known.grants) < known.asked.chunks:
                raise RemoteProtocolError(
                    f"{asked.request_id} asks for another size after writing some of its chunks"
                )
            self._take_back(known)
        elif len(self._requests) >= self._settings.requests_max:
            reason = f"{len(self._requests)} requests are queued; requests_max allows no more"
            return [self._failed(asked.request_id, reason)]
        reason = self._why_impossible(asked)
        if reason:
            self._requests.pop(asked.request_id, None)
            return [self._failed(asked.request_id, reason), *self._advance(now_ms)]
        request = _Request(asked, list(range(asked.chunks)))
        if known is not None:
            request.passed_over = known.passed_over
        self._requests[asked.request_id] = request  # A known id keeps its place in the dict.
        effects = [*self._join_timestep(request, now_ms), *self._advance(now_ms)]
        if request.granted_in == 0:
            self._refusals += 1
            effects.append(RefuseWrite(asked.request_id))
        return effects

    def _answered_again(self, request: _Request) -> list[Effect]:
        """The request came again, say after a reconnect: so may the answer have been lost."""
        if request.granted_in == 0:
            return [RefuseWrite(request.asked.request_id)]
        if not request.grants:
            return []
        placements = (ChunkPlacement(n, g.chain.servers) for n, g in request.grants.items())
        return [GrantWrite(request.asked.request_id, tuple(placements))]

    def _take_back(self, request: _Request) -> None:
        """Nothing of the request is written, and nothing will be as it was granted."""
        for grant in request.grants.values():
            if grant.is_awaited:
                self._awaited -= 1
                self._residual.give_back(grant.chain.edges)

    def _why_impossible(self, asked: WriteRequested) -> str:
        """Why a request can never be granted in the network as it is; empty if it can."""
        settings = self._settings
        if asked.chunks > settings.chunks_max:
            return f"{asked.chunks} chunks are more than chunks_max allows, {settings.chunks_max}"
        if asked.copies > settings.copies_max:
            return f"{asked.copies} copies are more than copies_max allows, {settings.copies_max}"
        if asked.writer not in self._graph.servers:
            return f"the writer's server {asked.writer} is not in the network"
        if asked.copies == 0 and self._model.store_capacity == 0:
            return "the network has no store"
        candidates = self._placer.candidates(self._graph, asked.writer, ())
        if asked.copies > len(candidates):
            return f"{asked.copies} copies need as many servers; there are {len(candidates)}"
        if not self._placer.trial(asked.writer, asked.copies):
            return f"even the empty network has no way from {asked.writer} to {asked.copies} copies"
        return ""

    def _failed(self, request_id: WriteRequestId, reason: str) -> FailWrite:
        self._failures += 1
        return FailWrite(request_id, reason)

    def _join_timestep(self, request: _Request, now_ms: int) -> list[Effect]:
        """Grant a request what the current timestep has left, if nobody older stands before it."""
        if self._is_over() or request.asked.writer not in self._residual.graph.servers:
            return []
        bound = self._settings.passed_over_max
        if any(older.passed_over >= bound for older in self._waiting_before(request)):
            return []
        chains = self._fit(self._residual, request)
        if chains is None:
            return []
        self._count_passed_over(request)
        return [self._grant(request, chains, now_ms)]

    # -- writing ----------------------------------------------------------------------------

    def _on_chunk_written(self, written: ChunkWritten, now_ms: int) -> list[Effect]:
        request = self._requests.get(written.request_id)
        if request is None:
            self._ignored_reports += 1  # Withdrawn or failed in the meantime, or all is written.
            return []
        chunk = written.chunk
        if not 0 <= chunk < request.asked.chunks:
            raise RemoteProtocolError(f"{written.request_id} has no chunk {chunk}")
        if chunk in request.grants:
            self._done += request.grants.pop(chunk).is_awaited
        elif chunk in request.voided:  # It was complete before a server of its chain was lost.
            request.voided.remove(chunk)
            request.to_grant.remove(chunk)
        elif chunk in request.to_grant:
            raise RemoteProtocolError(f"chunk {chunk} of {written.request_id} was not granted")
        else:
            self._ignored_reports += 1  # Reported before.
        request.heard_ms = now_ms
        if not request.grants and not request.to_grant:
            del self._requests[written.request_id]
        return self._advance(now_ms)

    def _on_write_withdrawn(self, withdrawn: WriteWithdrawn, now_ms: int) -> list[Effect]:
        request = self._requests.get(withdrawn.request_id)
        if request is None:
            self._ignored_reports += 1
            return []
        self._remove(request)
        return self._advance(now_ms)

    def _remove(self, request: _Request) -> None:
        """Forget a request. What it may be writing still loads this timestep's edges."""
        self._awaited -= sum(grant.is_awaited for grant in request.grants.values())
        del self._requests[request.asked.request_id]

    def _on_timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        if timer.name != _TIMER or now_ms < self._deadline_ms:
            return []
        if not self._is_over():
            self._expired_timesteps += 1
            self._await_nothing()
        effects = self._advance(now_ms)
        if self._is_over() and any(request.grants for request in self._requests.values()):
            effects.append(self._set_timer(now_ms))
        return effects

    # -- the network changes ----------------------------------------------------------------

    def _on_server_lost(self, lost: ServerLost, now_ms: int) -> list[Effect]:
        if lost.server not in self._graph.servers:
            self._ignored_reports += 1
            return []
        self._change_network(self._model.without_server(lost.server))
        self._residual.close(lost.server)
        for request in self._requests.values():
            self._void_grants(request, lost.server)
        return [*self._fail_impossible(), *self._advance(now_ms)]

    def _void_grants(self, request: _Request, server: ServerName) -> None:
        """Chunks that a lost server was to hold are granted again in another timestep."""
        for chunk, grant in list(request.grants.items()):
            if server in grant.chain.servers:
                del request.grants[chunk]
                self._awaited -= grant.is_awaited
                request.voided.add(chunk)
                request.to_grant.append(chunk)
        request.to_grant.sort()

    def _on_server_joined(self, joined: ServerJoined, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        present = self._graph.servers.get(joined.server)
        if present is not None:
            if present.rack == joined.rack:
                return []
            effects = self._on_server_lost(ServerLost(joined.server), now_ms)
        server = self._given_model.server(joined.server)
        if server is None or server.rack != joined.rack:
            server = self._model.joining(joined.server, joined.rack)
        self._change_network(self._model.with_server(server))
        return [*effects, *self._fail_impossible(), *self._advance(now_ms)]

    def _change_network(self, model: NetworkModel) -> None:
        """Chains found so far say nothing about the next timesteps."""
        self._model = model
        self._graph = NetworkGraph(model)
        self._placer = ChunkPlacer(self._graph, self._settings, self._random)
        for request in self._requests.values():
            request.last_chains = ()

    def _fail_impossible(self) -> list[Effect]:
        effects: list[Effect] = []
        for request in list(self._requests.values()):
            reason = self._why_impossible(request.asked)
            if reason:
                self._remove(request)
                effects.append(self._failed(request.asked.request_id, reason))
        return effects

    # -- timesteps --------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether the timestep has ended; so it has when nothing is scheduled at all."""
        return self._done * 100 >= self._awaited * self._settings.timestep_done_percent

    def _advance(self, now_ms: int) -> list[Effect]:
        """Begin the next timestep if this one is over and somebody waits."""
        if not self._is_over():
            return []
        effects = self._drop_silent(now_ms)
        if any(request.to_grant for request in self._requests.values()):
            effects += self._begin_timestep(now_ms)
        return effects

    def _drop_silent(self, now_ms: int) -> list[Effect]:
        timeout_ms = self._settings.timestep_timeout_ms
        effects: list[Effect] = []
        for request in list(self._requests.values()):
            if request.grants and request.heard_ms + timeout_ms <= now_ms:
                self._remove(request)
                reason = f"no chunk was reported written for {timeout_ms} ms"
                effects.append(self._failed(request.asked.request_id, reason))
        return effects

    def _begin_timestep(self, now_ms: int) -> list[Effect]:
        """Schedule a timestep: the requests it continues, then the others. [Algorithm 1]

        Cost per draft: O(chunks x copies x edges), for those granted and one more per request.
        """
        self._await_nothing()
        self._timestep += 1
        self._awaited = self._done = 0
        continued = [
            request
            for request in self._requests.values()
            if request.to_grant and request.last_chains and request.granted_in == self._timestep - 1
        ]
        draft = self._best_draft(continued)
        self._residual = draft.residual
        self._repeated_timesteps += draft.is_repeated
        effects: list[Effect] = []
        for place, (request, chains) in enumerate(draft.portions):
            if place >= len(continued):
                self._count_passed_over(request)
            effects.append(self._grant(request, chains, now_ms))
        return [*effects, self._set_timer(now_ms)]

    def _best_draft(self, continued: list[_Request]) -> _Draft:
        """The first of the drafts with the most chunks; one is enough if it holds all."""
        wanted = [request for request in self._requests.values() if request.to_grant]
        best = self._draft(continued, wanted)
        for _ in range(1, self._settings.drafts_max):
            if len(best.portions) == len(wanted):
                break
            draft = self._draft(continued, wanted)
            if draft.chunks() > best.chunks():
                best = draft
        return best

    def _draft(self, continued: list[_Request], wanted: list[_Request]) -> _Draft:
        """Make a schedule and change nothing else."""
        draft = self._continuation(continued)
        kept = dict.fromkeys(request.asked.request_id for request in continued)
        may_begin = len(wanted)  # so many more, before somebody was passed over too often
        for request in wanted:
            if request.asked.request_id in kept:
                continue
            if may_begin == 0:
                break
            chains = self._fit(draft.residual, request)
            if chains is None and draft.residual.carried == 0:
                chains = self._trial_of(request)[: self._portion(request)]
                _take_all(draft.residual, chains)
            if chains is None:
                may_begin = min(may_begin, self._settings.passed_over_max - request.passed_over)
            else:
                draft.portions.append((request, chains))
                may_begin -= 1
        return draft

    def _continuation(self, continued: list[_Request]) -> _Draft:
        """A draft with the next portions of all requests that had one in the last timestep."""
        draft = _Draft(ResidualNetwork(self._graph))
        for request in continued:
            chains = self._fit(draft.residual, request)
            if chains is None:
                draft = _Draft(ResidualNetwork(self._graph), is_repeated=True)
                for other in continued:
                    chains = other.last_chains[: self._portion(other)]
                    _take_all(draft.residual, chains)
                    draft.portions.append((other, chains))
                return draft
            draft.portions.append((request, chains))
        return draft

    def _await_nothing(self) -> None:
        """What is not written yet belongs to no timestep any more."""
        for request in self._requests.values():
            for grant in request.grants.values():
                grant.is_awaited = False
        self._awaited = self._done

    def _set_timer(self, now_ms: int) -> SetTimer:
        self._deadline_ms = now_ms + self._settings.timestep_timeout_ms
        return SetTimer(_TIMER, self._deadline_ms)

    def _is_waiting(self, request: _Request) -> bool:
        return bool(request.to_grant) and request.granted_in != self._timestep

    def _waiting_before(self, request: _Request) -> list[_Request]:
        """Older requests that get nothing in this timestep so far."""
        older: list[_Request] = []
        for other in self._requests.values():
            if other is request:
                break
            if self._is_waiting(other):
                older.append(other)
        return older

    def _count_passed_over(self, request: _Request) -> None:
        for older in self._waiting_before(request):
            older.passed_over += 1

    def _grant(self, request: _Request, chains: tuple[Chain, ...], now_ms: int) -> GrantWrite:
        """Hand out the request's next chunks along chains that are taken already."""
        chunks = request.to_grant[: len(chains)]
        del request.to_grant[: len(chains)]
        for chunk, chain in zip(chunks, chains, strict=True):
            request.grants[chunk] = _Grant(chain)
            request.voided.discard(chunk)
        self._awaited += len(chains)
        request.granted_in = self._timestep
        request.last_chains = chains if self._residual.graph is self._graph else ()
        request.heard_ms = now_ms
        placements = zip(chunks, chains, strict=True)
        return GrantWrite(
            request.asked.request_id,
            tuple(ChunkPlacement(chunk, chain.servers) for chunk, chain in placements),
        )

    # -- placing ----------------------------------------------------------------------------

    def _trial_of(self, request: _Request) -> tuple[Chain, ...]:
        return self._placer.trial(request.asked.writer, request.asked.copies)

    def _portion(self, request: _Request) -> int:
        """How many chunks the request is to get in one timestep: all at once or none."""
        return min(len(request.to_grant), len(self._trial_of(request)))

    def _fit(self, residual: ResidualNetwork, request: _Request) -> tuple[Chain, ...] | None:
        """Take chains for a request's portion, or leave the residual network as it was."""
        chains: list[Chain] = []
        for _ in range(self._portion(request)):
            chain = self._placer.place(residual, request.asked.writer, request.asked.copies)
            if chain is None:
                for taken in chains:
                    residual.give_back(taken.edges)
                return None
            chains.append(chain)
        return tuple(chains)

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the scheduler's own state makes no sense."""
        outstanding = 0
        used = [0] * len(self._residual.left)
        for name, request in self._requests.items():
            if not request.to_grant and not request.grants:
                raise InvariantViolation(f"{name} has nothing left to write and is kept")
            if request.passed_over > self._settings.passed_over_max:
                raise InvariantViolation(f"{name} was passed over {request.passed_over} times")
            for grant in request.grants.values():
                servers = grant.chain.servers
                if len(dict.fromkeys(servers)) != len(servers):
                    raise InvariantViolation(f"{name} has two copies of a chunk on one server")
                outstanding += grant.is_awaited
                for number in grant.chain.edges if grant.is_awaited else ():
                    used[number] += 1
        if outstanding != self._awaited - self._done:
            raise InvariantViolation(f"{outstanding} chunks are being written, not as counted")
        for number, edge in enumerate(self._residual.graph.edges):
            if self._residual.left[number] < 0:
                raise InvariantViolation(f"edge {number} carries more than its capacity")
            if used[number] + self._residual.left[number] > edge.capacity:
                raise InvariantViolation(f"edge {number} carries chunks it was not charged for")
        if self._is_over() and any(request.to_grant for request in self._requests.values()):
            raise InvariantViolation("a request waits while no timestep runs")

    def statistics(self) -> PeaceStatistics:
        """What the scheduler does and has done."""
        requests = self._requests.values()
        waiting = sum(request.granted_in == 0 for request in requests)
        granted = sum(not request.to_grant for request in requests)
        return PeaceStatistics(
            self._timestep,
            waiting,
            len(self._requests) - waiting - granted,
            granted,
            self._awaited,
            self._done,
            self._refusals,
            self._failures,
            self._repeated_timesteps,
            self._expired_timesteps,
            self._ignored_reports,
        )


def _take_all(residual: ResidualNetwork, chains: Sequence[Chain]) -> None:
    for chain in chains:
        residual.take(chain.edges)


_HANDLERS: dict[type[Stimulus], Callable[[Peace, Any, int], list[Effect]]] = {
    WriteRequested: Peace._on_write_requested,
    ChunkWritten: Peace._on_chunk_written,
    WriteWithdrawn: Peace._on_write_withdrawn,
    ServerLost: Peace._on_server_lost,
    ServerJoined: Peace._on_server_joined,
    TimerFired: Peace._on_timer_fired,
}
