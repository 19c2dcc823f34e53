"""Sample keeps each row with a probability. Arbitrary, stateless. [HA §3.2]"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="arg-type"

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.stable_hash import mix, stable_hash
from holdfast.core.operators.base import NOTHING, ArbitraryOperator, Output, Rows, has_rows
from holdfast.core.state.kernels import kernel

_BITS: Final = 53
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_UNUSED: Final = np.uint64(64 - _BITS)


class Sampler(ArbitraryOperator):
    """Draws for every row of a pass from the pass's seed, in row order."""

    def __init__(self, name: str, schema: pa.Schema, fraction: float) -> None:
        """Keep rows of `schema` with this probability.

        Raises:
            LocalProtocolError: It is not in (0, 1].
        """
        if not 0.0 < fraction <= 1.0:
            raise LocalProtocolError(f"{name}: fraction={fraction}; it lies above 0, up to 1")
        self.name = name
        self.output_schema = schema
        self._below = max(1, round(fraction * 2**_BITS))
        self._own = int(stable_hash([pa.array([name])])[0])  # Two samplers of a node differ.
        self._seed = 0

    def decide(self, clock_us: int, seed: int) -> None:
        """The seed of the coming pass."""
        del clock_us
        self._seed = seed ^ self._own

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """The rows that are drawn; times and order stay."""
        (rows,) = inputs
        if rows is None or not has_rows(rows):
            return NOTHING
        keep = np.empty(len(rows.time_us), dtype=np.bool_)
        draw(self._seed, self._below, keep)
        if not bool(keep.any()):
            return NOTHING
        batch = rows.batch.filter(pa.array(keep))
        return Output((Rows(batch, rows.time_us[keep], rows.order[keep], rows.created_us),), low)


@kernel("void(uint64, int64, boolean[::1])")
def draw(seed: int, below: int, out: np.ndarray) -> None:
    """For each row whether a number of 53 random bits is below the bound."""
    for i in range(len(out)):
        bits = mix(seed + np.uint64(i + 1) * _STEP) >> _UNUSED
        out[i] = np.int64(bits) < below
