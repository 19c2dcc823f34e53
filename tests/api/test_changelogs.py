"""Changelogs: which operators take them, what is known of them behind those, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.api.changelogs import upsert_keys
from holdfast.api.dataflow import Dataflow
from holdfast.api.protections.base import Protection
from holdfast.api.protections.of_units import Protections
from holdfast.api.protections.regions import Coordinated
from holdfast.api.protections.replay import Amnesia, Unprotected, UpstreamBackup
from holdfast.api.steps import Changelog
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.core.model.tuples import with_time
from holdfast.driver.delta_sink import DeltaSink
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource
from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.kafka.encoding import Encoder


def bids(flow: Dataflow | None = None, name: str = "bids") -> Stream:
    flow = flow or Dataflow("test")
    return flow.source_generator(NexmarkSource("bid", 100, NexmarkConfig()), name=name)


def counts(stream: Stream | None = None, *more: str) -> Stream:
    keyed = (stream or bids()).key_by("bidder")
    return keyed.aggregate("count(*) AS n", *more, emit="changelog")


def test_an_aggregate_says_which_key_its_changes_have() -> None:
    made = counts()
    assert made.schema.names == ["bidder", "n", "_change"]
    assert made.step.changelog == Changelog(("bidder",), is_paired=True)


def test_what_is_known_goes_on_with_the_columns() -> None:
    made = counts()
    renamed = made.select("n", "`bidder` AS who")
    assert renamed.schema.names == ["n", "who", "_change"]
    assert renamed.step.changelog == Changelog(("who",), is_paired=True)
    assert made.select("*").step.changelog == made.step.changelog
    assert made.select("bidder + 0 AS bidder").step.changelog == Changelog(None, is_paired=True)
    assert made.select("n").step.changelog == Changelog(None, is_paired=True)
    large = made.filter("n > 3")
    assert large.step.changelog == Changelog(("bidder",), is_paired=False)
    both = large.union(made.filter("n < 2"))
    assert both.step.changelog == Changelog(None, is_paired=False)


def test_either_row_of_an_update_may_be_a_dead_letter() -> None:
    made = counts().select("bidder", "100 / (n - 3) AS r", dead_letters="bad")
    assert made.step.changelog == Changelog(("bidder",), is_paired=False)
    bad = made.flow.sinks["bad"]
    assert bad.changelog == Changelog(("bidder",), is_paired=False)


GOES_BY_KIND: dict[str, Callable[[Stream], Any]] = {
    "filter": lambda made: made.filter("_change <> 'update_before'"),
    "select": lambda made: made.select("n", "_CHANGE AS kind"),
    "key_by": lambda made: made.key_by("_change").aggregate("count(*) AS m", emit="changelog"),
    '"count_if': lambda made: made.key_by("n").aggregate(
        "count_if(_change = 'insert') AS m", emit="changelog"
    ),
    "join": lambda made: made.join(
        bids(made.flow, "more"), on="bidder", select=["left._change AS kind"], emit="changelog"
    ),
}


@pytest.mark.parametrize("word", GOES_BY_KIND)
def test_what_goes_by_the_kind_of_a_change_is_refused_as_no_table_comes_of_it(word: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"^{word}.*goes by _change.*as_feed"):
        GOES_BY_KIND[word](counts())
    assert counts().select("n", "_change").schema.names == ["n", "_change"]


def test_a_feed_is_rows() -> None:
    feed = counts().as_feed("kind")
    assert feed.schema.names == ["bidder", "n", "kind"]
    assert feed.step.changelog is None
    feed.key_by("kind").window(tumbling("1 second")).aggregate("count(*) AS n")
    with pytest.raises(DataflowError, match="changelogs"):
        feed.as_feed()


REFUSED: dict[str, Callable[[Stream], Any]] = {
    "distinct": lambda made: made.distinct("bidder"),
    "sort": lambda made: made.sort("n", slack=3),
    "sample": lambda made: made.sample(0.5),
    "apply": lambda made: made.map(lambda row: row, pa.schema([("n", pa.int64())])),
    "loop": lambda made: made.loop("again"),
    "aggregate": lambda made: made.window(tumbling("1 second")).aggregate("count(*) AS m"),
    "running aggregate": lambda made: made.key_by("n").aggregate("count(*) AS m", emit="changes"),
    "join": lambda made: made.join(bids(made.flow, "more"), on="bidder", select=["left.n"]),
}  # type: ignore[dict-item]


@pytest.mark.parametrize("word", REFUSED)
def test_what_would_take_changes_for_rows_is_refused_by_name(word: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"^{word} of a changelog.*as_feed"):
        REFUSED[word](counts())


@pytest.mark.parametrize(
    "text",
    ["max(n) AS m", "first(n) AS m", "sum(n / 2) AS m", "avg(CAST(n AS DECIMAL(9))) AS m"],
)
def test_an_aggregate_that_cannot_take_back_is_refused_by_name(text: str) -> None:
    with pytest.raises(UnsupportedError, match=r"over a changelog.*give back exactly"):
        counts().key_by("n").aggregate(text, emit="changelog")


def test_aggregates_of_changes_have_the_types_of_those_of_rows() -> None:
    of = ("count(n) AS c", "sum(n) AS s", "avg(n) AS a", "count_if(n > 2) AS i", "count(*) AS m")
    more = ("sum(CAST(bidder AS DECIMAL(9, 2))) AS d", "sum(n) FILTER (WHERE n > 1) AS f")
    made = counts().key_by("n").aggregate(*of, *more, emit="changelog")
    rows = counts().as_feed().key_by("n").aggregate(*of, *more, emit="changes")
    assert made.schema.types[:-1] == rows.schema.types
    assert made.schema.names == [*rows.schema.names, "_change"]
    assert made.step.changelog == Changelog(("n",), is_paired=True)


def test_a_join_needs_to_be_asked_for_changes() -> None:
    flow = Dataflow("joins")
    one, other = bids(flow), bids(flow, "more")
    made = one.join(
        other, on="bidder", select=["left.price", "right.price AS p"], how="full", emit="changelog"
    )
    assert made.schema.names == ["price", "p", "_change"]
    assert made.step.changelog == Changelog(None, is_paired=False)
    with pytest.raises(UnsupportedError, match="'inner', 'left', 'right' or 'full'"):
        one.join(other, on="bidder", select=["left.price"], how="semi", emit="changelog")
    with pytest.raises(UnsupportedError, match="no windows"):
        one.join(other, on="bidder", select=["left.price"], within=("0 seconds", "1 second"),
                 emit="changelog")  # fmt: skip


def test_results_of_windows_are_no_changelog() -> None:
    with pytest.raises(UnsupportedError, match="has no windows"):
        bids().window(tumbling("1 second")).aggregate("count(*) AS n", emit="changelog")


def test_a_table_of_a_database_is_a_changelog() -> None:
    flow = Dataflow("people")
    of: dict[str, Any] = {"servers": "localhost:9", "topic": "people", "format": "debezium"}
    people = flow.source_kafka(**of, schema=pa.schema([("id", pa.int64()), ("n", pa.int64())]),
                               key="id", dead_letters="bad")  # fmt: skip
    assert people.schema.names == ["id", "n", "_change"]
    assert people.step.changelog == Changelog(("id",), is_paired=True)
    people.key_by("n").aggregate("count(*) AS m", emit="changelog")
    for wrong, message in (
        ({"key": "name"}, "no column 'name'"),
        ({"delay": "1 second"}, "no change is ever late"),
        ({"format": "json", "key": "id"}, "key=.* is of format='debezium'"),
    ):
        with pytest.raises(DataflowError, match=message):
            flow.source_kafka(**(of | wrong), schema=pa.schema([("id", pa.int64())]), name="more")


def test_a_column_of_rows_is_not_that_of_changes() -> None:
    with pytest.raises(DataflowError, match="'_change' is that of changelogs"):
        bids().select("bidder AS _change")


def test_a_sink_by_key_takes_what_has_one(tmp_path: Path) -> None:
    made = counts()
    made.sink_delta(str(tmp_path / "table"), name="table")
    sink = made.flow.outside_sinks["table"]
    assert isinstance(sink, DeltaSink)
    assert (sink.upserts, sink.is_paired, sink.schema.names) == (("bidder",), True, ["bidder", "n"])
    assert "upserts by ['bidder']" in str(sink)
    with pytest.raises(UnsupportedError, match=r"this one has none.*as_feed"):
        made.select("n").sink_delta(str(tmp_path / "other"))
    with pytest.raises(DataflowError, match="what names a row of the table is bidder"):
        made.sink_delta(str(tmp_path / "other"), key="n")
    with pytest.raises(DataflowError, match="rows are only added"):
        bids().sink_delta(str(tmp_path / "other"), key="bidder")
    assert upsert_keys(Changelog(("a", "b"), is_paired=True), ("b", "a"), "sink") == ("b", "a")


def test_a_topic_gets_the_row_that_a_key_has_now_and_nothing_for_one_that_has_none() -> None:
    kinds = ["insert", "update_before", "update_after", "delete"]
    columns = {"k": ["a"] * 4, "n": [1, 1, 2, 2], "_change": kinds}
    batch = pa.record_batch(columns).append_column("__time_us", pa.array([0] * 4))
    assert batch.schema.field("__time_us") == with_time(pa.schema([])).field(0).with_nullable(True)
    paired = Encoder("json", ("k",), changes="paired")
    values = [b'{"k":"a","n":1}', b'{"k":"a","n":2}']
    records = [(b"a", values[0]), None, (b"a", values[1]), (b"a", None)]
    assert list(paired.records(batch)) == records
    single = Encoder("json", ("k",), changes="single")
    assert list(single.records(batch)) == [records[0], (b"a", None), *records[2:]]
    nameless = batch.set_column(0, "k", pa.array([None] * 4, pa.string()))
    with pytest.raises(KafkaError, match="`k` IS NOT NULL"):
        list(paired.records(nameless))


def test_a_topic_by_key_is_written_exactly_once() -> None:
    """What a zombie writes once more would be the newest that compaction finds."""
    with pytest.raises(DataflowError, match=r"exactly_once=False of a changelog.*as_feed"):
        counts().sink_kafka("out", servers="localhost:9", topic="out", exactly_once=False)


@pytest.mark.parametrize(
    "protection",
    [
        Amnesia(),
        Unprotected(),
        UpstreamBackup(guarantee="rollback"),
        Coordinated(guarantee="rollback"),
    ],
)
def test_a_protection_that_may_lose_or_repeat_changes_is_refused(protection: Protection) -> None:
    flow = Dataflow("test")
    counts(bids(flow)).sink("table")
    with pytest.raises(UnsupportedError, match=type(protection).__name__ + ".*wrong from then on"):
        Protections(protection).check(flow)
    weak = next(step.unit for step in flow.steps if step.changelog is None)
    Protections({weak: Amnesia()}).check(flow)  # Its rows are no changes.
    Protections(UpstreamBackup()).check(flow)
