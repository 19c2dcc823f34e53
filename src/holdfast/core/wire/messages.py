"""What a node says to another one: an effect at one end, a stimulus at the other."""

from __future__ import annotations

from typing import Any, Final

from holdfast.core.haunit import events
from holdfast.core.model.ids import Incarnation

NodeMessage = (
    events.BatchReceived
    | events.NotesReceived
    | events.BoundaryReceived
    | events.SubscribeReceived
    | events.AckReceived
    | events.PositionsReceived
    | events.PageRunReceived
    | events.DeltaReceived
    | events.DeltaAckReceived
)

Down = (
    events.SendBatch
    | events.SendNotes
    | events.SendBoundary
    | events.SendPositions
    | events.SendPageRun
    | events.SendDelta
)
"""To whoever has subscribed to the stream."""

Up = events.SendSubscribe | events.SendAck | events.SendDeltaAck
"""To the producer of the stream."""

_RECEIVED: Final[dict[type[Any], type[Any]]] = {
    events.SendBatch: events.BatchReceived,
    events.SendNotes: events.NotesReceived,
    events.SendBoundary: events.BoundaryReceived,
    events.SendPositions: events.PositionsReceived,
    events.SendPageRun: events.PageRunReceived,
    events.SendDelta: events.DeltaReceived,
    events.SendSubscribe: events.SubscribeReceived,
    events.SendAck: events.AckReceived,
    events.SendDeltaAck: events.DeltaAckReceived,
}


def message_of(effect: Down | Up, sender: Incarnation) -> NodeMessage:
    """What the other end receives: an effect names stream and peer first, then what is said."""
    stream, peer, *said = (getattr(effect, name) for name in type(effect).__slots__)
    message: NodeMessage = _RECEIVED[type(effect)](stream, sender, peer, *said)
    return message
