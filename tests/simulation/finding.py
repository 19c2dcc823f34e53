"""By which invariant a deliberate bug is found, and at which seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

from holdfast.sim import world
from holdfast.sim.seeds import Outcome, Run, simulate

PATIENCE_US = 3_000_000
"""In which most runs end after their last fault and their last input; campaigns have more."""
_CRASHES = {error.__name__ for error in (AttributeError, NameError, TypeError)}


class Seen(Protocol):
    """How a simulated run went."""

    @property
    def invariant(self) -> str | None:
        """The one violated, or the name of what was raised; None: all held."""

    @property
    def violation(self) -> str:
        """In words."""


def first_found(runs: Iterable[Seen]) -> str | None:
    """The first invariant that is violated; None: nobody notices.

    A bug that no longer fits the code that it changes crashes in every run, and shows nothing of
    the checkers: that is refused.
    """
    found = next((run for run in runs if run.invariant is not None), None)
    if found is None:
        return None
    assert found.invariant not in _CRASHES, f"the bug crashes: {found.violation}"
    return found.invariant


def first_found_at(run: Callable[[int], Seen], seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first of these seeds whose run violates an invariant, and which; as of `first_found`."""
    for seed in seeds:
        invariant = first_found([run(seed)])
        if invariant is not None:
            return seed, invariant
    return None


def outcome_with(
    bug: Callable[[], AbstractContextManager[Any]], run: Run, *, is_patient: bool = False
) -> Outcome:
    """A run with a bug, which is there within the block that `bug` gives.

    What stands still does so for ever: if the run without the bug ends within `PATIENCE_US`, then
    [I-LIVE] is violated by the one that has it, and does not. `is_patient`: wait for as long as
    campaigns do.
    """
    if not is_patient:
        with patch.object(world, "PATIENCE_US", PATIENCE_US):
            with bug():
                soon = simulate(run)
            if soon.invariant != "I-LIVE" or simulate(run).invariant is None:
                return soon
    with bug():
        return simulate(run)


class KeptSeeds:
    """The seed at which each bug of a simulator is found, in a file: a test tries that one first.

    A change of what seeds draw may leave a bug unnoticed at its seed. The test looks at the others
    then, which takes long; the file that has the test, run as a program, keeps the one that it
    finds.
    """

    def __init__(self, name: str) -> None:
        """`name`: of a JSON file in this directory. Bugs that it leaves out are found at seed 0."""
        self._path = Path(__file__).with_name(name)
        self.seeds: dict[str, int] = json.loads(self._path.read_text())

    def first(self, bug: str, seeds: range) -> Iterator[int]:
        """These seeds, the one that is kept for a bug before all others."""
        kept = self.seeds.get(bug, 0)
        yield kept
        yield from (seed for seed in seeds if seed != kept)

    def look_again(self, bugs: Iterable[str], first_seed: Callable[[str], int | None]) -> None:
        """Write the file anew.

        Args:
            bugs: Which to look for.
            first_seed: Of a bug: the first seed that shows it; None: no seed does.
        """
        for bug in bugs:
            seed = first_seed(bug)
            print(bug, "is not found" if seed is None else seed, flush=True)
            self.seeds.pop(bug, None)
            if seed:
                self.seeds[bug] = seed
            self._path.write_text(json.dumps(self.seeds, indent=1, sort_keys=True) + "\n")
