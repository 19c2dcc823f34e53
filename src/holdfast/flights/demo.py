"""The demo: a year of departures, replayed, with a node killed in the middle.

If an airport is silenced, results come without it, as tentative, and are corrected when it is back.

Spark reads and cleans the CSV files and hands four streams to Holdfast; what comes out is a Spark
DataFrame again, compared with Spark SQL over the same input.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.api.protections import Replicated, UpstreamBackup
from holdfast.flights.dataflow import WEATHER, build
from holdfast.flights.silence import DELAY, Silence, Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.dataflow import Dataflow
    from holdfast.api.streams import Stream
    from holdfast.driver.query import Query
    from holdfast.driver.verification import Verification

YEAR_S = 365 * 86_400
KILLED = "conditions[0]"


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo shows at its end.

    Attributes:
        summary: The keys of `holdfast demo --json`.
        carriers: The worst carriers, as rows.
        weather: The worst weather, as rows.
        corrected: Days whose results were tentative first, as rows; empty: no airport was silent.
    """

    summary: dict[str, Any]
    carriers: list[dict[str, Any]]
    weather: list[dict[str, Any]]
    corrected: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_identical(self) -> bool:
        """Whether every sink equals its batch twin."""
        return bool(self.summary["identical"])


def demo_flow(
    flights: DataFrame, weather: DataFrame, speed: float | None, silence: Silence | None = None
) -> Dataflow:
    """The demo's dataflow over DataFrames.

    Args:
        flights: As `load.flights` gives them.
        weather: As `load.weather` gives it.
        speed: Seconds of 2013 per second; None for as fast as possible.
        silence: Of an airport; None: all speak.
    """

    def source(flow: Dataflow, name: str) -> Stream:
        if name == WEATHER:
            return flow.source(weather, name=name, time="hour", speed=speed)
        departures = flights.where(flights.origin == name.upper())
        return flow.source(
            departures,
            name=name,
            time="scheduled",
            unit="departures",
            speed=speed,
            silent=silence.of(name) if silence else None,
        )

    return build(source)


class Demo:
    """One run of the demo; `watch` it while it runs."""

    def __init__(
        self, spark: SparkSession, location: str, seconds: float, silence: Silence | None = None
    ) -> None:
        """Start the dataflow; it replays the year in about `seconds`, perhaps with a silence."""
        from holdfast.flights.load import airlines, flights, weather

        self._spark = spark
        self._started_s = time.time()
        self._kill_after_s = seconds * (0.75 if silence else 0.5)
        self._silence = silence
        raw = os.path.join(location, "raw")
        self._airlines = airlines(spark, raw)
        # Parsed once, before the replay begins: else airports whose rows come from a busy machine
        # seconds later than those of the silent one would not be at work while it is silent.
        departures, observed = flights(spark, raw).cache(), weather(spark, raw).cache()
        self._inputs = (departures, observed)
        for frame in self._inputs:
            frame.count()
        flow = demo_flow(departures, observed, YEAR_S / seconds, silence)
        protection = UpstreamBackup() if silence is None else Replicated(delay=DELAY)
        self.query: Query = flow.start(spark, checkpointLocation=location, protection=protection)
        self._watch = None if silence is None else Watch(spark, self.query, location)
        self.killed_at_s: float | None = None  # wall-clock time
        self._input_began_s: float | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.time() - self._started_s

    def watch(self) -> dict[str, Any]:
        """The present progress; kills the node when half of the year has passed."""
        progress = self.query.lastProgress
        if self._watch is not None:
            self._watch.take(progress)
        now_s = time.time()
        if self._input_began_s is None and progress["numInputRows"]:
            self._input_began_s = now_s
        began = self._input_began_s
        is_due = began is not None and now_s - began > self._kill_after_s
        if self.killed_at_s is None and is_due and self.query.nodes[KILLED]:
            self.query.kill(KILLED)
            self.killed_at_s = now_s
        return progress

    @property
    def days(self) -> list[dict[str, Any]]:
        """The newest days that are known, with `_type`; empty if no airport falls silent."""
        return [] if self._watch is None else self._watch.days

    def stop(self) -> None:
        """End the query, and what looks at it."""
        if self._watch is not None:
            self._watch.stop()
        self.query.stop()
        for frame in self._inputs:
            frame.unpersist()

    def finish(self) -> DemoResult:
        """Wait for the end, compare with Spark SQL, ask the closing questions."""
        self.query.awaitTermination()
        watch = self._watch
        if watch is not None:
            watch.stop()
        seconds = time.time() - (self._input_began_s or self._started_s)
        progress = self.query.lastProgress
        types = "stable" if watch is None else "all"
        checks = [self.query.verify(sink, types=types) for sink in ("conditions", "delays")]
        departures = self.query.to_dataframe("conditions")
        cancelled = departures.where("dep_delay IS NULL").count()
        counts = {"flights": departures.count(), "cancelled": cancelled}
        summary = {**_summary(progress, checks, seconds, self.killed_at_s), **counts}
        if watch is not None and self._silence is not None:
            summary["silence"] = _silence_of(self._silence, watch, progress, checks)
        return DemoResult(
            summary,
            _rows(self._worst_carriers()),
            _rows(self._worst_weather()),
            [] if watch is None else watch.corrected_days(),
        )

    def _worst_carriers(self) -> DataFrame:
        self.query.to_dataframe("delays").createOrReplaceTempView("holdfast_delays")
        self._airlines.createOrReplaceTempView("airlines")
        return self._spark.sql(
            """SELECT max(name) AS carrier, CAST(sum(departures) AS BIGINT) AS departures,
                      round(sum(mean_delay * departures) / sum(departures), 1) AS mean_delay_min,
                      max(max_delay) AS max_delay_min,
                      round(100 * sum(share_late * departures) / sum(departures), 1) AS late_percent
               FROM holdfast_delays JOIN airlines USING (carrier)
               GROUP BY carrier ORDER BY mean_delay_min DESC LIMIT 5"""
        )

    def _worst_weather(self) -> DataFrame:
        self.query.to_dataframe("conditions").createOrReplaceTempView("holdfast_conditions")
        return self._spark.sql(
            """SELECT CASE WHEN visib < 2 THEN 'fog' WHEN precip > 0.05 THEN 'rain'
                           WHEN wind_speed > 20 THEN 'wind' ELSE 'fair' END AS weather,
                      count(*) AS departures, round(avg(dep_delay), 1) AS mean_delay_min
               FROM holdfast_conditions WHERE dep_delay IS NOT NULL AND visib IS NOT NULL
               GROUP BY 1 ORDER BY mean_delay_min DESC"""
        )


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.collect()]


def _summary(
    progress: dict[str, Any],
    checks: list[Verification],
    seconds: float,
    killed_at_s: float | None,
) -> dict[str, Any]:
    return {
        "identical": all(check.is_identical for check in checks),
        "input_tuples": progress["numInputRows"],
        "output_tuples": sum(check.actual for check in checks),
        "lost": sum(check.lost for check in checks),
        "duplicates": sum(check.doubled for check in checks),
        "gaps": sum(check.gaps for check in checks),
        "late_tuples": progress["lateRows"],
        "seconds": round(seconds, 2),
        "throughput_tps": round(progress["numInputRows"] / seconds, 1),
        "latency_ms": progress["latencyMs"],
        "killed": KILLED,
        "timeline": _timeline(progress["recoveries"], killed_at_s),
        "failures": progress["recoveries"],
    }


def _silence_of(
    silence: Silence, watch: Watch, progress: dict[str, Any], checks: list[Verification]
) -> dict[str, Any]:
    """What the silence came to; times in milliseconds since the first unit went on without it."""
    units = [block["consistency"] for block in progress["units"].values()]
    counts = [check.corrections for check in checks if check.corrections is not None]
    began_s = watch.events[0][0] if watch.events else 0.0
    return {
        "airport": silence.airport,
        "seconds": silence.length_s,
        "bound": DELAY,
        "waited_ms_max": max((unit["delayMaxMs"] or 0 for unit in units), default=0),
        "waited_for_correction_ms_max": max(
            (unit["correctionDelayMaxMs"] or 0 for unit in units), default=0
        ),
        "tentative_rows": sum(count.tentative for count in counts),
        "undone_rows": sum(count.undone for count in counts),
        "events": [
            {"ms": round((at_s - began_s) * 1e3), "event": event} for at_s, event in watch.events
        ],
    }


def _timeline(recoveries: list[dict[str, Any]], killed_at_s: float | None) -> list[dict[str, Any]]:
    """What happened when, in milliseconds since the kill; empty if nothing was killed."""
    if killed_at_s is None:
        return []
    of_node = (recovery for recovery in recoveries if recovery["node"] == KILLED)
    # It may have been taken for dead before, on a machine that stood still.
    recovery = next((r for r in of_node if r["recovered_unix_s"] >= killed_at_s), None)
    if recovery is None:
        return []
    last_sign_s = recovery["recovered_unix_s"] - recovery["recovered_ms"] / 1e3
    detected = (last_sign_s - killed_at_s) * 1e3 + recovery["detected_ms"]
    started = detected + recovery["restarted_ms"]
    replayed = started + recovery["replayed_ms"]
    first = (recovery["recovered_unix_s"] - killed_at_s) * 1e3
    events = [
        (0.0, f"{KILLED} is killed with SIGKILL"),
        (detected, "the coordinator takes it for lost and fences it"),
        (started, "its replacement says hello and gets its restart point"),
        (replayed, f"its state is rebuilt, {recovery['replayed_tuples']:,} tuples replayed"),
        (first, "its first new output"),
    ]
    if recovery["caught_up_ms"] is not None:
        caught_up = (last_sign_s - killed_at_s) * 1e3 + recovery["caught_up_ms"]
        events.append((caught_up, "results are as prompt as before"))
    return [{"ms": max(0, round(ms)), "event": event} for ms, event in events]
