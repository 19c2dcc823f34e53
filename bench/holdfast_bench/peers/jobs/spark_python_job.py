"""Structured Streaming with the state in a Python operator: `transformWithStateInPandas`.

Documentation: a `StatefulProcessor` per query, state in RocksDB, timers in event time to put out
and to forget what a window holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from spark_job import run

COUNT = "window_start TIMESTAMP, window_end TIMESTAMP, bidder BIGINT, bids BIGINT"
MATCH = "name STRING, city STRING, state STRING, id BIGINT"
PLACED = "window_start TIMESTAMP, window_end TIMESTAMP, id BIGINT, name STRING, auction BIGINT"
_WINDOW_MS = 10_000


class Counts(StatefulProcessor):
    """Bids per window of one bidder; put out when the window's timer fires."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._bids = handle.getMapState("bids", "start BIGINT", "n BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Any:
        for frame in rows:
            starts_ms = frame["date_time"].astype("datetime64[ms]").astype("int64")
            found = (starts_ms // _WINDOW_MS * _WINDOW_MS).value_counts()
            for start, bids in zip(found.index.tolist(), found.tolist(), strict=True):
                before = self._bids.getValue((start,))
                if before is None:
                    self._handle.registerTimer(start + _WINDOW_MS)
                self._bids.updateValue((start,), ((before[0] if before else 0) + bids,))
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        end = expiredTimerInfo.getExpiryTimeInMs()
        start = end - _WINDOW_MS
        (bids,) = self._bids.getValue((start,))
        self._bids.removeKey((start,))
        times = pd.to_datetime([start, end], unit="ms")
        row = {"window_start": [times[0]], "window_end": [times[1]], "bidder": [key[0]]}
        yield pd.DataFrame(row | {"bids": [bids]})

    def close(self) -> None:
        """Nothing to free."""


class Matches(StatefulProcessor):
    """A person and its auctions, in whatever order they come."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._person = handle.getValueState("person", "name STRING, city STRING, state STRING")
        self._auctions = handle.getListState("auctions", "auction BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Any:
        person, is_new, auctions = self._person.get(), False, []
        for frame in rows:
            auctions += [int(a) for a in frame["auction"].dropna()]
            for row in frame[frame["name"].notna()].itertuples():
                person, is_new = (row.name, row.city, row.state), True
        if is_new:
            self._person.update(person)
            auctions += [a for (a,) in self._auctions.get()]
            self._auctions.clear()
        if person is None:
            self._auctions.appendList([(a,) for a in auctions])
        elif auctions:
            name, city, state = person
            yield pd.DataFrame({"name": name, "city": city, "state": state, "id": auctions})

    def close(self) -> None:
        """Nothing to free."""


class PlacedMatches(Matches):
    """The same within one window, forgotten when it is over; the key holds the window."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timers: Any) -> Any:
        person, start = key
        start_ms = int(pd.Timestamp(start).timestamp() * 1000)
        self._handle.registerTimer(start_ms + _WINDOW_MS)
        times = pd.to_datetime([start_ms, start_ms + _WINDOW_MS], unit="ms")
        for matched in super().handleInputRows(key, rows, timers):
            yield pd.DataFrame(
                {
                    "window_start": times[0],
                    "window_end": times[1],
                    "id": person,
                    "name": matched["name"],
                    "auction": matched["id"],
                }
            )

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        self._person.clear()
        self._auctions.clear()
        return iter([])


def build(query: str, frames: dict[str, Any]) -> Any:
    """A query whose state is in Python."""
    frames = {kind: frame.withWatermark("date_time", "0 seconds") for kind, frame in frames.items()}
    if query == "q12":
        grouped = frames["bid"].select("bidder", "date_time").groupBy("bidder")
        return grouped.transformWithStateInPandas(Counts(), COUNT, "Append", "EventTime")
    persons, auctions = frames["person"], frames["auction"]
    if query == "q3":
        persons = persons.where("state IN ('OR', 'ID', 'CA')")
        auctions = auctions.where("category = 10")
    both = persons.selectExpr(
        "id AS person", "name", "city", "state", "CAST(NULL AS BIGINT) AS auction", "date_time"
    ).unionByName(
        auctions.selectExpr("seller AS person", "id AS auction", "date_time"),
        allowMissingColumns=True,
    )
    if query == "q3":
        grouped = both.drop("date_time").groupBy("person")
        return grouped.transformWithStateInPandas(Matches(), MATCH, "Append", "None")
    placed = both.withColumn("start", F.window("date_time", "10 seconds").start)
    grouped = placed.groupBy("person", "start")
    return grouped.transformWithStateInPandas(PlacedMatches(), PLACED, "Append", "EventTime")


if __name__ == "__main__":
    run(build)
