"""How long a failure of a primary took to be detected and recovered from. [HA §7]"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.coordinator.events import ReportRecovery
from holdfast.core.model.ids import NodeId


@dataclass(slots=True)
class Recovery:
    """Times of one failure, ms on the coordinator's clock."""

    last_alive_ms: int
    detected_at_ms: int
    hello_at_ms: int = -1
    caught_up_at_ms: int = -1
    replayed_tuples: int = 0
    was_promoted: bool = False

    def report(self, node: NodeId, now_ms: int) -> ReportRecovery:
        """The node works again, as of now."""
        caught_up_at_ms = max(self.caught_up_at_ms, self.hello_at_ms)
        return ReportRecovery(
            node,
            self.detected_at_ms - self.last_alive_ms,
            self.hello_at_ms - self.detected_at_ms,
            caught_up_at_ms - self.hello_at_ms,
            now_ms - self.last_alive_ms,
            self.replayed_tuples,
            self.was_promoted,
        )
