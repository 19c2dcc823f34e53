"""Aggregates in parts on real tasks: whoever dies, what is put out again is the same."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from kills import kill
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import sliding
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta

pytestmark = pytest.mark.slow

VICTIMS = ("rows[0]", "counts[1]", "rows[1]", "rows[0]")
STEP_COMMITS = 50
FILE_ROWS = 600
STEP_ROWS = 2 * STEP_COMMITS * FILE_ROWS
ROWS = (len(VICTIMS) + 1) * STEP_ROWS
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("at", TIME), ("key", pa.int64()), ("id", pa.int64())])


def grow(root: str, step: int) -> None:
    """Two files more every 20 ms, for about a second."""
    meta = IngestMeta(SCHEMA, "at", 0)
    for first in range(step * STEP_ROWS, (step + 1) * STEP_ROWS, 2 * FILE_ROWS):
        files = []
        for begin in (first, first + FILE_ROWS):
            ids = np.arange(begin, begin + FILE_ROWS)
            times = pa.array(1_700_000_000_000_000 + ids * 20).cast(TIME)
            rows = pa.RecordBatch.from_arrays([times, ids % 97, ids], schema=SCHEMA)
            file = ingest_log.write_file(root, meta, iter([rows]))
            assert file is not None
            files.append(file)
        ingest_log.append_batch(root, files)
        time.sleep(0.02)


def rows_read(query: hf.Query) -> int:
    """Up to where the source is read, by whichever node."""
    return sum(source["numInputRows"] for source in query.lastProgress["sources"])


@pytest.mark.parametrize("protection", [None, "checkpointed"])
def test_parts_survive(spark: SparkSession, tmp_path: Path, protection: str | None) -> None:
    root = str(tmp_path / "rows")
    ingest_log.prepare(root, IngestMeta(SCHEMA, "at", 0))
    flow = Dataflow("parts")
    rows = flow.source_log(root, name="rows", partitions=2).filter("id % 5 > 0")
    windows = rows.key_by("key").window(sliding("4 seconds", "2 seconds"))
    windows.aggregate("count(*) AS n", "sum(id) AS total", name="counts").sink("counts")
    query = flow.start(
        spark,
        checkpointLocation=str(tmp_path / "run"),
        parallelism=2,
        protection=hf.Checkpointed(interval="200 milliseconds") if protection else None,
    )
    for step, node in enumerate(VICTIMS):
        grow(root, step)
        while rows_read(query) < (step + 0.5) * STEP_ROWS:
            assert query.isActive, query.exception()
            time.sleep(0.002)
        kill(query, node)
    grow(root, len(VICTIMS))
    ingest_log.end(root)
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert {recovery["node"] for recovery in query.recoveries} >= set(VICTIMS)
    taken = {name: node["input_tuples"] for name, node in query.status["nodes"].items()}
    assert 0 < sum(taken[f"counts[{i}]"] for i in range(2)) < ROWS // 2
