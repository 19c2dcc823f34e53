"""All outputs of a node while input is missing: feeds, and suffixes of streams. [DPC "SOutput"]

What is tentative goes to the feeds beside sinks, and to receivers that may put out tentative
results themselves. Sinks and all other receivers hear of stable tuples alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.outputs.partition import batch_of, partition, sink_batch_of
from holdfast.core.model.notes import RecDone, Undo
from holdfast.core.replication.consistency_manager import Consistency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.haunit.outputs.edge import OutputEdge
    from holdfast.core.haunit.outputs.feed import Feed
    from holdfast.core.haunit.plan import OutputSpec
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import StreamId
    from holdfast.core.operators.base import Rows


class TentativeOutputs:
    """A view of the feeds and edges of one incarnation. It has no state of its own."""

    def __init__(self, feeds: dict[StreamId, Feed], edges: dict[StreamId, OutputEdge]) -> None:
        """Speak to these."""
        self._feeds = feeds
        self._edges = edges

    def begin(self) -> list[Effect]:
        """What earlier incarnations have left as tentative is void; receivers know it."""
        effects: list[Effect] = []
        for feed in self._feeds.values():
            effects += feed.begin()
        return effects

    def put_out(
        self,
        spec: OutputSpec,
        pieces: Sequence[Rows],
        boundary_us: int,
        missing: tuple[StreamId, ...],
    ) -> list[Effect]:
        """Put out rows as tentative; sinks, and receivers of stable tuples, get nothing.

        Args:
            spec: An output of the plan.
            pieces: Its rows.
            boundary_us: Without what is missing, nothing older follows.
            missing: Source streams that they were made without.
        """
        if spec.feed_of is not None:
            feed = self._feeds[spec.streams[0]]
            effects: list[Effect] = []
            for rows in pieces:
                if len(rows.time_us):
                    effects += feed.tentative(sink_batch_of(rows, spec), missing, rows.created_us)
            return effects
        if spec.has_tentative:
            edges = [self._edges[stream] for stream in spec.streams]
            for edge in edges:
                if edge.suffix.run is None:
                    edge.again.run_begins()
                edge.suffix.lacks(missing, edge.queue.next_id)
            self._send(spec, edges, pieces, boundary_us)
        return []

    def _send(
        self,
        spec: OutputSpec,
        edges: Sequence[OutputEdge],
        pieces: Sequence[Rows],
        boundary_us: int,
    ) -> None:
        for rows in pieces:
            for edge, part in zip(edges, partition(batch_of(rows, spec), spec), strict=True):
                part = edge.again.new_of_run(part)
                edge.suffix.put_out(part, rows.created_us, edge.queue.next_id)
        for edge in edges:
            edge.suffix.promise(boundary_us, edge.queue.next_id)

    def undo(self) -> list[Effect]:
        """All that was put out as tentative is void."""
        effects: list[Effect] = []
        for feed in self._feeds.values():
            effects += feed.undo()
        for edge in self._edges.values():
            run = edge.suffix.undo()
            if run is not None and edge.state is None:
                edge.queue.put_note(Undo(run))
        return effects

    def rec_done(self) -> list[Effect]:
        """All of it has come as stable."""
        effects: list[Effect] = []
        for feed in self._feeds.values():
            effects += feed.rec_done()
        for edge in self._edges.values():
            run = edge.suffix.rec_done()
            if run is not None and edge.state is None:
                edge.queue.put_note(RecDone(run))
        return effects

    def stands(self, state: Consistency, stable: Sequence[StreamId]) -> list[Effect]:
        """This node, one of several replicas, is in this state now.

        That says which run counts, too: notes are numbered by each replica otherwise.

        Args:
            state: The node's.
            stable: The streams that are stable all the same.
        """
        effects: list[Effect] = []
        for stream, edge in self._edges.items():
            effects += edge.stands(Consistency.STABLE if stream in stable else state)
        return effects

    @property
    def rows(self) -> tuple[int, int]:
        """How many rows were put out as tentative, and undone, over all feeds."""
        feeds = self._feeds.values()
        return sum(f.tentative_rows for f in feeds), sum(f.undone_rows for f in feeds)
