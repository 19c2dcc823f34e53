"""Which Parquet files Spark and pyarrow read alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_user_files import PARQUET, SCHEMA, put, read, recorder, rows

from holdfast.shell.sources.file_recorder import FileRecorder
from holdfast.shell.storage.exact_parquet import why_not_exact
from holdfast.shell.storage.ingest_log import IngestLogReader
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.user_files import UserFileDamaged, list_files
from holdfast.shell.storage.user_rows import read_rows

NAIVE = pa.timestamp("us")


@pytest.mark.parametrize(
    ("table", "options", "reason"),
    [
        (rows(0, 3), {}, ""),
        (rows(0, 3), {"use_deprecated_int96_timestamps": True}, ""),
        (rows(0, 3), {"coerce_timestamps": "ms"}, ""),
        (rows(0, 3).select(["at"]), {}, ""),
        (rows(0, 3).set_column(0, "at", pa.array([0], NAIVE).take([0] * 3)), {}, "'at' is timest"),
        (rows(0, 3).rename_columns(["at", "K", "s"]), {}, "'k' is written otherwise"),
        (rows(0, 3).set_column(1, "k", pa.array([0] * 3, pa.int32())), {}, "'k' is int32, not"),
        (
            rows(0, 3).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
            {},
            "old calendar",
        ),
    ],
)
def test_files_that_spark_reads_otherwise_are_told(
    tmp_path: Path, table: pa.Table, options: dict[str, object], reason: str
) -> None:
    pq.write_table(table, tmp_path / "a.parquet", **options)
    (found,) = list_files(str(tmp_path))
    said = why_not_exact(found.file, SCHEMA)
    assert reason in said
    assert bool(said) == bool(reason)
    exact = replace(PARQUET, is_exact=True)
    if reason:
        with pytest.raises(UserFileDamaged, match="readFilesInNodes=false"):
            list(read_rows(found.file, exact, SCHEMA, "at"))
    else:
        (only,) = read_rows(found.file, exact, SCHEMA, "at")
        (made,) = only.parts
        assert made.column(made.num_columns - 1).to_pylist() == [0, 1_000_000, 2_000_000]


@pytest.mark.parametrize(("folder", "reason"), [("K=1", "written otherwise"), ("at=1", "is times")])
def test_folders_that_spark_reads_otherwise_are_told(
    tmp_path: Path, folder: str, reason: str
) -> None:
    (tmp_path / folder).mkdir()
    pq.write_table(rows(0, 3).drop_columns(["k"]), tmp_path / folder / "a.parquet")
    (found,) = list_files(str(tmp_path))
    with pytest.raises(UserFileDamaged, match=reason):
        list(read_rows(found.file, replace(PARQUET, is_exact=True), SCHEMA, "at"))


def test_what_is_late_is_told_by_a_watermark_of_whole_milliseconds(tmp_path: Path) -> None:
    """As Spark's: it is what the commits before have led to, and counts from the next one on."""
    place, location = tmp_path / "in", tmp_path / "q"
    put(place / "0", rows(0, 0), 0.0)
    source = recorder(str(place), location, delay="1 second")._source
    source = replace(source, has_watermark=True, files_max=1)

    def record_all() -> None:
        made = FileRecorder("files", source, str(location))
        made.start(None)  # type: ignore[arg-type]
        made.wait()
        assert made.error is None

    def at(us: int, number: int) -> pa.Table:
        return pa.table([[us], [number], ["x"]], schema=SCHEMA)

    put(place / "0", at(10_000_700, 0), 1.0)  # The watermark behind it: 9.000 s.
    put(place / "1", at(5_000_000, 1), 2.0)  # No word of idleness has come before.
    record_all()
    reader = IngestLogReader(ingest_path(str(location), "files"), 0, 1)
    assert [batch.first_id for batch in reader.poll()] == [0, 1]
    assert not reader.poll()
    assert reader.boundary_us == 9_000_000, "as Spark is idle"
    put(place / "2", at(8_999_999, 2), 3.0)
    put(place / "3", at(9_000_100, 3), 4.0)
    record_all()
    assert read(location) == [0, 1, 3]
