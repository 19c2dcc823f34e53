"""The recovery line: the newest places of all nodes that go together. [CheckMate Algorithm 1]

Rollback propagation: begin with the newest place of each node; as long as an edge of the checkpoint
graph joins two places, the one that it forbids gives way to the one before it. Nobody gives way
without need: the other end of the edge is as new as in any line, and an older one would forbid the
place no less. So what is left at the end is the newest consistent line in all nodes at once: there
is only one.

Departure from the paper: it marks all that is *reachable* within the root set at once; here each
edge moves its own end, which comes to the same line and costs each place and channel once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.core.model.ids import NodeId
    from holdfast.core.recovery.checkpoint_graph import Channel, CheckpointGraph, Place


_CURE: Final = "Keep more of them (kept=2) from the next run on"


class NoLine(RuntimeError):
    """No places of all nodes go together: a checkpoint that was still needed is damaged."""


def recovery_line(graph: CheckpointGraph) -> dict[NodeId, Place]:
    """The place of each node on the newest consistent line.

    Raises:
        NoLine: there is none.

    Cost: O(places × channels of a node).
    """
    newest = {node: len(places) - 1 for node, places in graph.places.items()}
    for node, index in newest.items():
        if index < 0:
            raise NoLine(f"{node} has no checkpoint that can be read. {_CURE}")
    touching: dict[NodeId, list[Channel]] = {node: [] for node in graph.places}
    for channel in graph.channels:
        touching[channel.sender].append(channel)
        if channel.receiver != channel.sender:
            touching[channel.receiver].append(channel)
    open_ = list(graph.channels)
    while open_:
        channel = open_.pop()
        moved = _moved_by(channel, graph, newest)
        if moved is not None:
            _go_back(moved, newest, channel)
            open_ += touching[moved]
    return {node: graph.places[node][index] for node, index in newest.items()}


def _moved_by(channel: Channel, graph: CheckpointGraph, newest: dict[NodeId, int]) -> NodeId | None:
    """Who has to go back for this channel, if anybody."""
    sender = graph.places[channel.sender][newest[channel.sender]]
    receiver = graph.places[channel.receiver][newest[channel.receiver]]
    if channel.is_orphaned(sender, receiver):
        return channel.receiver
    if channel.is_missing(sender, receiver):
        return channel.sender
    return None


def _go_back(node: NodeId, newest: dict[NodeId, int], channel: Channel) -> None:
    if newest[node] == 0:
        raise NoLine(
            f"{node} has no checkpoint that fits those of its neighbours on {channel.stream}: "
            f"one that was needed is damaged. {_CURE}"
        )
    newest[node] -= 1
