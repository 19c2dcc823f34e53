"""The numbers 0, 1, 2 and so on, made once for many passes."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

_SIZES: Final = 8
"""Powers of two between the sizes of passes that are usual in one node, at most."""
_KEPT_MAX: Final = 1 << 17
"""More numbers than that are not kept: a single large release would hold them for ever."""


def positions(count: int) -> np.ndarray:
    """int64 (count,), ascending from 0; read-only."""
    size = 1 << count.bit_length()
    return _made(count) if size > _KEPT_MAX else _numbers(size)[:count]


@lru_cache(maxsize=_SIZES)
def _numbers(count: int) -> np.ndarray:
    return _made(count)


def _made(count: int) -> np.ndarray:
    numbers = np.arange(count, dtype=np.int64)
    numbers.flags.writeable = False
    return numbers
