"""What protection costs on a node's channels: bytes of frames, by what they are for. [HA §7]

A node counts what passes its own server, in both directions: what it sends to those who receive
from it and what they answer, secondaries included, and what it tells its own secondary. So every
byte between nodes is counted once. Frames count as they are handed to ZeroMQ, headers included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from holdfast.core.coordinator.reports import TrafficReported
from holdfast.core.haunit import events

if TYPE_CHECKING:
    from holdfast.core.wire.messages import Down, NodeMessage


@dataclass(slots=True)
class Traffic:
    """Bytes so far; the counters are those of `TrafficReported`."""

    tuple_bytes: int = 0
    ack_bytes: int = 0
    standby_bytes: int = 0
    difference_bytes: int = 0
    point_bytes: int = 0
    note_bytes: int = 0

    def sent(self, effect: Down, parts: Sequence[Any], *, to_secondary: bool) -> None:
        """A frame has been handed on, down a stream."""
        size = sum(map(len, parts))
        match effect:
            case events.SendBatch() | events.SendNotes() | events.SendBoundary() if (
                not to_secondary
            ):
                self.tuple_bytes += size
                if isinstance(effect, events.SendNotes):
                    self.note_bytes += size
                elif isinstance(effect, events.SendBatch) and effect.notes:
                    self.note_bytes += len(parts[-1])
                return
            case events.SendPageRun(run=run):
                self.difference_bytes += run.nbytes
            case events.SendDelta(delta=delta):
                self.difference_bytes += sum(batch.batch.nbytes for _, batch in delta.batches)
        self.standby_bytes += size

    def answered(self, message: NodeMessage, parts: Sequence[Any]) -> None:
        """A receiver has answered."""
        size = sum(map(len, parts))
        match message:
            case events.AckReceived() | events.SubscribeReceived() if not message.is_secondary:
                self.ack_bytes += size
            case _:
                self.standby_bytes += size

    def reported(self) -> TrafficReported:
        """All of it, for the node's statistics."""
        return TrafficReported(**asdict(self))
