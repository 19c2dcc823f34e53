"""Many instances, simulated: how many checkpoints are invalid, and what messages carry.

Every instance works in passes, one every `PASS_MS`: it takes what has arrived, and sends to all
instances behind it. It cuts by the very rules of nodes (core/checkpoint), every 5 s and up to a
second. What is sent beside tuples is encoded as nodes encode it, and counted. Nothing else costs
anything here: times are not measured.

- `keyed`: sources and as many instances that count, all to all, as in Q3, Q8 and Q12.
- `cyclic`: instances that join, all to all, where half of what is found goes in again, as in the
  reachability query.

At second 18 of a run one instance is lost, and the plan of its recovery says which checkpoints are
newer than the line. [CheckMate Tables 2 to 4]
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.core.checkpoint.bcs import BCS
from holdfast.core.checkpoint.cut_rule import NO_ROUND, CutRule
from holdfast.core.checkpoint.hmnr import HMNR
from holdfast.core.checkpoint.lazy_fi import LazyFI
from holdfast.core.checkpoint.scope import Scope, components, scope_of
from holdfast.core.checkpoint.uncoordinated import Uncoordinated
from holdfast.core.model.ids import CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.model.notes import PlacedNote
from holdfast.core.recovery.checkpoint_graph import (
    BEGINNING,
    LIVE,
    Channel,
    CheckpointGraph,
    Place,
)
from holdfast.core.recovery.recovery_plan import recovery_plan
from holdfast.core.recovery.z_paths import useless_checkpoints
from holdfast.core.wire.note_codecs import encode_notes

PASS_MS: Final = 250
INTERVAL_MS: Final = 5_000
JITTER_MS: Final = 1_000
FAILS_AT_MS: Final = 18_000
TUPLES_PER_S: Final = 2_000
"""That come in from outside, per instance that reads a source."""
TUPLE_BYTES: Final = 100
"""About a NexMark auction in a frame."""
FRAME_BYTES: Final = 80
"""Header, name of the stream, checksum."""
RULES: Final = ("UNC", "BCS", "HMNR", "HMNR, all", "lazy-FI")
GRAPHS: Final = ("keyed", "cyclic")
_INDUCED: Final[dict[str, Callable[[Scope], CutRule]]] = {
    "BCS": BCS,
    "HMNR": HMNR,
    "HMNR, all": HMNR,
    "lazy-FI": LazyFI,
}


@dataclass(slots=True)
class _Edge:
    """A channel: what is on its way, in order."""

    channel: Channel
    number: int  # among the receiver's inputs
    on_its_way: deque[tuple[float, int, PlacedNote | None]] = field(default_factory=deque)
    arrives_ms: float = 0.0
    sent: int = 0
    notes: int = 0


@dataclass(slots=True)
class _Worker:
    """An instance."""

    node: NodeId
    rule: CutRule
    inputs: list[_Edge]
    outputs: list[_Edge]
    is_source: bool
    cuts_at_ms: float
    received: list[int] = field(default_factory=list)
    processed: list[int] = field(default_factory=list)
    places: list[Place] = field(default_factory=lambda: [Place(BEGINNING)])

    def place(self, sequence: int) -> Place:
        """Where it stands."""
        return Place(
            sequence,
            {e.channel.stream: n for e, n in zip(self.inputs, self.processed, strict=True)},
            {edge.channel.stream: edge.sent for edge in self.outputs},
        )


class Region:
    """All instances of a graph under one rule, by seed."""

    def __init__(self, graph: str, workers: int, rule: str, seed: int = 1) -> None:
        """Nothing has happened."""
        self._rng = random.Random(f"{graph} {workers} {seed}")
        channels = _channels(graph, workers)
        self._edges = [_Edge(channel, 0) for channel in channels]
        self._workers = {}
        self.forced = self.note_bytes = self.tuple_bytes = 0
        edges = tuple((c.sender, c.receiver) for c in channels)
        # Each instance reaches itself where there is a cycle; all of them make one component.
        scopes = components(edges) if rule in _INDUCED and graph == "cyclic" else {}
        everybody = tuple(dict.fromkeys(node for edge in edges for node in edge))
        inputs: dict[NodeId, list[_Edge]] = {node: [] for node in everybody}
        outputs: dict[NodeId, list[_Edge]] = {node: [] for node in everybody}
        for edge in self._edges:
            edge.number = len(inputs[edge.channel.receiver])
            inputs[edge.channel.receiver].append(edge)
            outputs[edge.channel.sender].append(edge)
        for node in everybody:
            members = everybody if rule == "HMNR, all" else scopes.get(node, (node,))
            made: CutRule = Uncoordinated(len(inputs[node]))
            if rule in _INDUCED:
                senders = tuple(e.channel.sender for e in inputs[node])
                receivers = tuple(e.channel.receiver for e in outputs[node])
                made = _INDUCED[rule](scope_of(node, members, senders, receivers))
            worker = _Worker(
                node,
                made,
                inputs[node],
                outputs[node],
                graph == "cyclic" or not inputs[node],
                self._rng.uniform(0, INTERVAL_MS),
            )
            worker.received = [0] * len(worker.inputs)
            worker.processed = [0] * len(worker.inputs)
            self._workers[node] = worker

    def run(self, seconds: float) -> dict[str, Any]:
        """So many seconds; what they came to."""
        due = [(self._rng.uniform(0, PASS_MS), n) for n in self._workers]
        heapq.heapify(due)
        rolled_past: int | None = None
        while due[0][0] < seconds * 1000:
            now_ms, node = heapq.heappop(due)
            if rolled_past is None and now_ms >= FAILS_AT_MS:
                rolled_past = self._rolled_past()
            self._work(self._workers[node], now_ms)
            heapq.heappush(due, (now_ms + PASS_MS * self._rng.uniform(0.8, 1.2), node))
        graph = CheckpointGraph(
            {n: (*w.places, w.place(LIVE)) for n, w in self._workers.items()}, self._channels
        )
        total = sum(len(w.places) - 1 for w in self._workers.values())
        useless = len(useless_checkpoints(graph))
        bare = self.tuple_bytes
        return {
            "checkpoints": total,
            "forced": self.forced,
            "forced_per_basic": round(self.forced / max(1, total - self.forced), 4),
            "useless": useless,
            "rolled_past": rolled_past,
            "message_overhead": round((bare + self.note_bytes) / bare, 4) if bare else None,
        }

    @property
    def _channels(self) -> tuple[Channel, ...]:
        return tuple(edge.channel for edge in self._edges)

    def _rolled_past(self) -> int:
        """Newer than the line if an instance is lost now."""
        lost = self._rng.choice([w.node for w in self._workers.values() if w.inputs])
        live = {n: w.place(LIVE) for n, w in self._workers.items() if n != lost}
        places = {n: tuple(w.places) for n, w in self._workers.items()}
        return recovery_plan(places, live, self._channels).rolled_past

    # -- an instance --------------------------------------------------------------------------

    def _work(self, worker: _Worker, now_ms: float) -> None:
        """A pass, and as many cuts as are due."""
        for number, edge in enumerate(worker.inputs):
            while edge.on_its_way and edge.on_its_way[0][0] <= now_ms:
                _, count, note = edge.on_its_way.popleft()
                if note is not None:
                    worker.rule.noted(number, note.before_id, note.note)
                worker.received[number] += count
        if now_ms >= worker.cuts_at_ms:
            worker.cuts_at_ms += INTERVAL_MS + self._rng.uniform(0, JITTER_MS)
            worker.rule.asked(NO_ROUND)
            self._cut(worker, is_forced=False)
        taken = self._take_arrived(worker)
        self._send(worker, now_ms, taken)

    def _take_arrived(self, worker: _Worker) -> int:
        """All that has arrived, with cuts where they are due."""
        taken = 0
        while True:
            stands_at = tuple(worker.processed)
            if worker.rule.is_due(stands_at):
                self._cut(worker, is_forced=True)
                continue
            worker.rule.begin_pass(stands_at)
            ends = [min(g, e) for g, e in zip(worker.received, worker.rule.limits(), strict=True)]
            more = sum(ends) - sum(stands_at)
            if more <= 0:
                return taken
            taken += more
            worker.processed = ends

    def _cut(self, worker: _Worker, *, is_forced: bool) -> None:
        sequence = worker.places[-1].sequence + 1
        worker.rule.cut(CheckpointId(sequence, Incarnation(1)), tuple(worker.processed))
        worker.places.append(worker.place(sequence))
        self.forced += is_forced

    def _send(self, worker: _Worker, now_ms: float, taken: int) -> None:
        """What was made of it, spread over those behind."""
        if not worker.outputs:
            return
        fresh = TUPLES_PER_S * PASS_MS / 1000 if worker.is_source else 0
        made = fresh + taken * 0.5
        for number, edge in enumerate(worker.outputs):
            count = int(made / len(worker.outputs) + self._rng.random())
            if count == 0:
                continue
            note = worker.rule.before_output(number)
            placed = None if note is None else PlacedNote(edge.notes, edge.sent, note)
            if placed is not None:
                self.note_bytes += len(encode_notes((placed,), edge.notes, edge.sent))
                edge.notes += 1
            edge.sent += count
            edge.arrives_ms = max(edge.arrives_ms, now_ms + self._rng.uniform(0.2, 20.0))
            edge.on_its_way.append((edge.arrives_ms, count, placed))
            self.tuple_bytes += FRAME_BYTES + count * TUPLE_BYTES


def _channels(graph: str, workers: int) -> tuple[Channel, ...]:
    senders = [NodeId(f"join[{i}]" if graph == "cyclic" else f"map[{i}]") for i in range(workers)]
    receivers = senders if graph == "cyclic" else [NodeId(f"count[{i}]") for i in range(workers)]
    return tuple(Channel(StreamId(f"{a}>{b}"), a, b) for a in senders for b in receivers if a != b)


def measure(workers: int, seconds: float) -> dict[str, Any]:
    """All graphs under all rules with so many instances of each operator."""
    return {
        graph: {rule: Region(graph, workers, rule).run(seconds) for rule in RULES}
        for graph in GRAPHS
    }
