"""What a window aggregate knows of its footprints: which segments are written, in which records.

See footprinted_aggregate.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from holdfast.core.operators.aggregate import AggregatedWindow

TAIL: Final = -1
"""In the place of a segment's number: the groups that are in none."""
NONE: Final = -1
WHOLE: Final = 0
RESTS: Final = 1


class SegmentName(NamedTuple):
    """Of a footprint: the window, the segment, which part."""

    start: int
    segment: int
    part: int


@dataclass(slots=True)
class WrittenSegments:
    """Which footprints of a window are needed.

    Attributes:
        generations: int64, of each segment as a whole.
        binding: int64, of each segment's newest footprint; another one where the segment rests.
        prints: int64, of each segment the fingerprint as a whole.
        held: How many groups the segments hold.
        tail: Generation of the tail's footprint; -1: there is no tail.
        rests: How many segments rest.
    """

    generations: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    binding: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    prints: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    held: int = 0
    tail: int = NONE
    rests: int = 0

    @property
    def resting(self) -> np.ndarray:
        """Which segments have a second part, int64 ascending."""
        return np.flatnonzero(self.binding != self.generations)

    @property
    def count(self) -> int:
        """How many footprints are needed."""
        return len(self.generations) + self.rests + (self.tail != NONE)

    def names(self, start: int) -> list[SegmentName]:
        """Those."""
        wholes = [SegmentName(start, number, WHOLE) for number in range(len(self.generations))]
        wholes += [SegmentName(start, number, RESTS) for number in self.resting.tolist()]
        return wholes if self.tail == NONE else [*wholes, SegmentName(start, TAIL, WHOLE)]

    def bound(self) -> np.ndarray:
        """The generations that bind T, int64."""
        return np.append(self.binding, [self.tail] * (self.tail != NONE)).astype(np.int64)

    def needed(self) -> np.ndarray:
        """The generations of all of them, int64."""
        return np.concatenate([self.bound(), self.generations[self.resting]])


class SegmentsSaid(NamedTuple):
    """Some segments of a window as they are written.

    Attributes:
        start: Of the window.
        window: The window.
        numbers: int64, of the segments.
        lengths: int64, how many groups each has.
        entries: int64 (groups, words), their groups.
    """

    start: int
    window: AggregatedWindow
    numbers: np.ndarray
    lengths: np.ndarray
    entries: np.ndarray


@dataclass(slots=True)
class SegmentsFound:
    """What a look at some windows comes to.

    Attributes:
        said: Segments that are written.
        rest: Second parts of those that rest.
        done: Footprints that are needed no more, beside those that others take the place of.
        former: int64 each, the generations that no longer bind T.
        let_go: int64 each, those of footprints that are needed no more.
    """

    said: list[SegmentsSaid] = field(default_factory=list)
    rest: list[SegmentName] = field(default_factory=list)
    done: list[SegmentName] = field(default_factory=list)
    former: list[np.ndarray] = field(default_factory=list)
    let_go: list[np.ndarray] = field(default_factory=list)


class SetAside(NamedTuple):
    """Groups of a window as its segments of one cut hold them.

    Attributes:
        cut: From there on they take rows.
        slots: int64 (n,), where their accumulators are.
        values: int64 (n, v), their accumulators.
    """

    cut: int
    slots: np.ndarray
    values: np.ndarray


def overlaid(words: np.ndarray, first: int, new: np.ndarray) -> np.ndarray:
    """Words [first, ...) in their places, some of them perhaps beyond the end."""
    known = len(words[first : first + len(new)])
    words[first : first + known] = new[:known]
    return words if known == len(new) else np.concatenate([words, new[known:]])


def pairs_of(rows: list[tuple[int, int]]) -> np.ndarray:
    """int64 (n, 2)."""
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """int64, one after the other."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])


def runs_of(windows: np.ndarray) -> list[tuple[int, int, int]]:
    """Windows with numbers that follow each other: (start, first number, the one behind the last).

    A tail is by itself.
    """
    if not len(windows):
        return []
    before, behind = windows[:-1], windows[1:]
    is_next = (behind[:, 0] == before[:, 0]) & (behind[:, 1] == before[:, 1] + 1)
    breaks = ~is_next | (before[:, 1] == TAIL)
    firsts = [0, *(np.flatnonzero(breaks) + 1).tolist()]
    ends = [*firsts[1:], len(windows)]
    return [
        (int(windows[first, 0]), int(windows[first, 1]), int(windows[end - 1, 1]) + 1)
        for first, end in zip(firsts, ends, strict=True)
    ]


def ranges_of(numbers: np.ndarray) -> list[tuple[int, int]]:
    """Ascending numbers as half-open ranges."""
    if not len(numbers):
        return []
    ends = np.flatnonzero(numbers[1:] != numbers[:-1] + 1).tolist()
    firsts, lasts = [0, *(end + 1 for end in ends)], [*ends, len(numbers) - 1]
    return [
        (int(numbers[first]), int(numbers[last]) + 1)
        for first, last in zip(firsts, lasts, strict=True)
    ]
