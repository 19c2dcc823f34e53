"""Eventual checkpoints of some units beside each other protection of the others, under faults."""

from __future__ import annotations

import pytest

from holdfast.sim.seeds import Run, simulate
from holdfast.sim.workload.protections import BESIDE_EVENTUAL, EVENTUAL

SEEDS = (4, 23)
"""They draw units of both kinds, and kill nodes."""
KINDS = ("kill", "kill-replicas", "machine-crash", "driver-crash", "footprint-rot")


@pytest.mark.parametrize("approach", BESIDE_EVENTUAL)
def test_each_result_comes_out_once_whatever_protects_the_other_units(approach: str) -> None:
    outcomes = [simulate(Run(seed, KINDS, "random", approach=approach)) for seed in SEEDS]
    assert [outcome.violation for outcome in outcomes] == [""] * len(SEEDS)
    assert all(outcome.rows for outcome in outcomes)
    seen = {protection for outcome in outcomes for protection in outcome.protections}
    assert {EVENTUAL, BESIDE_EVENTUAL[approach]} <= seen
