"""One recovery of a region: halt, plan, write down, tell. [CheckMate §III-B]

Theory of operation. The states of a region:

    WORKING --a node is lost--> HALTING --all others have answered--> DECIDING
    DECIDING --journal written--> WORKING, or HALTING if another one was lost meanwhile

1. All survivors of the region are told to halt. Each answers where it stands; from then on it takes
   in frames, but processes nothing and cuts nothing.
2. Whoever does not answer is lost too, by the silence that its coordinator watches anyway.
3. When all have answered, the plan is made (recovery/recovery_plan.py) and written to the journal
   as one entry. Until it is durable nobody is told anything, and no replacement is assigned.
4. Then survivors are told to go back or to go on, replacements get their points.

A survivor that read on between its answer and the plan could read what the plan makes an orphan:

1. A is lost, and goes back to a place whose next id is 20. B has read up to 15, and stays.
2. Before word of it comes, B reads A's old 20 to 25 from its queue. A's new ones are others.

From the plan until its entry is durable the line stands still (`may_move_line`): 1. The plan has A
go back to its point 2. 2. A's point 3, asked for before, becomes durable first; the line moves to
it, and neighbours trim what A needs from 2 on. 3. The plan becomes durable: 3 is void, A at 2.

Nodes that are coming up when another one is lost are lost once more: they have not done anything
that counts, and the new plan may have them begin further back. Answers are to an attempt; those to
earlier ones say where a node stood before it was told to go on, and are dropped.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.errors import LocalProtocolError
from holdfast.core.machine import Effect
from holdfast.core.recovery.recovery_plan import RecoveryPlan, recovery_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.model.ids import NodeId
    from holdfast.core.recovery.checkpoint_graph import Channel, Place


@dataclass(frozen=True, slots=True)
class Halt(Effect):
    """Tell a node to process nothing and to say where it stands, with the attempt's number."""

    node: NodeId
    attempt: int


@dataclass(frozen=True, slots=True)
class RollBack(Effect):
    """Tell a survivor to go back to a point, in its process, as a later incarnation."""

    node: NodeId
    sequence: int


@dataclass(frozen=True, slots=True)
class GoOn(Effect):
    """Tell a survivor to go on where it halted."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class StartFrom(Effect):
    """A lost node's replacement may be assigned, with this point."""

    node: NodeId
    sequence: int


class RegionState(enum.Enum):
    """See the module."""

    WORKING = "working"
    HALTING = "halting"
    DECIDING = "deciding"


class Rollback:
    """The recoveries of one region in one life of the coordinator. Volatile: all fields.

    Attributes:
        state: See the module.
        attempt: Counts the times that the region was halted.
    """

    def __init__(
        self,
        members: tuple[NodeId, ...],
        channels: tuple[Channel, ...],
        *,
        is_whole: bool = False,
    ) -> None:
        """Begin with nobody at work: all members are lost when the coordinator's life begins.

        Args:
            members: The nodes of the region.
            channels: All streams between them.
            is_whole: Everybody goes back (`rolls_back="all"`).
        """
        self._members = members
        self._channels = channels
        self._is_whole = is_whole
        self.state = RegionState.HALTING
        self.attempt = 1
        self._lost = dict.fromkeys(members)  # members without a survivor in this attempt
        self._lost_meanwhile: dict[NodeId, None] = {}  # while the plan is being written down
        self._coming = dict.fromkeys(members)  # not yet at work
        self._live: dict[NodeId, Place] = {}  # where survivors stand that have answered
        self._plan: RecoveryPlan | None = None

    def at_work(self, node: NodeId) -> None:
        """A replacement has come up, with the point that it was to start from."""
        if self.state is RegionState.WORKING:
            self._coming.pop(node, None)

    def lost(self, node: NodeId) -> list[Effect]:
        """A member is gone; or it came up and found its checkpoint damaged."""
        self._coming[node] = None
        if self.state is RegionState.DECIDING:
            self._lost_meanwhile[node] = None
            return []
        self._lost[node] = None
        self._live.pop(node, None)
        return self._halt() if self.state is RegionState.WORKING else []

    def _halt(self) -> list[Effect]:
        self.state = RegionState.HALTING
        self.attempt += 1
        self._lost.update(self._coming)
        self._live = {}
        return [Halt(node, self.attempt) for node in self._survivors()]

    def _survivors(self) -> list[NodeId]:
        return [node for node in self._members if node not in self._lost]

    def halted(self, node: NodeId, attempt: int, place: Place) -> None:
        """A survivor says where it stands."""
        is_expected = self.state is RegionState.HALTING and attempt == self.attempt
        if is_expected and node not in self._lost:
            self._live[node] = place

    @property
    def is_at_work(self) -> bool:
        """Whether all members are; a round that begins before would not reach who is coming up."""
        return self.state is RegionState.WORKING and not self._coming

    @property
    def live(self) -> Mapping[NodeId, Place]:
        """Where those survivors stand that have answered."""
        return self._live

    @property
    def lost_nodes(self) -> tuple[NodeId, ...]:
        """Members without a survivor in this attempt."""
        return tuple(self._lost)

    def awaits(self, node: NodeId) -> bool:
        """Whether a survivor has not said yet where it stands."""
        is_survivor = node not in self._lost and node not in self._live
        return self.state is RegionState.HALTING and is_survivor

    @property
    def is_ready(self) -> bool:
        """Whether the plan can be made."""
        return self.state is RegionState.HALTING and len(self._live) == len(self._survivors())

    @property
    def may_move_line(self) -> bool:
        """Whether durable points may move the line now; what it would be is asked again later."""
        return self.state is not RegionState.DECIDING

    def going_back(self, points: Mapping[NodeId, tuple[Place, ...]]) -> tuple[NodeId, ...]:
        """The survivors that the plan would have go back; args and errors as of `decide`."""
        plan = recovery_plan(points, self._live, self._channels, is_whole=self._is_whole)
        return tuple(node for node in self._live if node in plan.back_to)

    def decide(self, points: Mapping[NodeId, tuple[Place, ...]]) -> RecoveryPlan:
        """Make the plan, for the caller to write down.

        Args:
            points: Per member its durable points, oldest first, void and damaged ones left out.

        Raises:
            LocalProtocolError: not all have answered.
            NoLine: a checkpoint that is needed is damaged.
        """
        if not self.is_ready:
            raise LocalProtocolError("the plan is made before all survivors have answered")
        plan = recovery_plan(points, self._live, self._channels, is_whole=self._is_whole)
        self._plan = plan
        self.state = RegionState.DECIDING
        return plan

    def journalled(self) -> list[Effect]:
        """The plan is durable: everybody may know.

        Raises:
            LocalProtocolError: no plan was to be written down.
        """
        if self._plan is None:
            raise LocalProtocolError("no recovery was decided")
        effects = [self._word(node, self._plan) for node in self._members]
        self.state = RegionState.WORKING
        self._plan = None
        self._lost = self._lost_meanwhile
        self._lost_meanwhile = {}
        return effects + (self._halt() if self._lost else [])

    def _word(self, node: NodeId, plan: RecoveryPlan) -> Effect:
        if node in self._lost:
            return StartFrom(node, plan.back_to[node])
        if node in plan.back_to:
            return RollBack(node, plan.back_to[node])
        return GoOn(node)
