"""Up to where the logs of a node must reach before anybody goes on writing them.

Theory of operation. A restart point is stored only after the tuples before it were durable. So a
log that ends earlier has lost something: to go on would leave a gap that nobody notices. It is not
even begun. Whoever begins names the owners of the log, and by that name what a user brings back
from a copy later would not count (core/wire/log_opening.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.model.ids import StreamId
    from holdfast.core.recovery.restart_point import RestartPoint


@dataclass(frozen=True, slots=True)
class LogNeeds:
    """What a restart point says of its node's logs.

    Attributes:
        before: By log, the id before which it holds all that its checkpoint does not.
        next_ids: Those of the point.
        pass_stream: The node's pass log; empty: it has none.
    """

    before: Mapping[str, int] = field(default_factory=dict)
    next_ids: Mapping[str, int] = field(default_factory=dict)
    pass_stream: str = ""

    def of(self, log: StreamId, ends: Mapping[StreamId, int]) -> int:
        """The id that must not come behind the end of a log.

        Results are put out behind their pass: where they are beyond the point, passes are, too.

        Args:
            log: Which one; the pass log comes last of all.
            ends: By log that has been opened, the first id that it does not hold.
        """
        needed = self.before.get(log, 0)
        if log == self.pass_stream and any(
            end > self.next_ids.get(sink, 0) for sink, end in ends.items()
        ):
            return max(needed, self.next_ids.get(log, 0) + 1)
        return needed


def log_needs(plan: NodePlan, point: RestartPoint | None) -> LogNeeds:
    """Those of a node that begins at a point; None: at the beginning."""
    pass_stream = plan.pass_stream if plan.keeps_passes else ""
    if point is None:
        return LogNeeds(pass_stream=pass_stream)
    return LogNeeds(point.next_ids | point.held_from, point.next_ids, pass_stream)
