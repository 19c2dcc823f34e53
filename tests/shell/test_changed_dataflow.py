"""A location goes on with a changed dataflow: what is kept, what begins empty, what is refused."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.driver.changes import Wish
from holdfast.errors import DataflowChangedError, RescalingError
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta
from holdfast.shell.storage.logs import open_reader

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("key", pa.int64()), ("id", pa.int64())])
META = IngestMeta(SCHEMA, "at", 0)
OFTEN = hf.Checkpointed(interval="100 milliseconds")
ROWS = 1_000
"""In each of two parts; a window is 700, so that one is open at the cut."""


@pytest.fixture
def session() -> Iterator[Any]:
    with without_spark() as made:
        yield made


class Job:
    """A location, its log, and dataflows that run there."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder, self.put_rows = session, folder, 0
        ingest_log.prepare(str(folder / "log"), META)

    def put(self) -> None:
        ids = np.arange(self.put_rows, self.put_rows + ROWS)
        self.put_rows += ROWS
        times = pa.array(1_700_000_001_000_000 + ids * 1_000).cast(SCHEMA.field("at").type)
        rows = pa.RecordBatch.from_arrays([times, ids % 7, ids], schema=SCHEMA)
        file = ingest_log.write_file(str(self.folder / "log"), META, iter([rows]))
        assert file is not None
        ingest_log.append_batch(str(self.folder / "log"), [file])

    def flow(self, build: Callable[[Stream], None], name: str = "job") -> Dataflow:
        flow = Dataflow(name)
        build(flow.source_log(str(self.folder / "log"), name="rows"))
        return flow

    @property
    def how(self) -> dict[str, Any]:
        return {"checkpointLocation": str(self.folder / "location"), "protection": OFTEN}

    def run(self, flow: Dataflow, *, is_last: bool = False, **how: Any) -> None:
        query = flow.start(self.session, **(self.how | how))
        self.put()
        if is_last:
            ingest_log.end(str(self.folder / "log"))
            assert query.awaitTermination(300)
            return
        query.processAllAvailable()
        query.stop()

    def rows(self, sink: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for folder in sorted((self.folder / "location" / "streams" / sink).iterdir()):
            reader = open_reader(str(folder))
            while batches := reader.poll():
                for batch in batches:
                    found += batch.batch.to_pylist()
            reader.close()
        return found


def sums(rows: Stream, *more: str) -> Stream:
    windows = rows.key_by("key").window(hf.tumbling("700 milliseconds"))
    return windows.aggregate("count(*) AS n", "sum(id) AS total", *more, name="sums")


def before(rows: Stream) -> None:
    sums(rows).filter("n > 0").select("key", "total AS x").sink("out")
    rows.filter("id % 10 = 0").sink("tens")


def after(rows: Stream) -> None:
    """Another expression behind the state, another filter, and a new sink and window beside."""
    made = sums(rows)
    made.filter("n > 1").select("key", "-total AS x").sink("out")
    made.sink("whole")
    rows.filter("id % 5 = 0").sink("tens")
    windows = rows.key_by("key").window(hf.tumbling("500 milliseconds"))
    windows.aggregate("count(*) AS n", name="more").sink("mores")
    beside = rows.unit("sums").key_by("key").window(hf.tumbling("500 milliseconds"))
    beside.aggregate("max(id) AS id", name="beside").sink("besides")


def test_state_is_kept_and_what_comes_behind_it_changes(session: Any, tmp_path: Path) -> None:
    job = Job(session, tmp_path)
    job.run(job.flow(before))
    former, changed = job.flow(before), job.flow(after)
    early = changed.changes(session, **job.how)
    assert [reason for reason in early.refused if "drain" in reason] == list(early.refused)
    with pytest.raises(DataflowChangedError, match="drain"):
        changed.start(session, **job.how)
    former.drain(session, **job.how)
    found = changed.changes(session, **job.how)
    assert not found.refused
    assert {c.name: (c.change, c.state) for c in found.changes} == {
        "rows": ("same", "kept"),
        "sums": ("same", "kept"),
        "filter": ("changed", "none"),
        "select": ("changed", "none"),
        "filter2": ("changed", "none"),
        "more": ("new", "empty"),
        "beside": ("new", "empty"),
        "sums~part": ("same", "none"),
        "more~part": ("new", "none"),
        "beside~part": ("new", "none"),
        "out": ("changed", "none"),
        "tens": ("changed", "none"),
        "whole": ("new", "none"),
        "mores": ("new", "none"),
        "besides": ("new", "none"),
    }
    job.run(changed, is_last=True)
    total = {k: sum(i for i in range(700) if i % 7 == k) for k in range(7)}
    out = job.rows("out")
    assert {row["key"]: row["x"] for row in out[:7]} == total, "of before the cut"
    assert len(out) == 21
    parts = [range(700, 1_400), range(1_400, 2_000)]
    wanted = sorted(-sum(i for i in part if i % 7 == k) for part in parts for k in range(7))
    assert sorted(row["x"] for row in out[7:]) == wanted
    assert len(job.rows("whole")) == 14
    tens = [row["id"] for row in job.rows("tens")]
    assert tens == [*range(0, 1_000, 10), *range(1_000, 2_000, 5)]
    assert sum(row["n"] for row in job.rows("mores")) == 1_000, "it began at the cut"
    assert max(row["id"] for row in job.rows("besides")) == 1_999


def other_column(rows: Stream) -> None:
    windows = rows.key_by("key").window(hf.tumbling("700 milliseconds"))
    made = windows.aggregate("count(*) AS n", "sum(id + 1) AS total", name="sums")
    made.filter("n > 0").select("key", "total AS x").sink("out")
    rows.filter("id % 10 = 0").sink("tens")


def other_input(rows: Stream) -> None:
    sums(rows.filter("id > 0")).filter("n > 0").select("key", "total AS x").sink("out")
    rows.filter("id % 10 = 0").sink("tens")


def no_sums(rows: Stream) -> None:
    rows.filter("id % 10 = 0").sink("tens")


def other_columns_of_a_sink(rows: Stream) -> None:
    sums(rows).filter("n > 0").select("key", "total AS y").sink("out")
    rows.filter("id % 10 = 0").sink("tens")


REFUSED: dict[str, tuple[Callable[[Stream], None], str]] = {
    "sums": (other_column, r'"drop"'),
    "sums, input": (other_input, r'"keep"'),
    "sums, gone": (no_sums, r'"drop"'),
    "out": (other_columns_of_a_sink, r"another name"),
}


def test_what_does_not_fit_is_refused_by_name_until_somebody_asks(
    session: Any, tmp_path: Path
) -> None:
    job = Job(session, tmp_path)
    job.run(job.flow(before))
    job.flow(before).drain(session, **job.how)
    for named, (build, hint) in REFUSED.items():
        name = named.partition(",")[0]
        with pytest.raises(DataflowChangedError, match=rf" {name}: .*{hint}"):
            job.flow(build).start(session, **job.how)
    with pytest.raises(DataflowChangedError, match="dataflow was 'job' and is 'other'"):
        job.flow(before, name="other").start(session, **job.how)
    with pytest.raises(DataflowChangedError, match="unit sums had 1 instances"):
        job.flow(other_columns_of_a_sink).start(session, **job.how, parallelism=2)
    with pytest.raises(DataflowChangedError, match="nothing that the location holds"):
        job.flow(after).start(session, **job.how, state={"sum": "drop"})
    job.run(job.flow(other_column), state={"sums": "drop"})  # An empty one, from the cut on.
    with pytest.raises(RescalingError, match="no query has run"):
        job.flow(before).drain(session, **job.how | {"checkpointLocation": str(tmp_path / "x")})
    job.flow(other_column).drain(session, **job.how)
    job.run(job.flow(after), is_last=True, state={"sums": "drop"})
    kept = [row["n"] for row in job.rows("whole")]
    assert sum(kept) == 1_000, "the second change has dropped what the first one counted"


def test_input_that_is_computed_otherwise_counts_from_the_cut_on(
    session: Any, tmp_path: Path
) -> None:
    job = Job(session, tmp_path)
    job.run(job.flow(before))
    job.flow(before).drain(session, **job.how)
    changed = job.flow(lambda rows: sums(rows.filter("id >= 1100")).sink("sums"))
    wishes: dict[str, Wish] = {"sums": "keep", "rows": "keep"}
    found = changed.changes(session, **job.how, state=wishes)
    assert [(c.name, c.change) for c in found.changes if c.change == "gone"] == [
        ("select", "gone"),
        ("filter2", "gone"),
        ("out", "gone"),
        ("tens", "gone"),
    ]
    job.run(changed, is_last=True, state=wishes)
    made = job.rows("sums")
    assert sum(row["n"] for row in made) == 300 + 900, "those of the open window, and later ones"


def counted(rows: Stream) -> None:
    rows.key_by("key").aggregate("count(*) AS n", name="ever", emit="changes").sink("ever")
    sums(rows).sink("sums")


def counted_and_more(rows: Stream) -> None:
    more = "max(id) AS top", "count(*) AS n", "max(CAST(id AS STRING)) AS text"
    rows.key_by("key").aggregate(*more, name="ever", emit="changes").sink("ever_more")
    windows = rows.key_by("key").window(hf.tumbling("700 milliseconds"))
    made = windows.aggregate("min(id) AS low", "sum(id) AS total", "count(*) AS n", name="sums")
    made.sink("sums_more")


def test_aggregates_that_are_added_begin_empty(session: Any, tmp_path: Path) -> None:
    job = Job(session, tmp_path)
    job.run(job.flow(counted))
    job.flow(counted).drain(session, **job.how)
    changed = job.flow(counted_and_more)
    made = changed.changes(session, **job.how).changes
    found = {c.name: c for c in made if c.kind != "sink"}
    assert (found["ever"].state, found["ever"].note) == ("kept", "top, text begin empty")
    job.run(changed, is_last=True)
    ids = {k: [i for i in range(1_000, 2_000) if i % 7 == k] for k in range(7)}
    ever = {row["key"]: row for row in job.rows("ever_more")}
    for key, row in ever.items():
        assert (row["n"], row["top"]) == (len(range(key, 2_000, 7)), ids[key][-1])
        assert row["text"] == max(map(str, ids[key]))
    first = {row["key"]: row for row in job.rows("sums_more")[:7]}
    for key, row in first.items():
        assert row["total"] == sum(i for i in range(700, 1_400) if i % 7 == key)
        assert row["low"] == ids[key][0], "of the rows after the cut"


def spreading(condition: str, *more: str, sink: str = "spread") -> Callable[[Stream], None]:
    """Counts of counts, of some of them."""

    def build(rows: Stream) -> None:
        counts = rows.key_by("key").aggregate("count(*) AS n", emit="changelog", name="counts")
        made = (
            counts.filter(condition)
            .key_by("n")
            .aggregate("count(*) AS keys", *more, emit="changelog", name="spread")
        )
        made.select("n", "keys").sink(sink)

    return build


def test_what_a_changelog_has_come_to_is_kept_with_all_before_it_or_not_at_all(
    session: Any, tmp_path: Path
) -> None:
    job = Job(session, tmp_path)
    job.run(job.flow(spreading("n > 1")))
    job.flow(spreading("n > 1")).drain(session, **job.how)
    both: dict[str, Wish] = {"counts": "drop", "spread": "drop"}
    asked: list[tuple[Callable[[Stream], None], dict[str, Wish], str]] = [
        (spreading("n > 1"), {}, ""),
        (spreading("n > 1"), {"counts": "drop"}, "spread holds what .*counts would begin anew"),
        (spreading("n > 1"), both, "sink spread.* counts, spread would begin anew"),
        (spreading("n > 1", sink="more"), both, ""),
        (spreading("n > 2"), {"spread": "keep"}, "spread holds what .*computed otherwise"),
        (spreading("n > 2"), {"spread": "drop"}, "sink spread.* spread would begin anew"),
        (spreading("n > 2", sink="more"), {"spread": "drop"}, ""),
        (spreading("n > 1", "sum(key) AS sum"), {}, "spread.*it was"),
    ]
    for build, wishes, message in asked:
        refused = job.flow(build).changes(session, **job.how, state=wishes).refused
        assert bool(refused) == bool(message), refused
        assert not message or re.search(message, "\n".join(refused)), refused
    job.run(job.flow(spreading("n > 1")), is_last=True)
    stands: dict[tuple[int, int], int] = {}
    for row in job.rows("spread"):
        sign = 1 if row["_change"] in ("insert", "update_after") else -1
        stands[row["n"], row["keys"]] = stands.get((row["n"], row["keys"]), 0) + sign
    assert {of for of, count in stands.items() if count} == {(285, 2), (286, 5)}


def keeping_table(path: Path, condition: str) -> Callable[[Stream], None]:
    """The newest counts of some keys in a Delta table."""

    def build(rows: Stream) -> None:
        counts = rows.key_by("key").aggregate("count(*) AS n", emit="changelog", name="counts")
        counts.filter(condition).sink_delta(str(path), name="table", every="100 milliseconds")

    return build


def test_a_table_by_key_goes_on_with_the_changes_that_have_made_it_or_not_at_all(
    session: Any, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    job, table = Job(session, tmp_path), tmp_path / "table"
    job.run(job.flow(keeping_table(table, "key < 5")))
    job.flow(keeping_table(table, "key < 5")).drain(session, **job.how)
    asked: list[tuple[str, dict[str, Wish], str]] = [
        ("key < 4", {}, "sink table.* its input is computed otherwise"),
        ("key < 5", {"counts": "drop"}, "sink table.* counts would begin anew"),
    ]
    for condition, wishes, message in asked:
        flow = job.flow(keeping_table(table, condition))
        [refused] = flow.changes(session, **job.how, state=wishes).refused
        assert re.search(f"{message}; give it another name, and another place", refused), refused

    def with_another_sink(rows: Stream) -> None:
        keeping_table(table, "key < 5")(rows)
        rows.filter("id < 0").sink("none")

    job.run(job.flow(with_another_sink), is_last=True)
    found = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    assert {row["key"]: row["n"] for row in found} == {
        key: len(range(key, 2 * ROWS, 7)) for key in range(5)
    }
