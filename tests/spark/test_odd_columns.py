"""Any name that Spark can write: all operators take it, and what they give can be verified."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import counting, tumbling

pytestmark = pytest.mark.slow


def test_columns_of_any_name_come_through_all_operators_and_are_verified(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.sql(
        "SELECT timestamp_micros(1700000000000000 + id * 1000) AS `at.t`, id % 5 AS `k.k`, "
        "id % 3 AS `q``t`, id AS `x y`, concat('é', id % 2) AS `Ünï` FROM range(400)"
    )
    flow = Dataflow("odd")
    stream = flow.source(rows, name="rows", time="at.t")
    plain = stream.filter("`x y` % 2 = 0 AND `Ünï` > ''").select("*", "`q``t` + 1 AS `a``.b`")
    plain.sink("plain")
    window = tumbling("100 milliseconds")
    keyed = plain.key_by("k.k", "q`t")
    sums = keyed.window(window).aggregate("sum(`x y` * 1.5)", "max(`Ünï`) AS top", name="sums")
    sums.sink("sums")
    sevens = keyed.unit("sums").window(counting(7))
    sevens.aggregate("count(*)", "sum(`a``.b`)", name="sevens").sink("sevens")
    pairs = ["left.k.k", "right.x y AS `o``o`", "left.at.t AS `left at`"]
    plain.window(window).join(plain, on="k.k", select=pairs, name="pairs").sink("pairs")
    evened = stream.key_by("k.k").resample(
        "`x y` AS `v v`", within="1 second", every="10 milliseconds", name="evened"
    )
    evened.sink("evened")
    stream.resample("x y AS `y.y`", within="1 second", at=plain, on="k.k", name="at").sink("at")
    query = flow.start(
        spark, checkpointLocation=str(tmp_path), options={"spark.holdfast.metricsIntervalMs": "0"}
    )
    assert query.awaitTermination(200)
    for sink in flow.sinks:
        checked = query.verify(sink)
        assert checked.is_identical, checked
        assert checked.actual > 0
    read = query.to_dataframe("plain")
    assert read.where("`k.k` = 1 AND `q``t` = 0").count() == len(
        [i for i in range(0, 400, 2) if i % 5 == 1 and i % 3 == 0]
    )
