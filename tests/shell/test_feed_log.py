"""A sink read together with its feed: in order, or the best known now. [DPC §3.1]"""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from trimmed_logs import lead

from holdfast.core.haunit import events
from holdfast.core.haunit.outputs.feed import Feed
from holdfast.core.haunit.outputs.first_output import FirstOutput
from holdfast.core.haunit.outputs.sink import Sink
from holdfast.core.machine import Effect
from holdfast.core.model.feed_rows import feed_schema
from holdfast.core.model.ids import Incarnation, StreamId
from holdfast.core.model.tuples import TIME_COLUMN, with_time
from holdfast.core.queues.retention import Retention
from holdfast.core.replication.feed_reading import FeedReading
from holdfast.driver.feed_check import _fault_in
from holdfast.shell.spark.data_source import LogSource
from holdfast.shell.storage.beginnings import first_kept
from holdfast.shell.storage.errors import StorageError, TuplesRemoved
from holdfast.shell.storage.feed_log import (
    FeedFollower,
    Place,
    all_rows,
    current_rows,
    logged_in,
)
from holdfast.shell.storage.logs import open_reader, open_writer
from holdfast.shell.storage.part_trimming import feed_trimmer_at, trimmer_at

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])
Rows = list[tuple[object, ...]]


class Life:
    """One incarnation of a node that writes a sink and its feed."""

    def __init__(
        self, root: Path, incarnation: int, begins_at: int = 0, segment_bytes: int = 1 << 20
    ) -> None:
        self.places = {StreamId("out[0]"): SCHEMA, StreamId("out~feed[0]"): feed_schema(SCHEMA)}
        self.logs = {
            stream: open_writer(
                str(root / stream),
                with_time(schema),
                stream,
                incarnation,
                segment_bytes=segment_bytes,
            )
            for stream, schema in self.places.items()
        }
        first = FirstOutput()
        sink, feed = self.logs
        self.sink = Sink(sink, begins_at, max(begins_at, self.logs[sink].next_id), first)
        self.feed = Feed(
            feed,
            self.logs[feed].next_id,
            feed_schema(SCHEMA),
            self.sink,
            Incarnation(incarnation),
            first,
            sources=4,
        )
        self.effects = self.feed.begin()

    def stable(self, *numbers: int) -> None:
        self.effects += self.sink.put_out(batch(numbers), 0, 0, is_held=False)

    def tentative(self, *numbers: int) -> None:
        self.effects += self.feed.tentative(batch(numbers), (StreamId("a"), StreamId("b")), 0)

    def flush(self, *streams: str) -> None:
        """Write what is to be written, to these logs or to all."""
        left: list[Effect] = []
        for effect in self.effects:
            if isinstance(effect, events.WriteSink) and effect.stream in (streams or self.logs):
                tuples = effect.batch
                self.logs[effect.stream].append(0, tuples.first_id, tuples.batch, 0, 0)
            else:
                left.append(effect)
        self.effects[:] = left
        for log in self.logs.values():
            log.sync()

    def end(self) -> None:
        self.flush()
        for log in self.logs.values():
            log.sync()
            log.close()


def batch(numbers: tuple[int, ...]) -> pa.RecordBatch:
    columns = [pa.array(numbers, pa.int64()), pa.array([n * 10 for n in numbers], pa.int64())]
    return pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))


def read(root: Path, *, is_current: bool = False) -> Rows:
    feed = logged_in(open_reader(str(root / "out~feed[0]")), None)
    return in_order(root, feed, is_current=is_current)


def in_order(root: Path, feed: Any, *places: Place, is_current: bool = False) -> Rows:
    rows: Any = current_rows if is_current else all_rows
    found = rows(lambda a, b: logged_in(open_reader(str(root / "out[0]"), a), b), feed, *places)
    table = pa.Table.from_batches(list(found)).drop_columns([TIME_COLUMN])
    return [tuple(row.values()) for row in table.to_pylist()]


def stable(*numbers: int, first_id: int = 0) -> Rows:
    return [(n, "stable", first_id + i, None, None, None) for i, n in enumerate(numbers)]


def history(root: Path, seed: int) -> None:
    """Failures and corrections as they are drawn, by two incarnations, each row a segment."""
    draw = random.Random(seed)
    for incarnation in (1, 2):
        life = Life(root, incarnation, segment_bytes=1)
        life.sink.next_id = life.sink.written_before
        for _ in range(draw.randint(1, 4)):
            life.stable(*range(draw.randint(0, 2)))
            life.flush()
            for number in range(draw.randint(0, 3)):
                life.tentative(number)
                life.flush()
            if draw.random() < 0.8:
                life.effects += life.feed.undo()
                life.flush()
                life.stable(*range(draw.randint(0, 3)))
                life.effects += life.feed.rec_done() if draw.random() < 0.8 else ()
                life.flush()
        life.end()


@pytest.mark.parametrize("seed", range(20))
def test_a_feed_of_which_rows_were_removed_is_read_as_before(tmp_path: Path, seed: int) -> None:
    history(tmp_path, seed)
    place = str(tmp_path / "out~feed[0]")
    whole, current = read(tmp_path), read(tmp_path, is_current=True)
    opened = [open_reader(str(tmp_path / "out[0]")), open_reader(place)]
    before = FeedFollower(*opened).place()
    feed_trimmer_at(place, lead).trim(Retention(time_us=1), None, 2**60)
    first = first_kept(place)
    gone = [n for n, row in enumerate(whole) if row[1] != "stable"][:first]
    left = [row for n, row in enumerate(whole) if n not in gone]
    kept = logged_in(open_reader(place, first), None)
    assert in_order(tmp_path, kept, Place(0, first, stands=False)) == left
    kept = logged_in(open_reader(place, first), None)
    assert in_order(tmp_path, kept, is_current=True) == current
    opened = [open_reader(str(tmp_path / "out[0]")), open_reader(place, first)]
    assert FeedFollower(*opened).place() == before


def located(root: Path) -> tuple[Path, Path, Path]:
    """A checkpoint location with the sink and its feed of a history; these two."""
    history(root, 0)
    location, feed = root / "q", root / "q" / "feeds" / "out" / "0"
    sink = location / "streams" / "out" / "0"
    for name, place in (("out[0]", sink), ("out~feed[0]", feed)):
        place.parent.mkdir(parents=True)
        (root / name).rename(place)
    return location, sink, feed


def test_no_stream_takes_rows_back_and_without_a_feed_nothing_is_tentative(tmp_path: Path) -> None:
    location, _, feed = located(tmp_path)
    source = LogSource({"path": str(location), "stream": "out", "types": "current"})
    schema = source.schema()
    assert source.reader(schema).partitions()
    with pytest.raises(StorageError, match=r"types='current'.*no stream can.*types='all'"):
        source.streamReader(schema)
    shutil.rmtree(feed.parent)
    with pytest.raises(StorageError, match=r"types='current'.*stable tuples alone"):
        source.schema()


def test_spark_begins_where_a_sink_and_its_feed_do(tmp_path: Path) -> None:
    location, sink, feed = located(tmp_path)
    trimmer_at(str(sink), lead).trim(Retention(time_us=1), None, 2**60)
    feed_trimmer_at(str(feed), lead).trim(Retention(time_us=1), None, 2**60)
    begins = {"0.stable": first_kept(str(sink)), "0.feed": first_kept(str(feed)), "0.stands": 0}
    assert min(begins["0.stable"], begins["0.feed"]) > 0
    source = LogSource({"path": str(location), "stream": "out", "types": "all"})
    follower = source.streamReader(source.schema())
    assert follower.initialOffset() == begins
    parts = follower.partitions(begins, follower.latestOffset())
    followed = rows_of(follower.read(part) for part in parts)
    batch = source.reader(source.schema())
    assert followed == rows_of(batch.read(part) for part in batch.partitions())
    assert _fault_in(FeedReading(), [row[1:4] for row in followed]) is None
    with pytest.raises(TuplesRemoved):
        rows_of(follower.read(p) for p in follower.partitions({}, follower.latestOffset()))


def rows_of(parts: Iterable[Iterable[pa.RecordBatch]]) -> Any:
    found = [batch for part in parts for batch in part]
    return [tuple(row.values()) for row in pa.Table.from_batches(found).to_pylist()]


def test_of_a_feed_all_goes_that_was_corrected_but_the_newest_rows(tmp_path: Path) -> None:
    life = Life(tmp_path, 1, segment_bytes=1)
    for number in range(5):
        life.tentative(number)
        life.flush()
        life.effects += life.feed.undo()
        life.flush()
        life.stable(number)
        life.effects += life.feed.rec_done()
        life.flush()
    life.end()
    place = str(tmp_path / "out~feed[0]")
    assert feed_trimmer_at(place, lead).trim(Retention(time_us=1), None, 2**60) == 12
    assert first_kept(place) == 12


def test_everything_is_read_in_the_order_in_which_it_was_put_out(tmp_path: Path) -> None:
    life = Life(tmp_path, 1)
    life.stable(1, 2)
    life.tentative(30)
    life.tentative(40, 50)
    life.effects += life.feed.undo()
    life.stable(3, 4)
    life.effects += life.feed.rec_done()
    life.stable(5)
    life.tentative(60)
    life.end()
    suffix = [(60, "tentative", 5, "1.2", "a, b", 0.5)]
    assert read(tmp_path) == [
        *stable(1, 2),
        (30, "tentative", 2, "1.1", "a, b", 0.5),
        (40, "tentative", 3, "1.1", "a, b", 0.5),
        (50, "tentative", 4, "1.1", "a, b", 0.5),
        (None, "undo", 2, "1.1", None, None),
        *stable(3, 4, first_id=2),
        (None, "rec_done", 4, "1.1", None, None),
        *stable(5, first_id=4),
        *suffix,
    ]
    assert read(tmp_path, is_current=True) == [*stable(1, 2, 3, 4, 5), *suffix]


def test_who_takes_over_undoes_what_was_left_and_repeats_nothing_as_tentative(
    tmp_path: Path,
) -> None:
    first = Life(tmp_path, 1)
    first.stable(1, 2, 3)
    first.tentative(40)
    first.end()
    second = Life(tmp_path, 2, begins_at=1)
    second.tentative(2, 3, 4, 5)  # Of these 2 and 3 are there as stable.
    second.tentative(6)
    second.end()
    suffix = [(n, "tentative", n - 1, "2.1", "a, b", 0.5) for n in (4, 5, 6)]
    assert read(tmp_path) == [
        *stable(1, 2, 3),
        (40, "tentative", 3, "1.1", "a, b", 0.5),
        (None, "undo", 3, None, None, None),
        *suffix,
    ]
    assert read(tmp_path, is_current=True) == [*stable(1, 2, 3), *suffix]


def test_without_a_failure_there_is_nothing_but_stable_tuples(tmp_path: Path) -> None:
    life = Life(tmp_path, 1)
    life.stable(1)
    life.effects += life.feed.undo()
    life.effects += life.feed.rec_done()
    life.end()
    assert read(tmp_path) == read(tmp_path, is_current=True) == stable(1)


def test_who_follows_gets_the_same_rows_however_often_it_looks(tmp_path: Path) -> None:
    """All of it, in pieces between the places that were found while it was written."""
    life = Life(tmp_path, 1)
    opened = [open_reader(str(tmp_path / name)) for name in ("out[0]", "out~feed[0]")]
    follower = FeedFollower(*opened)
    places = [follower.place()]
    written = (
        lambda: life.stable(1, 2),
        lambda: life.tentative(30),
        lambda: life.tentative(40, 50),
        lambda: life.effects.extend(life.feed.undo()),
        lambda: life.stable(3, 4),
        lambda: life.effects.extend(life.feed.rec_done()),
        lambda: life.stable(5),
        lambda: life.tentative(60),
    )
    for write in written:
        write()
        life.flush()
        places.append(follower.place())
    assert places[-1] == Place(stable=5, feed=6, stands=True)
    follower.close()

    def between(start: Place, end: Place) -> Rows:
        feed = logged_in(open_reader(str(tmp_path / "out~feed[0]"), start.feed), end.feed)
        return in_order(tmp_path, feed, start, end)

    life.end()
    whole = read(tmp_path)
    for step in (1, 2, 3, 4):
        cuts = [*places[:-1:step], places[-1]]
        pieces = [between(a, b) for a, b in itertools.pairwise(cuts)]
        assert [row for piece in pieces for row in piece] == whole


def test_rows_of_a_feed_count_once_the_stable_tuples_before_them_are_there(tmp_path: Path) -> None:
    life = Life(tmp_path, 1)
    life.stable(1, 2)
    life.tentative(30)
    life.flush("out~feed[0]")
    follower = FeedFollower(
        open_reader(str(tmp_path / "out[0]")), open_reader(str(tmp_path / "out~feed[0]"))
    )
    assert follower.place() == Place(0, 0, stands=False)
    life.flush()
    assert follower.place() == Place(2, 1, stands=True)
    follower.close()
    life.end()
