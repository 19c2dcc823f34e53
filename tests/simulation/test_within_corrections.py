"""Failures within failures, and within their corrections, in every state of a node. [DPC §4]

A source falls silent; when nodes go on without it, go back, or have corrected that, something else
fails. What sinks hold in the end is that of a run without failures, and no invariant is violated.
"""

from __future__ import annotations

from collections.abc import Iterable

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


def require_corrected(runs: Iterable[Run], kind: str, planned: int = 0) -> None:
    """The first of these runs in which more of a kind strike than are planned at times is right."""
    for run in runs:
        outcome = simulate(run)
        assert outcome.invariant is None, outcome.violation
        if outcome.faults.get(kind, 0) > planned:
            return
    pytest.fail(f"no {kind} struck")


STATES = CORRECTION_STEPS[:3]
KINDS = ("kill", "driver-crash", "silence", "no-boundaries", "pause")
DRAWN = ((70_000_000, REPLICATED), (70_000_001, UNDO), (70_000_002, REPLICAS))


@pytest.mark.parametrize("step", STATES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_fails_in_a_state_of_a_node_is_corrected_too(
    kind: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind meets each state, and in one of them each approach; campaigns draw all of it."""
    faults = (*silences(), within(kind, step, 1), within(kind, step, 3))
    monkeypatch.setattr(seeds, "plan_faults", lambda *_, **__: faults)
    turn = (KINDS.index(kind) + STATES.index(step)) % len(DRAWN)
    runs = (Run(s, dataflow="random", approach=a) for s, a in (*DRAWN[turn:], *DRAWN[:turn]))
    require_corrected(runs, kind, planned=2 * (kind == "silence"))


@pytest.mark.parametrize("step", CORRECTION_STEPS)
def test_all_replicas_are_lost_and_then_back(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = within("kill-replicas", step, 1), within("kill", step, 4, is_beside=True)
    faults = (*silences(), *losses)
    monkeypatch.setattr(seeds, "plan_faults", lambda *_, **__: faults)
    runs = (Run(seed, dataflow="random", approach=REPLICAS) for seed in (2, 4, 41))
    require_corrected(runs, "kill-replicas")
