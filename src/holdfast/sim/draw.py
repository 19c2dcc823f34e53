"""Chance: named, independent streams of whole numbers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

_T = TypeVar("_T")


class Draw:
    """Whole numbers from `Random.random()` alone, which no Python version changes."""

    def __init__(self, name: str) -> None:
        """An independent stream of draws for every name."""
        self._random = random.Random(name)

    def number(self, low: int, high: int) -> int:
        """Uniform in [low, high]."""
        return low + int(self._random.random() * (high - low + 1))

    def steep(self, low: int, high: int) -> int:
        """In [low, high], every order of magnitude about as likely: small numbers often."""
        bits = self.number(0, max(0, (high // max(1, low)).bit_length() - 1))
        return min(high, self.number(low << bits, (low << (bits + 1)) - 1))

    def percent(self, probability: int) -> bool:
        """True `probability` times in a hundred."""
        return self.number(0, 99) < probability

    def one_of(self, values: Sequence[_T]) -> _T:
        """One of the values."""
        return values[self.number(0, len(values) - 1)]
