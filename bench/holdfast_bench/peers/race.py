"""Throughput: every query on every system in turn, over the same events; output checked."""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast_bench.inputs import FILES_PER_TRIGGER
from holdfast_bench.peers import rows
from holdfast_bench.peers.alternation import alternate
from holdfast_bench.peers.environment import NoPeer, environment
from holdfast_bench.peers.events import FORMATS, Events, recorded
from holdfast_bench.peers.jobs.contract import Job
from holdfast_bench.peers.peer import Peer
from holdfast_bench.peers.process import JobRun
from holdfast_bench.running import BenchFailed, median
from holdfast_bench.structured_streaming import Baseline
from holdfast_bench.throughput import Say
from holdfast_chaos.kafka_broker import NoBroker, fetched

_LOOK_S = 0.1
_BASELINE_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class RaceSizes:
    """How much each query reads.

    Attributes:
        tuples: Input tuples of all kinds, per query.
        repeats: How often every system runs, in turn.
        timeout_s: Limit of a run.
        is_with_start: Whether a run's time is that from its start to its last file, as its user has
            it; else what the engine says itself.
    """

    tuples: dict[str, int]
    repeats: int
    timeout_s: float
    is_with_start: bool = False


class Installed:
    """The environments of the peers; one that could not be made is remembered with its reason."""

    def __init__(self, peers: tuple[Peer, ...], cache: Path, say: Say) -> None:
        """Install what is missing."""
        self._cache = cache
        self._pythons: dict[str, Path] = {}
        self.absent: dict[str, str] = {}
        for peer in peers:
            if peer.absence:
                self.absent[peer.name] = peer.absence
                continue
            say(f"environment of {peer.title}")
            try:
                self._pythons[peer.name] = environment(peer.name, peer.requirements, cache)
            except NoPeer as missing:
                self.absent[peer.name] = str(missing)

    def python(self, peer: Peer) -> Path:
        """The peer's interpreter. Raises `BenchFailed` if it is absent."""
        if peer.name in self.absent:
            raise BenchFailed(self.absent[peer.name])
        return self._pythons[peer.name]

    def jars(self, peer: Peer) -> tuple[Path, ...]:
        """The peer's jars, with all that they need. Raises `BenchFailed` if they cannot be had."""
        try:
            folders = [fetched(self._cache, a.split(":")[1], a) for a in peer.jars]
        except NoBroker as missing:
            raise BenchFailed(str(missing)) from None
        return tuple(sorted(jar for folder in folders for jar in folder.iterdir()))


def compare(
    peers: tuple[Peer, ...], installed: Installed, sizes: RaceSizes, say: Say
) -> dict[str, Any]:
    """Per query: the runs of every system, and why some did not run."""
    results = {}
    for query in sizes.tuples:
        with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as folder:
            results[query] = _compare(peers, installed, query, sizes, say, Path(folder))
    return results


def maxima_of(throughput: dict[str, Any], query: str) -> dict[str, int]:
    """Per system its tuples per second in the race, as far as that is known."""
    systems = throughput.get(query, {}).get("systems", {})
    return {name: found["tuples_per_s"] for name, found in systems.items()}


def _compare(
    peers: tuple[Peer, ...],
    installed: Installed,
    query: str,
    sizes: RaceSizes,
    say: Say,
    folder: Path,
) -> dict[str, Any]:
    courses: dict[int, Course] = {}

    def once(peer: Peer, number: int) -> dict[str, Any]:
        if why := peer.why_not(query):
            raise BenchFailed(why)
        python, jars = installed.python(peer), installed.jars(peer)
        tuples = min(sizes.tuples[query], peer.tuples_max)
        if tuples not in courses:
            formats = dict.fromkeys(["parquet", *(each.input for each in peers)])
            place = folder / f"{tuples}"
            shutil.rmtree(place, ignore_errors=True)  # What a try that failed has left.
            made = course(query, tuples, place, tuple(formats))
            courses[tuples] = replace(made, is_with_start=sizes.is_with_start)
        where = folder / f"{peer.name}-{number}"
        return run_once(peer, python, courses[tuples], sizes.timeout_s, where, jars)

    runs, failures = alternate(query, sizes.repeats, peers, once, say)
    return {
        "tuples": sizes.tuples[query],
        "systems": {name: _summary(found) for name, found in runs.items()},
        "failures": failures,
    }


@dataclass(frozen=True, slots=True)
class Course:
    """What a query reads, and what it must put out; `is_with_start` as of `RaceSizes`."""

    query: str
    events: Events
    expected: pa.Table
    is_with_start: bool = False


def course(query: str, tuples: int, folder: Path, formats: tuple[str, ...] = FORMATS) -> Course:
    """The first so many events on disk, and what Spark SQL gives for them in batch."""
    events = recorded(query, tuples, folder / "events", formats)
    with Baseline() as baseline:
        inputs, where = events.folders["parquet"], str(folder / "expected")
        baseline.write(query, inputs, where, timeout_s=_BASELINE_TIMEOUT_S)
    return Course(query, events, rows.expected_rows(where, query, events.closed_us))


def run_once(
    peer: Peer,
    python: Path,
    course: Course,
    timeout_s: float,
    folder: Path,
    jars: tuple[Path, ...] = (),
) -> dict[str, Any]:
    """One run over all events, and its output compared.

    Raises:
        BenchFailed: The script failed, or did not end in time.
    """
    query, events, expected = course.query, course.events, course.expected
    what = f"{peer.title}, {query}"
    inputs = events.folders[peer.input]
    job = Job(
        query,
        inputs,
        output=str(folder / "output"),
        state=str(folder / "state"),
        follows=False,
        warm_up=inputs if peer.needs_warm_up else None,
        files_at_once=FILES_PER_TRIGGER,
        scratch=str(folder / "scratch"),
        jars=",".join(map(str, jars)),
    )
    with JobRun(python, peer.job, job, folder, weighs=True) as run:
        output = rows.OUTPUTS[peer.output](job.output, query)
        tables, ended_s = _watch(run, peer, output, course, what, timeout_s)
    tables.append(rows.everything(output, query))
    found = rows.closed(pa.concat_tables(tables), events.closed_us)
    seconds = run.says.get("seconds") or ended_s - run.says["started"]
    if course.is_with_start:
        seconds = last_shown_s(Path(job.output)) - run.says["started"]
    return {
        "tuples": events.tuples,
        "seconds": round(seconds, 3),
        "peak_bytes": run.peak_bytes,
        "output": asdict(rows.difference(found, expected)),
    }


def last_shown_s(folder: Path) -> float:
    """When the last file of results was shown; since 1970. Spark's file sink has a list of them.

    Raises:
        BenchFailed: There is none.
    """
    shown = [*folder.glob("[!._]*"), *folder.glob("_spark_metadata/[0-9]*")]
    if not shown:
        raise BenchFailed(f"{folder}: no file of results")
    return max(path.stat().st_ctime for path in shown)  # A rename counts.


def _watch(
    run: JobRun, peer: Peer, output: rows.Output, course: Course, what: str, timeout_s: float
) -> tuple[list[pa.Table], float]:
    """Wait until the script has ended or, if it never does, its output is whole; and when."""
    wanted, closed_us = course.expected.num_rows, course.events.closed_us
    tables: list[pa.Table] = []
    seen, changed_s = 0, time.time()
    while run.is_running:
        run.require(what)
        if time.time() > run.began_s + timeout_s:
            raise BenchFailed(
                f"{what}: {seen:,} of {wanted:,} results after {timeout_s:.0f} s: "
                f"{run.last_words()}"
            )
        if not peer.ends:
            new = output.poll()
            tables += new
            seen += sum(rows.closed(table, closed_us).num_rows for table in new)
            if new:
                changed_s = time.time()
            if seen >= wanted:
                break
        time.sleep(_LOOK_S)  # Looking takes from what is looked at.
    run.require(what)
    return tables, time.time() if peer.ends else changed_s


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "tuples": runs[0]["tuples"],
        "tuples_per_s": round(median(run["tuples"] / run["seconds"] for run in runs)),
        "peak_bytes": max(run["peak_bytes"] for run in runs),
        "is_identical": all(
            run["output"]["lost"] == 0 and run["output"]["surplus"] == 0 for run in runs
        ),
        "runs": runs,
    }
