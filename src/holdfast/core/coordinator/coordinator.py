"""The coordinator: who lives, who counts, and from where a replacement goes on. [HA §4, SGuard §3]

Theory of operation. Every node is in one of the states of `NodeState`:

    LAUNCHING --hello--> ASSIGNING --journal written--> RUNNING --lost--> LAUNCHING
                                                   any state --finished/stop--> (end)

- A node that comes up says hello. The coordinator gives it the next incarnation and writes that to
  its journal; only when the journal is durable does the node get its assignment (incarnation,
  newest stored restart point, neighbours), and its neighbours the news.
- A RUNNING node is lost when keep-alives are missed, when Spark reports its task's end, or when
  another task says hello in its name (Spark replaced it before we noticed). It is fenced at once:
  from then on only the next incarnation counts. Then the shell is asked to end its process, if it
  still has one, and to launch a replacement unless one has already come up.
- A restart point is journalled; the node is told once it is durable, and only then may it tell its
  neighbours to trim. So the newest journalled point is always one from which the node can start.
- Back-off: a node that is lost `failures_max` times within `failure_window_ms` fails the query,
  with the last reason: a poison tuple must not turn into a silent loop of restarts.

A coordinator that starts over an existing journal is an ordinary one with `epoch` one higher;
every node then starts at its newest stored point.

Invariants: incarnations only grow; no assignment and no `TellPointStored` before the journal has
it; a message of a fenced incarnation changes nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.coordinator.admission import Admission
from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.plan import Assignment, NodePlan
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.recovery.restart_point import RestartPoint

_CHECK_INTERVAL_MS = 20
_NONE_YET = Incarnation(0)


class NodeState(enum.Enum):
    """Where a node is in its life."""

    LAUNCHING = "launching"
    ASSIGNING = "assigning"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class CoordinatorLimits:
    """Settings of failure detection and recovery.

    Attributes:
        keep_alive_ms: Period of keep-alives (HA: 100 ms).
        misses: Missed keep-alives after which a node is taken for dead (HA: 3).
        launch_timeout_ms: How long a launched task may take to say hello.
        launches_max: So many launches in a row that end without a hello fail the query.
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


# -- stimuli --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Started(Stimulus):
    """The coordinator may begin."""


@dataclass(frozen=True, slots=True)
class HelloReceived(Stimulus):
    """A task has come up for a node.

    Attributes:
        node: Whose instance it runs.
        task: Names the task's process uniquely; the answer goes there.
        endpoint: Where its neighbours reach it.
    """

    node: NodeId
    task: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class KeepAliveReceived(Stimulus):
    """A node lives.

    Attributes:
        node: The node.
        incarnation: Its incarnation.
        peers: The incarnations of its neighbours as it knows them; if the word of a new one was
            lost, it is repeated.
    """

    node: NodeId
    incarnation: Incarnation
    peers: dict[NodeId, Incarnation]


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
class RestartPointReceived(Stimulus):
    """A node asks to store a safe restart point."""

    node: NodeId
    incarnation: Incarnation
    point: RestartPoint


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
    """End the process of a fenced incarnation, if it still runs."""

    node: NodeId
    task: str


@dataclass(frozen=True, slots=True)
class WriteJournal(Effect):
    """Make entries durable; answered by `JournalWritten`."""

    request_id: int
    entries: tuple[dict[str, object], ...]


@dataclass(frozen=True, slots=True)
class SendAssignment(Effect):
    """Tell a task which incarnation it is, and who its neighbours are."""

    node: NodeId
    task: str
    assignment: Assignment
    peers: dict[NodeId, tuple[Incarnation, str]]


@dataclass(frozen=True, slots=True)
class TellPeer(Effect):
    """Tell a running node where the present incarnation of a neighbour is."""

    node: NodeId
    peer: NodeId
    incarnation: Incarnation
    endpoint: str


@dataclass(frozen=True, slots=True)
class TellPointStored(Effect):
    """Tell a node that its restart point is durable."""

    node: NodeId
    incarnation: Incarnation
    sequence: int


@dataclass(frozen=True, slots=True)
class ReportFailure(Effect):
    """A node was taken for lost."""

    node: NodeId
    incarnation: Incarnation
    reason: str
    silent_ms: int


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
    """

    node: NodeId
    detected_ms: int
    restarted_ms: int
    replayed_ms: int
    recovered_ms: int
    replayed_tuples: int


@dataclass(frozen=True, slots=True)
class FinishQuery(Effect):
    """All nodes are done."""


@dataclass(frozen=True, slots=True)
class FailQuery(Effect):
    """The query cannot go on."""

    reason: str


@dataclass(slots=True)
class _Recovery:
    """Times of one failure, ms on the coordinator's clock."""

    last_alive_ms: int
    detected_at_ms: int
    hello_at_ms: int = -1
    caught_up_at_ms: int = -1
    replayed_tuples: int = 0


@dataclass(slots=True)
class _Node:
    """What the coordinator knows of one node."""

    plan: NodePlan
    state: NodeState = NodeState.LAUNCHING
    incarnation: Incarnation = _NONE_YET  # the newest given out; never moves back
    launch: int = 0  # number of the newest launch
    launched_at_ms: int = 0
    task: str | None = None
    endpoint: str = ""
    heard_ms: int = 0
    point: RestartPoint | None = None  # newest durable restart point
    asked_place: tuple[int, int] = (0, 0)  # incarnation and number of the newest one to be stored
    failed_launches: int = 0  # in a row, without a hello
    failures_ms: list[int] = field(default_factory=list)
    recovery: _Recovery | None = None
    last_reason: str = ""


@dataclass(slots=True)
class _Request:
    """What to do when journal entries are durable."""

    done: Callable[[int], list[Effect]]


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
        journal: tuple[dict[str, object], ...] = (),
    ) -> None:
        """Begin a life over the entries that earlier ones left in the journal."""
        self.epoch = epoch
        self._limits = limits
        self._nodes = {plan.node: _Node(plan) for plan in plans}
        self._neighbours: dict[NodeId, list[NodeId]] = {
            plan.node: [*plan.producers(), *plan.receivers()] for plan in plans
        }
        self._unfinished = dict.fromkeys(self._nodes)
        self._requests: dict[int, _Request] = {}
        self._next_request = 1
        self._is_over = False
        self._admission: Admission | None = None
        if limits.writers_max:
            self._admission = Admission(limits.writers_max, self._nodes)
        self.failures = 0
        for entry in journal:
            self._replay(entry)

    def _replay(self, entry: dict[str, object]) -> None:
        node = self._nodes.get(NodeId(str(entry.get("node"))))
        if node is None:
            return
        incarnation = entry.get("incarnation")
        if isinstance(incarnation, int):
            node.incarnation = Incarnation(max(node.incarnation, incarnation))
        point = entry.get("point")
        if isinstance(point, dict):
            node.point = RestartPoint.from_json(point)

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus."""
        if self._is_over:
            return []
        return _HANDLERS[type(stimulus)](self, stimulus, now_ms)

    # -- coming up --------------------------------------------------------------------------

    def _on_started(self, _: Started, now_ms: int) -> list[Effect]:
        effects: list[Effect] = [SetTimer("check", now_ms + _CHECK_INTERVAL_MS)]
        for node in self._nodes.values():
            effects += self._launch(node, now_ms)
        return effects

    def _launch(self, node: _Node, now_ms: int) -> list[Effect]:
        node.launch += 1
        node.launched_at_ms = now_ms
        return [LaunchTask(node.plan.node, node.launch)]

    def _on_hello_received(self, hello: HelloReceived, now_ms: int) -> list[Effect]:
        node = self._nodes.get(hello.node)
        if node is None or node.task == hello.task:
            return []
        effects: list[Effect] = []
        if node.state is not NodeState.LAUNCHING:
            effects += self._fence(node, "a replacement task came up", now_ms)
        node.state = NodeState.ASSIGNING
        node.task = hello.task
        node.endpoint = hello.endpoint
        node.failed_launches = 0
        node.heard_ms = now_ms
        node.incarnation = Incarnation(node.incarnation + 1)
        if node.recovery is not None:
            node.recovery.hello_at_ms = now_ms
        incarnation = node.incarnation
        entry: dict[str, object] = {"node": hello.node, "incarnation": incarnation}
        return [*effects, self._journal(entry, lambda ms: self._assigned(node, incarnation, ms))]

    def _assigned(self, node: _Node, incarnation: Incarnation, now_ms: int) -> list[Effect]:
        """The incarnation is durable: the node may work and its neighbours may know."""
        if node.incarnation != incarnation or node.task is None:
            return []
        node.state = NodeState.RUNNING
        node.heard_ms = now_ms
        name = node.plan.node
        peers = {
            peer: (other.incarnation, other.endpoint)
            for peer in self._neighbours[name]
            if (other := self._nodes[peer]).state is NodeState.RUNNING
        }
        assignment = Assignment(self.epoch, incarnation, node.point, {})
        effects: list[Effect] = [SendAssignment(name, node.task, assignment, peers)]
        effects += [
            TellPeer(peer, name, incarnation, node.endpoint)
            for peer in self._neighbours[name]
            if self._nodes[peer].state is NodeState.RUNNING
        ]
        return effects

    def _journal(
        self, entry: dict[str, object], done: Callable[[int], list[Effect]]
    ) -> WriteJournal:
        request_id = self._next_request
        self._next_request += 1
        self._requests[request_id] = _Request(done)
        return WriteJournal(request_id, (entry,))

    def _on_journal_written(self, written: JournalWritten, now_ms: int) -> list[Effect]:
        request = self._requests.pop(written.request_id, None)
        return [] if request is None else request.done(now_ms)

    # -- failing ----------------------------------------------------------------------------

    def _on_timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        if timer.name != "check":
            return [] if self._admission is None else self._admission.timer_fired(timer, now_ms)
        effects: list[Effect] = [SetTimer("check", now_ms + _CHECK_INTERVAL_MS)]
        deadline_ms = self._limits.keep_alive_ms * self._limits.misses
        for node in self._nodes.values():
            silent_ms = now_ms - node.heard_ms
            if node.state is NodeState.RUNNING and silent_ms > deadline_ms:
                reason = f"no keep-alive for {silent_ms} ms"
                effects += self._fence(node, reason, now_ms) + self._replace(node, now_ms)
            elif (
                node.state is NodeState.LAUNCHING
                and now_ms - node.launched_at_ms > self._limits.launch_timeout_ms
            ):
                effects += self._fail(
                    f"{node.plan.node} did not come up within {self._limits.launch_timeout_ms} ms"
                    + (f": {node.last_reason}" if node.last_reason else "")
                )
        return effects

    def _on_task_ended(self, ended: TaskEnded, now_ms: int) -> list[Effect]:
        node = self._nodes[ended.node]
        if ended.launch != node.launch:
            return []  # A launch that has been replaced.
        node.last_reason = node.last_reason or ended.reason
        effects: list[Effect] = []
        if node.state is NodeState.LAUNCHING:
            node.failed_launches += 1
            if node.failed_launches >= self._limits.launches_max:
                return self._fail(f"{ended.node} does not come up: {node.last_reason}")
            effects += self._count_failure(node, ended.reason, now_ms)
        else:
            effects += self._fence(node, ended.reason, now_ms)
        return effects + ([] if self._is_over else self._launch(node, now_ms))

    def _on_node_failed(self, failed: NodeFailed, now_ms: int) -> list[Effect]:
        node = self._nodes[failed.node]
        if failed.incarnation != node.incarnation:
            return []
        node.last_reason = failed.reason
        return self._fail(f"{failed.node}: {failed.reason}") if failed.is_fatal else []

    def _fence(self, node: _Node, reason: str, now_ms: int) -> list[Effect]:
        """From now on only a later incarnation of the node counts."""
        task, incarnation = node.task, node.incarnation
        silent_ms = now_ms - node.heard_ms
        if node.recovery is None:
            node.recovery = _Recovery(node.heard_ms, now_ms)
        node.state = NodeState.LAUNCHING
        node.task = None
        node.launched_at_ms = now_ms
        node.incarnation = Incarnation(incarnation + 1)
        self.failures += 1
        effects: list[Effect] = [ReportFailure(node.plan.node, incarnation, reason, silent_ms)]
        if task is not None:
            effects.append(EndTask(node.plan.node, task))
        if self._admission is not None:
            effects += self._admission.gone(node.plan.node, now_ms)
        return effects + self._count_failure(node, reason, now_ms)

    def _replace(self, node: _Node, now_ms: int) -> list[Effect]:
        return [] if self._is_over else self._launch(node, now_ms)

    def _count_failure(self, node: _Node, reason: str, now_ms: int) -> list[Effect]:
        window = self._limits.failure_window_ms
        node.failures_ms = [t for t in node.failures_ms if now_ms - t < window] + [now_ms]
        name = node.plan.node
        if not node.plan.is_protected:
            return self._fail(f"{name} failed and is not protected: {node.last_reason or reason}")
        if len(node.failures_ms) >= self._limits.failures_max:
            return self._fail(
                f"{name} failed {len(node.failures_ms)} times within {window} ms; "
                f"last reason: {node.last_reason or reason}"
            )
        return []

    def _fail(self, reason: str) -> list[Effect]:
        self._is_over = True
        return [FailQuery(reason)]

    # -- living -----------------------------------------------------------------------------

    def _current(self, name: NodeId, incarnation: Incarnation, now_ms: int) -> _Node | None:
        """The node, if the message is of its present incarnation."""
        node = self._nodes.get(name)
        if node is None or incarnation != node.incarnation or node.state is not NodeState.RUNNING:
            return None
        node.heard_ms = now_ms
        return node

    def _on_keep_alive_received(self, alive: KeepAliveReceived, now_ms: int) -> list[Effect]:
        if self._current(alive.node, alive.incarnation, now_ms) is None:
            return []
        return [
            TellPeer(alive.node, peer, other.incarnation, other.endpoint)
            for peer in self._neighbours[alive.node]
            if (other := self._nodes[peer]).state is NodeState.RUNNING
            and alive.peers.get(peer) != other.incarnation
        ]

    def _on_restart_point_received(
        self, received: RestartPointReceived, now_ms: int
    ) -> list[Effect]:
        node = self._current(received.node, received.incarnation, now_ms)
        if node is None:
            return []
        place = (received.incarnation, received.point.sequence)
        if place < node.asked_place:
            return []  # Said again, too late: the journal's last point of a node is its newest.
        node.asked_place = place
        entry: dict[str, object] = {"node": received.node, "point": received.point.to_json()}
        return [self._journal(entry, lambda _: self._stored(node, received))]

    def _stored(self, node: _Node, received: RestartPointReceived) -> list[Effect]:
        """The point is durable. It holds for later incarnations too."""
        node.point = received.point
        if node.incarnation != received.incarnation:
            return []
        return [TellPointStored(received.node, received.incarnation, received.point.sequence)]

    def _on_write_wanted(self, wanted: WriteWanted, now_ms: int) -> list[Effect]:
        if self._admission is None or self._current(*_who(wanted), now_ms) is None:
            return []
        return self._admission.wanted(wanted.node, wanted.incarnation, now_ms)

    def _on_write_ended(self, ended: WriteEnded, now_ms: int) -> list[Effect]:
        if self._admission is None or self._current(*_who(ended), now_ms) is None:
            return []
        return self._admission.ended(ended.node, ended.incarnation, now_ms)

    def _on_node_caught_up(self, caught_up: NodeCaughtUp, now_ms: int) -> list[Effect]:
        node = self._current(caught_up.node, caught_up.incarnation, now_ms)
        if node is not None and node.recovery is not None:
            node.recovery.caught_up_at_ms = now_ms
            node.recovery.replayed_tuples = caught_up.replayed_tuples
        return []

    def _on_first_output(self, first: FirstOutput, now_ms: int) -> list[Effect]:
        node = self._current(first.node, first.incarnation, now_ms)
        if node is None or node.recovery is None:
            return []
        return [self._recovered(node, now_ms)]

    def _recovered(self, node: _Node, now_ms: int) -> ReportRecovery:
        recovery = node.recovery
        if recovery is None:
            raise InvariantViolation(f"{node.plan.node} recovered without a failure")
        node.recovery = None
        caught_up = max(recovery.caught_up_at_ms, recovery.hello_at_ms)
        return ReportRecovery(
            node.plan.node,
            recovery.detected_at_ms - recovery.last_alive_ms,
            recovery.hello_at_ms - recovery.detected_at_ms,
            caught_up - recovery.hello_at_ms,
            now_ms - recovery.last_alive_ms,
            recovery.replayed_tuples,
        )

    def _on_node_finished(self, finished: NodeFinished, now_ms: int) -> list[Effect]:
        node = self._current(finished.node, finished.incarnation, now_ms)
        if node is None:
            return []
        self._unfinished.pop(finished.node, None)
        effects: list[Effect] = []
        if node.recovery is not None:
            effects.append(self._recovered(node, now_ms))
        if not self._unfinished:
            self._is_over = True
            effects.append(FinishQuery())
        return effects

    # -- looking ----------------------------------------------------------------------------

    def current_incarnation(self, node: NodeId) -> Incarnation:
        """The newest incarnation given out for a node."""
        return self._nodes[node].incarnation

    def is_current(self, node: NodeId, incarnation: Incarnation) -> bool:
        """Whether messages of this incarnation still count."""
        known = self._nodes.get(node)
        return known is not None and known.incarnation == incarnation

    def states(self) -> dict[NodeId, NodeState]:
        """Every node's state."""
        return {name: node.state for name, node in self._nodes.items()}

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the coordinator's own state makes no sense."""
        for name, node in self._nodes.items():
            if node.state is not NodeState.LAUNCHING and node.task is None:
                raise InvariantViolation(f"{name} is {node.state.value} without a task")
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
    KeepAliveReceived: Coordinator._on_keep_alive_received,
    TaskEnded: Coordinator._on_task_ended,
    NodeFailed: Coordinator._on_node_failed,
    RestartPointReceived: Coordinator._on_restart_point_received,
    WriteWanted: Coordinator._on_write_wanted,
    WriteEnded: Coordinator._on_write_ended,
    NodeFinished: Coordinator._on_node_finished,
    NodeCaughtUp: Coordinator._on_node_caught_up,
    FirstOutput: Coordinator._on_first_output,
    JournalWritten: Coordinator._on_journal_written,
    TimerFired: Coordinator._on_timer_fired,
}
