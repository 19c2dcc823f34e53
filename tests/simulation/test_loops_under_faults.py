"""Loops under faults: each protection that they may have, and bugs that must be found."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.core.haunit.loop_progress import Entrance
from holdfast.core.haunit.loop_unit import EntranceOrder
from holdfast.core.model.notes import LoopMark
from holdfast.sim.seeds import LOOP, Run, simulate
from holdfast.sim.workload.protections import ALIGNED, CUTS, UNCOORDINATED


@pytest.mark.parametrize("approach", CUTS)
def test_each_result_of_a_loop_comes_out_once_whoever_is_killed(approach: str):
    for seed in (1, 2):
        outcome = simulate(Run(seed, ("kill", "machine-crash"), LOOP, approach=approach))
        assert outcome.violation == ""
        assert outcome.rows


def _promise_at_one_lap(self: Entrance, said: LoopMark) -> None:
    self.promised_us = max(self.promised_us, said.open_us)


def _what_comes_back_promises(self: Any) -> int:
    return int(self._arrivals.slowest_us)


@pytest.mark.parametrize(
    ("owner", "method", "bug", "approach", "invariant"),
    [
        (Entrance, "lap_is_back", _promise_at_one_lap, UNCOORDINATED, "I-BND"),
        (EntranceOrder, "_slowest_us", _what_comes_back_promises, ALIGNED, "I-LIVE"),
    ],
)
def test_a_bug_in_how_time_goes_on_in_a_loop_is_found(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    bug: Any,
    approach: str,
    invariant: str,
):
    monkeypatch.setattr(owner, method, bug)
    found = (simulate(Run(seed, (), LOOP, approach=approach)) for seed in range(30))
    assert invariant in {outcome.invariant for outcome in found}
