"""Notes in whole query networks under faults: none is lost, none comes twice, each at its place.

No protocol is needed for that. Every unit puts a note on all its outputs behind every pass, and
whoever hears of one checks what it hears.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.ha_unit import HAUnit
from holdfast.core.model.notes import CheckpointMarker
from holdfast.sim.seeds import Run, simulate

if TYPE_CHECKING:
    from holdfast.core.haunit.arrivals import InputStream
    from holdfast.core.model.notes import PlacedNote

_INCARNATION_BIT = 32


class Heard:
    """What the nodes of one run have heard, by the queue that it came from."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._last: dict[Any, int] = {}

    def noted(self, stream: InputStream, note: PlacedNote) -> None:
        queue = stream.queue
        assert note.before_id == queue.taken_before, "before its place, or behind it"
        last = self._last.get(queue)
        if last is not None:
            assert note.number > last, "it came twice, or in another order"
            is_of_the_same_life = note.number >> _INCARNATION_BIT == last >> _INCARNATION_BIT
            self.counts["replaced"] += not is_of_the_same_life
            assert note.number == last + 1 or not is_of_the_same_life, "one was lost"
        self._last[queue] = note.number
        self.counts["heard"] += 1


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    found = Heard()
    run_pass = HAUnit.run_pass

    def put_and_run(self: HAUnit, *arguments: Any) -> Any:
        has_run, effects = run_pass(self, *arguments)
        if has_run and not self.replay.is_silent:
            self.outputs.put_note(CheckpointMarker(self.passes))
        return has_run, effects

    def noted(self: Durability, stream: InputStream, note: PlacedNote, now_ms: int) -> list[Any]:
        del self, now_ms
        found.noted(stream, note)
        return []

    monkeypatch.setattr(HAUnit, "run_pass", put_and_run)
    monkeypatch.setattr(Durability, "noted", noted)
    return found


def test_every_note_comes_once_and_at_its_place_whatever_fails(heard: Heard) -> None:
    runs = [Run(seed) for seed in range(10)]
    runs += [Run(seed, kinds=("kill", "break")) for seed in range(12)]
    without_own_notes = [run for run in runs if not any(p.region for p in run.workload().plans)]
    assert len(without_own_notes) > 12
    for run in without_own_notes:
        outcome = simulate(run)
        assert outcome.invariant is None, (run, outcome.violation)
    assert heard.counts["heard"] > 500
    assert heard.counts["replaced"] > 4, "producers have failed, and their notes gone on"
