"""Units with replicas under faults: seeds at which something was wrong once. [DPC §3]"""

from __future__ import annotations

import pytest

from holdfast.sim.faults import KINDS
from holdfast.sim.seeds import Run, simulate
from holdfast.sim.workload.protections import REPLICAS


@pytest.mark.parametrize("seed", [2, 4, 41])
def test_replicas_agree_correct_and_end(seed: int) -> None:
    """Once a replica that nobody reads stopped; twice tuples came older than what was acted on."""
    run = Run(seed, tuple(KINDS), "random", approach=REPLICAS)
    assert any(plan.replicas for plan in run.workload().plans)
    outcome = simulate(run)
    assert outcome.invariant is None, outcome.violation
    assert outcome.reached["turn granted"]
