"""What operators whose results have the times of the clock share. Arbitrary. [HA §3.2]"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.operators.base import ArbitraryOperator, Operator, Owns
from holdfast.core.state.raw_page import RawPage

IDLE_US: Final = 20_000
"""An instance that waits for nothing promises the clock no more often than that."""


class ByClock(ArbitraryOperator):
    """An operator of the clock; it comes before the other base, whose methods it replaces.

    Attributes:
        _clock: In it lies the clock of the last pass; made when all other structures are.
    """

    sets_time = True
    _clock: RawPage

    def decide(self, clock_us: int, seed: int) -> None:
        """The clock of the coming pass."""
        del seed
        self._clock.write(np.array([clock_us], dtype=np.int64))

    def promises_us(self, boundary_us: int) -> int:
        """The clock."""
        return END_US if boundary_us == END_US else self._clock_us

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Raise `LocalProtocolError`: what came when is in the passes of each instance."""
        Operator.adopt(self, others, owns, streams)

    @property
    def _clock_us(self) -> int:
        words = self._clock.read()
        return int(words[0]) if len(words) else BEGINNING_US
