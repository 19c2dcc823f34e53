"""NexMark on real Spark tasks: nothing lost, nothing doubled, killed or not."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.api.protections import UpstreamBackup
from holdfast.nexmark.run import Kill, NexmarkRun, run_nexmark

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("query", ["q1", "q3", "q8", "q12"])
def test_output_is_identical_to_spark_sql(spark: SparkSession, tmp_path: Path, query: str) -> None:
    run = NexmarkRun(query, 100_000, None, 1, UpstreamBackup())
    report = run_nexmark(spark, run, kills=[], verify=True, location=str(tmp_path))
    assert report["verified"] is True
    assert report["output_tuples"] > 0


@pytest.mark.parametrize(
    ("query", "parallelism", "killed", "emit"),
    [
        ("q12", 2, "counts[0]", "final"),
        ("q12", 1, "ingest[0]", "final"),
        ("q3", 1, "join[0]", "final"),
        ("q8", 2, "join[1]", "final"),
        ("q8", 2, "join[0]", "changes"),
    ],
)
def test_a_killed_node_is_replaced_and_the_output_is_the_same(
    spark: SparkSession, tmp_path: Path, query: str, parallelism: int, killed: str, emit: str
) -> None:
    events = 60_000 if query == "q12" else 300_000
    run = NexmarkRun(query, events, 10_000, parallelism, UpstreamBackup(), emit)
    kills = [Kill(killed, 1.5)]
    report = run_nexmark(spark, run, kills=kills, verify=True, location=str(tmp_path))
    assert report["verified"] is True
    # On a busy machine a living node may be replaced too, which costs time and nothing else.
    assert killed in [f["node"] for f in report["failures"]]
