"""OpenTelemetry traces of the recoveries and checkpoints of the queries of this process.

The driver hears of both when they are over. So spans are made then, with the times that were
measured. Nodes know nothing of it, and it costs them nothing.

A recovery is a trace of its own: from the last sign of life of the node to the first new output,
with a span for each of its numbers. [HA §6.1] A span for the catching up follows in the same trace,
when results are as prompt again as before. A checkpoint is a span from its snapshot to the end of
the write; one that failed has the status of an error.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.driver.progress import recovery_block
from holdfast.errors import UnsupportedError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer, TracerProvider

    from holdfast.driver.listeners import QueryManager

_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000
_PARTS: Final = {
    "detection": "detectionMs",
    "restart": "restartMs",
    "replay": "replayMs",
    "first output": "firstOutputMs",
}
_CheckpointKey = tuple[str, int, float]


@dataclass(slots=True)
class _Run:
    """What has been sent of one run of a query.

    Attributes:
        recoveries: How many.
        catching_up: Of recoveries whose results come later than before, by their number.
        checkpoints: Those that the query still lists.
    """

    recoveries: int = 0
    catching_up: dict[int, Context] = field(default_factory=dict)
    checkpoints: set[_CheckpointKey] = field(default_factory=set)


class Traces:
    """Sends spans of what queries report, until it is stopped. A listener of all queries."""

    def __init__(self, tracer: Tracer, manager: QueryManager) -> None:
        """Use `send_traces`."""
        self._tracer = tracer
        self._manager = manager
        self._runs: dict[str, _Run] = {}
        self._lock = threading.Lock()  # Each query reports in a thread of its own.
        manager.addListener(self)

    def stop(self) -> None:
        """Send no more."""
        self._manager.removeListener(self)

    def onQueryProgress(self, event: Any) -> None:
        """Something has moved, or this is the last report."""
        progress = event.progress
        query = self._manager.get(progress["id"])
        listed = progress["checkpoints"] if query is None else query.checkpoints
        self._send(progress["name"], progress["runId"], progress["recoveries"], listed)

    def onQueryIdle(self, event: Any) -> None:
        """No row has moved; checkpoints are taken, and nodes recover, all the same."""
        query = self._manager.get(str(event.id))
        if query is not None:
            self._send(query.name, query.runId, query.recoveries, query.checkpoints)

    def onQueryTerminated(self, event: Any) -> None:
        """Its last report has been sent."""
        with self._lock:
            self._runs.pop(str(event.runId), None)

    def _send(
        self,
        name: str,
        run_id: str,
        recoveries: list[dict[str, Any]],
        checkpoints: Iterable[dict[str, Any]],
    ) -> None:
        with self._lock:
            run = self._runs.setdefault(run_id, _Run())
            about = {"holdfast.query": name, "holdfast.run_id": run_id}
            for number in range(run.recoveries, len(recoveries)):
                run.catching_up[number] = self._recovery(recoveries[number], about)
            run.recoveries = len(recoveries)
            for number in [n for n in run.catching_up if recoveries[n]["caught_up_ms"] is not None]:
                self._caught_up(recoveries[number], run.catching_up.pop(number))
            listed = {_key(each): each for each in checkpoints}
            for key in listed.keys() - run.checkpoints:
                self._checkpoint(listed[key], about)
            run.checkpoints = set(listed)

    def _recovery(self, recovery: Mapping[str, Any], about: Mapping[str, str]) -> Context:
        """The trace of a recovery, to which its catching up is added."""
        from opentelemetry.trace import set_span_in_context

        end_ns = round(recovery["recovered_unix_s"] * _NS_PER_S)
        begin_ns = end_ns - recovery["recovered_ms"] * _NS_PER_MS
        how = {
            "holdfast.replayed_tuples": recovery["replayed_tuples"],
            "holdfast.was_promoted": recovery["was_promoted"],
        }
        attributes = {**about, **_of_node(recovery["node"]), **how}
        root = self._tracer.start_span(
            "recovery", context=_root(), attributes=attributes, start_time=begin_ns
        )
        within = set_span_in_context(root, _root())
        numbers = recovery_block([dict(recovery)])
        for part, key in _PARTS.items():
            part_end_ns = min(end_ns, begin_ns + numbers[key] * _NS_PER_MS)
            self._tracer.start_span(part, within, start_time=begin_ns).end(part_end_ns)
            begin_ns = part_end_ns
        root.end(end_ns)
        return within

    def _caught_up(self, recovery: Mapping[str, Any], within: Context) -> None:
        begin_ns = round(recovery["recovered_unix_s"] * _NS_PER_S)
        took_ms = recovery_block([dict(recovery)])["catchUpMs"]
        span = self._tracer.start_span("catch up", within, start_time=begin_ns)
        span.end(begin_ns + took_ms * _NS_PER_MS)

    def _checkpoint(self, checkpoint: Mapping[str, Any], about: Mapping[str, str]) -> None:
        from opentelemetry.trace import Status, StatusCode

        end_ns = round(checkpoint["at_unix_s"] * _NS_PER_S)
        sizes = {
            "holdfast.checkpoint": checkpoint["checkpoint"],
            "holdfast.standstill_us": checkpoint["prepared_us"],
            "holdfast.written_bytes": checkpoint["written_bytes"],
            "holdfast.state_bytes": checkpoint["state_bytes"],
        }
        span = self._tracer.start_span(
            "checkpoint",
            context=_root(),
            attributes={**about, **_of_node(checkpoint["node"]), **sizes},
            start_time=end_ns - checkpoint["duration_ms"] * _NS_PER_MS,
        )
        if checkpoint["failure"] is not None:
            span.set_status(Status(StatusCode.ERROR, checkpoint["failure"]))
        span.end(end_ns)


def _root() -> Context:
    """A context without a span: a listener's thread may have one of its own."""
    from opentelemetry.context import Context

    return Context()


def _of_node(node: str) -> dict[str, str]:
    return {"holdfast.node": node, "holdfast.unit": node.rpartition("[")[0]}


def _key(checkpoint: Mapping[str, Any]) -> _CheckpointKey:
    return (checkpoint["node"], checkpoint["checkpoint"], checkpoint["at_unix_s"])


def send_traces(tracer_provider: TracerProvider | None = None) -> Traces:
    """Send OpenTelemetry spans of recoveries and checkpoints of all queries of this process.

    Those of a query come with its progress reports, those of queries that start later too. What
    has happened in a query before this call is sent with its next report.

    Args:
        tracer_provider: By default the global one, as `opentelemetry-instrument` or the
            application has set it; without any, spans go nowhere.

    Raises:
        UnsupportedError: `opentelemetry-api` is not installed.
    """
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise UnsupportedError(
            "traces need opentelemetry: pip install 'holdfast-streaming[otel]'"
        ) from error
    from holdfast import __version__
    from holdfast.driver.listeners import queries

    tracer = trace.get_tracer("holdfast", __version__, tracer_provider)
    return Traces(tracer, queries)
