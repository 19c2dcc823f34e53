"""What has to be open before a node works: opened one thing after the other.

Theory of operation. A process that comes up, and a secondary that is promoted, run through one
table, `OPENINGS`, in its order; what is not due is passed over. Each entry is an effect, and the
next one follows upon its answer. The order matters: sinks come first, as opening them fences
whoever wrote them before; a source's own log is filled only by whoever has got so far; passes are
read once the end of their log is known.

A log that has lost something is not opened (log_needs.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.life_events import (
    Fail,
    OpeningFailed,
    OpenSinks,
    OpenSources,
    OpenStore,
    ReadRecordedPasses,
    RecordedPassesRead,
    SinksOpened,
    SourcesOpened,
    StoreOpened,
)
from holdfast.core.haunit.log_needs import log_needs
from holdfast.core.haunit.passes import first_to_read
from holdfast.core.model.ids import NOBODY

if TYPE_CHECKING:
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import CheckpointId, Incarnation, StreamId
    from holdfast.core.recovery.restart_point import RestartPoint

Opened = SinksOpened | SourcesOpened | RecordedPassesRead | StoreOpened
"""The answers to what the table asks for."""


@dataclass(slots=True)
class OpenThings:
    """What has been opened so far.

    Attributes:
        next_ids: Per log that the node writes the first id that it does not hold yet.
        passes: What the pass log holds, from the pass before the one of the oldest candidate on.
        found: The checkpoints of the node that have files in the store.
    """

    next_ids: dict[StreamId, int] = field(default_factory=dict)
    passes: tuple[Pass, ...] = ()
    found: tuple[CheckpointId, ...] = ()


@dataclass(frozen=True, slots=True)
class Opening:
    """One entry of the table.

    Attributes:
        is_due: Whether it has to be opened.
        ask: The effect that opens it, with this request id.
    """

    is_due: Callable[[Openings], bool]
    ask: Callable[[Openings, int], Effect]


class Openings:
    """Opens for one incarnation. Volatile: all fields."""

    def __init__(
        self,
        plan: NodePlan,
        incarnation: Incarnation,
        point: RestartPoint | None,
        *,
        writes: bool,
        is_first: bool,
        request_id: int,
    ) -> None:
        """Nothing is open; call `start`.

        Args:
            plan: The node's.
            incarnation: As which it is to work.
            point: The restart point that goes with it.
            writes: Whether it is to be the primary, which writes the node's logs.
            is_first: Whether the process has opened nothing before.
            request_id: Of the first request; the others count up.
        """
        self.plan = plan
        self.incarnation = incarnation
        self.point = point
        self.writes = writes
        self.is_first = is_first
        self.open = OpenThings()
        self.request_id = request_id  # of the request under way
        self._left = deque(opening for opening in OPENINGS if opening.is_due(self))

    @property
    def is_done(self) -> bool:
        """Whether all is open."""
        return not self._left

    @property
    def end_of_passes(self) -> int:
        """The number behind the last recorded pass."""
        return self.open.next_ids[self.plan.pass_stream]

    def start(self) -> list[Effect]:
        """Ask for the first thing."""
        return [self._left[0].ask(self, self.request_id)] if self._left else []

    def step(self, answer: Opened | OpeningFailed) -> list[Effect] | None:
        """Take an answer: ask for the next thing, or `Fail`; None: nobody waits for it."""
        if not self._left or answer.request_id != self.request_id:
            return None
        if isinstance(answer, OpeningFailed):
            return [Fail(answer.error)]
        self._note(answer)
        self._left.popleft()
        self.request_id += 1
        return self.start()

    def _note(self, answer: Opened) -> None:
        """Keep what it says."""
        if isinstance(answer, SinksOpened):
            self.open.next_ids = answer.next_ids
        elif isinstance(answer, RecordedPassesRead):
            self.open.passes = answer.passes
        elif isinstance(answer, StoreOpened):
            self.open.found = answer.found


def _open_sinks(openings: Openings, request_id: int) -> Effect:
    needs = log_needs(openings.plan, openings.point)
    return OpenSinks(request_id, openings.incarnation, needs)


def _read_passes(openings: Openings, request_id: int) -> Effect:
    first = first_to_read(openings.point, openings.plan.pass_stream)
    return ReadRecordedPasses(request_id, first, openings.end_of_passes)


OPENINGS: Final = (
    Opening(lambda o: o.writes, _open_sinks),
    Opening(
        lambda o: o.is_first or o.writes,
        lambda o, request: OpenSources(request, o.incarnation if o.writes else NOBODY),
    ),
    Opening(lambda o: o.writes and o.plan.keeps_passes, _read_passes),
    Opening(
        lambda o: o.is_first and o.plan.checkpoints is not None,
        lambda _, request: OpenStore(request),
    ),
)
"""In this order. A protocol with a log or a store of its own adds its entry here."""
