"""Measures how long a failure is felt: until results are as prompt again as before it.

The first new output ends a recovery [HA §7], but what has gathered meanwhile comes late. The
level of before is the 99th percentile of the latencies of the last two seconds before the failure
in which results came, at the sinks behind the node. A sink is back once half of the rows of one of
its reports are no later than that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.shell.telemetry import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.core.model.ids import NodeId

_LEVEL_SPAN_S: Final = 2.0
_REPORTS_KEPT: Final = 100
_AWAITED_FOR_S: Final = 10.0
"""Who feels a failure for longer may learn of its end half a second late."""


@dataclass(slots=True)
class _Sink:
    """What a node has said of the latencies at its sinks.

    Attributes:
        counts: The counts of its newest report, by bucket.
        heard_s: When that came.
        recent: When a report came, and the latencies that it added.
    """

    counts: dict[int, int] = field(default_factory=dict)
    heard_s: float = 0.0
    recent: deque[tuple[float, LatencyHistogram]] = field(
        default_factory=lambda: deque(maxlen=_REPORTS_KEPT)
    )

    def level_ms(self, until_s: float) -> float | None:
        """The 99th percentile of the last results before `until_s`; None: there were none."""
        before = [(at_s, latencies) for at_s, latencies in self.recent if at_s <= until_s]
        merged = LatencyHistogram()
        for at_s, latencies in before:
            if at_s >= before[-1][0] - _LEVEL_SPAN_S:
                merged.merge(latencies.counts, latencies.max_us)
        return merged.quantile_ms(0.99)


@dataclass(slots=True)
class _Failure:
    """A failure that may still be felt.

    Attributes:
        node: Which node failed.
        last_sign_s: When it gave its last sign of life.
        levels_ms: Per node with sinks behind it that is not back yet: the level of before.
        recovered_s: When the first new output came; None: it has not.
    """

    node: NodeId
    last_sign_s: float
    levels_ms: dict[NodeId, float]
    recovered_s: float | None = None


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Results are as prompt again as before a failure.

    Attributes:
        node: Which node had failed.
        recovered_s: When its first new output came.
        caught_up_ms: From its last sign of life until now.
    """

    node: NodeId
    recovered_s: float
    caught_up_ms: int


class CatchUpWatch:
    """Follows the latencies of all sinks of a query, and the failures of its nodes.

    Times are seconds of one clock that never goes back.
    """

    def __init__(self, receivers: Mapping[NodeId, Iterable[NodeId]]) -> None:
        """`receivers`: whom each node sends to."""
        self._receivers = {node: tuple(others) for node, others in receivers.items()}
        self._sinks = {node: _Sink() for node in self._receivers}
        self._failures: list[_Failure] = []

    def heard(self, node: NodeId, counts: Mapping[int, int], at_s: float) -> list[CaughtUp]:
        """Take in a node's report of its sinks' latencies, counted since its process began."""
        sink = self._sinks[node]
        is_new = any(counts.get(bucket, 0) < count for bucket, count in sink.counts.items())
        former = LatencyHistogram({} if is_new else sink.counts)
        added = LatencyHistogram(dict(counts)).since(former)
        since_s = at_s if is_new else sink.heard_s
        sink.counts, sink.heard_s = dict(counts), at_s
        median_ms = added.quantile_ms(0.5)
        if median_ms is None:
            return []
        sink.recent.append((at_s, added))
        for failure in self._failures:
            # Rows from before the failure may be in the first report after it.
            is_all_new = failure.recovered_s is not None and since_s >= failure.recovered_s
            if is_all_new and median_ms <= failure.levels_ms.get(node, -1.0):
                del failure.levels_ms[node]
        return self._settle(at_s)

    def failed(self, node: NodeId, last_sign_s: float) -> None:
        """A node has failed. What an earlier failure has made late is no level to get back to."""
        felt = {n: ms for failure in self._failures for n, ms in failure.levels_ms.items()}
        levels_ms = {
            sink: level_ms
            for sink in self._behind(node)
            if (level_ms := felt.get(sink, self._sinks[sink].level_ms(last_sign_s))) is not None
        }
        self._failures = [one for one in self._failures if one.node != node]
        if levels_ms:
            self._failures.append(_Failure(node, last_sign_s, levels_ms))

    def recovered(self, node: NodeId, at_s: float) -> None:
        """The first new output of a node that had failed has come."""
        for failure in self._failures:
            if failure.node == node and failure.recovered_s is None:
                failure.recovered_s = at_s

    def awaited(self, at_s: float) -> list[NodeId]:
        """Whose reports may tell that a failure is not felt any more, soon after its recovery."""
        found = [
            node
            for failure in self._failures
            if failure.recovered_s is not None and at_s - failure.recovered_s < _AWAITED_FOR_S
            for node in failure.levels_ms
        ]
        return list(dict.fromkeys(found))

    def _behind(self, node: NodeId) -> list[NodeId]:
        """The node, and all that read from it, directly or not."""
        found = [node]
        for one in found:  # It grows.
            found += [other for other in self._receivers[one] if other not in found]
        return found

    def _settle(self, at_s: float) -> list[CaughtUp]:
        done = [one for one in self._failures if not one.levels_ms]
        self._failures = [one for one in self._failures if one.levels_ms]
        return [
            CaughtUp(one.node, one.recovered_s, round(1e3 * (at_s - one.last_sign_s)))
            for one in done
            if one.recovered_s is not None
        ]
