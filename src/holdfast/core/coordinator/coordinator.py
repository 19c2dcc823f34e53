"""The coordinator: who lives, who counts, and from where a replacement goes on. [HA §4, SGuard §3]

Theory of operation. An instance of a unit has one replica, or two: a primary and a secondary. Every
replica is in one of the states of `NodeState`:

    LAUNCHING --hello--> ASSIGNING --journal written--> RUNNING --lost--> LAUNCHING
                                                   any state --finished/stop--> (end)
    RUNNING (secondary) --primary lost--> PROMOTING --it says so--> RUNNING (primary)

- A replica that comes up says hello. The coordinator gives it the next incarnation of the instance
  and writes that to its journal; only when the journal is durable does the replica get its
  assignment (incarnation, newest stored restart point, neighbours), and its neighbours the news.
- A replica at work is lost when keep-alives are missed (silence.py), when Spark reports its task's
  end, or when another process says hello in its place (it was replaced before we noticed). It is
  fenced at once: from then on only later incarnations count. Then the shell is asked to end its
  process, if it still has one, and to launch a replacement unless one has already come up.
- When the primary is lost and the secondary is at work, that one is promoted: it gets an
  incarnation of its own as the primary, journalled before it is told. When it says that it has
  taken over, neighbours are told. Whoever comes up first while there is no primary becomes it; the
  other one is the secondary. [HA §4.2]
- A restart point is journalled; the node is told once it is durable, and only then may it tell its
  neighbours to trim. So the newest journalled point is always one from which the node can start.
- Replicas of an instance go to different machines. A task that comes up on the machine of the other
  replica is not assigned: it is launched again, three times at most, as long as another machine has
  room. If none has, both share the machine until one has room: then the secondary moves there. A
  strict unit's secondary waits instead. [HA §4: replicas fail independently]
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
from dataclasses import dataclass
from typing import Any

from holdfast.core.coordinator.admission import Admission
from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.events import (
    EndTask,
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
    NodePromoted,
    ReportFailure,
    ReportRecovery,
    RestartPointReceived,
    SendAssignment,
    SendPromotion,
    Started,
    TaskEnded,
    TellFloor,
    TellPeer,
    TellPointStored,
    WriteEnded,
    WriteJournal,
    WriteWanted,
    ZombieHeard,
)
from holdfast.core.coordinator.idle_floors import IdleFloors
from holdfast.core.coordinator.instance import Instance, NodeState, Recovery, Replica
from holdfast.core.coordinator.journal_entries import (
    JournalEntry,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.plan import Assignment, NodePlan, Standby
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import NOBODY, Incarnation, NodeId
from holdfast.core.model.silence import SilenceWatch

Then = Callable[[int], list[Effect]]
"""What follows once an entry of the journal is durable; gets the time."""

_CHECK_INTERVAL_MS = 20
_MOVES_MAX = 3
_MOVE_INTERVAL_MS = 10_000
_WAIT_INTERVAL_MS = 1_000


@dataclass(frozen=True, slots=True)
class CoordinatorLimits:
    """Settings of failure detection and recovery.

    Attributes:
        keep_alive_ms: Period of keep-alives (HA: 100 ms).
        misses: Missed keep-alives after which a node is taken for dead (HA: 3).
        launch_timeout_ms: How long a launched task may take to say hello.
        launches_max: So many launches of a primary in a row without a hello fail the query.
        failures_max: So many failures of one node within the window fail the query.
        failure_window_ms: The window.
        writers_max: So many nodes may write a checkpoint at once; 0: as many as want to.
    """

    keep_alive_ms: int = 100
    misses: int = 3
    launch_timeout_ms: int = 30_000
    launches_max: int = 3
    failures_max: int = 10
    failure_window_ms: int = 10_000
    writers_max: int = 0


@dataclass(frozen=True, slots=True)
class _Begun:
    """A part of a decision: a replica's new life, and what follows once that is durable."""

    life: NewLife
    then: Then


@dataclass(frozen=True, slots=True)
class _Asked:
    """An entry on its way into the journal, and what follows once it is there."""

    entry: JournalEntry
    then: Then


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
        self._registry = CheckpointRegistry.of(journal)
        self._instances = {
            plan.node: Instance(plan, newest=self._registry.incarnation(plan.node))
            for plan in plans
        }
        self._neighbours: dict[NodeId, list[NodeId]] = {
            plan.node: [*plan.producers(), *plan.receivers()] for plan in plans
        }
        self._receivers = {plan.node: frozenset(plan.receivers()) for plan in plans}
        self._unfinished = dict.fromkeys(self._instances)
        self._floors = IdleFloors(plans)
        self._silence = SilenceWatch(_CHECK_INTERVAL_MS + limits.keep_alive_ms)
        self._requests: dict[int, _Asked] = {}
        self._next_request = 1
        self._is_over = False
        self._hosts: tuple[str, ...] = ()  # machines with room
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
            for replica in instance.replicas():
                effects += self._launch(instance, replica, now_ms)
        return effects

    def _launch(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        if self._is_over:
            return []
        if self._is_early(instance, replica, now_ms):
            return self._wait(replica)
        effects = self._end_outgoing(instance)
        instance.launches += 1
        replica.is_waiting = False
        replica.launch = instance.launches
        replica.launched_at_ms = now_ms
        return [*effects, LaunchTask(instance.plan.node, replica.launch)]

    def _is_early(self, instance: Instance, replica: Replica, now_ms: int) -> bool:
        """Whether a secondary has to wait; not while there is no primary."""
        is_needed = replica is instance.primary or instance.primary.state is NodeState.LAUNCHING
        return not is_needed and now_ms < replica.due_ms

    def _wait(self, replica: Replica) -> list[Effect]:
        replica.is_waiting = True
        replica.launch = 0  # Its last one is not expected any more.
        return []

    def _on_hello_received(self, hello: HelloReceived, now_ms: int) -> list[Effect]:
        instance = self._instances.get(hello.node)
        replica = None if instance is None else instance.of_launch(hello.launch)
        if instance is None or replica is None or replica.task == hello.task:
            return []
        effects: list[Effect] = []
        if replica.state is not NodeState.LAUNCHING:
            reason = hello.former or "a replacement task came up"
            effects += self._lose(instance, replica, reason, now_ms)
            if self._is_early(instance, replica, now_ms):
                return [*effects, EndTask(hello.node, hello.task), *self._wait(replica)]
        if self._is_misplaced(instance, replica, hello.host):
            return effects + self._elsewhere(instance, replica, hello, now_ms)
        if replica is instance.secondary and instance.primary.state is NodeState.LAUNCHING:
            instance.swap()
        replica.state = NodeState.ASSIGNING
        replica.task = hello.task
        replica.endpoint = hello.endpoint
        replica.host = hello.host
        replica.failed_launches = replica.timeouts = replica.moves = 0
        replica.heard_ms = now_ms
        incarnation = replica.incarnation = instance.next_incarnation()
        if instance.recovery is not None and replica is instance.primary:
            instance.recovery.hello_at_ms = now_ms
        life = NewLife(hello.node, incarnation)
        begin = _Begun(life, lambda ms: self._assigned(instance, replica, incarnation, ms))
        return [*effects, self._decide(begin)]

    def _assigned(
        self, instance: Instance, replica: Replica, incarnation: Incarnation, now_ms: int
    ) -> list[Effect]:
        """The incarnation is durable: the replica may work and its neighbours may know."""
        if replica.incarnation != incarnation or replica.task is None:
            return []
        replica.state = NodeState.RUNNING
        instance.was_up = True
        replica.heard_ms = now_ms
        is_secondary = replica is instance.secondary
        name = instance.plan.node
        point = self._registry.newest(name)
        assignment = Assignment(self.epoch, incarnation, point, {}, is_secondary)
        peers = tuple(
            told
            for peer in self._known_to(instance)
            if (told := self._told(name, replica, peer)) is not None
        )
        return [SendAssignment(name, replica.task, assignment, peers), *self._announce(instance)]

    def _known_to(self, instance: Instance) -> list[NodeId]:
        """Whose replicas a node has to know: its neighbours', and its own if there are two."""
        own = [] if instance.secondary is None else [instance.plan.node]
        return [*self._neighbours[instance.plan.node], *own]

    def _told(self, node: NodeId, replica: Replica, peer: NodeId) -> TellPeer | None:
        """What a replica has to know of a peer; None while that has no primary at work."""
        other = self._instances[peer]
        primary = other.primary
        if primary.state is not NodeState.RUNNING or replica.task is None:
            return None
        is_served = peer == node or other.plan.standby is Standby.ACTIVE
        secondary = other.secondary_incarnation if is_served else NOBODY
        return TellPeer(node, replica.task, peer, primary.incarnation, primary.endpoint, secondary)

    def _announce(self, instance: Instance) -> list[Effect]:
        """Tell everybody who has to know, all their replicas, about an instance's."""
        name = instance.plan.node
        effects: list[Effect] = []
        for peer in self._known_to(instance):
            for replica in self._instances[peer].replicas():
                if replica.is_up and (told := self._told(peer, replica, name)) is not None:
                    effects.append(told)
        return effects

    def _decide(self, *begun: _Begun) -> WriteJournal:
        """Replicas begin new lives: all of them once the one entry is durable, or none."""
        decision = RecoveryDecision(tuple(each.life for each in begun))
        return self._journal(decision, lambda ms: [e for each in begun for e in each.then(ms)])

    def _journal(self, entry: JournalEntry, then: Then) -> WriteJournal:
        request_id = self._next_request
        self._next_request += 1
        self._requests[request_id] = _Asked(entry, then)
        return WriteJournal(request_id, (entry,))

    def _on_journal_written(self, written: JournalWritten, now_ms: int) -> list[Effect]:
        asked = self._requests.pop(written.request_id, None)
        if asked is None:
            return []
        self._registry.take(asked.entry)
        return asked.then(now_ms)

    # -- failing ----------------------------------------------------------------------------

    def _on_timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        if timer.name != "check":
            return [] if self._admission is None else self._admission.timer_fired(timer, now_ms)
        effects: list[Effect] = [SetTimer("check", now_ms + _CHECK_INTERVAL_MS)]
        replicas = [r for one in self._instances.values() for r in one.replicas() if r.is_up]
        limit_ms = self._limits.keep_alive_ms * self._limits.misses
        self._silence.check(now_ms, [replica.heard_ms for replica in replicas], limit_ms)
        for instance in self._instances.values():
            for replica in list(instance.replicas()):
                effects += self._check(instance, replica, now_ms)
        return effects

    def _check(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        limits = self._limits
        limit_ms = limits.keep_alive_ms * limits.misses * instance.patience_factor
        if replica.is_up and self._silence.is_lost(
            f"{instance.plan.node}#{replica.incarnation}", replica.heard_ms, limit_ms, now_ms
        ):
            instance.silenced |= dict.fromkeys((replica.incarnation, replica.former))
            reason = f"no keep-alive for {now_ms - replica.heard_ms} ms"
            effects = self._lose(instance, replica, reason, now_ms)
            return effects + self._launch(instance, replica, now_ms)
        if replica.state is NodeState.LAUNCHING:
            return self._check_launch(instance, replica, now_ms)
        return self._part(instance, now_ms) if instance.shares_a_host else []

    def _check_launch(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        waited_ms = now_ms - replica.launched_at_ms
        if replica.is_waiting:
            has_room = self._has_room_beside(instance.primary.host)
            can_come = has_room or not instance.plan.is_strict
            return self._launch(instance, replica, now_ms) if can_come else []
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

    # -- machines ---------------------------------------------------------------------------

    def _on_hosts_known(self, known: HostsKnown, _: int) -> list[Effect]:
        self._hosts = known.hosts
        return []

    def _has_room_beside(self, host: str) -> bool:
        return any(other != host for other in self._hosts)

    def _is_misplaced(self, instance: Instance, replica: Replica, host: str) -> bool:
        """Whether a task that comes up there must not be assigned."""
        other = instance.primary if replica is instance.secondary else instance.secondary
        if not host or other is None or other.host != host:
            return False
        can_move = replica.moves < _MOVES_MAX and self._has_room_beside(host)
        return can_move or instance.plan.is_strict

    def _elsewhere(
        self, instance: Instance, replica: Replica, hello: HelloReceived, now_ms: int
    ) -> list[Effect]:
        """End a task that came up beside the other replica; another is launched, or will be."""
        end = EndTask(hello.node, hello.task)
        if replica.moves < _MOVES_MAX and self._has_room_beside(hello.host):
            replica.moves += 1
            return [end, *self._launch(instance, replica, now_ms)]
        replica.moves = 0
        replica.due_ms = now_ms + _WAIT_INTERVAL_MS
        return [end, *self._wait(replica)]

    def _part(self, instance: Instance, now_ms: int) -> list[Effect]:
        """Another machine has room: the secondary moves there, now and then."""
        replica, moved_at_ms = instance.secondary, instance.moved_at_ms
        is_early = moved_at_ms is not None and now_ms - moved_at_ms < _MOVE_INTERVAL_MS
        if replica is None or is_early or replica.state is not NodeState.RUNNING:
            return []
        if not self._has_room_beside(replica.host):
            return []
        instance.moved_at_ms = now_ms
        return [
            *self._fence(instance, replica, now_ms),
            *self._announce(instance),
            *self._store_held(instance, now_ms),
            *self._launch(instance, replica, now_ms),
        ]

    def _on_task_ended(self, ended: TaskEnded, now_ms: int) -> list[Effect]:
        instance = self._instances[ended.node]
        replica = instance.of_launch(ended.launch)
        if replica is None:
            return []  # A launch that has been replaced.
        instance.last_reason = instance.last_reason or ended.reason
        effects: list[Effect] = []
        if replica.state is not NodeState.LAUNCHING:
            effects += self._lose(instance, replica, ended.reason, now_ms)
        elif replica is instance.secondary:
            self._back_off(replica, now_ms)
        else:
            replica.failed_launches += 1
            if replica.failed_launches >= self._limits.launches_max:
                return self._fail(f"{ended.node} does not come up: {instance.last_reason}")
            effects += self._count_failure(instance, ended.reason, now_ms)
        return effects + self._launch(instance, replica, now_ms)

    def _on_node_failed(self, failed: NodeFailed, now_ms: int) -> list[Effect]:
        instance = self._instances[failed.node]
        if instance.of_incarnation(failed.incarnation) is None:
            return []
        instance.last_reason = failed.reason
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
            self._back_off(replica, now_ms)
            effects += self._fence(instance, replica, now_ms)
            return effects + self._announce(instance) + self._store_held(instance, now_ms)
        effects += self._fence(instance, replica, now_ms)
        effects += self._count_failure(instance, reason, now_ms)
        return effects if self._is_over else effects + self._succeed(instance, now_ms)

    def _back_off(self, replica: Replica, now_ms: int) -> None:
        limits = self._limits
        replica.back_off(now_ms, unit_ms=limits.keep_alive_ms, window_ms=limits.failure_window_ms)

    def _fence(self, instance: Instance, replica: Replica, now_ms: int) -> list[Effect]:
        """From now on only later incarnations count."""
        effects = self._end_outgoing(instance)
        if replica.task is not None:
            effects.append(EndTask(instance.plan.node, replica.task))
        replica.forget(now_ms)
        if self._admission is not None:
            effects += self._admission.gone(instance.plan.node, now_ms)
        return effects

    def _end_outgoing(self, instance: Instance) -> list[Effect]:
        """The primary that has handed over has had its time."""
        task, instance.outgoing = instance.outgoing, None
        return [] if task is None else [EndTask(instance.plan.node, task)]

    def _succeed(self, instance: Instance, now_ms: int) -> list[Effect]:
        """There is no primary: the other replica becomes it, now or when it comes up."""
        instance.held = None
        if instance.secondary is None or instance.secondary.state is NodeState.LAUNCHING:
            return []
        instance.swap()
        replica = instance.primary
        if instance.recovery is not None:
            instance.recovery.hello_at_ms = now_ms
        if replica.state is NodeState.ASSIGNING:
            return []  # Its assignment will say so.
        if instance.recovery is not None:
            instance.recovery.was_promoted = True
        replica.state = NodeState.PROMOTING
        replica.former = replica.incarnation
        incarnation = replica.incarnation = instance.next_incarnation()
        life = NewLife(instance.plan.node, incarnation)
        begin = _Begun(life, lambda _: self._promotion(instance, replica, incarnation))
        return [self._decide(begin)]

    def _promotion(
        self, instance: Instance, replica: Replica, incarnation: Incarnation
    ) -> list[Effect]:
        """The promotion is durable: tell it; said again as long as the replica does not answer."""
        if replica.incarnation != incarnation or replica.task is None:
            return []
        replica.is_told = True
        point = self._registry.newest(instance.plan.node)
        return [SendPromotion(instance.plan.node, replica.task, incarnation, point)]

    def _promoted(self, instance: Instance, replica: Replica) -> list[Effect]:
        """It counts now, and its neighbours may know."""
        if replica.state is not NodeState.PROMOTING:
            return []
        replica.state = NodeState.RUNNING
        replica.is_told = replica.has_joined = replica.has_caught_up = False
        return self._announce(instance)

    def _on_node_promoted(self, promoted: NodePromoted, now_ms: int) -> list[Effect]:
        found = self._primary(promoted.node, promoted.incarnation, now_ms)
        return [] if found is None else self._promoted(found, found.primary)

    def _on_handover_wanted(self, wanted: HandoverWanted, now_ms: int) -> list[Effect]:
        """Planned: the secondary takes over while the primary is well.

        The primary does not count any more, but goes on until it is launched again: what it still
        puts out need not be put out again, and to end it takes time that the other one needs.
        """
        instance = self._instances[wanted.node]
        replica, former = instance.secondary, instance.primary
        if (
            replica is None
            or not replica.is_ready(instance.plan)
            or former.state is not NodeState.RUNNING
            or former.task != wanted.task
        ):
            return []
        instance.recovery = Recovery(now_ms, now_ms)
        outgoing, former.task = former.task, None  # It is fenced, and not ended yet.
        effects = self._fence(instance, former, now_ms) + self._succeed(instance, now_ms)
        instance.outgoing = outgoing
        former.due_ms = now_ms + self._limits.keep_alive_ms  # Not while the other takes over.
        return effects + self._launch(instance, former, now_ms)

    def _count_failure(self, instance: Instance, reason: str, now_ms: int) -> list[Effect]:
        window = self._limits.failure_window_ms
        recent = [t for t in instance.failures_ms if now_ms - t < window]
        instance.failures_ms = [*recent, now_ms]
        name, last = instance.plan.node, instance.last_reason or reason
        if not instance.plan.is_protected:
            return self._fail(f"{name} failed and is not protected: {last}")
        if len(instance.failures_ms) >= self._limits.failures_max:
            return self._fail(
                f"{name} failed {len(instance.failures_ms)} times within {window} ms; "
                f"last reason: {last}"
            )
        return []

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
        if alive.has_joined and replica is instance.secondary and not replica.has_joined:
            replica.has_joined = True
            effects += self._store_held(instance, now_ms)
        if replica is instance.primary and alive.incarnation == replica.incarnation:
            effects += self._tell_floors(alive, replica)
        for peer in self._known_to(instance):
            told = self._told(alive.node, replica, peer)
            if told is not None and not self._is_known(alive, told):
                effects.append(told)
        return effects

    def _tell_floors(self, alive: KeepAliveReceived, replica: Replica) -> list[Effect]:
        """What its idle sources may promise."""
        if replica.task is None:
            return []
        floors = self._floors.heard(
            alive.node,
            alive.incarnation,
            alive.reached,
            lambda node: self._instances[node].primary.incarnation,
        )
        return [
            TellFloor(alive.node, replica.task, alive.incarnation, stream, floor_us)
            for stream, floor_us in floors
        ]

    def _is_known(self, alive: KeepAliveReceived, told: TellPeer) -> bool:
        """Whether a node knows what it would be told. Secondaries concern producers alone."""
        if alive.peers.get(told.peer) != told.incarnation:
            return False
        if told.peer != told.node and told.peer not in self._receivers[told.node]:
            return True
        return alive.secondaries.get(told.peer, 0) == told.secondary

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
        noted = PointNoted(received.node, received.incarnation, received.point)
        return [self._journal(noted, lambda _: self._stored(instance, received))]

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

    def _on_write_wanted(self, wanted: WriteWanted, now_ms: int) -> list[Effect]:
        if self._admission is None or self._primary(*_who(wanted), now_ms) is None:
            return []
        return self._admission.wanted(wanted.node, wanted.incarnation, now_ms)

    def _on_write_ended(self, ended: WriteEnded, now_ms: int) -> list[Effect]:
        if self._admission is None or self._primary(*_who(ended), now_ms) is None:
            return []
        return self._admission.ended(ended.node, ended.incarnation, now_ms)

    def _on_node_caught_up(self, caught_up: NodeCaughtUp, now_ms: int) -> list[Effect]:
        found = self._heard(caught_up.node, caught_up.incarnation, now_ms)
        if found is None:
            return []
        instance, replica = found
        replica.has_caught_up = True
        if instance.recovery is not None and replica is instance.primary:
            instance.recovery.caught_up_at_ms = now_ms
            instance.recovery.replayed_tuples = caught_up.replayed_tuples
        return []

    def _on_first_output(self, first: FirstOutput, now_ms: int) -> list[Effect]:
        instance = self._primary(first.node, first.incarnation, now_ms)
        if instance is None or instance.recovery is None:
            return []
        return [self._recovered(instance, instance.recovery, now_ms)]

    def _recovered(self, instance: Instance, recovery: Recovery, now_ms: int) -> ReportRecovery:
        instance.recovery = None
        caught_up = max(recovery.caught_up_at_ms, recovery.hello_at_ms)
        return ReportRecovery(
            instance.plan.node,
            recovery.detected_at_ms - recovery.last_alive_ms,
            recovery.hello_at_ms - recovery.detected_at_ms,
            caught_up - recovery.hello_at_ms,
            now_ms - recovery.last_alive_ms,
            recovery.replayed_tuples,
            recovery.was_promoted,
        )

    def _on_node_finished(self, finished: NodeFinished, now_ms: int) -> list[Effect]:
        instance = self._primary(finished.node, finished.incarnation, now_ms)
        if instance is None:
            return []
        self._unfinished.pop(finished.node, None)
        effects: list[Effect] = []
        if instance.recovery is not None:
            effects.append(self._recovered(instance, instance.recovery, now_ms))
        if not self._unfinished:
            self._is_over = True
            effects.append(FinishQuery())
        return effects

    # -- looking ----------------------------------------------------------------------------

    def is_current(self, node: NodeId, incarnation: Incarnation) -> bool:
        """Whether messages of this incarnation still count."""
        instance = self._instances.get(node)
        return instance is not None and instance.of_incarnation(incarnation) is not None

    def is_outgoing(self, node: NodeId, task: str) -> bool:
        """Whether the task has handed over and may go on; what it says does not count."""
        instance = self._instances.get(node)
        return instance is not None and instance.outgoing == task

    def is_expected(self, node: NodeId, launch: int) -> bool:
        """Whether a task of this launch may still say hello."""
        instance = self._instances.get(node)
        return instance is not None and instance.of_launch(launch) is not None

    def awaited_launch(self, node: NodeId) -> int | None:
        """A launch of the node that no task has come up for yet."""
        replicas = self._instances[node].replicas()
        awaited = (r for r in replicas if r.state is NodeState.LAUNCHING and not r.is_waiting)
        return next((replica.launch for replica in awaited), None)

    def instance(self, node: NodeId) -> Instance:
        """What is known of a node, for people."""
        return self._instances[node]

    @property
    def registry(self) -> CheckpointRegistry:
        """What is durable: restart points and incarnations. To be read only."""
        return self._registry

    def states(self) -> dict[NodeId, NodeState]:
        """The state of every node's primary."""
        return {name: instance.primary.state for name, instance in self._instances.items()}

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the coordinator's own state makes no sense."""
        for name, instance in self._instances.items():
            given = [r.incarnation for r in instance.replicas() if r.incarnation]
            if len(set(given)) < len(given) or any(i > instance.newest for i in given):
                raise InvariantViolation(f"{name}: incarnations {given} up to {instance.newest}")
            for replica in instance.replicas():
                if replica.state is not NodeState.LAUNCHING and replica.task is None:
                    raise InvariantViolation(f"{name} is {replica.state.value} without a task")
        self._registry.check_invariants()
        if self._admission is not None:
            self._admission.check_invariants()

    def statistics(self) -> dict[NodeId, NodeState]:
        """Every node's state."""
        return self.states()


def _who(word: WriteWanted | WriteEnded) -> tuple[NodeId, Incarnation]:
    return word.node, word.incarnation


_HANDLERS: dict[type[Stimulus], Callable[[Coordinator, Any, int], list[Effect]]] = {
    Started: Coordinator._on_started,
    HelloReceived: Coordinator._on_hello_received,
    HostsKnown: Coordinator._on_hosts_known,
    KeepAliveReceived: Coordinator._on_keep_alive_received,
    TaskEnded: Coordinator._on_task_ended,
    NodeFailed: Coordinator._on_node_failed,
    ZombieHeard: Coordinator._on_zombie_heard,
    NodePromoted: Coordinator._on_node_promoted,
    HandoverWanted: Coordinator._on_handover_wanted,
    RestartPointReceived: Coordinator._on_restart_point_received,
    WriteWanted: Coordinator._on_write_wanted,
    WriteEnded: Coordinator._on_write_ended,
    NodeFinished: Coordinator._on_node_finished,
    NodeCaughtUp: Coordinator._on_node_caught_up,
    FirstOutput: Coordinator._on_first_output,
    JournalWritten: Coordinator._on_journal_written,
    TimerFired: Coordinator._on_timer_fired,
}
