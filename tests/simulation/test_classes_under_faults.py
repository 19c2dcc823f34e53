"""Classes with states and timers per key, under faults and every protection."""

from __future__ import annotations

import pytest

from holdfast.core.operators.keyed_states import KeyedStates
from holdfast.core.operators.process import _Turns
from holdfast.sim.seeds import PROCESS, Run, simulate
from holdfast.sim.workload.protections import APPROACHES, CUTS, EVENTUAL, REPLICAS, UNDO


@pytest.mark.parametrize("approach", [*APPROACHES, *CUTS, REPLICAS, UNDO, EVENTUAL])
def test_a_class_gives_each_result_as_often_as_its_protection_promises(approach: str) -> None:
    outcome = simulate(Run(1, dataflow=PROCESS, approach=approach))
    assert outcome.violation == ""
    assert outcome.rows


def _forgets_timers(self: KeyedStates, *_: object) -> None:
    del self


def _never(self: _Turns, before_us: int, at_us: int) -> None:
    del self, before_us, at_us


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [(KeyedStates, "_store_timers", _forgets_timers), (_Turns, "expire", _never)],
)
def test_a_timer_that_has_no_turn_is_noticed(
    monkeypatch: pytest.MonkeyPatch, place: type, name: str, bug: object
) -> None:
    monkeypatch.setattr(place, name, bug)
    assert any(simulate(Run(seed, (), PROCESS)).violation for seed in range(3))
