"""Windows of tuple time, aligned to the epoch, and the directory of those that are open.

Windows start at multiples of `slide_us` and cover [start, start + size_us). Absolute alignment is
what makes aggregates and windowed joins convergent-capable. [HA §3.2]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.paged_list import PagedList


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Which windows there are; tumbling if `slide_us == size_us`. Microseconds."""

    size_us: int
    slide_us: int

    def __post_init__(self) -> None:
        if not 0 < self.slide_us <= self.size_us:
            raise LocalProtocolError(
                f"window size {self.size_us} us, slide {self.slide_us} us: 0 < slide <= size needed"
            )

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
        if len(starts) == 1 and starts[0] <= first and last < starts[0] + size:
            return [(starts[0], None)]
        is_sorted = bool((time_us[1:] >= time_us[:-1]).all())
        permutation = None if is_sorted else np.argsort(time_us, kind="stable")
        ordered = time_us if permutation is None else time_us[permutation]
        edges = np.searchsorted(ordered, np.array([(s, s + size) for s in starts]))
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
    """The pages of one window."""

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        ...

    def destroy(self) -> None:
        """Release them."""
        ...

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if they make no sense."""
        ...


S = TypeVar("S", bound=WindowState)


class WindowDirectory(Generic[S]):
    """The open windows.

    In pages: one record per open window, its start and its low watermark per input stream.
    Volatile: the handles of the windows' own page sets, and the boundary.
    """

    def __init__(self, manager: PageManager, spec: WindowSpec) -> None:
        """No window is open."""
        self._manager = manager
        self._spec = spec
        self._records: PagedList | None = None  # Made in the first round: it needs len(low).
        self._open: dict[int, tuple[int, S]] = {}
        self.boundary_us = BEGINNING_US

    def find(self, start: int) -> S | None:
        """The open window with this start."""
        entry = self._open.get(start)
        return None if entry is None else entry[1]

    def open(self, start: int, state: S, low: np.ndarray) -> None:
        """Add a window."""
        if self._records is None:
            self._records = PagedList(self._manager, 1 + len(low))
        record = np.concatenate([np.array([start], dtype=np.int64), low]).reshape(1, -1)
        self._open[start] = (self._records.append(record), state)

    def touch(self, start: int, low: np.ndarray) -> np.ndarray:
        """Lower the window's low watermark to `low` where that is older; returns the watermark."""
        assert self._records is not None
        number, _ = self._open[start]
        record = self._records.gather(np.array([number], dtype=np.int64))
        np.minimum(record[0, 1:], low, out=record[0, 1:])
        self._records.overwrite(number, record)
        return record[0, 1:]

    def close(self, boundary_us: int) -> list[tuple[int, S, np.ndarray]]:
        """Take out the windows that end at or before the boundary: (start, state, low), by start.

        The caller destroys their states.
        """
        self.boundary_us = max(self.boundary_us, boundary_us)
        last_start = self.boundary_us - self._spec.size_us
        due = sorted(start for start in self._open if start <= last_start)
        if not due:
            return []
        assert self._records is not None
        records = self._records.scan()
        closed = [(start, self._open[start][1], records[self._open[start][0], 1:]) for start in due]
        for start in due:
            del self._open[start]
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
        if not self._open or self._records is None:
            return None
        oldest: np.ndarray = self._records.scan()[:, 1:].min(axis=0)
        return oldest

    def state_bytes(self) -> int:
        """Bytes of the pages of directory and windows."""
        pages = sum(state.page_count for _, state in self._open.values())
        pages += 0 if self._records is None else self._records.page_count
        return pages * self._manager.page_bytes

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless directory and windows agree."""
        for start, (_, state) in self._open.items():
            if start + self._spec.size_us <= self.boundary_us:
                raise InvariantViolation(f"window {start} is open after its end")
            if start % self._spec.slide_us:
                raise InvariantViolation(f"window {start} is not aligned")
            state.check_invariants()
        if self._records is None:
            return
        records = self._records.scan()
        if len(records) != len(self._open):
            raise InvariantViolation(f"{len(records)} records of {len(self._open)} open windows")
        for start, (number, _) in self._open.items():
            if int(records[number, 0]) != start:
                raise InvariantViolation(f"record {number} is not that of window {start}")
