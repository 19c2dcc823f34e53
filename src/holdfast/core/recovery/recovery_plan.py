"""Who goes back where after a failure: one decision for a whole region. [CheckMate §III-B]

Theory of operation. A region is a connected set of units under coordinated, uncoordinated or
communication-induced checkpoints; nodes are its units' instances. When some of its nodes are lost,
the others halt first and say where they stand, and what does not answer is lost, too: a survivor
that read on while the plan is made could read what the plan makes an orphan.

- A lost node goes on from one of its checkpoints; a survivor stays where it stands, if the line
  lets it, or goes back, in its process.
- Nodes that repeat are not dragged back: there are no orphan edges behind them. With
  `rolls_back="all"` everybody goes back to the newest line of checkpoints, as in the paper.
- Whoever goes back gets a new incarnation; points of earlier incarnations newer than the place are
  void, also when word of them comes later.
- What a receiver has in its queue of a sender that goes back and does not repeat is void from the
  sender's new `next_ids` on: other tuples will come under those ids. What is older stays. Notes
  come otherwise even of a sender that repeats: those from its `next_ids` on are void, and new ones
  may stand before tuples that the receiver has had.

All of this is one journal entry: a driver that dies before it is written decides anew; one that
dies behind it tells everybody again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.recovery.checkpoint_graph import LIVE, CheckpointGraph
from holdfast.core.recovery.recovery_line import recovery_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.model.ids import NodeId
    from holdfast.core.recovery.checkpoint_graph import Channel, Place


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What a region does after a failure.

    Attributes:
        back_to: Per node that goes back the sequence of its point; who is missing goes on.
        resumes_at: Per stream of a sender that goes back its new next id: notes from there on will
            be others, and tuples too unless it repeats.
        rolled_past: Checkpoints that were newer than the line.
        line: The place of every node.
    """

    back_to: dict[NodeId, int]
    resumes_at: dict[str, int]
    rolled_past: int
    line: dict[NodeId, Place] = field(compare=False)


def with_survivors(
    points: Mapping[NodeId, tuple[Place, ...]], live: Mapping[NodeId, Place]
) -> dict[NodeId, tuple[Place, ...]]:
    """The places of each node: its points, oldest first, then where it stands if it survives."""
    return {node: (*own, live[node]) if node in live else own for node, own in points.items()}


def recovery_plan(
    points: Mapping[NodeId, tuple[Place, ...]],
    live: Mapping[NodeId, Place],
    channels: tuple[Channel, ...],
    *,
    is_whole: bool = False,
) -> RecoveryPlan:
    """Plan the recovery of a region.

    Args:
        points: Per node the durable points that it may go back to, oldest first; void and damaged
            ones left out.
        live: Where those stand that survive.
        channels: All streams between these nodes.
        is_whole: Everybody goes back, survivors as well (`rolls_back="all"`).

    Raises:
        NoLine: some checkpoint that is needed is damaged.
    """
    kept = {} if is_whole else live
    line = recovery_line(CheckpointGraph(with_survivors(points, kept), channels))
    back_to = {node: place.sequence for node, place in line.items() if place.sequence != LIVE}
    return RecoveryPlan(
        back_to,
        _resumed(line, channels),
        sum(
            place.sequence > sequence
            for node, sequence in back_to.items()
            for place in points[node]
        ),
        line,
    )


def _resumed(line: Mapping[NodeId, Place], channels: tuple[Channel, ...]) -> dict[str, int]:
    return {
        channel.stream: line[channel.sender].next_ids.get(channel.stream, 0)
        for channel in channels
        if line[channel.sender].sequence != LIVE
    }
