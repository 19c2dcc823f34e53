"""Units whose producers forget what their secondary holds; one failure at a time. [HA §5.2]"""

from __future__ import annotations

from collections import Counter

from holdfast.sim.one_at_a_time import KINDS
from holdfast.sim.seeds import Run, simulate
from holdfast.sim.workload.protections import SURVIVES_ONE


def test_one_failure_at_a_time_costs_nothing() -> None:
    """Replicas are killed one after the other, each when the other one could do without it."""
    struck: Counter[str] = Counter()
    taken_over = 0
    for seed in range(12):
        outcome = simulate(Run(seed, KINDS, approach=SURVIVES_ONE))
        assert outcome.invariant is None, outcome.violation
        struck.update(outcome.faults)
        taken_over += outcome.reached.get("image taken over", 0)
    assert taken_over > 3
    assert struck["kill"] > 3
