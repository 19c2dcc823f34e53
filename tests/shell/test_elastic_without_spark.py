"""An elastic restart waits for no checkpoint that is long in coming, or that nobody will write."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.core.model.ids import NodeId
from holdfast.driver.query import Query
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.shell.storage.logs import open_reader

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("key", pa.int64()), ("id", pa.int64())])
META = IngestMeta(SCHEMA, "at", 0)


def put(root: str, first: int, last: int) -> None:
    ids = np.arange(first, last)
    times = pa.array(1_700_000_000_000_000 + ids * 1_000).cast(SCHEMA.field("at").type)
    rows = pa.RecordBatch.from_arrays([times, ids % 7, ids], schema=SCHEMA)
    file = ingest_log.write_file(root, META, iter([rows]))
    assert file is not None
    ingest_log.append_batch(root, [file])


SELDOM = hf.Checkpointed(interval="1 hour")


def started(
    session: Any, tmp_path: Path, parallelism: int, protection: hf.Protection = SELDOM
) -> Query:
    flow = Dataflow("elastic")
    windows = flow.source_log(str(tmp_path / "log"), name="rows").key_by("key")
    windows = windows.window(hf.tumbling("300 milliseconds"))
    windows.aggregate("count(*) AS n", "sum(id) AS total", name="sums").sink("sums")
    return flow.start(
        session,
        checkpointLocation=str(tmp_path / "location"),
        protection=protection,
        parallelism=parallelism,
        options={"spark.holdfast.drainTimeoutMs": "300000"},
    )


@pytest.mark.parametrize("rows", [0, 1_000], ids=["without input", "before the first checkpoint"])
def test_a_location_without_a_checkpoint_goes_on_at_another_parallelism(
    tmp_path: Path, rows: int
) -> None:
    root = str(tmp_path / "log")
    ingest_log.prepare(root, META)
    if rows:
        put(root, 0, rows)
    with without_spark() as session:
        query = started(session, tmp_path, 1)
        query.processAllAvailable()
        assert not query.checkpoints
        query.stop()
        query = started(session, tmp_path, 3)
        put(root, rows, 2_000)
        ingest_log.end(root)
        assert query.awaitTermination(300)
    found = counted(tmp_path / "location" / "streams" / "sums", ("n", "total"))
    assert sum(n for n, _ in found) == 2_000
    assert sum(total for _, total in found) == sum(range(2_000))


def counted(location: Path, names: tuple[str, ...]) -> list[tuple[int, ...]]:
    """The rows that the instances of a sink have put out."""
    found: list[tuple[int, ...]] = []
    for folder in sorted(location.iterdir()):
        reader = open_reader(str(folder))
        while batches := reader.poll():
            for batch in batches:
                found += [tuple(row[n] for n in names) for row in batch.batch.to_pylist()]
        reader.close()
    return found


def divided(
    session: Any, tmp_path: Path, parallelism: int, protection: hf.Protection, location: str
) -> Query:
    """Windows of every kind that leave footprints."""
    flow = Dataflow("divided")
    rows = flow.source_log(str(tmp_path / "log"), name="rows")
    keyed = rows.key_by("key")
    for name, windows in (
        ("epoch", hf.sliding("400 milliseconds", "100 milliseconds")),
        ("first", hf.tumbling("300 milliseconds", alignment="first")),
        ("tens", hf.counting(10, 4)),
        ("bursts", hf.sessions("20 milliseconds")),
    ):
        of = keyed if name != "bursts" else rows.filter("id % 61 < 40").key_by("key")
        made = of.window(windows).aggregate(
            "count(*) AS n", "sum(id) AS total", "max(CAST(id AS STRING)) AS text", name=name
        )
        made.sink(name)
    more = flow.source_log(str(tmp_path / "log"), name="more")
    odd, even = (more.filter(f"id % 2 = {rest}") for rest in (1, 0))
    of_odd = odd.window(hf.tumbling("300 milliseconds"))
    wanted = ["left.id AS n", "right.id AS total", "left.key AS key"]
    of_odd.join(even, on="key", select=wanted, name="pairs").sink("pairs")
    return flow.start(
        session,
        checkpointLocation=str(tmp_path / location),
        protection=protection,
        parallelism=parallelism,
    )


def test_windows_with_footprints_go_on_at_another_parallelism(tmp_path: Path) -> None:
    root, names = str(tmp_path / "log"), ("epoch", "first", "tens", "bursts", "pairs")
    ingest_log.prepare(root, META)
    with without_spark() as session:
        for step, parallelism in enumerate((1, 3, 2)):
            query = divided(
                session, tmp_path, parallelism, hf.EventualCheckpoints(share=0.01), "divided"
            )
            put(root, step * 1_111, (step + 1) * 1_111)
            if step < 2:
                query.processAllAvailable()
                query.stop()
        ingest_log.end(root)
        assert query.awaitTermination(300)
        query = divided(session, tmp_path, 1, hf.UpstreamBackup(), "whole")
        assert query.awaitTermination(300)
    for name in names:
        more = () if name == "pairs" else ("window_start", "text")
        columns = ("key", "n", "total", *more)
        found, wanted = (
            sorted(counted(tmp_path / location / "streams" / name, columns))
            for location in ("divided", "whole")
        )
        assert found == wanted, name
        assert len(found) > 50


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_sinks_outside_hold_each_row_once_whatever_the_number_of_instances(
    tmp_path: Path, kind: str
) -> None:
    """An instance that is gone leaves its rows, and one that comes back goes on behind its own."""
    root = str(tmp_path / "log")
    ingest_log.prepare(root, META)

    def begun(session: Any, parallelism: int) -> Query:
        flow = Dataflow("elastic")
        rows = flow.source_log(root, name="rows")
        keyed = rows.key_by("key")
        sums = keyed.window(hf.tumbling("300 milliseconds")).aggregate("sum(id) AS total")
        for name, stream in {"sums": sums, "plain": keyed.filter("id % 2 = 0")}.items():
            place = str(tmp_path / name)
            if kind == "files":
                stream.sink_files(place, name=name, every="20 milliseconds")
            else:
                stream.sink_delta(place, name=name, every="20 milliseconds")
        return flow.start(
            session,
            checkpointLocation=str(tmp_path / "location"),
            protection=SELDOM,
            parallelism=parallelism,
        )

    with without_spark() as session:
        for number, parallelism in enumerate((1, 3, 1, 2)):
            query = begun(session, parallelism)
            put(root, 700 * number, 700 * (number + 1))
            query.processAllAvailable()
            query.stop()
        ingest_log.end(root)
        assert begun(session, 2).awaitTermination(300)

    def written(name: str, column: str) -> list[int]:
        if kind == "delta":
            table = pa.table(DeltaTable(str(tmp_path / name)).to_pyarrow_table())
        else:
            files = sorted((tmp_path / name).glob("*.parquet"))
            table = pa.concat_tables(map(parquet.read_table, files))
        found: list[int] = table.column(column).to_pylist()
        return found

    assert sum(written("sums", "total")) == sum(range(2_800))
    assert sorted(written("plain", "id")) == list(range(0, 2_800, 2))


def test_footprints_on_data_nodes_of_its_own_are_divided(tmp_path: Path) -> None:
    root = str(tmp_path / "log")
    ingest_log.prepare(root, META)
    kept = hf.EventualCheckpoints(store=hf.EmbeddedStore(copies=1, data_nodes=1))
    with without_spark() as session:
        query = started(session, tmp_path, 1, kept)
        put(root, 0, 1_000)
        deadline_s = time.monotonic() + 300
        while query._cluster.registry.newest(NodeId("sums[0]")) is None:
            assert query.isActive
            assert time.monotonic() < deadline_s, "no point leads to footprints"
            time.sleep(0.05)  # Points are noted now and then; nothing tells of it.
        query.stop()
        query = started(session, tmp_path, 2, kept)
        put(root, 1_000, 2_000)
        ingest_log.end(root)
        assert query.awaitTermination(300)
    found = counted(tmp_path / "location" / "streams" / "sums", ("n", "total"))
    assert sum(n for n, _ in found) == 2_000
    assert sum(total for _, total in found) == sum(range(2_000))
    assert not (tmp_path / "location" / "footprints").exists()
