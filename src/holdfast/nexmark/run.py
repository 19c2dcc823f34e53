"""Runs a NexMark query on Spark, with a failure if wanted, and says what happened."""

from __future__ import annotations

import re
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Protection
from holdfast.api.streams import Stream
from holdfast.errors import DataflowError
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import KINDS, build
from holdfast.nexmark.source import NexmarkSource, counts_of, now_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

_START_ALLOWANCE_US = 2_000_000
_KILL = re.compile(r"^([\w.-]+)(\[\d+\])?@(\d+(?:\.\d+)?)s$")


@dataclass(frozen=True, slots=True)
class Kill:
    """A node to be killed with SIGKILL, and when (seconds after the first event)."""

    node: str
    at_s: float

    @staticmethod
    def parse(text: str) -> Kill:
        """From `counts@8s` or `counts[1]@8s`. Raises `DataflowError` on anything else."""
        match = _KILL.match(text)
        if match is None:
            raise DataflowError(f"--kill {text!r}: write unit@seconds, e.g. counts@8s")
        return Kill(match[1] + (match[2] or "[0]"), float(match[3]))


@dataclass(frozen=True, slots=True)
class NexmarkRun:
    """What to run.

    Attributes:
        query: `q1`, `q3`, `q8`, `q12`.
        events: NexMark events of all kinds; a query reads only its kinds.
        rate: Tuples per second over the kinds that the query reads; None for as fast as possible.
        parallelism: Instances of every unit.
        protection: What a failure may cost.
        emit: For q12, `final` or `changes`.
        seed: Of the generator.
        hot_ratio: Share of events that refer to a hot item.
        origin_us: When the first event happens; by default soon. A query that is to go on at a
            location where it was killed needs the one it had.
        speed: How much faster event time runs than the clock.
    """

    query: str
    events: int
    rate: float | None
    parallelism: int
    protection: Protection
    emit: str = "final"
    seed: int = 1
    hot_ratio: float = 0.0
    origin_us: int | None = None
    speed: float = 1.0

    def flow(self) -> tuple[Dataflow, int]:
        """The dataflow over generated events, and when its first event happens (us)."""
        counts = counts_of(self.events)
        read = sum(counts[kind] for kind in KINDS[self.query])
        event_rate = 10_000
        if self.rate is not None:
            event_rate = max(1, int(self.rate * self.events / read / self.speed))
        config = NexmarkConfig(
            seed=self.seed, events_per_second=event_rate, hot_ratio=self.hot_ratio
        )
        origin_us = self.origin_us or now_us() + _START_ALLOWANCE_US

        def source(flow: Dataflow, kind: str) -> Stream:
            rate = None if self.rate is None else self.rate * counts[kind] / read
            generator = NexmarkSource(kind, counts[kind], config, rate, origin_us)
            unit = "ingest" if len(KINDS[self.query]) == 1 else f"{kind}s"
            return flow.source_generator(
                generator, name=f"{kind}s", unit=unit, partitions=self.parallelism
            )

        return build(self.query, source, emit=self.emit), origin_us


def run_nexmark(
    spark: SparkSession,
    run: NexmarkRun,
    *,
    kills: list[Kill],
    verify: bool,
    location: str | None = None,
) -> dict[str, Any]:
    """Run to the end and report; the keys are those of `holdfast nexmark --json`."""
    with tempfile.TemporaryDirectory(prefix="holdfast-nexmark-") as folder:
        where = location or folder
        flow, origin_us = run.flow()
        started = time.time()
        query = flow.start(
            spark,
            checkpointLocation=where,
            protection=run.protection,
            parallelism=run.parallelism,
        )
        known = set(query.nodes)
        try:
            for kill in kills:
                if kill.node not in known:
                    raise DataflowError(f"no node {kill.node!r}; there are {', '.join(known)}")
            _carry_out(query, kills, origin_us / 1e6 if run.rate else started)
            query.awaitTermination()
        finally:
            query.stop()
        seconds = time.time() - max(started, origin_us / 1e6 if run.rate else started)
        return _report(query, seconds, verify=verify)


def _carry_out(query: Query, kills: list[Kill], origin_s: float) -> None:
    for kill in sorted(kills, key=lambda k: k.at_s):
        while query.isActive and (time.time() < origin_s + kill.at_s or not query.nodes[kill.node]):
            time.sleep(0.005)
        if query.isActive:
            query.kill(kill.node)


def _report(query: Query, seconds: float, *, verify: bool) -> dict[str, Any]:
    progress = query.lastProgress
    outcome = query.verify() if verify else None
    return {
        "verified": None if outcome is None else outcome.is_identical,
        "input_tuples": progress["numInputRows"],
        "output_tuples": outcome.actual if outcome else progress["numOutputRows"],
        "duplicates": None if outcome is None else outcome.doubled,
        "lost": None if outcome is None else outcome.lost,
        "throughput_tps": round(progress["numInputRows"] / seconds, 1),
        "latency_ms": progress["latencyMs"],
        "failures": query.recoveries or query.failures,
    }
