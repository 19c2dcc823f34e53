"""What the coordinator knows of one instance of a unit: its replicas, and what befell them."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.coordinator.events import EndTask
from holdfast.core.coordinator.replica import BackOff, NodeState, Replica, Role
from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.plan import Standby
from holdfast.core.model.ids import NOBODY, Incarnation

if TYPE_CHECKING:
    from holdfast.core.coordinator.events import RestartPointReceived
    from holdfast.core.coordinator.limits import CoordinatorLimits
    from holdfast.core.coordinator.recovery_times import Recovery
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect

_PATIENCE_MAX = 8
_ENDED_KEPT = 64
REPLICAS_MAX = 3


class Hearing(enum.Enum):
    """What becomes of a word."""

    TAKEN = "taken"  # It is a replica's.
    REFUSED = "refused"  # It is in another task's name.
    PASSED_OVER = "passed over"  # Of a primary that has handed over, and may go on for a while.
    FENCED = "fenced"  # Of a zombie, which is to be told to end.


@dataclass(slots=True)
class Instance:
    """One instance of a unit.

    Attributes:
        plan: Its plan.
        limits: How patient the coordinator is.
        newest: The newest incarnation given to any replica; only grows.
        replicas: 1 to `REPLICAS_MAX`, each with its role; the one primary comes first.
        launches: How many launches there were.
        asked_place: Incarnation and number of the newest point that is to be stored.
        held: A point that may be stored once the secondary has joined.
        failures_ms: When replicas were lost, within the window.
        recovery: The failure of the primary that has not been recovered from.
        last_reason: Why a replica failed, in its own words.
        patience: Detection takes longer by this factor after false alarms.
        silenced: Incarnations that were taken for dead because they were silent.
        was_up: Whether any replica has been at work.
        moved_at_ms: When a secondary was last moved away from a machine that it shared.
        outgoing: The task of a primary that has handed over, until it is ended.
        ended: The tasks that were ended last; it may take a while until they hear of it.
        beside: The nodes that run the same instance beside this one.
    """

    plan: NodePlan
    limits: CoordinatorLimits
    newest: Incarnation = NOBODY
    replicas: list[Replica] = field(default_factory=list)
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
    ended: deque[str] = field(default_factory=lambda: deque(maxlen=_ENDED_KEPT))
    beside: tuple[Instance, ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        """Have as many replicas as the plan asks for."""
        if not self.replicas:
            self.replicas = [Replica(Role.PRIMARY)]
            if self.plan.standby is not Standby.NONE:
                self.replicas.append(Replica(Role.SECONDARY))

    @property
    def primary(self) -> Replica:
        """The replica that counts."""
        return self.replicas[0]

    @property
    def serves(self) -> bool:
        """Whether it is at work, and has processed again what it had processed before."""
        return self.primary.state is NodeState.RUNNING and self.primary.has_caught_up

    def recovered(self, now_ms: int) -> list[Effect]:
        """The primary does again what it did; what there is to report of that."""
        recovery, self.recovery = self.recovery, None
        return [] if recovery is None else [recovery.report(self.plan.node, now_ms)]

    @property
    def secondaries(self) -> list[Replica]:
        """Those that follow it."""
        return self.replicas[1:]

    def lead(self, replica: Replica) -> None:
        """A replica becomes the primary, whoever was it a secondary."""
        self.replicas = [replica, *(other for other in self.replicas if other is not replica)]
        for each in self.replicas:
            each.role = Role.PRIMARY if each is replica else Role.SECONDARY

    def successor(self) -> Replica | None:
        """The secondary that takes over from a primary that is lost; None: none is there."""
        return next((replica for replica in self.secondaries if not replica.is_down), None)

    def end_outgoing(self) -> list[Effect]:
        """A primary that has handed over has had its time."""
        task, self.outgoing = self.outgoing, None
        return [] if task is None else [self.end(task)]

    def end(self, task: str, incarnation: Incarnation = NOBODY) -> EndTask:
        """A task is not to run any more; should its process say hello again, that is in vain."""
        self.ended.append(task)
        return EndTask(self.plan.node, task, incarnation)

    def has_ended(self, task: str) -> bool:
        """Whether a task was to be ended, and lives on."""
        return task in self.ended

    # -- launches ---------------------------------------------------------------------------

    def of_launch(self, launch: int) -> Replica | None:
        """The replica that a launch was for, unless it has been launched again."""
        return next((r for r in self.replicas if r.answers_hello(launch)), None)

    def expects(self, launch: int) -> bool:
        """Whether a task of this launch may still say hello."""
        return self.of_launch(launch) is not None

    @property
    def expected_launches(self) -> set[int]:
        """All launches of which a task may still say hello."""
        return {n for r in self.replicas for n in (r.launch, r.relief) if n}

    @property
    def awaited_launch(self) -> int | None:
        """A launch that no task has come up for yet."""
        awaited = (r.launch for r in self.replicas if r.state is NodeState.LAUNCHING)
        return next(awaited, None)

    def is_early(self, replica: Replica, now_ms: int) -> bool:
        """Whether a secondary has to wait for its launch; not while there is no primary."""
        is_needed = replica is self.primary or self.primary.is_down
        return not is_needed and now_ms < replica.due_ms

    # -- incarnations -----------------------------------------------------------------------

    def next_incarnation(self) -> Incarnation:
        """A new one."""
        self.newest = Incarnation(self.newest + 1)
        return self.newest

    def judge(self, task: str, incarnation: Incarnation) -> Hearing:
        """What becomes of a word that a task says as an incarnation of this instance."""
        replica = self.of_incarnation(incarnation)
        if replica is not None:
            return Hearing.TAKEN if replica.task == task else Hearing.REFUSED
        return Hearing.PASSED_OVER if self.outgoing == task else Hearing.FENCED

    def counts(self, incarnation: Incarnation) -> bool:
        """Whether words of this incarnation still count."""
        return self.of_incarnation(incarnation) is not None

    def of_incarnation(self, incarnation: Incarnation) -> Replica | None:
        """The replica that a word comes from; None: from one that does not count any more."""
        return next((r for r in self.replicas if r.answers_to(incarnation)), None)

    @property
    def secondary_incarnation(self) -> Incarnation:
        """That of a secondary at work; 0: there is none."""
        at_work = (r.incarnation for r in self.secondaries if r.state is NodeState.RUNNING)
        return next(at_work, NOBODY)

    @property
    def is_being_joined(self) -> bool:
        """Whether a secondary is on its way that starts from the point as it is now."""
        if self.plan.standby is not Standby.ACTIVE:
            return False
        joining = (NodeState.ASSIGNING, NodeState.RUNNING)
        return any(not r.has_joined and r.state in joining for r in self.secondaries)

    # -- machines ---------------------------------------------------------------------------

    def shares_host(self, replica: Replica) -> bool:
        """Whether one machine's failure would end this replica and another."""
        others = [other.host for other in self.replicas if other is not replica]
        return bool(replica.host) and replica.host in others

    @property
    def shares_a_host(self) -> bool:
        """Whether one machine's failure would end two replicas."""
        return any(self.shares_host(replica) for replica in self.replicas)

    # -- failures ---------------------------------------------------------------------------

    @property
    def patience_factor(self) -> int:
        """How many times as long its silence is borne. A false alarm ends an unprotected query."""
        return self.patience.factor if self.plan.is_protected else self.patience.most

    def wait_longer(self, stood_still_ms: int) -> None:
        """While the coordinator stood still it heard of no process that came up."""
        for replica in self.replicas:
            if replica.is_down:
                replica.launched_at_ms += stood_still_ms

    def was_only_slow(self, incarnation: Incarnation) -> bool:
        """One that was taken for dead has spoken: be more patient from now on."""
        if self.silenced.pop(incarnation, self) is self:
            return False
        self.patience.double()
        return True

    def count_failure(self, reason: str, now_ms: int) -> str | None:
        """The primary was lost, or does not come up; why the query cannot go on, if it cannot."""
        window_ms = self.limits.failure_window_ms
        recent = [t for t in self.failures_ms if now_ms - t < window_ms]
        self.failures_ms = [*recent, now_ms]
        name, last = self.plan.node, self.last_reason or reason
        if not self.plan.is_protected:
            return f"{name} failed and is not protected: {last}"
        if len(self.failures_ms) >= self.limits.failures_max:
            times = f"{len(self.failures_ms)} times within {window_ms} ms"
            return f"{name} failed {times}; last reason: {last}"
        return None

    def check_invariants(self, durable: Incarnation) -> None:
        """Raise `InvariantViolation` when replicas and incarnations make no sense together.

        Args:
            durable: The newest incarnation that the journal has: nobody works as a later one.
        """
        name = self.plan.node
        if durable > self.newest:
            raise InvariantViolation(f"{name}: {durable} is durable, and was not given")
        given = [replica.incarnation for replica in self.replicas if replica.incarnation]
        if len(set(given)) < len(given) or any(i > self.newest for i in given):
            raise InvariantViolation(f"{name}: incarnations {given} up to {self.newest}")
        roles = [replica.role for replica in self.replicas]
        if not 1 <= len(roles) <= REPLICAS_MAX or roles.count(Role.PRIMARY) != 1:
            raise InvariantViolation(f"{name}: replicas are {[role.value for role in roles]}")
        if roles[0] is not Role.PRIMARY:
            raise InvariantViolation(f"{name}: the primary does not come first")
        for replica in self.replicas:
            replica.check_invariants()
            is_told = replica.state is NodeState.RUNNING or replica.is_told
            if is_told and replica.incarnation > durable:
                raise InvariantViolation(f"{name} works as {replica.incarnation}, not durable")
