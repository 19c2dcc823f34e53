"""Real runs under seeded faults: NexMark on Spark tasks, killed, stopped and cut off.

A seed draws the query, its parallelism and a plan of faults. Timing is the machine's own, so that
a seed is an intent and not a replay; what must hold is the same as in the simulator, as far as it
can be seen from outside.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import KINDS as NEXMARK
from holdfast.nexmark.queries import build
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast.shell.spark.launch import Cluster
from holdfast.sim.draw import Draw
from holdfast_chaos.promises import (
    ARRIVAL,
    BY_ARRIVAL,
    CORRECTED,
    EVENTUAL,
    LOOP,
    SIDE_BY_SIDE,
    STANDBYS,
    draw_protection,
    protection_named,
    violations_of,
)
from holdfast_chaos.proxy import Proxy
from holdfast_chaos.tap import Tap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

SILENCE: Final = "silence"
"""A source gives nothing for a while; of units that go on without it."""
KINDS: Final = {
    "kill": "SIGKILL to a node",
    "kill-all": "SIGKILL to all nodes",
    "pause": "SIGSTOP to a node, SIGCONT after a while",
    "tear": "a node's connections break in the middle of a frame",
    "cut": "a node, or the coordinator, cannot be connected to for a while",
    "hold": "all bytes to and from a node, or the coordinator, are held back for a while",
}
_DRAWN: Final = (*NEXMARK, ARRIVAL)
SOURCES: Final = {
    **NEXMARK,
    ARRIVAL: ("bid",),
    **{name: NEXMARK[query] * 2 for name, query in BY_ARRIVAL.items()},
    LOOP: ("bid", "bid"),
}
"""The kind of events of each source that a query reads."""
_RATE: Final = 10_000.0
_SECONDS: Final = 2.5
_OTHER_SEED: Final = 1 << 20
"""Of the second source of a kind, beyond the first one's."""
_STRUCK_SHARE: Final = 0.85
"""Of the input that may flow before all faults have struck, so that they meet a running query."""
_ALLOWANCE_S: Final = 1.5
_TIMEOUT_S: Final = 400.0
_OPTIONS: Final = {"spark.holdfast.failuresMax": "1000"}


@dataclass(frozen=True, slots=True)
class RealFault:
    """One fault: its kind, seconds after the first input, which target, how many seconds."""

    kind: str
    at_s: float
    pick: int
    length_s: float


@dataclass(frozen=True, slots=True)
class RealRun:
    """What a seed runs."""

    seed: int
    query: str
    emit: str
    parallelism: int
    faults: tuple[RealFault, ...]
    protection: str = "upstream backup"


@dataclass(slots=True)
class RealOutcome:
    """How it went.

    Attributes:
        run: What ran.
        violations: Invariants that did not hold, and what was seen.
        recovered_ms: From the last sign of life to the first new output, per recovery.
        failures: How many losses of nodes were detected.
        output_tuples: Tuples in the sink.
        struck: The kinds of faults that had a target.
        killed: The nodes that were sent SIGKILL, with the process ids that they had.
        checkpoints: How many checkpoints were stored.
    """

    run: RealRun
    violations: list[str] = field(default_factory=list)
    recovered_ms: list[int] = field(default_factory=list)
    failures: int = 0
    output_tuples: int = 0
    struck: list[str] = field(default_factory=list)
    killed: list[tuple[str, int]] = field(default_factory=list)
    checkpoints: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def draw_run(seed: int) -> RealRun:
    """The run of a seed: one to four faults, some right after another."""
    draw = Draw(f"{seed}/real")
    query = draw.one_of(_DRAWN)
    faults = draw_faults(draw)
    emit = draw.one_of(("final", "changes")) if query == "q12" else "final"
    protection = draw_protection(seed, query)
    if protection == EVENTUAL:
        emit = "final"  # Windows that put out every change close without a result.
    if protection in CORRECTED:
        faults += _draw_silences(seed)
    parallelism = draw.number(1, 1 if protection in (*STANDBYS, SIDE_BY_SIDE) else 2)
    return RealRun(seed, query, emit, parallelism, tuple(faults), protection)


def draw_faults(draw: Draw) -> list[RealFault]:
    """One to four, some right after another."""
    faults: list[RealFault] = []
    at_s = 0.0
    for _ in range(draw.number(1, 4)):
        at_s += draw.number(50, 900) / 1_000
        if draw.percent(25) and faults:
            at_s = faults[-1].at_s + draw.number(5, 400) / 1_000
        kind = draw.one_of(("kill", "kill", "kill", "pause", "tear", "cut", "hold", "kill-all"))
        faults.append(
            RealFault(kind, round(at_s, 3), draw.number(0, 1 << 30), draw.number(20, 1_200) / 1e3)
        )
    return faults


def _draw_silences(seed: int) -> list[RealFault]:
    """One or two sources fall silent, for less than the bound or for more."""
    draw = Draw(f"{seed}/real/silences")
    return [
        RealFault(SILENCE, at_ms / 1e3, draw.number(0, 1 << 30), draw.number(100, 1_500) / 1e3)
        for at_ms in (draw.number(50, 1_500) for _ in range(draw.number(1, 2)))
    ]


def warm_up(spark: SparkSession) -> None:
    """Start the session's first nodes, which takes seconds, so that faults meet running queries."""
    execute(spark, RealRun(0, "q12", "final", 2, ()))


def execute(
    spark: SparkSession, run: RealRun, before: Callable[[str, RealOutcome], int] | None = None
) -> RealOutcome:
    """Run it and check it. Leaves nothing running and nothing stopped.

    Args:
        spark: Runs it.
        run: What.
        before: Called with the run's folder: an earlier driver may have begun the query there. It
            says when the first event comes, microseconds since the epoch.
    """
    outcome = RealOutcome(run)
    proxy = Proxy()
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-real-") as folder, routed(proxy):
            origin_us = first_event_us() if before is None else before(folder, outcome)
            tap = tap_of(run, folder)
            flow, location = flow_of(run, origin_us, tap), location_in(folder)
            query = start(spark, run, flow, location)
            try:
                _strike_all(query, proxy, outcome, tap)
                query.awaitTermination(_TIMEOUT_S)
                twin = flow.to_dataframe(spark, checkpointLocation=location)
                outcome.violations += violations_of(query, twin, run.protection)
                _check(query, outcome)
            except Exception as error:  # A failed query is what we look for, whatever it says.
                outcome.violations.append(f"I-LIVE: {type(error).__name__}: {error}")
            finally:
                query.stop()
    finally:
        proxy.close()
    return outcome


def first_event_us() -> int:
    """When the first event of a run that begins now comes, microseconds since the epoch."""
    return now_us() + int(_ALLOWANCE_S * 1e6)


def tap_of(run: RealRun, folder: str) -> Tap:
    """The tap of a run in its folder; what must flow before all has been struck may flow."""
    return Tap(os.path.join(folder, "tap"), flows_at_first(run))


def flows_at_first(run: RealRun) -> int:
    """How many events of each source flow before all has been struck."""
    return int(_STRUCK_SHARE * _events(run))


def location_in(folder: str) -> str:
    """The checkpoint location of the run in a folder."""
    return os.path.join(folder, "location")


def start(spark: SparkSession, run: RealRun, flow: Dataflow, location: str) -> Query:
    """Start it, or go on."""
    return flow.start(
        spark,
        checkpointLocation=location,
        protection=protection_named(run.protection),
        parallelism=run.parallelism,
        options=_OPTIONS,
    )


@contextlib.contextmanager
def routed(proxy: Proxy) -> Iterator[None]:
    """All connections of queries started within the block go through the proxy."""
    # The one seam: queries make their clusters themselves. A static method is kept as it is only
    # in the class's dictionary, and is replaced nowhere else.
    former = Cluster.__dict__["route"]
    Cluster.route = staticmethod(proxy.route)  # type: ignore[method-assign]
    try:
        yield
    finally:
        Cluster.route = former  # type: ignore[method-assign]


def _events(run: RealRun) -> int:
    """How many each source has."""
    return int(_RATE * _SECONDS / len(SOURCES[run.query]))


def flow_of(run: RealRun, origin_us: int, tap: Tap) -> Dataflow:
    """The dataflow of a run over its sources, as far as the tap lets them."""
    rate = _RATE / len(SOURCES[run.query])

    def source(flow: Dataflow, kind: str, other: str = "") -> Stream:
        # Event time runs ahead of the clock, so that windows close while the run lasts.
        config = NexmarkConfig(
            seed=run.seed + 1 + bool(other) * _OTHER_SEED,
            events_per_second=500 if kind == "bid" else 30_000,
            hot_ratio=0.2,
        )
        generator = NexmarkSource(kind, _events(run), config, rate, origin_us)
        name = f"{kind}s{other}"
        return flow.source_generator(
            tap.on(generator), name=name, unit=name, partitions=run.parallelism
        )

    def both(flow: Dataflow, kind: str) -> Stream:
        return source(flow, kind).union(source(flow, kind, "-2"), order="arrival")

    if run.query == ARRIVAL:
        return _united(source)
    if run.query == LOOP:
        flow = Dataflow(LOOP)
        in_a_circle(source(flow, "bid"), source(flow, "bid", "-2"), unit="further").sink(LOOP)
        return flow
    if run.query in BY_ARRIVAL:
        return build(BY_ARRIVAL[run.query], both, emit=run.emit)
    return build(run.query, source, emit=run.emit)


def _united(source: Callable[..., Stream]) -> Dataflow:
    """Bids in two currencies, as they come."""
    flow = Dataflow(ARRIVAL)
    bids = source(flow, "bid")
    euros = bids.select("bidder", "date_time", "price * 0.908 AS price")
    pounds = bids.select("bidder", "date_time", "price * 0.999 AS price")
    euros.union(pounds, order="arrival").sink(ARRIVAL)
    return flow


def in_a_circle(bids: Stream, others: Stream, unit: str) -> Stream:
    """From an auction to who bid on it, and to what else these people bid on, twice over.

    Args:
        bids: Links between auctions and people.
        others: Some of them say where to begin.
        unit: Of what goes round.
    """
    links = bids.filter("price % 7 = 0")
    links = links.select("auction % 20000 AS source", "bidder % 20000 AS target")
    starts = others.filter("price % 50 = 0")
    reach = starts.select("auction % 20000 AS node", "0L AS hops").loop("reach")
    found = links.join(
        reach,
        on=[("source", "node")],
        select=["left.target AS node", "right.hops AS hops"],
        name="found",
    )
    further = found.unit(unit).filter("hops < 2").select("node", "hops + 1L AS hops")
    reach.close(further)
    return further


def _strike_all(query: Query, proxy: Proxy, outcome: RealOutcome, tap: Tap) -> None:
    stopped: dict[int, float] = {}  # pid: when to continue it
    began_s = first_input_s(query)

    def has_struck(fault: RealFault) -> bool:
        if fault.kind == SILENCE:
            return tap.silence(fault.pick, time.time() + fault.length_s)
        return strike(query, proxy, fault, stopped, outcome)

    with continued(stopped) as wait_until:
        for fault in sorted(outcome.run.faults, key=lambda f: f.at_s):
            wait_until(began_s + fault.at_s)
            deadline_s = time.monotonic() + _TIMEOUT_S
            while query.isActive and time.monotonic() < deadline_s:
                if has_struck(fault):
                    outcome.struck.append(fault.kind)
                    break
                wait_until(time.time() + 0.02)  # All whom it could strike are being replaced.
        tap.open()
        deadline_s = time.monotonic() + _TIMEOUT_S
        while query.isActive and time.monotonic() < deadline_s:
            wait_until(time.time() + 0.02)
        if query.isActive:
            outcome.violations.append(f"I-LIVE: still running after {_TIMEOUT_S} s")


@contextlib.contextmanager
def continued(stopped: dict[int, float]) -> Iterator[Callable[[float], None]]:
    """Waits until a wall-clock time, and continues stopped processes when theirs has come.

    Args:
        stopped: Process ids, and when to continue them; whoever is left is continued at the end.
    """
    try:
        yield lambda wall_s: _wait_until(wall_s, stopped)
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def first_input_s(query: Query) -> float:
    """Wait for the first input; the wall-clock time then.

    An earlier driver may have read all that flows before something is struck: sources count that.
    """
    deadline_s = time.monotonic() + _TIMEOUT_S
    while query.isActive and time.monotonic() < deadline_s:
        progress = query.lastProgress
        if any(each["numInputRows"] for each in (progress, *progress["sources"])):
            break
        time.sleep(0.01)
    return time.time()


def _wait_until(wall_s: float, stopped: dict[int, float]) -> None:
    """Sleep, and continue stopped processes when their time has come."""
    while True:
        now_s = time.time()
        for pid in [pid for pid, until_s in stopped.items() if until_s <= now_s]:
            del stopped[pid]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if now_s >= wall_s:
            return
        time.sleep(min(0.01, wall_s - now_s))


def strike(
    query: Query,
    proxy: Proxy,
    fault: RealFault,
    stopped: dict[int, float],
    outcome: RealOutcome,
) -> bool:
    """Strike nodes or connections; whether there was a target. What was killed is noted."""
    nodes = [(node, pid) for node, pid in query.nodes.items() if pid is not None]
    if fault.kind in ("kill", "kill-all", "pause"):
        if not nodes:
            return False
        victims = nodes if fault.kind == "kill-all" else [nodes[fault.pick % len(nodes)]]
        sign = signal.SIGSTOP if fault.kind == "pause" else signal.SIGKILL
        for node, pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
                if fault.kind == "pause":
                    stopped[pid] = time.time() + fault.length_s
                else:
                    outcome.killed.append((node, pid))
        return True
    number = fault.pick % proxy.count
    if fault.kind == "tear":
        proxy.tear(number)
    elif fault.kind == "cut":
        proxy.cut(number, fault.length_s)
    else:
        proxy.hold(number, fault.length_s)
    return True


def incarnations_astray(failures: Iterable[Mapping[str, Any]], *, has_two: bool) -> list[str]:
    """Failures of incarnations that had failed or been replaced before.

    Args:
        failures: As `query.failures` has them, in the order in which they were noticed.
        has_two: Whether nodes have two replicas, each an incarnation. Either may fail first.
    """
    astray: list[str] = []
    failed: dict[str, list[int]] = {}
    for failure in failures:
        before = failed.setdefault(failure["node"], [])
        incarnation = failure["incarnation"]
        if incarnation in before or (not has_two and incarnation < max(before, default=0)):
            astray.append(f"I-INC: {failure}")
        before.append(incarnation)
    return astray


def _check(query: Query, outcome: RealOutcome) -> None:
    outcome.output_tuples = query.to_dataframe().count()
    if not outcome.output_tuples:
        outcome.violations.append("I-LIVE: the sink is empty")
    has_two = outcome.run.protection in STANDBYS
    outcome.violations += incarnations_astray(query.failures, has_two=has_two)
    outcome.failures = len(query.failures)
    outcome.checkpoints = sum(c["failure"] is None for c in query.checkpoints)
    outcome.violations += [f"I-STORE: {damage}" for damage in query.damaged_checkpoints]
    outcome.recovered_ms = [recovery["recovered_ms"] for recovery in query.recoveries]
    reported = {failure["node"] for failure in query.failures}
    outcome.violations += [
        f"I-COUNT: {node} was killed and no failure of it was reported"
        for node in sorted({node for node, _ in outcome.killed} - reported)
    ]


@dataclass(slots=True)
class RealSummary:
    """What several real runs came to."""

    outcomes: list[RealOutcome] = field(default_factory=list)
    real_s: float = 0.0

    @property
    def violations(self) -> list[tuple[int, str]]:
        """Seeds and what they violated."""
        return [(o.run.seed, text) for o in self.outcomes for text in o.violations]

    def to_json(self) -> dict[str, Any]:
        """For `holdfast simulate --real --json`."""
        struck = Counter(kind for outcome in self.outcomes for kind in outcome.struck)
        recovered = sorted(ms for outcome in self.outcomes for ms in outcome.recovered_ms)
        middle = statistics.median_high(recovered) if recovered else None
        return {
            "runs": len(self.outcomes),
            "faults_injected": dict(sorted(struck.items())),
            "faults": struck.total(),
            "failures_detected": sum(outcome.failures for outcome in self.outcomes),
            "recovered_ms": {"median": middle, "max": recovered[-1] if recovered else None},
            "output_tuples": sum(outcome.output_tuples for outcome in self.outcomes),
            "protections": dict(Counter(outcome.run.protection for outcome in self.outcomes)),
            "checkpoints": sum(outcome.checkpoints for outcome in self.outcomes),
            "real_seconds": round(self.real_s, 1),
            "violations": [{"seed": seed, "text": text} for seed, text in self.violations],
        }


def execute_seed(spark: SparkSession, seed: int) -> RealOutcome:
    """The run of a seed."""
    return execute(spark, draw_run(seed))


def execute_all(
    spark: SparkSession,
    seeds: Iterable[int],
    say: Callable[[RealOutcome], None],
    run_seed: Callable[[SparkSession, int], RealOutcome] = execute_seed,
) -> RealSummary:
    """Run the seeds one after the other."""
    summary = RealSummary()
    warm_up(spark)
    started_s = time.monotonic()
    for seed in seeds:
        outcome = run_seed(spark, seed)
        summary.outcomes.append(outcome)
        say(outcome)
    summary.real_s = time.monotonic() - started_s
    return summary
