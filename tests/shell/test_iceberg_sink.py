"""An Iceberg table as a sink: each tuple once, as plain Iceberg readers see it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table
from without_spark import without_spark

from holdfast.api.dataflow import Dataflow
from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import with_time
from holdfast.driver.iceberg_sink import IcebergSink
from holdfast.errors import DataflowError
from holdfast.shell.sinks.base import Waits
from holdfast.shell.sinks.iceberg import Catalog, IcebergSinkSpec, IcebergSinkWriter
from holdfast.shell.storage.errors import LogSuperseded, SchemaMismatch, StorageError
from holdfast.shell.stores.base import StoreUnavailable

AT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("v", pa.int64()), ("k", pa.string()), ("small", pa.int16()), ("at", AT)])
TABLE = "shop.out"


def properties(tmp_path: Path) -> dict[str, str]:
    place = f"sqlite:///{tmp_path}/catalog.db"
    return {"type": "sql", "uri": place, "warehouse": f"file://{tmp_path}/warehouse"}


def spec(tmp_path: Path, *, schema: pa.Schema = SCHEMA, index: int = 0) -> IcebergSinkSpec:
    place = str(tmp_path / "q" / "streams" / "out" / str(index))
    return IcebergSinkSpec(
        f"out[{index}]", TABLE, Catalog("shops", properties(tmp_path)), schema, place, 1.0
    )


def opened(of: IcebergSinkSpec, incarnation: int) -> IcebergSinkWriter:
    return of.open(incarnation, threading.Event(), Waits())


def append(writer: IcebergSinkWriter, count: int) -> None:
    values = pa.array(range(writer.next_id, writer.next_id + count), pa.int64())
    columns = [values, values.cast(pa.string()), values.cast(pa.int16()), values.cast(AT), values]
    batch = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    writer.append(0, writer.next_id, batch, writer.next_id, 0)


def table_of(tmp_path: Path) -> Table:
    return load_catalog("shops", **properties(tmp_path)).load_table(TABLE)


def seen(tmp_path: Path) -> list[int]:
    return sorted(table_of(tmp_path).scan().to_arrow().column("v").to_pylist())


def test_what_was_synced_is_there_for_any_reader_and_the_next_incarnation_goes_on(
    tmp_path: Path,
) -> None:
    assert spec(tmp_path).settled() == 0
    writer = opened(spec(tmp_path), 1)
    assert (writer.next_id, seen(tmp_path)) == (0, [])
    append(writer, 5)
    append(writer, 5)
    writer.sync()
    append(writer, 5)
    assert seen(tmp_path) == list(range(10))
    assert spec(tmp_path).settled() == 10
    writer = opened(spec(tmp_path), 2)
    assert (writer.next_id, writer.boundary_us, writer.has_ended) == (10, 5, False)
    append(writer, 5)
    writer.sync()
    writer.end()
    assert seen(tmp_path) == list(range(15))
    assert opened(spec(tmp_path), 3).has_ended


def test_a_zombie_is_refused_by_the_table(tmp_path: Path) -> None:
    """pyiceberg would make its commit again, behind the claim."""
    zombie = opened(spec(tmp_path), 1)
    append(zombie, 10)
    writer = opened(spec(tmp_path), 2)
    with pytest.raises(LogSuperseded, match="incarnation 2 writes it"):
        zombie.sync()
    append(writer, 4)
    writer.sync()
    with pytest.raises(LogSuperseded):
        zombie.sync()
    with pytest.raises(LogSuperseded):
        opened(spec(tmp_path), 1)
    assert seen(tmp_path) == list(range(4))
    assert "commit.retry.num-retries" not in table_of(tmp_path).properties


def test_a_commit_whose_answer_was_lost_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(spec(tmp_path), 1)
    append(writer, 10)
    commit, answers = Table._do_commit, []

    def lost(self: Table, *args: Any, **more: Any) -> None:
        commit(self, *args, **more)
        answers.append(True)
        raise CommitStateUnknownException("no answer")

    monkeypatch.setattr(Table, "_do_commit", lost)
    writer.sync()
    monkeypatch.undo()
    append(writer, 2)
    writer.sync()
    assert answers == [True]
    assert seen(tmp_path) == list(range(12))


def test_others_may_write_the_table_and_so_may_other_instances(tmp_path: Path) -> None:
    both = [opened(spec(tmp_path, index=index), 1) for index in range(2)]
    columns = {"v": [100], "k": ["x"], "small": pa.array([1], pa.int32()), "at": [None]}
    others = pa.table(columns).cast(table_of(tmp_path).schema().as_arrow())
    for _ in range(2):
        for writer in both:
            append(writer, 3)
            table_of(tmp_path).append(others)
            writer.sync()
    assert seen(tmp_path) == sorted([*range(6), *range(6), *[100] * 4])
    assert [opened(spec(tmp_path, index=index), 2).next_id for index in range(2)] == [6, 6]


def test_a_table_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    writer = opened(spec(tmp_path), 1)
    append(writer, 3)
    load_catalog("shops", **properties(tmp_path)).drop_table(TABLE)
    with pytest.raises(StoreUnavailable):
        writer.sync()
    with pytest.raises(StorageError, match="was made anew"):
        opened(spec(tmp_path), 2)


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    opened(spec(tmp_path), 1)
    with pytest.raises(SchemaMismatch, match="w int64"):
        opened(spec(tmp_path, schema=pa.schema([("w", pa.int64())])), 2)


def test_a_table_says_how_far_it_goes(tmp_path: Path) -> None:
    sink = IcebergSink(TABLE, Catalog("shops", properties(tmp_path)), SCHEMA, 1)
    location = str(tmp_path / "q")
    writer = opened(spec(tmp_path), 1)
    append(writer, 3)
    writer.sync()
    assert sink.is_published("out", location, {"out[0]": 3})
    assert not sink.is_published("out", location, {"out[0]": 4})
    assert sink.promised_us("out", location) == 0
    writer.end()
    assert sink.promised_us("out", location) == END_US


def test_what_makes_no_sense_is_refused_where_it_is_written(tmp_path: Path) -> None:
    opened(spec(tmp_path), 1)
    columns = pa.schema([("v", pa.int64()), ("at", AT)])
    (tmp_path / "in").mkdir()
    stream = Dataflow("d").source_files(str(tmp_path / "in"), schema=columns, time="at")
    with pytest.raises(DataflowError, match="lacks its namespace"):
        stream.sink_iceberg("out", catalog="shops", properties=properties(tmp_path))
    with pytest.raises(DataflowError, match="it has more"):
        stream.sink_iceberg(TABLE, catalog="shops", properties=properties(tmp_path))
    with pytest.raises(DataflowError, match=f"catalog of {TABLE}"):
        stream.sink_iceberg(TABLE, catalog="shops", properties={"type": "none"})


def test_instances_of_a_query_write_a_table_and_a_later_run_goes_on(tmp_path: Path) -> None:
    columns = pa.schema([("at", AT), ("v", pa.int64())])
    (tmp_path / "in").mkdir()

    def put(number: int) -> None:
        values = pa.array(range(number * 500, number * 500 + 500), pa.int64())
        rows = pa.table([values.cast(AT), values], schema=columns)
        parquet.write_table(rows, tmp_path / f"_{number}")
        (tmp_path / f"_{number}").rename(tmp_path / "in" / f"{number}.parquet")

    for number in range(4):
        put(number)
        flow = Dataflow("shops")
        here = {"trigger": {"availableNow": True}, "partitions": 2}
        stream = flow.source_files(str(tmp_path / "in"), time="at", **here)
        stream.sink_iceberg(
            TABLE, catalog="shops", properties=properties(tmp_path), every="50 milliseconds"
        )
        with without_spark() as session:
            query = flow.start(session, checkpointLocation=str(tmp_path / "q"), parallelism=2)
            assert query.awaitTermination(300)
    assert seen(tmp_path) == list(range(2_000))
