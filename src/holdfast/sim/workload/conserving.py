"""What chance and the clock cannot change of arbitrary results: their keys, and how many rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.sim.workload.oracle import TimedRow

BEHIND_US: Final = 5_000
"""Size of the windows of what depends on an arbitrary unit."""


def values_of(names: Sequence[str]) -> Callable[[TimedRow], tuple[object, ...]]:
    """These of its columns."""
    return lambda row: tuple(row.values[name] for name in names)


def all_of(row: TimedRow) -> tuple[object, ...]:
    """Its time, and all of its columns."""
    return row.time_us, *row.values.values()


def window_behind(row: TimedRow) -> tuple[object, ...]:
    """Its own of a row, and of a result, whose tuple time is the last microsecond of it."""
    return (row.time_us // BEHIND_US,)


def counted(name: str) -> Callable[[TimedRow], int]:
    """How many rows a result stands for, by one of its columns."""
    return lambda row: row.values[name] or 0
