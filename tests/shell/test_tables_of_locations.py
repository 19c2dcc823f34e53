"""Tables that `format("holdfast")` makes of a location, without Spark: what checkpoints hold."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.driver.data_source import HoldfastSource
from holdfast.shell.spark.arrow_schemas import to_arrow_schema
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("id", pa.int64())])


def read(**options: str) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns and the rows that Spark would get."""
    source = HoldfastSource(options)
    schema = source.schema()
    reader = source.reader(schema)
    rows = [row for part in reader.partitions() for b in reader.read(part) for row in b.to_pylist()]
    return to_arrow_schema(schema).names, rows


def test_a_table_has_the_columns_that_its_schema_says_and_a_log_is_read_as_one(
    tmp_path: Path,
) -> None:
    root, location = str(tmp_path / "log"), str(tmp_path / "location")
    ingest_log.prepare(root, meta := IngestMeta(SCHEMA, "at", 0))
    given = pa.RecordBatch.from_pylist([{"at": i, "id": i % 3} for i in range(90)], schema=SCHEMA)
    file = ingest_log.write_file(root, meta, iter([given]))
    assert file is not None
    ingest_log.append_batch(root, [file])
    flow = Dataflow("tables")
    windows = flow.source_log(root, name="rows").key_by("id").window(hf.tumbling("1 second"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")
    with without_spark() as session:
        protection = hf.Checkpointed(interval="20 milliseconds")
        query = flow.start(session, checkpointLocation=location, protection=protection)
        query.processAllAvailable()
        while not any(checkpoint["failure"] is None for checkpoint in query.checkpoints):
            query._cluster.done.wait(0.01)
        query.stop()
    names, rows = read(path=location, state="counts")
    assert {"id", "n"} <= set(names)
    assert rows
    assert set(rows[0]) == set(names)
    names, rows = read(path=root)
    assert (names, len(rows)) == (["at", "id"], 90)
