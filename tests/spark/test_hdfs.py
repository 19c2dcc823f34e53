"""Logs, journal and checkpoints on HDFS; a data node killed while a checkpoint is being written."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.driver.inspection import Inspection
from holdfast_bench.hdfs import one
from holdfast_chaos.hdfs_cluster import hdfs_cluster

pytestmark = pytest.mark.slow


def test_a_data_node_killed_during_a_checkpoint_costs_nothing(
    spark: SparkSession, tmp_path: Path, hdfs_jars: None
) -> None:
    with hdfs_cluster(tmp_path) as cluster:
        found = one(spark, cluster, 0)
        place = f"{cluster.url}/run-0"
        rows = spark.read.format("holdfast").option("stream", "counts").load(place)
        assert rows.count() == found["output_tuples"]
        assert {c.role for c in Inspection(place).checkpoints()} >= {"newest"}
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert found["output_tuples"] > 100
    assert found["node_failures"] >= 1
    assert found["checkpoints"] >= 3
