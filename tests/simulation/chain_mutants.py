"""Deliberate bugs of state behind state in one unit; see mutants.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from mutants import Mutant

from holdfast.core.haunit.taking_part import TakingPart


def _forget_what_state_before_it_goes_back_to(original: Any) -> Any:
    def causes(self: TakingPart) -> Any:
        untaken = np.array(self._here.untaken_from, dtype=np.int64)
        return [None if cause is None else untaken for cause in original(self)]

    return causes


def _forget_what_stands_between(original: Any) -> Any:
    """Of three in a row the second one takes part for its own state's sake alone."""

    def given(self: TakingPart, number: int, *arguments: Any) -> None:
        original(self, number, *arguments)
        entries = self._entries.get(number)
        if entries:
            entries[-1] = entries[-1]._replace(others={})

    return given


def _look_when_the_pass_has_run(original: Any) -> Any:
    """Of three in a row the second one may have let go of what it has just given to the third."""

    def given(self: TakingPart, number: int, *arguments: Any) -> None:
        self._places_of[number] = self._places(self._chained_before[number])
        original(self, number, *arguments)

    return given


CHAIN_MUTANTS = {
    "begins where rows come from, not state": Mutant(
        TakingPart, "causes", _forget_what_state_before_it_goes_back_to, ("kill",),
        "upstream backup", "chain",
    ),
    "forgets what stands between": Mutant(
        TakingPart, "given", _forget_what_stands_between, ("kill",), "upstream backup", "chain"
    ),
    "looks when the pass has run": Mutant(
        TakingPart, "given", _look_when_the_pass_has_run, ("kill",), "upstream backup", "chain"
    ),
}  # fmt: skip
