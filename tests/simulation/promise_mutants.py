"""Deliberate bugs of weaker guarantees, and of clocks that are set back; see mutants.py."""

from __future__ import annotations

from typing import Any

from mutants import Mutant

from holdfast.core.haunit.ha_input import HAInput
from holdfast.core.haunit.outputs.rebasing import Rebasing
from holdfast.core.haunit.passes import Pass, Passes
from holdfast.core.model.ids import NO_ID
from holdfast.core.recovery.guarantee import Guarantee

_KILLS = ("kill", "pause")


def _leave_out_what_is_newer(original: Any) -> Any:
    """More than the receiver was promised."""

    def place(self: Rebasing, *arguments: Any) -> None:
        original(self, *arguments)
        self.has_before_us += 2_000

    return place


def _pass_over_lost_frames(original: Any) -> Any:
    """Gap recovery taken for leave to lose whatever gets lost."""

    def receive(self: HAInput, got: Any, *arguments: Any) -> Any:
        stream = self._streams.get(got.stream)
        is_gap = self._plan.guarantee is Guarantee.GAP
        if is_gap and stream is not None and got.sender == stream.main.incarnation:
            stream.queue.next_id = max(stream.queue.next_id, got.batch.first_id)
        return original(self, got, *arguments)

    return receive


def _send_again_what_is_kept(original: Any) -> Any:
    """A replacement that takes the newest gets what its predecessor may have put out."""

    def first_to_send(
        self: Rebasing, got: Any, trimmed_before: int, *arguments: Any, **named: Any
    ) -> Any:
        if got.from_id == NO_ID:
            return trimmed_before
        return original(self, got, trimmed_before, *arguments, **named)

    return first_to_send


def _forget_the_clock_of_the_last_pass(original: Any) -> Any:
    """That of former incarnations alone counts."""

    def begun(self: Passes, pass_: Pass) -> None:
        before_us = self.clock_us
        original(self, pass_)
        self.clock_us = before_us

    return begun


PROMISE_MUTANTS: dict[str, Mutant] = {
    "leaves out what is newer": Mutant(
        Rebasing, "place", _leave_out_what_is_newer, _KILLS, guarantee="rollback"
    ),
    "passes over lost frames": Mutant(
        HAInput, "receive", _pass_over_lost_frames, ("lost-frames", "kill"), guarantee="gap"
    ),
    "sends again what is kept": Mutant(
        Rebasing,
        "first_to_send",
        _send_again_what_is_kept,
        ("kill",),
        dataflow="branches",
        guarantee="gap",
    ),
    "forgets the clock of the last pass": Mutant(
        Passes, "begun", _forget_the_clock_of_the_last_pass, ("clock-back",), None, "arbitrary"
    ),
}
