"""`holdfast bench spine` as people and programs call it."""

import json
import subprocess
import sys

import pytest


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", "bench", "spine", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_one_experiment_alone_gives_valid_json() -> None:
    done = bench("--quick", "--only", "start", "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert len(results["start"]["runs_s"]) == 2
    assert [target["what"] for target in results["targets"]] == ["start to first output, slowest"]
    assert "throughput" not in results


def test_an_unknown_experiment_is_refused_with_those_there_are() -> None:
    done = bench("--only", "teleportation")
    assert done.returncode == 2
    assert "teleportation" in done.stderr
    assert "recovery" in done.stderr
