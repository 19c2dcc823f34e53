"""A person on call: a dataflow of a file, looked at, struck and stopped from a shell."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

FLOW = """
import holdfast as hf

spark = hf.session()
flow = hf.Dataflow("ticks")
rows = spark.readStream.format("rate").option("rowsPerSecond", 2000).load()
ticks = flow.source(rows, name="ticks", time="timestamp", delay="1 second")
keyed = ticks.select("timestamp", "value % 10 AS key").key_by("key")
keyed.window(hf.tumbling("1 second")).aggregate("count(*) AS n", name="counts").sink("counts")
protection = {"counts": hf.ActiveStandby()}
"""


def holdfast(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def asked(*arguments: str) -> dict[str, Any]:
    done = holdfast(*arguments, "--json", "--timeout", "60")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_query_is_run_looked_at_struck_and_stopped(tmp_path: Path) -> None:
    path, location = tmp_path / "ticks.py", str(tmp_path / "location")
    path.write_text(FLOW)
    command = [sys.executable, "-m", "holdfast.cli.main", "run", str(path), "--view-port", "0"]
    said = tmp_path / "said"
    with (
        said.open("w") as stderr,
        subprocess.Popen(
            [*command, "--location", location, "--json"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as running,
    ):
        try:
            status = until_output(location)
            assert status["name"] == "ticks"
            (url,) = re.findall(r"^view at (\S+)$", said.read_text(), re.MULTILINE)
            with urllib.request.urlopen(url, timeout=60) as page:
                assert b"<title>Holdfast</title>" in page.read()
            with urllib.request.urlopen(f"{url}rows?stream=unit%20ticks", timeout=60) as sent:
                found = json.load(sent)
            assert {"", "to", "key"} <= set(found["columns"])
            assert {row[0] for row in found["rows"]} == {"stable"}
            before = status["status"]["nodes"]["counts[0]"]
            assert {r["role"] for r in before["replicas"]} == {"primary", "secondary"}
            assert asked("promote", location, "counts") == {"promoted": "counts"}
            assert asked("kill", location, "ticks") == {"killed": ["ticks[0]"]}
            refused = holdfast("kill", location, "sums")
            assert refused.returncode == 2
            assert "no unit or node 'sums'; units are ticks, counts" in joined(refused.stderr)
            status = until_output(location, status["progress"]["numOutputRows"])
            after = status["status"]["nodes"]["counts[0]"]
            assert after["pid"] != before["pid"]
            assert any(f["node"] == "ticks[0]" for f in status["progress"]["failures"])
            assert "counts[0]" in holdfast("status", location).stdout
            assert asked("stop", location) == {"stopped": True}
            output, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 0
    summary = json.loads(output)
    assert summary["exception"] is None
    assert summary["numOutputRows"] > 0
    over = holdfast("status", location)
    assert over.returncode == 2
    assert "no query runs at" in joined(over.stderr)


def until_output(location: str, rows: int = 0) -> dict[str, Any]:
    """The status as soon as there is one that shows more results than these."""
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        done = holdfast("status", location, "--json", "--timeout", "60")
        if done.returncode == 0:
            status: dict[str, Any] = json.loads(done.stdout)
            replicas = status["status"]["nodes"]["counts[0]"]["replicas"]
            is_ready = len(replicas) == 2 and all(r["is_ready"] for r in replicas)
            if status["progress"]["numOutputRows"] > rows and is_ready:
                return status
        time.sleep(0.2)
    raise AssertionError(done.stderr)


def joined(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "/nowhere.py", "--location", "/tmp/x"), "there is no file /nowhere.py"),
        (("run", "nothing", "--location", "/tmp/x"), "no file.py or file.py:name"),
        (("status", "/nowhere"), "there is no folder /nowhere; name the checkpointLocation"),
        (("kill", "/tmp", "counts"), "no query has run at /tmp"),
    ],
)
def test_a_mistake_is_one_message(arguments: tuple[str, ...], message: str) -> None:
    done = holdfast(*arguments)
    assert done.returncode == 2
    assert message in joined(done.stderr)
    assert "Traceback" not in done.stderr
