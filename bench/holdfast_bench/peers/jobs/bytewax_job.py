"""Bytewax: a source of its own over parquet, its windowing operators, its file sink.

Documentation: a `FixedPartitionedSource` over the files, recovery partitions made once, snapshots
once a second, one process per core; a worker is one thread of Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow.parquet as pq
from bytewax.connectors.files import DirSink
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from contract import Job, read, say

JOB_VARIABLE = "BENCH_JOB"
WORKERS = 2
_BATCH = 1_000
_ZERO = datetime(2015, 7, 15, tzinfo=UTC)
_SECOND_US = 1_000_000
_LOOK_S = 0.005
_WAIT = {True: timedelta(seconds=1), False: timedelta(hours=1)}
"""Its clock of event time goes on with the machine's clock between events, so that without patience
events come too late where the replay is at times slower than the events once were."""


class Events(StatefulSourcePartition):
    """The files of a folder in order, row by row; resumes at (file, row)."""

    def __init__(self, folder: str, follows: bool, at: tuple[int, int] | None) -> None:
        self._folder, self._follows = Path(folder), follows
        self._file, self._row = at or (0, 0)
        self._rows: list[dict[str, Any]] = []
        self._read: int | None = None
        self._awake: datetime | None = None

    def _names(self) -> list[Path]:
        return sorted(self._folder.glob("*.parquet"))

    def next_batch(self) -> list[dict[str, Any]]:
        if self._read != self._file:
            names = self._names()
            if self._file >= len(names):
                if not self._follows:
                    raise StopIteration
                self._awake = datetime.now(UTC) + timedelta(seconds=_LOOK_S)
                return []
            self._rows = pq.read_table(names[self._file]).to_pylist()
            self._read = self._file
        rows = self._rows[self._row : self._row + _BATCH]
        self._row += len(rows)
        if self._row >= len(self._rows):
            self._file, self._row = self._file + 1, 0
        return rows

    def next_awake(self) -> datetime | None:
        awake, self._awake = self._awake, None
        return awake

    def snapshot(self) -> tuple[int, int]:
        return (self._file, self._row)


class Folder(FixedPartitionedSource):
    """A folder of parquet files in one partition: with two, neither keeps the other's order."""

    def __init__(self, folder: str, follows: bool) -> None:
        self._folder, self._follows = folder, follows

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Events:
        return Events(self._folder, self._follows, resume_state)


def micros(time: datetime) -> int:
    """Microseconds since the epoch."""
    return (time - _ZERO) // timedelta(microseconds=1) + int(_ZERO.timestamp()) * _SECOND_US


def window_start_us(number: int) -> int:
    """When a window of ten seconds begins."""
    return int(_ZERO.timestamp()) * _SECOND_US + number * 10 * _SECOND_US


def matched(state: Any, event: dict[str, Any]) -> tuple[Any, list[str]]:
    """Incremental join: remember both sides, put out what the new event completes."""
    held: tuple[list[dict[str, Any]], list[dict[str, Any]]] = state or ([], [])
    persons, auctions = held
    if "seller" in event:
        auctions.append(event)
        pairs = [(person, event) for person in persons]
    else:
        persons.append(event)
        pairs = [(event, auction) for auction in auctions]
    rows = [f"{p['name']},{p['city']},{p['state']},{a['id']}" for p, a in pairs]
    return (persons, auctions), rows


def results(job: Job, streams: dict[str, Any]) -> Any:
    """The query's results as lines."""
    if job.query == "q1":
        return op.map(
            "euros",
            streams["bid"],
            lambda b: (
                f"{b['auction']},{b['bidder']},{b['price'] * 0.908:.3f},{micros(b['date_time'])}"
            ),
        )
    clock = win.EventClock(lambda e: e["date_time"], _WAIT[job.follows])
    windower = win.TumblingWindower(timedelta(seconds=10), _ZERO)
    if job.query == "q12":
        counts = win.count_window(
            "counts", streams["bid"], clock, windower, lambda b: str(b["bidder"])
        )
        return op.map("lines", counts.down, _count_line)
    persons, auctions = streams["person"], streams["auction"]
    if job.query == "q3":
        persons = op.filter("states", persons, lambda p: p["state"] in ("OR", "ID", "CA"))
        auctions = op.filter("category", auctions, lambda a: a["category"] == 10)
    by_person = op.key_on("person", persons, lambda p: str(p["id"]))
    by_seller = op.key_on("seller", auctions, lambda a: str(a["seller"]))
    if job.query == "q3":
        both = op.merge("both", by_person, by_seller)
        return op.map("line", op.stateful_flat_map("join", both, matched), lambda row: row[1])
    joined = win.join_window(
        "join", clock, windower, by_person, by_seller, insert_mode="product", emit_mode="final"
    )
    complete = op.filter("complete", joined.down, lambda row: None not in row[1][1])
    return op.map("lines", complete, _join_line)


def _count_line(row: tuple[str, tuple[int, int]]) -> str:
    bidder, (window, bids) = row
    start = window_start_us(window)
    return f"{start},{start + 10 * _SECOND_US},{bidder},{bids}"


def _join_line(row: tuple[str, tuple[int, tuple[Any, Any]]]) -> str:
    _, (window, (person, auction)) = row
    start = window_start_us(window)
    end = start + 10 * _SECOND_US
    return f"{start},{end},{person['id']},{person['name']},{auction['id']}"


def flow_of(job: Job) -> Dataflow:
    """The dataflow that every process runs."""
    flow = Dataflow(job.query)
    streams = {
        kind: op.input(f"read_{kind}", flow, Folder(folder, job.follows))
        for kind, folder in job.inputs.items()
    }
    lines = results(job, streams)
    Path(job.output).mkdir(parents=True, exist_ok=True)
    keyed = op.key_on("any", lines, lambda line: line)
    op.output("out", keyed, DirSink(Path(job.output), WORKERS))
    return flow


def processes(job: Job) -> Iterator[subprocess.Popen[bytes]]:
    """One `bytewax.run` per core, together a cluster."""
    places = ";".join(f"127.0.0.1:{_free_port()}" for _ in range(WORKERS))
    for number in range(WORKERS):
        options = ["-r", job.state, "-s", "1", "-b", "0", "-i", str(number), "-a", places]
        yield subprocess.Popen(
            [sys.executable, "-m", "bytewax.run", f"{Path(__file__).stem}:flow", *options],
            env={**os.environ, JOB_VARIABLE: sys.argv[1]},
            cwd=Path(__file__).parent,
        )


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Make the recovery partitions once, then run the cluster."""
    job = read()
    state = Path(job.state)
    if not list(state.glob("*")):
        state.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "bytewax.recovery", str(state), str(WORKERS)], check=True
        )
    say(started=time.time())
    codes = [process.wait() for process in list(processes(job))]
    sys.exit(max(abs(code) for code in codes))


if __name__ == "__main__":
    main()
else:
    flow = flow_of(read(os.environ[JOB_VARIABLE]))
