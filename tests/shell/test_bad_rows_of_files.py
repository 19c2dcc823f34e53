"""Bad rows and bad files of a user's: found one by one, named or put aside, the same every time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.driver.user_files import files_source
from holdfast.errors import DataflowError
from holdfast.shell.sources.file_recorder import FileRecorder
from holdfast.shell.storage import user_rows
from holdfast.shell.storage.ingest_log import IngestLogReader
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.user_files import UserFileDamaged, list_files
from holdfast.shell.storage.user_rows import BadRow, FilesFormat, read_rows

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("s", pa.string())])
CSV = """\
at,k,s
1970-01-01T00:00:01Z,1,a

not a time,2,b
1970-01-01T00:00:03Z,three,c
1970-01-01T00:00:04Z,4
1970-01-01T00:00:05Z,5,e,f
,6,g
1970-01-01T00:00:07Z,7,"h"
"""
JSON = """\
{"at": "1970-01-01T00:00:01Z", "k": 1, "s": "a"}

{"at": "not a time", "k": 2}
{"at": "1970-01-01T00:00:03Z", "k": "three"}
{"at": "1970-01-01T00:00:04Z", "k": 4
{"at": "1970-01-01T00:00:05Z"} {"at": "1970-01-01T00:00:05Z"}
{"k": 6}
{"at": "1970-01-01T00:00:07Z", "k": 7, "s": "h"}
"""


def found_in(place: Path, of: FilesFormat) -> tuple[list[int], list[BadRow]]:
    """The numbers of good rows, and the bad ones."""
    (listed,) = list_files(str(place))
    good: list[int] = []
    bad: list[BadRow] = []
    for part in read_rows(listed.file, of, SCHEMA, "at"):
        for rows in part.parts:
            if isinstance(rows, BadRow):
                bad.append(rows)
            else:
                good += rows.column("k").to_pylist()
    return good, bad


@pytest.mark.parametrize("block", [1 << 20, 40], ids=["one block", "small blocks"])
@pytest.mark.parametrize(("name", "text"), [("csv", CSV), ("json", JSON)])
def test_each_bad_line_is_found_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, block: int
) -> None:
    monkeypatch.setattr(user_rows, "_BLOCK_BYTES", block)
    path = tmp_path / f"a.{name}"
    path.write_text(text)
    options = (("header", "true"),) if name == "csv" else ()
    good, bad = found_in(path, FilesFormat(name, options, has_dead_letters=True))
    assert good == [1, 7]
    first = 2 + (name == "csv")
    lines = text.splitlines()
    assert [row.number for row in bad] == [first + n for n in range(1, 6)]
    assert [row.text for row in bad] == lines[first : first + 5]
    assert all(row.reason for row in bad)
    assert bad[-1].reason == "its time column 'at' is null"
    with pytest.raises(UserFileDamaged, match=rf"a\.{name}, line {first + 1}: .*dead_letters="):
        found_in(path, FilesFormat(name, options))


def test_bytes_that_are_no_text_make_their_line_bad(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"1970-01-01T00:00:01Z,1,\xff\xfe\r\n1970-01-01T00:00:02Z,2,b\r\n")
    good, (bad,) = found_in(path, FilesFormat("csv", has_dead_letters=True))
    assert (good, bad.number, bad.text) == ([2], 1, "1970-01-01T00:00:01Z,1,\ufffd\ufffd")


def test_a_line_longer_than_a_block_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_rows, "_BLOCK_BYTES", 64)
    path = tmp_path / "a.csv"
    path.write_text(f"1970-01-01T00:00:01Z,1,{'x' * 500}\n1970-01-01T00:00:02Z,2,b")
    assert found_in(path, FilesFormat("csv")) == ([1, 2], [])


def test_a_header_alone_and_a_mark_before_it_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    header = FilesFormat("csv", (("header", "true"),))
    path.write_text("at,k,s")
    assert found_in(path, header) == ([], [])
    path.write_text("\ufeffat,k,s\n1970-01-01T00:00:01Z,1,a\n")
    assert found_in(path, header) == ([1], [])


def test_a_row_of_a_file_with_columns_is_named_by_its_number(tmp_path: Path) -> None:
    times = [datetime(2020, 1, 1, tzinfo=UTC), None, datetime(2020, 1, 1, tzinfo=UTC)]
    table = pa.table([pa.array(times, SCHEMA[0].type), ["1", "2", "x"]], names=["at", "k"])
    pq.write_table(table, tmp_path / "a.parquet")
    good, bad = found_in(tmp_path, FilesFormat("parquet", has_dead_letters=True))
    assert good == [1]
    assert [row.number for row in bad] == [2, 3]
    assert "column 'k' is not int64" in bad[1].reason


def test_a_file_that_is_damaged_further_on_gives_what_comes_before(tmp_path: Path) -> None:
    path, count = tmp_path / "a.parquet", 300_000
    table = pa.table(
        [pa.array(range(count), pa.int64()).cast(SCHEMA[0].type), range(count)], names=["at", "k"]
    )
    pq.write_table(table, path, row_group_size=100_000, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    start = pq.ParquetFile(path).metadata.row_group(2).column(1).data_page_offset
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(bytes(content))
    good, (bad,) = found_in(path, FilesFormat("parquet", has_dead_letters=True))
    assert good == list(range(len(good)))
    assert 0 < len(good) < count
    assert (bad.number, bad.text) == (None, None)
    assert "the rest of the file cannot be read" in bad.reason


def recorded(place: Path, location: Path, **settings: Any) -> list[dict[str, Any]]:
    """All rows of the log, once it has ended."""
    given = {"schema": SCHEMA, "time": "at", "delay": None, "ahead": None, "options": None}
    given |= {"trigger": None, "ends": True, "has_dead_letters": True, "format": "csv"}
    source = files_source(str(place), **(given | settings))  # type: ignore[arg-type]
    recorder = FileRecorder("files", source, str(location))
    recorder.start(None)  # type: ignore[arg-type]  # Spark is not needed.
    recorder.wait()
    assert recorder.error is None
    reader = IngestLogReader(ingest_path(str(location), "files"), 0, 1)
    rows: list[dict[str, Any]] = []
    boundary_us = -END_US
    while found := reader.poll():
        for batch in found:
            times = batch.batch.column(TIME_COLUMN).to_pylist()
            assert min(times) >= boundary_us, "older than what was promised"
            boundary_us = batch.boundary_us
            rows += batch.batch.to_pylist()
    assert reader.late_rows == 0
    return rows


def test_a_bad_row_is_as_new_as_its_file_and_a_file_without_times_as_its_stream(
    tmp_path: Path,
) -> None:
    place = tmp_path / "in"
    place.mkdir()
    (place / "1.csv").write_text("bad\n1970-01-01T00:00:09Z,9,a\n1970-01-01T00:00:02Z,2,b\nbad\n")
    (place / "2.csv").write_text("nothing\nis good\n")
    rows = recorded(place, tmp_path / "q")
    assert [row["k"] for row in rows] == [None, 9, 2, None, None, None]
    assert [row[TIME_COLUMN] for row in rows] == [9_000_000, 9_000_000, 2_000_000, *[9_000_000] * 3]
    assert [row["file_row"] for row in rows] == [1, None, None, 4, 1, 2]
    assert [row["file_path"] for row in rows if row["file_error"]] == [
        *[str(place / "1.csv")] * 2,
        *[str(place / "2.csv")] * 2,
    ]


def test_a_file_that_is_not_of_its_format_is_one_dead_letter(tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    (place / "1.parquet").write_bytes(b"no parquet at all")
    (row,) = recorded(place, tmp_path / "q", format="parquet")
    assert row["file_path"] == str(place / "1.parquet")
    assert "cannot be read" in row["file_error"]


def test_a_column_named_like_those_of_dead_letters_is_refused(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("file_row", pa.int64()))
    with pytest.raises(DataflowError, match="'file_row' is a name of dead letters'"):
        Dataflow("files").source_files(str(tmp_path), schema=schema, time="at", dead_letters="bad")
