"""Does the checker see? Each deliberate bug is found within 200 seeds.

The seed that found_at.json names is tried first. Run as a program, this looks for all of them, or
those named, and writes that file anew.
"""

import functools
import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from chain_mutants import CHAIN_MUTANTS
from changing_mutants import CHANGING_MUTANTS
from checkpoint_mutants import CHECKPOINT_MUTANTS
from files_mutants import FILES_MUTANTS
from finding import KeptSeeds, first_found, first_found_at, outcome_with
from footprint_mutants import FOOTPRINT_MUTANTS
from lateness_mutants import LATENESS_MUTANTS
from life_mutants import LIFE_MUTANTS
from mutants import MUTANTS, Mutant
from promise_mutants import PROMISE_MUTANTS
from region_mutants import REGION_MUTANTS
from replicated_mutants import REPLICATED_MUTANTS
from rescaling_mutants import RESCALING_MUTANTS
from standby_mutants import STANDBY_MUTANTS

from holdfast.core.queues.input_queue import InputQueue
from holdfast.sim.seeds import Outcome, simulate

SEEDS = range(200)
FOUND_AT = KeptSeeds("found_at.json")
RUN_S = 60
IN_CIRCLES = (
    *("waits for what is stable", "grants no credit for a run", "stops with one replica"),
    *("skips what was spilled", "grants the slowest nothing for what is held"),
)
"""Bugs after which nodes turn in circles, each turn as dear as work: nobody waits for long."""
SEPARATE = MUTANTS | STANDBY_MUTANTS | LATENESS_MUTANTS | LIFE_MUTANTS | REPLICATED_MUTANTS
SEPARATE |= FOOTPRINT_MUTANTS | REGION_MUTANTS | PROMISE_MUTANTS | CHAIN_MUTANTS
SEPARATE |= FILES_MUTANTS | RESCALING_MUTANTS | CHANGING_MUTANTS
ALL = SEPARATE | CHECKPOINT_MUTANTS
BY_ITS_NAME = {
    "samples a row twice": {"I-SUM"},
    "leaves a row out of windows of the clock": {"I-SUM"},
    "writes sinks a moment later": {"I-TIME"},
    "writes sinks in order of time": {"I-ORDER"},
    "merges in order of time as it comes": {"I-CUT", "I-ORDER", "I-PRECISE"},
    "lets a diamond's ways wait for each other": {"I-LIVE"},
    "lets the clock stand still without windows": {"I-LIVE"},
    "leaves out what is newer": {"I-ROLLBACK"},
    "passes over lost frames": {"I-GAP", "I-PRECISE", "I-SUM"},
    "sends again what is kept": {"I-GAP"},
    "ends with the first damaged checkpoint": {"I-REST"},
    "keeps one line of two": {"I-SPARE"},
    "numbers results as if the same came again": {"I-ROLLBACK"},
    "counts a point before sinks have its results": {"I-ACK"},
    "forgets the clock of the last pass": {"I-PASS", "LocalProtocolError"},
    "takes tentative for stable": {"I-LIVE", "I-PRECISE"},
    "undoes no stream": {"I-REC"},
    "lets all replicas correct": {"I-TURN"},
    "takes any run": {"I-RUN"},
    "waits for tuples alone": {"I-AVAIL"},
    "waits for more behind a replay": {"I-LIVE"},
    "trims one too far": {"I-TRIM"},
    "trims at level 0": {"I-TRIM"},
    "needs only what comes": {"I-CUT", "I-PRECISE"},
    "accepts an old sender": {"I-FENCE"},
    "accepts an old receiver": {"I-FENCE", "I-MEM"},
    "ignores credit": {"I-MEM"},
    "promises before it sends": {"I-BND", "LocalProtocolError"},
    "reuses incarnations": {"I-INC", "InvariantViolation"},
    "assigns before the journal": {"I-COORD"},
    "takes its journal for the newest for ever": {"I-INC", "I-COORD", "I-ACK"},
    "reads the journal before it claims it": {"I-INC", "I-COORD", "I-LOW"},
    "partitions by incarnation": {"I-DET", "I-BND", "I-CUT"},
    "speaks while it replays": {"I-CUT", "I-DET"},
    "promises more while it replays": {"I-BND"},
    "promises at once what was promised": {"I-BND"},
    "never subscribes again": {"I-LIVE"},
    "heeds boundaries without tuples only at the end": {"I-SOON", "I-LIVE"},
    "acknowledges what only the newest needs": {"I-ACK", "I-TRIM"},
    "deletes the older checkpoint": {"I-STORE"},
    "deletes what a point on its way needs": {"I-STORE"},
    "stores before sinks are synced": {"I-ACK"},
    "trims what receivers have": {"I-TRIM"},
    "promotes before the journal": {"I-COORD"},
    "forgets what earlier lives have read": {"I-PRECISE"},
}
"""Invariants that must be the one found, where only they make sense."""


@pytest.mark.parametrize("name", SEPARATE)
def test_a_deliberate_bug_is_found(name: str) -> None:
    invariant = _found(name)
    assert invariant is not None, "nobody noticed"
    assert invariant in BY_ITS_NAME.get(name, {invariant})


@pytest.mark.parametrize("name", CHECKPOINT_MUTANTS)
def test_a_deliberate_bug_of_checkpoints_is_found(name: str) -> None:
    """In a process of its own: compiled code that follows a wrong link may bring it down.

    Or it goes pass in circles: a run that does not end brings its process down, too.
    """
    is_seen, invariant = _apart(lambda: _found(name, run_s=RUN_S))
    assert is_seen, "nobody noticed"
    assert invariant is None or invariant in BY_ITS_NAME.get(name, {invariant})


def _apart(find: Callable[[], str | None]) -> tuple[bool, str | None]:
    """Whether a bug is seen in a process of its own, and by which invariant, if it outlives it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # Not pytest's.
        theirs.send(find())

    process = context.Process(target=run)
    process.start()
    process.join()
    if process.exitcode == 0:
        invariant: str | None = ours.recv()
        return invariant is not None, invariant
    assert process.exitcode in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGALRM)
    return True, None


def _found(name: str, *, run_s: int = 0) -> str | None:
    """The invariant that a bug violates; None: nobody notices. `run_s`: SIGALRM to a longer run."""
    found = _found_at(name, FOUND_AT.first(name, SEEDS), run_s)
    return found and found[1]


def _found_at(
    name: str, seeds: Iterable[int], run_s: int = 0, *, is_patient: bool = False
) -> tuple[int, str] | None:
    """`is_patient`: of runs that stand still, unless they turn in circles; see `outcome_with`."""
    mutant = ALL[name]
    waits = is_patient or "I-LIVE" not in BY_ITS_NAME.get(name, {"I-LIVE"})

    def run(seed: int) -> Outcome:
        if run_s:
            signal.alarm(run_s)
        is_waiting = waits and name not in IN_CIRCLES
        return outcome_with(mutant.switched_in, mutant.run(seed), is_patient=is_waiting)

    return first_found_at(run, seeds)


def test_every_seed_that_is_kept_is_of_a_bug() -> None:
    assert set(FOUND_AT.seeds) <= set(ALL)
    assert set(FOUND_AT.seeds.values()) <= set(SEEDS)


def test_a_bug_that_crashes_is_not_found() -> None:
    def with_too_few_arguments(_: Any) -> Any:
        return lambda self: True

    bug = Mutant(InputQueue, "promise", with_too_few_arguments)
    with bug.switched_in(), pytest.raises(AssertionError, match="crashes: TypeError"):
        first_found(map(simulate, map(bug.run, SEEDS)))


def test_a_mutant_is_gone_after_its_block() -> None:
    mutant = MUTANTS["trims one too far"]
    before = getattr(mutant.owner, mutant.method)
    with mutant.switched_in():
        assert getattr(mutant.owner, mutant.method) is not before
    assert getattr(mutant.owner, mutant.method) is before


def _first_seed(name: str) -> int | None:
    """The kept seed, or else the first, at which a bug is seen; None: there is none."""
    if name not in CHECKPOINT_MUTANTS:
        found = _found_at(name, FOUND_AT.first(name, SEEDS), is_patient=True)
        return found and found[0]

    def is_seen(seed: int) -> bool:
        found = functools.partial(_found_at, name, [seed], RUN_S, is_patient=True)
        return _apart(lambda: (found() or (seed, None))[1])[0]

    return next(filter(is_seen, FOUND_AT.first(name, SEEDS)), None)


if __name__ == "__main__":
    FOUND_AT.look_again(sys.argv[1:] or list(ALL), _first_seed)
