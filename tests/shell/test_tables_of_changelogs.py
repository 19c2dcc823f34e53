"""A sink that is a changelog says so by itself: its table is read without the dataflow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.model.changes import CHANGE_FIELD, DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from holdfast.core.model.ids import BEGINNING_US, StreamId
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.driver.data_source import HoldfastSource
from holdfast.driver.sink_keys import say_sink_keys, sink_keys_at
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.logs import open_writer

Row = tuple[str | None, int | None]
COLUMNS = [pa.field("word", pa.string()), pa.field("n", pa.int64())]


def logged(root: Path, partition: int, schema: pa.Schema, rows: list[tuple[object, ...]]) -> None:
    """A sink's log of one instance."""
    timed = with_time(schema)
    place = str(root / "streams" / "counts" / str(partition))
    writer = open_writer(place, timed, StreamId(f"counts[{partition}]"), 1)
    columns = [
        pa.array(each, f.type) for each, f in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    batch = pa.RecordBatch.from_arrays([*columns, pa.array(range(len(rows)))], schema=timed)
    writer.append(TupleType.STABLE, writer.next_id, batch, BEGINNING_US, 0)
    writer.end()
    writer.close()


def table_at(location: Path, **options: str) -> list[Row]:
    source = HoldfastSource({"path": str(location), "stream": "counts", "table": "true", **options})
    reader = source.reader(source.schema())
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = (
        [tuple(row.values()) for row in pa.Table.from_batches(found).to_pylist()] if found else []
    )
    return sorted(rows, key=str)


def test_what_came_and_has_not_gone_is_there_as_often(tmp_path: Path) -> None:
    schema = pa.schema([*COLUMNS, CHANGE_FIELD])
    changes = [
        ("a", 1, INSERT),
        (None, 1, INSERT),
        ("a", 1, UPDATE_BEFORE),
        ("a", 2, UPDATE_AFTER),
        ("b", None, INSERT),
        ("b", None, INSERT),
        ("c", 3, INSERT),
    ]
    logged(tmp_path, 0, schema, [*changes])
    logged(tmp_path, 1, schema, [("c", 3, DELETE), ("d", 4, INSERT)])  # After another parallelism.
    assert table_at(tmp_path) == [("a", 2), ("b", None), ("b", None), ("d", 4), (None, 1)]
    with pytest.raises(StorageError, match="options table and metadata: give one"):
        table_at(tmp_path, metadata="true")
    source = HoldfastSource({"path": str(tmp_path), "stream": "counts", "table": "true"})
    assert source.schema().names == ["word", "n"]
    with pytest.raises(StorageError, match="no stream takes rows back"):
        source.streamReader(source.schema())


def test_a_table_from_which_all_has_gone_is_empty(tmp_path: Path) -> None:
    schema = pa.schema([*COLUMNS, CHANGE_FIELD])
    logged(tmp_path, 0, schema, [("a", 1, INSERT), ("a", 1, DELETE)])
    assert table_at(tmp_path) == []


def test_what_is_no_changelog_or_has_nested_columns_is_refused_by_name(tmp_path: Path) -> None:
    logged(tmp_path / "rows", 0, pa.schema(COLUMNS), [("a", 1)])
    with pytest.raises(StorageError, match="counts is no changelog"):
        table_at(tmp_path / "rows")
    nested = pa.schema([pa.field("list", pa.list_(pa.int64())), CHANGE_FIELD])
    logged(tmp_path / "nested", 0, nested, [([1], INSERT)])
    with pytest.raises(StorageError, match=r"nested columns \(list\)"):
        table_at(tmp_path / "nested")


def test_rows_that_replace_each_other_are_a_table_by_the_key_that_the_location_says(
    tmp_path: Path,
) -> None:
    rows = [("a", 1), (None, 1), ("b", 1), ("a", 2), (None, 2), ("a", None)]
    logged(tmp_path, 0, pa.schema(COLUMNS), [*rows])
    logged(tmp_path, 1, pa.schema(COLUMNS), [("c", 1), ("c", 2)])
    with pytest.raises(StorageError, match=r"counts is no changelog.*no key is known"):
        table_at(tmp_path)
    say_sink_keys(str(tmp_path), {"counts": ("word",), "other": None})
    assert table_at(tmp_path) == [("a", None), ("b", 1), ("c", 2), (None, 2)]
    with pytest.raises(StorageError, match="options table and types: give one"):
        table_at(tmp_path, types="all")
    logged(tmp_path, 2, pa.schema(COLUMNS), [("b", 3)])  # After another parallelism.
    with pytest.raises(StorageError, match="one key are in several streams"):
        table_at(tmp_path)


def test_without_a_key_the_newest_row_is_the_table(tmp_path: Path) -> None:
    logged(tmp_path, 0, pa.schema(COLUMNS), [("a", 1), ("b", 2)])
    say_sink_keys(str(tmp_path), {"counts": ()})
    assert table_at(tmp_path) == [("b", 2)]


def test_a_sink_whose_key_has_changed_has_none_from_then_on(tmp_path: Path) -> None:
    logged(tmp_path, 0, pa.schema(COLUMNS), [("a", 1)])
    for keys in (("word",), ("word",), ("word", "n"), ("word",)):
        say_sink_keys(str(tmp_path), {"counts": keys})
        say_sink_keys(str(tmp_path), {"other": ("x",)})
    assert sink_keys_at(str(tmp_path)) == {"counts": None, "other": ("x",)}
    with pytest.raises(StorageError, match="no key is known"):
        table_at(tmp_path)
    (tmp_path / "sinks.json").write_bytes(b'{"replaced_by": ')
    with pytest.raises(StorageError, match=r"sinks\.json"):
        table_at(tmp_path)
