"""`holdfast advise` on real runs: while one runs, from what it left, and of a file's dataflow."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Checkpointed, Protections
from holdfast.cli.main import app
from holdfast.driver import starting
from holdfast.driver.advice import Advice, refusals
from holdfast.driver.measurements import Measurements
from holdfast.nexmark.run import NexmarkRun

FLOW = """
import holdfast as hf
from holdfast.nexmark.run import NexmarkRun

def flow():
    run = NexmarkRun("q1", 1_000_000, 5_000.0, 1, hf.UpstreamBackup())
    return run.flow()[0]

number = 3
"""


def holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", "advise", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_running_query_is_measured_and_leaves_what_it_was_like(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Dataflow] = []

    def noted(
        flow: Dataflow, running: Protections, place: Callable[[Protections], object]
    ) -> dict[str, dict[str, str]]:
        planned.append(flow)
        return refusals(flow, running, place)

    monkeypatch.setattr(starting, "refusals", noted)
    protection = Checkpointed(interval="1 second")
    run = NexmarkRun("q12", 9_000_000, 10_000.0, 1, protection)
    flow, _ = run.flow()
    query = flow.start(spark, checkpointLocation=str(tmp_path), protection=protection)
    assert not planned, "nobody has asked yet"
    try:
        advice = advice_when_measured(query)
    finally:
        query.stop()
    counts = next(u for u in advice.units if u.measured.unit == "counts")
    assert counts.measured.input_tuples_per_s > 0  # 10,000, if the machine keeps up.
    assert counts.measured.input_tuple_bytes == 16  # The bidder and the time.
    assert counts.measured.tuple_cost_us > 0
    assert counts.measured.replay_cost_us > 0
    assert counts.measured.state_bytes > 0
    assert counts.measured.changed_bytes_per_s > 0
    assert counts.measured.state_tuples > 1_000
    assert counts.measured.protection == "Checkpointed"
    assert counts.choice is not None
    left = Measurements.load(str(tmp_path))
    assert left.store_bytes_per_ms is not None
    assert [unit.unit for unit in left.units] == ["ingest", "counts"]
    assert advice.is_planned
    assert planned == [flow]
    assert left.refused == {"ingest": {}, "counts": {}}
    done = CliRunner().invoke(app, ["advise", str(tmp_path), "--recovery-ms", "60000", "--json"])
    assert done.exit_code == 0, done.exception
    recorded = json.loads(done.stdout)
    assert recorded["protection"]["counts"] in ("UpstreamBackup()", "Checkpointed()")
    none = CliRunner().invoke(app, ["advise", str(tmp_path), "--recovery-ms", "1"])
    assert none.exit_code == 1
    assert "none meets all objectives" in " ".join(none.stdout.split())


def advice_when_measured(query: object) -> Advice:
    """As soon as all of it has been measured."""
    from holdfast.driver.query import Query
    from holdfast.errors import AdviceError

    assert isinstance(query, Query)
    deadline = time.monotonic() + 240
    seen: object = None
    while time.monotonic() < deadline and query.isActive:
        time.sleep(0.5)
        try:
            advice = query.advise(recovery_ms=60_000, overhead_percent=100)
        except AdviceError:
            continue
        counts = next(u.measured for u in advice.units if u.measured.unit == "counts")
        seen = counts
        if counts.state_tuples > 1_000 and counts.changed_bytes_per_s and query.checkpoints:
            return advice
    raise AssertionError(f"not all was measured: {seen}, {query.failures}, {query.exception()}")


@pytest.mark.slow
def test_the_dataflow_of_a_file_is_run_and_measured(tmp_path: Path) -> None:
    path = tmp_path / "bids.py"
    path.write_text(FLOW)
    done = holdfast(f"{path}:flow", "--seconds", "3", "--json")
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout)
    assert advice["name"] == "q1"
    assert advice["is_planned"]
    assert set(advice["protection"].values()) == {"UpstreamBackup()"}
    wrong = holdfast(f"{path}:number", "--seconds", "3")
    assert wrong.returncode == 2
    assert "neither a Dataflow nor a function" in " ".join(wrong.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("q99",), "none of q1, q3, q8, q12"),
        (("/nowhere.py:flow",), "there is no file /nowhere.py"),
        (("q1", "--guarantee", "perfect"), "there are gap, rollback, precise"),
        (("q1", "--seconds", "0"), "must be positive"),
        (("/",), "no query has been stopped"),
    ],
)
def test_a_mistake_is_one_message(
    refused: Callable[..., str], arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused("advise", *arguments)
