"""Restart points as `Replayed` has them, and a copy of the state at a secondary. [HA §4.1]

The secondary is sent what has changed every `delta_interval_ms`, and takes over with what it has.
Should both replicas be lost, a replacement replays.

Who `survives_one` failure at a time notes the cuts that its secondary has come to, once a pass. A
delta is told when all that sinks had before its cut is on disk: the secondary could not make again
what a crash of the primary's machine tears off. As long as no copy can be brought up to date it
notes points as `Replayed` does, if upstream still has all that a replay from there needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.core.haunit.delta_sender import DeltaSender
from holdfast.core.haunit.durability.base import NO_PASS
from holdfast.core.haunit.durability.replayed import Replayed
from holdfast.core.machine import Effect, SetTimer

if TYPE_CHECKING:
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.events import DeltaAckReceived
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.model.ids import Incarnation
    from holdfast.core.recovery.restart_point import RestartPoint


class Mirrored(Replayed):
    """See the module. Volatile: all fields."""

    def __init__(self, unit: HAUnit, begins: Beginning, restored: RestoredState | None) -> None:
        """Nobody to send to yet."""
        super().__init__(unit, begins, restored)
        may_tell = self._are_sinks_durable if unit.plan.survives_one else None
        self._deltas = DeltaSender(unit.plan, unit.network.pages, may_tell)
        self._delta_pass = NO_PASS  # the last one that the delta under way holds; NO_PASS: no point
        self._mirrored_pass = NO_PASS  # the last one that the newest point holds, if mirrored

    def _are_sinks_durable(self, cut: RestartPoint) -> bool:
        return self.unit.outputs.are_sinks_durable(cut)

    def acknowledging(self, now_ms: int, *, is_due: bool) -> list[Effect]:
        """Note a point as `Replayed` does, unless what the secondary has come to counts."""
        if not self.unit.plan.survives_one:
            return super().acknowledging(now_ms, is_due=is_due)
        if is_due and self._deltas.is_copy_missing and self.may_note():
            point = self.cut(is_state_kept=False)
            if self._can_be_replayed(point):
                self.points.note(point)
                self._mirrored_pass = NO_PASS
        return []

    def _can_be_replayed(self, point: RestartPoint) -> bool:
        """Whether producers have, and go on to keep, all that the state of the cut goes back to.

        The point itself does not say so: it names nothing that they may have forgotten.
        """
        newest, low = self.points.newest, self.unit.network.oldest_needed().tolist()
        streams = (spec.stream for spec in self.unit.plan.inputs)
        ids = zip(streams, low, strict=True)
        notes = newest.next_notes.items()
        return all(oldest >= newest.needed_from.get(stream, 0) for stream, oldest in ids) and all(
            point.next_notes.get(stream, 0) >= number for stream, number in notes
        )

    def ask_to_store(self, now_ms: int) -> list[Effect]:
        """See `Durability`. This is asked when sinks are durable, too: a delta may wait for it."""
        waiting = self._deltas.send_on() if self.unit.plan.survives_one else []
        return waiting + super().ask_to_store(now_ms)

    def start(self, now_ms: int) -> list[Effect]:
        """Set the timer of deltas."""
        return [SetTimer("delta", now_ms + self.unit.plan.delta_interval_ms)]

    def on_delta_timer(self, now_ms: int) -> list[Effect]:
        """Send what has changed, and set the timer again."""
        return [
            SetTimer("delta", now_ms + self.unit.plan.delta_interval_ms),
            *self._send_delta(now_ms),
        ]

    def _send_delta(self, now_ms: int) -> list[Effect]:
        """Begin to send what has changed, unless the last delta is still on its way."""
        if self.unit.may_cut and self._deltas.is_wanted(now_ms):
            self._delta_pass = self.unit.passes if self._has_passed_former() else NO_PASS
            cut = self.unit.cut(self.points.next_sequence(), is_state_kept=True)
            return self._deltas.prepare(cut, self.unit.outputs, now_ms)
        return []

    def secondary_subscribed(self, secondary: Incarnation, now_ms: int) -> list[Effect]:
        """Send it everything."""
        self._deltas.begin(secondary)
        return self._send_delta(now_ms)

    def secondary_replaced(self) -> None:
        """Wait until the next one subscribes."""
        self._deltas.stop()

    def delta_acknowledged(self, got: DeltaAckReceived, now_ms: int) -> list[Effect]:
        """Send on, or take the pages for clean: the secondary has come to the delta's cut."""
        cut, effects = self._deltas.acknowledged(
            got.sequence, got.pages, is_applied=got.is_applied, now_ms=now_ms
        )
        is_news = self._delta_pass not in (NO_PASS, self._mirrored_pass)
        if cut is not None and self.unit.plan.survives_one and is_news:
            self._mirrored_pass = self._delta_pass
            self.points.note(replace(cut, is_mirrored=True))
            effects += self.ask_to_store(now_ms)
        return effects

    @property
    def trouble(self) -> str | None:
        """See `Durability`."""
        return self._deltas.trouble

    @property
    def delta_under_way(self) -> int:
        """See `Durability`."""
        return self._deltas.under_way

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when points, or the delta under way, make no sense."""
        super().check_invariants()
        self._deltas.check_invariants()

    TIMERS: ClassVar[Mapping[str, Callable[[Any, int], list[Effect]]]] = {"delta": on_delta_timer}
