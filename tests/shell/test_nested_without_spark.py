"""Whole queries over arrays, maps, structs, bytes and local times, without Spark."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.shell.storage.logs import open_reader

ROWS = 400
_FIRST = datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("k", pa.int64()),
        ("words", pa.list_(pa.string())),
        ("halves", pa.map_(pa.int64(), pa.float64())),
        ("box", pa.struct([("n", pa.int64()), ("low", pa.list_(pa.decimal128(9, 2)))])),
        ("raw", pa.binary()),
        ("local", pa.timestamp("us")),
    ]
)


def row(n: int) -> dict[str, Any]:
    """The n-th row, as pyarrow has it."""
    return {
        "at": _FIRST + datetime.timedelta(milliseconds=n),
        "k": n % 3,
        "words": None if n % 11 == 0 else [f"é{x}" for x in range(n % 4)] + [None],
        "halves": [(n % 3, n / 2), (-1, None)],
        "box": None if n % 13 == 0 else {"n": n, "low": [Decimal(n) / 4, None]},
        "raw": None if n % 17 == 0 else b"\x00" * (n % 3),
        "local": datetime.datetime(2020, 2, 29, 23, 59, 59, n),
    }


def tagged(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Another nested column beside."""
    tags = pa.array([[k, None] for k in batch.column("k").to_pylist()], pa.list_(pa.int64()))
    return pa.RecordBatch.from_arrays([*batch.columns, tags], names=[*batch.schema.names, "tags"])


def of_sink(location: Path, sink: str) -> list[dict[str, Any]]:
    """All rows of a sink, by time."""
    found: list[dict[str, Any]] = []
    for folder in (location / "streams" / sink).iterdir():
        reader = open_reader(str(folder))
        while batches := reader.poll():
            found += [each for batch in batches for each in batch.batch.to_pylist()]
        reader.close()
    return sorted(found, key=lambda each: each.pop("__time_us"))


def collected(flow: Dataflow, tmp_path: Path) -> None:
    """Steps with and without state, and sinks of all kinds."""
    place = str(tmp_path / "in")
    rows = flow.source_files(place, schema=SCHEMA, time="at", name="rows", ends=True)
    tags = SCHEMA.append(pa.field("tags", pa.list_(pa.int64())))
    some = rows.filter("size(words) > 1 AND box.n % 2 = 0").map_batches(tagged, tags)
    some.sink("some")
    some.sink_files(str(tmp_path / "files"), every="100 milliseconds")
    some.sink_delta(str(tmp_path / "table"), every="100 milliseconds")
    keyed = some.key_by("k").window(hf.tumbling("100 milliseconds"))
    kept = keyed.aggregate(
        "first(halves) AS halves", "last(box) AS box", "collect_list(words[1]) AS words",
        "collect_set(raw) AS raws", "percentile(box.n, array(0.5, 1)) AS p", "min(local) AS local",
        name="kept",
    )  # fmt: skip
    kept.sink("kept")
    pairs = ["left.box AS box", "right.halves AS halves", "right.raw AS raw"]
    window = some.window(hf.tumbling("10 milliseconds"))
    window.join(rows, on="local", select=pairs, name="pairs").sink("pairs")


@pytest.mark.parametrize("protection", [hf.UpstreamBackup(), hf.EventualCheckpoints()])
def test_nested_columns_go_from_files_through_all_operators_to_sinks(
    tmp_path: Path, protection: Any
) -> None:
    (tmp_path / "in").mkdir()
    given = [row(n) for n in range(ROWS)]
    parquet.write_table(pa.Table.from_pylist(given, SCHEMA), tmp_path / "in" / "0.parquet")
    flow = Dataflow("nested")
    collected(flow, tmp_path)
    with without_spark() as spark:
        query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=protection)
        assert query.awaitTermination(300)
    some = [
        {**each, "tags": [each["k"], None]}
        for n, each in enumerate(given)
        if each["words"] and len(each["words"]) > 1 and each["box"] and n % 2 == 0
    ]
    assert of_sink(tmp_path / "q", "some") == some
    read = parquet.read_table(tmp_path / "files").sort_by("at").to_pylist()
    assert read == some
    table = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert table.sort_by("at").to_pylist() == some
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for each in some:
        groups.setdefault((each["box"]["n"] // 100, each["k"]), []).append(each)
    kept = of_sink(tmp_path / "q", "kept")
    assert len(kept) == len(groups)
    for found in kept:
        start = round((found["window_start"] - _FIRST) / datetime.timedelta(milliseconds=100))
        members = groups[start, found["k"]]
        numbers = sorted(each["box"]["n"] for each in members)
        middle = (numbers[(len(numbers) - 1) // 2] + numbers[len(numbers) // 2]) / 2
        assert found["halves"] == members[0]["halves"]
        assert found["box"] == members[-1]["box"]
        assert found["words"] == [e["words"][1] for e in members if e["words"][1] is not None]
        assert found["raws"] == sorted({e["raw"] for e in members if e["raw"] is not None})
        assert found["p"] == [middle, numbers[-1]]
        assert found["local"] == members[0]["local"]
    pairs = of_sink(tmp_path / "q", "pairs")
    for each in pairs:
        del each["window_start"], each["window_end"]
    assert pairs == [{name: each[name] for name in ("box", "halves", "raw")} for each in some]
