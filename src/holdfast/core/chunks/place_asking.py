"""What a client does to have places for a whole checkpoint. [SGuard §5: (w, r, k)]

Theory of operation.

    ASKING --PlacesGranted--> DONE
           --refused, and queued--> WAITING --PlacesGranted--> DONE
           --out of time--> FAILED;   any --given up--> FAILED

The question is asked again every `resend_ms`, so that a master that begins anew hears of it. A
refusal that is not queued is no answer: it may have another one soon, until `operation_timeout_ms`
have passed. Who is queued waits as long as the master answers. `PlacesAwaited` says so once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.object_writing import GivenUp, ObjectFailed, StepDone
from holdfast.core.errors import InvariantViolation
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired

if TYPE_CHECKING:
    from holdfast.core.chunks.settings import ChunkSettings

PLACES_MAX: Final = 4_096
"""Of one checkpoint, as Peace has it; further chunks are placed one by one."""
_RESEND: Final = "resend"


@dataclass(frozen=True, slots=True)
class PlacesAwaited(Effect):
    """The checkpoint is refused for now, and will be granted."""


class PlaceAsking:
    """The machine of one question. Volatile as a whole."""

    def __init__(
        self, *, client: str, reservation: str, host: str, chunks: int, settings: ChunkSettings
    ) -> None:
        """Begin with `Started`; more than `PLACES_MAX` chunks are not asked for."""
        self._asked = m.PlacesRequested(client, reservation, host, min(chunks, PLACES_MAX))
        self._settings = settings
        self._deadline_ms = 0
        self._is_over = False
        self._is_queued = False
        self._last_reason = "the master does not answer"

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus; what is not for this question is dropped."""
        handler = _HANDLERS.get(type(stimulus))
        if handler is None or self._is_over:
            return []
        return handler(self, stimulus, now_ms)

    def _on_started(self, _: e.Started, now_ms: int) -> list[Effect]:
        self._deadline_ms = now_ms + self._settings.operation_timeout_ms
        return self._ask(now_ms)

    def _ask(self, now_ms: int) -> list[Effect]:
        timer = SetTimer(_RESEND, now_ms + self._settings.resend_ms)
        return [e.SendToMaster(self._asked), timer]

    def _on_timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        if timer.name != _RESEND:
            return []
        if now_ms >= self._deadline_ms:
            return self._fail(f"no places within the time given: {self._last_reason}")
        return self._ask(now_ms)

    def _on_given_up(self, _: GivenUp, __: int) -> list[Effect]:
        return self._fail("given up")

    def _fail(self, reason: str) -> list[Effect]:
        self._is_over = True
        returned = m.PlacesReturned(self._asked.client, self._asked.reservation)
        return [e.SendToMaster(returned), ObjectFailed(reason)]

    def _on_places_granted(self, granted: m.PlacesGranted, _: int) -> list[Effect]:
        if granted.reservation != self._asked.reservation:
            return []
        self._is_over = True
        return [StepDone()]

    def _on_places_refused(self, refused: m.PlacesRefused, now_ms: int) -> list[Effect]:
        if refused.reservation != self._asked.reservation:
            return []
        self._last_reason = refused.reason
        if not refused.is_queued:
            return []
        self._deadline_ms = now_ms + self._settings.operation_timeout_ms
        was_queued, self._is_queued = self._is_queued, True
        return [] if was_queued else [PlacesAwaited()]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when it asks for nothing."""
        if self._asked.chunks < 1:
            raise InvariantViolation(f"{self._asked.reservation} asks for no places")

    def statistics(self) -> bool:
        """Whether it has to wait for its turn."""
        return self._is_queued


_HANDLERS: dict[type[Stimulus], Callable[[PlaceAsking, Any, int], list[Effect]]] = {
    e.Started: PlaceAsking._on_started,
    TimerFired: PlaceAsking._on_timer_fired,
    GivenUp: PlaceAsking._on_given_up,
    m.PlacesGranted: PlaceAsking._on_places_granted,
    m.PlacesRefused: PlaceAsking._on_places_refused,
}
