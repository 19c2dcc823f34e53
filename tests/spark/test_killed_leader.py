"""A driver in standby takes over from one that is killed; results are as without the kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_protocol import EVENTS, MOST, nexmark

from holdfast.nexmark.source import now_us
from holdfast_chaos.tap import Tap

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

FLOW = """
import sys
sys.path.insert(0, {tests!r})
from test_protocol import MOST, nexmark
from holdfast_chaos.tap import Tap
flow = nexmark("q12", {origin}, tap=Tap({tap!r}, MOST))
"""


def until(path: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has written something somewhere."""
    while not (path.exists() and text in path.read_text(errors="replace")):
        assert process.poll() is None, f"no {text!r}, and the driver has ended"
        time.sleep(0.05)


def test_a_driver_in_standby_takes_over_from_one_that_is_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    origin, location, tap = now_us() + 6_000_000, tmp_path / "q", str(tmp_path / "tap")
    flow = tmp_path / "flow.py"
    flow.write_text(FLOW.format(tests=str(Path(__file__).parent), origin=origin, tap=tap))
    command = [sys.executable, "-m", "holdfast.cli.main", "run", str(flow), "--standby"]
    drivers: list[subprocess.Popen[bytes]] = []
    said = [tmp_path / "first", tmp_path / "second"]
    try:
        for place in said:
            with place.open("wb") as errors:
                started = subprocess.Popen(
                    [*command, "--location", str(location)], stderr=errors, start_new_session=True
                )
            drivers.append(started)
            if place is said[0]:
                until(location / "coordinator" / "0000000001.journal", "PointNoted", started)
        until(said[1], "in standby", drivers[1])
        os.killpg(drivers[0].pid, signal.SIGKILL)
        until(said[1], "the process of the driver of epoch 1 has died", drivers[1])
        Tap(tap, MOST).open()
        assert drivers[1].wait() == 0, said[1].read_text()
    finally:
        for driver in drivers:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
    query = nexmark("q12", origin, tap=Tap(tap, EVENTS)).start(
        spark, checkpointLocation=str(location)
    )
    assert query.awaitTermination(240)
    assert query.verify().is_identical
