"""Real runs of replicated units, by seed: silent sources, lost replicas, killed drivers. [DPC]

Two or three sources are united, and counted in windows, by replicated units with settings that the
seed draws. What the sink must hold is known row by row; its feed must be runs, each undone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import holdfast as hf
from holdfast.core.model.dropped import Ranges, left_of
from holdfast.driver.feed_check import check_feed
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.logs import open_reader
from holdfast.shell.storage.paths import feed_path, stream_path
from holdfast.sim.draw import Draw
from holdfast_chaos.beats import AT_US, STEP_US, Beats, Hand, Writer
from holdfast_chaos.proxy import Proxy
from holdfast_chaos.runs import (
    RealFault,
    RealOutcome,
    RealRun,
    continued,
    first_input_s,
    routed,
    strike,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

ROWS: Final = 4_000
"""Of each source; a row is due every millisecond."""
_HELD_FROM: Final = 3_400
_FIRST: Final = 400
"""Where the driver is killed, so many come before a source falls silent."""
_WINDOW_ROWS: Final = 100
_WINDOW: Final = f"{_WINDOW_ROWS * STEP_US // 1_000} milliseconds"
_ALLOWANCE_S: Final = 1.5
_TIMEOUT_S: Final = 400.0
SLOTS: Final = 11
"""Three sources, two units with three replicas each, a sink, and DataFrames that Spark reads."""
_FEW: Final = 400
_MERGES, _BEHIND, _SINK = "all", "behind", "out"
KINDS: Final = {
    "silence": "a source gives nothing for a while",
    "mute": "a source gives rows, and promises nothing for a while",
    "kill": "SIGKILL to a node",
    "kill-replicas": "SIGKILL to all replicas of an instance",
    "pause": "SIGSTOP to a node, SIGCONT after a while",
    "tear": "a node's connections break in the middle of a frame",
    "cut": "a node, or the coordinator, cannot be connected to for a while",
    "hold": "all bytes to and from a node, or the coordinator, are held back for a while",
}


@dataclass(frozen=True, slots=True)
class ReplicatedRun:
    """What a seed runs.

    Attributes:
        seed: The seed.
        sources: How many.
        feeds: `beats` (made inside of nodes), `log` or `folder`.
        protection: The arguments of `Replicated`.
        faults: What strikes.
        driver: When the driver is killed: at the first `tentative` row, or the first `undo`; empty:
            never.
        queue_tuples: Bound of input queues; 0: the default.
    """

    seed: int
    sources: int
    feeds: str
    protection: dict[str, Any]
    faults: tuple[RealFault, ...]
    driver: str = ""
    queue_tuples: int = 0


@dataclass(slots=True)
class ReplicatedOutcome:
    """How it went.

    Attributes:
        run: What ran.
        violations: What was not as it must be.
        struck: The kinds of faults that had a target.
        failures: Losses of nodes that were detected.
        tentative: Tentative rows in the feed.
        dropped: Input that corrections went without.
        delay_max_ms: The longest that input has waited for other streams, as progress says.
        seconds: From the first input to the end.
    """

    run: ReplicatedRun
    violations: list[str] = field(default_factory=list)
    struck: list[str] = field(default_factory=list)
    failures: int = 0
    tentative: int = 0
    dropped: int = 0
    delay_max_ms: int = 0
    seconds: float = 0.0


def draw_run(seed: int) -> ReplicatedRun:
    """The run of a seed."""
    draw = Draw(f"{seed}/real/replicated")
    replicas = draw.one_of((1, 1, 2, 2, 3))
    modes = ("process", "process", "delay", "suspend")
    protection: dict[str, Any] = {
        "replicas": replicas,
        "delay": draw.one_of(("300 milliseconds", "600 milliseconds", "1 second")),
        "alpha": draw.one_of((0.9, 1.0)),
        "during_failure": draw.one_of(modes),
        "reconcile": draw.one_of(("checkpoint/redo", "undo/redo")),
    }
    if replicas > 1:
        protection["during_stabilization"] = draw.one_of((None, *modes))
    elif draw.percent(40):
        protection["buffer"] = "drop"
    driver = draw.one_of(("tentative", "undo")) if draw.percent(12) else ""
    if driver:
        protection["during_failure"] = "process"
    feeds = "beats" if driver else draw.one_of(("beats", "beats", "log", "folder"))
    sources = draw.number(2, 3)
    faults = (_long_silence(draw), *(_draw_fault(draw) for _ in range(draw.number(1, 4))))
    queue_tuples = _FEW if protection.get("buffer") == "drop" else 0
    return ReplicatedRun(
        seed, sources, feeds, protection, () if driver else faults, driver, queue_tuples
    )


def _long_silence(draw: Draw) -> RealFault:
    """Longer than any bound."""
    kind = draw.one_of(("silence", "silence", "mute"))
    length_s = draw.number(1_200, 2_500) / 1e3
    return RealFault(kind, draw.number(300, 1_200) / 1e3, draw.number(0, 1 << 30), length_s)


def _draw_fault(draw: Draw) -> RealFault:
    kind = draw.one_of((*KINDS, "kill", "kill"))
    at_s, length_s = draw.number(100, 3_300) / 1e3, draw.number(50, 900) / 1e3
    return RealFault(kind, at_s, draw.number(0, 1 << 30), length_s)


# -- running ----------------------------------------------------------------------------------


def flow_of(run: ReplicatedRun, folder: Path, origin_s: float) -> tuple[hf.Dataflow, list[Writer]]:
    """The dataflow over its sources, and who writes these."""
    flow = hf.Dataflow("replicated")
    writers: list[Writer] = []
    streams: list[hf.Stream] = []
    for number in range(run.sources):
        name, place = f"s{number}", folder / f"s{number}"
        first = _FIRST if run.driver else None
        beats = Beats(str(folder / "hand"), number, ROWS, _HELD_FROM, origin_s, first)
        if run.feeds == "beats":
            streams.append(flow.source_generator(beats, name=name, unit=name))
            continue
        writers.append(Writer(beats, place, is_log=run.feeds == "log"))
        if run.feeds == "log":
            streams.append(flow.source_log(str(place), name=name, unit=name))
        else:
            streams.append(
                flow.source_files(str(place), time="at", name=name, unit=name, ahead=None)
            )
    merged = streams[0].unit(_MERGES).union(*streams[1:])
    windows = merged.unit(_BEHIND).window(hf.tumbling(_WINDOW))
    windows.aggregate("count(*) AS rows", "sum(n) AS total", name="counts").sink(_SINK)
    return flow, writers


def start(spark: SparkSession, run: ReplicatedRun, flow: hf.Dataflow, location: str) -> Query:
    """Start it, or go on."""
    options = {"spark.holdfast.failuresMax": "1000"}
    if run.queue_tuples:
        options["spark.holdfast.inputQueueTuples"] = str(run.queue_tuples)
        options["spark.holdfast.passTuples"] = str(run.queue_tuples)
    protection = hf.Replicated(**run.protection)
    return flow.start(spark, checkpointLocation=location, protection=protection, options=options)


def execute(spark: SparkSession, run: ReplicatedRun) -> ReplicatedOutcome:
    """Run it and check it. Leaves nothing running and nothing stopped."""
    outcome = ReplicatedOutcome(run)
    proxy = Proxy()
    with tempfile.TemporaryDirectory(prefix="holdfast-real-") as name:
        folder, location = Path(name), str(Path(name) / "location")
        hand = Hand(folder / "hand")
        origin_s = time.time() + _ALLOWANCE_S
        writers: list[Writer] = []
        query: Query | None = None
        try:
            with routed(proxy):
                if run.driver:
                    _kill_driver(run, folder, location, hand, origin_s, outcome)
                flow, writers = flow_of(run, folder, origin_s)
                query = start(spark, run, flow, location)
                _strike_all(query, proxy, hand, outcome)
                _await_end(query, run, outcome)
                _check(spark, query, location, outcome)
        except Exception as error:  # A failed query is what we look for, whatever it says.
            outcome.violations.append(f"I-LIVE: {type(error).__name__}: {error}")
        finally:
            if query is not None:
                query.stop()
            for writer in writers:
                writer.stop()
                if writer.error is not None:
                    outcome.violations.append(f"a writer of input failed: {writer.error}")
            proxy.close()
    return outcome


def _kill_driver(
    run: ReplicatedRun,
    folder: Path,
    location: str,
    hand: Hand,
    origin_s: float,
    outcome: ReplicatedOutcome,
) -> None:
    """Run a driver of its own until the feed has come so far, and kill it with all its nodes."""
    arguments = [str(run.seed), str(folder), location, str(origin_s + 20.0)]
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast_chaos.replicated_runs", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as driver:
        try:
            assert driver.stdout is not None
            _require(
                driver.stdout.readline() == "started\n", "the driver has not started its query"
            )
            _await_rows(location)
            _make_tentative(run, location, hand)
            outcome.struck.append(f"driver killed at the first {run.driver}")
        finally:
            os.killpg(driver.pid, signal.SIGKILL)


def _make_tentative(run: ReplicatedRun, location: str, hand: Hand) -> None:
    """Wait for what the driver is to be killed at.

    The other sources give the rest of their rows when the first one is silent, and it is silent
    until that is seen. 1. A driver came up so slowly that all rows were due when it was there.
    2. The sources had given them all, and then one fell silent. 3. Nothing waited for it.
    """
    hand.hold(0, "silence", time.time() + _TIMEOUT_S)
    hand.let_go()
    _await_kind(location, "tentative")
    if run.driver != "tentative":
        hand.hold(0, "silence", time.time())
        _await_kind(location, run.driver)


def _await_rows(location: str) -> None:
    _await_batch(stream_path(location, _SINK, 0), lambda batch: batch.num_rows > 0, "no row came")


def _await_kind(location: str, kind: str) -> None:
    """Until the feed has a row of a kind."""

    def has_kind(batch: pa.RecordBatch) -> bool:
        return kind in batch.column("_type").to_pylist()

    _await_batch(feed_path(location, _SINK, 0), has_kind, f"no row of kind {kind} came")


def _await_batch(log: str, is_it: Callable[[pa.RecordBatch], bool], otherwise: str) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    reader: Any = None
    while True:
        _require(time.monotonic() < deadline_s, otherwise)
        with contextlib.suppress(StorageError, FileNotFoundError):  # It is not there yet.
            reader = reader or open_reader(log, 0)
            if any(is_it(logged.batch) for logged in reader.poll()):
                return
        time.sleep(0.005)


def _strike_all(query: Query, proxy: Proxy, hand: Hand, outcome: ReplicatedOutcome) -> None:
    stopped: dict[int, float] = {}
    began_s = first_input_s(query) if outcome.run.faults else time.time()
    with continued(stopped) as wait_until:
        for fault in sorted(outcome.run.faults, key=lambda each: each.at_s):
            wait_until(began_s + fault.at_s)
            if query.isActive and _strike(query, proxy, hand, fault, stopped, outcome):
                outcome.struck.append(fault.kind)
        wait_until(max((f.at_s + f.length_s for f in outcome.run.faults), default=0.0) + began_s)
        hand.open()
        for until_s in list(stopped.values()):
            wait_until(until_s + 0.01)
    outcome.seconds = time.time() - began_s


def _strike(
    query: Query,
    proxy: Proxy,
    hand: Hand,
    fault: RealFault,
    stopped: dict[int, float],
    outcome: ReplicatedOutcome,
) -> bool:
    run = outcome.run
    if fault.kind in ("silence", "mute"):
        kind = fault.kind if run.feeds == "beats" else "silence"
        hand.hold(fault.pick % run.sources, kind, time.time() + fault.length_s)
        return True
    if fault.kind == "kill-replicas":
        instance = f"{(_MERGES, _BEHIND)[fault.pick % 2]}[0]"
        pids = [pid for node, pid in query.nodes.items() if node.partition("+")[0] == instance]
        for pid in filter(None, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return any(pids)
    told = RealOutcome(RealRun(run.seed, "", "", 1, ()))
    return strike(query, proxy, fault, stopped, told)


def _await_end(query: Query, run: ReplicatedRun, outcome: ReplicatedOutcome) -> None:
    """Until all is stable; a folder has no end, so that its query is stopped then."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while query.isActive and time.monotonic() < deadline_s:
        if run.feeds == "folder" and query.lastProgress["numOutputRows"] >= ROWS // _WINDOW_ROWS:
            break
        time.sleep(0.02)
    else:
        if query.isActive:
            outcome.violations.append(f"I-LIVE: still running after {_TIMEOUT_S} s")
    if query.exception() is not None:
        outcome.violations.append(f"I-LIVE: {query.exception()}")


# -- checking ---------------------------------------------------------------------------------


def expected(run: ReplicatedRun, dropped: dict[int, Ranges]) -> Counter[tuple[int, int, int]]:
    """Window, rows and their sum, without what was dropped of each source."""
    rows: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    for number in range(run.sources):
        for begin, stop in left_of(dropped.get(number, ()), 0, ROWS):
            for n in range(begin, stop):
                rows[n // _WINDOW_ROWS] += 1
                totals[n // _WINDOW_ROWS] += n
    return Counter({(window, rows[window], totals[window]): 1 for window in rows})


def _dropped(progress: dict[str, Any]) -> dict[int, Ranges]:
    found: dict[int, list[tuple[int, int]]] = {}
    for gap in progress["gaps"]:
        found.setdefault(int(gap["stream"][1]), []).append((gap["from_id"], gap["to_id"]))
    return {number: tuple(sorted(set(ranges))) for number, ranges in found.items()}


def _check(spark: SparkSession, query: Query, location: str, outcome: ReplicatedOutcome) -> None:
    progress = query.lastProgress
    dropped = _dropped(progress)
    outcome.dropped = sum(end - first for each in dropped.values() for first, end in each)
    outcome.failures = len(query.failures)
    units = (block["consistency"] for block in progress["units"].values())
    outcome.delay_max_ms = max((each["delayMaxMs"] or 0 for each in units), default=0)
    columns = ("unix_micros(window_start) AS start", "rows", "total")
    found = Counter(
        ((row["start"] - AT_US) // (_WINDOW_ROWS * STEP_US), row["rows"], row["total"])
        for row in query.to_dataframe(_SINK).selectExpr(*columns).collect()
    )
    wanted = expected(outcome.run, dropped)
    if found != wanted:
        lost, extra = sorted((wanted - found).items())[:3], sorted((found - wanted).items())[:3]
        outcome.violations.append(f"I-PRECISE: lacks {lost}, has {extra}")
    if outcome.dropped and outcome.run.protection.get("buffer") != "drop":
        outcome.violations.append(f"I-DROP: {dropped} were dropped")
    feed = check_feed(spark, _SINK, location)
    outcome.tentative = feed.tentative
    outcome.violations += [f"I-REC: {fault}" for fault in feed.faults]
    if feed.standing and outcome.run.feeds != "folder":
        outcome.violations.append(f"I-REC: {feed.standing} tentative rows stand in the end")
    if outcome.run.protection["during_failure"] == "suspend" and feed.tentative:
        outcome.violations.append(f"I-MIN: {feed.tentative} tentative rows though it suspends")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuntimeError(otherwise)


# -- many -------------------------------------------------------------------------------------


def execute_all(
    spark: SparkSession, seeds: Iterable[int], say: Callable[[ReplicatedOutcome], None]
) -> list[ReplicatedOutcome]:
    """Run the seeds one after the other."""
    outcomes = []
    for seed in seeds:
        outcomes.append(execute(spark, draw_run(seed)))
        say(outcomes[-1])
    return outcomes


def summary_of(outcomes: list[ReplicatedOutcome]) -> dict[str, Any]:
    """What they came to, as plain values."""
    return {
        "runs": len(outcomes),
        "faults": dict(Counter(kind for each in outcomes for kind in each.struck)),
        "feeds": dict(Counter(each.run.feeds for each in outcomes)),
        "replicas": dict(Counter(str(each.run.protection["replicas"]) for each in outcomes)),
        "failures_detected": sum(each.failures for each in outcomes),
        "runs_with_tentative_rows": sum(each.tentative > 0 for each in outcomes),
        "dropped": sum(each.dropped for each in outcomes),
        "violations": [
            {"seed": each.run.seed, "text": text} for each in outcomes for text in each.violations
        ],
    }


def told(outcome: ReplicatedOutcome) -> str:
    """An outcome in a line."""
    run = outcome.run
    how = ", ".join(f"{name}={value}" for name, value in run.protection.items())
    return (
        f"seed {run.seed}: {run.sources} x {run.feeds}, {how}; "
        f"{', '.join(outcome.struck) or 'no fault'}; {outcome.tentative} tentative rows, "
        f"{outcome.dropped} dropped, waited {outcome.delay_max_ms} ms at most; "
        f"{'; '.join(outcome.violations) or 'as it must be'}"
    )


def _drive(seed: int, folder: str, location: str, origin_s: float) -> None:
    """A driver that will be killed."""
    spark = hf.session("holdfast-replicated", SLOTS)
    run = draw_run(seed)
    flow, _ = flow_of(run, Path(folder), origin_s)
    query = start(spark, run, flow, location)
    sys.stdout.write("started\n")
    sys.stdout.flush()
    query.awaitTermination()


if __name__ == "__main__":
    _drive(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]))
