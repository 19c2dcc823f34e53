"""A user's files into Delta or Iceberg tables, while nodes, all of them, or the driver are killed.

The query runs in a process of its own, so that its driver can be killed too. Files come all the
time. At the end plain readers of theirs say what the tables hold: each row once, and of each window
that has closed one right count. A kill strikes at a drawn moment, often while what the kill before
has done is still being mended; the kinds and moments of a seed are an intent and not a replay.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import holdfast
from holdfast.sim.draw import Draw
from holdfast_chaos.driver_process import DriverProcess, tell
from holdfast_chaos.tables import KINDS as TABLES
from holdfast_chaos.tables import Tables

KINDS: Final = {
    "node": "SIGKILL to a node",
    "all": "SIGKILL to all nodes",
    "driver": "SIGKILL to the driver, which is started again",
}
_DRAWN: Final = (*("node",) * 6, *("all",) * 3, "driver")
_FILE_ROWS: Final = 500
_FILE_S: Final = 0.05
_ROW_US: Final = 1_000
_KEYS: Final = 5
_FIRST_US: Final = 1_700_000_000_000_000
_WINDOW_US: Final = 10_000_000
_DELAY_US: Final = 10_000_000
"""Longer than a listing may miss a file that is older than one it has found."""
_TIMEOUT_S: Final = 300.0


@dataclass(slots=True)
class KillsOutcome:
    """How it went.

    Attributes:
        kills: By kind, how many struck.
        rows: Of the files.
        lost: Rows, and closed windows, that the tables lack.
        doubled: Rows and windows that they have too many.
        wrong: Windows with another count.
        drivers: How many were started.
        versions: Of the table of rows.
        seconds: From the first file to the last row.
    """

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    rows: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    drivers: int = 0
    versions: int = 0
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether each row and each closed window is there once."""
        return not (self.lost or self.doubled or self.wrong)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


class _Feed:
    """Files that come one by one, each by a rename."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self.files = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feed", daemon=True)
        self.add()  # The query asks the first file for its columns.

    def add(self) -> None:
        """One more."""
        first = self.files * _FILE_ROWS
        ids = range(first, first + _FILE_ROWS)
        table = pa.table(
            {
                "at": pa.array([_FIRST_US + n * _ROW_US for n in ids], pa.timestamp("us", "UTC")),
                "k": [n % _KEYS for n in ids],
                "v": list(ids),
            }
        )
        hidden = self._folder / f".{self.files:08d}"
        pq.write_table(table, hidden)
        hidden.rename(self._folder / f"{self.files:08d}.parquet")
        self.files += 1

    def _feed(self) -> None:
        while not self._is_over.wait(_FILE_S):
            self.add()

    def start(self) -> None:
        """From here on they come."""
        self._thread.start()

    def stop(self) -> None:
        """The last one has come; it may be the first one."""
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join()


def run(kills: int, seed: int, folder: Path, kind: str = "delta") -> KillsOutcome:
    """So many kills, and what the tables hold then.

    Args:
        kills: How many.
        seed: Which, and when.
        folder: For everything.
        kind: Of tables: `delta` or `iceberg`.

    Raises:
        TimeoutError: The query does not go on after a kill.
    """
    outcome, draw = KillsOutcome(), Draw(f"{seed}/delta-kills")
    tables, feed = TABLES[kind](folder), _Feed(folder / "in")
    driver = _started(folder, kind, outcome)

    def rows() -> int:
        return tables.count("out")

    began_s = time.monotonic()
    try:
        _wait(lambda: rows() > 0, "the first rows", driver)
        feed.start()
        while sum(outcome.kills.values()) < kills:
            if draw.percent(70):
                seen = rows()
                _wait(lambda seen=seen: rows() > seen, "rows after a kill", driver)
            time.sleep(draw.number(0, 400) / 1_000)  # The moment is what is drawn.
            driver = _strike(draw, driver, (folder, kind), outcome)
        feed.stop()
        outcome.rows = feed.files * _FILE_ROWS
        _wait(lambda: rows() >= outcome.rows, "all rows", driver)
        windows = _closed(outcome.rows) * _KEYS
        _wait(lambda: tables.count("counted") >= windows, "all closed windows", driver)
        outcome.seconds = round(time.monotonic() - began_s, 1)
    finally:
        feed.stop()
        driver.kill()
    _compare(tables, outcome)
    return outcome


def _started(folder: Path, kind: str, outcome: KillsOutcome) -> DriverProcess:
    outcome.drivers += 1
    return DriverProcess("holdfast_chaos.delta_kills", [str(folder), kind], folder)


def _strike(
    draw: Draw, driver: DriverProcess, started: tuple[Path, str], outcome: KillsOutcome
) -> DriverProcess:
    kind, pick = draw.one_of(_DRAWN), draw.number(0, 1 << 20)
    if kind == "driver":
        driver.kill()
        outcome.kills[kind] += 1
        return _started(*started, outcome)
    pids = [pid for _, pid in sorted(driver.told.items())]
    struck = 0
    for pid in pids if kind == "all" else pids[pick % max(1, len(pids)) :][:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            struck += 1
    outcome.kills[kind] += bool(struck)
    return driver


def _wait(is_so: Any, what: str, driver: DriverProcess) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not is_so():
        if not driver.is_running:
            raise TimeoutError(f"the driver has ended before {what} came")
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what} did not come within {_TIMEOUT_S:.0f} s")
        time.sleep(0.05)  # Leaves the cores to what is waited for.


def _closed(rows: int) -> int:
    """How many windows have closed for certain."""
    newest_us = (rows - _FILE_ROWS) * _ROW_US - _DELAY_US  # As of the listing before the last one.
    return max(0, (_FIRST_US % _WINDOW_US + newest_us) // _WINDOW_US)


def _compare(tables: Tables, outcome: KillsOutcome) -> None:
    """What plain readers see, beside what was given."""
    outcome.versions = tables.versions("out")
    found = Counter(tables.rows("out").column("v").to_pylist())
    outcome.lost = sum(found[n] == 0 for n in range(outcome.rows))
    outcome.doubled = found.total() - len(found)
    expected: Counter[tuple[int, int]] = Counter()
    for n in range(outcome.rows):
        expected[(_FIRST_US + n * _ROW_US) // _WINDOW_US, n % _KEYS] += 1
    first = _FIRST_US // _WINDOW_US
    counted = tables.rows("counted").to_pylist()
    seen = Counter(
        (int(row["window_start"].timestamp() * 1e6) // _WINDOW_US, row["k"]) for row in counted
    )
    certain = [place for place in expected if place[0] < first + _closed(outcome.rows)]
    outcome.lost += sum(seen[place] == 0 for place in certain)
    outcome.doubled += seen.total() - len(seen)
    outcome.wrong = sum(
        row["n"] != expected[int(row["window_start"].timestamp() * 1e6) // _WINDOW_US, row["k"]]
        for row in counted
    )


def _main(folder: Path, kind: str) -> None:
    """The query, in the process that is killed; tells the processes of its nodes."""
    spark = holdfast.session("holdfast-delta-kills")
    spark.sparkContext.setLogLevel("OFF")
    flow, tables = holdfast.Dataflow("kills"), TABLES[kind](folder)
    rows = flow.source_files(
        str(folder / "in"),
        time="at",
        delay=f"{_DELAY_US} microseconds",
        name="rows",
        partitions=2,
    )
    tables.write(rows, "out")
    windows = rows.key_by("k").window(holdfast.tumbling("10 seconds"))
    counts = windows.aggregate("count(*) AS n", name="counts")
    tables.write(counts, "counted")
    options = {"spark.holdfast.failuresMax": "1000"}
    query = flow.start(spark, checkpointLocation=str(folder / "location"), options=options)
    told: dict[str, int] = {}
    while query.isActive:
        nodes = {node: pid for node, pid in query.nodes.items() if pid}
        if nodes != told:
            told = nodes
            tell(nodes)
        time.sleep(0.02)  # Nothing tells of a new process.
    error = query.exception()
    if error is not None:
        raise error


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2])
