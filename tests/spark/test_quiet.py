"""What a session prints when nothing has gone wrong that a user should look into."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

pytestmark = pytest.mark.slow

SCRIPT = """
import logging, os, signal, time
import holdfast as hf

def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])

spark = hf.session(slots=3)
rows = spark.readStream.format("rate").option("rowsPerSecond", "1000").load()
flow = hf.Dataflow("quiet")
counts = flow.source(rows, name="rows", time="timestamp").window(hf.tumbling("1 second"))
counts.aggregate("count(*) AS n", name="counts", emit="changes").sink("counts")
query = flow.start(spark, checkpointLocation=LOCATION)

def put_out(more):
    wanted = query.lastProgress["numOutputRows"] + more
    while query.lastProgress["numOutputRows"] < wanted:
        assert query.isActive, query.exception()
        time.sleep(0.01)  # Spark makes the rows at its own pace.

put_out(1_000)
assert None not in query.nodes.values()
os.kill(query.pid("counts[0]"), signal.SIGKILL)
put_out(2_000)
os.kill(parent(query.pid("counts[0]")), signal.SIGKILL)
put_out(2_000)
query.stop()
query.to_dataframe().show(1)
query.to_dataframe().show(1)
spark.stop()
"""


def test_a_failure_that_is_survived_is_one_line_and_reading_a_part_is_none(tmp_path: Path) -> None:
    script = SCRIPT.replace("LOCATION", repr(str(tmp_path / "q")))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stderr.splitlines()
    noise = [line for line in lines if line.startswith(("Traceback", "\tat ", "Caused by"))]
    assert not noise, done.stderr[-5000:]
    survived = [line for line in lines if "failed and is being replaced" in line]
    assert len(survived) >= 2
    assert all(line.startswith("counts[0] ") for line in survived)
    begun = next(n for n, line in enumerate(lines) if line == survived[0])
    assert lines[begun:] == survived, "all that is said after the first failure"


def test_python_of_queries_finds_the_environment_of_nodes(spark: SparkSession) -> None:
    """Spark has a daemon for each environment: another one would take seconds and memory."""
    name = "SPARK_SIMPLIFIED_TRACEBACK"
    of_nodes = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ.get(name)).collect()
    of_queries = udf(lambda _: os.environ.get(name), "string")
    assert [row[0] for row in spark.range(1).select(of_queries("id")).collect()] == of_nodes
