"""The command line: JSON with the promised keys, exit codes, errors in one line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.api import protections

pytestmark = pytest.mark.slow
PROTECTIONS = ", ".join(protections.PROTECTIONS_BY_NAME)


def test_nexmark_prints_what_happened_as_json() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "holdfast.cli.main", "nexmark", "q12", "--rate", "5000"),
            # Input goes on for long behind the kill, in case nodes are late.
            *("--seconds", "20", "--kill", "counts@1s", "--verify", "--json"),
        ],
        capture_output=True,
        text=True,
        check=False,
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
        *("node", "at_s", "detected_ms", "restarted_ms", "recovered_ms", "replayed_tuples"),
        "caught_up_ms",
    } <= set(failure)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nexmark", "q99"), "there are q1, q3, q8, q12"),
        (("nexmark", "q12", "--rate", "fast"), "neither a number nor max"),
        (("nexmark", "q12", "--protection", "magic"), f"there are {PROTECTIONS}"),
        (("nexmark", "q12", "--kill", "counts"), "write unit@seconds"),
        (("bench", "spine", "--only", "luck"), "throughput"),
        (("frobnicate",), "No such command"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(
    refused: Callable[..., str], arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(*arguments)


def processes_of(session: int) -> list[str]:
    """The command lines of a session's processes that have not ended."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((folder / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
def test_an_interrupt_ends_all_tasks_and_says_so_in_a_line() -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "nexmark", "q12", "--seconds", "2000"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        deadline = time.monotonic() + 400
        while sum("-m holdfast.shell.spark.daemon" in p for p in processes_of(running.pid)) < 3:
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=400)
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert "interrupted; stopping the nodes" in errors.splitlines()  # Java may complain behind it.
    while left := processes_of(running.pid):
        assert time.monotonic() < deadline + 400, left
        time.sleep(0.1)
