"""Draws how rows came into a log: micro-batches, files of tasks, Spark's watermark, idleness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.model.ids import BEGINNING_US
from holdfast.sim.workload.base import RecordedCommit

if TYPE_CHECKING:
    from holdfast.sim.draw import Draw
    from holdfast.sim.workload.base import Record
    from holdfast.sim.workload.oracle import TimedRow

_FILES_MAX: Final = 4


def committed(
    draw: Draw, records: tuple[Record, ...], delay_us: int, span_us: int
) -> tuple[RecordedCommit, ...]:
    """The rows of records, in micro-batches that arrive within so much virtual time.

    Args:
        draw: What happened.
        records: The rows, in the order in which they were made.
        delay_us: How far rows may be out of order.
        span_us: When the last of them has arrived.
    """
    has_watermark = draw.percent(50)
    batches = list(_batches(draw, records))
    commits: list[RecordedCommit] = []
    watermark_us = newest_us = BEGINNING_US
    for number, rows in enumerate(batches):
        at_us = span_us * (number + 1) // len(batches)
        told_us, newest_us = watermark_us, max(newest_us, *(row.time_us for row in rows))
        watermark_us = max(watermark_us, newest_us - delay_us)
        idle = None
        if has_watermark and draw.percent(40):
            room_us = span_us // len(batches)
            idle = (at_us + draw.number(0, max(0, room_us - 1)), watermark_us)
        files = tuple(_in_records(draw, file) for file in _files(draw, rows))
        commits.append(RecordedCommit(at_us, files, told_us if has_watermark else None, idle))
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
