"""The protocols under thousands of fault schedules: a fixed few hundred of them here.

A failure prints the command that shows the run. `docs/testing.md` says how far a campaign goes.
"""

import gc
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from holdfast.core.haunit.plan import Cuts, NodeLimits
from holdfast.core.haunit.reach import Reach
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.sim.campaign import SITUATIONS, Summary, run_all, shrink
from holdfast.sim.faults import KINDS
from holdfast.sim.seeds import Run, simulate
from holdfast.sim.workload.known import KNOWN
from holdfast.sim.workload.protections import (
    ALIGNED,
    HMNR,
    REPLICATED,
    UNALIGNED,
    UNCOORDINATED,
    UNDO,
    random_protection,
)

SEEDS = 180
_DEADLY = ("kill", "pause", "machine-crash", "break", "slow-node")


@pytest.fixture(scope="module")
def summary() -> Summary:
    return run_all([Run(seed) for seed in range(SEEDS)], processes=1)


def test_the_garbage_collector_is_after_a_run_as_it_was_before() -> None:
    was_on: list[bool] = []
    simulate(Run(1), lambda _at_us, _text: was_on.append(gc.isenabled()))
    assert gc.isenabled()
    assert set(was_on) == {False}
    gc.disable()
    try:
        simulate(Run(1))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_every_invariant_holds_under_all_faults(summary: Summary) -> None:
    shown = [f"{o.violation}\n  {o.run.command()}" for o in summary.violations]
    assert not shown, "\n".join(shown)
    assert summary.runs == SEEDS
    assert summary.rows > 10_000, "runs that put out nothing prove nothing"


def test_every_kind_of_fault_strikes_and_most_pairs_meet(summary: Summary) -> None:
    assert set(summary.faults) == set(KINDS)
    assert len(summary.pairs) > len(KINDS) * (len(KINDS) - 1) // 4


def test_executors_that_leave_politely_are_empty_before_they_go() -> None:
    summary = run_all([Run(seed, kinds=("leave",)) for seed in (0, 3, 4, 14, 19, 20)], processes=1)
    assert not summary.violations
    assert summary.faults["leave"] > 0
    assert summary.situations["machine left empty"] > 0


RARE = {
    "damage found": Run(5, kinds=("bit-flip", "machine-crash", "driver-crash", "kill")),
    "damaged checkpoint passed over": Run(
        3, kinds=("lost-object", "store-rot", "kill"), approach="checkpoints"
    ),
}
"""Runs that meet what a few hundred seeds may not."""


@pytest.mark.parametrize("situation", SITUATIONS)
def test_rare_situations_are_met(summary: Summary, situation: str) -> None:
    if situation not in RARE:
        assert summary.situations[situation] > 0
        return
    outcome = simulate(RARE[situation])
    assert outcome.invariant is None, outcome.violation
    assert outcome.reached[situation] > 0


def test_seeds_draw_every_protection_and_mix_them() -> None:
    cuts, delayed, footprinted, regions = set(), 0, 0, 0
    guarantees: Counter[Guarantee] = Counter()
    for seed in range(300):
        _, of_unit = random_protection(NodeLimits(), f"{seed}/protection")
        units = [of_unit(unit) for unit in ("one", "other", "third")]
        cuts.update(unit.cuts for unit in units)
        delayed += any(unit.delays and unit.cuts is None for unit in units)
        footprinted += any(unit.footprints for unit in units)
        regions += len({unit.cuts for unit in units}) > 1
        guarantees.update(unit.guarantee for unit in units if unit.cuts)
    assert guarantees[Guarantee.PRECISE] > guarantees[Guarantee.ROLLBACK] > 3
    assert not guarantees[Guarantee.GAP]
    assert cuts == {None, *Cuts}
    assert min(delayed, footprinted, regions) > 3


@pytest.mark.parametrize(
    ("approach", "met"),
    [
        ("active standby", ("secondary promoted",)),
        ("passive standby", ("secondary promoted", "image taken over", "image of no use")),
    ],
)
def test_standby_replicas_take_over(approach: str, met: tuple[str, ...]) -> None:
    runs = [Run(seed, kinds=_DEADLY, approach=approach) for seed in range(12)]
    summary = run_all(runs, processes=1)
    assert not summary.violations
    assert all(summary.situations[situation] for situation in met)


@pytest.mark.parametrize(
    "approach", ["upstream backup", "active standby", "passive standby", "replicated"]
)
def test_state_behind_state_in_one_unit_recovers_under_every_approach(approach: str) -> None:
    kinds = [_DEADLY] * 6 + [("kill",)] * 6
    runs = [Run(n, kinds=k, dataflow="chain", approach=approach) for n, k in enumerate(kinds)]
    summary = run_all(runs, processes=1)
    assert not summary.violations, [o.violation for o in summary.violations]
    assert summary.faults


@pytest.mark.parametrize(
    ("approach", "first"), [(UNCOORDINATED, 0), (ALIGNED, 67), (UNALIGNED, 0), (HMNR, 0)]
)
def test_nodes_that_do_not_repeat_recover_together(approach: str, first: int) -> None:
    seeds = range(first, first + 6)
    runs = [Run(seed, ("kill",), "arbitrary", approach=approach) for seed in seeds]
    summary = run_all(runs, processes=1)
    assert not summary.violations, [o.violation for o in summary.violations]
    assert summary.situations["survivor went back"]


@pytest.mark.parametrize(("approach", "dataflow"), [(UNCOORDINATED, "arbitrary"), (HMNR, "loop")])
def test_at_least_once_nothing_is_lost_and_whole_results_come_again(
    approach: str, dataflow: str
) -> None:
    kinds = ("kill", "machine-crash")
    runs = [Run(seed, kinds, dataflow, None, None, approach, "rollback") for seed in range(12)]
    summary = run_all(runs, processes=1)
    assert not summary.violations, [o.violation for o in summary.violations]
    assert summary.situations["written ahead of the line"]
    assert summary.situations["result repeated"]


def test_a_secondary_that_is_promoted_while_it_lags_is_sent_what_it_lacks() -> None:
    outcome = simulate(Run(17, kinds=("kill",), dataflow="arbitrary"))
    assert outcome.invariant is None, outcome.violation
    assert outcome.reached["secondary promoted"]


@pytest.mark.parametrize("name", KNOWN)
def test_the_known_dataflows_are_precise_too(name: str) -> None:
    for seed in range(8):
        outcome = simulate(Run(seed, dataflow=name, guarantee="precise"))
        assert outcome.invariant is None, f"{outcome.violation}\n  {outcome.run.command()}"
        assert outcome.rows > 0


def test_without_faults_nothing_is_lost_replayed_or_detected() -> None:
    for seed in range(10):
        outcome = simulate(Run(seed, kinds=()))
        assert outcome.invariant is None, outcome.violation
        assert not outcome.faults
        assert "failure detected" not in outcome.reached


def test_the_same_seed_gives_the_same_run_to_the_byte_whatever_the_hash_seed(
    summary: Summary,
) -> None:
    code = (
        "import json; from holdfast.sim.seeds import Run, simulate; "
        "print(json.dumps([simulate(Run(seed)).digest for seed in range(6)]))"
    )
    hash_seed = "0" if os.environ.get("PYTHONHASHSEED") != "0" else "4711"  # Another than here.
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True
    )
    digests = json.loads(done.stdout)
    assert digests == [summary.digests[seed] for seed in range(6)]
    assert len(set(digests)) == 6


def test_leaving_a_fault_out_changes_nothing_before_it_would_strike() -> None:
    """What shrinking relies on."""
    run = next(Run(seed) for seed in range(1000) if len(Run(seed).faults()) > 3)
    last = max(run.faults())
    whole = trace_of(run)
    without = trace_of(replace(run, keep=tuple(n for n in run.faults() if n != last)))
    struck = next((i for i, line in enumerate(whole) if f"fault {last}:" in line), len(whole))
    assert whole[:struck] == without[:struck]


def trace_of(run: Run) -> list[str]:
    lines: list[str] = []
    simulate(run, lambda now_us, text: lines.append(f"{now_us} {text}"))
    return lines


def test_tuples_can_be_cut_off() -> None:
    outcome = simulate(Run(3, kinds=(), dataflow="random", tuples=5))
    assert outcome.invariant is None, outcome.violation
    sources = Run(3, dataflow="random", tuples=5).workload().sources.values()
    assert all(sum(b.count for b in source.batches) <= 5 for source in sources)


def test_a_failing_run_is_cut_down_to_what_it_needs() -> None:
    from mutants import MUTANTS

    with MUTANTS["speaks while it replays"].switched_in():
        outcomes = map(simulate, (run for run in map(Run, range(1, 200)) if run.faults()))
        found = next(o for o in outcomes if o.invariant is not None)
        smallest = shrink(found, seconds=30)
        again = simulate(smallest.run)
    assert smallest.invariant == found.invariant == again.invariant
    assert len(smallest.run.faults()) <= len(found.run.faults())
    assert smallest.run.tuples is not None
    assert f"--seed {found.run.seed} " in smallest.run.command()


def test_joins_stand_behind_joins_where_that_is_wanted() -> None:
    chained = 0
    for seed in range(10):
        plans = Run(seed, dataflow="joins", approach=REPLICATED).workload().plans
        kinds = "join", "wjoin", "near"
        joining = {p.node for p in plans if any(o.name.startswith(kinds) for o in p.operators)}
        read = {(p.node, one.producer) for p in plans for one in p.inputs}
        chained += any(node in joining and producer in joining for node, producer in read)
    assert chained >= 3


def test_a_way_of_one_stream_alone_goes_through_what_merges_it_where_that_is_wanted() -> None:
    counted = 0
    for seed in range(10):
        plans = Run(seed, dataflow="apart", approach=UNDO).workload().plans
        counted += any(o.name == "counted" and Reach(p).apart for p in plans for o in p.operators)
    assert counted >= 3
