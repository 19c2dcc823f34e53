"""Disks that refuse, are full or slow, and clocks that leap: the tools, and runs under each."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast_chaos.disk_runs import KINDS, PROTECTIONS, Run, draw_run
from holdfast_chaos.failing_machine import READ, SYNC, Clock, FaultPoints, NotHere, SmallDisk

_SYNC = """
import os, sys
child = os.fork()
file = os.open(sys.argv[1] + ("/child" if child == 0 else "/parent"), os.O_CREAT | os.O_RDWR)
say = lambda word: os.write(1, f"{word}\\n".encode())  # At once: the two share the pipe.
say(os.getpid())
for _ in sys.stdin if child else iter(lambda: os.read(int(sys.argv[2]), 1), b""):
    try:
        os.fdatasync(file)
        say("synced")
    except OSError as error:
        say(error.errno)
"""


@pytest.fixture
def points(tmp_path: Path) -> FaultPoints:
    """Of libfiu; without it the test is skipped."""
    try:
        return FaultPoints(tmp_path)
    except NotHere as lacking:
        pytest.skip(str(lacking))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A small one; where none can be mounted the test is skipped."""
    try:
        made = SmallDisk(tmp_path, 16)
    except NotHere as lacking:
        pytest.skip(str(lacking))
    with closing(made):
        yield made


def test_a_process_and_one_that_it_has_forked_are_refused_each_by_itself(
    points: FaultPoints, tmp_path: Path
) -> None:
    into, out = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", _SYNC, str(tmp_path), str(into)],
        env=os.environ | points.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[into],
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pids = {int(process.stdout.readline()) for _ in range(2)}
            (child,) = pids - {process.pid}

            def syncs(pid: int) -> str:
                if pid == child:
                    os.write(out, b"?")
                else:
                    print("?", file=process.stdin, flush=True)
                return process.stdout.readline().strip()  # type: ignore[union-attr]

            assert [syncs(child), syncs(process.pid)] == ["synced", "synced"]
            assert points.fail(child, SYNC)
            assert [syncs(child), syncs(process.pid)] == [str(errno.EIO), "synced"]
            assert points.fail(process.pid, SYNC, errno.ENOSPC)
            assert points.heal(child, SYNC)
            assert [syncs(child), syncs(process.pid)] == ["synced", str(errno.ENOSPC)]
        finally:
            os.close(into)
            os.close(out)
            process.kill()


def test_who_has_ended_is_not_waited_for(points: FaultPoints, tmp_path: Path) -> None:
    """Its pipes may still lie there, as after SIGKILL."""
    with subprocess.Popen(["true"]) as ended:
        pass
    os.mkfifo(tmp_path / f"of-{ended.pid}.in")
    os.mkfifo(tmp_path / f"of-{ended.pid}.out")
    assert not points.fail(ended.pid, READ)
    assert not points.heal(os.getpid(), READ), "it has no pipes"


def test_a_process_that_opens_its_pipes_anew_is_waited_for(
    points: FaultPoints, tmp_path: Path
) -> None:
    """As each one does behind each command."""
    pipes = [tmp_path / f"of-{os.getpid()}.{name}" for name in ("in", "out")]
    for pipe in pipes:
        os.mkfifo(pipe)

    def answer() -> None:
        time.sleep(0.2)
        with pipes[0].open() as into, pipes[1].open("w") as out:
            assert into.readline().startswith("disable")
            out.write("0\n")

    process = threading.Thread(target=answer, daemon=True)
    process.start()
    assert points.heal(os.getpid(), READ[:1])
    process.join()


def test_a_small_disk_is_full_until_there_is_room_again(disk: SmallDisk) -> None:
    disk.fill(0)
    with pytest.raises(OSError, match="No space left"):
        (disk.place / "file").write_bytes(bytes(1 << 20))
    disk.make_room()
    assert (disk.place / "file").write_bytes(bytes(1 << 20)) == 1 << 20


def test_the_time_of_day_leaps_and_waiting_goes_on(tmp_path: Path) -> None:
    try:
        clock = Clock(tmp_path)
    except NotHere as lacking:
        pytest.skip(str(lacking))
    script = (
        "import sys, threading, time\n"
        "for _ in sys.stdin:\n"
        "    time.sleep(0.01), threading.Event().wait(0.01)\n"
        "    print(time.time(), flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=os.environ | clock.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            seen = 0.0
            for offset_s in (-86_400, 0):
                clock.leap(offset_s)
                while abs(seen - time.time() - offset_s) > 600:  # It looks once a second.
                    print("?", file=process.stdin, flush=True)
                    seen = float(process.stdout.readline())
        finally:
            process.kill()
    clock.sweep()
    assert not [*Path("/dev/shm").glob(f"*faketime_s*_{process.pid}")]


def test_seeds_draw_each_kind_and_each_protection() -> None:
    drawn = [draw_run(seed) for seed in range(40)]
    assert drawn == [draw_run(seed) for seed in range(40)]
    assert {each.kind for each in drawn} == set(KINDS)
    assert {each.protection for each in drawn} == set(PROTECTIONS)
    assert draw_run(3, "full").kind == "full"


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("StorageError: writing to /run/location/sink failed: make room", "StorageError"),
        ("StorageError: writing failed", ""),
        ("OSError: /run/location: Input/output error", ""),
        ("", ""),
    ],
)
def test_only_an_error_of_ours_that_names_the_place_may_end_a_query(error: str, named: str) -> None:
    run = Run.__new__(Run)
    run.outcome, run._location = draw_run(0), Path("/run/location")
    run._folder = Path("/run")
    verdict = {"error": error, "differences": [], "recoveries": 0}
    ended = SimpleNamespace(verdict=verdict, is_over=None, kill=lambda: None)
    run._driver = ended  # type: ignore[assignment]
    run._started = lambda _: ended  # type: ignore[assignment,method-assign,return-value]
    run._start_again({})
    assert run.outcome.named == ([named] if named else [])
    assert run.outcome.violations == ([] if named else [f"I-NAMED: {error}"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["write", "short", "slow", "clock"])
def test_a_query_without_spark_ends_right_or_by_name_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Driver and nodes are one process, which meets what strikes."""
    outcome = draw_run(list(KINDS).index(kind))
    outcome.protection = "checkpoints" if kind == "short" else "upstream backup"
    monkeypatch.chdir(Path(__file__).parent)  # Where the module is found.
    try:
        Run(outcome, tmp_path, "driver_without_spark").execute()
    except NotHere as lacking:
        pytest.skip(str(lacking))
    assert not outcome.violations, outcome
    assert outcome.struck
    assert outcome.rows


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_results_are_right_once_the_disk_is(tmp_path: Path) -> None:
    kind = "sync"
    seed = list(KINDS).index(kind)
    try:
        outcome = Run(draw_run(seed), tmp_path).execute()
    except NotHere as lacking:
        pytest.skip(str(lacking))
    assert not outcome.violations, outcome
    assert outcome.kind == kind
    assert outcome.struck
