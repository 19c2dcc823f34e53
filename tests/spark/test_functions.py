"""Functions of the user's on real tasks: shipped by Spark, exact when a node is killed."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from held_rows import HeldRows
from kills import kill
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from test_protocol import wait_for

from holdfast.api.dataflow import Dataflow
from holdfast.api.functions import Pass
from holdfast.errors import QueryFailedError, UnsupportedError

ROWS = 20_000


def put(log: HeldRows, first: int, stop: int, *, ends: bool = False) -> None:
    ids = np.arange(first, stop)
    log.put(ids, ids, ends=ends)


@pytest.mark.slow
def test_functions_are_exact_when_their_node_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    factor = 3

    def scaled(batch: pa.RecordBatch) -> pa.RecordBatch:
        large = [n * factor for n in batch["n"].to_pylist()]
        return pa.RecordBatch.from_pydict({"at": batch["at"], "large": large})

    def drawn(row: dict[str, Any], given: Pass) -> dict[str, Any]:
        return {"n": row["n"], "draw": given.random.random()}

    flow = Dataflow("functions")
    log = HeldRows(tmp_path / "readings", n=pa.int64())
    put(log, 0, ROWS // 2)
    read = flow.source_log(log.path, name="readings")
    large = read.map_batches(scaled, "at TIMESTAMP, large BIGINT")
    odd = large.filter(lambda row: row["large"] % 2 == 1)
    twice = odd.flat_map(lambda row: [row] * (row["large"] % 3 + 2), "at TIMESTAMP, large BIGINT")
    twice.map(lambda row: {"text": f"<{row['large']}>"}, "text STRING").sink("texts")
    read.map(lambda row: {"n": random.randrange(10**9)}, "n BIGINT").sink("liar")
    read.map(drawn, "n BIGINT, draw DOUBLE", deterministic=False).sink("draws")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    wait_for(query, lambda: query.lastProgress["numInputRows"] >= ROWS // 4)
    for node in query.nodes:
        kill(query, node)
    put(log, ROWS // 2, ROWS, ends=True)
    assert query.awaitTermination(240)
    verified = query.verify("texts")
    assert verified.is_identical, verified
    assert verified.actual == ROWS // 2 * 2
    draws = query.to_dataframe("draws").selectExpr(
        "count(*)", "count(DISTINCT n)", "count(DISTINCT draw)"
    )
    assert tuple(draws.first() or ()) == (ROWS, ROWS, ROWS)
    with pytest.raises(UnsupportedError, match="drawn is not deterministic"):
        query.verify("draws")
    with pytest.raises(PySparkException, match="lambda> gave two results for the same rows"):
        query.verify("liar")


@pytest.mark.slow
def test_a_function_that_raises_shows_the_row(spark: SparkSession, tmp_path: Path) -> None:
    flow = Dataflow("raising")
    log = HeldRows(tmp_path / "readings", n=pa.int64())
    put(log, 0, 10, ends=True)
    read = flow.source_log(log.path, name="readings")
    read.map(lambda row: {"m": 1 // (row["n"] - 4)}, "m BIGINT").sink("out")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    with pytest.raises(QueryFailedError, match=r"ZeroDivisionError.*'n': 4"):
        query.awaitTermination(240)
