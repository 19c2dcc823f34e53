"""A sink's files: whole or hidden, each tuple once, whatever becomes of their writer."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import with_time
from holdfast.driver.files_sink import FilesSink, newest_records
from holdfast.errors import DataflowError
from holdfast.shell.sinks import collecting
from holdfast.shell.sinks.base import Waits
from holdfast.shell.sinks.file_formats import FORMATS, partitioned
from holdfast.shell.sinks.files import FilesSinkSpec, FilesSinkWriter
from holdfast.shell.storage.errors import LogSuperseded, PlaceForbidden, StorageError

SCHEMA = pa.schema([("v", pa.int64()), ("k", pa.string()), ("day", pa.date32())])


def spec(
    tmp_path: Path, *, folder: str = "", format: str = "parquet", by: str = ""
) -> FilesSinkSpec:
    place = str(tmp_path / "q" / "streams" / "out" / "0")
    partition_by = tuple(by.split()) if by else ()
    return FilesSinkSpec(
        "out[0]", folder or str(tmp_path / "out"), format, partition_by, place, 1.0
    )


def opened(of: FilesSinkSpec, incarnation: int) -> FilesSinkWriter:
    return of.open(incarnation, threading.Event(), Waits())


def append(writer: FilesSinkWriter, count: int) -> None:
    numbers = range(writer.next_id, writer.next_id + count)
    columns = [
        pa.array(numbers, pa.int64()),
        pa.array([None if n % 3 == 2 else f"k/{n % 3}" for n in numbers], pa.string()),
        pa.array([date(2026, 11, 1 + n % 2) for n in numbers], pa.date32()),
        pa.array(numbers, pa.int64()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    writer.append(0, writer.next_id, batch, writer.next_id, 0)


def test_integers_and_times_are_packed_and_what_repeats_has_a_dictionary(tmp_path: Path) -> None:
    count = 5_000
    table = pa.table(
        {
            "id": pa.array([None, *range(1, count)], pa.int64()),
            "at": pa.array([n * 1_000 for n in range(count)], pa.timestamp("us", tz="UTC")),
            "day": pa.array([n % 7 for n in range(count)], pa.date32()),
            "few": [f"name {n % 9}" for n in range(count)],
            "many": [n / 3 for n in range(count)],
        }
    )
    with (tmp_path / "a.parquet").open("wb") as file:
        FORMATS["parquet"](table, file)
    found = pq.ParquetFile(tmp_path / "a.parquet")
    assert found.read().equals(table)
    group = found.metadata.row_group(0)
    encodings = [group.column(n).encodings for n in range(table.num_columns)]
    assert all("DELTA_BINARY_PACKED" in used for used in encodings[:3])
    assert ["RLE_DICTIONARY" in used for used in encodings] == [False, False, False, True, False]


def seen(folder: Path, format: str = "parquet") -> list[int]:
    """The values that a reader finds who knows nothing of Holdfast."""
    found = ds.dataset(folder, format="ipc" if format == "arrow" else format, partitioning="hive")
    return sorted(found.to_table().column("v").to_pylist())


def hidden(folder: Path) -> list[Path]:
    return [path for path in (folder / "_holdfast").rglob("*") if path.is_file()]


@pytest.mark.parametrize("format", ["parquet", "orc", "arrow", "csv"])
def test_what_was_synced_is_there_for_anybody_and_nothing_else(tmp_path: Path, format: str) -> None:
    of = spec(tmp_path, format=format)
    writer = opened(of, 1)
    append(writer, 5)
    append(writer, 5)
    assert not (tmp_path / "out").exists()
    writer.sync()
    append(writer, 5)
    assert seen(tmp_path / "out", format) == list(range(10))
    (path,) = (tmp_path / "out").glob(f"*.{format}")
    assert path.name.startswith("part-")
    assert path.name.endswith(f"-out-0-000000000000-000000000010.{format}")
    assert hidden(tmp_path / "out") == []


def test_the_next_incarnation_goes_on_behind_the_last_cut(tmp_path: Path) -> None:
    writer = opened(spec(tmp_path), 1)
    append(writer, 10)
    writer.sync()
    append(writer, 10)
    writer = opened(spec(tmp_path), 2)
    assert (writer.next_id, writer.boundary_us, writer.has_ended) == (10, 0, False)
    append(writer, 4)
    writer.sync()
    writer.end()
    assert opened(spec(tmp_path), 3).has_ended
    assert seen(tmp_path / "out") == list(range(14))


def synced_and_tidied(writer: FilesSinkWriter) -> None:
    writer.sync()
    writer.tidy()


class Killed(Exception):
    """The process ends here."""


STEPS = ["write", "put", "rename", "half of rename", "delete"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_done", [False, True], ids=["before it", "after it"])
def test_whoever_is_killed_at_any_step_leaves_every_tuple_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, is_done: bool
) -> None:
    of = spec(tmp_path, by="day k")
    writer = opened(of, 1)
    append(writer, 10)
    writer.sync()
    append(writer, 10)

    def killed(*args: Any) -> None:
        if step == "half of rename":
            (path,) = args
            original((path[0],))
        elif is_done:
            original(*args)
        raise Killed

    owner: Any = (
        writer._folder if step in ("write", "rename", "half of rename") else writer._store._store
    )
    name = step.rpartition(" ")[2]
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, killed)
    with pytest.raises(Killed):
        synced_and_tidied(writer)
    writer = opened(of, 2)
    assert writer.next_id in (10, 20)
    append(writer, 30 - writer.next_id)
    writer.sync()
    writer.tidy()
    assert seen(tmp_path / "out") == list(range(30))
    assert hidden(tmp_path / "out") == []
    assert len(os.listdir(tmp_path / "q" / "streams" / "out" / "0" / "cuts")) == 1


def test_a_zombie_is_refused_and_what_it_writes_is_not_seen(tmp_path: Path) -> None:
    zombie = opened(spec(tmp_path), 1)
    append(zombie, 10)
    writer = opened(spec(tmp_path), 2)
    append(writer, 4)
    writer.sync()
    with pytest.raises(LogSuperseded, match="sink out\\[0\\]: another incarnation has claimed it"):
        zombie.sync()
    with pytest.raises(LogSuperseded):
        opened(spec(tmp_path), 1)
    append(writer, 4)
    writer.sync()
    assert seen(tmp_path / "out") == list(range(8))
    opened(spec(tmp_path), 3)
    assert hidden(tmp_path / "out") == []


def test_partitions_are_folders_as_spark_names_them(tmp_path: Path) -> None:
    writer = opened(spec(tmp_path, by="day k"), 1)
    append(writer, 12)
    writer.sync()
    found = {
        str(path.parent.relative_to(tmp_path / "out"))
        for path in (tmp_path / "out").rglob("*.parquet")
    }
    names = ("k=k%2F0", "k=k%2F1", "k=__HIVE_DEFAULT_PARTITION__")
    assert found == {f"day=2026-11-0{day}/{name}" for day in (1, 2) for name in names}
    assert seen(tmp_path / "out") == list(range(12))


def test_rows_of_a_partition_keep_their_order() -> None:
    table = pa.table({"k": ["b", "a", None, "b", "", "a"], "v": range(6)})
    found = {folder: rows.column("v").to_pylist() for folder, rows in partitioned(table, ["k"])}
    assert found.pop("k=b") == [0, 3]
    assert found.pop("k=a") == [1, 5]
    assert list(found) == ["k=__HIVE_DEFAULT_PARTITION__"]


def test_much_is_a_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "CUT_TUPLES", 10)
    writer = opened(spec(tmp_path), 1)
    append(writer, 9)
    assert not writer.is_full
    append(writer, 1)
    assert writer.is_full
    writer.sync()
    assert not writer.is_full
    monkeypatch.setattr(collecting, "_CUT_BYTES", 100)
    append(writer, 8)
    assert writer.is_full


def test_a_folder_that_may_not_be_written_is_named_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(spec(tmp_path), 1)
    append(writer, 1)

    def forbidden(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", forbidden)
    with pytest.raises(PlaceForbidden, match=r"Permission denied, for user .*'s, mode") as found:
        writer.sync()
    assert str(found.value).startswith(str(tmp_path / "out"))
    assert str(found.value).endswith("Give it to this user or give the sink another folder")


def test_tuples_that_do_not_come_next_are_refused(tmp_path: Path) -> None:
    writer = opened(spec(tmp_path), 1)
    append(writer, 3)
    writer.next_id = 5
    with pytest.raises(StorageError, match="tuple 3, expected 5"):
        writer.append(0, 3, pa.RecordBatch.from_pylist([]), 0, 0)


@pytest.fixture
def memory() -> Iterator[str]:
    yield "memory://sunk/out"
    fsspec.filesystem("memory").rm("/sunk", recursive=True)


def test_files_go_to_a_url_of_fsspec_and_a_killed_writer_has_a_successor(
    tmp_path: Path, memory: str
) -> None:
    of = spec(tmp_path, folder=memory, by="day")
    writer = opened(of, 1)
    append(writer, 10)
    writer.sync()
    append(writer, 5)
    writer._folder.rename = lambda files: (_ for _ in ()).throw(Killed)  # type: ignore[method-assign]
    with pytest.raises(Killed):
        writer.sync()
    writer = opened(of, 2)
    assert writer.next_id == 15
    system = fsspec.filesystem("memory")
    found = [path for path in system.find("/sunk/out") if "/_holdfast/" not in path]
    values = [v for path in found for v in pq.read_table(system.open(path)).column("v").to_pylist()]
    assert sorted(values) == list(range(15))


def test_the_newest_records_say_how_far_the_files_go(tmp_path: Path) -> None:
    location = str(tmp_path / "q")
    of = spec(tmp_path)
    sink = FilesSink(of.folder, of.format, of.partition_by, 1_000_000)
    writer = opened(of, 1)
    assert sink.promised_us("out", location) == BEGINNING_US
    append(writer, 3)
    writer.sync()
    append(writer, 3)
    writer.sync()
    assert sink.promised_us("out", location) == 3
    assert newest_records(location, "out")["out[0]"].next_id == 6


def test_rows_are_published_when_their_files_have_names_and_not_with_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location, of = str(tmp_path / "q"), spec(tmp_path)
    sink = FilesSink(of.folder, of.format, of.partition_by, 1_000_000)
    writer = opened(of, 1)
    append(writer, 3)
    looks: list[bool] = []
    rename = writer._folder.rename

    def looking(files: Any) -> None:
        looks.append(sink.is_published("out", location, {"out[0]": 3}))
        rename(files)

    monkeypatch.setattr(writer._folder, "rename", looking)
    writer.sync()
    looks.append(sink.is_published("out", location, {"out[0]": 3}))
    assert looks == [False, True]
    assert not sink.is_published("out", location, {"out[0]": 4})
    assert not sink.is_published("out", location, {"out[1]": 1})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"format": "xml"}, "format='xml'; there are parquet, orc"),
        ({"partition_by": "none"}, "no column 'none'"),
        ({"partition_by": "at"}, "folders name integers, strings, booleans and dates"),
        ({"path": "s3://user:secret@bucket/out"}, "password"),
        ({"path": "nosuch://bucket/out"}, "nosuch://bucket/out: Protocol not known"),
        ({"path": __file__}, "is a file; sink_files takes the folder"),
    ],
)
def test_a_sink_that_makes_no_sense_is_refused_at_once(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.string())])
    rows = Dataflow("f").source_files(str(tmp_path), schema=schema, time="at", name="rows")
    with pytest.raises(DataflowError, match=message):
        rows.sink_files(**({"path": str(tmp_path / "out")} | wrong))
