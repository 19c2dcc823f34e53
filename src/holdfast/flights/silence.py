"""The demo's silent airport: what is told of it while it lasts, and what came of it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import OptionError
from holdfast.flights.dataflow import AIRPORTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.driver.query import Query

DELAY: Final = "1 second"
"""The demo's bound: nothing waits longer for the airport."""
_DAYS_SHOWN: Final = 6
_LOOK_S: Final = 1.0
_SINK: Final = "delays"


@dataclass(frozen=True, slots=True)
class Silence:
    """One airport's feed gives nothing for a while.

    Attributes:
        airport: One of `AIRPORTS`.
        after_s: From so many seconds after the start on.
        length_s: For so long.
    """

    airport: str
    after_s: float
    length_s: float

    def __post_init__(self) -> None:
        """Raises `OptionError` if there is no such airport, or nothing would be seen."""
        if self.airport not in AIRPORTS:
            raise OptionError(f"no airport {self.airport!r}; there are {', '.join(AIRPORTS)}")
        if self.length_s <= 0:
            raise OptionError(f"a silence of {self.length_s} seconds; it is longer than nothing")

    def of(self, source: str) -> tuple[str, str] | None:
        """When a source falls silent, and for how long; None: it does not."""
        if source != self.airport:
            return None
        return (
            f"{int(1000 * self.after_s)} milliseconds",
            f"{int(1000 * self.length_s)} milliseconds",
        )


class Watch:
    """Looks at the states of units whenever it is shown progress, and at the newest days meanwhile.

    Attributes:
        events: Wall-clock times, and what happened then.
        days: The newest days that are known, oldest first.
    """

    def __init__(self, spark: SparkSession, query: Query, location: str) -> None:
        """Begin to look; `stop` ends it."""
        self._spark = spark
        self._query = query
        self._location = location
        self._states: dict[str, str] = {}
        self.events: list[tuple[float, str]] = []
        self.days: list[dict[str, Any]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="demo-days", daemon=True)
        self._thread.start()

    def take(self, progress: dict[str, Any]) -> None:
        """Note which units have come into another state."""
        for unit, block in progress["units"].items():
            said = block["consistency"]
            if said["undoneRows"] is None:  # A node of it says nothing: it is being replaced.
                continue
            before = self._states.get(unit, "stable")
            self._states[unit] = said["state"]
            if said["state"] == before or "stable" not in (said["state"], before):
                continue
            at_s = time.time() - (said["sinceMs"] or 0) / 1e3
            self.events.append((at_s, _change_of(unit, said)))

    def _look(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            unit = self._query.lastProgress["units"][_SINK]
            if self._query.isActive and unit["numOutputRows"]:
                self.days = [row.asDict() for row in self._newest_days().collect()][::-1]

    def _newest_days(self) -> DataFrame:
        reader = self._spark.read.format("holdfast").option("stream", _SINK)
        rows = reader.option("types", "current").load(self._location)
        return _by_day(rows, "_type").orderBy("day", ascending=False).limit(_DAYS_SHOWN)

    def stop(self) -> None:
        """Look no more."""
        self._is_over.set()
        self._thread.join()

    def corrected_days(self) -> list[dict[str, Any]]:
        """Some days that were tentative first: what was said, and what is right."""
        reader = self._spark.read.format("holdfast").option("stream", _SINK)
        rows = reader.option("types", "all").load(self._location).cache()
        first = (
            rows.where("_type = 'tentative'")
            .groupBy("window_start", "carrier")
            .agg({"departures": "max", "_missing": "max", "_share": "min"})
        )
        names = ("departures", "_missing", "_share")
        aggregates = ("max(departures)", "max(_missing)", "min(_share)")
        for name, aggregate in zip(names, aggregates, strict=True):
            first = first.withColumnRenamed(aggregate, name)
        said = _by_day(first, "_missing", "_share")
        right = _by_day(rows.where("_type = 'stable'")).withColumnRenamed("departures", "right")
        return [
            {
                "day": str(row["day"]),
                "tentative departures": row["departures"],
                "without": row["_missing"],
                "share": row["_share"],
                "right": row["right"],
            }
            for row in said.join(right, "day").orderBy("day").limit(_DAYS_SHOWN).collect()
        ]


def _by_day(rows: DataFrame, *also: str) -> DataFrame:
    """Departures of all carriers, per day."""
    days = rows.selectExpr("CAST(window_start AS DATE) AS day", "departures", *also)
    return (
        days.groupBy("day", *also)
        .sum("departures")
        .withColumnRenamed("sum(departures)", "departures")
    )


def _change_of(unit: str, said: dict[str, Any]) -> str:
    if said["state"] == "stable":
        undone = said["undoneRows"]  # In the feeds of its sinks: a unit without one has none.
        return f"{unit}: corrected" + (f"; {undone:,} tentative rows were undone" if undone else "")
    return (
        f"{unit}: goes on without {', '.join(said['missing']) or 'what is missing'}, as tentative"
    )
