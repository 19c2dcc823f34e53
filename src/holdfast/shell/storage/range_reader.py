"""Ranges of a log that mostly follow each other, as a replay asks for them.

A log is read from the start of a segment. So what has read one range stays open for the next one:
otherwise a replay would pass over all that it has replayed already, once per range.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.tuples import TupleBatch, TupleType, between
from holdfast.shell.storage.errors import TuplesMissing
from holdfast.shell.storage.log_follower import LogFollower
from holdfast.shell.storage.logs import open_reader

_REPLAYS = 2
"""To the replicas of a receiver."""


@dataclass(frozen=True, slots=True)
class _Replay:
    """Where a reader has stopped: it goes on at `next_id`, first with what it has `left`."""

    next_id: int
    reader: LogFollower
    left: tuple[TupleBatch, ...]


class RangeReader:
    """Reads ranges of one log. For one thread."""

    def __init__(self, place: str) -> None:
        """Nothing is opened before the first range is read."""
        self._place = place
        self._replays: list[_Replay] = []  # the one that read last comes last

    def read(self, from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
        """The tuples [from_id, to_id). Raises `StorageError` if any is missing."""
        replay = next((r for r in self._replays if r.next_id == from_id), None)
        if replay is None:
            replay = _Replay(from_id, open_reader(self._place, from_id), ())
        else:
            self._replays.remove(replay)
        reader, batches = replay.reader, list(replay.left)
        try:
            batches += _read_before(to_id, reader, self._place)
        except BaseException:
            reader.close()
            raise
        left = between(batches, to_id, reader.next_id)
        self._replays.append(_Replay(to_id, reader, left))
        self._close(self._replays[:-_REPLAYS])
        return between(batches, from_id, to_id)

    def trim(self, before: int) -> None:
        """Nothing before this id will be read again."""
        self._close([replay for replay in self._replays if replay.next_id < before])

    def close(self) -> None:
        """Let go of all files."""
        self._close(list(self._replays))

    def _close(self, replays: list[_Replay]) -> None:
        for replay in replays:
            self._replays.remove(replay)
            replay.reader.close()


def read_range(place: str, from_id: int, to_id: int) -> tuple[TupleBatch, ...]:
    """One range of a log. Raises `StorageError` if any tuple is missing."""
    reader = RangeReader(place)
    try:
        return reader.read(from_id, to_id)
    finally:
        reader.close()


def _read_before(to_id: int, reader: LogFollower, place: str) -> list[TupleBatch]:
    """Whole records, up to an id at least."""
    batches: list[TupleBatch] = []
    while reader.next_id < to_id:
        logged_batches = reader.poll(max_rows=to_id - reader.next_id)
        if not logged_batches:
            raise TuplesMissing(place, reader.next_id, to_id)
        for logged in logged_batches:
            kind = TupleType(logged.tuple_type)
            times = logged.boundary_us, logged.created_us
            batches.append(TupleBatch(logged.first_id, logged.batch, *times, kind))
    return batches
