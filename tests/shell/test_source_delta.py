"""A Delta table as a stream: its rows, then those of each version, each once."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from s3_server import s3_place

from holdfast.core.queues.table_versions import TableUnfit, added_files
from holdfast.driver.user_files import delta_source, recorder_of
from holdfast.errors import DataflowError
from holdfast.shell.sources.delta_recorder import DeltaRecorder
from holdfast.shell.storage.ingest_log import IngestLogReader, SchemaMismatch
from holdfast.shell.storage.paths import ingest_path

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("part", pa.int32())])


def rows_of(*keys: int) -> pa.Table:
    """Rows with these keys, a second apart."""
    times = [datetime.fromtimestamp(1000 + key, UTC) for key in keys]
    return pa.table([times, list(keys), [key % 2 for key in keys]], schema=SCHEMA)


def append(table: Path, *keys: int) -> None:
    """A version with these keys, in two partitions."""
    write_deltalake(str(table), rows_of(*keys), mode="append", partition_by=["part"])


def record(table: Path | str, location: Path, **settings: Any) -> DeltaRecorder:
    given: dict[str, Any] = {
        "start_version": None,
        "start_time": None,
        "delay": None,
        "schema": None,
    }
    given |= {"ahead": None, "trigger": {"availableNow": True}, "ends": False}
    source = delta_source(str(table), time="at", **(given | settings))
    made = recorder_of("rows", source, str(location))
    assert isinstance(made, DeltaRecorder)
    made.start(None)  # type: ignore[arg-type]  # Spark is not needed.
    made.wait()
    return made


def keys(location: Path) -> list[tuple[int, int]]:
    """Keys and partitions in the stream's order."""
    reader, found = IngestLogReader(ingest_path(str(location), "rows"), 0, 1), []
    while batches := reader.poll():
        for batch in batches:
            found += zip(*(batch.batch.column(n).to_pylist() for n in (1, 2)), strict=True)
    reader.close()
    return found


def of(*numbers: int) -> list[tuple[int, int]]:
    return [(number, number % 2) for number in numbers]


def test_the_rows_of_a_table_come_first_and_then_each_version_once(tmp_path: Path) -> None:
    table, location = tmp_path / "table", tmp_path / "q"
    append(table, 0, 1)
    append(table, 2)
    assert record(table, location).error is None
    assert sorted(keys(location)) == of(0, 1, 2)
    append(table, 5, 4)
    DeltaTable(str(table)).optimize.compact()  # The same rows in other files.
    append(table, 7)
    for _ in range(2):  # The second time there is nothing new.
        assert record(table, location).error is None
        assert sorted(keys(location)[:3]) == of(0, 1, 2)
        assert sorted(keys(location)[3:5]) == of(4, 5)
        assert keys(location)[5:] == of(7)


def test_a_table_at_a_url_is_read_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")  # For deltalake.
    local, location = tmp_path / "table", tmp_path / "q"
    with s3_place("tables") as bucket:
        url, store = f"{bucket}/table", fsspec.filesystem("s3")
        append(local, 0, 1)
        append(local, 2)
        store.put(str(local), url, recursive=True)
        assert record(url, location).error is None
        assert sorted(keys(location)) == of(0, 1, 2)
        for key in (5, 7):
            append(local, key)
            DeltaTable(str(local)).optimize.compact()
        store.put(f"{local}/", url, recursive=True)
        assert record(url, location).error is None
        assert keys(location)[3:] == of(5, 7)
        began = datetime.fromtimestamp(0, UTC)
        assert record(url, tmp_path / "more", start_time=began).error is None
        assert sorted(keys(tmp_path / "more")) == of(0, 1, 2, 5, 7)


def test_a_start_leaves_out_what_was_before_it(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for key in range(4):
        append(table, key)
    history = DeltaTable(str(table)).history()
    made_ms = {entry["version"]: entry["timestamp"] for entry in history}
    record(table, tmp_path / "version", start_version=2)
    assert keys(tmp_path / "version") == of(2, 3)
    at = datetime.fromtimestamp(made_ms[3] / 1000, UTC)
    record(table, tmp_path / "time", start_time=at)
    wanted = [version for version in range(4) if made_ms[version] >= made_ms[3]]
    assert keys(tmp_path / "time") == of(*wanted)
    record(table, tmp_path / "future", start_version=4)
    assert keys(tmp_path / "future") == []
    append(table, 9)
    record(table, tmp_path / "future", start_version=4)
    assert keys(tmp_path / "future") == of(9)


def test_a_table_that_ends_holds_what_it_had_at_the_first_start(tmp_path: Path) -> None:
    table, location = tmp_path / "table", tmp_path / "q"
    append(table, 1)
    assert record(table, location, trigger=None, ends=True).has_ended
    append(table, 2)
    record(table, location, trigger=None, ends=True)
    assert keys(location) == of(1)


def test_rows_that_are_taken_back_end_the_stream_by_name(tmp_path: Path) -> None:
    table, location = tmp_path / "table", tmp_path / "q"
    append(table, 0, 1)
    record(table, location)
    DeltaTable(str(table)).delete("k = 0")
    found = record(table, location).error
    assert found is not None
    assert "version 1 cannot be read: it removes or changes rows" in found
    assert found.endswith("or behind this version, with start_version=2")


def test_what_a_vacuum_has_removed_is_named(tmp_path: Path) -> None:
    table = tmp_path / "table"
    append(table, 0)
    append(table, 1)
    for path in DeltaTable(str(table)).file_uris():
        os.unlink(path)
    for location, settings in (("start", {"start_version": 1}), ("snapshot", {})):
        found = record(table, tmp_path / location, **settings).error
        assert found is not None
        assert "gone" in found


def test_a_version_that_is_gone_from_the_log_is_named(tmp_path: Path) -> None:
    table, location = tmp_path / "table", tmp_path / "q"
    append(table, 0)
    record(table, location)
    for key in range(1, 4):
        append(table, key)
    DeltaTable(str(table)).create_checkpoint()
    for version in range(3):  # As the table's owner does it, behind a checkpoint.
        os.unlink(table / "_delta_log" / f"{version:020d}.json")
    found = record(table, location).error
    assert found is not None
    assert "version 1 is gone from the table's log" in found
    assert keys(location) == of(0)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({"protocol": {"readerFeatures": ["deletionVectors"]}}, "feature deletionVectors"),
        ({"metaData": {"configuration": {"delta.columnMapping.mode": "name"}}}, "mapped by name"),
        ({"add": {"path": "a", "size": 1, "deletionVector": {"x": 1}}}, "marked as deleted"),
        ({"cdc": {"path": "a"}}, "changes rows"),
    ],
)
def test_what_parquet_alone_does_not_say_is_refused(action: dict[str, Any], reason: str) -> None:
    with pytest.raises(TableUnfit, match=reason):
        added_files([json.loads(json.dumps(action))])


def test_a_table_that_gets_a_column_goes_on_with_the_columns_that_were_chosen(
    tmp_path: Path,
) -> None:
    table, location = tmp_path / "table", tmp_path / "q"
    append(table, 0, 1)
    chosen = pa.schema([SCHEMA.field("at"), SCHEMA.field("k"), SCHEMA.field("part")])
    assert record(table, location, schema=chosen).error is None
    more = rows_of(2, 3).append_column("more", pa.array(["new", "newer"]))
    write_deltalake(str(table), more, mode="append", schema_mode="merge")
    with pytest.raises(SchemaMismatch, match=r"differing: more string.* have schema="):
        record(table, location)
    assert record(table, location, schema=chosen).error is None
    assert sorted(keys(location)) == of(0, 1, 2, 3)


@pytest.mark.parametrize("column", [pa.field("none", pa.int64()), pa.field("k", pa.string())])
def test_columns_that_a_table_has_not_are_refused(tmp_path: Path, column: pa.Field) -> None:
    append(tmp_path / "table", 0)
    wanted = pa.schema([SCHEMA.field("at"), column])
    with pytest.raises(DataflowError, match=f"schema has {column.name} .*; the columns of .* are"):
        record(tmp_path / "table", tmp_path / "q", schema=wanted)


def altered(table: Path, protocol: dict[str, Any], settings: dict[str, str]) -> None:
    """Have the first version of a table say so."""
    log = table / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = protocol
        if "metaData" in action:
            action["metaData"]["configuration"] = settings
            schema = json.loads(action["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"]):
                id_, name = "delta.columnMapping.id", "delta.columnMapping.physicalName"
                field["metadata"] = {id_: number + 1, name: field["name"]}
            action["metaData"]["schemaString"] = json.dumps(schema)
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


@pytest.mark.parametrize("start_version", [None, 1])
@pytest.mark.parametrize(
    ("protocol", "settings", "reason"),
    [
        (
            {
                "minReaderVersion": 3,
                "readerFeatures": ["deletionVectors"],
                "minWriterVersion": 7,
                "writerFeatures": ["deletionVectors"],
            },
            {"delta.enableDeletionVectors": "true"},
            "it needs the table feature deletionVectors",
        ),
        (
            {"minReaderVersion": 2, "minWriterVersion": 5},
            {"delta.columnMapping.mode": "name"},
            "its columns are mapped by name",
        ),
    ],
)
def test_a_table_that_holds_more_than_parquet_says_is_refused_wherever_it_begins(
    tmp_path: Path,
    protocol: dict[str, Any],
    settings: dict[str, str],
    reason: str,
    start_version: int | None,
) -> None:
    """Versions from the start on need not say again what the ones before it have said."""
    append(tmp_path / "table", 0)
    altered(tmp_path / "table", protocol, settings)
    with pytest.raises(DataflowError, match=reason):
        record(tmp_path / "table", tmp_path, start_version=start_version)


@pytest.mark.parametrize("start_version", [-1, 2])
def test_a_version_that_cannot_be_next_is_refused(tmp_path: Path, start_version: int) -> None:
    append(tmp_path / "table", 0)
    with pytest.raises(DataflowError, match=r"the newest version of .* is 0"):
        record(tmp_path / "table", tmp_path, start_version=start_version)
    assert record(tmp_path / "table", tmp_path, start_version=1).error is None


def test_a_table_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(DataflowError, match=r"pip install 'holdfast-streaming\[delta\]'"):
        record(tmp_path / "table", tmp_path)


def test_arguments_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    append(tmp_path / "table", 0)
    with pytest.raises(DataflowError, match="give one of them"):
        record(tmp_path / "table", tmp_path, start_version=1, start_time=datetime.now(UTC))
    with pytest.raises(DataflowError, match="no time zone"):
        record(tmp_path / "table", tmp_path, start_time=datetime(2026, 1, 1))
    with pytest.raises(DataflowError, match="is no Delta table that can be read"):
        record(tmp_path / "none", tmp_path)
