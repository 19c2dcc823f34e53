"""What a node keeps of its output, for its checkpoints and for its passive secondary. [SGuard §3]

Of tuples, what receivers may still need; both take them difference by difference. When a stream is
numbered anew its ids are those of other tuples, and both take everything once more. Notes that
stand there are few, and are taken whole each time. Where nothing is on its way at a cut, a
checkpoint takes no tuples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.prepared import OutputTuples
from holdfast.core.model.ids import NO_ID

if TYPE_CHECKING:
    from holdfast.core.haunit.outputs.edge import OutputEdge
    from holdfast.core.haunit.outputs.line_gate import LineGate
    from holdfast.core.haunit.prepared import OutputSegment
    from holdfast.core.model.ids import StreamId
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.model.tuples import TupleBatch


class KeptOutput:
    """A view of the edges of one incarnation. It has no state of its own."""

    def __init__(
        self, edges: dict[StreamId, OutputEdge], empty_at_cuts: tuple[StreamId, ...] = ()
    ) -> None:
        """Look at these, in the order of the plan; checkpoints need nothing of some."""
        self._edges = edges
        self._empty_at_cuts = empty_at_cuts
        self.gate: LineGate | None = None  # what it keeps from sinks is kept, too

    @property
    def times_renumbered(self) -> int:
        """How often a stream has been numbered anew; differences are between equal numbers."""
        return sum(edge.times_renumbered for edge in self._edges.values())

    def to_be_stored(
        self, stored: tuple[OutputSegment, ...], segments_max: int
    ) -> tuple[tuple[OutputSegment, ...], tuple[OutputTuples, ...]]:
        """What a checkpoint has to hold of the tuples that receivers may still need.

        Args:
            stored: Where earlier checkpoints have stored some of them.
            segments_max: With more segments than that, all is to be written again.

        Returns:
            The segments that go on to count, and the tuples to be written.
        """
        kept = tuple(
            segment for segment in stored if segment.to_id > self._gone_before(segment.stream)
        )
        if len(kept) > segments_max:
            kept = ()
        stored_before = {segment.stream: segment.to_id for segment in kept}
        wanted: list[OutputTuples] = []
        for stream, edge in self._edges.items():
            if stream in self._empty_at_cuts:
                continue
            queue = edge.queue
            from_id = stored_before.get(stream, queue.trimmed_before)
            if from_id < queue.next_id:
                batches = tuple(queue.held_from(from_id))
                wanted.append(OutputTuples(stream, from_id, queue.next_id, batches))
        if self.gate is not None:
            wanted += self.gate.wanted(stored_before)
        return kept, tuple(wanted)

    def _gone_before(self, stream: StreamId) -> int:
        """What comes before this id is kept no more."""
        edge = self._edges.get(stream)
        if stream in self._empty_at_cuts:
            return NO_ID
        if edge is not None:
            return edge.queue.trimmed_before
        return NO_ID if self.gate is None else self.gate.sinks[stream].held_from

    def since(
        self, sent_before: dict[str, int]
    ) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, TupleBatch], ...]] | None:
        """What a passive secondary has to know of the tuples that it has not had yet.

        Args:
            sent_before: Per stream the id up to which it has had the tuples.

        Returns:
            Per stream the first id that is kept and the next id, and the new tuples with the
            position of their stream; None if some of them are spilled.
        """
        positions: list[tuple[int, int]] = []
        batches: list[tuple[int, TupleBatch]] = []
        for number, (stream, edge) in enumerate(self._edges.items()):
            queue = edge.queue
            first_id = max(sent_before.get(stream, 0), queue.trimmed_before)
            if first_id < min(queue.memory_first, queue.next_id):
                return None
            positions.append((queue.trimmed_before, queue.next_id))
            batches += [(number, batch) for batch in queue.held_from(first_id)]
        return tuple(positions), tuple(batches)

    def notes(self) -> dict[StreamId, tuple[PlacedNote, ...]]:
        """The notes that stand among these tuples, or behind them, per stream that has some."""
        queues = (edge.queue for edge in self._edges.values())
        return {queue.stream: queue.notes.all() for queue in queues if queue.notes}
