"""What the view shows of real queries of each protection: their nodes as threads, without Spark.

With `HOLDFAST_FEEDS=tests/view/feeds` these tests also keep what the view was fed with. Tests of
the page in a browser show it again (test_protections_in_chromium.py).
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from without_spark import without_spark

import holdfast as hf
from holdfast.driver.query import Query
from holdfast.errors import RequestError
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.view.model import page_of
from holdfast.view.watching import Location

AT_US = 1_700_000_000_000_000
SCHEMA = pa.schema([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("n", pa.int64())])
_PATIENCE_S = 300.0


class Log:
    """An ingest log that a test writes to: a row per tenth of a second."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        ingest_log.prepare(self.path, IngestMeta(SCHEMA, "at", 0))

    def put(self, first: int, stop: int) -> None:
        at = pa.array([AT_US + n * 100_000 for n in range(first, stop)], SCHEMA.field(0).type)
        rows = pa.RecordBatch.from_arrays([at, pa.array(range(first, stop))], schema=SCHEMA)
        file = ingest_log.write_file(self.path, IngestMeta(SCHEMA, "at", 0), iter([rows]))
        assert file is not None
        ingest_log.append_batch(self.path, [file])


@contextmanager
def running(flow: hf.Dataflow, folder: Path, protection: hf.Protection) -> Iterator[Query]:
    with without_spark() as session:
        query = flow.start(session, checkpointLocation=str(folder / "q"), protection=protection)
        try:
            yield query
        finally:
            query.stop()


def until(query: Query, is_so: Callable[[dict[str, Any]], Any]) -> None:
    """Wait for a report of the units of which something holds."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not is_so(query.lastProgress["units"]):
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline_s, query.lastProgress
        time.sleep(0.05)  # Reports come twice a second.


def seen(query: Query, name: str) -> dict[str, Any]:
    """The page now, from the location alone; `name` is that of the feed."""
    facts = Location(query._location).look()
    if (folder := os.environ.get("HOLDFAST_FEEDS")) is not None:
        text = json.dumps(asdict(facts), indent=1).replace(query._location, "/data/bids")
        Path(folder, f"{name}.json").write_text(text + "\n")
    return page_of(facts)


def rows_of(page: dict[str, Any], table: str) -> dict[str, dict[str, str]]:
    """By its first column, each row of a table, by column."""
    columns = page["tables"][table]["columns"]
    rows = page["tables"][table]["rows"].values()
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}


def test_a_replicated_unit_shows_what_it_misses_and_which_rows_are_tentative(
    tmp_path: Path,
) -> None:
    a, b = Log(tmp_path / "a"), Log(tmp_path / "b")
    for log in (a, b):
        log.put(0, 50)
    flow = hf.Dataflow("silenced")
    sources = [flow.source_log(log.path, name=name) for log, name in ((a, "a"), (b, "b"))]
    merged = sources[0].unit("all").union(sources[1])
    windows = merged.unit("behind").window(hf.tumbling("1 second"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")
    with running(flow, tmp_path, hf.Replicated(delay="300 milliseconds", alpha=1.0)) as query:
        until(query, lambda units: units["behind"]["numOutputRows"] >= 4)
        a.put(50, 100)  # And nothing of b.
        until(query, lambda units: units["behind"]["consistency"]["tentativeRows"])
        until(query, lambda units: "b[0]" in (units["all"]["consistency"]["missing"] or ()))
        page = seen(query, "replicated")
        missing = rows_of(page, "missing")
        assert missing["all"]["Results"] == "up failure"
        assert "b[0]" in missing["all"]["Missing input"].split(", ")
        assert missing["behind"]["Tentative rows"] != "0"
        assert page["live"]["boxes"]["unit all"]["level"] == "tentative"
        said = [warning["text"] for warning in page["warnings"]]
        assert any(text.startswith("Results of all are tentative without ") for text in said)
        place = Location(query._location)
        assert {"stable", "tentative"} <= {row[0] for row in place.rows("counts")["rows"]}
        sent = place.rows("unit all")
        assert {row[0] for row in sent["rows"]} == {"tentative"}
        assert sent["columns"] == ["", "to", "at"], "what nobody reads is not sent"
        assert {row[1] for row in sent["rows"]} == {"behind[0]"}
        with pytest.raises(RequestError, match=r"'behind' sends no rows to other units; .* all"):
            place.rows("unit behind")


@pytest.mark.parametrize(
    ("name", "protection"),
    [
        ("lines", hf.Uncoordinated(interval="100 milliseconds")),
        ("rounds", hf.Coordinated(interval="100 milliseconds")),
    ],
)
def test_units_that_recover_together_show_their_line_and_their_rounds(
    tmp_path: Path, name: str, protection: hf.Protection
) -> None:
    a, b = Log(tmp_path / "a"), Log(tmp_path / "b")
    flow = hf.Dataflow("merged")
    one, other = (flow.source_log(log.path, name=of) for log, of in ((a, "a"), (b, "b")))
    both = one.union(other, order="arrival").select("n % 5 AS k", "n")
    counts = both.key_by("k").window(hf.tumbling("2 seconds"))
    counts.aggregate("count(*) AS n", name="counts").sink("counted")
    put = iter(range(0, 1_000_000, 50))

    def has(units: dict[str, Any]) -> bool:
        first = next(put)
        for log in (a, b):
            log.put(first, first + 50)
        lines = [unit["line"] for unit in units.values() if unit["line"] is not None]
        is_on = bool(lines) and all(line["ageMs"] is not None for line in lines)
        return is_on and (name == "lines" or any(unit["round"] for unit in units.values()))

    with running(flow, tmp_path, protection) as query:
        until(query, has)
        page = seen(query, name)
    units = query.lastProgress["units"]
    lined = {unit for unit in units if units[unit]["line"] is not None}
    assert set(rows_of(page, "lines")) == lined != set()
    assert all(int(row["Checkpoints"]) > 0 for row in rows_of(page, "lines").values())
    assert bool(rows_of(page, "rounds")) is (name == "rounds")
    assert not rows_of(page, "extents")


def test_eventual_checkpoints_show_their_extent_and_why_recovery_takes_too_long(
    tmp_path: Path,
) -> None:
    log = Log(tmp_path / "rows")
    log.put(0, 3_000)
    flow = hf.Dataflow("eventual")
    rows = flow.source_log(log.path, name="rows").select("n % 700 AS k", "n")
    windows = rows.key_by("k").window(hf.counting(1_000))
    windows.aggregate("count(*) AS many", name="counts").sink("results")

    def has(units: dict[str, Any]) -> bool:
        extent = units["counts"]["extent"]
        return extent is not None and extent["footprints"] == 700 and bool(extent["shortfall"])

    never = hf.EventualCheckpoints(share=0.0001, recovery="1 milliseconds")
    with running(flow, tmp_path, never) as query:
        until(query, has)
        page = seen(query, "eventual")
    extent = rows_of(page, "extents")["counts"]
    assert "recovery takes" in extent["Too long because"]
    assert extent["Open windows"] == "700"
    assert extent["Logs to read"] != "0 B"
    assert any(w["text"].startswith("counts: ") for w in page["warnings"])
