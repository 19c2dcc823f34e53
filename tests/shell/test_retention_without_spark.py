"""Whole queries whose logs are trimmed while they run, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_files_without_spark import put as write
from test_files_without_spark import sums
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.driver import retention
from holdfast.driver.query import Query
from holdfast.errors import OptionError
from holdfast.shell.spark.metrics_log import metrics_place
from holdfast.shell.storage.commit_counting import first_id_of
from holdfast.shell.storage.errors import TuplesRemoved
from holdfast.shell.storage.logs import open_kept, open_reader

FILES = 5


def put(folder: Path, number: int) -> None:
    """A file that shows up whole."""
    folder.mkdir(exist_ok=True)
    write(folder.parent / "drafts", number)
    (folder.parent / "drafts" / f"{number}.parquet").rename(folder / f"{number}.parquet")


def summing(place: Path, protected: bool) -> Dataflow:
    flow = Dataflow("kept")
    stream = flow.source_files(str(place), time="at", name="rows", partitions=2, delay="2 seconds")
    if protected:
        stream.filter("id % 2 = 0").sink("even")
    windows = stream.key_by("key").window(hf.tumbling("300 milliseconds"))
    windows.aggregate("count(*) AS n", "sum(id) AS total", name="sums").sink("sums")
    return flow


def start(
    session: Any,
    tmp_path: Path,
    kept: dict[str, str],
    protection: Any = None,
    scheme: str = "",
) -> Query:
    if not (tmp_path / "in").exists():
        put(tmp_path / "in", 0)
    return summing(tmp_path / "in", protection is not None).start(
        session,
        checkpointLocation=f"{scheme}{tmp_path / 'q'}",
        parallelism=2,
        protection=protection,
        retention=kept,
        options={"spark.holdfast.retentionIntervalMs": "100"},
    )


def wait_until(query: Query, is_so: Callable[[], bool]) -> None:
    while not is_so():
        assert query.exception() is None
        query._cluster.done.wait(0.02)


def commits(tmp_path: Path) -> int:
    return len(list((tmp_path / "q" / "ingest" / "rows" / "commits").iterdir()))


@pytest.mark.parametrize("protection", [None, hf.Checkpointed(interval="50 milliseconds")])
def test_what_no_restart_needs_is_removed_and_a_restart_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protection: Any
) -> None:
    monkeypatch.setattr(retention, "_SEGMENT_S", 0.0)  # A segment for each record.
    sink = str(tmp_path / "q" / "streams" / "sums" / "0")
    kept = {"rows": "1 millisecond", "sums": "1 millisecond", "metrics": "1 second"}
    with without_spark() as session:
        query = start(session, tmp_path, kept, protection)
        for number in range(1, FILES):
            put(tmp_path / "in", number)
            query.processAllAvailable()
        wait_until(query, lambda: commits(tmp_path) == 2 and open_kept(sink).next_id > 0)
        said = query.lastProgress["logs"]
        assert said["rows"]["oldest"]
        assert said["sums"]["keptBytes"]
        query.stop()
        again = start(session, tmp_path, {}, protection)
        put(tmp_path / "in", FILES)
        again.processAllAvailable()
        again.stop()
    with pytest.raises(TuplesRemoved):
        open_reader(sink).poll()
    log = tmp_path / "q" / "ingest" / "rows"
    assert first_id_of(str(log), 0, 2) > 0
    assert len(list((tmp_path / "in").iterdir())) == FILES + 1
    for place in (tmp_path / "q" / "streams" / "sums").iterdir():
        reader = open_kept(str(place))
        ids = [row for batch in iter(reader.poll, []) for row in batch]
        assert ids[0].first_id == reader.next_id - sum(batch.count for batch in ids)


def test_results_and_metrics_at_a_url_are_removed_too(tmp_path: Path) -> None:
    kept = {"sums": "1 millisecond", "metrics": "1 millisecond"}
    location = f"local://{tmp_path / 'q'}"
    with without_spark() as session:
        query = start(session, tmp_path, kept, scheme="local://")
        sinks = [f"{location}/streams/sums/{instance}" for instance in range(2)]
        metrics = metrics_place(location)
        number = 0
        while not all(open_kept(place).next_id for place in (metrics, *sinks)):
            number += 1
            put(tmp_path / "in", number)
            query.processAllAvailable()
        said = query.lastProgress["logs"]
        query.stop()
        again = start(session, tmp_path, kept, scheme="local://")
        put(tmp_path / "in", number + 1)
        again.processAllAvailable()
        again.stop()
    assert said["sums"]["keptBytes"]
    for place in (metrics, *sinks):
        with pytest.raises(TuplesRemoved):
            open_reader(place).poll()
        assert open_kept(place).poll()


def test_results_are_as_if_nothing_had_been_removed(tmp_path: Path) -> None:
    with without_spark() as session:
        query = start(session, tmp_path, {"rows": "1 millisecond"})
        for number in range(1, FILES):
            put(tmp_path / "in", number)
            query.processAllAvailable()
        wait_until(query, lambda: commits(tmp_path) < FILES - 1)
        query.stop()
        query = start(session, tmp_path, {"rows": "for ever"})
        put(tmp_path / "in", FILES)
        query.processAllAvailable()
        query.stop()
    other = tmp_path / "other"
    other.mkdir()
    (other / "in").symlink_to(tmp_path / "in")
    with without_spark() as session:
        query = start(session, other, {})
        query.processAllAvailable()
        query.stop()
    assert sums(tmp_path / "q") == sums(other / "q")


def test_unknown_names_and_texts_are_refused(tmp_path: Path) -> None:
    with without_spark() as session:
        for kept, why in (
            ({"row": "1 day"}, "it is none of metrics, rows, sums"),
            ({"rows": "10 parsecs"}, "a time as '1 day', a size as '10 GB'"),
            ({"rows": "0 GB"}, "a time as"),
        ):
            with pytest.raises(OptionError, match=why):
                start(session, tmp_path, kept)


def test_a_changelog_is_kept_whole_as_its_oldest_changes_count_for_ever(tmp_path: Path) -> None:
    put(tmp_path / "in", 0)
    flow = Dataflow("kept")
    rows = flow.source_files(str(tmp_path / "in"), time="at", name="rows")
    counts = rows.key_by("key").aggregate("count(*) AS n", emit="changelog", name="counts")
    counts.sink("changes")
    counts.as_feed().sink("feed")
    with pytest.raises(OptionError, match=r"retention of sink 'changes'.*as_feed"):
        retention.wanted(flow, {"changes": "1 day"})
    assert not retention.wanted(flow, {"feed": "1 day"}).of["feed"].is_for_ever
