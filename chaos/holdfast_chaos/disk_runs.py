"""Windows whose disks refuse, are full or slow, and whose clocks leap; by seed, for real.

The query runs in a process of its own. This process writes its input, on a sound disk, and strikes:
nodes or the driver meet errors of the disk for a while, or the location's file system has no room,
or it is slow, or the time of day leaps (failing_machine.py). Every run ends in one of two ways. All
sinks hold what Spark makes of all rows. Or the query has ended with an error of ours that names the
place; then the disk heals, the same location is started again, and all sinks hold that.

A seed is an intent and not a replay: kinds and moments are drawn, the machine has its own time.

    python -m holdfast_chaos.disk_runs --seeds 0:14
    python -m holdfast_chaos.disk_runs --seeds 0:5 --kind full
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast as hf
from holdfast.shell.storage import errors
from holdfast.shell.storage.errors import StorageError
from holdfast.sim.draw import Draw
from holdfast_chaos.eventual_kills import Feed, QueryDriver, conclude, flow_of, follow
from holdfast_chaos.failing_machine import (
    READ,
    SHORT,
    SYNC,
    WRITE,
    Clock,
    FaultPoints,
    NotHere,
    SmallDisk,
)
from holdfast_chaos.promises import protection_named
from holdfast_chaos.seeds import seeds_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS: Final = {
    "sync": "the disk refuses to sync, with EIO, in a node or the driver",
    "write": "the disk refuses to write, with EIO, in a node or the driver",
    "read": "the disk refuses to read, with EIO, in what replaces a killed node",
    "short": "all that is written and read comes in pieces",
    "full": "the location's file system has no room left",
    "slow": "the location's file system takes some ten or hundred kilobytes a second",
    "clock": "the time of day leaps by up to a day, either way, of the driver and all nodes",
}
POINTS: Final = {"sync": SYNC, "write": WRITE, "read": READ, "short": SHORT}
_ON_DISK: Final = ("full", "slow")
PROTECTIONS: Final = (
    "upstream backup",
    "checkpoints",
    "eventual checkpoints",
    "passive standby",
)
UNITS: Final = ("fast", "sessions")
_DISK_MB: Final = 48
_STRIKES: Final = 3
_LOADED_FIRST: Final = (
    "holdfast.core.operators.bsort",
    "holdfast.api.dataflow",
    "holdfast.driver.starting",
    "holdfast.driver.verification",
)
_MODULE: Final = "holdfast_chaos.disk_runs"
_OPTIONS: Final = {
    "spark.holdfast.failuresMax": "1000",
    # Nodes are forks of another daemon than the warm one: it has their environment, and comes late.
    "spark.holdfast.launchTimeoutMs": "240000",
}
_NAMED: Final = tuple(
    each.__name__
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, StorageError)
)


@dataclass(slots=True)
class Outcome:
    """How the run of a seed went.

    Attributes:
        seed: Of the run.
        kind: One of `KINDS`.
        protection: Of all units.
        struck: How many strikes found somebody.
        named: The errors that ended the query.
        rows: That were written.
        drivers: How many were started.
        recoveries: That the last driver has seen.
        violations: What must not be.
        seconds: All of it.
    """

    seed: int
    kind: str
    protection: str
    struck: int = 0
    named: list[str] = field(default_factory=list)
    rows: int = 0
    drivers: int = 0
    recoveries: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


def draw_run(seed: int, kind: str = "") -> Outcome:
    """What a seed runs, each kind after the other; or this one."""
    draw = Draw(f"{seed}/disk-runs")
    return Outcome(seed, kind or list(KINDS)[seed % len(KINDS)], draw.one_of(PROTECTIONS))


class Run:
    """One seed: strikes at disks or clocks, and what the sinks hold then."""

    def __init__(self, outcome: Outcome, folder: Path, module: str = _MODULE) -> None:
        """Nothing is running yet. Raises `NotHere` if the machine cannot have such faults.

        Args:
            outcome: Says what to run; filled in.
            folder: For everything; empty.
            module: What runs the query, by `drive`.
        """
        self.outcome = outcome
        self._module = module
        self._draw = Draw(f"{outcome.seed}/disk-runs/{outcome.kind}")
        self._folder = folder
        tools = folder / "tools"
        tools.mkdir()
        kind = outcome.kind
        self._points = FaultPoints(tools) if kind in POINTS else None
        self._clock = Clock(tools) if kind == "clock" else None
        self._disk = SmallDisk(folder, _DISK_MB) if kind in _ON_DISK else None
        self._location = (self._disk.place if self._disk else folder) / "location"
        self._feed = Feed(folder / "rows")

    def execute(self) -> Outcome:
        """Strike some times, heal, and start again as long as errors end the query.

        Raises:
            TimeoutError: The query does not go on.
        """
        began_s, outcome = time.monotonic(), self.outcome
        self._driver = self._started(self._tools())
        try:
            self._feed.add()
            self._driver.wait(lambda: self._driver.told["rows"], "the first rows")
            self._feed.start()
            for _ in range(self._draw.number(1, _STRIKES)):
                while not (has_struck := self._strike()) and not self._error():
                    time.sleep(0.02)  # Whom the driver has named last had ended; others come.
                outcome.struck += has_struck
                if self._driver.verdict is not None or self._driver.is_over.is_set():
                    self._start_again(self._tools())
                    self._driver.wait(lambda: self._driver.told["nodes"], "nodes of a driver")
            self._feed.end()
            self._driver.wait(lambda: self._driver.verdict, "the end")
            if self._error():
                self._start_again({})
                self._driver.wait(lambda: self._driver.verdict, "the end after the disk healed")
            self._judge()
        finally:
            self._feed.stop()
            self._driver.kill()
            self._leave()
            outcome.rows = self._feed.rows
            outcome.seconds = round(time.monotonic() - began_s, 1)
        return outcome

    def _tools(self) -> dict[str, str]:
        """The environment of a driver that is to be struck."""
        tool = self._points or self._clock
        return {} if tool is None else tool.environment

    def _started(self, environment: dict[str, str]) -> QueryDriver:
        self.outcome.drivers += 1
        arguments = [
            *("--drive", str(self._folder), "--at", str(self._location)),
            *("--protection", self.outcome.protection),
            *("--environment", json.dumps(environment)),
        ]
        return QueryDriver(self._module, arguments, self._folder, environment)

    def _error(self) -> str:
        """What has ended the query; empty: nothing, or it goes on."""
        verdict = self._driver.verdict
        if verdict is not None:
            return str(verdict["error"])
        return "the driver has ended without a word" if self._driver.is_over.is_set() else ""

    def _start_again(self, environment: dict[str, str]) -> None:
        """Behind an error, which must have a name and a place."""
        error = self._error()
        name = next((name for name in _NAMED if name in error), "")
        if name and str(self._location) in error:
            self.outcome.named.append(name)
        else:
            self.outcome.violations.append(f"I-NAMED: {error}")
        self._driver.kill()
        self._driver = self._started(environment)

    def _strike(self) -> bool:
        """Once, and heal; whether somebody was struck."""
        time.sleep(self._draw.number(200, 1_500) / 1_000)  # The moment is what is drawn.
        length_s = self._draw.number(100, 2_000) / 1_000
        if self._points is not None:
            return self._refuse(self._points, length_s)
        if self._disk is not None and self.outcome.kind == "full":
            self._disk.fill(self._draw.one_of((0, 4_096, 100_000)))
            self._wait(length_s)
            self._disk.make_room()
        elif self._disk is not None:
            self._disk.slow_down(self._driver.pid, self._draw.one_of((10_000, 100_000)))
            self._wait(length_s)
            self._disk.slow_down(self._driver.pid, 0)
        elif self._clock is not None:
            self._clock.leap(self._draw.one_of((-86_400, -3_600, -3, 3, 3_600, 86_400)))
            self._wait(length_s + 1)  # It leaps within a second.
            self._clock.leap(0)
        return True

    def _refuse(self, points: FaultPoints, length_s: float) -> bool:
        kind = self.outcome.kind
        nodes = sorted(self._driver.told["nodes"].values())
        if not nodes:
            return False
        pid = self._draw.one_of(nodes)
        if kind in ("sync", "write") and self._draw.percent(25):
            pid = self._driver.pid
        pids = [pid]
        if kind == "read":  # Whoever replaces the node is a fork of its parent.
            pids = [_parent_of(pid), *nodes]
        elif kind == "short":
            pids = [self._driver.pid, *nodes]
        struck = sum(points.fail(pid, POINTS[kind]) for pid in pids)
        if kind in ("read", "short") and pid != self._driver.pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._wait(length_s)
        for pid in {*pids, *self._driver.told["nodes"].values()}:
            points.heal(pid, POINTS[kind])
        return bool(struck)

    def _wait(self, length_s: float) -> None:
        """So long, or until the query has ended."""
        deadline_s = time.monotonic() + length_s
        while time.monotonic() < deadline_s and not self._error():
            time.sleep(0.02)  # Nothing tells of an error.

    def _judge(self) -> None:
        outcome, verdict = self.outcome, self._driver.verdict
        if verdict is None:
            outcome.violations.append("I-LIVE: the driver has ended without a word")
            return
        outcome.recoveries = verdict["recoveries"]
        if verdict["error"]:
            outcome.violations.append(f"I-LIVE: {verdict['error']}")
        outcome.violations += [f"I-PRECISE: {said}" for said in verdict["differences"]]

    def _leave(self) -> None:
        if self._disk is not None:
            self._disk.close()
        if self._clock is not None:
            self._clock.sweep()


def _parent_of(pid: int) -> int:
    """Of a process; its own id if it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    return pid


# -- the query, in a process of its own -----------------------------------------------------------


def drive(spark: SparkSession, given: argparse.Namespace) -> None:
    """Run the query to its end; say what it came to."""
    try:
        query = flow_of(str(Path(given.drive) / "rows"), UNITS).start(
            spark,
            checkpointLocation=given.at,
            protection=protection_named(given.protection),
            options=_OPTIONS,
        )
    except Exception as error:  # The run looks at its name.
        conclude(error, [])
    else:
        follow(query, UNITS)


def _drive_on_spark(given: argparse.Namespace) -> None:
    """The same, its nodes in the environment that they are given."""
    os.environ.pop("LD_PRELOAD", None)  # Spark's Java is no part of this.
    for module in _LOADED_FIRST:  # A session loads them in a thread; see failing_machine.py.
        importlib.import_module(module)
    spark = hf.session("holdfast-disk-runs")
    spark.sparkContext.setLogLevel("OFF")
    spark.sparkContext.environment.update(json.loads(given.environment))
    drive(spark, given)


# -- the command ----------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    """Of the command, and of the process that runs the query."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", default="0:1", help="first:behind the last")
    parser.add_argument("--kind", choices=list(KINDS), default="", help="of each seed")
    for hidden in ("--drive", "--at", "--protection", "--environment"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    return parser.parse_args()


def _main() -> None:
    given = arguments()
    if given.drive:
        _drive_on_spark(given)
        return
    is_right = True
    for seed in seeds_in(given.seeds):
        outcome = draw_run(seed, given.kind)
        with tempfile.TemporaryDirectory(prefix="holdfast-disk-") as folder:
            try:
                Run(outcome, Path(folder)).execute()
            except NotHere as lacking:
                sys.exit(f"{outcome.kind}: this machine lacks {lacking}")
            except TimeoutError as error:
                outcome.violations.append(f"I-LIVE: {error}")
        print(json.dumps(asdict(outcome)), flush=True)
        is_right &= not outcome.violations
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    _main()
