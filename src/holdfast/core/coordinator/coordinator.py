"""The coordinator: who lives, who counts, and from where a replacement goes on. [HA §4, SGuard §3]

Theory of operation. An instance of a unit has up to three replicas: a primary, and secondaries that
follow it (today's plans have one at most). Every replica is in one of the states of `NodeState`;
replica.py has the table of all transitions.

- A replica that comes up says hello. The coordinator gives it the next incarnation of the instance
  and writes that to its journal; only when the journal is durable does the replica get its
  assignment (incarnation, newest stored restart point, neighbours), and its neighbours the news.
  It says hello until it has that. Each hello is answered.
- A replica at work is lost when keep-alives are missed (silence.py), when Spark reports its task's
  end, or when another process says hello in its place (it was replaced before we noticed). It is
  fenced at once: from then on only later incarnations count. Then the shell is asked to end its
  process, if it still has one, and to launch a replacement unless one has already come up.
- When the primary is lost and a secondary is at work, that one is promoted: it gets an
  incarnation of its own as the primary, journalled before it is told. When it says that it has
  taken over, neighbours are told. Whoever comes up first while there is no primary becomes it; the
  other one is the secondary. [HA §4.2]
- A restart point is journalled; the node is told once it is durable, and only then may it tell its
  neighbours to trim. So the newest journalled point is always one from which the node can start.
- Replicas of an instance go to different machines (machines.py). Those on executors that Spark will
  end soon are elsewhere before that (departures.py).
- A launch without a hello within `launch_timeout_ms` fails the query only at its start: later the
  task may have been sent to a machine that is cut off, and is launched again. Nobody depends on a
  secondary: it is launched again and again, and fails no query.
- A secondary starts from that point too. Until it says that all its producers serve it, no newer
  point is stored: what it has not received yet is not trimmed. From then on producers see to that.
- Back-off: a node whose primary is lost `failures_max` times within `failure_window_ms` fails the
  query, with the last reason: a poison tuple must not turn into a silent loop of restarts. One that
  was taken for dead and then spoke was only slow: the next time its instance is waited for twice as
  long. A secondary that is lost soon after its launch, again and again, is launched after a pause
  that doubles each time, or as soon as there is no primary: each attempt costs others a replay.

A coordinator that starts over an existing journal is an ordinary one with `epoch` one higher;
every node then starts at its newest stored point.

Invariants: incarnations only grow; no assignment, no promotion and no `TellPointStored` before the
journal has it; a message of a fenced incarnation changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.core.coordinator.admission import Admission
from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.decisions import Begun, Decisions
from holdfast.core.coordinator.departures import Departures
from holdfast.core.coordinator.events import (
    FailQuery,
    FinishQuery,
    FirstOutput,
    HandoverWanted,
    HelloReceived,
    HostsKnown,
    JournalWritten,
    KeepAliveReceived,
    LaunchTask,
    NodeCaughtUp,
    NodeFailed,
    NodeFinished,
    NodeHalted,
    NodePromoted,
    PointDamaged,
    ReportFailure,
    RestartPointReceived,
    RoundFailed,
    RoundWanted,
    SendAssignment,
    SendPromotion,
    Started,
    TaskEnded,
    TasksLeaving,
    TellPointStored,
    TurnLeft,
    TurnWanted,
    WriteEnded,
    WriteWanted,
    ZombieHeard,
)
from holdfast.core.coordinator.idle_floors import IdleFloors
from holdfast.core.coordinator.instance import Instance
from holdfast.core.coordinator.introductions import Introductions
from holdfast.core.coordinator.journal_entries import JournalEntry, NewLife, PointNoted
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.coordinator.machines import Machines, Place
from holdfast.core.coordinator.recovery_times import Recovery
from holdfast.core.coordinator.regions import OfMember, Regions
from holdfast.core.coordinator.replica import NodeState, Replica
from holdfast.core.coordinator.turns import Turns
from holdfast.core.haunit.plan import Assignment, NodePlan
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.model.silence import SilenceWatch

_CHECK_INTERVAL_MS = 20
_WAIT_INTERVAL_MS = 1_000


class Coordinator:
    """The machine of one life of the coordinator.

    Durable (in the journal): epoch, incarnations, restart points. Volatile: the rest.
    """

    def __init__(
        self,
        plans: tuple[NodePlan, ...],
        *,
        epoch: int,
        limits: CoordinatorLimits,
        journal: Iterable[JournalEntry] = (),
    ) -> None:
        """Begin a life over the entries that earlier ones left in the journal."""
        self.epoch = epoch
        self._limits = limits
        self._decisions = Decisions(journal)
        self._instances = {
            plan.node: Instance(plan, limits, self.registry.incarnation(plan.node))
            for plan in plans
        }
        self._introductions = Introductions(plans, self._instances)
        self._regions = Regions(
            plans,
            self._instances,
            self._decisions,
            epoch,
            lambda one, ms: self._assigned(one, one.primary, one.primary.incarnation, ms),
            self._fail,
        )
        self._unfinished = dict.fromkeys(self._instances)
        self._floors = IdleFloors(plans)
        self._silence = SilenceWatch(_CHECK_INTERVAL_MS + limits.keep_alive_ms)
        self._is_over = False
        self._machines = Machines()
        self._departures = Departures(
            self._instances,
            lambda one, r, ms: self._hand_over(one, r.task, ms),
            self._go_elsewhere,
            lambda one, r, ms: [*self._fence(one, r, ms), *self._regions.lost(one.plan.node)],
        )
        self._turns = Turns(plans, lambda node: self._instances[node].serves)
        for plan in plans:
            others = (self._instances[other] for other in plan.replicas if other != plan.node)
            self._instances[plan.node].beside = tuple(others)
        self._admission: Admission | None = None
        if limits.writers_max:
            self._admission = Admission(limits.writers_max, self._instances)
        self.failures = 0

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus."""
        if self._is_over:
            return []
        return _HANDLERS[type(stimulus)](self, stimulus, now_ms)

    # -- coming up --------------------------------------------------------------------------

    def _on_started(self, _: Started, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [SetTimer("check", now_ms + _CHECK_INTERVAL_MS)]
        for instance in self._instances.values():
            for replica in instance.replicas:
                effects += self._launch(instance, replica, now_ms)
        return effects

    def _launch(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        if self._is_over:
            return []
        if instance.is_early(replica, now_ms):
            replica.wait()
            return []
        effects = instance.end_outgoing()
        if replica.relief:  # It is on its way.
            replica.launched(replica.relief, now_ms)
            return effects
        instance.launches += 1
        replica.launched(instance.launches, now_ms)
        return [*effects, LaunchTask(instance.plan.node, replica.launch)]

    def _on_hello_received(self, hello: HelloReceived, now_ms: int) -> list[Effect]:
        instance = self._instances.get(hello.node)
        replica = None if instance is None else instance.of_launch(hello.launch)
        if instance is None or replica is None or instance.has_ended(hello.task):
            return []
        if replica.task == hello.task:
            if not replica.may_not_know(now_ms, self._limits.launch_timeout_ms):
                return []
            return self._assigned(instance, replica, replica.incarnation, now_ms, again=True)
        effects: list[Effect] = []
        if hello.launch == replica.relief and not replica.is_down:
            effects += self._departures.relieved(instance, replica, now_ms)
        elif not replica.is_down:
            reason = hello.former or "a replacement task came up"
            effects += self._lose(instance, replica, reason, now_ms)
            if instance.is_early(replica, now_ms):
                replica.wait()
                return [*effects, instance.end(hello.task)]
        place = self._machines.place_for(instance, replica, hello.host)
        if place is not Place.HERE:
            return effects + self._send_away(instance, replica, hello, place, now_ms)
        if replica is not instance.primary and instance.primary.is_down:
            instance.lead(replica)
        incarnation = instance.next_incarnation()
        replica.came_up(hello, incarnation, now_ms)
        if instance.recovery is not None and replica is instance.primary:
            instance.recovery.hello_at_ms = now_ms
        if self._regions.has(hello.node):
            return effects + self._regions.came_up(hello.node)
        life = NewLife(hello.node, incarnation)
        begun = Begun(life, lambda ms: self._assigned(instance, replica, incarnation, ms))
        return [*effects, self._decisions.decide(begun)]

    def _send_away(
        self,
        instance: Instance,
        replica: Replica,
        hello: HelloReceived,
        place: Place,
        now_ms: int,
    ) -> list[Effect]:
        """End a task that came up beside another replica; another is launched, now or later."""
        end = instance.end(hello.task)
        if place is Place.ELSEWHERE:
            replica.moves += 1
            return [end, *self._launch(instance, replica, now_ms)]
        replica.moves = 0
        replica.due_ms = now_ms + _WAIT_INTERVAL_MS
        replica.wait()
        return [end]

    def _assigned(
        self,
        instance: Instance,
        replica: Replica,
        incarnation: Incarnation,
        now_ms: int,
        *,
        again: bool = False,
    ) -> list[Effect]:
        """The incarnation is durable: the replica may work and its neighbours may know."""
        if replica.incarnation != incarnation or replica.task is None:
            return []
        if not again:
            replica.assigned(now_ms)
            instance.was_up = True
        replica.heard_ms = now_ms
        name, point = instance.plan.node, self._regions.restart_point(instance.plan.node)
        born, follows, over = *replica.began, self._regions.rounds_over(name)
        assignment = Assignment(self.epoch, born, point, {}, follows, rounds_over=over)
        peers = self._introductions.to(instance, replica)
        assigned = SendAssignment(name, replica.task, assignment, peers)
        return [assigned, *(() if again else self._introductions.of(instance))]

    # -- failing ----------------------------------------------------------------------------

    def _on_timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        if timer.name != "check":
            return [] if self._admission is None else self._admission.timer_fired(timer, now_ms)
        effects: list[Effect] = [SetTimer("check", now_ms + _CHECK_INTERVAL_MS)]
        replicas = [r for one in self._instances.values() for r in one.replicas if r.is_up]
        heard_ms = [replica.heard_ms for replica in replicas]
        self._silence.check(now_ms, heard_ms, self._limits.silence_ms)
        if self._silence.stood_still_ms:
            for instance in self._instances.values():
                instance.wait_longer(self._silence.stood_still_ms)
        for instance in self._instances.values():
            for replica in list(instance.replicas):
                effects += self._check(instance, replica, now_ms)
        return [*effects, *self._regions.begin_rounds(now_ms), *self._turns.check(now_ms)]

    def _check(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        limit_ms = self._limits.silence_ms * instance.patience_factor
        if replica.is_up and self._silence.is_lost(
            f"{instance.plan.node}#{replica.incarnation}", replica.heard_ms, limit_ms, now_ms
        ):
            instance.silenced |= dict.fromkeys((replica.incarnation, replica.former))
            reason = replica.last_words or f"no keep-alive for {now_ms - replica.heard_ms} ms"
            effects = self._lose(instance, replica, reason, now_ms)
            return effects + self._launch(instance, replica, now_ms)
        if replica.is_down:
            return self._check_launch(instance, replica, now_ms)
        return self._move(instance, now_ms) if instance.shares_a_host else []

    def _check_launch(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        waited_ms = now_ms - replica.launched_at_ms
        if replica.is_waiting:
            may_come = self._machines.may_come(instance)
            return self._launch(instance, replica, now_ms) if may_come else []
        if waited_ms <= self._limits.launch_timeout_ms:
            return []
        replica.timeouts += 1
        is_needed = replica is instance.primary
        if is_needed and not (instance.was_up and replica.timeouts < self._limits.launches_max):
            return self._fail(
                f"{instance.plan.node} did not come up within {waited_ms} ms"
                + (f": {instance.last_reason}" if instance.last_reason else "")
            )
        return self._launch(instance, replica, now_ms)

    def _move(self, instance: Instance, now_ms: int) -> list[Effect]:
        """Another machine has room: a secondary moves there, now and then."""
        replica = self._machines.to_move(instance, now_ms)
        if replica is None:
            return []
        instance.moved_at_ms = now_ms
        return self._go_elsewhere(instance, replica, now_ms)

    def _go_elsewhere(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        effects = self._let_go(instance, replica, now_ms)
        return effects + self._launch(instance, replica, now_ms)

    def _on_task_ended(self, ended: TaskEnded, now_ms: int) -> list[Effect]:
        instance = self._instances[ended.node]
        replica = instance.of_launch(ended.launch)
        if replica is None:
            return []  # A launch that has been replaced.
        if ended.launch == replica.relief:
            replica.relief = 0
            return []
        instance.last_reason = instance.last_reason or ended.reason
        effects: list[Effect] = []
        if not replica.is_down:
            effects += self._lose(instance, replica, ended.reason, now_ms)
        elif replica is not instance.primary:
            replica.back_off(now_ms, self._limits)
        else:
            replica.failed_launches += 1
            if replica.failed_launches >= self._limits.launches_max:
                return self._fail(f"{ended.node} does not come up: {instance.last_reason}")
            effects += self._count_failure(instance, ended.reason, now_ms)
        return effects + self._launch(instance, replica, now_ms)

    def _on_node_failed(self, failed: NodeFailed, now_ms: int) -> list[Effect]:
        instance = self._instances[failed.node]
        replica = instance.of_incarnation(failed.incarnation)
        if replica is None:
            return []
        instance.last_reason = replica.last_words = failed.reason
        return self._fail(f"{failed.node}: {failed.reason}") if failed.is_fatal else []

    def _on_zombie_heard(self, heard: ZombieHeard, now_ms: int) -> list[Effect]:
        self._instances[heard.node].was_only_slow(heard.incarnation)
        return []

    def _lose(self, instance: Instance, replica: Replica, reason: str, now_ms: int) -> list[Effect]:
        """A replica is gone: fence it, and have the other one take over if it was the primary."""
        was_primary = replica is instance.primary
        silent_ms = now_ms - replica.heard_ms
        node = instance.plan.node
        self.failures += 1
        effects: list[Effect] = [
            ReportFailure(node, replica.incarnation, reason, silent_ms, replica.host)
        ]
        if was_primary and instance.recovery is None:
            instance.recovery = Recovery(replica.heard_ms, now_ms)
        if not was_primary:  # Nobody depends on it.
            replica.back_off(now_ms, self._limits)
            return effects + self._let_go(instance, replica, now_ms)
        effects += self._fence(instance, replica, now_ms)
        if not self._regions.goes_back(node):
            effects += self._count_failure(instance, reason, now_ms)
        effects += self._regions.lost(node)
        return effects if self._is_over else effects + self._succeed(instance, now_ms)

    def _let_go(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        """A secondary does not count any more, and holds up no restart point."""
        effects = self._fence(instance, replica, now_ms)
        return [
            *effects,
            *self._introductions.of(instance),
            *self._store_held(instance, now_ms),
        ]

    def _fence(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        """From now on only later incarnations count."""
        effects = instance.end_outgoing()
        if replica.task is not None:
            effects.append(instance.end(replica.task, replica.incarnation))
        replica.lose(now_ms)
        if self._admission is not None:
            effects += self._admission.gone(instance.plan.node, now_ms)
        return effects + self._turns.gone(instance.plan.node)

    def _succeed(self, instance: Instance, now_ms: int) -> list[Effect]:
        """There is no primary: a secondary becomes it, now or when one comes up."""
        instance.held = None
        replica = instance.successor()
        if replica is None:
            return []
        instance.lead(replica)
        if instance.recovery is not None:
            instance.recovery.hello_at_ms = now_ms
        if replica.state is NodeState.ASSIGNING:
            return []  # Its assignment will say so.
        if instance.recovery is not None:
            instance.recovery.was_promoted = True
        incarnation = instance.next_incarnation()
        replica.promote(incarnation)
        life = NewLife(instance.plan.node, incarnation)
        begun = Begun(life, lambda _: self._promotion(instance, replica, incarnation))
        return [self._decisions.decide(begun)]

    def _promotion(
        self, instance: Instance, replica: Replica, incarnation: Incarnation
    ) -> list[Effect]:
        """The promotion is durable: tell it; said again as long as the replica does not answer."""
        if replica.incarnation != incarnation or replica.task is None:
            return []
        replica.is_told = True
        point = self.registry.newest(instance.plan.node)
        return [SendPromotion(instance.plan.node, replica.task, incarnation, point)]

    def _promoted(self, instance: Instance, replica: Replica) -> list[Effect]:
        """It counts now, and its neighbours may know."""
        if replica.state is not NodeState.PROMOTING:
            return []
        replica.promoted()
        return [*self._introductions.of(instance)]

    def _on_node_promoted(self, promoted: NodePromoted, now_ms: int) -> list[Effect]:
        found = self._primary(promoted.node, promoted.incarnation, now_ms)
        return [] if found is None else self._promoted(found, found.primary)

    def _hand_over(self, instance: Instance, task: str | None, now_ms: int) -> list[Effect]:
        """Planned: the secondary takes over while the primary is well.

        The primary does not count any more, but goes on until it is launched again: what it still
        puts out need not be put out again, and to end it takes time that the other one needs.
        """
        replica, former = instance.successor(), instance.primary
        if replica is None or not replica.is_ready(instance.plan):
            return []
        if former.state is not NodeState.RUNNING or former.task != task:
            return []
        instance.recovery = Recovery(now_ms, now_ms)
        outgoing, former.task = former.task, None  # It is fenced, and not ended yet.
        effects = self._fence(instance, former, now_ms) + self._succeed(instance, now_ms)
        instance.outgoing = outgoing
        former.due_ms = now_ms + self._limits.keep_alive_ms  # Not while the other takes over.
        return effects + self._launch(instance, former, now_ms)

    def _count_failure(self, instance: Instance, reason: str, now_ms: int) -> list[Effect]:
        fatal = instance.count_failure(reason, now_ms)
        return [] if fatal is None else self._fail(fatal)

    def _fail(self, reason: str) -> list[Effect]:
        self._is_over = True
        return [FailQuery(reason)]

    # -- living -----------------------------------------------------------------------------

    def _heard(
        self, name: NodeId, incarnation: Incarnation, now_ms: int
    ) -> tuple[Instance, Replica] | None:
        """The replica that says something, unless it is fenced or not assigned yet."""
        instance = self._instances.get(name)
        replica = None if instance is None else instance.of_incarnation(incarnation)
        if instance is None or replica is None or not replica.is_up:
            return None
        replica.heard_ms = now_ms
        replica.has_spoken = True
        return instance, replica

    def _primary(self, name: NodeId, incarnation: Incarnation, now_ms: int) -> Instance | None:
        """The instance, if it is its primary that says something, as such."""
        found = self._heard(name, incarnation, now_ms)
        if found is None or found[1] is not found[0].primary:
            return None
        return found[0] if found[1].incarnation == incarnation else None

    def _on_keep_alive_received(self, alive: KeepAliveReceived, now_ms: int) -> list[Effect]:
        found = self._heard(alive.node, alive.incarnation, now_ms)
        if found is None:
            return []
        instance, replica = found
        effects: list[Effect] = []
        if replica.state is NodeState.PROMOTING:
            if alive.incarnation == replica.incarnation:
                effects += self._promoted(instance, replica)  # Its word was lost.
            elif replica.is_told:
                effects += self._promotion(instance, replica, replica.incarnation)
        if alive.has_joined and replica is not instance.primary and not replica.has_joined:
            replica.has_joined = True
            effects += self._store_held(instance, now_ms)
        if replica is instance.primary and alive.incarnation == replica.incarnation:
            primary = lambda node: self._instances[node].primary.incarnation  # noqa: E731
            effects += self._floors.tell(alive, replica.task or "", primary)
        effects += self._regions.heard(alive.node)
        return [*effects, *self._introductions.lacking(instance, replica, alive)]

    def _on_member_said(self, word: OfMember, now_ms: int) -> list[Effect]:
        found = self._primary(word.node, word.incarnation, now_ms)
        return [] if found is None else self._regions.said(word, now_ms)

    def _on_restart_point_received(
        self, received: RestartPointReceived, now_ms: int
    ) -> list[Effect]:
        instance = self._primary(received.node, received.incarnation, now_ms)
        if instance is None:
            return []
        place = (received.incarnation, received.point.sequence)
        if place < instance.asked_place:
            return []  # Said again, too late: the journal's last point of a node is its newest.
        if instance.is_being_joined:
            instance.held = received
            return []
        instance.asked_place = place
        keeps_older = self._regions.has(received.node)
        noted = PointNoted(received.node, received.incarnation, received.point, keeps_older)

        def stored(ms: int) -> list[Effect]:
            return [*self._stored(instance, received), *self._regions.noted(noted, ms)]

        return [self._decisions.note(noted, stored)]

    def _store_held(self, instance: Instance, now_ms: int) -> list[Effect]:
        held, instance.held = instance.held, None
        return [] if held is None else self._on_restart_point_received(held, now_ms)

    def _stored(self, instance: Instance, received: RestartPointReceived) -> list[Effect]:
        """The point is durable. It holds for later incarnations too."""
        primary = instance.primary
        if primary.incarnation != received.incarnation or primary.task is None:
            return []
        sequence = received.point.sequence
        return [TellPointStored(received.node, primary.task, received.incarnation, sequence)]

    def _on_writing(self, word: WriteWanted | WriteEnded, now_ms: int) -> list[Effect]:
        """A primary wants to write a checkpoint, or has written one."""
        node, incarnation = word.node, word.incarnation
        if self._admission is None or self._primary(node, incarnation, now_ms) is None:
            return []
        if isinstance(word, WriteWanted):
            return self._admission.wanted(node, incarnation, now_ms)
        return self._admission.ended(node, incarnation, now_ms)

    def _on_node_caught_up(self, caught_up: NodeCaughtUp, now_ms: int) -> list[Effect]:
        found = self._heard(caught_up.node, caught_up.incarnation, now_ms)
        if found is None:
            return []
        instance, replica = found
        replica.has_caught_up = True
        if instance.recovery is not None and replica is instance.primary:
            instance.recovery.caught_up_at_ms = now_ms
            instance.recovery.replayed_tuples = caught_up.replayed_tuples
            if instance.beside:  # Perhaps nobody reads from it: it may put out nothing.
                return instance.recovered(now_ms)
        return []

    def _on_first_output(self, first: FirstOutput, now_ms: int) -> list[Effect]:
        instance = self._primary(first.node, first.incarnation, now_ms)
        return [] if instance is None else instance.recovered(now_ms)

    def _on_node_finished(self, finished: NodeFinished, now_ms: int) -> list[Effect]:
        instance = self._primary(finished.node, finished.incarnation, now_ms)
        if instance is None:
            return []
        self._unfinished.pop(finished.node, None)
        effects = instance.recovered(now_ms)
        if not self._unfinished:
            self._is_over = True
            effects.append(FinishQuery())
        return effects

    # -- looking ----------------------------------------------------------------------------

    def instance(self, node: NodeId) -> Instance:
        """What is known of a node, for people."""
        return self._instances[node]

    @property
    def registry(self) -> CheckpointRegistry:
        """What is durable: restart points and incarnations. To be read only."""
        return self._decisions.registry

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the coordinator's own state makes no sense."""
        for instance in self._instances.values():
            instance.check_invariants(self.registry.incarnation(instance.plan.node))
        self._decisions.check_invariants()
        self._floors.check_invariants()
        self._machines.check_invariants()
        if self._admission is not None:
            self._admission.check_invariants()

    def statistics(self) -> dict[NodeId, NodeState]:
        """The state of every node's primary."""
        return {name: instance.primary.state for name, instance in self._instances.items()}


_HANDLERS: dict[type[Stimulus], Callable[[Coordinator, Any, int], list[Effect]]] = {
    Started: Coordinator._on_started,
    HelloReceived: Coordinator._on_hello_received,
    HostsKnown: lambda self, known, _: self._machines.know(known),
    TasksLeaving: lambda self, leaving, now_ms: self._departures.leave(leaving, now_ms),
    KeepAliveReceived: Coordinator._on_keep_alive_received,
    TaskEnded: Coordinator._on_task_ended,
    NodeFailed: Coordinator._on_node_failed,
    ZombieHeard: Coordinator._on_zombie_heard,
    NodePromoted: Coordinator._on_node_promoted,
    NodeHalted: Coordinator._on_member_said,
    PointDamaged: Coordinator._on_member_said,
    RoundWanted: Coordinator._on_member_said,
    RoundFailed: Coordinator._on_member_said,
    HandoverWanted: lambda self, wanted, ms: self._hand_over(
        self._instances[wanted.node], wanted.task, ms
    ),
    RestartPointReceived: Coordinator._on_restart_point_received,
    WriteWanted: Coordinator._on_writing,
    WriteEnded: Coordinator._on_writing,
    TurnWanted: lambda self, word, ms: self._turns.said(word, ms, self._primary),
    TurnLeft: lambda self, word, ms: self._turns.said(word, ms, self._primary),
    NodeFinished: Coordinator._on_node_finished,
    NodeCaughtUp: Coordinator._on_node_caught_up,
    FirstOutput: Coordinator._on_first_output,
    JournalWritten: lambda self, written, now_ms: self._decisions.written(written, now_ms),
    TimerFired: Coordinator._on_timer_fired,
}
