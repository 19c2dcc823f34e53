"""`holdfast bench spine` as people and programs call it."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest


@pytest.mark.slow
def test_one_experiment_alone_gives_valid_json() -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "bench", "spine"]
    command += ["--quick", "--only", "start", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert len(results["start"]["runs_s"]) == 2
    assert [target["what"] for target in results["targets"]] == ["start to first output, slowest"]
    assert "throughput" not in results


def test_an_unknown_experiment_is_refused_with_those_there_are(
    refused: Callable[..., str],
) -> None:
    said = refused("bench", "spine", "--only", "teleportation")
    assert "teleportation" in said
    assert "recovery" in said


def test_keeping_a_part_of_a_report_that_there_is_not_is_refused(
    refused: Callable[..., str],
) -> None:
    assert "--report" in refused("bench", "simulation", "--keep-scale")
