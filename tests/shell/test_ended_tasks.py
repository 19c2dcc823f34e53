"""What the driver makes of a fenced process on its host that it ends."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.core.coordinator import events as c
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.shell.processes import is_at_work
from holdfast.shell.spark.launch import Cluster

NODE = NodeId("counts[0]")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as started:
        yield started
        started.kill()


def ended(pid: int) -> list[c.ZombieHeard]:
    """What the driver hears when it ends this process, which worked as incarnation 7."""
    heard: list[c.ZombieHeard] = []
    driver = SimpleNamespace(replicas=lambda _: [], _is_local=True, _post=heard.append)
    effect = c.EndTask(NODE, f"{NODE}|1|{pid}|0", Incarnation(7))
    Cluster._end_task(cast("Any", driver), effect)
    return heard


def test_one_that_was_at_work_was_only_slow(process: subprocess.Popen[bytes]) -> None:
    assert ended(process.pid) == [c.ZombieHeard(NODE, Incarnation(7))]
    assert process.wait(60) == -signal.SIGKILL


def test_one_that_is_stopped_was_not(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    while is_at_work(process.pid):
        time.sleep(0.01)
    assert ended(process.pid) == []
    assert process.wait(60) == -signal.SIGKILL


def test_nor_one_that_has_died(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert ended(process.pid) == []
    process.wait()
    assert ended(process.pid) == []
