"""What the coordinator knows of one instance of a unit: its replicas, and what befell them."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.haunit.plan import Standby
from holdfast.core.model.ids import NOBODY, Incarnation

if TYPE_CHECKING:
    from holdfast.core.coordinator.events import RestartPointReceived
    from holdfast.core.haunit.plan import NodePlan

_PATIENCE_MAX = 8
_PAUSE_MAX = 64


class NodeState(enum.Enum):
    """Where a replica is in its life."""

    LAUNCHING = "launching"
    ASSIGNING = "assigning"
    RUNNING = "running"
    PROMOTING = "promoting"


@dataclass(slots=True)
class Recovery:
    """Times of one failure, ms on the coordinator's clock."""

    last_alive_ms: int
    detected_at_ms: int
    hello_at_ms: int = -1
    caught_up_at_ms: int = -1
    replayed_tuples: int = 0
    was_promoted: bool = False


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

    state: NodeState = NodeState.LAUNCHING
    launch: int = 0  # number of its newest launch
    launched_at_ms: int = 0
    failed_launches: int = 0  # in a row, without a hello
    task: str | None = None
    endpoint: str = ""
    incarnation: Incarnation = NOBODY  # as which it counts now
    former: Incarnation = NOBODY  # as which it counted before it was promoted
    heard_ms: int = 0
    is_told: bool = False  # a secondary that knows, or should, that it is promoted
    has_joined: bool = False  # a secondary that all its producers serve
    has_caught_up: bool = False
    host: str = ""  # its machine; empty: it has none, or it does not matter
    moves: int = 0  # in a row, because it came up beside the other replica
    is_waiting: bool = False  # to be launched, until `due_ms` at least
    due_ms: int = 0  # a secondary is not launched before
    pause: BackOff = field(default_factory=lambda: BackOff(_PAUSE_MAX))  # after failures in a row
    timeouts: int = 0  # in a row, of launches without a hello

    @property
    def is_up(self) -> bool:
        """Whether it works, or is about to."""
        return self.state in (NodeState.RUNNING, NodeState.PROMOTING)

    @property
    def is_failing(self) -> bool:
        """Whether it has been lost again and again as a secondary."""
        return self.pause.factor > 2

    def is_ready(self, plan: NodePlan) -> bool:
        """Whether a secondary can take over without a pause."""
        return self.has_joined and (self.has_caught_up or plan.standby is Standby.PASSIVE)

    def back_off(self, now_ms: int, *, unit_ms: int, window_ms: int) -> None:
        """A secondary is lost: the first time it is launched again at once.

        Args:
            now_ms: The time.
            unit_ms: What the pause is a multiple of.
            window_ms: One that is lost so long after its launch is lost for the first time.
        """
        if now_ms - self.launched_at_ms > window_ms:
            self.pause.reset()
        self.due_ms = now_ms + unit_ms * (self.pause.factor - 1)
        self.pause.double()

    def answers_to(self, incarnation: Incarnation) -> bool:
        """Whether a word of this incarnation is its own."""
        return incarnation != NOBODY and incarnation in (self.incarnation, self.former)

    def forget(self, now_ms: int) -> None:
        """Its task is gone; another one is to come up."""
        self.state = NodeState.LAUNCHING
        self.launched_at_ms = now_ms
        self.task = None
        self.host = ""
        self.incarnation = self.former = NOBODY
        self.is_told = self.has_joined = self.has_caught_up = False


@dataclass(slots=True)
class Instance:
    """One instance of a unit.

    Attributes:
        plan: Its plan.
        primary: The replica that counts.
        secondary: The one that follows it, if the plan has one.
        newest: The newest incarnation given to any replica; only grows.
        launches: How many launches there were.
        asked_place: Incarnation and number of the newest point that is to be stored.
        held: A point that may be stored once the secondary has joined.
        failures_ms: When replicas were lost, within the window.
        recovery: The failure of the primary that has not been recovered from.
        last_reason: Why a replica failed, in its own words.
        patience: Detection takes longer by this factor after false alarms.
        silenced: Incarnations that were taken for dead because they were silent.
        was_up: Whether any replica has been at work.
        moved_at_ms: When the secondary was last moved away from the primary's machine.
        outgoing: The task of a primary that has handed over, until it is ended.
    """

    plan: NodePlan
    primary: Replica = field(default_factory=Replica)
    secondary: Replica | None = None
    newest: Incarnation = NOBODY
    launches: int = 0
    asked_place: tuple[int, int] = (0, 0)
    held: RestartPointReceived | None = None
    failures_ms: list[int] = field(default_factory=list)
    recovery: Recovery | None = None
    last_reason: str = ""
    patience: BackOff = field(default_factory=lambda: BackOff(_PATIENCE_MAX))
    silenced: dict[Incarnation, None] = field(default_factory=dict)
    was_up: bool = False
    moved_at_ms: int | None = None
    outgoing: str | None = None

    def __post_init__(self) -> None:
        """Have a place for the secondary."""
        if self.plan.standby is not Standby.NONE:
            self.secondary = Replica()

    def replicas(self) -> Iterator[Replica]:
        """The primary, then the secondary."""
        yield self.primary
        if self.secondary is not None:
            yield self.secondary

    def of_launch(self, launch: int) -> Replica | None:
        """The replica that a launch was for, unless it has been launched again."""
        return next((r for r in self.replicas() if r.launch == launch), None)

    def of_incarnation(self, incarnation: Incarnation) -> Replica | None:
        """The replica that a word comes from; None: from one that does not count any more."""
        return next((r for r in self.replicas() if r.answers_to(incarnation)), None)

    @property
    def shares_a_host(self) -> bool:
        """Whether one machine's failure would end both replicas."""
        other = self.secondary
        return other is not None and bool(other.host) and other.host == self.primary.host

    def swap(self) -> None:
        """The secondary becomes the primary, and the other way round."""
        if self.secondary is not None:
            self.primary, self.secondary = self.secondary, self.primary

    @property
    def secondary_incarnation(self) -> Incarnation:
        """That of a secondary at work; 0: there is none."""
        replica = self.secondary
        if replica is None or replica.state is not NodeState.RUNNING:
            return NOBODY
        return replica.incarnation

    @property
    def patience_factor(self) -> int:
        """How many times as long its silence is borne. A false alarm ends an unprotected query."""
        return self.patience.factor if self.plan.is_protected else self.patience.most

    @property
    def is_being_joined(self) -> bool:
        """Whether a secondary is on its way that starts from the point as it is now."""
        replica = self.secondary
        if replica is None or replica.has_joined or self.plan.standby is not Standby.ACTIVE:
            return False
        return replica.state in (NodeState.ASSIGNING, NodeState.RUNNING)

    def next_incarnation(self) -> Incarnation:
        """A new one."""
        self.newest = Incarnation(self.newest + 1)
        return self.newest

    def was_only_slow(self, incarnation: Incarnation) -> bool:
        """One that was taken for dead has spoken: be more patient from now on."""
        if self.silenced.pop(incarnation, self) is self:
            return False
        self.patience.double()
        return True
