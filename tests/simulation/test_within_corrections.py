"""Failures within failures, and within their corrections, in every state of a node. [DPC §4]

A source falls silent; when nodes go on without it, go back, or have corrected that, something else
fails. What sinks hold in the end is that of a run without failures, and no invariant is violated.
"""

from __future__ import annotations

import pytest

from holdfast.sim import seeds
from holdfast.sim.correction_steps import CORRECTION_STEPS
from holdfast.sim.faults import Fault
from holdfast.sim.seeds import Run, simulate
from holdfast.sim.workload.protections import REPLICAS, REPLICATED, UNDO

SILENT_US = 400_000


def silences() -> tuple[Fault, ...]:
    """Two sources, one after the other, for long."""
    return tuple(
        Fault("silence", 30_000 + 250_000 * i, "", 0, pick=i, length_us=SILENT_US, size=1)
        for i in range(2)
    )


def within(kind: str, step: str, nth: int, *, is_beside: bool = False) -> Fault:
    return Fault(kind, None, step, nth, pick=1, length_us=300_000, size=1, is_beside=is_beside)


STATES = CORRECTION_STEPS[:3]


@pytest.mark.parametrize("step", STATES)
@pytest.mark.parametrize("kind", ["kill", "driver-crash", "silence", "no-boundaries", "pause"])
def test_what_fails_in_a_state_of_a_node_is_corrected_too(
    kind: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = (*silences(), within(kind, step, 1), within(kind, step, 3))
    monkeypatch.setattr(seeds, "plan_faults", lambda *_, **__: faults)
    struck = 0
    for seed, approach in ((70_000_000, REPLICATED), (70_000_001, UNDO), (70_000_002, REPLICAS)):
        outcome = simulate(Run(seed, dataflow="random", approach=approach))
        assert outcome.invariant is None, outcome.violation
        struck += outcome.faults.get(kind, 0) - 2 * (kind == "silence")
    assert struck > 0


@pytest.mark.parametrize("step", CORRECTION_STEPS)
def test_all_replicas_are_lost_and_then_back(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = within("kill-replicas", step, 1), within("kill", step, 4, is_beside=True)
    faults = (*silences(), *losses)
    monkeypatch.setattr(seeds, "plan_faults", lambda *_, **__: faults)
    outcomes = [simulate(Run(seed, dataflow="random", approach=REPLICAS)) for seed in (2, 4, 41)]
    assert [outcome.violation for outcome in outcomes if outcome.invariant] == []
    assert any(outcome.faults.get("kill-replicas") for outcome in outcomes)
