"""Z-paths: which checkpoints can be part of no consistent line. [CheckMate §III-C]

A Z-path leads from one checkpoint to another by messages, each sent in the interval in which the
one before it was received, or later; it may have been sent before that one was received. A
*useless checkpoint* has a Z-path to itself: whatever line it were in would have an orphan. One
that is merely *rolled past* was newer than the line that a recovery went back to, and could have
been in a line of another failure.

Intervals follow from ids: the places of a node say which ids it had sent and processed at each cut.
Streams are FIFO, so of all messages sent after a cut the first is processed first, and only how
early an interval is reached matters, for each node once.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.recovery.checkpoint_graph import LIVE

if TYPE_CHECKING:
    from holdfast.core.model.ids import NodeId
    from holdfast.core.recovery.checkpoint_graph import Channel, CheckpointGraph


def useless_checkpoints(graph: CheckpointGraph) -> list[tuple[NodeId, int]]:
    """All checkpoints of a graph that lie on a Z-cycle: node and sequence.

    A graph that ends with live places finds all that is useless so far; without them what was
    received after a node's last checkpoint is not known, and cannot matter.

    Raises:
        InvariantViolation: the oldest places of the nodes do not go together.

    Cost: O(checkpoints × nodes × channels × log places).
    """
    outputs: dict[NodeId, list[Channel]] = {node: [] for node in graph.places}
    for channel in graph.channels:
        if not channel.repeats:
            outputs[channel.sender].append(channel)
    return [
        (node, place.sequence)
        for node, places in graph.places.items()
        for index, place in enumerate(places)
        if place.sequence != LIVE and _is_on_a_cycle(graph, outputs, node, index)
    ]


def _is_on_a_cycle(
    graph: CheckpointGraph, outputs: dict[NodeId, list[Channel]], node: NodeId, index: int
) -> bool:
    """Whether a Z-path leads from behind a place to before it."""
    earliest = {node: index}  # per node the earliest interval that was reached
    open_ = [node]
    while open_:
        sender = open_.pop()
        for channel in outputs[sender]:
            interval = _received_in(graph, channel, earliest[sender])
            if interval is None:
                continue
            if channel.receiver == node and interval < index:
                return True
            if interval < earliest.get(channel.receiver, interval + 1):
                earliest[channel.receiver] = interval
                open_.append(channel.receiver)
    return False


def _received_in(graph: CheckpointGraph, channel: Channel, interval: int) -> int | None:
    """In which interval the first tuple was processed that was sent in an interval or later.

    An interval is named by the index of the place that it follows. None: not processed yet, or not
    before the receiver's last place.
    """
    first = graph.places[channel.sender][interval].next_ids.get(channel.stream, 0)
    places = graph.places[channel.receiver]
    before = bisect_right(places, first, key=lambda p: p.processed_before.get(channel.stream, 0))
    if before == 0:
        raise InvariantViolation(f"{channel.stream}: the oldest places have an orphan")
    return None if before == len(places) else before - 1
