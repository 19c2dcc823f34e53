"""The stimuli and effects of the coordinator.

Words of nodes are stimuli as they come from the wire, beside those for people (reports.py); what
nodes are told in words is in haunit/told.py. See wire/node_words.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.ids import NOBODY, Incarnation, NodeId, StreamId, TimeUs
from holdfast.core.queues.idle_floor import Reached
from holdfast.core.recovery.restart_point import RestartPoint

if TYPE_CHECKING:
    from holdfast.core.coordinator.journal_entries import JournalEntry
    from holdfast.core.haunit.plan import Assignment
    from holdfast.core.haunit.told import Resumed

# -- stimuli --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started(Stimulus):
    """The coordinator may begin."""


@dataclass(frozen=True, slots=True)
class HelloReceived(Stimulus):
    """A task has come up for a node.

    Attributes:
        node: Whose instance it runs.
        launch: Of which launch it is.
        task: Names the task's process uniquely; the answer goes there.
        endpoint: Where its neighbours reach it.
        host: The machine that it runs on; empty: whichever.
        former: What ended the process before it in this task; empty: not known, or there was none.
    """

    node: NodeId
    launch: int
    task: str
    endpoint: str
    host: str = ""
    former: str = ""


@dataclass(frozen=True, slots=True)
class HostsKnown(Stimulus):
    """The machines that have room for another task now."""

    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TasksLeaving(Stimulus):
    """Spark will soon end the executors of these launches; said again as long as it is so."""

    launches: tuple[tuple[NodeId, int], ...]


@dataclass(frozen=True, slots=True)
class KeepAliveReceived(Stimulus):
    """A node lives.

    Attributes:
        node: The node.
        incarnation: Its incarnation.
        peers: The incarnations of its neighbours as it knows them, and of its own primary; if the
            word of a new one was lost, it is repeated.
        secondaries: The same of their secondaries, and of its own.
        has_joined: Whether it is a secondary that all its producers serve.
        reached: How far its sources are, of those that may be idle.
        waits: What it waits for, as people should read it.
    """

    node: NodeId
    incarnation: Incarnation
    peers: dict[NodeId, Incarnation]
    secondaries: dict[NodeId, Incarnation] = field(default_factory=dict)
    has_joined: bool = False
    reached: dict[StreamId, Reached] = field(default_factory=dict)
    waits: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskEnded(Stimulus):
    """Spark reports that the task of a launch has ended, or failed."""

    node: NodeId
    launch: int
    reason: str


@dataclass(frozen=True, slots=True)
class NodeFailed(Stimulus):
    """A node reports an error of its own before it dies."""

    node: NodeId
    incarnation: Incarnation
    reason: str
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class PointDamaged(Stimulus):
    """A node that recovers with others cannot read the checkpoint of its restart point; it ends.

    Attributes:
        node: Which.
        incarnation: As which it was to begin.
        sequence: Of the point.
        reason: What is wrong.
    """

    node: NodeId
    incarnation: Incarnation
    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class ZombieHeard(Stimulus):
    """An incarnation that was taken for dead has spoken: it was only slow."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class NodePromoted(Stimulus):
    """A secondary that was told to take over has done so."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class HandoverWanted(Stimulus):
    """The user wants a node's secondary to take over from this task of the primary now."""

    node: NodeId
    task: str


@dataclass(frozen=True, slots=True)
class RestartPointReceived(Stimulus):
    """A node asks to store a safe restart point."""

    node: NodeId
    incarnation: Incarnation
    point: RestartPoint


@dataclass(frozen=True, slots=True)
class TurnWanted(Stimulus):
    """A node has to correct, and wants to know when its other replicas go on meanwhile.

    Attributes:
        node: The node.
        incarnation: Its.
        asking: Counts the corrections for which it has asked.
    """

    node: NodeId
    incarnation: Incarnation
    asking: int


@dataclass(frozen=True, slots=True)
class TurnLeft(Stimulus):
    """A node has corrected, or wants no turn any more."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class WriteWanted(Stimulus):
    """A node has a checkpoint to write, and waits to be admitted."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class WriteEnded(Stimulus):
    """A node that was admitted has written its checkpoint, or will not."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class NodeHalted(Stimulus):
    """A member of a region has halted; it says so again until it is told what to do.

    Attributes:
        node: The node.
        incarnation: As which it speaks.
        attempt: As it was told.
        went_on: The last attempt that it was told to go on after; 0: none.
        place: The cut where it stands.
    """

    node: NodeId
    incarnation: Incarnation
    attempt: int
    went_on: int
    place: RestartPoint


@dataclass(frozen=True, slots=True)
class RoundWanted(Stimulus):
    """A member of a region has no more room for what waits for a round, or for others to cut."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class RoundFailed(Stimulus):
    """A member's checkpoint for a round came to nothing; said until the round is over."""

    node: NodeId
    incarnation: Incarnation
    round: int


@dataclass(frozen=True, slots=True)
class NodeFinished(Stimulus):
    """A node has processed all its input and put out everything."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class NodeCaughtUp(Stimulus):
    """A replacement has replayed its input up to the cut."""

    node: NodeId
    incarnation: Incarnation
    replayed_tuples: int


@dataclass(frozen=True, slots=True)
class FirstOutput(Stimulus):
    """A replacement has put out its first new tuple."""

    node: NodeId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class JournalWritten(Stimulus):
    """The entries of a `WriteJournal` are durable."""

    request_id: int


# -- effects --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaunchTask(Effect):
    """Submit a Spark job for a node; its end comes back as `TaskEnded` with this number."""

    node: NodeId
    launch: int


@dataclass(frozen=True, slots=True)
class EndTask(Effect):
    """End the process of a fenced incarnation, if it still runs.

    One that was at work when it was ended cannot say any more that it was only slow: then the shell
    says `ZombieHeard`.

    Attributes:
        node: Whose process it is.
        task: The process.
        incarnation: That it worked as; `NOBODY`: as none.
    """

    node: NodeId
    task: str
    incarnation: Incarnation = NOBODY


@dataclass(frozen=True, slots=True)
class WriteJournal(Effect):
    """Make entries durable; answered by `JournalWritten`."""

    request_id: int
    entries: tuple[JournalEntry, ...]


@dataclass(frozen=True, slots=True)
class TellPeer(Effect):
    """Tell a running node who a neighbour's replicas are, or its own, and where the primary is.

    Attributes:
        node: Whom to tell.
        task: Which of its replicas.
        peer: The neighbour; the node itself for its own replicas.
        incarnation: Of the neighbour's primary.
        endpoint: Where that is.
        secondary: Of its secondary; 0: it has none.
    """

    node: NodeId
    task: str
    peer: NodeId
    incarnation: Incarnation
    endpoint: str
    secondary: Incarnation


@dataclass(frozen=True, slots=True)
class SendAssignment(Effect):
    """Tell a task which incarnation it is, and who its neighbours are."""

    node: NodeId
    task: str
    assignment: Assignment
    peers: tuple[TellPeer, ...]


@dataclass(frozen=True, slots=True)
class SendPromotion(Effect):
    """Tell a secondary that it is the primary from now on; answered by `NodePromoted`."""

    node: NodeId
    task: str
    incarnation: Incarnation
    restart_point: RestartPoint | None


@dataclass(frozen=True, slots=True)
class TellPointStored(Effect):
    """Tell a node that its restart point is durable."""

    node: NodeId
    task: str
    incarnation: Incarnation
    sequence: int


@dataclass(frozen=True, slots=True)
class TellHalt(Effect):
    """Tell a member of a region to process nothing; answered by `NodeHalted`."""

    node: NodeId
    task: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TellGoOn(Effect):
    """Tell a member that has halted to go on, and what of its input is void."""

    node: NodeId
    task: str
    attempt: int
    resumed: dict[StreamId, Resumed]


@dataclass(frozen=True, slots=True)
class TellRollBack(Effect):
    """Tell a member that has halted to end: its replacement goes on from an earlier point."""

    node: NodeId
    task: str
    attempt: int


@dataclass(frozen=True, slots=True)
class TellLineMoved(Effect):
    """Tell a member which of its points recovery goes back behind no more."""

    node: NodeId
    task: str
    sequence: int


@dataclass(frozen=True, slots=True)
class TellRound(Effect):
    """Tell a member of a region how far its rounds are; see `RoundTold`."""

    node: NodeId
    task: str
    begun: int
    over: int


@dataclass(frozen=True, slots=True)
class TellCut(Effect):
    """Tell a member of a region that the line waits for its cut; see `CutTold`."""

    node: NodeId
    task: str


@dataclass(frozen=True, slots=True)
class TellFloor(Effect):
    """Tell a primary what an idle source of its may promise.

    Attributes:
        node: The node.
        task: Of its primary.
        incarnation: As which it counts.
        stream: The source's.
        floor_us: See `queues/idle_floor.py`.
    """

    node: NodeId
    task: str
    incarnation: Incarnation
    stream: StreamId
    floor_us: TimeUs


@dataclass(frozen=True, slots=True)
class ReportFailure(Effect):
    """A node was taken for lost."""

    node: NodeId
    incarnation: Incarnation
    reason: str
    silent_ms: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class ReportRecovery(Effect):
    """A lost node works again.

    Attributes:
        node: The node.
        detected_ms: From the last sign of life to the decision that it is lost.
        restarted_ms: From that decision until the replacement said hello.
        replayed_ms: From there until it had replayed its input.
        recovered_ms: From the last sign of life to the first new output.
        replayed_tuples: How many tuples it processed in silence.
        was_promoted: Whether its secondary took over.
    """

    node: NodeId
    detected_ms: int
    restarted_ms: int
    replayed_ms: int
    recovered_ms: int
    replayed_tuples: int
    was_promoted: bool


@dataclass(frozen=True, slots=True)
class FinishQuery(Effect):
    """All nodes are done."""


@dataclass(frozen=True, slots=True)
class FailQuery(Effect):
    """The query cannot go on."""

    reason: str
