"""A person on call: a dataflow of a file, looked at, struck and stopped from a shell."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app

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


def holdfast(*arguments: str) -> str:
    """What a command says. It asks another process, and costs seconds in one of its own."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.exception
    return done.stdout


def asked(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(holdfast(*arguments, "--json", "--timeout", "240"))
    return found


def test_a_query_is_run_looked_at_struck_and_stopped(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
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
            with urllib.request.urlopen(url, timeout=300) as page:
                assert b"<title>Holdfast</title>" in page.read()
            with urllib.request.urlopen(f"{url}rows?stream=unit%20ticks", timeout=300) as sent:
                found = json.load(sent)
            assert {"", "to", "key"} <= set(found["columns"])
            assert {row[0] for row in found["rows"]} == {"stable"}
            before = status["status"]["nodes"]["counts[0]"]
            assert {r["role"] for r in before["replicas"]} == {"primary", "secondary"}
            assert asked("promote", location, "counts") == {"promoted": "counts"}
            assert asked("kill", location, "ticks") == {"killed": ["ticks[0]"]}
            said_no = refused("kill", location, "sums")
            assert "no unit or node 'sums'; units are ticks, counts" in said_no
            status = until_output(location, status["progress"]["numOutputRows"])
            after = status["status"]["nodes"]["counts[0]"]
            assert after["pid"] != before["pid"]
            assert any(f["node"] == "ticks[0]" for f in status["progress"]["failures"])
            assert "counts[0]" in holdfast("status", location)
            assert asked("stop", location) == {"stopped": True}
            output, _ = running.communicate(timeout=300)
        finally:
            running.kill()
    assert running.returncode == 0
    summary = json.loads(output)
    assert summary["exception"] is None
    assert summary["numOutputRows"] > 0
    assert "no query runs at" in refused("status", location)


def until_output(location: str, rows: int = 0) -> dict[str, Any]:
    """The status as soon as there is one that shows more results than these."""
    deadline = time.monotonic() + 400
    while True:
        done = CliRunner().invoke(app, ["status", location, "--json", "--timeout", "240"])
        if done.exit_code == 0:
            status: dict[str, Any] = json.loads(done.stdout)
            replicas = status["status"]["nodes"]["counts[0]"]["replicas"]
            is_ready = len(replicas) == 2 and all(r["is_ready"] for r in replicas)
            if status["progress"]["numOutputRows"] > rows and is_ready:
                return status
        assert time.monotonic() < deadline, done.exception or done.stdout
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "/nowhere.py", "--location", "/tmp/x"), "there is no file /nowhere.py"),
        (("run", "nothing", "--location", "/tmp/x"), "no file.py or file.py:name"),
        (("status", "/nowhere"), "there is no folder /nowhere; name the checkpointLocation"),
        (("kill", "/tmp", "counts"), "no query has run at /tmp"),
    ],
)
def test_a_mistake_is_one_message(
    refused: Callable[..., str], arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(*arguments)
