"""What a node says to another one: an effect at one end, a stimulus at the other."""

from __future__ import annotations

from operator import attrgetter
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

_PAIRS: Final[dict[type[Any], type[Any]]] = {
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
_RECEIVED: Final = {
    sent: (received, attrgetter(*sent.__slots__)) for sent, received in _PAIRS.items()
}
"""What arrives, and what of an effect it is made of."""


def message_of(effect: Down | Up, sender: Incarnation) -> NodeMessage:
    """What the other end receives: an effect names stream and peer first, then what is said."""
    received, fields = _RECEIVED[type(effect)]
    stream, peer, *said = fields(effect)
    message: NodeMessage = received(stream, sender, peer, *said)
    return message
