"""How far each partition of a topic has been read: what is kept beside a source's log.

    topic.json                       where to begin and to end, settled once, by whoever comes first
    positions/<incarnation>-<id>.json
                                     per partition the next offset and the newest time, when the
                                     log had `id` tuples

The log is the truth: every tuple in it carries its partition and offset. A file of positions only
saves reading the log from its beginning; what follows `id` in the log is looked at in any case.

A writer leaves one such file before it appends anything. So of all that there are, those of the
newest incarnation up to the end of its log count, and those of earlier ones do not: what a zombie
still writes describes tuples that nobody will ever see.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.kafka.decoding import ERROR, OFFSET, PARTITION
from holdfast.shell.storage.logs import open_reader
from holdfast.shell.storage.places import put_or_read, read_if_any, store_at
from holdfast.shell.storage.small_files import decode
from holdfast.shell.stores.base import StoreUnavailable

_TOPIC = "topic.json"
_FOLDER = "positions"


@dataclass(frozen=True, slots=True)
class Span:
    """What is wanted of a topic, for one instance.

    Attributes:
        begin: Per partition the first offset.
        end: Per partition the offset before which to stop; None: there is no end.
    """

    begin: Mapping[int, int]
    end: Mapping[int, int] | None


@dataclass(slots=True)
class Position:
    """How far a partition has been read.

    Attributes:
        next_offset: Of the next record.
        newest_us: Its newest tuple time; `BEGINNING_US`: it had none.
    """

    next_offset: int
    newest_us: int = BEGINNING_US


class Positions:
    """The positions of the partitions of one instance of a source."""

    def __init__(self, place: str, incarnation: int) -> None:
        """Of the log at `place`, written by this incarnation."""
        self._place = place
        self._store = store_at(place)
        self._incarnation = incarnation
        self.of: dict[int, Position] = {}
        self._left: list[str] = []  # names of this incarnation's files

    def restore(self, end_id: int) -> None:
        """Find out how far the log, which ends before `end_id`, has come. Then leave a file."""
        from_id = 0
        newest = self._newest(end_id)
        if newest is not None:
            from_id = _id_of(newest)
            place = f"{self._place}/{newest}"
            self.of = decode(bytes(self._store.read(newest)), place, _positions_from)
        if from_id < end_id:
            self._read_log(from_id, end_id)
        self.save(end_id)

    def _newest(self, end_id: int) -> str | None:
        names = self._store.names(_FOLDER)
        if not names:
            return None
        newest = max(map(_incarnation_of, names))
        mine = [n for n in names if _incarnation_of(n) == newest and _id_of(n) <= end_id]
        return max(mine, key=_id_of, default=None)

    def _read_log(self, from_id: int, end_id: int) -> None:
        reader = open_reader(self._place, from_id)
        try:
            while reader.next_id < end_id and (batches := reader.poll()):
                for logged in batches:
                    self.note(logged.batch)
        finally:
            reader.close()

    def note(self, batch: pa.RecordBatch) -> None:
        """The rows of the log's next record."""
        offsets = batch.column(OFFSET).to_numpy()
        partitions = batch.column(PARTITION).to_numpy()
        times = batch.column(TIME_COLUMN).to_numpy()
        if ERROR in batch.schema.names:
            is_good = batch.column(ERROR).is_null().to_numpy(zero_copy_only=False)
            times = np.where(is_good, times, BEGINNING_US)
        for partition in np.unique(partitions):
            mine = partitions == partition
            self.advance(int(partition), int(offsets[mine].max()) + 1, int(times[mine].max()))

    def advance(self, partition: int, next_offset: int, newest_us: int = BEGINNING_US) -> None:
        """A partition has been read up to an offset."""
        found = self.of.setdefault(partition, Position(next_offset))
        found.next_offset = max(found.next_offset, next_offset)
        found.newest_us = max(found.newest_us, newest_us)

    def save(self, end_id: int) -> None:
        """Leave the positions; the log is durable before `end_id`, and holds no more.

        Raises:
            StoreUnavailable: The first one, which must be there, cannot be written.
        """
        name = f"{_FOLDER}/{self._incarnation:010d}-{end_id:020d}.json"
        if name in self._left:
            return
        value = {str(p): [found.next_offset, found.newest_us] for p, found in self.of.items()}
        try:
            put_or_read(self._store, name, [encode_sealed(value)])
        except StoreUnavailable:
            if not self._left:
                raise
            return
        former, self._left = self._left, [name]
        earlier = () if former else self._store.names(_FOLDER)
        stale = [n for n in earlier if _incarnation_of(n) < self._incarnation]
        for old in [*former, *stale]:
            with suppress(StoreUnavailable):  # It costs room and nothing else.
                self._store.delete(old)

    def span(self) -> Span | None:
        """What is wanted of the topic; None as long as it has not been settled."""
        found = read_if_any(self._store, _TOPIC)
        return None if found is None else self._span(found)

    def settle(self, wanted: Span) -> Span:
        """Settle what is wanted of the topic, unless it has been; what holds."""
        end = None if wanted.end is None else {str(p): o for p, o in wanted.end.items()}
        value = {"begin": {str(p): o for p, o in wanted.begin.items()}, "end": end}
        return self._span(put_or_read(self._store, _TOPIC, [encode_sealed(value)]))

    def _span(self, content: bytes) -> Span:
        return decode(content, f"{self._place}/{_TOPIC}", _span_from)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()


def _span_from(value: dict[str, Any]) -> Span:
    end = value["end"]
    return Span(_offsets(value["begin"]), None if end is None else _offsets(end))


def _offsets(value: dict[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in value.items()}


def _positions_from(value: dict[str, Any]) -> dict[int, Position]:
    return {int(p): Position(int(offset), int(us)) for p, (offset, us) in value.items()}


def _incarnation_of(name: str) -> int:
    return int(name.rpartition("/")[2].partition("-")[0])


def _id_of(name: str) -> int:
    return int(name.rpartition("-")[2].partition(".")[0])
