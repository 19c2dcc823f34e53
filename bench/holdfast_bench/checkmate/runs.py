"""The experiments on Spark tasks: throughput, and a run with a failure. [CheckMate §VII]"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.model.ids import NodeId
from holdfast.errors import AdviceError
from holdfast.shell.telemetry import LatencyHistogram
from holdfast_bench import recovery
from holdfast_bench.checkmate.dataflows import (
    PROTOCOLS,
    VICTIMS,
    Paced,
    Recorded,
    protection_of,
)
from holdfast_bench.checkmate.reachability import ADDED_AND_GONE, Changes, reachability
from holdfast_bench.recovery import RecoverySizes
from holdfast_bench.running import BenchFailed, finish, median, recoveries_of, wait_until
from holdfast_bench.throughput import Say, last_written_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from holdfast.api.dataflow import Dataflow
    from holdfast.driver.query import Query

_TIMEOUT_S: Final = 240.0
_FORETOLD_BEFORE_S: Final = 3.0
LARGE_BYTES: Final = 512 << 20
_KEY_BYTES: Final = 45
"""Of a counted key at least."""
_CUTS: Final = 8
_KEPT: Final = 200
"""Of the checkpoints of a run, so many have their times in the report."""
_OPTIONS: Final = {"spark.holdfast.failuresMax": "1000"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        name: For the report.
        tuples: Of each query, of runs as fast as possible.
        repeats: Of these runs.
        throughput_interval_ms: Of checkpoints in these runs: they are short.
        interval_ms: Of checkpoints in runs with a failure. [CheckMate §VI: 5 s]
        rate: Tuples per second in these.
        seconds: Their length.
        fails_at_s: When a node is killed. [CheckMate §VII: second 18]
        workers: Simulated instances.
        simulated_s: Simulated seconds.
        changes: Of links and sources, of the reachability query.
        cyclic_rate: Changes per second in its run with a failure.
        cyclic_repeats: Of its runs as fast as possible.
        kills: Of the node with 10 MB of state, one after the other.
        large_keys: Of the node with a large state.
    """

    name: str
    tuples: dict[str, int]
    repeats: int
    throughput_interval_ms: int
    interval_ms: int
    rate: float
    seconds: float
    fails_at_s: float
    workers: tuple[int, ...]
    simulated_s: float
    changes: int
    cyclic_rate: float
    cyclic_repeats: int
    kills: int
    large_keys: int


FULL: Final = Sizes(
    "full",
    {"q1": 12_000_000, "q3": 3_000_000, "q8": 3_000_000, "q12": 12_000_000},
    10,
    *(500, 5_000, 20_000.0, 45.0, 18.0),
    *((5, 10, 20, 50, 100), 60.0, 1_500_000, 5_000.0, 3),
    kills=20,
    large_keys=11_500_000,
)
QUICK: Final = Sizes(
    "quick",
    {"q1": 400_000, "q3": 100_000, "q8": 100_000, "q12": 400_000},
    1,
    *(200, 500, 4_000.0, 6.0, 2.0),
    *((5,), 10.0, 40_000, 1_000.0, 1),
    kills=2,
    large_keys=200_000,
)


# -- throughput -----------------------------------------------------------------------------------


def throughput(
    spark: SparkSession, query: str, workers: int, sizes: Sizes, say: Say
) -> dict[str, Any]:
    """All protocols in turn, as often as the sizes say; medians, and their share of unprotected.

    Who goes first changes from one repetition to the next. A first run of all is not measured.
    """
    runs: dict[str, list[dict[str, Any]]] = {protocol: [] for protocol in PROTOCOLS}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        inputs = Recorded.write(query, sizes.tuples[query], Path(folder))
        _as_fast_as_possible(spark, inputs, "unprotected", workers, sizes)
        for repeat in range(sizes.repeats):
            at = repeat % len(PROTOCOLS)
            for protocol in (*PROTOCOLS[at:], *PROTOCOLS[:at]):
                run = _as_fast_as_possible(spark, inputs, protocol, workers, sizes)
                runs[protocol].append(run)
                say(f"{query}, {workers}: {protocol} {run['tuples_per_s']:,.0f} tuples/s")
    rates = {p: median(run["tuples_per_s"] for run in found) for p, found in runs.items()}
    bare = rates["unprotected"]
    # Runs side by side are compared: the machine is not the same from minute to minute.
    shares = {
        p: median(
            run["tuples_per_s"] / other["tuples_per_s"]
            for run, other in zip(found, runs["unprotected"], strict=True)
        )
        for p, found in runs.items()
    }
    return {
        "tuples": inputs.tuples,
        "tuples_per_s": {p: round(rate) for p, rate in rates.items()},
        "share": {p: round(rate / bare, 3) for p, rate in rates.items()},
        "share_side_by_side": {p: round(share, 3) for p, share in shares.items()},
        "runs": runs,
    }


def _as_fast_as_possible(
    spark: SparkSession, inputs: Recorded, protocol: str, workers: int, sizes: Sizes
) -> dict[str, Any]:
    def flow(marks: str, partitions: int) -> Dataflow:
        return inputs.flow(marks, partitions=partitions)

    ran = _ran(spark, flow, inputs.query, protocol, workers, sizes)
    if ran.read != inputs.tuples:
        raise BenchFailed(f"{inputs.query}, {protocol}: read {ran.read} of {inputs.tuples}")
    return {**ran.figures, "tuples_per_s": round(ran.read / ran.seconds)}


@dataclass(frozen=True, slots=True)
class _Ran:
    """A run without a failure: rows read and put out, seconds of results, what else was seen."""

    read: int
    results: int
    seconds: float
    figures: dict[str, Any]


def _ran(
    spark: SparkSession,
    flow_of: Callable[[str, int], Dataflow],
    sink: str,
    protocol: str,
    workers: int,
    sizes: Sizes,
) -> _Ran:
    """Run it as fast as it can be: from the first row read to the last result in its sink.

    `flow_of` makes it of the folder in which sources mark their beginning and of their partitions.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        marks = Path(folder) / "marks"
        marks.mkdir()
        running = flow_of(str(marks), min(workers, 2)).start(
            spark,
            checkpointLocation=f"{folder}/run",
            protection=protection_of(protocol, sizes.throughput_interval_ms),
            parallelism=workers,
        )
        cpu_s = finish(running, f"checkmate, {sink}, {protocol}", _TIMEOUT_S)
        began_s = min(int(path.read_text()) for path in marks.rglob("*") if path.is_file()) / 1e9
        seconds = last_written_s(f"{folder}/run", sink) - began_s
        figures = {
            "seconds": round(seconds, 3),
            "cpu_s": round(sum(cpu_s.values()), 2),
            **checkpoints_of(running),
        }
        progress = running.lastProgress
        return _Ran(progress["numInputRows"], progress["numOutputRows"], seconds, figures)


# -- a run with a failure -------------------------------------------------------------------------


@dataclass(slots=True)
class Watch:
    """Latencies of results, second by second; nodes that were replaced begin anew."""

    query: Query
    former: dict[NodeId, LatencyHistogram]

    def second(self) -> dict[str, Any]:
        """Since it was last asked."""
        found = LatencyHistogram()
        for node in self.query.nodes:
            now = self.query.latency(node)
            before = self.former.get(NodeId(node), LatencyHistogram())
            if sum(now.counts.values()) < sum(before.counts.values()):
                before = LatencyHistogram()
            more = now.since(before)
            found.merge(more.counts, more.max_us)
            self.former[NodeId(node)] = now
        return {"results": sum(found.counts.values()), **found.summary()}


def failure(
    spark: SparkSession,
    query: str,
    workers: int,
    sizes: Sizes,
    say: Say,
    *,
    hot_ratio: float = 0.0,
    is_hot_fixed: bool = False,
) -> dict[str, Any]:
    """Each protocol at a steady rate; a node is killed, and latencies are watched."""
    found = {}
    for protocol in PROTOCOLS[1:]:
        paced = Paced(query, sizes.rate, sizes.seconds, hot_ratio, is_hot_fixed)
        flow, origin_s = paced.flow(partitions=min(workers, 2))
        run = failed_run(spark, flow, origin_s, VICTIMS[query], protocol, workers, sizes)
        found[protocol] = run
        say(
            f"{query}, {workers}, {hot_ratio:.0%} hot: {protocol} recovered in "
            f"{run['recovery']['recovered_ms']:g} ms"
        )
    return {"tuples_per_s": sizes.rate, "hot_ratio": hot_ratio, "protocols": found}


def failed_run(
    spark: SparkSession,
    flow: Dataflow,
    origin_s: float,
    victim: str,
    protocol: str,
    workers: int,
    sizes: Sizes,
) -> dict[str, Any]:
    """One run; what it came to, and whether its results are those of the batch twin."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        query = flow.start(
            spark,
            checkpointLocation=folder,
            protection=protection_of(protocol, sizes.interval_ms),
            parallelism=workers,
            options=_OPTIONS,
        )
        try:
            seconds, foretold = _watched(query, origin_s, victim, protocol, sizes)
            finish(query, f"checkmate, {flow.name}, {protocol}", sizes.seconds + _TIMEOUT_S)
        finally:
            query.stop()
        verified = query.verify()
        return {
            "seconds": seconds,
            "recovery": recovery_of(query, victim),
            "predicted": foretold,
            "is_identical": verified.is_identical,
            "unplanned_failures": len(query.failures) - 1,
            "sizes": {"interval_ms": sizes.interval_ms},
            **checkpoints_of(query),
        }


def _watched(
    query: Query, origin_s: float, victim: str, protocol: str, sizes: Sizes
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The latencies of each second; a node is killed when its time has come.

    Shortly before it the adviser is asked what will come.
    """
    watch, seconds, is_killed = Watch(query, {}), [], False
    foretold: dict[str, Any] | None = None
    for second in range(1, int(sizes.seconds) + 1):
        while time.time() < origin_s + second and query.isActive:
            if not is_killed and time.time() >= origin_s + sizes.fails_at_s:
                os.kill(query.pid(victim), signal.SIGKILL)
                is_killed = True
            time.sleep(0.005)  # A second is made of many such looks.
        if not query.isActive:
            break
        seconds.append({"second": second, **watch.second()})
        if foretold is None and second >= sizes.fails_at_s - _FORETOLD_BEFORE_S:
            foretold = predicted(query, victim, protocol)
    if not is_killed:
        raise BenchFailed(f"the query ended before {victim} was to fail")
    wait_until(
        query,
        lambda: not query.isActive or bool(recoveries_of(query, victim)),
        f"the recovery of {victim}",
        _TIMEOUT_S,
    )
    return seconds, foretold


def predicted(query: Query, victim: str, protocol: str) -> dict[str, Any] | None:
    """What the adviser says of a node's unit under a protocol; None: it has no figures yet.

    Milliseconds from the failure until the state is there again, until results come while nothing
    fails, and percent of bytes.
    """
    try:
        advice = query.advise()
    except AdviceError:
        return None
    unit = next(u for u in advice.units if u.measured.unit == victim.partition("[")[0])
    name = type(protection_of(protocol, 1_000)).__name__
    is_unaligned = protocol == "COOR unaligned"
    for option in unit.options:
        if option.approach == name and ("aligned=False" in option.settings) == is_unaligned:
            return {
                "recovery_ms": option.recovery_ms,
                "delay_ms": option.delay_ms,
                "overhead_percent": option.overhead_percent,
            }
    return None


def recovery_of(query: Query, victim: str) -> dict[str, Any]:
    """Of the node that was killed: restart as in the paper, and until everything was as before."""
    names = ("detected_ms", "restarted_ms", "replayed_ms", "recovered_ms", "caught_up_ms")
    found = recoveries_of(query, victim)
    return {name: found[0][name] if found else None for name in names}


def checkpoints_of(query: Query) -> dict[str, Any]:
    """Three times of a checkpoint, how many came to nothing, and what messages had to carry."""
    progress = query.lastProgress
    units = progress["units"].values()
    lines = [unit["line"] for unit in units if unit["line"] is not None]
    rounds = [unit["round"] for unit in units if unit["round"] is not None]
    stored = [c for c in query.checkpoints if c["failure"] is None]
    waited = [line["waitedMs"] for line in lines if line["waitedMs"] is not None]
    sent = sum(unit["sentBytes"]["tuples"] for unit in units)
    notes = sum(
        unit["sentBytes"]["tuples"] * (1 - 1 / unit["line"]["messageOverhead"])
        for unit in units
        if unit["line"] is not None and unit["line"]["messageOverhead"]
    )
    counts = {
        name: sum(line[name] for line in lines)
        for name in ("checkpoints", "forced", "useless", "rolledPast")
    }
    return {
        **counts,
        "standstill_ms": median(c["prepared_us"] / 1000 for c in stored) if stored else None,
        "standstill_max_ms": max((c["prepared_us"] / 1000 for c in stored), default=None),
        "durable_ms": median(c["duration_ms"] for c in stored) if stored else None,
        "durable_all_ms": [c["duration_ms"] for c in stored[:_KEPT]],
        "complete_ms": max((r["roundMs"] for r in rounds), default=max(waited, default=None)),
        "sent_bytes": sent,
        "message_overhead": round(sent / (sent - notes), 4) if sent > notes else None,
    }


# -- many kills -----------------------------------------------------------------------------------


def kills(spark: SparkSession, protocol: str, sizes: Sizes, say: Say) -> dict[str, Any]:
    """One node with 10 MB of state is killed again and again, until its first new result each time.

    Who counts reads a union by arrival, and recovers together with it.
    """
    found = recovery.measure(
        spark,
        RecoverySizes(
            1,
            sizes.kills,
            protection=protection_of(protocol, sizes.interval_ms),
            is_arrival=True,
        ),
    )
    say(f"{protocol}: first output {found['first_output_ms']['median']:,.0f} ms after a kill")
    return {"sizes": {"interval_ms": sizes.interval_ms}, **found}


# -- a large state --------------------------------------------------------------------------------


def standstill(spark: SparkSession, protocol: str, sizes: Sizes, say: Say) -> dict[str, Any]:
    """How long a node with a large state stands still at its cuts."""
    made = RecoverySizes(
        1,
        0,
        keys=sizes.large_keys,
        protection=protection_of(protocol, sizes.throughput_interval_ms),
        is_arrival=True,
    )

    def cuts(query: Query) -> list[Any]:
        of_victim = (c for c in query.checkpoints if c["node"] == recovery.VICTIM)
        stored = [c for c in of_victim if c["failure"] is None]
        largest = max((c["state_bytes"] for c in stored), default=0)
        return [c for c in stored if c["state_bytes"] >= 0.9 * largest]

    def has_enough(query: Query) -> bool:
        large = cuts(query)
        wanted = min(LARGE_BYTES, sizes.large_keys * _KEY_BYTES)
        return len(large) > _CUTS and large[-1]["state_bytes"] >= wanted

    with recovery.counting(spark, made) as running:
        query = running.query
        wait_until(query, lambda: has_enough(query), f"cuts under {protocol}", _TIMEOUT_S)
        large = cuts(query)
    stood_ms = [c["prepared_us"] / 1000 for c in large]
    say(f"{protocol}: stood still for {median(stood_ms):.2f} ms at {len(large)} cuts")
    return {
        "state_bytes": large[-1]["state_bytes"],
        "cuts": len(large),
        "median_ms": median(stood_ms),
        "max_ms": max(stood_ms),
    }


# -- the reachability query -----------------------------------------------------------------------

VICTIM_IN_LOOP: Final = "found[0]"


def cyclic(
    spark: SparkSession, protocol: str, workers: int, sizes: Sizes, say: Say
) -> dict[str, Any]:
    """The reachability query under one protocol: as fast as it can, then with a failure."""
    rates = [_reached(spark, protocol, workers, sizes) for _ in range(sizes.cyclic_repeats)]
    rate = median(run["changes_per_s"] for run in rates)
    say(f"reachability, {workers}: {protocol} {rate:,.0f} changes/s")
    origin_s = time.time() + 4.0
    changes = {
        kind: Changes(
            kind,
            int(sizes.cyclic_rate * sizes.seconds),
            rate=sizes.cyclic_rate,
            origin_us=int(origin_s * 1e6),
        )
        for kind in ADDED_AND_GONE
    }
    flow = reachability(changes, partitions=min(workers, 2))
    failed = failed_run(spark, flow, origin_s, VICTIM_IN_LOOP, protocol, workers, sizes)
    say(f"reachability: {protocol} recovered in {failed['recovery']['recovered_ms']} ms")
    return {
        "changes": sizes.changes,
        "changes_per_s": round(rate),
        "runs": rates,
        "failure_rate": sizes.cyclic_rate,
        "failure": failed,
    }


def _reached(spark: SparkSession, protocol: str, workers: int, sizes: Sizes) -> dict[str, Any]:
    changes = {kind: Changes(kind, sizes.changes) for kind in ADDED_AND_GONE}

    def flow(marks: str, partitions: int) -> Dataflow:
        return reachability(changes, marks, partitions=partitions)

    ran = _ran(spark, flow, "reached", protocol, workers, sizes)
    return {
        **ran.figures,
        "changes_per_s": round(ran.read / ran.seconds),
        "results": ran.results,
    }
