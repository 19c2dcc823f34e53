"""The main job measured: throughput, latency, recovery, cost of protection, start.

Every experiment writes its input once, runs what it compares in turn, and gives all single
results beside their median. Nothing is compared with a number from another day.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.api.dataflow import Dataflow, Stream, tumbling
from holdfast.api.errors import HoldfastError
from holdfast.api.protections import Protection, Unprotected, UpstreamBackup
from holdfast.bench import structured_streaming
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import KINDS, build
from holdfast.nexmark.run import NexmarkRun, run_nexmark
from holdfast.nexmark.source import NexmarkSource, counts_of, now_us
from holdfast.shell.storage.stream_log import StreamLogReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.query import Query

TARGETS = {"q1": 3, "q3": 10, "q8": 10, "q12": 20}
"""Multiples of Structured Streaming's throughput that each query should reach."""

_RUN_TIMEOUT_S = 300.0
_STATE_BYTES = 10 << 20
_KEYED_RATE = 2_000


class BenchmarkError(HoldfastError):
    """An experiment could not be carried out."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long the experiments take.

    Attributes:
        bid_events: NexMark events for the queries over bids.
        join_events: NexMark events for the queries that join persons and auctions.
        repeats: Runs of everything whose median is taken.
        latency_s: Length of the latency run.
        kills: Nodes killed.
    """

    bid_events: int
    join_events: int
    repeats: int
    latency_s: int
    kills: int


FULL = Sizes(10_000_000, 20_000_000, 3, 30, 20)
QUICK = Sizes(2_000_000, 2_000_000, 1, 5, 3)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import numba
    import pyarrow
    import pyspark

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
        "pyarrow": pyarrow.__version__,
        "numba": numba.__version__,
    }


class Spine:
    """The experiments; each method is one and returns its results."""

    def __init__(
        self, spark: SparkSession, folder: str, sizes: Sizes, say: Callable[[str], None]
    ) -> None:
        """Work in `folder`; `say` tells people what is going on."""
        self._spark = spark
        self._folder = folder
        self._sizes = sizes
        self._say = say
        self._runs = 0

    # -- input ------------------------------------------------------------------------------

    def _events(self, query: str) -> int:
        return self._sizes.bid_events if KINDS[query] == ("bid",) else self._sizes.join_events

    def _write_input(self, query: str) -> str:
        """The query's events as an ingest log and as parquet files; the folder of both."""
        events = self._events(query)
        root = os.path.join(self._folder, f"input-{events}")
        for kind in KINDS[query]:
            if os.path.exists(os.path.join(root, "log", kind, "end.json")):
                continue
            self._say(f"writing {counts_of(events)[kind]:,} {kind} events")
            source = NexmarkSource(kind, counts_of(events)[kind], NexmarkConfig())
            frame = source.to_dataframe(self._spark).drop("__time_us")
            self._write_parquet(frame, os.path.join(root, "parquet", kind))
            ordered = frame.repartition(1).sortWithinPartitions("date_time")
            writer = ordered.write.format("holdfast").option("time", "date_time").mode("append")
            writer.option("end", "true").save(os.path.join(root, "log", kind))
        return root

    def _write_parquet(self, frame: DataFrame, path: str) -> None:
        """In order of time, also by the files' own times: that is how streams are read."""
        files = structured_streaming.FILES
        ordered = frame.repartitionByRange(files, "date_time").sortWithinPartitions("date_time")
        ordered.write.parquet(path)
        parts = sorted(file for file in os.listdir(path) if file.startswith("part-"))
        for i, file in enumerate(parts):
            os.utime(os.path.join(path, file), (1_700_000_000 + i, 1_700_000_000 + i))

    def _flow(self, query: str, root: str) -> Dataflow:
        def source(flow: Dataflow, kind: str) -> Stream:
            unit = "ingest" if len(KINDS[query]) == 1 else f"{kind}s"
            log = os.path.join(root, "log", kind)
            return flow.source_log(log, name=f"{kind}s", unit=unit)

        return build(query, source)

    # -- throughput -------------------------------------------------------------------------

    def throughput(self) -> dict[str, Any]:
        """Tuples per second from log to log, beside Structured Streaming on the same events."""
        roots = {query: self._write_input(query) for query in TARGETS}
        peers: dict[str, list[dict[str, Any]]] = {query: [] for query in TARGETS}
        ours: dict[str, list[dict[str, Any]]] = {query: [] for query in TARGETS}
        for repeat in range(self._sizes.repeats):
            for root in dict.fromkeys(roots.values()):
                queries = [query for query in TARGETS if roots[query] == root]
                self._say(f"run {repeat + 1}: {', '.join(queries)} on Structured Streaming")
                for query, result in _run_baseline(root, queries).items():
                    peers[query].append(result)
                self._say(f"run {repeat + 1}: {', '.join(queries)} on Holdfast")
                for query in queries:
                    ours[query].append(self._run(self._flow(query, root), UpstreamBackup()))
        return {query: _compare(query, ours[query], peers[query]) for query in TARGETS}

    def _location(self) -> str:
        self._runs += 1
        return os.path.join(self._folder, f"run-{self._runs}")

    def _run(self, flow: Dataflow, protection: Protection) -> dict[str, Any]:
        """To the end. Busy time counts from the first node that is up to the last durable tuple."""
        location = self._location()
        started = time.monotonic()
        query = flow.start(self._spark, checkpointLocation=location, protection=protection)
        with _stopping(query):
            while "running" not in {n["state"] for n in query.status["nodes"].values()}:
                _check(query, started)
                time.sleep(0.001)
            up = time.monotonic()
            if not query.awaitTermination(_RUN_TIMEOUT_S):
                raise BenchmarkError(f"{flow.name} did not end within {_RUN_TIMEOUT_S:.0f} s")
            ended = time.monotonic()
        progress = query.lastProgress
        shutil.rmtree(location)
        rows = progress["numInputRows"]
        return {
            "input_tuples": rows,
            "output_tuples": progress["numOutputRows"],
            "seconds": round(ended - up, 3),
            "seconds_with_start": round(ended - started, 3),
            "throughput_tps": round(rows / (ended - up), 1),
        }

    def protection(self) -> dict[str, Any]:
        """Throughput of Q12 with upstream backup, as a share of that with no protection."""
        root = self._write_input("q12")
        rates: dict[str, list[float]] = {"upstream_backup": [], "none": []}
        kinds = {"upstream_backup": UpstreamBackup(), "none": Unprotected()}
        self._run(self._flow("q12", root), Unprotected())  # Files and kernels are warm from here.
        self._say("q12 with and without protection")
        for repeat in range(3 * self._sizes.repeats):
            names = list(kinds) if repeat % 2 else list(kinds)[::-1]
            for name in names:
                result = self._run(self._flow("q12", root), kinds[name])
                rates[name].append(result["throughput_tps"])
        medians = {name: statistics.median(values) for name, values in rates.items()}
        share = medians["upstream_backup"] / medians["none"]
        return {"runs_tps": rates, "median_tps": medians, "share": round(share, 3)}

    # -- latency and start --------------------------------------------------------------------

    def latency(self) -> dict[str, Any]:
        """Q12 at 10,000 tuples/s, from an event's creation to the sink."""
        results = {}
        for emit in ("changes", "final"):
            self._say(f"q12 at 10,000 tuples/s for {self._sizes.latency_s} s, emit={emit}")
            events = 10_000 * self._sizes.latency_s // 46 * 50
            run = NexmarkRun("q12", events, 10_000, 1, UpstreamBackup(), emit)
            report = run_nexmark(self._spark, run, kills=[], verify=emit == "final")
            results[emit] = {
                key: report[key] for key in ("latency_ms", "verified", "output_tuples")
            }
        return results

    def start(self) -> dict[str, Any]:
        """From `start` until the first tuple is in the sink's log."""
        seconds = []
        for _ in range(1 + 2 * self._sizes.repeats):
            run = NexmarkRun("q1", 500_000, None, 1, UpstreamBackup())
            location = self._location()
            started = time.monotonic()
            query = run.flow()[0].start(self._spark, checkpointLocation=location)
            with _stopping(query):
                _await_first_tuple(query, os.path.join(location, "streams", "q1"), started)
                seconds.append(round(time.monotonic() - started, 3))
            shutil.rmtree(location)
        return {"first_s": seconds[0], "later_s": seconds[1:]}

    # -- recovery ---------------------------------------------------------------------------

    def recovery(self) -> dict[str, Any]:
        """SIGKILL of a stateful node until its first new output, with 10 MB of state to rebuild."""
        ahead_s = 110
        spacing_s = 2.5
        seconds = ahead_s + int(spacing_s * self._sizes.kills * 1.5) + 10
        count = _KEYED_RATE * seconds
        origin_us = now_us() - ahead_s * 1_000_000
        config = NexmarkConfig(events_per_second=_KEYED_RATE * 50 // 46)
        generator = NexmarkSource("bid", count, config, float(_KEYED_RATE), origin_us)
        flow = Dataflow("recovery")
        bids = flow.source_generator(generator, name="bids")
        keyed = bids.key_by("auction", "bidder").window(tumbling("365 days"))
        keyed.aggregate("count(*) AS bids", name="counts", emit="changes").sink("counts")
        self._say(f"{self._sizes.kills} kills of a node with 10 MB of state")
        location = self._location()
        query = flow.start(
            self._spark,
            checkpointLocation=location,
            options={"spark.holdfast.failuresMax": str(self._sizes.kills + 10)},
        )
        with _stopping(query):
            kills = [self._kill(query, spacing_s) for _ in range(self._sizes.kills)]
            if not query.awaitTermination(_RUN_TIMEOUT_S):
                raise BenchmarkError("the query did not end after the kills")
        outcome = query.verify()
        shutil.rmtree(location)
        return {
            "kills": kills,
            "median_ms": statistics.median(kill["first_output_ms"] for kill in kills),
            "max_ms": max(kill["first_output_ms"] for kill in kills),
            "state_mb_least": min(kill["state_mb"] for kill in kills),
            "verified": outcome.is_identical,
            "output_tuples": outcome.actual,
        }

    def _kill(self, query: Query, spacing_s: float) -> dict[str, Any]:
        """Kill the node once its state is large enough; what its recovery took."""
        node = "counts[0]"
        deadline = time.monotonic() + _RUN_TIMEOUT_S
        before = len(query.recoveries)
        state = 0
        while state < _STATE_BYTES:
            _check(query, deadline - _RUN_TIMEOUT_S)
            state = query.status["nodes"][node].get("state_bytes", 0)
            time.sleep(0.01)
        time.sleep(spacing_s / 2)
        killed_at_s = time.time()
        os.kill(query.pid(node), signal.SIGKILL)
        while len(query.recoveries) == before:
            _check(query, deadline - _RUN_TIMEOUT_S)
            time.sleep(0.002)
        recovery = query.recoveries[-1]
        time.sleep(spacing_s / 2)
        return {
            "state_mb": round(state / 2**20, 1),
            "first_output_ms": round((recovery["recovered_unix_s"] - killed_at_s) * 1e3),
            "restarted_ms": recovery["restarted_ms"],
            "replayed_ms": recovery["replayed_ms"],
            "replayed_tuples": recovery["replayed_tuples"],
        }


def _run_baseline(root: str, queries: list[str]) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "holdfast.bench.structured_streaming"]
    done = subprocess.run(
        [*command, os.path.join(root, "parquet"), *queries],
        capture_output=True,
        text=True,
        timeout=6 * _RUN_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"Structured Streaming failed:\n{done.stderr[-2000:]}")
    results: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return results


def _compare(query: str, ours: list[dict[str, Any]], peers: list[dict[str, Any]]) -> dict[str, Any]:
    our_tps = statistics.median(run["throughput_tps"] for run in ours)
    peer_tps = statistics.median(run["throughput_tps"] for run in peers)
    return {
        "input_tuples": ours[0]["input_tuples"],
        "holdfast_tps": our_tps,
        "structured_streaming_tps": peer_tps,
        "ratio": round(our_tps / peer_tps, 1),
        "target": TARGETS[query],
        "holdfast_runs": ours,
        "structured_streaming_runs": peers,
    }


@contextlib.contextmanager
def _stopping(query: Query) -> Iterator[None]:
    try:
        yield
    finally:
        query.stop()


def _check(query: Query, started: float) -> None:
    """Raise instead of waiting for ever."""
    error = query.exception()
    if error is not None:
        raise error
    if not query.isActive:
        raise BenchmarkError(f"{query.name} ended before the experiment did")
    if time.monotonic() - started > _RUN_TIMEOUT_S:
        raise BenchmarkError(f"{query.name}: nothing happened for {_RUN_TIMEOUT_S:.0f} s")


def _await_first_tuple(query: Query, path: str, started: float) -> None:
    while True:
        _check(query, started)
        streams = sorted(os.listdir(path)) if os.path.isdir(path) else []
        for stream in streams:
            with contextlib.suppress(HoldfastError, OSError):
                reader = StreamLogReader(os.path.join(path, stream), 0)
                rows = reader.poll(max_rows=1)
                reader.close()
                if rows:
                    return
        time.sleep(0.002)
