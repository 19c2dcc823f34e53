"""Units that go on without missing input, measured. [DPC §5]

Experiments on Spark tasks: three sources go into one unit that merges them. One falls silent, and
comes back. Somebody outside follows the sink's log and the feed beside it, and compares a tuple's
time, when it was due, with when it is there. `redo`, `standstill` and `overhead` run a node in this
process, without Spark, so that one thing at a time can be timed (dpc_redo.py).
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import holdfast as hf
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.shell.storage.paths import feed_path, stream_path
from holdfast.shell.storage.stream_log import StreamLogReader
from holdfast_bench.dpc_redo import overhead, redo, standstill
from holdfast_bench.dpc_runs import real_runs
from holdfast_bench.running import finish, median, node_statistic, wait_until
from holdfast_bench.silenced import Silenced
from holdfast_bench.spine import bench_session, machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.api.protections import Protection
    from holdfast.driver.query import Query

Say = Callable[[str], None]
Points = list[dict[str, Any]]
EXPERIMENTS: Final = (
    *(
        "bound",
        "waits",
        "modes",
        "chain",
        "crash",
        "interval",
        "cost",
        "redo",
        "standstill",
        "overhead",
        "runs",
    ),
)
ON_SPARK: Final = EXPERIMENTS[:7]
COMBINATIONS: Final = tuple(
    f"{during} & {then}"
    for during in ("process", "delay")
    for then in ("process", "delay", "suspend")
)
"""What is done with new tuples in a failure, and while it is corrected. [DPC §5.1]"""
_OF_CHAIN: Final = ("process & process", "delay & delay", "process & suspend")
_CHAINS: Final = ("once", "each")
"""Whether a chain waits once, or each of its nodes by itself: the paper's scheme."""
_NAMED_BY: Final = {
    "modes": ("combination", "silent_s"),
    "chain": ("combination", "chain", "nodes"),
    "runs": ("seed",),
}
"""By experiment what tells its points apart: some of them may be measured again."""
_ORDER: Final = (*COMBINATIONS, *_CHAINS)
_SOURCES: Final = ("a", "b", "c")
_LEAD_S: Final = 1.5
_SETTLE_S: Final = 1.0
_TIMEOUT_S: Final = 120.0
_LOOK_S: Final = 0.001
_HELD_US: Final = 400_000
"""When a source falls silent, tuples of the last interval between boundaries still wait for it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        name: For the report.
        rate: Tuples per second, all sources together, of `bound`, `waits` and `modes`.
        bounds_ms: X of `bound`, with alpha 0.9.
        waits_ms: αX of `waits`.
        failure_s: How long a source is silent, of `waits`.
        failures_s: The same of `modes`.
        mode_wait_ms: αX of `modes`.
        chain: Nodes, at most.
        chain_failure_s: How long a source is silent, of `chain`.
        repeats: Of each interval, of `interval`.
        crashes: Of a replica.
        intervals_ms: Between boundaries, of `interval`.
        seconds: Of each run without failure.
        state: Tuples that the state goes back to, of `redo`.
        redo: Tuples to process again.
        state_bytes: Of `standstill`.
        runs: Seeds, of `runs`.
    """

    name: str
    rate: int
    bounds_ms: tuple[int, ...]
    waits_ms: tuple[int, ...]
    failure_s: float
    failures_s: tuple[float, ...]
    mode_wait_ms: int
    chain: int
    chain_failure_s: float
    repeats: int
    crashes: int
    intervals_ms: tuple[int, ...]
    seconds: float
    state: tuple[int, ...]
    redo: tuple[int, ...]
    state_bytes: int
    runs: int


QUICK: Final = Sizes(
    name="quick",
    rate=3_000,
    bounds_ms=(100,),
    waits_ms=(500,),
    failure_s=1.0,
    failures_s=(1.0,),
    mode_wait_ms=300,
    chain=2,
    chain_failure_s=1.5,
    repeats=1,
    crashes=2,
    intervals_ms=(10,),
    seconds=2.0,
    state=(500, 4_000),
    redo=(15_000,),
    state_bytes=32 << 20,
    runs=1,
)
FULL: Final = Sizes(
    name="full",
    rate=3_000,
    bounds_ms=(100, 300, 1_000, 6_000),
    waits_ms=(500, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000),
    failure_s=5.0,
    failures_s=(2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 15.0, 30.0, 45.0, 60.0),
    mode_wait_ms=2_700,
    chain=4,
    chain_failure_s=15.0,
    repeats=3,
    crashes=20,
    intervals_ms=(10, 50, 100, 150, 200, 300),
    seconds=8.0,
    state=(500, 4_000, 40_000, 400_000),
    redo=(15_000, 150_000, 1_500_000, 10_000_000),
    state_bytes=512 << 20,
    runs=100,
)
_SLOTS: Final = len(_SOURCES) + 2 * FULL.chain + 1
"""Of the longest chain: its sources, two replicas of each unit, the sink."""


def run(
    sizes: Sizes,
    say: Say,
    *,
    only: tuple[str, ...] = EXPERIMENTS,
    combinations: tuple[str, ...] = COMBINATIONS,
    seeds: range | None = None,
) -> dict[str, Any]:
    """Measure; by experiment a list of points, fit for JSON, beside `machine` and `sizes`.

    Args:
        sizes: How much.
        say: Takes a line on each point.
        only: These of `EXPERIMENTS`.
        combinations: These of `COMBINATIONS`, of `modes` and `chain`.
        seeds: Of `runs`; None: so many as the sizes say.
    """
    began_s = time.monotonic()
    results: dict[str, Any] = {"machine": machine(), "size": sizes.name, "sizes": asdict(sizes)}
    results["measured"] = {}
    if set(only) & set(ON_SPARK):
        with bench_session("dpc", _SLOTS) as spark:
            for name in [each for each in ON_SPARK if each in only]:
                say(f"dpc: {name}")
                if name in _OF_COMBINATIONS:
                    results[name] = _OF_COMBINATIONS[name](spark, sizes, combinations, say)
                else:
                    results[name] = _EXPERIMENTS[name](spark, sizes, say)
                results["measured"][name] = _how(sizes)
    others: dict[str, Callable[[], Points]] = {
        "redo": lambda: redo(sizes.state, sizes.redo, say),
        "standstill": lambda: standstill(sizes.state_bytes, say),
        "overhead": lambda: overhead(sizes.redo[-1] // 5, say),
        "runs": lambda: real_runs(range(sizes.runs) if seeds is None else seeds, say),
    }
    for here, measure in others.items():
        if here in only:
            say(f"dpc: {here}")
            results[here] = measure()
            results["measured"][here] = _how(sizes)
    results["seconds"] = round(time.monotonic() - began_s, 1)
    return results


def merged(former: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """What was measured before, with what is new; points that were not measured again stay."""
    found = former | results
    found["measured"] = former.get("measured", {}) | results["measured"]
    for name, keys in _NAMED_BY.items():
        if name in former and name in results:
            # Before there was another scheme, chains waited once.
            had = [p if "chain" in p else {"chain": _CHAINS[0], **p} for p in former[name]]
            had = had if "chain" in keys else former[name]
            points = {tuple(p[key] for key in keys): p for p in (*had, *results[name])}
            found[name] = [points[key] for key in sorted(points, key=_place)]
    return found


def _place(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """Of a point in the report: combinations in the paper's order, all else by number."""
    return tuple(_ORDER.index(each) if isinstance(each, str) else each for each in key)


def _how(sizes: Sizes) -> dict[str, Any]:
    """The size, code and load of one experiment: each may be repeated alone."""
    about = machine()
    return {"size": sizes.name, "commit": about["commit"], "load": round(os.getloadavg()[0], 1)}


# -- from outside ---------------------------------------------------------------------------------


class Outside:
    """Follows a sink and its feed in a thread; how late tuples are that are newer than all before.

    Tuples that come as a correction are older than what stood before them, and do not count: the
    paper's Delay_new.
    """

    def __init__(self, location: str) -> None:
        """Follow the first partitions of the sink `out` at a location."""
        self._readers = [
            StreamLogReader(stream_path(location, "out", 0)),
            StreamLogReader(feed_path(location, "out", 0)),
        ]
        self._newest_us = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.stable = self.tentative = 0
        self.delays_ms: list[tuple[int, float]] = []
        """Per record, the time of its oldest new tuple in microseconds, and how late it was."""

    def __enter__(self) -> Outside:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; what is there by then has been read."""
        self._is_over.set()
        self._thread.join()
        for reader in self._readers:
            reader.close()

    def _follow(self) -> None:
        while True:
            is_last = self._is_over.is_set()
            if not sum(self._look(number) for number in (0, 1)):
                if is_last:
                    return
                time.sleep(_LOOK_S)  # Leaves the cores to what is measured.

    def _look(self, number: int) -> int:
        found = self._readers[number].poll()
        now_us = time.time() * 1e6
        for logged in found:
            rows = logged.batch
            if number:
                rows = rows.filter(rows.column("n").is_valid())  # Not undo and rec_done.
                self.tentative += rows.num_rows
            else:
                self.stable += rows.num_rows
            times = rows.column(TIME_COLUMN).to_numpy()
            new = times[times > self._newest_us]
            if len(new):
                self._newest_us = int(new.max())
                self.delays_ms.append((int(new.min()), (now_us - int(new.min())) / 1000))
        return len(found)

    def longest_ms(self, from_us: int, to_us: int) -> float:
        """Of tuples that were due between two times; 0: there were none."""
        between = (late for at_us, late in self.delays_ms if from_us <= at_us < to_us)
        return round(max(between, default=0.0), 1)


def _flow(sources: list[Silenced], nodes: int) -> hf.Dataflow:
    """Three sources into the first of so many nodes behind each other; the last has the sink."""
    flow = hf.Dataflow("dpc")
    streams = [flow.source_generator(each, name=each.name) for each in sources]
    stream = streams[0].unit("merged").union(streams[1], streams[2])
    for number in range(1, nodes):
        stream = stream.unit(f"behind{number}").filter("key >= 0")
    stream.sink("out")
    return flow


@dataclass(frozen=True, slots=True)
class Failure:
    """One run.

    Attributes:
        protection: Of all units.
        rate: Tuples per second, all sources together.
        silent_s: How long one source is silent.
        nodes: Behind each other.
        interval_ms: Between boundaries.
        after_s: How long the others go on behind that.
    """

    protection: Protection
    rate: int
    silent_s: float
    nodes: int = 1
    interval_ms: int = 10
    after_s: float = 1.5


def _fail(spark: SparkSession, failure: Failure) -> dict[str, Any]:
    """Silence a source, and let it come back; what was seen from outside, and what was reported."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        origin_us = int((time.time() + _LEAD_S) * 1e6)
        rate, interval_us = failure.rate // len(_SOURCES), failure.interval_ms * 1000
        sources = [Silenced(name, rate, 100, origin_us, folder, interval_us) for name in _SOURCES]
        location = f"{folder}/run"
        query = _flow(sources, failure.nodes).start(
            spark, checkpointLocation=location, protection=failure.protection
        )
        try:
            wait_until(query, lambda: _outputs(query) > 0, "dpc: the first output", _TIMEOUT_S)
            with Outside(location) as outside:
                from_us = int((time.time() + _SETTLE_S) * 1e6)
                to_us = from_us + int(failure.silent_s * 1e6)
                end_us = to_us + int(failure.after_s * 1e6)
                if failure.silent_s:
                    sources[0].silence(from_us, to_us)
                sources[0].end(end_us)
                finish(query, "dpc", failure.silent_s + _TIMEOUT_S)
            blocks = query.lastProgress["units"].values()
            span_us = from_us - _HELD_US, end_us
            return _seen(query, outside, span_us, [b["consistency"] for b in blocks])
        finally:
            query.stop()


def _outputs(query: Query) -> int:
    return query.lastProgress["numOutputRows"] if query.lastProgress else 0


def _seen(
    query: Query, outside: Outside, span_us: tuple[int, int], units: list[dict[str, Any]]
) -> dict[str, Any]:
    said = [unit for unit in units if unit["delayMaxMs"] is not None]
    return {
        "delay_new_ms": outside.longest_ms(*span_us),
        "p50_ms": median(late for _, late in outside.delays_ms),
        "mean_ms": round(statistics.fmean(late for _, late in outside.delays_ms), 2),
        "tentative": outside.tentative,
        "stable": outside.stable,
        "waited_ms": max((unit["delayMaxMs"] for unit in said), default=0),
        "stabilization_ms": max((unit["stabilizationMs"] for unit in said), default=0),
        "is_identical": query.verify().is_identical,
    }


def _waits_ms(bound_ms: int, **settings: Any) -> hf.Replicated:
    """A protection whose input waits for so long, and no longer."""
    return hf.Replicated(delay=f"{bound_ms} milliseconds", alpha=1.0, **settings)


# -- experiments ----------------------------------------------------------------------------------


def _bound(spark: SparkSession, sizes: Sizes, say: Say) -> Points:
    """The greatest delay by X, in a failure of three times that; and one of half αX."""
    points: Points = []
    for bound_ms in sizes.bounds_ms:
        for part in (3.0, 0.45):
            protection = hf.Replicated(delay=f"{bound_ms} milliseconds", alpha=0.9)
            silent_s = part * bound_ms / 1000
            found = _fail(spark, Failure(protection, sizes.rate, silent_s))
            points.append({"x_ms": bound_ms, "silent_s": round(silent_s, 3), **found})
            said = f"X {bound_ms} ms, silent {silent_s:g} s"
            say(f"{said}: {found['delay_new_ms']:g} ms, {found['tentative']} tentative")
    return points


def _waits(spark: SparkSession, sizes: Sizes, say: Say) -> Points:
    """Process and delay by αX, one failure."""
    points: Points = []
    for wait_ms in sizes.waits_ms:
        for mode in ("process", "delay"):
            protection = _waits_ms(wait_ms, during_failure=mode)
            found = _fail(spark, Failure(protection, sizes.rate, sizes.failure_s))
            points.append({"mode": mode, "wait_ms": wait_ms, **found})
            said = f"{found['delay_new_ms']:g} ms, {found['tentative']} tentative"
            say(f"{mode}, waits {wait_ms} ms: {said}")
    return points


def _combined(wait_ms: int, combination: str, chain: str = _CHAINS[0]) -> hf.Replicated:
    """Two replicas, of which one serves while the other one corrects, unless both suspend."""
    during, _, then = combination.partition(" & ")
    modes = {"during_failure": during, "during_stabilization": then, "chain": chain}
    return _waits_ms(wait_ms, replicas=2, **modes)


def _modes(spark: SparkSession, sizes: Sizes, combinations: tuple[str, ...], say: Say) -> Points:
    """The six combinations, with two replicas, by how long the failure lasts."""
    points: Points = []
    for combination in combinations:
        for silent_s in sizes.failures_s:
            protection = _combined(sizes.mode_wait_ms, combination)
            found = _fail(spark, Failure(protection, sizes.rate * 3 // 2, silent_s))
            points.append({"combination": combination, "silent_s": silent_s, **found})
            said = f"{found['delay_new_ms']:g} ms, {found['tentative']} tentative"
            say(f"{combination}, {silent_s:g} s: {said}")
    return points


def _chain(spark: SparkSession, sizes: Sizes, combinations: tuple[str, ...], say: Say) -> Points:
    """By how many nodes stand behind each other, in both schemes."""
    points: Points = []
    for combination in (each for each in _OF_CHAIN if each in combinations):
        for chain in _CHAINS:
            for nodes in range(1, sizes.chain + 1):
                protection = _combined(sizes.mode_wait_ms, combination, chain)
                found = _fail(spark, Failure(protection, 1_000, sizes.chain_failure_s, nodes))
                points.append({"combination": combination, "chain": chain, "nodes": nodes, **found})
                said = f"{found['delay_new_ms']:g} ms, {found['tentative']} tentative"
                say(f"{combination}, waits {chain}, {nodes} nodes: {said}")
    return points


def _crash(spark: SparkSession, sizes: Sizes, say: Say) -> Points:
    """One of two replicas that merge is killed, again and again; the sink reads the other one.

    A reader goes over after three keep-alives; nodes are taken for dead after as long as ever.
    """
    return [
        point for keep_alive_ms in (100, 30) for point in _crashes(spark, sizes, keep_alive_ms, say)
    ]


def _crashes(spark: SparkSession, sizes: Sizes, keep_alive_ms: int, say: Say) -> Points:
    points: Points = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        origin_us = int((time.time() + _LEAD_S) * 1e6)
        sources = [Silenced(n, sizes.rate // 3, 100, origin_us, folder) for n in _SOURCES]
        location = f"{folder}/run"
        query = _flow(sources, 1).start(
            spark,
            checkpointLocation=location,
            protection=hf.Replicated(replicas=2, delay="2 seconds"),
            options={
                "spark.holdfast.failuresMax": "1000",
                "spark.holdfast.keepAliveMs": str(keep_alive_ms),
                "spark.holdfast.keepAliveMisses": str(300 // keep_alive_ms),
            },
        )
        try:
            wait_until(query, lambda: _outputs(query) > 0, "dpc: the first output", _TIMEOUT_S)
            with Outside(location) as outside:
                for number in range(sizes.crashes):
                    points.append(_kill(query, outside, number))
                    said = f"{points[-1]['pause_ms']:g} ms"
                    say(f"keep-alives every {keep_alive_ms} ms, crash {number + 1}: {said}")
                sources[0].end(int((time.time() + _SETTLE_S) * 1e6))
                finish(query, "dpc: crash", _TIMEOUT_S)
            is_identical = query.verify().is_identical
        finally:
            query.stop()
    about = {"keep_alive_ms": keep_alive_ms, "is_identical": is_identical}
    return [{**about, **point, "tentative": outside.tentative} for point in points]


def _kill(query: Query, outside: Outside, number: int) -> dict[str, Any]:
    """Kill the replica whose turn it is, and wait until it is back and has settled."""
    node = ("merged[0]", "merged[0]+1")[number % 2]
    time.sleep(_SETTLE_S)  # The rate before the kill is the usual one.
    from_us = int(time.time() * 1e6)
    os.kill(query.pid(node), signal.SIGKILL)
    what = f"dpc: recovery {number + 1}"
    wait_until(query, lambda: len(query.recoveries) > number, what, _TIMEOUT_S)
    wait_until(query, lambda: node_statistic(query, node, "input_tuples") > 0, what, _TIMEOUT_S)
    time.sleep(_SETTLE_S)  # What follows the recovery belongs to it.
    pause_ms = outside.longest_ms(from_us - _HELD_US, int(time.time() * 1e6))
    return {"node": node, "pause_ms": pause_ms}


def _interval(spark: SparkSession, sizes: Sizes, say: Say) -> Points:
    """The latency that putting streams in order costs, by how often sources promise."""
    points: Points = []
    for interval_ms in sizes.intervals_ms:
        failure = Failure(_waits_ms(5_000), 3_000, 0.0, 1, interval_ms, sizes.seconds)
        runs = [_fail(spark, failure) for _ in range(sizes.repeats)]
        means = [found["mean_ms"] for found in runs]
        spread_ms = round(statistics.stdev(means), 2) if len(means) > 1 else None
        told = {"mean_ms": round(statistics.fmean(means), 2), "spread_ms": spread_ms}
        points.append({"interval_ms": interval_ms, "runs": len(runs), **runs[-1], **told})
        say(f"boundaries every {interval_ms} ms: {told['mean_ms']:.1f} ms on average")
    return points


def _cost(spark: SparkSession, sizes: Sizes, say: Say) -> Points:
    """Latency without failure beside upstream backup, at 10,000 tuples/s."""
    points: Points = []
    for name, protection in (
        ("UpstreamBackup", hf.UpstreamBackup()),
        ("Replicated", hf.Replicated()),
        ("Replicated(replicas=2)", hf.Replicated(replicas=2)),
    ):
        found = _fail(spark, Failure(protection, 10_000, 0.0, after_s=sizes.seconds))
        points.append({"protection": name, **found})
        say(f"{name}: {found['p50_ms']:.1f} ms in the median")
    return points


_EXPERIMENTS: Final[dict[str, Callable[[SparkSession, Sizes, Say], Points]]] = {
    "bound": _bound,
    "waits": _waits,
    "crash": _crash,
    "interval": _interval,
    "cost": _cost,
}
_OF_COMBINATIONS: Final[
    dict[str, Callable[[SparkSession, Sizes, tuple[str, ...], Say], Points]]
] = {"modes": _modes, "chain": _chain}
