"""Runs on a standalone cluster under faults: executors, workers and the driver killed, cut, healed.

The driver is a program of its own (`cluster_job`). Whoever strikes reads what it says of its nodes,
finds their processes among the workers', and follows the sink's log, which tells when the first new
output came.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import pyarrow as pa

import holdfast
from holdfast.errors import HoldfastError
from holdfast.nexmark.source import now_us
from holdfast.shell.spark.executors import WARM
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.log_follower import LoggedBatch
from holdfast.shell.storage.paths import stream_path
from holdfast.shell.storage.stream_log import StreamLogReader
from holdfast_chaos import cluster_job
from holdfast_chaos.cluster_job import (
    CHECKPOINTED,
    END,
    LOGGED,
    STATUS,
    TOGETHER,
    ClusterRun,
    put,
)
from holdfast_chaos.promises import BY_ARRIVAL
from holdfast_chaos.standalone import StandaloneCluster, kill_session, wait_for_end
from holdfast_chaos.tap import Tap

FAULTS: Final = {
    "none": "nothing",
    "executor": "kill -9 of the executor that holds the stateful node, its sink and a data node",
    "worker": "kill -9 of the worker whose executor holds that; started again a second later",
    "two-executors": "kill -9 of that executor and of another one at the same time",
    "two-workers": "kill -9 of that worker and of another one at the same time",
    "cut": "that worker cut off from the network for 5 s at least, and healed",
    "driver": "kill -9 of the driver, and the same submitted again",
    "standby": "kill -9 of the driver, and another one is in standby",
    "region": "kill -9 of the executor that holds a node of units that recover together",
    "leaving": "that executor told to leave (decommissioned): its nodes are to be elsewhere first",
}
_VICTIMS: Final = {"q1": "ingest[0]", "q12": "counts[0]", "q3": "join[0]", "q8": "join[0]"}
_QUERY_OF: Final = dict.fromkeys(TOGETHER, "q12 by arrival")
_CUT_S: Final = 5.0
_RESTART_S: Final = 1.0
_LEAVE_S: Final = 30.0
_START_S: Final = 240.0
_TIMEOUT_S: Final = 600.0
_POLL_S: Final = 0.1
"""As often as a driver says what it does."""
_WATCH_S: Final = 0.002
_COMMAND_LINE: Final = str(Path(holdfast.__file__).parent / "cli" / "main.py")
_AHEAD_S: Final = 3.0
_FLOWING_SHARE: Final = 0.5
"""Of the input that may flow at its rate before everybody is well again."""
_HELD_SHARE: Final = 0.95
"""Of the input beyond which nothing flows before that; up to there it comes drop by drop."""
_DROP_TUPLES: Final = 200
_DROP_S: Final = 0.5


class RunFailed(HoldfastError):
    """A run did not come as far as it had to; says what was seen last."""


@dataclass(slots=True)
class FaultOutcome:
    """How a run under one fault went.

    Attributes:
        fault: Its kind.
        run: What ran.
        result: What the driver says of it in the end.
        first_output_ms: From the fault to the first output of a later incarnation; None: none came,
            or none was needed.
        held: What the struck worker held: nodes, secondaries, data nodes.
        violations: What was not as it must be.
    """

    fault: str
    run: ClusterRun
    result: dict[str, Any] = field(default_factory=dict)
    first_output_ms: float | None = None
    held: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain values, without places on this machine."""
        run = {key: value for key, value in asdict(self.run).items() if key != "location"}
        result = {key: value for key, value in self.result.items() if key != "run"}
        return {
            "fault": self.fault,
            "run": run,
            **result,
            "first_output_ms": self.first_output_ms,
            "held": self.held,
            "violations": self.violations,
        }


class Sink:
    """Follows the log of a run's only sink, and keeps what it says."""

    def __init__(self, run: ClusterRun) -> None:
        """The log need not exist yet."""
        self._path = stream_path(run.location, run.sink, 0)
        self._reader: StreamLogReader | None = None
        self._batches: list[pa.RecordBatch] = []
        self.incarnation = 0
        self.next_id = 0
        self.gaps = 0

    def poll(self) -> None:
        """Take what is there."""
        with contextlib.suppress(StorageError, FileNotFoundError):  # Not there yet.
            if self._reader is None:
                self._reader = StreamLogReader(self._path)
            while batches := self._reader.poll():
                for logged in batches:
                    self._take_logged(logged)

    def _take_logged(self, logged: LoggedBatch) -> None:
        self.gaps += logged.first_id != self.next_id
        self.next_id = logged.first_id + logged.count
        self.incarnation = max(self.incarnation, logged.incarnation)
        self._batches.append(logged.batch)

    def rows(self) -> pa.Table:
        """All rows, in order."""
        if not self._batches:
            return pa.table({})
        return pa.Table.from_batches(self._batches).combine_chunks()


def compare(found: Sink, reference: pa.Table) -> dict[str, Any]:
    """How a sink's log differs from that of a run without faults, tuple by tuple and in order."""
    rows = found.rows()
    is_identical = rows.equals(reference) and not found.gaps
    lost = doubled = 0
    if not is_identical:
        wanted, had = (Counter(map(str, table.to_pylist())) for table in (reference, rows))
        lost, doubled = (wanted - had).total(), (had - wanted).total()
    return {
        "is_identical": is_identical,
        "lost": lost,
        "doubled": doubled,
        "gaps": found.gaps,
        "output_tuples": rows.num_rows,
        "sample": "",
    }


class ClusterDriver:
    """One submitted driver.

    Attributes:
        asked: How many runs it was asked for.
        is_one_of_two: Whether it leaves half of the slots to another one.
    """

    def __init__(
        self, cluster: StandaloneCluster, folder: Path, *, is_one_of_two: bool = False
    ) -> None:
        """Submit it.

        Args:
            cluster: Where.
            folder: Its own.
            is_one_of_two: Whether it leaves half of the slots to another one.
        """
        folder.mkdir(parents=True)
        self.is_one_of_two = is_one_of_two
        self._folder = folder
        self._log: IO[bytes] = (folder / "driver.log").open("wb")
        conf = cluster.part_of_slots() if is_one_of_two else {}
        self._process = cluster.submit(cluster_job.__file__, str(folder), conf=conf, log=self._log)
        self.asked = 0
        self._version = (0, 0)  # of the word that was read last
        self._said: dict[str, Any] = {}

    def ask(self, run: ClusterRun) -> int:
        """Have it run something; its number."""
        number = self.asked
        self.asked += 1
        put(self._folder / f"run-{number}.json", asdict(run))
        return number

    def status(self) -> dict[str, Any]:
        """What it said last; empty before the first word."""
        path = self._folder / STATUS
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            version = found.st_ino, found.st_mtime_ns
            if version != self._version:  # Who watches closely asks more often than it speaks.
                self._said = json.loads(path.read_text())
                self._version = version
        return self._said

    def is_in_standby(self, location: str, executors: int) -> bool:
        """Whether it has said that it waits there, and that so many executors are warm."""
        said = (self._folder / LOGGED).read_text()
        return f"in standby at {location}\n" in said and said.count(WARM) >= executors

    def result(self, number: int) -> dict[str, Any] | None:
        """How a run went; None: it goes on."""
        try:
            found: dict[str, Any] = json.loads((self._folder / f"result-{number}.json").read_text())
        except FileNotFoundError:
            return None
        return found

    def wait(
        self,
        is_so: Callable[[], bool],
        what: str,
        timeout_s: float = _TIMEOUT_S,
        every_s: float = _POLL_S,
    ) -> None:
        """Look until something holds. Raises `RunFailed`."""
        deadline_s = time.monotonic() + timeout_s
        while not is_so():
            if self._process.poll() is not None:
                raise RunFailed(f"{what}: the driver has ended; {self._last_words()}")
            if time.monotonic() > deadline_s:
                raise RunFailed(f"{what} did not come in {timeout_s:.0f} s; {self.status()}")
            time.sleep(every_s)  # The driver tells by a file.

    def wait_until_up(self) -> None:
        """Until it takes runs."""
        self.wait(lambda: bool(self.status()), "the driver's start", _START_S)

    def _last_words(self) -> str:
        logs = [self._folder / name for name in ("driver.log", LOGGED)]
        said = " ".join(log.read_text(errors="replace")[-2000:] for log in logs if log.exists())
        printed = self._process.stdout.read()[-2000:] if self._process.stdout else ""
        return f"{said} {printed}"

    def kill(self) -> None:
        """SIGKILL to all its processes."""
        kill_session(self._process)
        self._close()

    def close(self) -> None:
        """Have it end."""
        put(self._folder / END, 0)
        with contextlib.suppress(Exception):
            self._process.wait(20)
        self.kill()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._log.close()


class _Input:
    """What comes of a run's sources before all is well: at first at their rate, then in drops.

    New output, and another checkpoint, need new input.
    """

    def __init__(self, run: ClusterRun) -> None:
        """The first part flows."""
        self.tap = Tap(run.tap, int(_FLOWING_SHARE * run.most))
        self._most = int(_HELD_SHARE * run.most)
        self._next_s = 0.0

    def drip(self) -> None:
        """Another drop, if it is time; there is a last one."""
        now_s = time.monotonic()
        if now_s > self._next_s:
            self._next_s = now_s + _DROP_S
            self.tap.trickle(_DROP_TUPLES, self._most)


class ClusterRuns:
    """Runs on one cluster, one after the other, each with a fault."""

    def __init__(
        self,
        cluster: StandaloneCluster,
        folder: Path,
        *,
        watch_s: float = _WATCH_S,
        stands_by_again: bool = True,
    ) -> None:
        """Nothing runs before the first.

        Args:
            cluster: Where.
            folder: For checkpoint locations and drivers.
            watch_s: How often to look for the first new output; `first_output_ms` is as exact.
            stands_by_again: Whether another driver comes up, for a later run, once the one in
                standby has taken over.
        """
        self._cluster = cluster
        self._folder = folder
        self._watch_s = watch_s
        self._stands_by_again = stands_by_again
        self._driver: ClusterDriver | None = None
        self._other: ClusterDriver | None = None  # in standby, or to be
        self._asked_other = ""  # the location at which it was asked to be
        self._drivers = 0
        self._locations = 0
        self._references: dict[tuple[str, str, float, int], pa.Table] = {}
        self._repairs: list[tuple[float, Callable[[], None]]] = []
        self._leaving: list[int] = []  # processes of executors that end by themselves

    def close(self) -> None:
        """End the drivers."""
        if self._other is not None:
            self._other.kill()  # It leads nothing.
        if self._driver is not None:
            self._driver.close()
        self._driver = self._other = None

    def _up(self, *, is_one_of_two: bool = False) -> ClusterDriver:
        if self._driver is not None and self._driver.is_one_of_two != is_one_of_two:
            self.close()
        if self._driver is None:
            self._driver = self._submit(is_one_of_two=is_one_of_two)
            self._driver.wait_until_up()
            self._cluster.wait_for_executors()
        if is_one_of_two:
            self._other = self._other or self._submit(is_one_of_two=True)
            self._other.wait_until_up()
        return self._driver

    def reference(self, query: str, seconds: float, seed: int) -> FaultOutcome:
        """A run that nothing happens to, compared with Spark SQL; faulty ones are with it."""
        return self.execute("none", "upstream", query=query, seconds=seconds, seed=seed)

    def execute(
        self,
        fault: str,
        protection: str,
        *,
        query: str | None = None,
        seconds: float = 10.0,
        after_s: float = 2.0,
        seed: int = 1,
    ) -> FaultOutcome:
        """Run, strike, check.

        Args:
            fault: One of `FAULTS`.
            protection: One of `cluster_job.PROTECTIONS`.
            query: Of NexMark; None: q12, by arrival where units are to recover together.
            seconds: For how long there is input.
            after_s: When to strike, in seconds of input.
            seed: Of the generator.

        What comes out is compared with what a run without faults puts out, which is made first,
        and that with Spark SQL. If its order is not known, it is compared with Spark SQL itself.
        """
        query = query or _QUERY_OF.get(protection, "q12")
        key = query, "changes", seconds, seed
        is_by_arrival = query in BY_ARRIVAL
        if not (fault == "none" or is_by_arrival or key in self._references):
            first = self.reference(query, seconds, seed)
            if first.violations:
                return first
        verifies = fault == "none" or is_by_arrival
        driver = self._up(is_one_of_two=fault == "standby")
        self._locations += 1
        run = ClusterRun(
            *(query, protection, seconds, now_us() + int(_AHEAD_S * 1e6)),
            str(self._folder / f"location-{self._locations}"),
            seed=seed,
            verifies=verifies,
            is_standby=fault == "standby",
            tap="" if fault == "none" else str(self._folder / f"tap-{self._locations}"),
        )
        outcome = FaultOutcome(fault, run)
        self._execute(driver, outcome, after_s, key)
        _judge(outcome)
        self._mend()
        return outcome

    def _execute(
        self,
        driver: ClusterDriver,
        outcome: FaultOutcome,
        after_s: float,
        key: tuple[str, str, float, int],
    ) -> None:
        """Run and strike. However long that takes, input does not end before all is well."""
        fault, run = outcome.fault, outcome.run
        try:
            if fault == "none":
                number = driver.ask(run)
            else:
                input_ = _Input(run)
                number = driver.ask(run)
                self._wait_until_due(driver, number, run, after_s, input_)
                driver, number = self._strike(driver, number, outcome, input_)
                input_.tap.open()
            driver.wait(lambda: driver.result(number) is not None, f"the end of {fault}")
            outcome.result = driver.result(number) or {}
            if run.is_by_arrival:
                return  # The driver has compared it.
            sink = Sink(run)
            sink.poll()
            if fault == "none":
                self._references[key] = sink.rows()
            else:
                outcome.result |= compare(sink, self._references[key])
        except RunFailed as error:
            outcome.violations.append(f"I-LIVE: {error}")
            for each in (self._driver or driver, self._other):
                if each is not None:
                    each.kill()
            self._driver = self._other = None

    def _wait_until_due(
        self, driver: ClusterDriver, number: int, run: ClusterRun, after_s: float, input_: _Input
    ) -> None:
        """Until there was so much input, all replicas are ready and a checkpoint is stored."""
        wanted = int(run.rate * after_s)

        def is_due() -> bool:
            _require_running(driver, number)
            status = driver.status()
            if not _are_ready(status, number) or not self._has_other(run):
                return False
            input_.drip()
            is_kept = run.protection not in CHECKPOINTED or status["checkpoints"] > 1
            has_data_nodes = run.protection != "embedded" or len(status["data_nodes"]) == 3
            has_victim = self._victim(run, status) is not None
            has_input = status["input_tuples"] >= wanted
            return has_victim and is_kept and has_data_nodes and has_input

        driver.wait(is_due, "the time of the fault")

    def _has_other(self, run: ClusterRun) -> bool:
        """Whether another driver is in standby and warm, if the run wants one; it is asked once."""
        other = self._other
        if other is None:
            return True
        if self._asked_other != run.location:
            self._asked_other = run.location
            other.ask(run)
        return other.is_in_standby(run.location, len(self._cluster.workers))

    # -- faults -----------------------------------------------------------------------------

    def _victim(self, run: ClusterRun, status: dict[str, Any]) -> int | None:
        """The worker of the node that is struck; None: the node is just being replaced."""
        return self._cluster.worker_of(status["nodes"][_VICTIMS[run.sink]][0]["pid"])

    def _strike(
        self, driver: ClusterDriver, number: int, outcome: FaultOutcome, input_: _Input
    ) -> tuple[ClusterDriver, int]:
        """Do what the fault says and wait until all is well; who runs it from now on."""
        run = outcome.run
        status, sink = driver.status(), Sink(run)
        victim = self._victim(run, status)
        if victim is None:
            raise RunFailed(f"the victim ended before it was struck: {status}")
        outcome.held = self._held(victim, status)
        sink.poll()
        before, struck_s = sink.incarnation, time.monotonic()
        recovered = _recoveries(status, run)
        if outcome.fault == "driver":
            driver.kill()
            driver = self._driver = self._submit()
            number = driver.ask(run)
        elif self._other is not None:
            driver.kill()
            driver, self._other = self._other, None
            self._driver, number = driver, driver.asked - 1
        else:
            self._strike_workers(outcome.fault, self._struck(outcome.fault, victim, status))

        def is_mended() -> bool:
            """Output, and of a node the driver too, says that somebody has taken over."""
            _require_running(driver, number)
            if outcome.fault != "cut":  # Nobody is to come back who could make others needless.
                self._repair()
            sink.poll()
            if sink.incarnation > before and outcome.first_output_ms is None:
                outcome.first_output_ms = round((time.monotonic() - struck_s) * 1e3, 1)
            if _are_ready(driver.status(), number):
                input_.drip()
            # Another replica's output needs nobody to take over.
            if outcome.first_output_ms is None and run.protection != "replicated":
                return False
            if outcome.fault in ("driver", "standby"):
                return True
            return _recoveries(driver.status(), run) > recovered

        driver.wait(is_mended, "the first new output", every_s=self._watch_s)
        while self._repairs:
            self._repair()
            time.sleep(_POLL_S)  # Repairs are due at times of their own.
        if run.is_standby and self._stands_by_again:
            self._other = self._submit(is_one_of_two=True)  # It comes up while the run goes on.
        return driver, number

    def _held(self, worker: int, status: dict[str, Any]) -> list[str]:
        """What a worker's executor holds."""
        tasks = {f"data node {name}": pid for name, pid in status["data_nodes"].items()}
        for node, replicas in status["nodes"].items():
            tasks |= {f"{replica['role']} of {node}": replica["pid"] for replica in replicas}
        return sorted(name for name, pid in tasks.items() if self._cluster.worker_of(pid) == worker)

    def _struck(self, fault: str, victim: int, status: dict[str, Any]) -> list[int]:
        """The workers that a fault strikes: the victim's, and of two another one with tasks."""
        if not fault.startswith("two"):
            return [victim]
        busy = [worker for worker in self._cluster.workers if self._held(worker, status)]
        return [victim, *[worker for worker in busy if worker != victim][:1]]

    def _strike_workers(self, fault: str, workers: list[int]) -> None:
        now_s = time.monotonic()
        for worker in workers:
            if fault in ("executor", "two-executors", "region"):
                for pid in self._cluster.executors(worker):
                    os.kill(pid, signal.SIGKILL)
            elif fault == "leaving":
                self._leaving = self._cluster.executors(worker)
                for pid in self._leaving:
                    os.kill(pid, signal.SIGPWR)  # As Kubernetes has Spark do it.
            elif fault in ("worker", "two-workers"):
                self._cluster.kill_worker(worker)
                again = partial(self._cluster.start_worker, worker)
                self._repairs.append((now_s + _RESTART_S, again))
            else:
                self._cluster.hosts.cut(worker)
                heal = partial(self._cluster.hosts.heal, worker)
                self._repairs.append((now_s + _CUT_S, heal))

    def _repair(self) -> None:
        """What a supervisor, or whoever sees to the network, does when it is time."""
        for repair in [r for r in self._repairs if r[0] <= time.monotonic()]:
            self._repairs.remove(repair)
            repair[1]()

    def _mend(self) -> None:
        """Whatever happened: all workers are there again, and all their executors."""
        for _, action in self._repairs:
            action()
        self._repairs.clear()
        wait_for_end(self._leaving, _LEAVE_S)
        self._leaving = []
        for worker in self._cluster.workers:
            self._cluster.wait_for_worker(worker)
        if self._driver is not None:
            self._cluster.wait_for_executors()

    def _submit(self, *, is_one_of_two: bool = False) -> ClusterDriver:
        self._drivers += 1
        folder = self._folder / f"driver-{self._drivers}"
        return ClusterDriver(self._cluster, folder, is_one_of_two=is_one_of_two)


def _require_running(driver: ClusterDriver, number: int) -> None:
    """Raise `RunFailed` if a run has ended though its input has not."""
    result = driver.result(number)
    if result is not None:
        raise RunFailed(result["error"] or "it ended before its input did")


def _recoveries(status: dict[str, Any], run: ClusterRun) -> int:
    """How often the node that is struck has recovered."""
    nodes: list[str] = status["recovered"]
    return nodes.count(_VICTIMS[run.sink])


def _are_ready(status: dict[str, Any], number: int) -> bool:
    """Whether a run goes on, and all its replicas are ready."""
    if status.get("run") != number or not status.get("is_active"):
        return False
    nodes = status["nodes"].values()
    return all(r["is_ready"] and r["pid"] for replicas in nodes for r in replicas)


def _judge(outcome: FaultOutcome) -> None:
    """What must hold, whatever was struck."""
    result = outcome.result
    if result.get("error"):
        outcome.violations.append(f"I-LIVE: {result['error']}")
    elif result and not result["is_identical"]:
        lost = f"{result['lost']} lost, {result['doubled']} doubled, {result['gaps']} gaps"
        outcome.violations.append(f"I-PRECISE: {lost}: {result['sample']}")
    if result and not result.get("error") and not result["output_tuples"]:
        outcome.violations.append("I-LIVE: the sink is empty")
    failures = result.get("failures")
    if outcome.fault not in ("none", "driver", "standby", "leaving") and result and not failures:
        outcome.violations.append("I-COUNT: a worker was struck and no failure was reported")
    if outcome.fault == "leaving" and failures:
        outcome.violations.append(f"I-COUNT: nobody had to miss what left: {failures}")


def run_program(
    cluster: StandaloneCluster, folder: Path, *arguments: str, timeout_s: float = _TIMEOUT_S
) -> dict[str, Any]:
    """Submit `holdfast` itself with these arguments; what it says with `--json`.

    Raises:
        RunFailed: It did not end in time, or said nothing.
    """
    folder.mkdir(parents=True)
    places = ("--json", "--location", str(folder / "location"))
    with (folder / "driver.log").open("wb") as log:
        process = cluster.submit(_COMMAND_LINE, *arguments, *places, log=log)
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"{' '.join(arguments)} did not end in {timeout_s:.0f} s") from None
        finally:
            kill_session(process)
    lines = said.splitlines()
    if "{" not in lines:
        raise RunFailed(f"{' '.join(arguments)}: {said[-2000:]}")
    found: dict[str, Any] = json.loads("\n".join(lines[lines.index("{") :]))
    return found
