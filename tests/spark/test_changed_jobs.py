"""A job that is changed while it is stopped goes on with its state, in Spark and from a shell."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kills import kill
from pyspark.sql import SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Checkpointed
from holdfast.api.windows import tumbling
from holdfast.driver.query import Query
from holdfast.errors import UnsupportedError

pytestmark = pytest.mark.slow
OFTEN = Checkpointed(interval="100 milliseconds")
SCHEMA = "at TIMESTAMP, v BIGINT, k STRING"


def put(spark: SparkSession, folder: Path, first: int, last: int) -> None:
    made = spark.sql(
        "SELECT timestamp_millis(1700000000000 + id * 10) AS at, id AS v, "
        f"concat('key ', id % 37) AS k FROM range({first}, {last})"
    )
    made.coalesce(1).write.mode("append").parquet(str(folder))


def job(spark: SparkSession, folder: Path, trigger: Any = None, *, is_changed: bool) -> Dataflow:
    """Windows, and keys seen once; later other results of both, and one more operator."""
    stream = spark.readStream.schema(SCHEMA).parquet(str(folder))
    flow = Dataflow("job")
    rows = flow.source(stream, name="rows", time="at", trigger=trigger)
    keyed = rows.key_by("k")
    totals = keyed.window(tumbling("100 seconds")).aggregate("sum(v) AS total", name="totals")
    seen = rows.distinct("k", name="seen")
    if not is_changed:
        totals.select("k", "total AS x").sink("totals")
        seen.select("k", "0 AS x").sink("seen")
        return flow
    totals.select("k", "-total AS x").sink("totals")
    seen.select("k", "1 AS x").sink("seen")
    counts = keyed.window(tumbling("20 seconds")).aggregate("count(*) AS n", name="counts")
    counts.sink("counts")
    return flow


def started(spark: SparkSession, tmp_path: Path, trigger: Any = None, **how: Any) -> Query:
    flow = job(spark, tmp_path / "in", trigger, **how)
    return flow.start(spark, **place(tmp_path))


def place(tmp_path: Path) -> dict[str, Any]:
    return {
        "checkpointLocation": str(tmp_path / "q"),
        "protection": OFTEN,
        "parallelism": 2,
    }


def holdfast(command: str, tmp_path: Path, *more: str, is_changed: bool) -> Any:
    """Run a command on a file that defines one of the two."""
    file = tmp_path / "job.py"
    lines = f"""import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_changed_jobs import OFTEN as protection, job
def flow(spark): return job(spark, Path({str(tmp_path / "in")!r}), is_changed={is_changed})
"""
    file.write_text(lines)
    given = [str(file), str(tmp_path / "q"), "--parallelism", "2", *more]
    run = [sys.executable, "-m", "holdfast.cli.main", command, *given]
    return subprocess.run(run, capture_output=True, text=True, timeout=800, check=False)


def test_a_changed_job_goes_on_with_its_state(spark: SparkSession, tmp_path: Path) -> None:
    put(spark, tmp_path / "in", 0, 15_000)
    query = started(spark, tmp_path, is_changed=False)
    query.processAllAvailable()
    kill(query, "totals[0]")
    query.stop()
    drained = holdfast("drain", tmp_path, is_changed=False)
    assert drained.returncode == 0, drained.stderr
    said = holdfast("check", tmp_path, "--json", "--drop", "seen", is_changed=True)
    assert said.returncode == 0, said.stderr
    steps = [c for c in json.loads(said.stdout)["changes"] if c["kind"] != "sink"]
    states = {step["name"]: step["state"] for step in steps}
    assert [states[name] for name in ("totals", "seen", "counts")] == ["kept", "dropped", "empty"]
    put(spark, tmp_path / "in", 15_000, 30_000)
    query = started(spark, tmp_path, is_changed=True)
    query.processAllAvailable()
    kill(query, "totals[1]")
    kill(query, "seen[0]")
    put(spark, tmp_path / "in", 30_000, 40_000)
    query.processAllAvailable()
    query.stop()
    found = {r["k"]: r["x"] for r in query.to_dataframe("seen").collect()}
    assert found == {f"key {k}": 0 for k in range(37)}, "keys are seen once, before and after"
    totals = [(r["k"], r["x"]) for r in query.to_dataframe("totals").collect()]
    parts = [(1, range(10_000)), (-1, range(10_000, 20_000)), (-1, range(20_000, 30_000))]
    wanted = [
        (f"key {k}", sign * sum(v for v in part if v % 37 == k))
        for sign, part in parts
        for k in range(37)
    ]
    assert sorted(totals) == sorted(wanted), "the window that was open at the cut is whole"
    counts = sum(r["n"] for r in query.to_dataframe("counts").collect())
    assert counts == 38_000 - 15_000, "it began at the cut; the newest window is open"
    with pytest.raises(UnsupportedError, match="changed dataflow"):
        query.verify("totals")
