"""Where the outputs of a node are: the next id and the next note of each stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.model.ids import BEGINNING_US

if TYPE_CHECKING:
    from holdfast.core.haunit.outputs.edge import OutputEdge
    from holdfast.core.haunit.outputs.gate import Hold
    from holdfast.core.haunit.outputs.sink import Sink
    from holdfast.core.model.ids import StreamId


class OutputPlaces:
    """A view of some outputs of one incarnation. It has no state of its own."""

    def __init__(self, edges: dict[StreamId, OutputEdge], sinks: dict[StreamId, Sink]) -> None:
        """Look at these; both may grow later."""
        self.edges = edges
        self.sinks = sinks

    @property
    def next_ids(self) -> dict[str, int]:
        """Per stream the id of the next tuple that the operators give."""
        ids: dict[str, int] = {
            stream: edge.queue.next_id - edge.again.tuples for stream, edge in self.edges.items()
        }
        return ids | {stream: sink.next_id for stream, sink in self.sinks.items()}

    @property
    def next_notes(self) -> dict[StreamId, int]:
        """Per stream but sinks the number of its next note."""
        return {stream: edge.queue.notes.next_number for stream, edge in self.edges.items()}

    def open_edges(self, opened: Hold) -> None:
        """What a gate has let out may be sent, and what was promised with it is."""
        for stream, edge in self.edges.items():
            edge.queue.open_to(opened.next_ids[stream], opened.next_notes[stream])
            edge.queue.promise(opened.promised.get(stream, BEGINNING_US))
