"""Many seeds: run them on all cores, add them up, cut a failing one down."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from holdfast.sim.seeds import Outcome, Run, simulate

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

_CHUNK = 8
SITUATIONS = (
    "failure detected",
    "restart from a stored point",
    "killed while recovering",
    "frame of another incarnation refused",
    "zombie told to end",
    "torn frame",
    "corrupt frame refused",
    "spill read",
    "unsynced tuples torn off a log",
    "damage found",
    "waited for task slots",
    "query restarted by its user",
    "checkpoint loaded",
    "checkpoint failed",
    "checkpoint refused",
    "damaged checkpoint passed over",
    "secondary promoted",
    "gap reported",
    "settled row",
    "tentative tuple",
    "corrected",
)
"""What a campaign must have met, or it has not looked at it."""


@dataclass(slots=True)
class Summary:
    """What a campaign came to.

    Attributes:
        runs: How many seeds ran.
        faults: How many of each kind struck.
        situations: In how many runs each rare situation was met.
        pairs: In how many runs two kinds of faults met.
        protections: In how many runs some unit was protected so.
        digests: Of each run that keeps all invariants, by its seed.
        virtual_us: Virtual time of all runs.
        events: Events of all runs.
        rows: Rows in sinks.
        violations: The outcomes that violate an invariant.
        real_s: How long it took.
    """

    runs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    situations: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    protections: Counter[str] = field(default_factory=Counter)
    digests: dict[int, str] = field(default_factory=dict)
    virtual_us: int = 0
    events: int = 0
    rows: int = 0
    violations: list[Outcome] = field(default_factory=list)
    real_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        """Add a run."""
        self.runs += 1
        self.faults.update(outcome.faults)
        self.situations.update(outcome.reached.keys())
        kinds = sorted(outcome.faults)
        self.pairs.update((a, b) for i, a in enumerate(kinds) for b in kinds[i + 1 :])
        self.protections.update(outcome.protections)
        if outcome.invariant is None:
            self.digests[outcome.run.seed] = outcome.digest
        self.virtual_us += outcome.virtual_us
        self.events += outcome.events
        self.rows += outcome.rows
        if outcome.invariant is not None:
            self.violations.append(outcome)

    def to_json(self) -> dict[str, Any]:
        """For `holdfast simulate --json`."""
        return {
            "runs": self.runs,
            "faults_injected": dict(sorted(self.faults.items())),
            "situations_met_in_runs": {name: self.situations[name] for name in SITUATIONS},
            "pairs_of_faults_met": len(self.pairs),
            "protections": dict(sorted(self.protections.items())),
            "virtual_seconds": round(self.virtual_us / 1e6, 1),
            "real_seconds": round(self.real_s, 1),
            "events": self.events,
            "output_tuples": self.rows,
            "violations": [
                {
                    "seed": outcome.run.seed,
                    "invariant": outcome.invariant,
                    "text": outcome.violation,
                    "command": outcome.run.command(),
                }
                for outcome in self.violations
            ],
        }


class Crew:
    """Processes that run seeds. Each takes seconds to come up, so they stay for many runs."""

    def __init__(self, processes: int | None = None) -> None:
        """So many, by default one a core; they come up with the first runs that are worth it."""
        self._processes = processes or os.cpu_count() or 1
        self._stack = ExitStack()
        self._pool: Pool | None = None

    def __enter__(self) -> Self:
        """Nothing runs yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._stack.close()

    def outcomes(self, runs: Sequence[Run]) -> Iterator[Outcome]:
        """Run them; the order of outcomes is theirs."""
        if self._processes == 1 or len(runs) <= _CHUNK:
            return map(simulate, runs)
        if self._pool is None:
            count = min(self._processes, len(runs) // _CHUNK + 1)
            pool = multiprocessing.get_context("spawn").Pool(count)
            self._pool = self._stack.enter_context(pool)
        return self._pool.imap(simulate, runs, chunksize=_CHUNK)


def run_all(
    runs: Iterable[Run],
    *,
    processes: int | None = None,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> Summary:
    """Run them on so many processes (by default one a core), and add them up."""
    with Crew(processes) as crew:
        started_s = time.monotonic()
        summary = Summary()
        for outcome in crew.outcomes(list(runs)):
            summary.add(outcome)
            progress(outcome)
        summary.real_s = time.monotonic() - started_s
    return summary


def shrink(outcome: Outcome, *, seconds: float = 60.0) -> Outcome:
    """The smallest run found in so many seconds that violates the same invariant.

    First fewer faults (delta debugging: Zeller and Hildebrandt, TSE 2002), then fewer tuples, then
    faults once more. A fault keeps its own draws, and every concern its own stream of chance, so
    that what is left behaves as before.
    """
    deadline_s = time.monotonic() + seconds
    best = outcome

    def fails(run: Run) -> bool:
        nonlocal best
        if time.monotonic() > deadline_s:
            return False
        found = simulate(run)
        if found.invariant == outcome.invariant:
            best = found
            return True
        return False

    _fewer_faults(best.run, fails)
    _fewer_tuples(best.run, fails)
    _fewer_faults(best.run, fails)
    return best


def _fewer_faults(run: Run, fails: Callable[[Run], bool]) -> None:
    kept = list(run.faults())
    parts = 2
    while len(kept) >= 1 and parts <= max(2, len(kept)):
        size = max(1, len(kept) // parts)
        for start in range(0, len(kept), size):
            fewer = kept[:start] + kept[start + size :]
            if fails(replace(run, keep=tuple(fewer))):
                kept, parts = fewer, max(2, parts - 1)
                break
        else:
            if parts >= len(kept):
                return
            parts = min(len(kept), 2 * parts)


def _fewer_tuples(run: Run, fails: Callable[[Run], bool]) -> None:
    batches = (b for source in run.workload().sources.values() for b in source.batches)
    most = max((b.next_id for b in batches), default=0)
    least = 0
    while least + 1 < most:  # `most` fails, `least` is taken not to.
        middle = (least + most) // 2
        if fails(replace(run, tuples=middle)):
            most = middle
        else:
            least = middle
