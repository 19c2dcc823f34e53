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


class LineGate:
    """The gate before some outputs of one incarnation. Volatile: all fields."""

    def __init__(
        self, edges: dict[StreamId, OutputEdge], sinks: dict[StreamId, Sink], point: RestartPoint
    ) -> None:
        """Go on at a restart point; what comes before the oldest behind it may leave.

        Args:
            edges: Those that it stands before.
            sinks: All of the node.
            point: Where the incarnation begins; the last of those behind it is on the line.
        """
        self._edges = edges
        self.sinks = sinks
        self._places = OutputPlaces(edges, sinks)
        self.is_awaited = False  # it will open only if the node goes on
        line = point.oldest()
        self._gate = Gate({stream: line.next_ids.get(stream, 0) for stream in (*edges, *sinks)})
        if not self._gate.open_ids:
            return  # Nothing leaves the region here.
        if line.sequence != point.sequence:
            self._gate.begin(point.sequence)
            self._gate.end(self._places.next_ids, self._places.next_notes)
        self._gate.begin(point.sequence + 1)
        for stream, edge in edges.items():
            edge.queue.open_to(self._gate.open_ids[stream], edge.queue.notes.next_number)

    def start(self) -> list[Effect]:
        """What a checkpoint has kept from sinks, and the line has passed since, may leave."""
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
            self._gate.end(self._places.next_ids, self._places.next_notes)
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

    def stops_node(self, limits: NodeLimits) -> bool:
        """Whether so much waits here that the node has to wait too. Cost: O(streams)."""
        return not self.is_awaited and self._is_full(limits, limits.gate_queues)

    def wants_cut(self, limits: NodeLimits) -> bool:
        """Whether so much waits here that a cut should come soon. Cost: O(streams).

        The node goes on while that is written, and need not stop if the line has passed it in time.
        """
        return self._is_full(limits, max(1, limits.gate_queues // 2))

    def _is_full(self, limits: NodeLimits, queues: int) -> bool:
        most = limits.output_queue_tuples
        return any(
            sink.held_tuples >= queues * most
            or (sink.held_tuples >= most and sink.held_bytes >= limits.output_queue_bytes)
            for sink in self.sinks.values()
        ) or any(
            edge.queue.next_id - self._gate.open_ids[stream] >= most
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
