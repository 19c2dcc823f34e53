"""An elastic restart waits for no checkpoint that is long in coming, or that nobody will write."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.driver.query import Query
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.shell.storage.logs import open_reader

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("key", pa.int64()), ("id", pa.int64())])
META = IngestMeta(SCHEMA, "at", 0)


def put(root: str, first: int, last: int) -> None:
    ids = np.arange(first, last)
    times = pa.array(1_700_000_000_000_000 + ids * 1_000).cast(SCHEMA.field("at").type)
    rows = pa.RecordBatch.from_arrays([times, ids % 7, ids], schema=SCHEMA)
    file = ingest_log.write_file(root, META, iter([rows]))
    assert file is not None
    ingest_log.append_batch(root, [file])


def started(session: Any, tmp_path: Path, parallelism: int) -> Query:
    flow = Dataflow("elastic")
    windows = flow.source_log(str(tmp_path / "log"), name="rows").key_by("key")
    windows = windows.window(hf.tumbling("300 milliseconds"))
    windows.aggregate("count(*) AS n", "sum(id) AS total", name="sums").sink("sums")
    return flow.start(
        session,
        checkpointLocation=str(tmp_path / "location"),
        protection=hf.Checkpointed(interval="1 hour"),
        parallelism=parallelism,
        options={"spark.holdfast.drainTimeoutMs": "60000"},
    )


@pytest.mark.parametrize("rows", [0, 1_000], ids=["without input", "before the first checkpoint"])
def test_a_location_without_a_checkpoint_goes_on_at_another_parallelism(
    tmp_path: Path, rows: int
) -> None:
    root = str(tmp_path / "log")
    ingest_log.prepare(root, META)
    if rows:
        put(root, 0, rows)
    with without_spark() as session:
        query = started(session, tmp_path, 1)
        query.processAllAvailable()
        assert not query.checkpoints
        query.stop()
        query = started(session, tmp_path, 3)
        put(root, rows, 2_000)
        ingest_log.end(root)
        assert query.awaitTermination(60)
    found: list[tuple[int, int]] = []
    for instance in range(3):
        reader = open_reader(str(tmp_path / "location" / "streams" / "sums" / str(instance)))
        while batches := reader.poll():
            for batch in batches:
                found += [(row["n"], row["total"]) for row in batch.batch.to_pylist()]
        reader.close()
    assert sum(n for n, _ in found) == 2_000
    assert sum(total for _, total in found) == sum(range(2_000))
