"""A Spark with executors of their own: one is killed with all nodes on it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, signal, sys, time
os.environ["PYSPARK_PYTHON"] = sys.executable
sys.path.insert(0, {tests!r})
from pyspark.sql import SparkSession
from holdfast.driver.session import LOCAL_SETTINGS, SETTINGS
from holdfast.nexmark.source import now_us
from test_protocol import EVENTS, MOST, nexmark
from holdfast_chaos.tap import Tap

def parent(pid):
    return int(open(f"/proc/{{pid}}/stat").read().rsplit(")", 1)[1].split()[1])

builder = SparkSession.builder.master("local-cluster[2,4,1024]")
for key, value in (LOCAL_SETTINGS | SETTINGS).items():
    builder = builder.config(key, value)
path = os.pathsep.join(entry for entry in sys.path if entry)
spark = builder.config("spark.executorEnv.PYTHONPATH", path).getOrCreate()
spark.range(8).repartition(8).rdd.map(lambda row: row).count()  # Both executors are up.
tap = Tap({location!r} + ".tap", MOST)
query = nexmark("q12", now_us(), tap=tap).start(spark, checkpointLocation={location!r})
while query.lastProgress["numInputRows"] < 5_000:
    assert query.isActive, query.exception()
    time.sleep(0.01)
executor = parent(parent(parent(query.pid("counts[0]"))))  # Above its supervisor and the daemon.
assert b"CoarseGrainedExecutorBackend" in open(f"/proc/{{executor}}/cmdline", "rb").read()
os.kill(executor, signal.SIGKILL)
while "counts[0]" not in {{r["node"] for r in query.recoveries}}:
    assert query.isActive, query.exception()
    tap.trickle(20, EVENTS - 1)
    time.sleep(0.01)
tap.open()
ended = query.awaitTermination(240)
identical = query.verify().is_identical
print(json.dumps([ended, identical, [r["node"] for r in query.recoveries]]))
spark.stop()
"""


def test_an_executor_may_be_killed_with_its_nodes(tmp_path: Path) -> None:
    script = SCRIPT.format(tests=str(Path(__file__).parent), location=str(tmp_path / "q"))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    ended, identical, recovered = json.loads(done.stdout.splitlines()[-1])
    assert ended
    assert identical
    assert "counts[0]" in recovered
