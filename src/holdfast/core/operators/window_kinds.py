"""Windows that every key has for itself: by its count of tuples, or by tuple time. [HA §3.2]

A window alignment is *absolute* if it can be told from the window's own tuples; then an operator
that starts anew anywhere in the stream soon has the same windows as one that saw it all, and is
convergent-capable. Otherwise it is deterministic, and needs all its input to be rebuilt.

| windows                                    | where they begin                    | alignment     |
| ------------------------------------------ | ----------------------------------- | ------------- |
| of `size` tuples, every `advance`          | with the key's first tuple          | by the first  |
| the same with `advance` 1                  | with every tuple                    | absolute      |
| of time, `alignment="first"`               | with the key's first tuple          | by the first  |
| of time, `alignment="epoch"`               | at multiples of the slide           | absolute      |

A window of an operator is told by two words; whichever kind, all that is left to close when the
boundary moves is at the low end. By count: key number, number of the window. By time: end, key
number. Of a key two words are kept: its number, and its position or the time of its first tuple.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US, END_US

COPIES_MAX: Final = 10_000
"""Windows that a tuple may be in."""


@dataclass(frozen=True, slots=True)
class Entered:
    """The windows that rows enter.

    Attributes:
        words: int64 (n,), per row the key's word after it.
        rows: int64 (m,), row numbers, ascending: a row once for each of its windows.
        windows: int64 (m, 2), the windows, in the same order.
    """

    words: np.ndarray
    rows: np.ndarray
    windows: np.ndarray


class WindowKind(abc.ABC):
    """Which windows there are.

    Attributes:
        is_absolute: See the module.
        copies: Most windows that a tuple is in.
        closes_by_count: Whether its own tuples close a window, or else the boundary.
        number_at: Which of a window's words is its key's number.
    """

    is_absolute: bool
    copies: int
    closes_by_count: bool
    number_at: int

    def require_sane(self, name: str) -> None:
        """Raise `LocalProtocolError` if a tuple were in too many windows."""
        if self.copies > COPIES_MAX:
            raise LocalProtocolError(
                f"{name}: every tuple would be in {self.copies} windows; at most {COPIES_MAX}"
            )

    @abc.abstractmethod
    def enter(
        self, numbers: np.ndarray, words: np.ndarray, is_first: np.ndarray, time_us: np.ndarray
    ) -> Entered:
        """Put rows into windows.

        Args:
            numbers: int64 (n,), each row's key.
            words: int64 (n,), the keys' words before the first of these rows.
            is_first: bool (n,), whether no row of the key came before these.
            time_us: int64 (n,), tuple times.
        """

    @abc.abstractmethod
    def is_complete(self, windows: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Which windows, int64 (u, 2), are full, given the key's word after their newest row."""

    @abc.abstractmethod
    def closed_before(self, boundary_us: int) -> np.ndarray | None:
        """Windows less than this, int64 (2,), are closed by the boundary; None: all are."""

    @abc.abstractmethod
    def span(
        self, windows: np.ndarray, earliest: np.ndarray, latest: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The columns window_start and window_end, from the times of the windows' tuples."""


class CountWindows(WindowKind):
    """Windows of `size` tuples of a key; a new one begins with every `advance`-th."""

    closes_by_count = True
    number_at = 0

    def __init__(self, size: int, advance: int) -> None:
        """Raise `LocalProtocolError` unless 0 < advance <= size."""
        if not 0 < advance <= size:
            raise LocalProtocolError(
                f"windows of {size} tuples every {advance}: 0 < advance <= size needed"
            )
        self._size, self._advance = size, advance
        self.is_absolute = advance == 1
        self.copies = -(-size // advance)

    def enter(
        self, numbers: np.ndarray, words: np.ndarray, is_first: np.ndarray, time_us: np.ndarray
    ) -> Entered:
        """By the rows' positions among those of their keys."""
        del is_first, time_us
        position = words + _rank(numbers)
        last = position // self._advance
        first = np.maximum(0, (position - self._size) // self._advance + 1)
        rows = np.repeat(np.arange(len(numbers), dtype=np.int64), last - first + 1)
        begins = np.cumsum(last - first + 1) - (last - first + 1)
        window = first[rows] + np.arange(len(rows), dtype=np.int64) - begins[rows]
        return Entered(position + 1, rows, np.stack([numbers[rows], window], axis=1))

    def is_complete(self, windows: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Those whose last position is taken."""
        complete: np.ndarray = words == windows[:, 1] * self._advance + self._size
        return complete

    def closed_before(self, boundary_us: int) -> np.ndarray | None:
        """None by the boundary."""
        del boundary_us
        return np.array([-1, 0], dtype=np.int64)

    def span(
        self, windows: np.ndarray, earliest: np.ndarray, latest: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The times of the earliest and the latest tuple."""
        return earliest, latest


class TimeWindows(WindowKind):
    """Windows of tuple time, a new one every slide; aligned to the epoch or to the first tuple."""

    closes_by_count = False
    number_at = 1

    def __init__(self, size_us: int, slide_us: int, *, is_epoch: bool) -> None:
        """Raise `LocalProtocolError` unless 0 < slide <= size."""
        if not 0 < slide_us <= size_us:
            raise LocalProtocolError(
                f"window size {size_us} us, slide {slide_us} us: 0 < slide <= size needed"
            )
        self._size_us, self._slide_us = size_us, slide_us
        self.is_absolute = is_epoch
        self.copies = -(-size_us // slide_us)

    def enter(
        self, numbers: np.ndarray, words: np.ndarray, is_first: np.ndarray, time_us: np.ndarray
    ) -> Entered:
        """By the distance of the rows' times from where the key's windows begin."""
        if self.is_absolute:
            words = np.zeros(len(numbers), dtype=np.int64)
        elif bool(is_first.any()):
            new, first = np.unique(numbers[is_first], return_index=True)
            words = words.copy()
            words[is_first] = time_us[is_first][first][np.searchsorted(new, numbers[is_first])]
        newest = time_us - (time_us - words) % self._slide_us
        back = np.arange(self.copies - 1, -1, -1, dtype=np.int64) * self._slide_us
        starts = (newest[:, None] - back[None, :]).reshape(-1)
        rows = np.repeat(np.arange(len(numbers), dtype=np.int64), self.copies)
        inside = starts + self._size_us > time_us[rows]
        rows, ends = rows[inside], starts[inside] + self._size_us
        return Entered(words, rows, np.stack([ends, numbers[rows]], axis=1))

    def is_complete(self, windows: np.ndarray, words: np.ndarray) -> np.ndarray:
        """None by their tuples."""
        del words
        return np.zeros(len(windows), dtype=np.bool_)

    def closed_before(self, boundary_us: int) -> np.ndarray | None:
        """Those that end at or before the boundary."""
        if boundary_us == END_US:
            return None
        return np.array([boundary_us + 1, BEGINNING_US], dtype=np.int64)

    def span(
        self, windows: np.ndarray, earliest: np.ndarray, latest: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Start and end."""
        del earliest, latest
        return windows[:, 0] - self._size_us, windows[:, 0]


def _rank(numbers: np.ndarray) -> np.ndarray:
    """For each row how many rows of its key come before it. int64 (n,)."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    rank = np.empty(len(numbers), dtype=np.int64)
    lengths = np.diff(np.append(begins, len(numbers)))
    rank[order] = np.arange(len(numbers), dtype=np.int64) - np.repeat(begins, lengths)
    return rank
