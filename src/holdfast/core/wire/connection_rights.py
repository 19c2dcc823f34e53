"""Which messages a connection may carry.

A frame says itself which stream it belongs to. It has an effect only when it comes by the
connection of that stream: from a receiver's connection only what receivers say, about streams that
this node sends to that receiver; from a producer's only what producers say, about its own streams.
So whoever is inside, and replays or makes up frames, can speak for nobody but itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.events import (
    AckReceived,
    BatchReceived,
    BoundaryReceived,
    DeltaAckReceived,
    DeltaReceived,
    NotesReceived,
    PageRunReceived,
    PositionsReceived,
    SubscribeReceived,
)
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.wire.frames import CorruptFrame

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.wire.messages import NodeMessage

_FROM_RECEIVER: Final = (SubscribeReceived, AckReceived, DeltaAckReceived)
_FROM_PRODUCER: Final = (
    BatchReceived,
    NotesReceived,
    BoundaryReceived,
    PositionsReceived,
    PageRunReceived,
    DeltaReceived,
)


class ConnectionRights:
    """The connections of one node."""

    def __init__(self, plan: NodePlan) -> None:
        """Who is at the other end of which stream."""
        self.receiver_of: dict[StreamId, NodeId] = {
            stream: receiver
            for spec in plan.outputs
            if not spec.is_sink
            for stream, receiver in zip(spec.streams, spec.receivers, strict=True)
        }
        self.receiver_of[plan.replica_stream] = plan.node
        self.producer_of: dict[StreamId, NodeId] = plan.producer_of()
        self.producer_of[plan.replica_stream] = plan.node

    def from_receiver(self, identity: bytes, message: NodeMessage) -> CorruptFrame | None:
        """Why a message may not come by a receiver's connection; None: it may.

        Args:
            identity: Of the connection: the receiver's name, then `|` and more.
            message: What came.
        """
        if not isinstance(message, _FROM_RECEIVER):
            return CorruptFrame(f"{type(message).__name__} from a receiver")
        receiver = self.receiver_of.get(message.stream)
        if receiver is None or identity.partition(b"|")[0] != receiver.encode():
            return CorruptFrame("about a stream that is not its own")
        return None

    def from_producer(self, producer: NodeId, message: NodeMessage) -> CorruptFrame | None:
        """The same for a connection to a producer, or to the primary of this node itself."""
        if not isinstance(message, _FROM_PRODUCER):
            return CorruptFrame(f"{type(message).__name__} from a producer")
        if self.producer_of.get(message.stream) != producer:
            return CorruptFrame("about a stream that is not its own")
        return None
