"""Waiting until what sources hold now has been worked off, from what nodes report of themselves.

A report says, of one moment, up to which id a node has processed each input and how far its outputs
go. So once a node has processed what its producers had put out when *they* had processed what was
wanted of them, what it has put out then covers it; and so on to the sinks. Nothing has to stand
still meanwhile, and a node that is replaced just takes longer.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage.commit_counting import CommitCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import NodeId
    from holdfast.planning.plan import Plan
    from holdfast.shell.spark.history import NodeReport

_LOOK_INTERVAL_S: Final = 0.02
_ASK_INTERVAL_S: Final = 0.06


def wait_until_drained(
    plan: Plan,
    reports: Mapping[NodeId, NodeReport],
    committed: Mapping[str, int | None],
    lives: Callable[[], bool],
    ask: Callable[[Iterable[NodeId]], object],
) -> Mapping[str, int]:
    """Wait until all nodes have processed what comes of so many rows of the sources.

    Returns:
        Per stream the id before which all of that is. A node that is replaced afterwards has to
        come there again.

    Args:
        plan: The nodes.
        reports: What was last heard of each; changes meanwhile.
        committed: Per source stream the rows of its log that are to be worked off.
        lives: Whether there is something to wait for; may raise.
        ask: Has nodes report at once, which they do now and then by themselves.
    """
    draining, ask_s = Draining(plan, committed), 0.0
    while not draining.is_over(reports) and lives():
        if time.monotonic() >= ask_s:
            ask(draining.left)
            ask_s = time.monotonic() + _ASK_INTERVAL_S
        time.sleep(_LOOK_INTERVAL_S)  # Nothing tells that a report has come.
    return draining.wanted


def commit_counters(plan: Plan) -> dict[str, CommitCounter]:
    """Who counts the rows of each source stream whose log says how many there are."""
    return {
        stream: CommitCounter(spec.path, spec.partition, spec.partitions)
        for stream, spec in plan.sources.items()
        if isinstance(spec, LogSourceSpec) and spec.kind == "ingest" and spec.speed is None
    }


class Draining:
    """How far it has come."""

    def __init__(self, plan: Plan, committed: Mapping[str, int | None]) -> None:
        """Nothing has been heard yet."""
        self._committed = committed
        self._left = {node.node: node for node in plan.nodes}
        # Per source which report said it was read: of which life, and which one of that.
        self._read: dict[str, tuple[tuple[str, int], int]] = {}
        self._wanted: dict[str, int] = {}  # per stream the id before which all is to be processed

    @property
    def wanted(self) -> Mapping[str, int]:
        """Per stream that is known so far the id before which all is to be processed."""
        return self._wanted

    @property
    def left(self) -> list[NodeId]:
        """Nodes that have not yet said that they have processed what is wanted."""
        return list(self._left)

    def is_over(self, reports: Mapping[NodeId, NodeReport]) -> bool:
        """Take what the nodes say now; whether all have processed what is wanted."""
        has_moved = True
        while has_moved:
            has_moved = False
            for name, node in list(self._left.items()):
                report = reports[name]
                self._look_at_sources(node, report)
                wanted = [self._wanted.get(spec.stream) for spec in node.inputs]
                if any(w is None for w in wanted) or not _has_processed(node, report, wanted):
                    continue
                self._wanted |= report.next_ids
                del self._left[name]
                has_moved = True
        return not self._left

    def _look_at_sources(self, node: NodePlan, report: NodeReport) -> None:
        """Rows become ids with the report after the one that says they were read.

        1. A node reads, and reports before it has taken what was read into its queue. 2. Its next
        report has it there. A node that was replaced in between begins again with 1.

        What waits in its queues may be of any of its sources. So later reports, with less waiting,
        say more exactly which ids the rows have.
        """
        for spec in node.inputs:
            stream = spec.stream
            rows = report.source_rows.get(stream)
            if spec.producer is not None or rows is None:
                continue
            if rows < (self._committed.get(stream) or 0):
                continue
            life = (report.host, report.pid)
            first = self._read.get(stream)
            if first is None or first[0] != life:
                self._read[stream] = (life, report.reports)
            elif report.reports != first[1]:
                pending = report.figures.counted.pending_tuples
                before = report.processed.get(stream, 0) + pending
                self._wanted[stream] = min(before, self._wanted.get(stream, before))


def _has_processed(node: NodePlan, report: NodeReport, wanted: list[int | None]) -> bool:
    return all(
        report.processed.get(spec.stream, -1) >= (before or 0)
        for spec, before in zip(node.inputs, wanted, strict=True)
    )
