"""What others may ask a node: whom it knows, how far it is, what it holds.

Nothing here changes a node.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from holdfast.core.haunit.node_figures import NodeNeeds, NodeStatistics, needs_of, statistics_of
from holdfast.core.model.ids import StreamId

if TYPE_CHECKING:
    from holdfast.core.checkpoint.eventual import ExtentStatistics
    from holdfast.core.haunit.delayed_unit import Waits
    from holdfast.core.haunit.durability.base import Durability
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.haunit.replica_link import ReplicaLink
    from holdfast.core.model.ids import Incarnation, NodeId, Run
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.replication.consistency_manager import ConsistencyStatistics
    from holdfast.core.state.change_sample import ChangeSample
    from holdfast.core.state.page_manager import PageManager


class NodeState(enum.Enum):
    """How far a node has come; see node.py."""

    SECONDARY = "secondary"
    AT_WORK = "at work"
    FINISHED = "finished"


class NodeLooks:
    """The part of a node that answers."""

    plan: NodePlan
    _unit: HAUnit
    _durability: Durability
    _replica: ReplicaLink
    _state: NodeState

    @property
    def is_secondary(self) -> bool:
        """Whether it follows the primary of its instance."""
        return self._state is NodeState.SECONDARY

    def known_peers(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every neighbour that this node has been told of."""
        known = self._unit.inputs.producers() | self._unit.outputs.receivers.primaries()
        return known | self._replica.known_primary() | self._durability.deferred_peers()

    def known_secondaries(self) -> dict[NodeId, Incarnation]:
        """The secondary of every receiver, and of this node, as far as this node has been told."""
        return self._unit.outputs.receivers.secondaries() | self._replica.known_secondary()

    def may_follow(self, sink_next_ids: dict[StreamId, int]) -> bool:
        """Whether a secondary can take over from logs that end there.

        It cannot if the log of passes has lost, with its machine, one that the secondary has run.
        """
        return self._unit.order.may_follow(sink_next_ids.get(self.plan.pass_stream))

    @property
    def has_joined(self) -> bool:
        """Whether this is a secondary that all producers serve, so that it can keep up."""
        return self.is_secondary and self._unit.inputs.are_served

    def peer_incarnation(
        self, stream: StreamId, *, is_secondary: bool = False
    ) -> Incarnation | None:
        """The incarnation that this node knows at the other end of a stream; None: of nobody.

        Args:
            stream: An input or output stream, or the replica stream.
            is_secondary: Whether it is the secondary that receives an output stream.
        """
        if stream == self.plan.replica_stream:
            return self._replica.other(is_secondary=is_secondary)
        if self._unit.inputs.has(stream):
            return self._unit.inputs.producer(stream)
        outputs = self._unit.outputs
        receivers = outputs.receivers
        return receivers.secondary(stream) if is_secondary else receivers.primary(stream)

    @property
    def input_tuples(self) -> int:
        """Tuples processed, replayed ones included."""
        return self._unit.input_tuples

    def source_boundaries(self) -> dict[StreamId, int]:
        """Per source that the node reads, what it has promised."""
        streams = self._unit.inputs.all()
        return {s.spec.stream: s.queue.boundary_us for s in streams if s.spec.producer is None}

    def positions(self) -> dict[str, dict[StreamId, int]]:
        """Per input stream the id before which all was processed, per output stream the next id."""
        next_ids = self._unit.outputs.next_ids.items()
        return {
            "processed": {s.spec.stream: s.processed_before for s in self._unit.inputs.all()},
            "next_ids": {StreamId(s): i for s, i in next_ids},
        }

    def needs(self) -> NodeNeeds:
        """How far back it goes now. Cost: O(operators + input streams)."""
        return needs_of(self._unit)

    @property
    def consistency(self) -> ConsistencyStatistics | None:
        """Of one that may go on without missing input its state; None: it waits for all input."""
        return self._unit.consistency

    def waiting(self) -> list[Waits]:
        """What waits for other streams, see `DelayedUnit.waiting`."""
        return self._unit.waiting()

    @property
    def has_suffixes(self) -> bool:
        """Whether some of what it reads is tentative."""
        return any(stream.tentative.run is not None for stream in self._unit.inputs.all())

    def suffixes(self) -> dict[StreamId, tuple[StreamId, Run | None]]:
        """Per input stream, as its main sender names it too, the tentative run that counts."""
        streams = self._unit.inputs.all()
        return {s.spec.stream: (s.main.stream, s.tentative.run) for s in streams}

    @property
    def dropped_tuples(self) -> int:
        """Of its input, without which corrections have gone."""
        return self._unit.dropped_tuples

    @property
    def missing(self) -> tuple[StreamId, ...]:
        """The source streams that it goes on without, or is correcting that it has."""
        return self._unit.missing

    @property
    def has_room(self) -> bool:
        """Whether its outputs take more: those who read them may be waiting themselves."""
        return self._unit.outputs.has_room()

    @property
    def trouble(self) -> str | None:
        """Why it is less safe than its plan says, or reads no more, as people should read it."""
        return self._durability.trouble or self._unit.trouble

    @property
    def extent(self) -> ExtentStatistics | None:
        """Of one whose windows leave footprints what a replacement would read and replay."""
        return self._durability.extent

    @property
    def tentative_rows(self) -> tuple[int, int]:
        """How many rows it has put out as tentative, and undone."""
        return self._unit.outputs.tentative.rows

    def sample_changes(self, number: int) -> ChangeSample:
        """A sample of its state, to see a little later how much of it has changed."""
        return self._unit.network.sample_changes(number)

    def replicated(self) -> tuple[PageManager, dict[StreamId, list[TupleBatch]]]:
        """What a passive secondary has a copy of: pages, and output tuples in memory."""
        queues = self._unit.outputs.queues()
        pages = self._unit.network.pages
        return pages, {q.stream: q.held_from(q.trimmed_before) for q in queues}

    @property
    def delta_under_way(self) -> int:
        """The number of the delta that a passive secondary is being sent; 0: none."""
        return self._durability.delta_under_way

    def statistics(self) -> NodeStatistics:
        """Counters now."""
        return statistics_of(
            self._unit,
            refused_frames=self._replica.refused_frames,
            is_finished=self._state is NodeState.FINISHED,
        )
