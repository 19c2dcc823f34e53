"""Windows of tuple time, aligned to the epoch, the directory of those that are open, and operators
whose state is theirs.

Windows start at multiples of `slide_us` and cover [start, start + size_us). Absolute alignment is
what makes aggregates and windowed joins convergent-capable. [HA §3.2]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.operators.base import Operator, OperatorClass
from holdfast.core.state.page_manager import PageManager, PageSetId
from holdfast.core.state.paged_list import PagedList
from holdfast.core.state.raw_page import RawPage

_FEW_PANES: Final = 1 << 15
_CREATED: Final = 1
_PAGE_SETS_AT: Final = 2
"""Words of a window's record: start, creation time, page sets, low watermarks."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Which windows there are; tumbling if `slide_us == size_us`. Microseconds.

    None begins before `earliest_us`.
    """

    size_us: int
    slide_us: int
    earliest_us: int = BEGINNING_US

    def __post_init__(self) -> None:
        if not 0 < self.slide_us <= self.size_us:
            raise LocalProtocolError(
                f"window size {self.size_us} us, slide {self.slide_us} us: 0 < slide <= size needed"
            )

    def after(self, closed_us: int) -> WindowSpec:
        """The same without the windows that end at or before a boundary."""
        first_us = (closed_us - self.size_us) // self.slide_us * self.slide_us + self.slide_us
        return replace(self, earliest_us=max(self.earliest_us, first_us))

    def assign(self, time_us: np.ndarray) -> list[tuple[int, np.ndarray | None]]:
        """The windows with rows in this batch, by start, each with its row numbers.

        Returns:
            (window start, row numbers ascending; None for all rows).
        """
        if len(time_us) == 0:
            return []
        size, slide = self.size_us, self.slide_us
        first, last = int(time_us.min()), int(time_us.max())
        begun = last // slide - first // slide + 1
        if begun <= len(time_us):  # Empty ones among them are skipped below.
            bases = [(first // slide + i) * slide for i in range(begun)]
        else:
            bases = [int(base) for base in np.unique(time_us // slide * slide)]
        if size == slide:
            starts = bases
        else:
            behind = (size - 1) // slide + 1
            starts = sorted({base - j * slide: None for base in bases for j in range(behind)})
        starts = [start for start in starts if start >= self.earliest_us]
        if len(starts) == 1 and starts[0] <= first and last < starts[0] + size:
            return [(starts[0], None)]
        edges = np.array([(start, start + size) for start in starts])
        permutation, ordered = None, time_us
        if not bool((time_us[1:] >= time_us[:-1]).all()):
            pane = math.gcd(size, slide)  # Windows begin and end with panes.
            panes = time_us // pane - first // pane
            if (last - first) // pane < _FEW_PANES:
                panes = panes.astype(np.uint16)  # These are sorted in linear time.
            permutation = np.argsort(panes, kind="stable")
            ordered, edges = panes[permutation], edges // pane - first // pane
        edges = np.searchsorted(ordered, edges)
        result: list[tuple[int, np.ndarray | None]] = []
        for start, (begin, end) in zip(starts, edges.tolist(), strict=True):
            if begin == end:
                continue
            if end - begin == len(time_us):
                result.append((start, None))
            elif permutation is None:
                result.append((start, np.arange(begin, end, dtype=np.int64)))
            else:
                result.append((start, np.sort(permutation[begin:end])))
        return result


class WindowState(Protocol):
    """The structures of one window."""

    @property
    def page_sets(self) -> tuple[PageSetId, ...]:
        """Their page sets, in an order of its own."""
        ...

    @property
    def page_count(self) -> int:
        """How many pages they take."""
        ...

    def destroy(self) -> None:
        """Release them."""
        ...

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if they make no sense."""
        ...


S = TypeVar("S", bound=WindowState)


@dataclass(frozen=True, slots=True)
class ClosedWindow(Generic[S]):
    """A window that the boundary has closed; whoever takes it destroys its state.

    Attributes:
        start: Its start.
        state: Its structures.
        low: Its low watermark per input stream, int64.
        created_us: Creation time of the newest tuple in it.
    """

    start: int
    state: S
    low: np.ndarray
    created_us: int


class WindowDirectory(Generic[S]):
    """The open windows.

    In pages: one record per open window with its start, the creation time of its newest tuple, the
    page sets of its structures and its low watermark per input stream; and the boundary.
    Volatile: the handles of the windows' structures, made again from the records.
    """

    def __init__(
        self,
        manager: PageManager,
        spec: WindowSpec,
        structures: int,
        attach: Callable[[tuple[PageSetId, ...] | None], S],
    ) -> None:
        """No window is open, or those that a checkpoint holds.

        Args:
            manager: Of the pages.
            spec: Which windows there are.
            structures: How many page sets a window has.
            attach: Makes a window's structures: over these page sets, or new ones for None.
        """
        self._manager = manager
        self._spec = spec
        self._attach = attach
        self._low_at = _PAGE_SETS_AT + structures
        self._records = PagedList(manager)
        self._boundary = RawPage(manager)
        self._open: dict[int, tuple[int, S]] = {}  # start -> number of its record, structures
        for number, record in enumerate(self._records.scan().tolist()):
            page_sets = tuple(PageSetId(word) for word in record[_PAGE_SETS_AT : self._low_at])
            self._open[record[0]] = (number, attach(page_sets))

    @property
    def boundary_us(self) -> int:
        """The boundary that windows were closed up to."""
        words = self._boundary.read()
        return int(words[0]) if len(words) else BEGINNING_US

    def enter(self, start: int, low: np.ndarray, created_us: int) -> tuple[S, np.ndarray]:
        """Rows with these oldest contributing tuples enter a window; opens it if need be.

        Returns:
            Its structures, and its low watermark with these rows.
        """
        entry = self._open.get(start)
        if entry is None:
            (state,) = self.open([start], low, created_us)
            return state, low.copy()
        number, state = entry
        old = self._records.gather(np.array([number], dtype=np.int64))
        new = old.copy()
        new[0, _CREATED] = max(int(old[0, _CREATED]), created_us)
        np.minimum(new[0, self._low_at :], low, out=new[0, self._low_at :])
        if not np.array_equal(new, old):
            self._records.overwrite(number, new)
        watermark: np.ndarray = new[0, self._low_at :]
        return state, watermark

    def open(self, starts: list[int], low: np.ndarray, created_us: int) -> list[S]:
        """Open windows, none of which is, as `enter` does; their structures."""
        if not starts:
            return []
        states = [self._attach(None) for _ in starts]
        records = [
            (start, created_us, *state.page_sets, *low)
            for start, state in zip(starts, states, strict=True)
        ]
        first = self._records.append(np.array(records, dtype=np.int64))
        self._open.update(zip(starts, enumerate(states, first), strict=True))
        return states

    def resume(self, boundary_us: int) -> None:
        """Windows were closed up to this boundary, elsewhere."""
        self._boundary.write(np.array([boundary_us], dtype=np.int64))

    def close(self, boundary_us: int) -> list[ClosedWindow[S]]:
        """Take out the windows that end at or before the boundary, by start."""
        boundary_us = max(self.boundary_us, boundary_us)
        self._boundary.write(np.array([boundary_us], dtype=np.int64))
        last_start = boundary_us - self._spec.size_us
        due = sorted(start for start in self._open if start <= last_start)
        if not due:
            return []
        records = self._records.scan()
        closed: list[ClosedWindow[S]] = []
        for start in due:
            number, state = self._open.pop(start)
            record = records[number]
            closed.append(ClosedWindow(start, state, record[self._low_at :], int(record[_CREATED])))
        kept = sorted((number, start) for start, (number, _) in self._open.items())
        self._records.replace_all(records[[number for number, _ in kept]])
        for position, (_, start) in enumerate(kept):
            self._open[start] = (position, self._open[start][1])
        return closed

    def require_not_late(self, name: str, time_us: np.ndarray) -> None:
        """Raise `LocalProtocolError` if a row is older than the boundary."""
        if len(time_us) and int(time_us.min()) < self.boundary_us:
            raise LocalProtocolError(
                f"{name}: a tuple of time {int(time_us.min())} is older than the boundary "
                f"{self.boundary_us}"
            )

    def oldest_needed(self) -> np.ndarray | None:
        """The oldest of the open windows' low watermarks."""
        if not self._open:
            return None
        oldest: np.ndarray = self._records.scan()[:, self._low_at :].min(axis=0)
        return oldest

    def newest_end_us(self, boundary_us: int) -> int:
        """The end of the newest open window that a boundary would close; else `BEGINNING_US`."""
        size_us = self._spec.size_us
        ends = (start + size_us for start in self._open if start + size_us <= boundary_us)
        return max(ends, default=BEGINNING_US)

    @property
    def count(self) -> int:
        """How many windows are open."""
        return len(self._open)

    def get(self, start: int) -> S | None:
        """The structures of a window; None: it is not open."""
        entry = self._open.get(start)
        return None if entry is None else entry[1]

    def states(self) -> list[tuple[int, S]]:
        """The open windows by start, with their structures."""
        return sorted((start, state) for start, (_, state) in self._open.items())

    def state_bytes(self) -> int:
        """Bytes of the pages of directory and windows."""
        pages = sum(state.page_count for _, state in self._open.values())
        pages += self._records.page_count + self._boundary.page_count
        return pages * self._manager.page_bytes

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless directory and windows agree."""
        boundary_us = self.boundary_us
        records = self._records.scan()
        if len(records) != len(self._open):
            raise InvariantViolation(f"{len(records)} records of {len(self._open)} open windows")
        for start, (number, state) in self._open.items():
            if start + self._spec.size_us <= boundary_us:
                raise InvariantViolation(f"window {start} is open after its end")
            if start % self._spec.slide_us:
                raise InvariantViolation(f"window {start} is not aligned")
            if int(records[number, 0]) != start:
                raise InvariantViolation(f"record {number} is not that of window {start}")
            if tuple(records[number, _PAGE_SETS_AT : self._low_at].tolist()) != state.page_sets:
                raise InvariantViolation(f"record {number} names other page sets than its window")
            state.check_invariants()


class WindowedOperator(Operator, Generic[S]):
    """An operator whose state is that of its open windows."""

    operator_class = OperatorClass.CONVERGENT_CAPABLE
    _spec: WindowSpec
    _directory: WindowDirectory[S]

    def pass_over(self, closed_us: int) -> None:
        """Rows of windows that end at or before `closed_us` are passed over."""
        self._spec = self._spec.after(closed_us)

    def closes_us(self, boundary_us: int) -> int:
        """The end of the newest window that it would close."""
        return self._directory.newest_end_us(boundary_us)

    def oldest_needed(self) -> np.ndarray | None:
        """The oldest tuple of any open window."""
        return self._directory.oldest_needed()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if windows, directory and pages disagree."""
        self._directory.check_invariants()

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        return self._directory.state_bytes()
