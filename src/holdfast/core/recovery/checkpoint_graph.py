"""The checkpoint graph: the places that nodes can go back to, and what forbids them together.

Theory of operation. A *place* of a node says, per input stream, up to which id tuples have been
processed, per output stream which id comes next, and from which id on it holds what it has sent. It
is a checkpoint, or where a survivor stands (`LIVE`). Places of one node are in the order in which
they came to be, so that the first two never move back from one to the next. The third may: a node
at work holds more than its last checkpoint does.

Of two neighbours' places, one stream between them, two things make an edge:

- **orphan edge**: the receiver has processed tuples that the sender has not sent, taken marks of a
  loop that it has not put, or acted on a boundary that it has not promised, or told a loop of that.
  What it made of them would stay although they may come otherwise, or older tuples come: the
  receiver goes back. Not behind a sender that *repeats*, which will send the same tuples under the
  same ids: those are dropped.
- **missing edge**: the sender holds less than the receiver has yet to process. Going on like this
  would lose what is between: the sender goes back, to where it held that or had not sent it.

The paper's graph has orphan edges alone, as its testbed logs every message apart
([CheckMate §III-B]). Here channels are stored by their senders, and stored as little as a round
lets them; then orphan edges are not enough: in 13 of 1,423 random runs the line lost tuples.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.model.ids import NodeId, StreamId
    from holdfast.core.recovery.restart_point import RestartPoint

BEGINNING: Final = 0
"""The sequence of the place before everything; those of points count from 1 on."""
LIVE: Final = -1
"""The sequence of the place where a survivor stands."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a node could go on from.

    Attributes:
        sequence: Of its restart point; `BEGINNING`: it begins anew; `LIVE`: it stays where it is.
        processed_before: Per input stream; one that is missing begins at 0.
        next_ids: Per output stream the id of the next output; one that is missing begins at 0.
        held_from: Per output stream the oldest tuple that can be sent again; one that is missing
            can be sent from its beginning on.
        acted_us: The boundary that it has acted on, or as an entrance told its loop of.
        promised: Per output stream the boundary that it has promised; one that is missing has been
            promised none.
        laps: In a loop, per stream the last mark that it has taken, or put.
    """

    sequence: int
    processed_before: Mapping[str, int] = field(default_factory=dict)
    next_ids: Mapping[str, int] = field(default_factory=dict)
    held_from: Mapping[str, int] = field(default_factory=dict)
    acted_us: int = BEGINNING_US
    promised: Mapping[str, int] = field(default_factory=dict)
    laps: Mapping[str, int] = field(default_factory=dict)


def place_of(point: RestartPoint) -> Place:
    """The place that a restart point leads to."""
    return Place(
        point.sequence,
        point.processed_before,
        point.next_ids,
        point.held_from,
        _acted_us(point),
        point.promised,
        point.laps,
    )


def _acted_us(point: RestartPoint) -> int:
    """An entrance acts on the input from outside later than its marks say how far that has come."""
    if point.loop is None or point.loop.entrance is None:
        return point.boundary_us
    return max(point.boundary_us, point.loop.entrance.open_us)


@dataclass(frozen=True, slots=True)
class Channel:
    """A stream between two nodes of a graph.

    Attributes:
        stream: Its id.
        sender: Who sends.
        receiver: Who receives.
        repeats: Whether the sender would send the same tuples again under the same ids.
        is_feedback: Whether the receiver goes by marks, and not by what the sender promises.
    """

    stream: StreamId
    sender: NodeId
    receiver: NodeId
    repeats: bool = False
    is_feedback: bool = False

    def is_orphaned(self, sender: Place, receiver: Place) -> bool:
        """Whether there is an orphan edge between these places."""
        if self.repeats:
            return False
        processed = receiver.processed_before.get(self.stream, 0)
        if processed > sender.next_ids.get(self.stream, 0):
            return True
        if receiver.laps.get(self.stream, 0) > sender.laps.get(self.stream, 0):
            return True
        promised_us = sender.promised.get(self.stream, BEGINNING_US)
        return receiver.acted_us > promised_us and not self.is_feedback

    def is_missing(self, sender: Place, receiver: Place) -> bool:
        """Whether there is a missing edge between these places."""
        processed = receiver.processed_before.get(self.stream, 0)
        next_id = sender.next_ids.get(self.stream, 0)  # What comes from there on is yet to be made.
        return processed < min(sender.held_from.get(self.stream, 0), next_id)


class CheckpointGraph:
    """Places and channels of some nodes. Immutable."""

    def __init__(
        self, places: Mapping[NodeId, tuple[Place, ...]], channels: tuple[Channel, ...]
    ) -> None:
        """Take the places of each node, oldest first, and all channels between two of them.

        Raises:
            InvariantViolation: an end of a channel is no node of the graph, or what was processed
                or sent moves back from one place of a node to the next.
        """
        self.places = dict(places)
        self.channels = channels
        for node, own in self.places.items():
            _require_order(node, own)
        for channel in channels:
            if channel.sender not in self.places or channel.receiver not in self.places:
                raise InvariantViolation(f"an end of {channel.stream} is not in the graph")

    def without(self, node: NodeId, sequence: int) -> CheckpointGraph:
        """The same where one place cannot be gone back to: its checkpoint is damaged."""
        kept = tuple(place for place in self.places[node] if place.sequence != sequence)
        return CheckpointGraph({**self.places, node: kept}, self.channels)

    def orphans(self, line: Mapping[NodeId, Place]) -> list[Channel]:
        """The channels on which a line has an orphan."""
        return [c for c in self.channels if c.is_orphaned(line[c.sender], line[c.receiver])]

    def losses(self, line: Mapping[NodeId, Place]) -> list[Channel]:
        """The channels on which a line would lose tuples."""
        return [c for c in self.channels if c.is_missing(line[c.sender], line[c.receiver])]


def _require_order(node: NodeId, places: tuple[Place, ...]) -> None:
    for older, newer in itertools.pairwise(places):
        for name in ("processed_before", "next_ids"):
            before, after = getattr(older, name), getattr(newer, name)
            for stream, position in before.items():
                if after.get(stream, 0) < position:
                    raise InvariantViolation(
                        f"{node}: {name} of {stream} moves back from {position} to "
                        f"{after.get(stream, 0)}, from place {older.sequence} to {newer.sequence}"
                    )
