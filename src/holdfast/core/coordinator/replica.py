"""One replica of an instance, as the coordinator knows it: a task that is to run, or runs.

`TRANSITIONS` has all steps of its life; any other one is an error of ours. A lost replica is
launched again at once or waits, in the step in which it was lost, unless that ends the query.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.plan import Standby
from holdfast.core.model.ids import NOBODY, Incarnation

if TYPE_CHECKING:
    from holdfast.core.coordinator.events import HelloReceived
    from holdfast.core.coordinator.limits import CoordinatorLimits
    from holdfast.core.haunit.plan import NodePlan

_PAUSE_MAX = 64


class Role(enum.Enum):
    """What a replica is to its instance."""

    PRIMARY = "primary"  # counts: it puts out, and its restart points are stored
    SECONDARY = "secondary"  # follows the primary, and takes over when that is lost


class NodeState(enum.Enum):
    """Where a replica is in its life."""

    WAITING = "waiting"
    LAUNCHING = "launching"
    ASSIGNING = "assigning"
    RUNNING = "running"
    PROMOTING = "promoting"
    LOST = "lost"


TRANSITIONS: Final[Mapping[NodeState, tuple[NodeState, ...]]] = {
    NodeState.WAITING: (NodeState.LAUNCHING,),
    NodeState.LAUNCHING: (NodeState.ASSIGNING, NodeState.LAUNCHING, NodeState.WAITING),
    NodeState.ASSIGNING: (NodeState.RUNNING, NodeState.LOST),
    NodeState.RUNNING: (NodeState.PROMOTING, NodeState.LOST),
    NodeState.PROMOTING: (NodeState.RUNNING, NodeState.LOST),
    NodeState.LOST: (NodeState.LAUNCHING, NodeState.WAITING, NodeState.ASSIGNING),
}
"""All that may follow upon a state."""

_DOWN: Final = (NodeState.WAITING, NodeState.LAUNCHING, NodeState.LOST)


@dataclass(slots=True)
class BackOff:
    """A factor that doubles every time, up to a bound."""

    most: int
    factor: int = 1

    def double(self) -> None:
        """It has happened again."""
        self.factor = min(self.most, 2 * self.factor)

    def reset(self) -> None:
        """It has not happened for long."""
        self.factor = 1


@dataclass(slots=True)
class Replica:
    """One replica: a task that is to run, or runs."""

    role: Role
    state: NodeState = NodeState.WAITING
    launch: int = 0  # number of its newest launch; 0: none is expected
    relief: int = 0  # a launch under way while its task still works, to take over from it; 0: none
    launched_at_ms: int = 0
    failed_launches: int = 0  # in a row, without a hello
    task: str | None = None
    endpoint: str = ""
    incarnation: Incarnation = NOBODY  # as which it counts now
    former: Incarnation = NOBODY  # as which it counted before it was promoted
    heard_ms: int = 0
    assigned_ms: int = 0
    has_spoken: bool = False  # its task knows which incarnation it is
    is_told: bool = False  # a secondary that knows, or should, that it is promoted
    has_joined: bool = False  # a secondary that all its producers serve
    has_caught_up: bool = False
    host: str = ""  # its machine; empty: it has none, or it does not matter
    moves: int = 0  # in a row, because it came up beside another replica
    due_ms: int = 0  # a secondary is not launched before
    pause: BackOff = field(default_factory=lambda: BackOff(_PAUSE_MAX))  # after failures in a row
    timeouts: int = 0  # in a row, of launches without a hello
    last_words: str = ""  # why it fails, as its task said before it fell silent

    def enter(self, state: NodeState) -> None:
        """Go on to a state. Raises `InvariantViolation` if it may not follow."""
        if state not in TRANSITIONS[self.state]:
            raise InvariantViolation(f"a replica is {self.state.value}, then {state.value}")
        self.state = state

    @property
    def is_down(self) -> bool:
        """Whether no task of it has come up."""
        return self.state in _DOWN

    @property
    def is_waiting(self) -> bool:
        """Whether it is to be launched, at `due_ms` or later."""
        return self.state is NodeState.WAITING

    @property
    def is_up(self) -> bool:
        """Whether it works, or is about to."""
        return self.state in (NodeState.RUNNING, NodeState.PROMOTING)

    def may_not_know(self, now_ms: int, most_ms: int) -> bool:
        """Whether it is to work, and its task may not know that yet, but no longer than so."""
        return self.is_up and not self.has_spoken and now_ms - self.assigned_ms <= most_ms

    @property
    def began(self) -> tuple[Incarnation, bool]:
        """As which incarnation its task begins, or has begun, and whether as a secondary.

        One that is being promoted begins as what it was before.
        """
        is_secondary = self.role is Role.SECONDARY or self.state is NodeState.PROMOTING
        return self.former or self.incarnation, is_secondary

    @property
    def is_failing(self) -> bool:
        """Whether it has been lost again and again as a secondary."""
        return self.pause.factor > 2

    def is_ready(self, plan: NodePlan) -> bool:
        """Whether a secondary can take over without a pause."""
        return self.has_joined and (self.has_caught_up or plan.standby is Standby.PASSIVE)

    def launched(self, launch: int, now_ms: int) -> None:
        """A launch is on its way."""
        self.enter(NodeState.LAUNCHING)
        self.launch = launch
        self.relief = 0
        self.launched_at_ms = now_ms

    def wait(self) -> None:
        """Its last launch is not expected any more; there will be another."""
        if not self.is_waiting:
            self.enter(NodeState.WAITING)
        self.launch = self.relief = 0

    def answers_hello(self, launch: int) -> bool:
        """Whether a task of this launch is to run it."""
        return launch != 0 and launch in (self.launch, self.relief)

    def came_up(self, hello: HelloReceived, incarnation: Incarnation, now_ms: int) -> None:
        """A task is there, and is given an incarnation."""
        self.enter(NodeState.ASSIGNING)
        self.launch = hello.launch
        if self.relief == hello.launch:
            self.relief = 0
        self.task, self.endpoint, self.host = hello.task, hello.endpoint, hello.host
        self.failed_launches = self.timeouts = self.moves = 0
        self.heard_ms = now_ms
        self.has_spoken = False
        self.incarnation = incarnation

    def assigned(self, now_ms: int) -> None:
        """It may work, and its task is told."""
        self.enter(NodeState.RUNNING)
        self.assigned_ms = now_ms

    def promote(self, incarnation: Incarnation) -> None:
        """It is to count as another incarnation; words of the former one are still its own."""
        self.enter(NodeState.PROMOTING)
        self.former, self.incarnation = self.incarnation, incarnation

    def promoted(self) -> None:
        """It counts."""
        self.enter(NodeState.RUNNING)
        self.is_told = self.has_joined = self.has_caught_up = False

    def back_off(self, now_ms: int, limits: CoordinatorLimits) -> None:
        """A secondary is lost: the first time it is launched again at once, then after pauses.

        One that is lost a whole window after its launch is lost for the first time.
        """
        if now_ms - self.launched_at_ms > limits.failure_window_ms:
            self.pause.reset()
        self.due_ms = now_ms + limits.keep_alive_ms * (self.pause.factor - 1)
        self.pause.double()

    def answers_to(self, incarnation: Incarnation) -> bool:
        """Whether a word of this incarnation is its own."""
        return incarnation != NOBODY and incarnation in (self.incarnation, self.former)

    def lose(self, now_ms: int) -> None:
        """Its task is gone; another one is to come up."""
        self.enter(NodeState.LOST)
        self.launched_at_ms = now_ms
        self.task = None
        self.host = self.last_words = ""
        self.incarnation = self.former = NOBODY
        self.is_told = self.has_joined = self.has_caught_up = False

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if its fields do not fit its state."""
        if self.is_down != (self.task is None):
            raise InvariantViolation(f"a replica is {self.state.value} with the task {self.task}")
        if self.is_down != (self.incarnation == NOBODY):
            raise InvariantViolation(f"a replica is {self.state.value} as {self.incarnation}")
        if self.relief and self.relief <= self.launch:
            raise InvariantViolation(f"launch {self.relief} is to relieve the later {self.launch}")
        if self.is_waiting and self.launch:
            raise InvariantViolation(f"a replica waits, and launch {self.launch} is expected")
        if self.state is NodeState.PROMOTING and self.role is not Role.PRIMARY:
            raise InvariantViolation("a secondary is being promoted and is not the primary")
