"""Users' files, read where they lie: what is given, in which order, and what is refused."""

from __future__ import annotations

import gzip
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.expressions import compile_expression
from holdfast.api.expressions.pruning import Pruning, parts_of
from holdfast.core.queues.file_discovery import ListedFile
from holdfast.driver.originals import check_input
from holdfast.driver.user_files import default_name, files_source
from holdfast.errors import DataflowError
from holdfast.shell.sources import file_recorder
from holdfast.shell.sources.file_recorder import FileRecorder
from holdfast.shell.storage import user_rows
from holdfast.shell.storage.ingest_log import IngestLogReader, SchemaMismatch
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.user_files import UserFileChanged, UserFileDamaged, list_files
from holdfast.shell.storage.user_rows import BadRow, FilesFormat, read_rows

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("s", pa.string())])
PARQUET = FilesFormat("parquet")


def rows(first: int, count: int) -> pa.Table:
    """Rows a second apart; the number of each is in `k`."""
    numbers = range(first, first + count)
    times = [datetime.fromtimestamp(number, UTC) for number in numbers]
    return pa.table([times, list(numbers), [f"n{n}" for n in numbers]], schema=SCHEMA)


def put(path: Path, table: pa.Table, modified_s: float) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    os.utime(path, (modified_s, modified_s))
    return path


def recorder(place: str, location: Path, **settings: Any) -> FileRecorder:
    given = {"format": "parquet", "schema": SCHEMA, "time": "at", "delay": None, "ahead": None}
    given |= {"trigger": {"availableNow": True}, "ends": False, "options": None}
    source = files_source(place, **(given | settings))
    return FileRecorder("files", source, str(location))


def record(place: Path, location: Path, **settings: Any) -> FileRecorder:
    made = recorder(str(place), location, **settings)
    made.start(None)  # type: ignore[arg-type]  # Spark is not needed.
    made.wait()
    return made


def read(location: Path, partition: int = 0, partitions: int = 1, from_id: int = 0) -> list[int]:
    """The numbers of the rows, in order of their ids."""
    path = ingest_path(str(location), "files")
    reader = IngestLogReader(path, partition, partitions, from_id)
    found: list[int] = []
    while batches := reader.poll():
        for batch in batches:
            assert batch.first_id == from_id + len(found)
            found += batch.batch.column("k").to_pylist()
    reader.close()
    return found


def test_files_are_read_in_order_each_once_over_restarts(tmp_path: Path) -> None:
    place, location = tmp_path / "in", tmp_path / "q"
    put(place / "b.parquet", rows(0, 5), 100.0)
    put(place / "a.parquet", rows(5, 5), 200.0)
    assert record(place, location).error is None
    assert read(location) == list(range(10))
    put(place / "0.parquet", rows(10, 5), 50.0)
    assert record(place, location).error is None
    assert read(location) == list(range(15)), "what comes later stands behind, however old it is"
    assert read(location, from_id=7) == list(range(7, 15))


def test_hidden_files_and_folders_are_passed_over_and_partitions_are_columns(
    tmp_path: Path,
) -> None:
    place, location = tmp_path / "in", tmp_path / "q"
    put(place / "day=1" / "a.parquet", rows(0, 3), 1.0)
    put(place / "day=__HIVE_DEFAULT_PARTITION__" / "b.parquet", rows(3, 2), 2.0)
    put(place / "_temporary" / "c.parquet", rows(50, 1), 3.0)
    put(place / ".d.parquet", rows(60, 1), 4.0)
    put(place / "folder" / "e.parquet", rows(70, 1), 5.0)
    (place / "_SUCCESS").touch()
    record(place, location, schema=SCHEMA.append(pa.field("day", pa.int32())))
    reader = IngestLogReader(ingest_path(str(location), "files"), 0, 1)
    (first, second) = reader.poll()
    assert first.batch.column("day").to_pylist() == [1, 1, 1]
    assert second.batch.column("day").to_pylist() == [None, None]
    assert not reader.poll()


def test_instances_divide_the_files(tmp_path: Path) -> None:
    place, location = tmp_path / "in", tmp_path / "q"
    for number in range(4):
        put(place / f"{number}.parquet", rows(number, 1), float(number))
    record(place, location)
    assert (read(location, 0, 2), read(location, 1, 2)) == ([0, 2], [1, 3])


def test_an_empty_file_is_passed_and_what_ends_is_over(tmp_path: Path) -> None:
    place, location = tmp_path / "in", tmp_path / "q"
    put(place / "a.parquet", rows(0, 0), 1.0)
    put(place / "b.parquet", rows(0, 2), 2.0)
    made = record(place, location, trigger=None, ends=True)
    assert (made.error, made.has_ended) == (None, True)
    put(place / "c.parquet", rows(2, 2), 3.0)
    assert record(place, location, trigger=None, ends=True).error is None
    assert read(location) == [0, 1]


def test_a_group_of_rows_that_no_filter_keeps_is_not_read_but_for_its_times(
    tmp_path: Path,
) -> None:
    place = tmp_path / "in" / "a.parquet"
    put(place, rows(0, 0), 1.0)
    pq.write_table(rows(0, 40), place, row_group_size=10, use_dictionary=False)
    damage(place, group=2, column="s")
    (found,) = list_files(str(place))
    with pytest.raises(UserFileDamaged):
        list(read_rows(found.file, PARQUET, SCHEMA, "at"))
    kept = Pruning((parts_of(compile_expression("k < 15", SCHEMA), SCHEMA),))
    parts = [
        part
        for each in read_rows(found.file, PARQUET, SCHEMA, "at", None, kept)
        for part in each.parts
    ]
    given = pa.Table.from_batches(part for part in parts if not isinstance(part, BadRow))
    assert given.column("at").equals(rows(0, 40).column("at"))
    assert given.column("k").to_pylist() == [*range(20), *[None] * 20]
    aside = replace(PARQUET, has_dead_letters=True)
    dead = list(read_rows(found.file, aside, SCHEMA, "at", None, kept))
    assert isinstance(dead[-1].parts[-1], BadRow), "with dead letters, every row is looked at"


def damage(place: Path, group: int, column: str) -> None:
    """Overwrite what a file holds of a column in a group of rows."""
    of = pq.ParquetFile(place).metadata
    chunk = of.row_group(group).column(SCHEMA.names.index(column))
    content = bytearray(place.read_bytes())
    start = chunk.data_page_offset
    content[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    place.write_bytes(content)


def batches(place: Path, of: FilesFormat, columns: list[str] | None = None) -> list[pa.RecordBatch]:
    """The attributes of all rows of the only file there."""
    (found,) = list_files(str(place))
    read = read_rows(found.file, of, SCHEMA, "at", columns)
    made = [rows for part in read for rows in part.parts]
    assert not any(isinstance(rows, BadRow) for rows in made)
    return [rows.select(SCHEMA.names) for rows in made]


def replaced(path: Path) -> None:
    put(path, rows(0, 3), 9.0)


def removed(path: Path) -> None:
    path.unlink()


def grown(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")
    os.utime(path, (1.0, 1.0))


@pytest.mark.parametrize("change", [replaced, removed, grown])
def test_a_file_that_changes_later_is_an_error_and_never_another_result(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    place, location = tmp_path / "in", tmp_path / "q"
    path = put(place / "a.parquet", rows(0, 3), 1.0)
    record(place, location)
    assert read(location) == [0, 1, 2]
    change(path)
    with pytest.raises(UserFileChanged, match=r"a\.parquet (is gone|was replaced).*Put it back"):
        read(location)
    put(path, rows(0, 3), 1.0)
    assert read(location) == [0, 1, 2], "it is as it was"


def test_what_is_no_file_of_the_format_stops_the_source_with_its_name(tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    (place / "bad.parquet").write_bytes(b"no parquet at all")
    made = record(place, tmp_path / "q")
    assert made.error is not None
    assert "bad.parquet cannot be read" in made.error
    assert "as parquet: is it damaged, or of another format (format=...)?" in made.error
    as_orc = record(place, tmp_path / "orc", format="orc")
    assert as_orc.error is not None
    assert "as orc: is it damaged, or of another format (format=...)?" in as_orc.error
    with pytest.raises(DataflowError, match="of another format"):
        recorder(str(place), tmp_path / "q", schema=None)


def test_values_that_are_not_of_the_schema_name_file_and_column(tmp_path: Path) -> None:
    table = rows(0, 2).set_column(1, "k", pa.array(["1", "x"]))
    path = put(tmp_path / "a.parquet", table, 1.0)
    with pytest.raises(UserFileDamaged, match=r"a\.parquet, row 2: column 'k' is not int64"):
        batches(path, PARQUET)


def test_a_time_that_is_null_names_the_file(tmp_path: Path) -> None:
    table = rows(0, 2).set_column(0, SCHEMA.field("at"), pa.array([None, None], SCHEMA[0].type))
    put(tmp_path / "in" / "a.parquet", table, 1.0)
    made = record(tmp_path / "in", tmp_path / "q")
    assert made.error is not None
    assert (
        "a.parquet, row 1: its time column 'at' is null; give a source of files dead" in made.error
    )


def test_a_file_without_the_column_of_the_time_says_so(tmp_path: Path) -> None:
    pq.write_table(rows(0, 1).drop_columns("at"), tmp_path / "a.parquet")
    made = record(tmp_path, tmp_path / "q")
    assert made.error is not None
    assert "a.parquet, row 1: its file has no column 'at', which has the time" in made.error


def test_columns_that_nobody_reads_are_not_read(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", rows(0, 2), 1.0)
    (batch,) = batches(path, PARQUET, ["k"])
    assert batch.schema == SCHEMA
    assert batch.column("k").to_pylist() == [0, 1]
    assert batch.column("s").null_count == 2


CSV = "at,k,s\n1970-01-01T00:00:00Z,0,n0\n1970-01-01 00:00:01,1,\n1970-01-01T02:00:02+02:00,2,n2\n"
JSON = (
    '{"at": "1970-01-01T00:00:00Z", "k": 0, "s": "n0", "more": 1}\n'
    '{"at": "1970-01-01 00:00:01", "k": 1}\n'
    '{"at": "1970-01-01T02:00:02+02:00", "k": 2, "s": "n2"}\n'
)


@pytest.mark.parametrize("name", ["parquet", "orc", "arrow", "csv", "json"])
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    table = rows(0, 3).set_column(2, "s", pa.array(["n0", None, "n2"]))
    path = tmp_path / f"a.{name}"
    if name == "parquet":
        pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    elif name == "orc":
        pyarrow.orc.write_table(table, path)
    elif name == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text(CSV if name == "csv" else JSON)
    options = (("header", "true"),) if name == "csv" else ()
    made = batches(tmp_path, FilesFormat(name, options))
    assert pa.Table.from_batches(made).to_pylist() == table.to_pylist()


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
@pytest.mark.parametrize("name", ["csv", "json"])
def test_packed_texts_are_read_in_the_same_parts_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ending: str
) -> None:
    monkeypatch.setattr(user_rows, "_BLOCK_BYTES", 64)
    text = (CSV if name == "csv" else JSON).encode()
    codec = {"gz": "gzip", "zst": "zstd"}.get(ending, ending)
    with pa.CompressedOutputStream(str(tmp_path / f"a.{name}.{ending}"), codec) as packed:
        packed.write(text)
    of = FilesFormat(name, (("header", "true"),) if name == "csv" else ())
    first, again = batches(tmp_path, of), batches(tmp_path, of)
    assert [len(batch) for batch in first] == [len(batch) for batch in again]
    assert len(first) > 1
    assert pa.Table.from_batches(first).column("k").to_pylist() == [0, 1, 2]


def test_a_packed_text_may_have_parts_or_lack_its_end(tmp_path: Path) -> None:
    lines = [f"1970-01-01T00:00:00Z,{n},n\n".encode() for n in range(50_000)]
    whole = gzip.compress(b"".join(lines[:9])) + gzip.compress(b"".join(lines[9:]))
    (tmp_path / "a.csv.gz").write_bytes(whole)
    assert sum(len(batch) for batch in batches(tmp_path, FilesFormat("csv"))) == 50_000
    (tmp_path / "a.csv.gz").write_bytes(whole[:-100])
    with pytest.raises(UserFileDamaged, match=r"a\.csv\.gz"):
        batches(tmp_path, FilesFormat("csv"))
    (tmp_path / "a.csv.gz").rename(tmp_path / "a.csv.xz")
    with pytest.raises(UserFileDamaged, match=r"it is packed; unpack it, or pack it as \.gz"):
        batches(tmp_path, FilesFormat("csv"))


def test_a_csv_without_a_header_goes_by_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1970-01-01T00:00:00Z|0|n0\n")
    (batch,) = batches(tmp_path / "*.csv", FilesFormat("csv", (("sep", "|"),)))
    assert batch.column("k").to_pylist() == [0]


def test_files_that_come_while_it_runs_are_recorded(tmp_path: Path) -> None:
    place, location = tmp_path / "in", tmp_path / "q"
    place.mkdir()
    made = recorder(str(place), location, trigger=None)
    made.start(None)  # type: ignore[arg-type]  # Spark is not needed.
    try:
        for number in range(3):
            draft = put(place / f"_{number}", rows(number, 1), float(number))
            draft.rename(place / f"{number}.parquet")
            made.process_all_available()
            assert read(location) == list(range(number + 1))
    finally:
        made.stop()
    assert made.error is None


def test_two_drivers_at_once_record_every_file_once(tmp_path: Path) -> None:
    place, location = tmp_path / "in", tmp_path / "q"
    for number in range(30):
        put(place / f"{number:02d}.parquet", rows(number, 1), float(number))
    both = [threading.Thread(target=record, args=(place, location)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert read(location) == list(range(30))


BAD_LINES = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("_corrupt_record", pa.string())])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"format": "xml"}, "format='xml'; there are parquet"),
        ({"options": {"header": "true"}}, "option 'header' of format 'parquet'"),
        ({"format": "csv", "options": {"mode": "PERMISSIVE"}}, "'mode': a bad line stops the"),
        ({"format": "json", "schema": BAD_LINES}, "'_corrupt_record' is where Spark puts"),
        ({"trigger": {"processingTime": "1 second"}}, "availableNow"),
        ({"ends": True}, "give one of them"),
        ({"schema": None}, "has no files yet; give schema="),
        ({"schema": None, "format": "csv"}, "csv has no types"),
        ({"format": "csv", "options": {"header": "yes"}}, "'header' is 'yes'; write true or false"),
        ({"format": "csv", "options": {"sep": ";;"}}, "'sep' is ';;'; write one character"),
        ({"schema": pa.schema([("at", pa.time64("us"))])}, "column 'at' is time64"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataflowError, match=message):
        recorder(str(tmp_path), tmp_path / "q", **wrong)


def test_a_path_that_does_not_exist_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataflowError, match="tripz does not exist; correct the path"):
        recorder(str(tmp_path / "tripz"), tmp_path / "q", ends=True, trigger=None)


@pytest.mark.parametrize("header", [True, "True", "true"])
def test_a_header_may_be_said_as_spark_takes_it(tmp_path: Path, header: Any) -> None:
    (tmp_path / "a.csv").write_text("k,at,s\n7,1970-01-01T00:00:09Z,x\n")
    made = record(tmp_path, tmp_path / "q", format="csv", options={"header": header})
    assert made.error is None
    assert read(tmp_path / "q") == [7]


def test_a_url_with_a_password_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataflowError, match="with a password in its URL"):
        recorder("ftp://me:secret@host/rows", tmp_path / "q")


def test_another_format_at_the_same_location_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.parquet", rows(0, 1), 1.0)
    record(tmp_path / "in", tmp_path / "q")
    with pytest.raises(SchemaMismatch, match="was begun with"):
        record(tmp_path / "in", tmp_path / "q", format="orc")


def test_columns_are_those_of_the_first_file_and_its_folders(tmp_path: Path) -> None:
    put(tmp_path / "day=1" / "a.parquet", rows(0, 1), 1.0)
    made = recorder(str(tmp_path), tmp_path / "q", schema=None)
    assert made._source.meta.schema == SCHEMA.append(pa.field("day", pa.string()))


def test_a_source_is_named_after_its_folder() -> None:
    assert default_name("/data/bids/") == "bids"
    assert default_name("s3://bucket/bids v2/*.parquet") == "bids_v2"
    assert default_name("/data/bids.parquet") == "bids"


@pytest.mark.parametrize("name", ["a[1].parquet", "a*.parquet", "city=[x]/a.parquet"])
def test_a_name_with_characters_of_globs_is_a_name(tmp_path: Path, name: str) -> None:
    put(tmp_path / "in" / name, rows(0, 3), 1.0)
    made = record(tmp_path / "in", tmp_path / "q", trigger=None, ends=True)
    assert made.error is None
    assert read(tmp_path / "q") == [0, 1, 2]


def test_a_glob_names_remote_files_and_folders() -> None:
    system = fsspec.filesystem("memory")
    root = "memory://globbed"
    for name in ("in/a.parquet", "in/_b.parquet", "in/c.txt", "in/day=1/d.parquet"):
        system.pipe(f"/globbed/{name}", b"rows")
    try:
        listed = {found.file.path for found in list_files(f"{root}/in/*.parquet")}
        assert listed == {f"{root}/in/a.parquet"}
        listed = {found.file.path for found in list_files(f"{root}/i*")}
        assert listed == {f"{root}/in/{n}" for n in ("a.parquet", "c.txt", "day=1/d.parquet")}
    finally:
        system.rm("/globbed", recursive=True)


def test_a_file_that_changes_while_it_is_looked_at_is_not_left_out_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "in"
    path = put(place / "a.parquet", rows(0, 2), 1.0)
    look = file_recorder.list_files

    def changing(where: str) -> list[ListedFile]:
        found = look(where)
        if found[0].modified_ns == int(1e9):
            put(path, rows(0, 3), 2.0)
        return found

    monkeypatch.setattr(file_recorder, "list_files", changing)
    record(place, tmp_path / "q", trigger=None, ends=True)
    assert read(tmp_path / "q") == [0, 1, 2]


def test_nobody_waits_for_a_recorder_that_has_stopped(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    made = recorder(str(tmp_path / "in"), tmp_path / "q", trigger=None)
    made.start(None)  # type: ignore[arg-type]  # Spark is not needed.
    made.stop()
    waiting = threading.Thread(target=made.process_all_available, daemon=True)
    waiting.start()
    waiting.join(240)
    assert not waiting.is_alive()


def test_what_a_client_of_a_store_raises_stops_the_source_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: str) -> list[ListedFile]:
        raise KeyError("size")

    monkeypatch.setattr(file_recorder, "list_files", failing)
    made = record(tmp_path, tmp_path / "q")
    assert made.error == "source files: KeyError: 'size'"


def test_a_day_is_a_time_without_a_zone(tmp_path: Path) -> None:
    place = tmp_path / "in" / "at=2026-11-25"
    place.mkdir(parents=True)
    (place / "a.csv").write_text("k,s\n0,x\n")
    options = {"header": "true"}
    made = record(tmp_path / "in", tmp_path / "q", format="csv", options=options)
    assert made.error is None
    assert read(tmp_path / "q") == [0]


def test_files_of_a_relative_place_are_named_absolutely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "in" / "a.parquet", rows(0, 1), 1.0)
    monkeypatch.chdir(tmp_path)
    assert [found.file.path for found in list_files("in")] == [str(path)]


@pytest.mark.parametrize(
    ("given", "why"),
    [({"format": "arrow"}, "no reader of Arrow"), ({"dead_letters": "bad"}, "of bad rows")],
)
def test_files_that_spark_cannot_read_alike_are_no_original_to_compare_with(
    tmp_path: Path, given: dict[str, str], why: str
) -> None:
    flow = Dataflow("files")
    flow.source_files(str(tmp_path), schema=SCHEMA, time="at", **given).sink("kept")
    step = next(step for step in flow.steps if not step.inputs)
    check = check_input(step, None, str(tmp_path))  # type: ignore[arg-type]
    assert check.compared_with == "recorded"
    assert why in check.reason
