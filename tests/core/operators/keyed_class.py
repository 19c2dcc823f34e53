"""A class that keeps states of all kinds and timers, and says of each turn what it saw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from passes import SCHEMA

from holdfast.api.processors import Processor, processor_of
from holdfast.core.operators.process import Process, ProcessByClock
from holdfast.core.state.page_manager import PageManager

RESULT = pa.schema(
    [("k", pa.string()), ("what", pa.string()), ("n", pa.int64()), ("at", pa.int64())]
)
INT = pa.schema([("i", pa.int64())])


class Watching:
    """Counts rows, adds up by number, keeps the last three; sets and deletes timers by the row."""

    def __init__(self, has_timers: bool, *, chains: bool = True) -> None:
        self.has_timers = has_timers
        self.chains = chains

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", INT)
        self.sums = handle.getMapState("sums", INT, INT)
        self.last = handle.getListState(
            "last", pa.schema([("x", pa.float64()), ("k", pa.string())])
        )

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Any], timers: Any
    ) -> Iterator[Any]:
        for row in rows:
            (n,) = self.count.get() or (0,)
            self.count.update((n + 1,))
            (total,) = self.sums.getValue((row.i,)) or (0,)
            self.sums.updateValue((row.i,), (total + n,))
            if row.i == -5 and self.sums.containsKey((row.i,)):
                self.sums.removeKey((row.i,))
            self.last.appendValue((row.x, row.k))
            self.last.put(list(self.last.get())[-3:])
            if row.i == 0:
                self.last.clear()
            if self.has_timers:
                self._timers(row.i, timers)
            kept = [x for x, _ in self.last.get()]
            at = timers.getCurrentWatermarkInMs()
            yield {
                "k": key[0],
                "what": f"{sorted(self.sums.keys(), key=repr)} {kept}",
                "n": n,
                "at": at,
            }

    def _timers(self, i: int | None, timers: Any) -> None:
        if i is not None and i > 0:
            self.handle.registerTimer(timers.getCurrentWatermarkInMs() + 2 * i)
        if i is not None and i < -3:
            for time_ms in list(self.handle.listTimers())[:1]:
                self.handle.deleteTimer(time_ms)

    def handleExpiredTimer(self, key: tuple[Any, ...], timers: Any, info: Any) -> Iterator[Any]:
        time_ms = info.getExpiryTimeInMs()
        (n,) = self.count.get() or (0,)
        self.count.update((n + 10,))
        if self.chains and n % 3:
            self.handle.registerTimer(time_ms + 1 + n % 5)
        if n > 200:
            self.count.clear()
        yield {
            "k": key[0],
            "what": f"timer {time_ms}",
            "n": n,
            "at": timers.getCurrentWatermarkInMs(),
        }


def parsed(schema: Any) -> pa.Schema:
    assert isinstance(schema, pa.Schema)
    return schema


def operator(of: Any, time: str, manager: PageManager | None = None, rows: str = "rows") -> Process:
    """An operator that runs an object's class."""
    kind = ProcessByClock if time == "processing" else Process
    made: Processor = processor_of(of, RESULT, time, rows, parsed)
    return kind("p", SCHEMA, ["k"], made.opened(), manager=manager)


def process(time: str, manager: PageManager | None = None) -> Process:
    return operator(Watching(time != "none"), time, manager)
