"""Dataflows with a class that keeps states and timers per key; its results by plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.sim.draw import Draw
from holdfast.sim.workload.base import Recording, Workload, cut_up, evenly, placed
from holdfast.sim.workload.oracle import ARBITRARY_SINK, Conserved, Meaning, TimedRow
from holdfast.sim.workload.protections import random_limits, random_protection

_MS_US: Final = 1_000
_INT: Final = pa.schema([("i", pa.int64())])
_INPUT: Final = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ms", pa.int64())])
_RESULT: Final = pa.schema([("k", pa.string()), ("n", pa.int64()), ("s", pa.int64())])


class Streaks:
    """A key's rows that follow each other by less than a gap; each row, and each end, is told."""

    def __init__(self, time: str, gap_ms: int) -> None:
        """With timers of `time`, as `Stream.process` takes it."""
        self.time = time
        self.gap_ms = gap_ms

    def init(self, handle: Any) -> None:
        """One state of each kind."""
        self.handle = handle
        self.count = handle.getValueState("count", _INT)
        self.last = handle.getListState("last", _INT)
        self.sums = handle.getMapState("sums", _INT, _INT)

    def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:
        """How many rows there are, and the sum of the last two."""
        for row in rows:
            n = (self.count.get() or (0,))[0] + 1
            self.count.update((n,))
            self.last.appendValue((row.v,))
            self.last.put(list(self.last.get())[-2:])
            rest = (row.v % 3,)
            self.sums.updateValue(rest, ((self.sums.getValue(rest) or (0,))[0] + row.v,))
            if self.time == "none":
                yield {"k": key[0], "n": n, "s": 0}
                continue
            yield {"k": key[0], "n": n, "s": sum(v for (v,) in self.last.get())}
            for time_ms in list(self.handle.listTimers()):
                self.handle.deleteTimer(time_ms)
            now_ms = row.ms if self.time == "event" else timers.getCurrentProcessingTimeInMs()
            self.handle.registerTimer(now_ms + self.gap_ms)

    def handleExpiredTimer(self, key: Any, timers: Any, info: Any) -> Iterator[Any]:
        """The end of a streak: how many rows it had, below zero, and the sum of all."""
        del timers, info
        yield {
            "k": key[0],
            "n": -(self.count.get() or (0,))[0],
            "s": sum(v for (v,) in self.sums.values()),
        }
        for state in (self.count, self.last, self.sums):
            state.clear()

    def expected(self, rows: list[TimedRow]) -> list[TimedRow]:
        """The same of all rows at once; without timers nobody knows which row has which number."""
        by_key: dict[str, list[TimedRow]] = {}
        for row in rows:
            by_key.setdefault(row.values["k"], []).append(row)
        results: list[TimedRow] = []
        for k, mine in by_key.items():
            if self.time == "none":
                newest = max(row.since_us for row in mine)
                results += [
                    TimedRow(0, {"k": k, "n": n + 1, "s": 0}, has_time=False, since_us=newest)
                    for n in range(len(mine))
                ]
                continue
            mine.sort(key=lambda row: row.time_us)
            streak: list[TimedRow] = []
            for row in mine:
                if streak and self._ends_us(streak) < row.time_us:
                    results.append(self._end(k, streak))
                    streak = []
                streak.append(row)
                last = sum(each.values["v"] for each in streak[-2:])
                values = {"k": k, "n": len(streak), "s": last}
                results.append(TimedRow(row.time_us, values, since_us=row.since_us))
            results.append(self._end(k, streak))
        return results

    def _ends_us(self, streak: list[TimedRow]) -> int:
        ms: int = streak[-1].values["ms"]
        return (ms + self.gap_ms) * _MS_US

    def _end(self, k: str, streak: list[TimedRow]) -> TimedRow:
        total = sum(row.values["v"] for row in streak)
        values = {"k": k, "n": -len(streak), "s": total}
        return TimedRow(self._ends_us(streak), values, since_us=streak[-1].since_us)


def process_workload(
    seed: int,
    tuples_max: int | None = None,
    approach: str | None = None,
    guarantee: str | None = None,
) -> Workload:
    """The dataflow of a seed.

    Args:
        seed: Draws everything.
        tuples_max: Most tuples per source partition.
        approach: One of `APPROACHES`, for all units; None: it is drawn.
        guarantee: One of `GUARANTEES`, the weakest that units have; None: it is drawn.
    """
    draw = Draw(f"{seed}/process")
    flow = Dataflow("processes")
    partitions = draw.one_of((1, 1, 2))
    recording = _recording(draw, partitions, tuples_max)
    rows = flow.source_generator(recording, name="rows", partitions=partitions)
    conserved: dict[str, Conserved] = {}
    for time in ("event", "none", "processing"):
        if not draw.percent(60) and flow.sinks:
            continue
        made = rows.key_by("k").process(
            Streaks(time, draw.number(1, 30)), _RESULT, time=time, name=f"by_{time}"
        )
        sink = time
        if time == "processing":
            sink = ARBITRARY_SINK
            conserved[sink] = Conserved(
                rows.step,
                lambda row: (row.values["k"],),
                lambda row: (row.values["k"],),
                lambda row: int(row.values["n"] > 0),
                is_whole=True,
            )
        made.sink(sink)
        if time == "event":
            windows = made.key_by("k").window(tumbling("20 milliseconds"))
            windows.aggregate("sum(n) AS n", name="behind").sink("behind")
    meanings: dict[str, Meaning] = {"n": lambda row: row["n"]}
    limits, protection = random_protection(
        random_limits(draw, may_be_tiny=True), f"{seed}/protection", approach, guarantee
    )
    return placed(flow, meanings, draw.one_of((1, 1, 2, 3)), limits, protection, conserved)


def _recording(draw: Draw, partitions: int, tuples_max: int | None) -> Recording:
    """Rows of different times, out of order within the delay."""
    disorder_us = draw.one_of((0, 3_000))
    keys = draw.one_of((("a",), ("a", "b", "c"), tuple("abcdefghij")))
    times_us = draw.number(0, 1) * 1_700_000_000_000_000
    dealt: list[tuple[tuple[TimedRow, ...], ...]] = []
    for partition in range(partitions):
        rows: list[tuple[int, TimedRow]] = []
        time_us = times_us
        for _ in range(draw.number(5, 80)):
            time_us += draw.number(1, 8_000)
            own_us = time_us * 2 + partition  # No two are equal.
            values = {"k": draw.one_of(keys), "v": draw.number(-9, 9), "ms": own_us // _MS_US}
            comes_us = own_us + draw.number(0, disorder_us)
            rows.append((comes_us, TimedRow(own_us, values)))
        rows.sort(key=lambda pair: pair[0])
        given = [row for _, row in rows][:tuples_max]
        dealt.append(cut_up(given, 12, draw))
    arrivals = tuple(map(evenly, dealt))
    return Recording(_INPUT, disorder_us, tuple(dealt), arrivals, is_recorded=draw.percent(70))
