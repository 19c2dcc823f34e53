"""Who takes part in communication-induced checkpointing, and which edges carry what it says.

Where there is no cycle of nodes, no checkpoint can be useless: a Z-path that comes back needs one.
So what is said can stay within the strongly connected components of the dataflow, and a dataflow
without cycles says nothing. (Beyond the paper, which includes every node.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from holdfast.core.model.ids import NodeId

_Name = TypeVar("_Name", bound=str)


@dataclass(frozen=True, slots=True)
class Scope:
    """The scope of one node.

    Attributes:
        members: How many nodes take part.
        own: Which of them the node is.
        inputs: Per input which of them sends; -1: the sender does not take part.
        outputs: Per output which of them receives; -1: the receiver does not take part.
    """

    members: int
    own: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def components(edges: tuple[tuple[NodeId, NodeId], ...]) -> dict[NodeId, tuple[NodeId, ...]]:
    """The strongly connected component of every node on an edge, in the order of their names.

    Cost: O(nodes × edges); dataflows are small.
    """
    nodes = dict.fromkeys(name for edge in edges for name in edge)
    reach = {node: reached(node, edges) for node in nodes}
    return {
        node: tuple(
            sorted(n for n in nodes if n == node or (n in reach[node] and node in reach[n]))
        )
        for node in nodes
    }


def reached(start: _Name, edges: tuple[tuple[_Name, _Name], ...]) -> dict[_Name, None]:
    """All nodes, or units, that a path of at least one edge leads to."""
    followers: dict[_Name, list[_Name]] = {}
    for sender, receiver in edges:
        followers.setdefault(sender, []).append(receiver)
    found: dict[_Name, None] = {}
    open_ = list(followers.get(start, ()))
    while open_:
        node = open_.pop()
        if node not in found:
            found[node] = None
            open_ += followers.get(node, ())
    return found


def scope_of(
    node: NodeId,
    members: tuple[NodeId, ...],
    senders: tuple[NodeId, ...],
    receivers: tuple[NodeId, ...],
) -> Scope:
    """The scope of a node among these members.

    Args:
        node: One of the members.
        members: All that take part, in the same order everywhere.
        senders: Per input of the node who sends.
        receivers: Per output of the node who receives.
    """
    place = {member: index for index, member in enumerate(members)}
    return Scope(
        len(members),
        place[node],
        tuple(place.get(sender, -1) for sender in senders),
        tuple(place.get(receiver, -1) for receiver in receivers),
    )
