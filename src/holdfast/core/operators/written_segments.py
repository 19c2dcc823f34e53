"""What a window aggregate knows of its footprints: which segments are written, in which records.

See footprinted_aggregate.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from holdfast.core.errors import InvariantViolation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.core.operators.aggregate import AggregatedWindow

TAIL: Final = -1
"""In the place of a segment's number: the groups that are in none."""
NONE: Final = -1
WHOLE: Final = 0
RESTS: Final = 1


def names_of(start: int, segments: np.ndarray, part: int = WHOLE) -> np.ndarray:
    """Of footprints of a window: the window, the segment, which part. int64 (n, 3).

    Args:
        start: Of the window.
        segments: int64 (n,), their numbers.
        part: The same of all.
    """
    names = np.empty((len(segments), 3), dtype=np.int64)
    names[:, 0], names[:, 1], names[:, 2] = start, segments, part
    return names


def tail_of(start: int) -> np.ndarray:
    """The name of a window's tail. int64 (1, 3)."""
    return np.array([(start, TAIL, WHOLE)], dtype=np.int64)


def named(parts: list[np.ndarray]) -> np.ndarray:
    """All of these names. int64 (n, 3)."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.zeros((0, 3), dtype=np.int64), *parts])


class WrittenSegments:
    """Which footprints of a window are needed. Cost of what is written: O(its segments).

    Attributes:
        held: How many groups the segments hold.
        tail: Generation of the tail's footprint; -1: there is no tail.
        rests: How many segments rest.
    """

    def __init__(self, known: np.ndarray | None = None, held: int = 0, tail: int = NONE) -> None:
        """Of segments, int64 (3, n): generations, binding and prints; None: of none."""
        self._words = np.empty((3, 0), dtype=np.int64) if known is None else known
        self._count = self._words.shape[1]
        self.held = held
        self.tail = tail
        self.rests = len(self.resting)

    @property
    def generations(self) -> np.ndarray:
        """Of each segment as a whole. int64."""
        return self._words[0, : self._count]

    @property
    def binding(self) -> np.ndarray:
        """Of each segment's newest footprint; another one where the segment rests. int64."""
        return self._words[1, : self._count]

    @property
    def prints(self) -> np.ndarray:
        """Of each segment the fingerprint as a whole. int64."""
        return self._words[2, : self._count]

    def write(self, first: int, new: np.ndarray) -> None:
        """Segments from `first` on are written, some of them perhaps behind the last one.

        Args:
            first: At most the one behind the last.
            new: int64 (3, n), as of `__init__`.
        """
        end = first + new.shape[1]
        if end > self._words.shape[1]:
            room = np.empty((3, max(end, 2 * self._words.shape[1])), dtype=np.int64)
            room[:, : self._count] = self._words[:, : self._count]
            self._words = room
        former = self._words[:, first : min(end, self._count)]
        self.rests += int((new[0] != new[1]).sum()) - int((former[0] != former[1]).sum())
        self._words[:, first:end] = new
        self._count = max(self._count, end)

    @property
    def resting(self) -> np.ndarray:
        """Which segments have a second part, int64 ascending."""
        return np.flatnonzero(self.binding != self.generations)

    @property
    def count(self) -> int:
        """How many footprints are needed."""
        return len(self.generations) + self.rests + (self.tail != NONE)

    def names(self, start: int) -> np.ndarray:
        """Those, as `names_of` has them."""
        wholes = names_of(start, np.arange(len(self.generations)))
        parts = [wholes, names_of(start, self.resting, RESTS)] if self.rests else [wholes]
        if self.tail != NONE:
            parts.append(tail_of(start))
        return np.concatenate(parts) if len(parts) > 1 else wholes

    def bound(self) -> np.ndarray:
        """The generations that bind T, int64."""
        if self.tail == NONE:
            return self.binding
        return np.append(self.binding, self.tail)

    def needed(self) -> np.ndarray:
        """The generations of all of them, int64."""
        if not self.rests:
            return self.bound()
        return np.concatenate([self.bound(), self.generations[self.resting]])


@dataclass(frozen=True, slots=True)
class AdoptedSegments:
    """The segments of an eventual checkpoint, of all windows behind each other.

    Attributes:
        starts: Of the windows, ascending.
        tails: int64 (windows,), generation of each one's tail; -1: there is none.
        edges: int64 (windows + 1,), between which of the segments each one's are.
        ends: int64 (windows + 1,), between which of the groups each one's are.
        lengths: int64 (segments,), how many groups each has.
        generations: int64 (segments,), as `WrittenSegments` has them.
        binding: int64 (segments,), as `WrittenSegments` has it.
    """

    starts: list[int]
    tails: np.ndarray
    edges: np.ndarray
    ends: np.ndarray
    lengths: np.ndarray
    generations: np.ndarray
    binding: np.ndarray

    @property
    def segments(self) -> Iterator[tuple[int, int]]:
        """Of each window its segments, a half-open range."""
        return pairwise(self.edges.tolist())

    @property
    def groups(self) -> Iterator[tuple[int, int]]:
        """Of each window its groups, a half-open range."""
        return pairwise(self.ends.tolist())


def adopted(
    name: str, names: np.ndarray, generations: np.ndarray, lengths: np.ndarray, full: int
) -> AdoptedSegments:
    """What footprints say of windows.

    Args:
        name: Of the operator.
        names: int64 (n, 3), as `names_of` has them, ascending.
        generations: int64 (n,), of the footprints.
        lengths: int64 (n,), how many groups each has.
        full: How many a segment has, unless it is the last one.

    Raises:
        InvariantViolation: The segments of a window do not hold its first groups.
    """
    starts, segments, parts = names.T
    windows, of = np.unique(starts, return_inverse=True)
    is_tail, rests = segments == TAIL, np.flatnonzero(parts == RESTS)
    wholes = np.flatnonzero(~is_tail & (parts == WHOLE))
    counts = np.bincount(of[wholes], minlength=len(windows))
    edges = np.append(0, np.cumsum(counts))
    numbers = np.arange(len(wholes)) - np.repeat(edges[:-1], counts)
    is_last = np.append(numbers[1:] == 0, True)[: len(wholes)]
    lengths = lengths[wholes]
    is_wrong = (segments[wholes] != numbers) | (lengths > full) | ((lengths < full) & ~is_last)
    wrong = np.append(of[wholes][is_wrong], of[rests][segments[rests] >= counts[of[rests]]])
    if len(wrong):
        raise InvariantViolation(f"{name}: segments of {windows[wrong[0]]} leave groups out")
    binding, tails = generations[wholes], np.full(len(windows), NONE, dtype=np.int64)
    binding[edges[of[rests]] + segments[rests]] = generations[rests]
    tails[of[is_tail]] = generations[is_tail]
    ends = np.append(0, np.cumsum(lengths))[edges]
    return AdoptedSegments(
        windows.tolist(), tails, edges, ends, lengths, generations[wholes], binding
    )


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
        rest: The names of second parts of those that rest.
        done: Those of footprints that are needed no more, beside those that others take the place
            of.
        former: int64 each, the generations that no longer bind T.
        let_go: int64 each, those of footprints that are needed no more.
    """

    said: list[SegmentsSaid] = field(default_factory=list)
    rest: list[np.ndarray] = field(default_factory=list)
    done: list[np.ndarray] = field(default_factory=list)
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


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """int64, one after the other."""
    if len(parts) == 1:
        return parts[0]
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
