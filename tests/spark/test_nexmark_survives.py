"""NexMark on real Spark tasks: nothing lost, nothing doubled, killed or not."""

from pathlib import Path

import pytest
from kills import kill
from pyspark.sql import SparkSession
from test_protocol import MOST, has_put_in, nexmark, wait_for

from holdfast.api.protections import UpstreamBackup
from holdfast.nexmark.run import NexmarkRun, run_nexmark
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("query", ["q1", "q3", "q8", "q12"])
def test_output_is_identical_to_spark_sql(spark: SparkSession, tmp_path: Path, query: str) -> None:
    run = NexmarkRun(query, 100_000, None, 1, UpstreamBackup())
    report = run_nexmark(spark, run, kills=[], verify=True, location=str(tmp_path))
    assert report["verified"] is True
    assert report["output_tuples"] > 0


@pytest.mark.parametrize(
    ("name", "parallelism", "killed", "emit"),
    [
        ("q12", 2, "counts[0]", "final"),
        ("q12", 1, "bids[0]", "final"),
        ("q3", 1, "join[0]", "final"),
        ("q8", 2, "join[1]", "final"),
        ("q8", 2, "join[0]", "changes"),
    ],
)
def test_a_killed_node_is_replaced_and_the_output_is_the_same(
    spark: SparkSession, tmp_path: Path, name: str, parallelism: int, killed: str, emit: str
) -> None:
    tap = Tap(tmp_path / "tap", MOST)
    query = nexmark(name, emit=emit, tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), parallelism=parallelism
    )
    wait_for(query, has_put_in(query, 8_000))
    kill(query, killed)
    wait_for(query, lambda: killed in {failure["node"] for failure in query.failures})
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert killed in {recovery["node"] for recovery in query.recoveries}
