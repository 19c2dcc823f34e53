"""How a node whose windows leave footprints gets its state. [CEC "Constructing an EC"]

The restart point names a record of the footprint log, and the oldest row that its eventual
checkpoint needs. The extent between them is read; its windows are adopted when the node is made
(durability/eventual.py), and what they lack is replayed from T on. Rows that are missing, or
contradict each other, end the query: nobody can vouch for what the windows held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.life_events import Fail
from holdfast.core.haunit.restoration import BeginFrom, LoadingFailed, RestoredState
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.recovery.extent import Extent
    from holdfast.core.recovery.restart_point import RestartPoint


@dataclass(frozen=True, slots=True)
class ExtentRead(Stimulus):
    """The answer to `ReadExtent`, unless it is `LoadingFailed`."""

    extent: Extent


@dataclass(frozen=True, slots=True)
class ReadExtent(Effect):
    """Read the eventual checkpoint of a record of the node's footprint log.

    Attributes:
        from_id: The first row that it needs.
        ends_at: The row behind the record.
    """

    from_id: int
    ends_at: int


class ExtentRestoration:
    """Reads one extent. Volatile: all fields."""

    answers: ClassVar[frozenset[type[Stimulus]]] = frozenset({ExtentRead, LoadingFailed})

    def __init__(self, plan: NodePlan, point: RestartPoint) -> None:
        """Of the record that the restart point names."""
        self._plan = plan
        self._point = point

    def start(self) -> list[Effect]:
        """Read it."""
        stream = self._plan.footprint_stream
        return [ReadExtent(self._point.needed_from[stream], self._point.next_ids[stream])]

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Begin with it, or fail."""
        del now_ms
        if isinstance(stimulus, ExtentRead):
            return [BeginFrom(self._state(stimulus.extent))]
        if isinstance(stimulus, LoadingFailed):
            return [Fail(stimulus.error)]
        return []

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the extent ends before it begins."""
        stream = self._plan.footprint_stream
        from_id, ends_at = self._point.needed_from[stream], self._point.next_ids[stream]
        if from_id > ends_at:
            raise InvariantViolation(f"an extent of {stream} from {from_id} to {ends_at}")

    def _state(self, extent: Extent) -> RestoredState:
        limits = self._plan.limits
        pages = PageManager(limits.page_bytes, limits.state_bytes)
        sequence = self._point.sequence
        return RestoredState(
            self._point, sequence, pages, None, (), {}, (), is_at_cut=False, extent=extent
        )
