"""Whole queries that read users' files, without Spark: large files, tables, restarts, merges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.errors import DataflowError
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.logs import open_reader

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("key", pa.int64()), ("id", pa.int64())])
ROWS = 60_000


def rows(first: int, last: int) -> pa.Table:
    """A row a millisecond, a second out of order at most."""
    ids = np.arange(first, last)
    times = (
        1_700_000_000_000_000
        + (ids + np.random.default_rng(first).integers(0, 999, len(ids))) * 1_000
    )
    return pa.table([pa.array(times).cast(SCHEMA.field("at").type), ids % 7, ids], schema=SCHEMA)


def put(folder: Path, number: int) -> None:
    """A file of several groups of rows."""
    folder.mkdir(exist_ok=True)
    first = number * ROWS
    parquet.write_table(
        rows(first, first + ROWS), folder / f"{number}.parquet", row_group_size=9_000
    )


def sums(location: Path) -> tuple[int, int]:
    """How many rows the windows of all instances hold, and the sum of their ids."""
    found: list[tuple[int, int]] = []
    for folder in (location / "streams" / "sums").iterdir():
        reader = open_reader(str(folder))
        while batches := reader.poll():
            for batch in batches:
                found += [(row["n"], row["total"]) for row in batch.batch.to_pylist()]
        reader.close()
    return sum(n for n, _ in found), sum(total for _, total in found)


def summing(flow: Dataflow, stream: hf.Stream) -> Dataflow:
    windows = stream.key_by("key").window(hf.tumbling("300 milliseconds"))
    windows.aggregate("count(*) AS n", "sum(id) AS total", name="sums").sink("sums")
    return flow


def run(session: Any, flow: Dataflow, location: Path) -> None:
    query = flow.start(session, checkpointLocation=str(location), parallelism=2)
    assert query.awaitTermination(300)


def test_large_files_are_merged_by_time_and_read_by_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingest_log, "_LARGE_BYTES", 0)
    flow = Dataflow("merged")
    streams = []
    for side in ("a", "b"):
        for number in range(3):
            put(tmp_path / side, number)
        place = str(tmp_path / side)
        streams.append(flow.source_files(place, time="at", name=side, ends=True, partitions=2))
    with without_spark() as session:
        run(session, summing(flow, streams[0].union(streams[1])), tmp_path / "q")
    assert sums(tmp_path / "q") == (6 * ROWS, 2 * sum(range(3 * ROWS)))


def test_a_table_is_followed_over_restarts(tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    for version in range(2):
        first = version * 1_000
        write_deltalake(table, rows(first, first + 1_000), mode="append", partition_by=["key"])

    def following(**trigger: Any) -> Dataflow:
        flow = Dataflow("versions")
        stream = flow.source_delta(table, time="at", name="rows", delay="2 seconds", **trigger)
        return summing(flow, stream)

    with without_spark() as session:
        run(session, following(trigger={"availableNow": True}), tmp_path / "q")
        write_deltalake(table, rows(2_000, 9_000), mode="append")
        query = following().start(session, checkpointLocation=str(tmp_path / "q"), parallelism=2)
        query.processAllAvailable()
        write_deltalake(table, rows(9_000, 20_000), mode="append")
        query.processAllAvailable()
        query.stop()
    closed, _ = sums(tmp_path / "q")
    assert 15_000 < closed < 20_000  # But for those of the last seconds, each once.
    reader = ingest_log.IngestLogReader(str(tmp_path / "q" / "ingest" / "rows"), 0, 1)
    found: list[int] = []
    while batches := reader.poll():
        found += [n for batch in batches for n in batch.batch.column(2).to_pylist()]
    assert sorted(found) == list(range(20_000))


@pytest.mark.parametrize("windowed", [False, True])
def test_behind_the_last_row_files_wait_for_nothing(tmp_path: Path, windowed: bool) -> None:
    """However late rows may appear: nothing follows that they could share a file with."""
    for number in range(3):
        put(tmp_path / "in", number)
    flow = Dataflow("ending")
    stream = flow.source_files(str(tmp_path / "in"), time="at", delay="2 seconds", ends=True)
    if windowed:
        windows = stream.key_by("key").window(hf.tumbling("300 milliseconds"))
        stream = windows.aggregate("count(*) AS n")
    stream.sink_files(str(tmp_path / "out"), every="1 hour")
    with without_spark() as session:
        query = flow.start(session, checkpointLocation=str(tmp_path / "at"))
        assert query.awaitTermination(300)
    found = parquet.read_table(tmp_path / "out")
    assert (sum(found.column("n").to_pylist()) if windowed else len(found)) == 3 * ROWS


def test_a_query_that_would_read_its_own_results_does_not_start(tmp_path: Path) -> None:
    put(tmp_path / "in", 0)
    flow = Dataflow("circle")
    flow.source_files(str(tmp_path / "in"), time="at").sink_files(str(tmp_path / "in"), name="out")
    with without_spark() as session, pytest.raises(DataflowError, match="its own results"):
        flow.start(session, checkpointLocation=str(tmp_path / "q"))
    assert not (tmp_path / "q").exists()
