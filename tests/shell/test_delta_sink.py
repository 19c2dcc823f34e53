"""A Delta table as a sink: each tuple once, as plain Delta readers see it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from holdfast.api.dataflow import Dataflow
from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.tuples import with_time
from holdfast.driver.delta_sink import DeltaSink
from holdfast.errors import DataflowError
from holdfast.shell.sinks import claimed_table
from holdfast.shell.sinks.base import Waits
from holdfast.shell.sinks.delta import DeltaSinkSpec, DeltaSinkWriter
from holdfast.shell.storage.errors import LogSuperseded, SchemaMismatch, StorageError
from holdfast.shell.stores.base import StoreUnavailable

AT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("v", pa.int64()), ("k", pa.string()), ("at", AT)])


def spec(
    tmp_path: Path, *, schema: pa.Schema = SCHEMA, by: str = "", index: int = 0
) -> DeltaSinkSpec:
    place = str(tmp_path / "q" / "streams" / "out" / str(index))
    table = str(tmp_path / "table")
    return DeltaSinkSpec(f"out[{index}]", table, schema, tuple(by.split()), place, 1.0)


def opened(of: DeltaSinkSpec, incarnation: int) -> DeltaSinkWriter:
    return of.open(incarnation, threading.Event(), Waits())


def append(writer: DeltaSinkWriter, count: int) -> None:
    numbers = range(writer.next_id, writer.next_id + count)
    values = pa.array(numbers, pa.int64())
    texts = pa.array([None if n % 3 == 2 else f"k{n % 3}" for n in numbers], pa.string())
    columns = [values, texts, values.cast(pa.timestamp("us")).cast(AT), values]
    batch = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    writer.append(0, writer.next_id, batch, writer.next_id, 0)


def seen(tmp_path: Path) -> list[int]:
    rows = DeltaTable(tmp_path / "table").to_pyarrow_table()
    return sorted(rows.column("v").to_pylist())


def test_what_was_synced_is_there_for_any_reader_and_the_next_incarnation_goes_on(
    tmp_path: Path,
) -> None:
    assert spec(tmp_path).settled() == 0
    writer = opened(spec(tmp_path, by="k"), 1)
    assert (writer.next_id, seen(tmp_path)) == (0, [])
    append(writer, 5)
    append(writer, 5)
    writer.sync()
    append(writer, 5)
    assert seen(tmp_path) == list(range(10))
    assert spec(tmp_path).settled() == 10
    writer = opened(spec(tmp_path, by="k"), 2)
    assert (writer.next_id, writer.boundary_us, writer.has_ended) == (10, 5, False)
    append(writer, 5)
    writer.sync()
    writer.end()
    assert seen(tmp_path) == list(range(15))
    assert opened(spec(tmp_path), 3).has_ended
    assert DeltaTable(tmp_path / "table").metadata().partition_columns == ["k"]


def test_a_zombie_is_refused_by_the_table(tmp_path: Path) -> None:
    zombie = opened(spec(tmp_path), 1)
    append(zombie, 10)
    writer = opened(spec(tmp_path), 2)
    append(writer, 4)
    writer.sync()
    with pytest.raises(LogSuperseded, match="incarnation 2 writes it"):
        zombie.sync()
    with pytest.raises(LogSuperseded):
        opened(spec(tmp_path), 1)
    assert seen(tmp_path) == list(range(4))


def test_a_commit_whose_answer_was_lost_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(spec(tmp_path), 1)
    append(writer, 10)
    answers: list[bool] = []
    write = deltalake.write_deltalake

    def lost(*args: Any, **more: Any) -> None:
        write(*args, **more)
        answers.append(True)
        raise deltalake.exceptions.CommitFailedError("no answer")

    monkeypatch.setattr(deltalake, "write_deltalake", lost)
    writer.sync()
    monkeypatch.undo()
    append(writer, 2)
    writer.sync()
    assert answers == [True]
    assert seen(tmp_path) == list(range(12))


def test_small_files_are_merged_and_each_row_stays_once(tmp_path: Path) -> None:
    """Another instance, and somebody else, write meanwhile."""
    merging, other = (
        opened(replace(spec(tmp_path, by="k", index=n), merge_s=None if n else 0.0), 1)
        for n in range(2)
    )
    for _ in range(10):
        for writer in (merging, other):
            append(writer, 3)
            writer.sync()
            writer.tidy()
        others = pa.table({"v": [100], "k": ["x"], "at": [None]}, schema=SCHEMA)
        write_deltalake(tmp_path / "table", others, mode="append")
    merging.close()
    table = DeltaTable(tmp_path / "table")
    assert seen(tmp_path) == sorted([*range(30), *range(30), *[100] * 10])
    assert {commit["operation"] for commit in table.history()} >= {"WRITE", "OPTIMIZE"}
    assert len(table.file_uris()) < 3 * 20 + 10
    assert [opened(spec(tmp_path, index=index), 2).next_id for index in range(2)] == [30, 30]


def test_others_may_write_the_table_and_so_may_other_instances(tmp_path: Path) -> None:
    both = [opened(spec(tmp_path, index=index), 1) for index in range(2)]
    others = pa.table({"v": [100], "k": ["x"], "at": [None]}, schema=SCHEMA)
    for _ in range(2):
        for writer in both:
            append(writer, 3)
            write_deltalake(tmp_path / "table", others, mode="append")
            writer.sync()
    assert seen(tmp_path) == sorted([*range(6), *range(6), *[100] * 4])
    assert [opened(spec(tmp_path, index=index), 2).next_id for index in range(2)] == [6, 6]


def test_a_table_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    writer = opened(spec(tmp_path), 1)
    append(writer, 3)
    writer.sync()
    (tmp_path / "table").rename(tmp_path / "away")
    with pytest.raises(StorageError, match="has lost up to where it was written"):
        opened(spec(tmp_path), 2)


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    opened(spec(tmp_path), 1)
    with pytest.raises(SchemaMismatch, match="do not fit: v string"):
        opened(spec(tmp_path, schema=SCHEMA.set(0, pa.field("v", pa.string()))), 2)
    rows = Dataflow("f").source_files(
        str(tmp_path), schema=SCHEMA.remove(0), time="at", name="rows"
    )
    with pytest.raises(DataflowError, match="these do not fit: it has more"):
        rows.sink_delta(str(tmp_path / "table"))
    with pytest.raises(DataflowError, match="no column 'none'"):
        rows.sink_delta(str(tmp_path / "other"), partition_by="none")
    (tmp_path / "file").touch()
    with pytest.raises(DataflowError, match="file cannot be a Delta table"):
        rows.sink_delta(str(tmp_path / "file"))


def test_a_table_that_cannot_be_reached_is_met_by_a_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(spec(tmp_path), 1)
    append(writer, 3)

    def away(*args: Any, **more: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(deltalake, "write_deltalake", away)
    with pytest.raises(StoreUnavailable, match="no route to host"):
        writer.sync()


def test_a_table_says_how_far_it_goes(tmp_path: Path) -> None:
    location = str(tmp_path / "q")
    sink = DeltaSink(str(tmp_path / "table"), SCHEMA, (), 1_000_000)
    assert sink.spec("out", 0, spec(tmp_path).place) == spec(tmp_path)
    writer = opened(spec(tmp_path), 1)
    assert sink.promised_us("out", location) == BEGINNING_US
    append(writer, 3)
    assert not sink.is_published("out", location, {"out[0]": 3})
    writer.sync()
    append(writer, 3)
    writer.sync()
    assert sink.promised_us("out", location) == 3
    assert sink.is_published("out", location, {"out[0]": 6})
    assert not sink.is_published("out", location, {"out[0]": 7})
    writer.end()
    assert sink.promised_us("out", location) == END_US
    opened(spec(tmp_path, index=1), 1)
    assert sink.promised_us("out", location) == BEGINNING_US
    assert sink.promised_us("out", location, instances=1) == END_US, "one is gone"


def test_a_writer_that_finds_another_claim_at_the_same_moment_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(spec(tmp_path), 1)
    known = claimed_table.known_next_id

    def meanwhile(*said: Any) -> int:
        monkeypatch.setattr(claimed_table, "known_next_id", known)
        append(writer := opened(spec(tmp_path), 2), 4)
        writer.sync()
        return known(*said)

    monkeypatch.setattr(claimed_table, "known_next_id", meanwhile)
    assert opened(spec(tmp_path), 3).next_id == 4


@pytest.mark.parametrize("is_by_key", [False, True])
def test_a_zombie_that_has_loaded_the_claim_of_another_writes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_by_key: bool
) -> None:
    """The claim comes between its commit and its look at the table."""
    of = upserts(tmp_path) if is_by_key else spec(tmp_path)
    zombie = opened(of, 1)
    load = DeltaTable.update_incremental

    def more(writer: DeltaSinkWriter, name: str) -> None:
        if is_by_key:
            change(writer, (name, 1, NEW))
        else:
            append(writer, 1)
        writer.sync()

    def claimed_meanwhile(self: DeltaTable) -> None:
        monkeypatch.setattr(DeltaTable, "update_incremental", load)
        more(opened(of, 2), "b")
        load(self)

    def both() -> None:
        more(zombie, "a")
        more(zombie, "c")

    monkeypatch.setattr(DeltaTable, "update_incremental", claimed_meanwhile)
    with pytest.raises(LogSuperseded, match="incarnation 2 writes it"):
        both()
    assert len(DeltaTable(tmp_path / "table").to_pyarrow_table()) == 2
    assert opened(of, 3).next_id == 2


CHANGES = pa.schema([("k", pa.string()), ("n", pa.int64()), ("_change", pa.string())])
NEW, WAS, NOW, GONE = "insert", "update_before", "update_after", "delete"


def change(writer: DeltaSinkWriter, *rows: tuple[str | None, int, str]) -> None:
    """Append changes: the key, the value, the kind."""
    listed = [dict(zip(CHANGES.names, row, strict=True)) | {"__time_us": 1} for row in rows]
    batch = pa.RecordBatch.from_pylist(listed, schema=with_time(CHANGES))
    writer.append(0, writer.next_id, batch, writer.next_id, 0)


def upserts(tmp_path: Path, index: int = 0, *, is_paired: bool = True) -> DeltaSinkSpec:
    made = spec(tmp_path, schema=CHANGES.remove(2), index=index)
    return replace(made, upserts=("k",), is_paired=is_paired)


def table(tmp_path: Path) -> dict[str | None, int]:
    rows = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    found = {row["k"]: row["n"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_changes_replace_and_delete_the_rows_of_their_keys(tmp_path: Path) -> None:
    writer = opened(upserts(tmp_path), 1)
    change(
        writer,
        ("a", 1, NEW),
        ("b", 2, NEW),
        (None, 3, NEW),
        ("a", 1, WAS),
        ("a", 4, NOW),
        ("b", 2, WAS),
    )
    writer.sync()  # What becomes of "b" comes later.
    assert table(tmp_path) == {"a": 4, "b": 2, None: 3}
    change(writer, ("b", 5, NOW), (None, 3, GONE), ("a", 4, GONE), ("a", 6, NEW))
    writer.sync()
    assert table(tmp_path) == {"a": 6, "b": 5}
    change(
        writer, ("c", 7, NEW), ("c", 7, GONE)
    )  # It changes nothing, but the sink has come further.
    writer.sync()
    writer = opened(upserts(tmp_path), 2)
    assert (writer.next_id, table(tmp_path)) == (12, {"a": 6, "b": 5})
    change(writer, ("a", 6, GONE))
    writer.sync()
    assert table(tmp_path) == {"b": 5}


def test_a_commit_may_have_nothing_but_rows_as_they_were(tmp_path: Path) -> None:
    """What became of them is in the next one."""
    writer = opened(upserts(tmp_path), 1)
    change(writer, ("a", 1, NEW))
    writer.sync()
    change(writer, ("a", 1, WAS))
    writer.sync()
    writer = opened(upserts(tmp_path), 2)
    assert (writer.next_id, table(tmp_path)) == (2, {"a": 1})
    change(writer, ("a", 2, NOW))
    writer.sync()
    assert table(tmp_path) == {"a": 2}


def test_rows_have_keys_of_several_columns(tmp_path: Path) -> None:
    columns = [("Who", pa.int32()), ("the `item`", pa.string()), ("n", pa.decimal128(9, 2))]
    rows = pa.schema([*columns, ("at", AT)])
    of = replace(spec(tmp_path, schema=rows), upserts=("Who", "the `item`"))
    writer = opened(of, 1)
    changes = [(1, "a", 1, NEW), (1, "b", 2, NEW), (2, "a", 3, NEW), (None, None, 4, NEW)]
    for told in (changes, [(1, "b", 5, NOW), (2, "a", 3, GONE), (None, None, 6, NOW)]):
        names = [*rows.names, "_change", "__time_us"]
        listed = [dict(zip(names, (*row[:3], None, row[3], 1), strict=True)) for row in told]
        batch = pa.RecordBatch.from_pylist(listed, schema=with_time(rows.append(CHANGES.field(2))))
        writer.append(0, writer.next_id, batch, 0, 0)
        writer.sync()
    found = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
    assert {(row["Who"], row["the `item`"]): int(row["n"]) for row in found} == {
        (1, "a"): 1,
        (1, "b"): 5,
        (None, None): 6,
    }


def test_a_row_that_was_is_gone_where_nothing_need_follow(tmp_path: Path) -> None:
    writer = opened(upserts(tmp_path, is_paired=False), 1)
    change(writer, ("a", 1, NEW), ("b", 2, NEW), ("a", 1, WAS), ("b", 2, WAS), ("b", 3, NOW))
    writer.sync()
    assert table(tmp_path) == {"b": 3}


def test_instances_change_one_table_and_zombies_do_not(tmp_path: Path) -> None:
    zombie, other = opened(upserts(tmp_path), 1), opened(upserts(tmp_path, 1), 1)
    change(zombie, ("a", 1, NEW))
    zombie.sync()
    change(other, ("b", 1, NEW))
    other.sync()
    change(zombie, ("a", 1, WAS), ("a", 9, NOW))
    change(other, ("b", 1, WAS), ("b", 2, NOW))
    writer = opened(upserts(tmp_path), 2)
    assert writer.next_id == 1
    with pytest.raises(LogSuperseded, match="incarnation 2 writes it"):
        zombie.sync()
    change(writer, ("a", 1, WAS), ("a", 3, NOW))
    writer.sync()
    other.sync()
    assert table(tmp_path) == {"a": 3, "b": 2}


def test_a_merge_whose_answer_was_lost_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(upserts(tmp_path), 1)
    change(writer, ("a", 1, NEW))
    merge = DeltaSinkWriter._merge

    def lost(self: DeltaSinkWriter, *given: Any) -> None:
        merge(self, *given)
        raise deltalake.exceptions.CommitFailedError("no answer")

    monkeypatch.setattr(DeltaSinkWriter, "_merge", lost)
    writer.sync()
    monkeypatch.undo()
    version = DeltaTable(tmp_path / "table").version()
    change(writer, ("a", 1, WAS), ("a", 2, NOW))
    writer.sync()
    assert table(tmp_path) == {"a": 2}
    assert DeltaTable(tmp_path / "table").version() == version + 1
