"""Slow and fast windows under eventual checkpoints, while everything that keeps them is struck.

Nodes are killed, one or all. The driver is killed and started again. A node is stopped until it has
been replaced, and goes on then, as a zombie. In the end a footprint log is damaged, or not: a bit
is flipped, its newest segment is torn, or a segment is lost. Then its node is killed.

The query runs in a process of its own. Rows come through an ingest log, in which this process
writes them all the time. In the end every sink must hold what Spark makes of all rows. After damage
the query may also have ended with an error that names it; it must never hold other rows.

A seed is an intent and not a replay: kinds and moments are drawn, the machine has its own time.

    python -m holdfast_chaos.eventual_kills --seeds 0:10 --kills 10
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

import holdfast as hf
from holdfast.driver.footprint_inspection import eventual_checkpoints
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.sim.draw import Draw
from holdfast_chaos.driver_process import DriverProcess, tell
from holdfast_chaos.seeds import seeds_in

if TYPE_CHECKING:
    from holdfast.driver.query import Query

KINDS: Final = {
    "node": "SIGKILL to a node",
    "all": "SIGKILL to all nodes",
    "zombie": "SIGSTOP to a node until it has been replaced, then SIGCONT",
    "driver": "SIGKILL to the driver, which is started again",
}
DAMAGES: Final = {
    "flip": "a bit of a footprint log is flipped, and its node killed",
    "tear": "the newest segment loses its end, and its node is killed",
    "lose": "a segment is lost, and its node is killed",
}
_DRAWN: Final = (*("node",) * 5, *("all",) * 2, *("zombie",) * 2, "driver")
UNITS: Final = {
    "slow": "groups of an hour that stay open",
    "fast": "windows of ten seconds, a hundred of which close each second",
    "counted": "windows by count",
    "sessions": "sessions",
    "begun": "windows from a key's first row on",
    "joined": "windows of a join",
}
_ALWAYS: Final = ("slow", "fast")
_AT_US: Final = 1_700_000_000_000_000
_ROW_US: Final = 100_000
_ROWS: Final = 250
_ROWS_S: Final = 0.05
_ROWS_MAX: Final = 60_000
_TIMEOUT_S: Final = 480.0
_NAMED: Final = ("StreamLogCorrupt", "SinkLacksTuples", "TuplesMissing", "FileDamaged")
_META: Final = IngestMeta(
    pa.schema([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("n", pa.int64())]), "at", 0
)


@dataclass(slots=True)
class Outcome:
    """How the run of a seed went.

    Attributes:
        seed: Of the run.
        units: Which windows there were.
        kills: By kind, how many struck.
        damage: What was done to a log in the end; empty: nothing.
        named: The error that ended the query then; empty: none did.
        rows: That were written.
        drivers: How many were started.
        recoveries: That the last driver has seen.
        violations: What must not be.
        seconds: All of it.
    """

    seed: int
    units: tuple[str, ...]
    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    damage: str = ""
    named: str = ""
    rows: int = 0
    drivers: int = 0
    recoveries: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Feed:
    """Rows that come all the time, until there are enough."""

    def __init__(self, folder: Path) -> None:
        """None has come. `folder` is for the ingest log."""
        self._path = str(folder)
        ingest_log.prepare(self._path, _META)
        self.rows = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feed", daemon=True)

    def add(self, *, ends: bool = False) -> None:
        """Some more."""
        ids = range(self.rows, self.rows + _ROWS)
        at = pa.array([_AT_US + n * _ROW_US for n in ids], _META.schema.field(0).type)
        rows = pa.RecordBatch.from_arrays([at, pa.array(ids)], schema=_META.schema)
        file = ingest_log.write_file(self._path, _META, iter([rows]))
        assert file is not None
        ingest_log.append_batch(self._path, [file], ends=ends)
        self.rows += _ROWS

    @property
    def has_more(self) -> bool:
        """Whether there are not enough yet."""
        return self.rows < _ROWS_MAX

    def _feed(self) -> None:
        while self.has_more and not self._is_over.wait(_ROWS_S):
            self.add()

    def start(self) -> None:
        """From here on they come."""
        self._thread.start()

    def end(self) -> None:
        """The last ones come now."""
        self.stop()
        self.add(ends=True)

    def stop(self) -> None:
        """No more come."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()


class QueryDriver(DriverProcess):
    """The process of a query, and what it has told last; see `follow`."""

    def __init__(
        self,
        module: str,
        arguments: list[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; see `DriverProcess`."""
        super().__init__(module, arguments, folder, environment, nodes={}, failures=[], rows=0)

    @property
    def verdict(self) -> dict[str, Any] | None:
        """What it says in the end; None: it is not over."""
        found: dict[str, Any] | None = self.told.get("verdict")
        return found

    def wait(self, is_so: Callable[[], object], what: str) -> bool:
        """Until it is so, or the query is over; whether it is so. Raises `TimeoutError`."""
        deadline_s = time.monotonic() + _TIMEOUT_S
        while not is_so():
            if self.is_over.is_set():
                return bool(is_so())
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{what} did not come within {_TIMEOUT_S:.0f} s")
            time.sleep(0.02)  # Leaves the cores to what is waited for.
        return True


def _started(folder: Path, outcome: Outcome) -> QueryDriver:
    outcome.drivers += 1
    assert __spec__ is not None
    return QueryDriver(__spec__.name, ["--drive", str(folder), *outcome.units], folder)


class Run:
    """One seed: strikes on a query, and what its sinks hold then."""

    def __init__(self, seed: int, folder: Path, *, kinds: tuple[str, ...] = _DRAWN) -> None:
        """Nothing is running yet.

        Args:
            seed: Which strikes, and when.
            folder: For everything; empty.
            kinds: Among which kills are drawn.
        """
        self._draw = Draw(f"{seed}/eventual-kills")
        third = self._draw.one_of([name for name in UNITS if name not in _ALWAYS])
        self.outcome = Outcome(seed, (*_ALWAYS, third))
        self._folder, self._kinds = folder, kinds
        self._feed = Feed(folder / "rows")
        self._driver = _started(folder, self.outcome)

    def execute(self, kills: int, damage: str | None = None) -> Outcome:
        """So many kills, then damage, or none.

        Args:
            kills: How many.
            damage: One of `DAMAGES`; None: one of them is drawn, or none.

        Raises:
            TimeoutError: The query does not go on.
        """
        began_s, outcome = time.monotonic(), self.outcome
        if damage is None:
            damage = self._draw.one_of(("", "", *DAMAGES))
        try:
            self._feed.add()
            self._driver.wait(lambda: self._driver.told["rows"], "the first rows")
            self._feed.start()
            for kind in self._struck(kills):
                outcome.kills[kind] += self._strike_somebody(kind)
            if damage:
                outcome.damage = damage if self._harm(damage) else ""
            self._feed.end()
            self._driver.wait(lambda: self._driver.verdict, "the end")
            self._judge()
        finally:
            self._feed.stop()
            self._driver.kill()
            outcome.rows = self._feed.rows
            outcome.seconds = round(time.monotonic() - began_s, 1)
        return outcome

    def _struck(self, kills: int) -> Iterator[str]:
        """The kinds, each at its moment: often while the one before is still being mended."""
        if set(self._kinds) == set(KINDS) and len(self._kinds) == kills:
            drawn = list(self._kinds)  # Each once.
        else:
            drawn = [self._draw.one_of(self._kinds) for _ in range(kills)]
        for kind in drawn:
            if self._draw.percent(60):
                self._wait_for_more_rows()
            time.sleep(self._draw.number(0, 400) / 1_000)  # The moment is what is drawn.
            yield kind

    def _wait_for_more_rows(self) -> None:
        """Where kills take long, the last row may have come long before the last kill."""
        before = self._driver.told["rows"]
        self._driver.wait(
            lambda: self._driver.told["rows"] > before or not self._feed.has_more, "more rows"
        )

    def _nodes(self) -> list[tuple[str, int]]:
        """Those with windows, with their process ids, where they are up."""
        nodes: dict[str, int] = self._driver.told["nodes"]
        return sorted((name, pid) for name, pid in nodes.items() if not name.startswith("rows"))

    def _strike_somebody(self, kind: str) -> bool:
        """Again while those whom the driver has named last have just ended; whether it struck."""
        while not (has_struck := self._strike(kind)) and not self._driver.is_over.is_set():
            time.sleep(0.02)  # Nothing tells of a new process.
        return has_struck

    def _strike(self, kind: str) -> bool:
        """Whether anything was struck."""
        pick = self._draw.number(0, 1 << 20)
        if kind == "driver":
            self._driver.kill()
            self._driver = _started(self._folder, self.outcome)
            self._driver.wait(self._nodes, "nodes of another driver")
            return True
        nodes: list[tuple[str, int]] = []

        def are_up() -> bool:
            nodes[:] = self._nodes()  # As of now: a moment later they may be others, or none.
            return bool(nodes)

        if not self._driver.wait(are_up, "a node"):
            return False
        if kind == "zombie":
            return self._stop(*nodes[pick % len(nodes)])
        struck = nodes if kind == "all" else [nodes[pick % len(nodes)]]
        return sum(_signal(pid, signal.SIGKILL) for _, pid in struck) > 0

    def _stop(self, node: str, pid: int) -> bool:
        """The node stands still until another process has its place; then it goes on."""
        if not _signal(pid, signal.SIGSTOP):
            return False
        try:
            return self._driver.wait(
                lambda: self._driver.told["nodes"].get(node) not in (None, pid),
                f"a replacement of {node}",
            )
        finally:
            _signal(pid, signal.SIGCONT)

    def _harm(self, damage: str) -> bool:
        """Damage a log that a replacement is to read; its node writes nothing behind that."""

        def logs() -> list[tuple[str, int, list[Path]]]:
            known = {c.node for c in eventual_checkpoints(str(self._folder / "location"))}
            return [
                (node, pid, segments)
                for node, pid in self._nodes()
                if node in known and (segments := self._segments(node))
            ]

        stopped: list[tuple[str, int, list[Path]]] = []

        def is_stopped() -> bool:
            """Whom the driver has named last may have ended since."""
            found = logs()
            stopped[:] = [self._draw.one_of(found)] if found else []
            return bool(stopped) and _signal(stopped[0][1], signal.SIGSTOP)

        if not self._driver.wait(is_stopped, "a footprint log"):
            return False
        ((_, pid, segments),) = stopped
        harm(damage, segments, self._draw)
        _signal(pid, signal.SIGKILL)
        return True

    def _segments(self, node: str) -> list[Path]:
        folder = self._folder / "location" / "footprints" / node
        return sorted(path for path in folder.glob("*.seg") if path.stat().st_size)

    def _judge(self) -> None:
        outcome, verdict = self.outcome, self._driver.verdict
        if verdict is None:
            outcome.violations.append("I-LIVE: the driver has ended without a word")
            return
        outcome.recoveries = verdict["recoveries"]
        error = verdict["error"]
        outcome.named = next((name for name in _NAMED if name in error), "")
        if error and not (outcome.damage and outcome.named):
            outcome.violations.append(f"I-LIVE: {error}")
        if not error:
            outcome.violations += [f"I-PRECISE: {said}" for said in verdict["differences"]]


def harm(damage: str, segments: list[Path], draw: Draw) -> None:
    """Damage a log.

    Args:
        damage: One of `DAMAGES`.
        segments: Its files, oldest first; one at least.
        draw: Which one, and where.
    """
    segment = segments[-1] if damage == "tear" else draw.one_of(segments)
    size = segment.stat().st_size
    if damage == "lose":
        segment.unlink()
    elif damage == "tear":
        os.truncate(segment, draw.number(0, size - 1))
    else:
        with segment.open("r+b") as file:
            file.seek(draw.number(0, size - 1))
            byte = file.read(1)[0] ^ 1 << draw.number(0, 7)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte]))


def _signal(pid: int, number: int) -> bool:
    """Whether there was such a process."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


# -- the query, in the process that is killed ----------------------------------------------------


def flow_of(path: str, units: tuple[str, ...]) -> hf.Dataflow:
    """Windows over an ingest log, each kind in a unit with a sink of its own."""
    flow = hf.Dataflow("struck")
    rows = flow.source_log(path, name="rows")
    for unit in units:
        if unit == "slow":
            made = rows.select("n % 997 AS k", "n").key_by("k").window(hf.tumbling("1 hour"))
        elif unit == "fast":
            made = rows.select("n % 13 AS k", "n").key_by("k").window(hf.tumbling("10 seconds"))
        elif unit == "counted":
            made = rows.select("n % 101 AS k", "n").key_by("k").window(hf.counting(50, 20))
        elif unit == "begun":
            first = hf.sliding("1 minute", "20 seconds", alignment="first")
            made = rows.select("n % 37 AS k", "n").key_by("k").window(first)
        elif unit == "sessions":
            bursts = rows.select("n - n % 300 AS burst", "n").select("burst % 1500 AS k", "n")
            made = bursts.key_by("k").window(hf.sessions("1 minute"))
        else:
            left, right = (rows.filter(f"n % 10 = {at}") for at in (0, 1))
            left, right = left.select("n % 70 AS k", "n"), right.select("(n - 1) % 70 AS k", "n")
            wanted = ["left.n AS one", "right.n AS other"]
            windows = left.window(hf.tumbling("1 minute"))
            windows.join(right, on="k", select=wanted, name=unit).sink(f"{unit}_out")
            continue
        made.aggregate("count(*) AS many", "sum(n) AS total", name=unit).sink(f"{unit}_out")
    return flow


def _drive(folder: Path, units: tuple[str, ...]) -> None:
    """Run the query to its end; tell of its nodes, and what it came to."""
    spark = hf.session("holdfast-eventual-kills")
    spark.sparkContext.setLogLevel("OFF")
    flow = flow_of(str(folder / "rows"), units)
    often = hf.EventualCheckpoints(share=0.2, extent="64 KiB")
    query = flow.start(
        spark,
        checkpointLocation=str(folder / "location"),
        protection=dict.fromkeys(units, often),
        options={"spark.holdfast.failuresMax": "1000"},
    )
    follow(query, units)


def follow(query: Query, units: tuple[str, ...]) -> None:
    """Tell of a query's nodes until it is over, and then what it came to: `QueryDriver.verdict`."""
    told: dict[str, Any] = {}
    while query.isActive:
        nodes = {node: pid for node, pid in query.nodes.items() if pid}
        now = {"nodes": nodes, "rows": query.lastProgress["numInputRows"]}
        if now != told:
            told = now
            tell(told)
        time.sleep(0.02)  # Nothing tells of a new process.
    differences = []
    for unit in units if query.exception() is None else ():
        found = query.verify(f"{unit}_out")
        if not found.is_identical:
            said = f"{found.lost} lost, {found.doubled} doubled, {found.gaps} gaps"
            differences.append(f"{unit}: {said}: {'; '.join(found.sample)}")
    rows = query.lastProgress["numInputRows"]
    conclude(query.exception(), differences, recoveries=len(query.recoveries), rows=rows)


def conclude(
    error: BaseException | None, differences: list[str], *, recoveries: int = 0, rows: int = 0
) -> None:
    """Tell what a query came to; `wait` and `verdict` of a `QueryDriver` look for it."""
    verdict = {
        "error": "" if error is None else f"{type(error).__name__}: {error}",
        "differences": differences,
        "recoveries": recoveries,
    }
    tell({"nodes": {}, "rows": rows, "verdict": verdict})


# -- the command --------------------------------------------------------------------------------


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="0:1", help="first:behind the last")
    parser.add_argument("--kills", type=int, default=10, help="of each seed")
    parser.add_argument("--damage", choices=("", *DAMAGES), help="of each seed; else drawn")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    parser.add_argument("units", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        _drive(Path(given.drive), tuple(given.units))
        return
    is_right = True
    for seed in seeds_in(given.seeds):
        with tempfile.TemporaryDirectory(prefix="holdfast-eventual-") as folder:
            outcome = Run(seed, Path(folder)).execute(given.kills, given.damage)
            print(json.dumps(asdict(outcome)), flush=True)
            is_right &= not outcome.violations
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    _main()
