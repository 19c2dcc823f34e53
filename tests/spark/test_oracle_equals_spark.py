"""The simulator's oracle and Spark SQL agree about what random dataflows mean."""

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.api.batch_twin import to_dataframe
from holdfast.sim.seeds import Run
from holdfast.sim.workload.base import Workload
from holdfast.sim.workload.known import KNOWN, known_workload

SEEDS = 25


def twin_rows(spark: SparkSession, workload: Workload, sink: str) -> Counter[tuple[Any, ...]]:
    frame = to_dataframe(workload.flow, spark, sink, "")
    table = frame.toArrow()
    columns = [column.to_pylist() for column in table.columns]
    return Counter(zip(*columns, strict=True))


def check(spark: SparkSession, workload: Workload) -> int:
    for sink, expected in workload.expected.items():
        found = twin_rows(spark, workload, sink)
        assert found == expected, (
            f"{sink}: only in Spark SQL {list((found - expected).items())[:3]}, "
            f"only in the oracle {list((expected - found).items())[:3]}"
        )
    return sum(rows.total() for rows in workload.expected.values())


@pytest.mark.slow
def test_random_dataflows(spark: SparkSession) -> None:
    rows = sum(check(spark, Run(seed, dataflow="random").workload()) for seed in range(SEEDS))
    assert rows > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_known_dataflows(spark: SparkSession, name: str) -> None:
    assert check(spark, known_workload(name, 1)) > 0
