"""Deliberate bugs of results that change; see mutants.py."""

from __future__ import annotations

from typing import Any

import numpy as np
from mutants import Mutant

from holdfast.core.operators.changing_aggregate import ChangingAggregate


def _forget_what_was_before_the_pass(original: Any) -> Any:
    """A key's first row of a pass finds no former result: it says `insert` once more."""

    def former(self: ChangingAggregate, keys: np.ndarray) -> np.ndarray:
        found = original(self, keys)
        return np.zeros_like(found)

    return former


def _take_back_what_was_before_the_pass(_: Any) -> Any:
    """Of several rows of a key in a pass each takes back the same result."""
    return lambda self, keys, former, running: former


CHANGING_MUTANTS = {
    "forgets what was before the pass": Mutant(
        ChangingAggregate, "_former", _forget_what_was_before_the_pass, dataflow="changelog"
    ),
    "takes back what was before the pass": Mutant(
        ChangingAggregate, "_before_each", _take_back_what_was_before_the_pass,
        dataflow="changelog",
    ),
}  # fmt: skip
