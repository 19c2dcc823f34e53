"""What the driver has heard of a query's nodes: their newest reports, and all that failed.

Progress reports, metrics and `Query`'s lists show it; nothing is decided by it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.held_up import SourcePromise, promises_of
from holdfast.core.coordinator.reports import (
    CheckpointReported,
    DamageReported,
    GapReported,
    NodeFigures,
    RowsReported,
    StatisticsReported,
)
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.shell.spark.catch_up import CatchUpWatch, CaughtUp
from holdfast.shell.spark.row_questions import RowQuestions

if TYPE_CHECKING:
    from holdfast.core.coordinator.checkpoint_rounds import ReportRound
    from holdfast.core.coordinator.line_account import ReportLine
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.wire.node_words import FromNode, Task

_LOG = logging.getLogger(__name__)
_CHECKPOINTS_SHOWN: Final = 1_000
_ROUNDS_SHOWN: Final = 256
_ASK_INTERVAL_S: Final = 0.02  # for some seconds after a recovery: how finely catch-up is told


@dataclass(slots=True)
class NodeReport:
    """What the driver last heard of a node; who looks at one sees all of one moment."""

    pid: int = 0
    host: str = ""
    figures: NodeFigures = field(default_factory=NodeFigures)
    latency: dict[int, int] = field(default_factory=dict)
    latency_max_us: int = 0
    late_rows: dict[str, int] = field(default_factory=dict)  # from its beginning
    refused: dict[str, int] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    processed: dict[str, int] = field(default_factory=dict)  # per input stream, exclusive
    next_ids: dict[str, int] = field(default_factory=dict)  # per output stream
    source_rows: dict[str, int | None] = field(default_factory=dict)  # read of each source's log
    promises: dict[StreamId, SourcePromise] = field(default_factory=dict)  # of its sources
    reports: int = 0  # how often its task has said all this

    def with_more(self, said: StatisticsReported, now_ms: int) -> NodeReport:
        """The node's task has said what it has done so far."""
        return replace(
            self,
            figures=said.figures,
            latency=said.latency,
            latency_max_us=said.latency_max_us,
            late_rows=said.late_rows,
            refused=said.refused,
            processed=said.processed,
            next_ids=said.next_ids,
            source_rows={str(stream): each.rows_read for stream, each in said.sources.items()},
            promises=promises_of(said.sources, self.promises, now_ms),
            reports=self.reports + 1,
        )


class History:
    """The reports of a query's nodes, its failures, recoveries, checkpoints, gaps and damages.

    The coordinator's thread writes; other threads read copies, and reports, which are replaced.
    """

    def __init__(self, plans: Iterable[NodePlan]) -> None:
        """Nothing has been heard of these nodes."""
        receivers = {plan.node: plan.receivers() for plan in plans}
        self.reports = {node: NodeReport() for node in receivers}
        """Of primaries."""
        self.failures: list[dict[str, Any]] = []
        self.recoveries: list[dict[str, Any]] = []
        self.checkpoints: deque[dict[str, Any]] = deque(maxlen=_CHECKPOINTS_SHOWN)
        self.rounds: deque[dict[str, Any]] = deque(maxlen=_ROUNDS_SHOWN)
        self.lines: dict[NodeId, dict[str, Any]] = {}
        """Per member of a region what its line has come to."""
        self.gaps: list[dict[str, Any]] = []
        self.damages: list[dict[str, Any]] = []
        self.row_questions = RowQuestions()
        self.started_s = time.time()
        self._of_task: dict[str, NodeReport] = {}
        self._catch_up = CatchUpWatch(receivers)
        self._asked_s = 0.0

    # -- processes --------------------------------------------------------------------------

    def came_up(self, task: Task, host: str) -> None:
        """A node's process has said hello."""
        self._of_task.setdefault(task.name, NodeReport(task.pid, host))

    def has(self, task: str) -> bool:
        """Whether a process has said hello."""
        return task in self._of_task

    def of(self, task: str | None) -> NodeReport:
        """What was last heard of a process; empty if nothing."""
        return self._of_task.get(task or "", NodeReport())

    def show(self, node: NodeId, task: str | None) -> None:
        """From now on what is reported of a node is what this process says; None: as before."""
        if task is not None:
            self.reports[node] = self._of_task[task]

    def refused(self) -> dict[str, dict[str, int]]:
        """Frames and handshakes that nodes have refused so far, each with all its processes."""
        found = {str(node): {"frames": 0, "handshakes": 0} for node in self.reports}
        for task, report in list(self._of_task.items()):
            of_node = found[task.partition("|")[0]]
            for kind, count in report.refused.items():
                of_node[kind] = of_node.get(kind, 0) + count
        return found

    # -- words of nodes ---------------------------------------------------------------------

    def note(self, task: str, word: FromNode) -> None:
        """Keep of a word what people may want to know."""
        note = _NOTED.get(type(word))
        if note is not None:
            note(self, task, word)

    def _note_keep_alive(self, task: str, alive: c.KeepAliveReceived) -> None:
        self.of(task).waits = alive.waits

    def _note_statistics(self, task: str, said: StatisticsReported) -> None:
        before = self._of_task.get(task)
        if before is None:
            return
        report = before.with_more(said, time.monotonic_ns() // 1_000_000)
        self._of_task[task] = report
        if self.reports[said.node] is before:
            self.reports[said.node] = report
            for caught_up in self._catch_up.heard(said.node, report.latency, time.monotonic()):
                self._note_caught_up(caught_up)

    def _note_caught_up(self, caught_up: CaughtUp) -> None:
        """Put beside the first new output when results were as prompt again as before."""
        for recovery in reversed(self.recoveries):
            if recovery["node"] == caught_up.node:
                recovery["caught_up_ms"] = caught_up.caught_up_ms
                return

    def _note_checkpoint(self, _: str, said: CheckpointReported) -> None:
        shown = self._shown(said)
        self.checkpoints.append(shown)
        if said.failure is not None:
            _LOG.warning("no checkpoint this time: %s", shown)

    def _note_damage(self, _: str, said: DamageReported) -> None:
        self.damages.append(self._shown(said))
        _LOG.warning("checkpoint passed over: %s", self.damages[-1])

    def _note_gap(self, _: str, said: GapReported) -> None:
        shown = self._shown(said)
        del shown["at_unix_s"]
        what = ("node", "stream", "from_id", "to_id")
        if not any(all(each[name] == shown[name] for name in what) for each in self.gaps):
            self.gaps.append(shown)  # Whoever takes over from a node may say it once more.

    def _shown(self, said: CheckpointReported | DamageReported | GapReported) -> dict[str, Any]:
        """A report as progress reports and logs show it, with the time."""
        names = [each.name for each in fields(said) if each.name != "incarnation"]
        return {name: getattr(said, name) for name in names} | {
            "at_s": round(time.time() - self.started_s, 3),
            "at_unix_s": round(time.time(), 3),
        }

    def nodes_to_ask(self) -> list[NodeId]:
        """Whose next report may end a failure; empty if they have been asked just now."""
        now_s = time.monotonic()
        if now_s - self._asked_s < _ASK_INTERVAL_S:
            return []
        self._asked_s = now_s
        return self._catch_up.awaited(now_s)

    # -- what the coordinator says ----------------------------------------------------------

    def completed(self, round_: ReportRound) -> None:
        """A round of checkpoints is complete."""
        self.rounds.append(
            {
                "round": round_.round,
                "at_s": round(time.time() - self.started_s, 3),
                "durableMs": dict(round_.durable_ms),
                "roundMs": round_.round_ms,
            }
        )

    def line_moved(self, report: ReportLine) -> None:
        """The line of a region has moved, or a recovery has gone back to it."""
        now_s = time.time()
        for node, count in report.members.items():
            noted_s = None
            if count.noted_ms is not None:
                noted_s = now_s - (report.now_ms - count.noted_ms) / 1e3
            self.lines[node] = {
                "checkpoints": count.noted,
                "forced": count.forced,
                "useless": count.useless,
                "rolledPast": count.rolled_past,
                "lineMs": count.line_ms,
                "noted_unix_s": noted_s,
            }

    def failed(self, failure: c.ReportFailure) -> None:
        """One line for whoever watches the driver, and what progress reports say of it."""
        _LOG.warning("%s failed and is being replaced: %s", failure.node, failure.reason)
        self._catch_up.failed(failure.node, time.monotonic() - failure.silent_ms / 1e3)
        self.failures.append(
            {
                "node": failure.node,
                "incarnation": failure.incarnation,
                "at_s": round(time.time() - self.started_s, 3),
                "reason": failure.reason,
                "detected_ms": failure.silent_ms,
            }
        )

    def recovered(self, recovery: c.ReportRecovery) -> None:
        """A node has put out its first new tuple."""
        self._catch_up.recovered(recovery.node, time.monotonic())
        self.recoveries.append(
            {
                "node": recovery.node,
                "at_s": round(time.time() - self.started_s - recovery.recovered_ms / 1e3, 3),
                "detected_ms": recovery.detected_ms,
                "restarted_ms": recovery.restarted_ms,
                "replayed_ms": recovery.replayed_ms,
                "recovered_ms": recovery.recovered_ms,
                "recovered_unix_s": round(time.time(), 3),
                "caught_up_ms": None,
                "replayed_tuples": recovery.replayed_tuples,
                "was_promoted": recovery.was_promoted,
            }
        )


_NOTED: dict[type[Any], Callable[[History, str, Any], None]] = {
    c.KeepAliveReceived: History._note_keep_alive,
    StatisticsReported: History._note_statistics,
    CheckpointReported: History._note_checkpoint,
    DamageReported: History._note_damage,
    GapReported: History._note_gap,
    RowsReported: lambda history, _, said: history.row_questions.heard(said),
}
