"""The simulator's oracle and Spark SQL agree about what random dataflows mean."""

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.api.steps import Resample
from holdfast.api.windows import SessionWindow
from holdfast.driver.batch_twin import to_dataframe
from holdfast.sim.seeds import Run
from holdfast.sim.workload.base import Workload
from holdfast.sim.workload.known import KNOWN, known_workload

SEEDS = 6
TIMES = 2
KINDS = (
    *("aggregate first", "aggregate key", "aggregate stream", "aggregate sessions"),
    *("sort", "distinct", "resample every", "resample at", "running_join epoch"),
)
"""Such as are in at least so many of the dataflows."""


def twin_rows(spark: SparkSession, workload: Workload, sink: str) -> Counter[tuple[Any, ...]]:
    frame = to_dataframe(workload.flow, spark, sink, "")
    table = frame.toArrow()
    columns = [column.to_pylist() for column in table.columns]
    return Counter(zip(*columns, strict=True))


def check(spark: SparkSession, workload: Workload) -> int:
    for sink, expected in workload.expected.rows.items():
        found = twin_rows(spark, workload, sink)
        assert found == expected, (
            f"{sink}: only in Spark SQL {list((found - expected).items())[:3]}, "
            f"only in the oracle {list((expected - found).items())[:3]}"
        )
    return sum(rows.total() for rows in workload.expected.rows.values())


def kinds(workload: Workload) -> set[str]:
    """Of its operators: kind, and for aggregates the alignment of their windows."""
    found: set[str] = set()
    for step in workload.flow.steps:
        windows, word = getattr(step.operation, "windows", None), step.operation.WORD
        of = "sessions" if isinstance(windows, SessionWindow) else getattr(windows, "alignment", "")
        found.add(f"{word} {of}".strip())
        if isinstance(step.operation, Resample):
            found.add("resample every" if len(step.inputs) == 1 else "resample at")
    return found


def drawn() -> list[Workload]:
    """The first ones, and behind them each that has a kind of operator which few before it have."""
    lacking = Counter(dict.fromkeys(KINDS, TIMES))
    found: list[Workload] = []
    seed = 0
    while seed < SEEDS or +lacking:
        workload = Run(seed, dataflow="random").workload()
        wanted = [kind for kind in kinds(workload) if lacking[kind] > 0]
        if seed < SEEDS or wanted:
            found.append(workload)
            lacking.subtract(wanted)
        seed += 1
    return found


@pytest.mark.slow
def test_random_dataflows_with_every_kind_of_operator(spark: SparkSession) -> None:
    rows = [(check(spark, workload), kinds(workload)) for workload in drawn()]
    assert sum(count for count, _ in rows) > 400
    for kind in KINDS:
        assert sum(count for count, having in rows if kind in having) > 8, kind


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_known_dataflows(spark: SparkSession, name: str) -> None:
    for seed in (1, 2):  # Results when windows close, and as events come.
        assert check(spark, known_workload(name, seed)) > 0
