"""Recovery: SIGKILL of the node that holds 10 MB of state, until its first new output.

The driver kills, follows the sink's log, and takes the time until the first tuple that a later
incarnation has written, and until results are as prompt again as before. Afterwards the whole log
is compared with what arithmetic says it must be, tuple by tuple and in order: a count too many or
too few, a gap or a repeat would show.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Protection, UpstreamBackup
from holdfast.api.windows import tumbling
from holdfast.core.model.ids import NodeId
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.shell.storage.paths import stream_path
from holdfast.shell.storage.stream_log import StreamLogReader
from holdfast_bench.preloaded import WINDOW, PreloadedBids, expected_counts
from holdfast_bench.running import (
    finish,
    median,
    node_statistic,
    recoveries_of,
    wait_until,
    write_whole,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

STATE_BYTES = 10_000_000
FEEDER = "ingest"
VICTIM = "counts[0]"
_TIMEOUT_S = 60.0
_SETTLE_S = 0.6
_END_AHEAD_S = 2.0
_CATCH_UP_S = 15.0  # Who is not back by then counts as not back.
_MORE_THAN_ANY_TAKES = 20_000_000.0
_MAXIMUM_S = 3.0
_OPTIONS = {"spark.holdfast.failuresMax": "1000"}


@dataclass(frozen=True, slots=True)
class RecoverySizes:
    """How often to kill.

    Attributes:
        runs: Queries, one after the other.
        kills: SIGKILLs per query.
        keys: Bidders, each with a count in the victim's state.
        rate: Tuples per second while it goes on.
        protection: Of the victim.
        options: Of the query.
        is_arrival: Whether the victim reads a unit that takes its input as it comes, and recovers
            together with it.
    """

    runs: int
    kills: int
    keys: int = 200_000
    rate: float = 10_000.0
    protection: Protection = field(default_factory=UpstreamBackup)
    options: dict[str, str] = field(default_factory=dict)
    is_arrival: bool = False

    @property
    def is_precise(self) -> bool:
        """Whether all output is as if nothing had failed."""
        return self.protection.guarantee == Guarantee.PRECISE.value


class SinkFollower:
    """Follows a sink's only log and keeps what it says."""

    def __init__(self, path: str) -> None:
        """The log need not exist yet."""
        self._reader = StreamLogReader(path)
        self.incarnation = 0
        self.next_id = 0
        self._gap_at: int | None = None
        self.bidders: list[np.ndarray] = []
        self.counts: list[np.ndarray] = []

    def poll(self) -> None:
        """Take what is there."""
        for logged in self._reader.poll():
            if logged.first_id != self.next_id and self._gap_at is None:
                self._gap_at = self.next_id
            self.next_id = logged.first_id + logged.count
            self.incarnation = max(self.incarnation, logged.incarnation)
            self.bidders.append(logged.batch.column("bidder").to_numpy())
            self.counts.append(logged.batch.column("bids").to_numpy())

    def difference(self, bidders: np.ndarray, counts: np.ndarray) -> str | None:
        """The first way in which the log is not these tuples in this order; None if it is."""
        if self._gap_at is not None:
            return f"ids do not go on after {self._gap_at}"
        if self.next_id != len(bidders):
            return f"{self.next_id} tuples, not {len(bidders)}"
        found = np.concatenate(self.bidders), np.concatenate(self.counts)
        wrong = np.flatnonzero((found[0] != bidders) | (found[1] != counts))
        if not len(wrong):
            return None
        at = int(wrong[0])
        return (
            f"{len(wrong)} tuples differ; tuple {at} is bidder {found[0][at]}, count "
            f"{found[1][at]}, not {bidders[at]}, {counts[at]}"
        )

    @property
    def has_ended(self) -> bool:
        """Whether the end has been read."""
        return self._reader.ended


def measure(spark: SparkSession, sizes: RecoverySizes) -> dict[str, Any]:
    """All kills, with detection, restart and replay as the query reports them."""
    runs = [_run(spark, sizes) for _ in range(sizes.runs)]
    kills = [kill for run in runs for kill in run["kills"]]
    parts = ("detected_ms", "restarted_ms", "replayed_ms", "recovered_ms")
    return {
        "keys": sizes.keys,
        "tuples_per_s": sizes.rate,
        "kills": kills,
        "first_output_ms": {
            "median": median(kill["first_output_ms"] for kill in kills),
            "p99": _p99([kill["first_output_ms"] for kill in kills]),
            "max": max(kill["first_output_ms"] for kill in kills),
        },
        "reported_median_ms": {part: median(kill[part] for kill in kills) for part in parts},
        "catch_up": catch_up_of(kills),
        "state_bytes_min": min(kill["state_bytes"] for kill in kills),
        "is_identical": all(run["is_identical"] for run in runs),
        "runs": [{k: v for k, v in run.items() if k != "kills"} for run in runs],
    }


def catch_up_of(recoveries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """For how long failures were felt, as the query reports its recoveries.

    Returns:
        `median_ms` and `max_ms` from the last sign of life until results were as prompt as before,
        `ratio`, the median of that to the time until the first new output, all None if nothing
        came back; and `back` of `of`: after how many recoveries it did.
    """
    found = list(recoveries)
    back = [each for each in found if each["caught_up_ms"] is not None]
    times = [each["caught_up_ms"] for each in back]
    ratios = [each["caught_up_ms"] / max(1, each["recovered_ms"]) for each in back]
    return {
        "median_ms": median(times) if times else None,
        "max_ms": max(times, default=None),
        "ratio": round(median(ratios), 2) if ratios else None,
        "back": len(back),
        "of": len(found),
    }


def said_of_catch_up(found: dict[str, Any]) -> tuple[str, str]:
    """The median in ms, and the multiple of the first output, for tables; how many if not all."""
    if found["median_ms"] is None:
        return "not back", "–"
    most = "" if found["back"] == found["of"] else f" ({found['back']} of {found['of']})"
    return f"{found['median_ms']:,.0f}{most}", f"{found['ratio']:.2f}"


def at_half(spark: SparkSession, sizes: RecoverySizes) -> dict[str, Any]:
    """Kills at half of the most that the query takes, which is measured first."""
    most = most_per_s(spark, sizes)
    found = measure(spark, replace(sizes, rate=float(round(most / 2))))
    return {"most_tuples_per_s": round(most), **found}


def most_per_s(spark: SparkSession, sizes: RecoverySizes) -> float:
    """Tuples per second that the sink gets, if there is always more input than it takes."""
    with counting(spark, replace(sizes, rate=_MORE_THAN_ANY_TAKES)) as running:
        running.wait_until_ready("before the maximum is measured")
        sink = running.sink
        first_id, began_s = sink.next_id, time.monotonic()

        def is_over() -> bool:
            sink.poll()
            return time.monotonic() > began_s + _MAXIMUM_S

        wait_until(running.query, is_over, "the maximum", _TIMEOUT_S, every_s=0.02)
        return (sink.next_id - first_id) / (time.monotonic() - began_s)


@dataclass(frozen=True, slots=True)
class Counting:
    """A running query that counts bids per bidder; its victim is the node that counts."""

    query: Query
    sink: SinkFollower
    source: PreloadedBids
    sizes: RecoverySizes

    def wait_until_ready(self, what: str) -> None:
        """Until the node holds its state, goes on, and all its replicas are ready."""

        def is_ready() -> bool:
            self.sink.poll()
            victim = self.query.status["nodes"][NodeId(VICTIM)]
            is_going_on = self.sink.next_id > self.sizes.keys and victim["state"] == "running"
            if not (is_going_on and all(replica["is_ready"] for replica in victim["replicas"])):
                return False
            wanted = STATE_BYTES if self.sizes.is_precise else 0
            return node_statistic(self.query, VICTIM, "state_bytes") >= wanted

        settled_s = time.monotonic() + _SETTLE_S
        # The statistics of the victim before must not be taken for those of its replacement.
        wait_until(
            self.query,
            lambda: time.monotonic() > settled_s and is_ready(),
            f"{STATE_BYTES} bytes of state {what}",
            _TIMEOUT_S,
        )

    def end(self) -> dict[str, Any]:
        """Have the input end; what came out, beside what must."""
        # Ahead of what the node may have made before it sees the file.
        total = self.source.due()[0] + int(_END_AHEAD_S * self.sizes.rate)
        write_whole(self.source.end_path, str(total))
        finish(self.query, "counting", _TIMEOUT_S)
        while not self.sink.has_ended:
            self.sink.poll()
        difference = None
        if self.sizes.is_precise:
            difference = self.sink.difference(*expected_counts(self.source, total))
        return {"tuples": total, "is_identical": difference is None, "difference": difference}


@contextlib.contextmanager
def counting(spark: SparkSession, sizes: RecoverySizes) -> Iterator[Counting]:
    """The query while it runs.

    This process watches, and the coordinator lives in it: what is there when the query begins is
    left out of Python's garbage collection, which else stops both for 0.1 s now and then.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        origin_us = int((time.time() + 2) * 1e6)
        source = PreloadedBids(sizes.keys, sizes.rate, origin_us, str(Path(folder) / "end"))
        flow = Dataflow("recovery")
        bids = flow.source_generator(source, name="bids", unit=FEEDER)
        if sizes.is_arrival:
            # Nothing comes from the other one, so that what comes out is known, and its order.
            ended = Path(folder) / "ended"
            ended.write_text("0")
            nothing = replace(source, keys=0, end_path=str(ended))
            bids = bids.union(flow.source_generator(nothing, name="nothing"), order="arrival")
        counted = bids.key_by("bidder").window(tumbling(WINDOW))
        counted.aggregate("count(*) AS bids", name="counts", emit="changes").sink("counts")
        query = flow.start(
            spark,
            checkpointLocation=f"{folder}/run",
            protection=sizes.protection if sizes.is_arrival else {"counts": sizes.protection},
            options={**_OPTIONS, **sizes.options},
        )
        gc.collect()
        gc.freeze()
        try:
            sink = SinkFollower(stream_path(f"{folder}/run", "counts", 0))
            yield Counting(query, sink, source, sizes)
        finally:
            gc.unfreeze()
            query.stop()


def _run(spark: SparkSession, sizes: RecoverySizes) -> dict[str, Any]:
    with counting(spark, sizes) as running:
        kills = [_kill(running, number) for number in range(sizes.kills)]
        ended = running.end()
        unplanned = len(running.query.failures) - sizes.kills
    return {"kills": kills, **ended, "unplanned_failures": unplanned}


def _kill(running: Counting, number: int) -> dict[str, Any]:
    """Kill the victim once it holds its state and goes on; the time to the first later output."""
    running.wait_until_ready(f"before kill {number + 1}")
    query, sink = running.query, running.sink
    state_bytes = node_statistic(query, VICTIM, "state_bytes")
    sink.poll()
    before, reported = sink.incarnation, len(recoveries_of(query, VICTIM))
    killed_s = time.monotonic()
    os.kill(query.pid(VICTIM), signal.SIGKILL)

    def has_new_output() -> bool:
        sink.poll()
        return sink.incarnation > before

    wait_until(query, has_new_output, f"recovery: output after kill {number + 1}", _TIMEOUT_S)
    first_output_ms = round((time.monotonic() - killed_s) * 1000, 1)
    wait_until(
        query,
        lambda: len(recoveries_of(query, VICTIM)) > reported,
        f"recovery: the report of kill {number + 1}",
        _TIMEOUT_S,
    )
    _await_catch_up(running, reported)
    recovery = recoveries_of(query, VICTIM)[reported]
    return {"first_output_ms": first_output_ms, "state_bytes": state_bytes, **recovery}


def _await_catch_up(running: Counting, number: int) -> None:
    """Until results are as prompt as before the failure, or too long has passed."""
    until_s = time.monotonic() + _CATCH_UP_S

    def is_over() -> bool:
        running.sink.poll()
        is_back = recoveries_of(running.query, VICTIM)[number]["caught_up_ms"] is not None
        return is_back or time.monotonic() > until_s

    wait_until(running.query, is_over, "catch-up", _TIMEOUT_S, every_s=0.02)


def _p99(times_ms: list[float]) -> float:
    """The 99th percentile: of fewer than a hundred, the greatest but so many as that leaves out."""
    return sorted(times_ms)[min(len(times_ms) - 1, int(0.99 * len(times_ms)))]
