"""Loops under faults: each protection that they may have, and bugs that must be found."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from finding import outcome_with

from holdfast.core.checkpoint.aligned import Aligned
from holdfast.core.haunit.durability.checkpointed import Checkpointed
from holdfast.core.haunit.durability.lines import Lines
from holdfast.core.haunit.loop_progress import Entrance
from holdfast.core.haunit.loop_unit import EntranceOrder
from holdfast.core.model.ids import NO_ID
from holdfast.core.model.notes import LoopMark
from holdfast.sim.seeds import LOOP, Run, simulate
from holdfast.sim.workload.protections import ALIGNED, CUTS, HMNR, UNCOORDINATED


@pytest.mark.parametrize("approach", CUTS)
def test_each_result_of_a_loop_comes_out_once_whoever_is_killed(approach: str):
    for seed in (1, 2):
        outcome = simulate(Run(seed, ("kill", "machine-crash"), LOOP, approach=approach))
        assert outcome.violation == ""
        assert outcome.rows


@pytest.mark.parametrize("approach", [f"{ALIGNED}, all go back", f"{HMNR}, all go back"])
def test_where_all_go_back_each_result_comes_out_once_too(approach: str):
    outcome = simulate(Run(1, ("kill", "machine-crash"), LOOP, approach=approach))
    assert outcome.violation == ""
    assert outcome.rows


def test_who_has_only_borne_marks_takes_a_checkpoint_too():
    """Else a full gate further on, behind such a mark, would never open."""
    outcome = simulate(Run(21, ("kill",), LOOP, approach=HMNR))
    assert outcome.violation == ""


def _promise_at_one_lap(self: Entrance, said: LoopMark) -> None:
    self.promised_us = max(self.promised_us, said.open_us)


def _what_comes_back_promises(self: Any) -> int:
    return int(self._arrivals.slowest_us)


def _take_past_markers(self: Aligned) -> tuple[int, ...]:
    return tuple(NO_ID for _ in self._waiting)


def _let_sinks_out(self: Lines, now_ms: int, *, is_due: bool) -> list[Any]:
    effects: list[Any] = []
    for sink in self._gate.sinks.values():
        effects += sink.let_out(sink.next_id)
    return effects + Checkpointed.acknowledging(self, now_ms, is_due=is_due)


@pytest.mark.parametrize(
    ("owner", "method", "bug", "approach", "first_seed", "invariant"),
    [
        (Entrance, "lap_is_back", _promise_at_one_lap, UNCOORDINATED, 0, "I-BND"),
        (EntranceOrder, "_slowest_us", _what_comes_back_promises, ALIGNED, 0, "I-LIVE"),
        (Aligned, "limits", _take_past_markers, ALIGNED, 9, "I-ALIGN"),
        (Lines, "acknowledging", _let_sinks_out, UNCOORDINATED, 0, "I-GATE"),
    ],
)
def test_a_bug_in_a_loop_is_found(
    owner: type, method: str, bug: Any, approach: str, first_seed: int, invariant: str
):
    """The first seed is that at which it was found the last time."""
    with_bug = partial(outcome_with, partial(patch.object, owner, method, bug))
    seeds = range(first_seed, first_seed + 30)
    found = (with_bug(Run(seed, (), LOOP, approach=approach)) for seed in seeds)
    assert any(outcome.invariant == invariant for outcome in found)
