"""Whole queries whose results change: feeds, tables, joins and a Delta table, over restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.core.model.changes import CHANGE_COLUMN, COMES
from holdfast.errors import UnsupportedError
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.shell.storage.logs import open_reader

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("key", pa.int64()), ("id", pa.int64())])
META = IngestMeta(SCHEMA, "at", 0)
ROWS = 120
"""In each of three parts; after each the query is ended and started again."""
PROTECTIONS = {
    "checkpoints": hf.Checkpointed(interval="50 milliseconds"),
    "replay": hf.UpstreamBackup(),
}


def put(log: Path, part: int) -> None:
    ids = np.arange(part * ROWS, (part + 1) * ROWS)
    times = pa.array(1_700_000_001_000_000 + ids * 1_000).cast(SCHEMA.field("at").type)
    rows = pa.RecordBatch.from_arrays([times, pa.array(ids % 7), pa.array(ids)], schema=SCHEMA)
    file = ingest_log.write_file(str(log), META, iter([rows]))
    assert file is not None
    ingest_log.append_batch(str(log), [file])


def run(
    folder: Path,
    build: Callable[[Stream], None],
    protection: str,
    instances: tuple[int, int, int] = (1, 1, 1),
) -> None:
    """Three lives, one for each part of the input; `instances`: of the unit `counts` in each."""
    log = folder / "log"
    ingest_log.prepare(str(log), META)
    with without_spark() as session:
        for part in range(3):
            flow = Dataflow("changes")
            build(flow.source_log(str(log), name="rows"))
            query = flow.start(
                session,
                checkpointLocation=str(folder / "q"),
                protection=PROTECTIONS[protection],
                parallelism={"counts": instances[part]},
            )
            put(log, part)
            if part == 2:
                ingest_log.end(str(log))
                assert query.awaitTermination(100)
                return
            query.processAllAvailable()
            query.stop()
            if "even" in flow.sinks:
                with pytest.raises(UnsupportedError, match="when the query has ended"):
                    query.verify("even")


def changes(folder: Path, sink: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for place in sorted((folder / "q" / "streams" / sink).iterdir()):
        reader = open_reader(str(place))
        while batches := reader.poll():
            for batch in batches:
                found += batch.batch.drop_columns(["__time_us"]).to_pylist()
        reader.close()
    return found


def table(feed: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """The rows that there are by some changes."""
    found: Counter[tuple[Any, ...]] = Counter()
    for change in feed:
        row = tuple(value for name, value in change.items() if name != CHANGE_COLUMN)
        found[row] += 1 if change[CHANGE_COLUMN] in COMES else -1
    assert min(found.values(), default=0) >= 0
    return +found


IDS = range(3 * ROWS)
COUNTS = {
    key: (sum(i % 7 == key for i in IDS), sum(i for i in IDS if i % 7 == key)) for key in range(7)
}


def counting(folder: Path, rows: Stream) -> Stream:
    """Counts of keys, as a feed; those of an even total as a table by key, too."""
    counts = rows.key_by("key").aggregate(
        "count(*) AS n", "sum(id) AS total", emit="changelog", name="counts"
    )
    counts.sink("counts")
    counts.filter("total % 2 = 0").select("key", "n").sink_delta(
        str(folder / "even"), name="even", every="50 milliseconds"
    )
    return counts


def require_counts(folder: Path) -> None:
    feed = changes(folder, "counts")
    kinds = Counter(change[CHANGE_COLUMN] for change in feed)
    updates = 3 * ROWS - 7
    assert kinds == {"insert": 7, "update_before": updates, "update_after": updates}
    assert table(feed) == {(key, *of): 1 for key, of in COUNTS.items()}
    even = DeltaTable(folder / "even").to_pyarrow_table().to_pylist()
    assert sorted((row["key"], row["n"]) for row in even) == [
        (key, n) for key, (n, total) in COUNTS.items() if total % 2 == 0
    ]


def test_elastic_restarts_hand_keys_of_a_table_to_other_instances(tmp_path: Path) -> None:
    def build(rows: Stream) -> None:
        counting(tmp_path, rows)

    run(tmp_path, build, "checkpoints", (1, 3, 2))
    require_counts(tmp_path)


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_counts_of_counts_and_a_table_by_key_are_those_of_all_rows(
    tmp_path: Path, protection: str
) -> None:
    def build(rows: Stream) -> None:
        counts = counting(tmp_path, rows)
        spread = counts.key_by("n").aggregate(
            "count(*) AS keys", "avg(total - n) AS mean", emit="changelog", name="spread"
        )
        spread.sink("spread")

    run(tmp_path, build, protection, (2, 2, 2))
    require_counts(tmp_path)
    spread: dict[int, list[int]] = {}
    for n, total in COUNTS.values():
        spread.setdefault(n, []).append(total - n)
    assert table(changes(tmp_path, "spread")) == {
        (n, len(of), sum(of) / len(of)): 1 for n, of in spread.items()
    }


def joining(how: str) -> Callable[[Stream], None]:
    """What changes, joined with rows of which some keys have none, one several, one has no key."""

    def build(rows: Stream) -> None:
        counts = (
            rows.filter("key < 5")
            .key_by("key")
            .aggregate("count(*) AS n", emit="changelog", name="counts")
        )
        some = rows.unit("some").filter("id IN (17, 100, 101, 103, 108, 250)")
        more = some.select("if(id = 250, CAST(NULL AS BIGINT), key) AS k", "id AS v")
        columns = ["left.key", "left.n", "right.v"]
        joined = counts.join(
            more, on=[("key", "k")], select=columns, how=how, emit="changelog", name="joined"
        )
        joined.sink("joined")

    return build


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_join_takes_back_what_has_found_a_match_and_what_has_changed(
    tmp_path: Path, how: str
) -> None:
    run(tmp_path, joining(how), "checkpoints")
    left = {key: n for key, (n, _) in COUNTS.items() if key < 5}
    right = [(i % 7 if i != 250 else None, i) for i in (17, 100, 101, 103, 108, 250)]
    wanted = Counter((k, left[k], v) for k, v in right if k in left)
    if how in ("left", "full"):
        wanted.update((k, n, None) for k, n in left.items() if k not in [key for key, _ in right])
    if how in ("right", "full"):
        wanted.update((None, None, v) for k, v in right if k not in left)
    assert len(wanted) > 2
    feed = changes(tmp_path, "joined")
    assert table(feed) == wanted
    if how != "inner":
        assert "delete" in {change[CHANGE_COLUMN] for change in feed}
