"""What a query leaves as datasets of declarative pipelines (`spark-pipelines run`)."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling

pytestmark = pytest.mark.slow
SPECIFICATION = """
name: holdfast
storage: file://{folder}/storage
libraries:
  - glob:
      include: datasets/**
"""
DATASETS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
LOCATION = {location!r}


@dp.materialized_view
def counts():
    return spark.read.format("holdfast").option("stream", "counts").load(LOCATION)


@dp.table
def rows():
    return spark.readStream.format("holdfast").option("stream", "rows").load(LOCATION)


@dp.materialized_view
def total():
    return spark.read.table("counts").selectExpr("sum(c) AS total")
"""


def test_streams_are_datasets_of_a_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    location = tmp_path / "query"
    frame = spark.sql("SELECT timestamp_seconds(1700000000 + id) AS at, id % 7 AS k FROM range(90)")
    flow = Dataflow("pipelines")
    keyed = flow.source(frame, name="rows", time="at").key_by("k").window(tumbling("10 seconds"))
    keyed.aggregate("count(*) AS c", name="counts").sink("counts")
    assert flow.start(spark, checkpointLocation=str(location)).awaitTermination(240)

    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "datasets.py").write_text(DATASETS.format(location=str(location)))
    specification = tmp_path / "spark-pipeline.yml"
    specification.write_text(SPECIFICATION.format(folder=tmp_path))
    home = Path(pyspark.__file__).parent
    python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    run = subprocess.run(
        [home / "bin" / "spark-pipelines", "run", "--spec", specification],
        cwd=tmp_path,
        env={**os.environ, **python, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]

    def written(name: str) -> list[tuple[object, ...]]:
        table = spark.read.parquet(str(tmp_path / "spark-warehouse" / name))
        return sorted(tuple(row) for row in table.collect())

    assert len(written("rows")) == 90
    assert written("total") == [(90,)]
    assert written("counts") == sorted(
        tuple(row)
        for row in spark.read.format("holdfast")
        .option("stream", "counts")
        .load(str(location))
        .collect()
    )
