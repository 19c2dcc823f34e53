"""What the coordinator's journal says, entry by entry; wire/journal_entries.py makes lines of it.

An entry is a decision, or a fact that decisions rest on. All of an entry is durable, or nothing of
it: what concerns several nodes together stands in one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.model.ids import Incarnation, NodeId, PointId
from holdfast.core.recovery.restart_point import RestartPoint


@dataclass(frozen=True, slots=True)
class NewLife:
    """What a decision gives one node.

    Attributes:
        node: Which.
        incarnation: As which it goes on; larger than any before.
        goes_back_to: The restart point that it goes back to, so that all later ones of its earlier
            incarnations are void; None: it goes on from the newest one.
    """

    node: NodeId
    incarnation: Incarnation
    goes_back_to: PointId | None = None


@dataclass(frozen=True, slots=True)
class RecoveryDecision:
    """Nodes begin new lives, all of them or none. [HA §4, CheckMate §III]

    Attributes:
        lives: One per node that is given a new incarnation; a node occurs once.
    """

    lives: tuple[NewLife, ...]


@dataclass(frozen=True, slots=True)
class PointNoted:
    """A restart point is durable.

    Attributes:
        node: Whose.
        incarnation: Which of its incarnations has noted it; 0: a journal of version 1 does not say.
        point: The point.
        keeps_older: Whether the points before it stay, until `LineMoved` passes them.
    """

    node: NodeId
    incarnation: Incarnation
    point: RestartPoint
    keeps_older: bool = False

    @property
    def point_id(self) -> PointId:
        """Names it among the points of its node."""
        return PointId(self.incarnation, self.point.sequence)


@dataclass(frozen=True, slots=True)
class LineMoved:
    """Recovery will go back no further than these points.

    Attributes:
        line: Per node the oldest point that may still be gone back to.
    """

    line: dict[NodeId, PointId]


@dataclass(frozen=True, slots=True)
class InstancesDecided:
    """An elastic restart has given units other numbers of instances.

    Attributes:
        instances: Per unit.
    """

    instances: dict[str, int]


@dataclass(frozen=True, slots=True)
class LeftAtCut:
    """All nodes were stopped at one cut in common, of which their points are; until one lives."""


@dataclass(frozen=True, slots=True)
class DataflowDecided:
    """The location goes on with a changed dataflow.

    Attributes:
        text: The dataflow as text; `dataflow.txt` says that of the first start.
    """

    text: str


class Ending(StrEnum):
    """How a driver's life ended, as it says itself; one that was killed says nothing."""

    FINISHED = "finished"  # the input was worked off: nothing is left to do
    STOPPED = "stopped"  # somebody has stopped the query
    LEFT = "left"  # the process had to go; the query is another driver's
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """The driver lives, and had nothing else to write for a while."""


@dataclass(frozen=True, slots=True)
class LifeEnded:
    """The last word of a driver.

    Attributes:
        ending: How its life ended.
    """

    ending: Ending


JournalEntry = (
    RecoveryDecision
    | PointNoted
    | LineMoved
    | InstancesDecided
    | LeftAtCut
    | DataflowDecided
    | LeaseRenewed
    | LifeEnded
)
