"""Logs, journal and checkpoints on HDFS; a data node killed while a checkpoint is being written."""

import pytest
from pyspark.sql import SparkSession

from holdfast.driver.inspection import Inspection
from holdfast_bench.hdfs import one
from holdfast_chaos.hdfs_cluster import HdfsCluster

pytestmark = pytest.mark.slow


def test_a_data_node_killed_during_a_checkpoint_costs_nothing(
    spark: SparkSession, hdfs: HdfsCluster
) -> None:
    found = one(spark, hdfs, 0)
    place = f"{hdfs.url}/run-0"
    rows = spark.read.format("holdfast").option("stream", "counts").load(place)
    assert rows.count() == found["output_tuples"]
    assert {c.role for c in Inspection(place).checkpoints()} >= {"newest"}
    hdfs.start_data_node(0)
    hdfs.wait_for_all()
    assert (found["lost"], found["doubled"]) == (0, 0)
    assert found["output_tuples"] > 100
    assert found["node_failures"] >= 1
    assert found["checkpoints"] >= 3
