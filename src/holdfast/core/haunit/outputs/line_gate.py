"""What a node that does not repeat lets out: what no recovery goes back behind. [CheckMate §III-B]

Theory of operation. Whoever does not repeat may put out other tuples, under the same ids, when it
has gone back. Within its region that does no harm: whoever has processed them goes back with it.
What goes to sinks, and to units outside of the region, waits here until the *line* has passed it:
the oldest places that recovery may still go back to.

What is put out between two cuts is one hold of a `Gate`, with the number of the later cut. Sinks
keep their tuples themselves, streams to other nodes in their queues. Both are in checkpoints: a
sink's tuples leave when the line moves, and then this may be another incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.haunit.outputs.gate import Gate
from holdfast.core.haunit.outputs.places import OutputPlaces

if TYPE_CHECKING:
    from holdfast.core.haunit.outputs.edge import OutputEdge
    from holdfast.core.haunit.outputs.sink import Sink
    from holdfast.core.haunit.plan import NodeLimits
    from holdfast.core.haunit.prepared import OutputTuples
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import StreamId
    from holdfast.core.recovery.restart_point import RestartPoint


@dataclass(frozen=True, slots=True)
class _Room:
    """How much may wait at a gate.

    Attributes:
        tuples: Of a sink.
        least_tuples: So many of a sink always may.
        bytes: Of a sink, with more tuples than that.
        edge_tuples: Of a stream to another node.
    """

    tuples: int
    least_tuples: int
    bytes: int
    edge_tuples: int

    @staticmethod
    def of(limits: NodeLimits) -> _Room:
        """All of it."""
        most = limits.output_queue_tuples
        return _Room(limits.gate_queues * most, most, limits.output_queue_bytes, most)

    @staticmethod
    def half_of(limits: NodeLimits) -> _Room:
        """Half of it; of sinks at least a queue."""
        most = limits.output_queue_tuples
        tuples, half = max(1, limits.gate_queues // 2) * most, max(1, most // 2)
        return _Room(tuples, half, limits.output_queue_bytes // 2, half)

    def is_filled(self, sink: Sink, tuples: int) -> bool:
        """By so many of what a sink holds, with their share of its bytes."""
        if tuples < self.least_tuples:
            return False
        return tuples >= self.tuples or sink.held_bytes * tuples >= self.bytes * sink.held_tuples


class LineGate:
    """The gate before some outputs of one incarnation. Volatile: all fields."""

    def __init__(
        self,
        edges: dict[StreamId, OutputEdge],
        sinks: dict[StreamId, Sink],
        point: RestartPoint,
        limits: NodeLimits,
    ) -> None:
        """Go on at a restart point; what comes before the oldest behind it may leave.

        Args:
            edges: Those that it stands before.
            sinks: Those that it stands before.
            point: Where the incarnation begins; the last of those behind it is on the line.
            limits: How much may wait here.
        """
        self._edges = edges
        self._room, self._half_room = _Room.of(limits), _Room.half_of(limits)
        self.sinks = sinks
        self._places = OutputPlaces(edges, sinks)
        self.is_awaited = False  # it will open only if the node goes on
        self._cut_ids = self._places.next_ids
        line = point.oldest()
        self._begins_at, self._line = point.sequence, line.sequence
        self._gate = Gate({stream: line.next_ids.get(stream, 0) for stream in (*edges, *sinks)})
        if not self._gate.open_ids:
            return  # Nothing leaves the region here.
        self._gate.begin(self._begins_at)
        for stream, edge in edges.items():
            edge.queue.open_to(self._gate.open_ids[stream], edge.queue.notes.next_number)

    def start(self) -> list[Effect]:
        """The operators are at the point: what the line has passed may leave.

        That is what a checkpoint has kept from sinks, and what operators promise at the point. 1. A
        node cuts when its input has ended. 2. It fails before it has promised the end. 3. Its
        replacement has nothing to process, and cuts no more: no line would let the promise out.
        """
        if self._gate.open_ids:
            self._end_hold(self._begins_at)
        opened = self._gate.open_before(self._line + 1)
        if opened is not None:
            self._places.open_edges(opened)
        effects: list[Effect] = []
        for stream, sink in self.sinks.items():
            effects += sink.let_out(self._gate.open_ids[stream])
        return effects

    def promise(self, streams: tuple[StreamId, ...], boundary_us: int) -> None:
        """What is promised now is promised when the line has passed."""
        self._gate.promise(streams, boundary_us)

    def cut(self, sequence: int) -> None:
        """The node has cut: what has been put out leaves when the line has come to this point."""
        if self._gate.open_ids:
            self._end_hold(sequence)

    def _end_hold(self, sequence: int) -> None:
        """What has been put out since the cut before belongs to this one."""
        self._cut_ids = self._places.next_ids
        self._gate.end(self._cut_ids, self._places.next_notes)
        self._gate.begin(sequence + 1)

    def open_to(self, sequence: int) -> list[Effect]:
        """The line has come to this point: what was put out before its cut leaves."""
        opened = self._gate.open_before(sequence + 1)
        if opened is None:
            return []
        self._places.open_edges(opened)
        effects: list[Effect] = []
        for edge in self._edges.values():
            effects += edge.flush()
        for stream, sink in self.sinks.items():
            effects += sink.let_out(opened.next_ids[stream])
        return effects

    @property
    def is_holding(self) -> bool:
        """Whether anything waits here, if only a promise. Cost: O(streams · holds).

        1. The last tuples leave. 2. The end comes with no tuple. 3. Whoever is to close its last
        windows for that waits for the promise alone.
        """
        return any(sink.held for sink in self.sinks.values()) or any(
            edge.queue.next_id > self._gate.open_ids[stream]
            or self._gate.promised(stream) > edge.queue.boundary_us
            for stream, edge in self._edges.items()
        )

    @property
    def stops_node(self) -> bool:
        """Whether so much waits here that the node has to wait too. Cost: O(streams)."""
        return not self.is_awaited and self._waits(self._room, self._gate.open_ids)

    @property
    def wants_cut(self) -> bool:
        """Whether so much waits here that a cut should come soon. Cost: O(streams).

        The node goes on while that is written, and need not stop if the line has passed it in time.
        """
        return self._waits(self._half_room, self._gate.open_ids)

    @property
    def has_filled_since_cut(self) -> bool:
        """Whether so much waits here that no cut covers yet. Cost: O(streams).

        1. A node goes on though much waits here. 2. It cuts for that. 3. The line waits for the
        cuts of others. Another cut would not let anything out earlier.
        """
        return self._waits(self._half_room, self._cut_ids)

    def _waits(self, room: _Room, since: dict[str, int]) -> bool:
        """Whether what was put out from these ids on, and waits here, fills the room."""
        return any(
            room.is_filled(sink, min(sink.held_tuples, sink.next_id - since.get(stream, 0)))
            for stream, sink in self.sinks.items()
        ) or any(
            edge.queue.next_id - since.get(stream, 0) >= room.edge_tuples
            for stream, edge in self._edges.items()
        )

    def held_from(self) -> dict[str, int]:
        """Per sink the first tuple that only the node, or its checkpoint, has."""
        return {stream: sink.held_from for stream, sink in self.sinks.items()}

    def wanted(self, stored_before: dict[StreamId, int]) -> list[OutputTuples]:
        """What a checkpoint has to write of what sinks lack.

        Args:
            stored_before: Per stream up to which id earlier checkpoints have it.
        """
        found = (
            sink.to_be_stored(stored_before.get(stream, 0)) for stream, sink in self.sinks.items()
        )
        return [tuples for tuples in found if tuples is not None]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when holds do not follow one another."""
        self._gate.check_invariants()
