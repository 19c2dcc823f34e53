"""The command line: JSON with the promised keys, exit codes, errors in one line."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_nexmark_prints_what_happened_as_json() -> None:
    done = holdfast(
        *("nexmark", "q12", "--rate", "5000", "--seconds", "4", "--kill", "counts@2s"),
        *("--verify", "--json"),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verified"] is True
    assert (report["lost"], report["duplicates"]) == (0, 0)
    assert set(report) == {
        *("verified", "input_tuples", "output_tuples", "duplicates", "lost", "throughput_tps"),
        *("latency_ms", "failures"),
    }
    assert {"p50", "p99", "max"} == set(report["latency_ms"])
    failure = next(f for f in report["failures"] if f["node"] == "counts[0]")
    assert {
        *("node", "at_s", "detected_ms", "restarted_ms", "recovered_ms", "replayed_tuples")
    } <= set(failure)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nexmark", "q99"), "there are q1, q3, q8, q12"),
        (("nexmark", "q12", "--rate", "fast"), "neither a number nor max"),
        (("nexmark", "q12", "--protection", "magic"), "'checkpointed' and 'none'"),
        (("nexmark", "q12", "--kill", "counts"), "write unit@seconds"),
        (("bench", "spine", "--only", "luck"), "throughput"),
        (("frobnicate",), "No such command"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    done = holdfast(*arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
