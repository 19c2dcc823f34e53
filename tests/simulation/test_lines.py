"""Regions whose nodes cut with others, by seed; and whether the simulator would notice.

Run as a program, this looks for the seeds at which bugs are found, of all or those named.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache

import pytest
from finding import KeptSeeds, first_found_at
from line_mutants import LINE_MUTANTS

from holdfast.sim.lines.region import PROTOCOLS
from holdfast.sim.lines.world import FAULTS, LinesOutcome, simulate_lines

SEEDS = 50
MUTANT_SEEDS = range(400)
FOUND_AT = KeptSeeds("lines_found_at.json")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_invariant_holds_under_all_faults(protocol: str) -> None:
    outcomes = [simulate_lines(seed, protocol=protocol) for seed in range(SEEDS)]
    shown = [f"seed {o.seed}: {o.violation}" for o in outcomes if o.invariant is not None]
    assert not shown, "\n".join(shown)
    struck: Counter[str] = Counter()
    for outcome in outcomes:
        struck.update(outcome.faults)
    assert set(struck) == set(FAULTS)
    assert sum(o.recoveries for o in outcomes) > SEEDS
    assert sum(o.stayed for o in outcomes) > SEEDS // 2
    assert sum(o.rolled_past for o in outcomes) > 0
    if protocol in ("aligned", "unaligned"):
        assert sum(o.rounds for o in outcomes) > SEEDS


@cache
def _without_faults(protocol: str, is_scoped: bool) -> list[LinesOutcome]:
    return [
        simulate_lines(seed, protocol=protocol, faults=(), is_scoped=is_scoped)
        for seed in range(SEEDS)
    ]


@pytest.mark.parametrize(
    ("protocol", "is_scoped"),
    [("bcs", True), ("hmnr", True), ("lazy-fi", True), ("hmnr", False)],
)
def test_what_communication_induces_leaves_no_checkpoint_useless(
    protocol: str, is_scoped: bool
) -> None:
    outcomes = _without_faults(protocol, is_scoped)
    assert not [o for o in outcomes if o.invariant or o.useless]
    assert sum(o.forced for o in outcomes) > 0


def test_without_it_some_are_useless_on_the_same_runs() -> None:
    outcomes = _without_faults("unc", True)
    assert not [o for o in outcomes if o.invariant]
    assert sum(o.useless for o in outcomes) > 0


def test_lazy_fi_forces_less_than_hmnr_and_hmnr_less_than_bcs() -> None:
    forced = {
        protocol: sum(o.forced for o in _without_faults(protocol, True))
        for protocol in ("bcs", "hmnr", "lazy-fi")
    }
    assert forced["lazy-fi"] < forced["hmnr"] < forced["bcs"]


def test_a_smaller_scope_says_and_forces_less() -> None:
    within, everywhere = _without_faults("hmnr", True), _without_faults("hmnr", False)
    assert sum(o.forced for o in within) <= sum(o.forced for o in everywhere)
    assert sum(o.notes for o in within) < sum(o.notes for o in everywhere)


def test_who_subscribes_again_amid_a_round_says_where_it_has_cut() -> None:
    """It has gone on since; its sender, which cuts later, holds what came behind that cut."""
    outcome = simulate_lines(1019871)
    assert outcome.invariant is None, outcome.violation


def test_a_seed_is_one_run() -> None:
    assert simulate_lines(7) == simulate_lines(7)


@pytest.mark.parametrize("name", LINE_MUTANTS)
def test_the_simulator_finds(name: str) -> None:
    found = _found_at(name, FOUND_AT.first(name, MUTANT_SEEDS))
    assert found is not None, "nobody noticed"
    assert found[1] in LINE_MUTANTS[name].invariants, f"{found[1]} was violated"


def _found_at(name: str, seeds: Iterable[int]) -> tuple[int, str] | None:
    """Seeds number runs, each protocol in turn."""
    mutant = LINE_MUTANTS[name]

    def run(number: int) -> LinesOutcome:
        seed, turn = divmod(number, len(mutant.protocols))
        return simulate_lines(seed, protocol=mutant.protocols[turn])

    with mutant.switched_in():
        return first_found_at(run, seeds)


def _first_seed(name: str) -> int | None:
    found = _found_at(name, FOUND_AT.first(name, MUTANT_SEEDS))
    return found and found[0]


if __name__ == "__main__":
    FOUND_AT.look_again(sys.argv[1:] or list(LINE_MUTANTS), _first_seed)
