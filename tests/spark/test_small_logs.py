"""Logs that are read in the driver hold what Spark reads of them by itself."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.shell.spark import small_logs
from holdfast.shell.spark.data_source import load
from holdfast.shell.spark.small_logs import load_now
from holdfast.shell.storage.ingest_log import IngestMeta, append_batch, end, prepare, write_file

SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("plain", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 2)),
        ("name", pa.string()),
        ("is_new", pa.bool_()),
        ("ratio", pa.float64()),
    ]
)
ROWS = [
    [datetime(2026, 11, 25, 1, tzinfo=UTC), None, datetime(1900, 1, 1, tzinfo=UTC)],
    [datetime(2026, 11, 25, 1, 2, 3, 4), None, datetime(9999, 12, 31)],
    [date(1969, 12, 31), None, date(9999, 12, 31)],
    [Decimal("1.25"), None, Decimal("-9999999999.99")],
    ["ä", None, ""],
    [True, None, False],
    [0.5, None, float("inf")],
]


def log(root: Path) -> str:
    """A log with rows of all types, in three commits; that of the second is late."""
    meta = IngestMeta(SCHEMA, "at", 0, None)
    prepare(str(root), meta)
    for picked in ([0], [2], [0]):
        columns = [
            pa.array([values[n] for n in picked], field.type)
            for values, field in zip(ROWS, SCHEMA, strict=True)
        ]
        rows = pa.record_batch(columns, schema=SCHEMA)
        file = write_file(str(root), meta, [rows])
        assert file is not None
        append_batch(str(root), [file])
    end(str(root))
    return str(root)


def test_the_driver_reads_a_small_log_as_spark_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log(tmp_path / "log")
    for options in ({"metadata": "true"}, {"late": "true"}):
        found, wanted = load_now(spark, path, **options), load(spark, path, **options)
        assert found.schema == wanted.schema
        assert found.collect() == wanted.collect() != []
        assert found.rdd.getNumPartitions() == 1  # However many batches the log was written in.
        assert "Scan ExistingRDD" in found._jdf.queryExecution().toString()
    monkeypatch.setattr(small_logs, "_BYTES_MAX", 10)
    assert "BatchScan" in load_now(spark, path)._jdf.queryExecution().toString()
