"""What the coordinator tells a node's process, as it comes from the wire.

`WriteAdmitted` and `RestartPointStored` of events.py are words too, which go to the node's machine
as they are. See wire/node_words.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.machine import Stimulus
from holdfast.core.model.ids import Incarnation, NodeId, StreamId, TimeUs
from holdfast.core.recovery.restart_point import RestartPoint


@dataclass(frozen=True, slots=True)
class PeerTold(Stimulus):
    """Which replicas of a neighbour, or of the node itself, count from now on.

    Attributes:
        peer: The neighbour.
        incarnation: Of its primary.
        endpoint: Where its primary is.
        secondary: Of its secondary; 0: it has none.
    """

    peer: NodeId
    incarnation: Incarnation
    endpoint: str
    secondary: Incarnation


@dataclass(frozen=True, slots=True)
class AssignmentReceived(Stimulus):
    """The process is to run the node.

    Attributes:
        epoch: Counts the coordinator's own lives.
        incarnation: As which.
        restart_point: From where to go on; None: from the very beginning.
        is_secondary: Whether it follows the primary until it is promoted.
        peers: Those of its neighbours that are at work.
        rounds_over: The newest round of its region that does nothing any more. A `RoundTold` may
            come later than a marker of such a round.
    """

    epoch: int
    incarnation: Incarnation
    restart_point: RestartPoint | None
    is_secondary: bool
    peers: tuple[PeerTold, ...]
    rounds_over: int = NO_ROUND


@dataclass(frozen=True, slots=True)
class PromotionReceived(Stimulus):
    """The secondary is to be the primary.

    Attributes:
        incarnation: As which it counts from now on.
        restart_point: The newest one stored, by the former primary.
    """

    incarnation: Incarnation
    restart_point: RestartPoint | None


@dataclass(frozen=True, slots=True)
class HaltTold(Stimulus):
    """A member of the node's region is lost: process nothing, and say where you stand.

    Attributes:
        attempt: Counts the times that the region was halted.
    """

    attempt: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where a stream goes on whose sender goes back.

    Attributes:
        next_id: From this tuple on others will come.
        incarnation: Of the sender; what earlier ones still send is void.
    """

    next_id: int
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class GoOnTold(Stimulus):
    """The halt is over, and the node goes on from where it stands.

    Attributes:
        attempt: Which halt.
        resumed: Per input stream whose sender goes back where that is.
    """

    attempt: int
    resumed: dict[StreamId, Resumed]


@dataclass(frozen=True, slots=True)
class RollBackTold(Stimulus):
    """The halt is over, and the node is to end: its replacement goes on from an earlier point."""

    attempt: int


@dataclass(frozen=True, slots=True)
class LineTold(Stimulus):
    """Recovery goes back behind this restart point of the node no more."""

    sequence: int


@dataclass(frozen=True, slots=True)
class RoundTold(Stimulus):
    """How far the rounds of the node's region are.

    Attributes:
        begun: The round that is under way; 0: none is.
        over: The newest one that does nothing any more.
    """

    begun: int
    over: int


@dataclass(frozen=True, slots=True)
class CutTold(Stimulus):
    """Another member of the node's region has no more room, and waits for the node's next cut."""


@dataclass(frozen=True, slots=True)
class FloorTold(Stimulus):
    """What an idle source may promise; see queues/idle_floor.py."""

    stream: StreamId
    floor_us: TimeUs


@dataclass(frozen=True, slots=True)
class LeaseRenewed(Stimulus):
    """The coordinator has heard the process."""


@dataclass(frozen=True, slots=True)
class Fenced(Stimulus):
    """A later incarnation counts: the process is to end."""


@dataclass(frozen=True, slots=True)
class StopReceived(Stimulus):
    """The query ends: the process is to say its last words, and to end."""


@dataclass(frozen=True, slots=True)
class FiguresWanted(Stimulus):
    """Somebody waits for what the node has done, and not for its next report."""


@dataclass(frozen=True, slots=True)
class RowsWanted(Stimulus):
    """Somebody wants to see the rows that the node has sent last.

    Attributes:
        ticket: The answer has the same.
    """

    ticket: int


@dataclass(frozen=True, slots=True)
class KillReceived(Stimulus):
    """The process is to send itself SIGKILL: the user wants to see it killed."""
