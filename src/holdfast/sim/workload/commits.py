"""Draws how rows came into a log: micro-batches, files of tasks, Spark's watermark, idleness."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.core.model.ids import BEGINNING_US
from holdfast.sim.draw import Draw
from holdfast.sim.workload.base import RecordedCommit

if TYPE_CHECKING:
    from holdfast.sim.workload.base import Record
    from holdfast.sim.workload.oracle import TimedRow

_FILES_MAX: Final = 4
_FURTHEST_US: Final = 1 << 31
_STRAYS_PERCENT: Final = 40
"""In so many logs clocks are wrong now and then, and a row far ahead does not move time."""


class Strays:
    """Rows whose times are far ahead of the others', as of a broken clock.

    Attributes:
        ahead_us: How far ahead rows may be and still move time.
    """

    def __init__(self, draw: Draw) -> None:
        """Draw how often they come, and which time of day commits name."""
        self._draw = draw
        self.ahead_us: int = draw.one_of((500, 5_000, 1_000_000))
        self._percent = draw.one_of((1, 3, 10))
        self._behind_us = draw.one_of((None, None, 0, 1_000, -1_000, -_FURTHEST_US))

    def clock_us(self, rows: list[TimedRow]) -> int:
        """The time of day when these were recorded, before any of them strays."""
        if self._behind_us is None:
            return BEGINNING_US
        return max(row.time_us for row in rows) - self._behind_us

    def among(self, rows: list[TimedRow]) -> list[TimedRow]:
        """The rows, some of them far ahead."""
        draw = self._draw
        return [
            replace(row, time_us=row.time_us + draw.steep(self.ahead_us // 2, _FURTHEST_US))
            if draw.percent(self._percent)
            else row
            for row in rows
        ]


def strays_of(name: str, number: int) -> Strays | None:
    """The wrong clocks of a source, drawn apart; None: its clocks are right."""
    draw = Draw(f"{name}/strays/{number}")
    return Strays(draw) if draw.percent(_STRAYS_PERCENT) else None


def committed(
    draw: Draw,
    records: tuple[Record, ...],
    delay_us: int,
    span_us: int,
    strays: Strays | None = None,
) -> tuple[RecordedCommit, ...]:
    """The rows of records, in micro-batches that arrive within so much virtual time.

    Args:
        draw: What happened.
        records: The rows, in the order in which they were made.
        delay_us: How far rows may be out of order.
        span_us: When the last of them has arrived.
        strays: Of which rows the times are wrong; None: of none.
    """
    has_watermark = draw.percent(50)
    batches = list(_batches(draw, records))
    commits: list[RecordedCommit] = []
    watermark_us = newest_us = BEGINNING_US
    for number, rows in enumerate(batches):
        clock_us = BEGINNING_US if strays is None else strays.clock_us(rows)
        rows = rows if strays is None else strays.among(rows)
        at_us = span_us * (number + 1) // len(batches)
        told_us, newest_us = watermark_us, max(newest_us, *(row.time_us for row in rows))
        watermark_us = max(watermark_us, newest_us - delay_us)
        idle = None
        if has_watermark and draw.percent(40):
            room_us = span_us // len(batches)
            idle = (at_us + draw.number(0, max(0, room_us - 1)), watermark_us)
        files = tuple(_in_records(draw, file) for file in _files(draw, rows))
        watermark = told_us if has_watermark else None
        commits.append(RecordedCommit(at_us, files, watermark, idle, clock_us))
    return tuple(commits)


def _batches(draw: Draw, records: tuple[Record, ...]) -> list[list[TimedRow]]:
    """One batch of several records now and then: Spark has been away, and catches up."""
    batches: list[list[TimedRow]] = []
    left = 0
    for record in records:
        if left == 0:
            batches.append([])
            left = draw.number(4, 12) if draw.percent(20) else draw.number(1, 2)
        batches[-1] += record
        left -= 1
    return batches


def _files(draw: Draw, rows: list[TimedRow]) -> list[list[TimedRow]]:
    """What each task read: files of the same times, or of one stretch of time behind the other."""
    count = min(draw.number(1, _FILES_MAX), len(rows))
    if draw.percent(50):
        return [rows[i::count] for i in range(count)]
    size = -(-len(rows) // count)
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _in_records(draw: Draw, rows: list[TimedRow]) -> tuple[Record, ...]:
    size = draw.number(1, len(rows)) if draw.percent(50) else len(rows)
    return tuple(tuple(rows[start : start + size]) for start in range(0, len(rows), size))
