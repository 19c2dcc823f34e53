"""Reading a sink together with its feed: stable tuples, tentative ones and corrections in order.

The sink's log has the stable tuples, the feed the others, and at which stable tuple they stand
(core/model/feed_rows.py). `all_rows` gives everything in the order in which it was put out,
`current_rows` what is best known now: all stable tuples, and the tentative suffix that stands.

The feed is read first, to its end, then the log as far as the feed had come: no further than to the
suffix that stands, so that both are of one moment.

`FeedFollower` finds such moments again and again, for who follows: a `Place` says how much of the
log and of the feed was put out by then, and what lies between two of them is always the same rows.
It looks at the end of the log before it looks at the feed: stable tuples that stand behind a run
are there later than the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast.core.model.feed_rows import FEED_FIELDS, TYPE_NAMES
from holdfast.core.model.tuples import TIME_COLUMN, TupleType
from holdfast.core.replication.feed_reading import TENTATIVE, UNDO, FeedBroken, FeedReading
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.log_follower import LogFollower, LoggedBatch
from holdfast.shell.storage.logs import open_kept

Stable = Callable[[int, int | None], Iterator[LoggedBatch]]
"""Reads the log: tuples with ids from the first on, before the second; None: to its end."""
_WORDS: Final = ("_type", "_tuple_id", "_run")


class Place(NamedTuple):
    """How much had been put out.

    Attributes:
        stable: So many stable tuples.
        feed: So many rows of the feed.
        stands: Whether a tentative suffix stood.
    """

    stable: int
    feed: int
    stands: bool


BEGINNING: Final = Place(0, 0, False)


def logged_in(follower: LogFollower, end: int | None) -> Iterator[LoggedBatch]:
    """What a log holds from where its follower is, before an id; None: to its end.

    Raises:
        StorageError: As of `LogFollower.poll`.
    """
    while batches := follower.poll():
        for logged in batches:
            count = logged.count if end is None else min(logged.count, end - logged.first_id)
            if count > 0:
                yield replace(logged, count=count, batch=logged.batch[:count])
        if end is not None and follower.next_id >= end:
            break
    follower.close()


def all_rows(
    stable: Stable,
    feed: Iterable[LoggedBatch],
    start: Place = BEGINNING,
    end: Place | None = None,
) -> Iterator[pa.RecordBatch]:
    """Everything in order: the sink's columns, the time, and the feed's columns.

    Args:
        stable: Reads the sink's log.
        feed: What the feed holds between the two places.
        start: What was put out by then is left out.
        end: What is put out later is left out; None: all that is there.
    """
    next_id, stands = start.stable, start.stands
    for rows in _stretches(feed):
        tuple_id, kind = (rows.column(name)[0].as_py() for name in ("_tuple_id", "_type"))
        if not (stands and kind == TENTATIVE):  # Those that go on behind others of their run.
            yield from _stable_rows(stable, next_id, tuple_id)
            next_id = max(next_id, tuple_id)
        yield from rows.to_batches()
        stands = kind == TENTATIVE or (stands and kind != UNDO)
    if end is not None or not stands:
        yield from _stable_rows(stable, next_id, None if end is None else end.stable)


def current_rows(
    stable: Stable, feed: Iterable[LoggedBatch], start: Place = BEGINNING
) -> Iterator[pa.RecordBatch]:
    """What is best known now; columns and args as of `all_rows`."""
    standing: list[pa.Table] = []
    for rows in _stretches(feed):
        kind = rows.column("_type")[0].as_py()
        if kind == TENTATIVE:
            standing.append(rows)
        elif kind == UNDO:
            standing = []
    ends = standing[0].column("_tuple_id")[0].as_py() if standing else None
    yield from _stable_rows(stable, start.stable, ends)
    for rows in standing:
        yield from rows.to_batches()


class FeedBeginnings:
    """Which rows a feed may begin with: no suffix stands before them, and none is corrected."""

    def __init__(self, place: str) -> None:
        """Nothing is read yet."""
        self._place = place
        self._log: LogFollower | None = None
        self._reading = FeedReading()
        self._ids: set[int] = set()

    def has(self, first_id: int) -> bool:
        """Whether the row with this id is one of them; if so, it is taken to be the first one.

        Raises:
            StorageError: The log cannot be read, or its rows contradict each other.
        """
        if self._log is None:
            self._log = open_kept(self._place)
        try:
            while batches := self._log.poll():
                for logged in batches:
                    self._note_closed(logged)
        except FeedBroken as error:
            raise StorageError(f"{self._place}: {error}") from error
        if first_id not in self._ids:
            return False
        self._ids = {known for known in self._ids if known >= first_id}
        return True

    def _note_closed(self, logged: LoggedBatch) -> None:
        columns = (logged.batch.column(name).to_pylist() for name in _WORDS)
        for row_id, row in enumerate(zip(*columns, strict=True), logged.first_id):
            if self._reading.is_closed:
                self._ids.add(row_id)
            self._reading.take(*row)


class FeedFollower:
    """Follows a sink and its feed; see the module."""

    def __init__(self, stable: LogFollower, feed: LogFollower) -> None:
        """Begin where both begin, before all that is kept; they need not exist yet."""
        self._stable = stable
        self._feed = feed
        self._reading = FeedReading()
        self._place = Place(stable.next_id, feed.next_id, stands=False)
        self._next: deque[tuple[str, int, str | None]] = deque()  # rows that are not passed

    def place(self) -> Place:
        """How much there is now; each time as much at least.

        A row of the feed may be there before the stable tuples that stand before it. It counts
        when these are there.

        Raises:
            StorageError: As of `LogFollower.poll`.
            FeedBroken: The rows of the feed contradict each other.
        """
        self._stable.skip_to_end()
        stable, feed = self._stable.next_id, self._place.feed
        while batches := self._feed.poll():
            for logged in batches:
                columns = (logged.batch.column(name).to_pylist() for name in _WORDS)
                self._next.extend(zip(*columns, strict=True))
        self._stable.skip_to_end()
        reading = self._reading
        while self._next and self._stands_at(*self._next[0]) <= self._stable.next_id:
            reading.take(*self._next.popleft())
            feed += 1
        if reading.run or self._next:
            stable = reading.stands_at
        stable = max(self._place.stable, reading.stands_at, stable)
        self._place = Place(stable, feed, bool(reading.run))
        return self._place

    def _stands_at(self, kind: str, tuple_id: int, run: str | None) -> int:
        del run
        is_first = kind != TENTATIVE or not self._reading.run
        return tuple_id if is_first else self._reading.begins

    def close(self) -> None:
        """Let go of files and connections."""
        self._stable.close()
        self._feed.close()


def _stable_rows(stable: Stable, start: int, end: int | None) -> Iterator[pa.RecordBatch]:
    if end is not None and end <= start:
        return
    for logged in stable(start, end):
        count = logged.count
        columns = [
            *logged.batch.columns,
            pa.repeat(TYPE_NAMES[TupleType.STABLE], count),
            pa.array(np.arange(logged.first_id, logged.first_id + count, dtype=np.int64)),
            *(pa.nulls(count, field.type) for field in FEED_FIELDS[2:]),
        ]
        own = [pa.field(field.name, field.type) for field in list(logged.batch.schema)[:-1]]
        fields = [*own, logged.batch.schema.field(TIME_COLUMN), *FEED_FIELDS]
        yield pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _stretches(feed: Iterable[LoggedBatch]) -> Iterator[pa.Table]:
    """The feed's rows, those of one run or word together; the time stands before its columns."""
    batches = [logged.batch for logged in feed]
    if not batches:
        return
    rows = pa.Table.from_batches(batches)
    names = [name for name in rows.column_names if name != TIME_COLUMN]
    own = len(names) - len(FEED_FIELDS)
    rows = rows.select([*names[:own], TIME_COLUMN, *names[own:]])
    kinds, runs = rows.column("_type").to_pylist(), rows.column("_run").to_pylist()
    keys = list(zip(kinds, runs, strict=True))
    starts = [i for i in range(len(keys)) if i == 0 or keys[i] != keys[i - 1]]
    for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
        yield rows.slice(start, stop - start)
