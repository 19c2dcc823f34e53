"""How far each partition of a topic has been read: what is kept beside a source's log.

    topic.json                       where to begin and to end, and the topic's id, settled once, by
                                     whoever comes first
    positions/<incarnation>-<id>.json
                                     per partition the next offset and the newest time, when the
                                     log had `id` tuples

Which of these count says core/queues/topic_positions.py.
"""

from __future__ import annotations

import time
from contextlib import suppress

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.core.queues.reach import Reach, spans_of
from holdfast.core.queues.topic_positions import (
    FOLDER,
    Span,
    TopicPositions,
    believed,
    end_of,
    positions_name,
    superseded,
)
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.kafka.decoding import ERROR, OFFSET, PARTITION
from holdfast.shell.storage.errors import TuplesMissing
from holdfast.shell.storage.logs import open_reader
from holdfast.shell.storage.places import put_or_read, read_if_any, store_at
from holdfast.shell.storage.small_files import decode
from holdfast.shell.stores.base import StoreUnavailable

_TOPIC = "topic.json"


def late_rows_of(place: str) -> int:
    """How many tuples the instance of a source with this log has put aside as late."""
    positions = TopicPositions()
    store = store_at(place)
    newest = believed(store.names(FOLDER), NO_ID)
    if newest is not None:
        decode(bytes(store.read(newest)), f"{place}/{newest}", positions.restore)
    store.close()
    return positions.late_rows


class Positions(TopicPositions):
    """The positions of the partitions of one instance of a source, and their files."""

    def __init__(self, place: str, incarnation: int, ahead_us: int | None = None) -> None:
        """Of the log at `place`, written by this incarnation; see reach.py for `ahead_us`."""
        super().__init__()
        self._place = place
        self._store = store_at(place)
        self._incarnation = incarnation
        self._ahead_us = ahead_us
        self._left: list[str] = []  # names of this incarnation's files
        self.late_saved = 0  # how many late tuples the newest of them counts

    def find(self, end_id: int) -> None:
        """Find out how far the log, which ends before `end_id`, has come. Then leave a file.

        Raises:
            TuplesMissing: The log cannot be read up to its end.
            FileDamaged: A file is not what was written.
        """
        from_id = 0
        newest = believed(self._store.names(FOLDER), end_id)
        if newest is not None:
            from_id = end_of(newest)
            decode(bytes(self._store.read(newest)), f"{self._place}/{newest}", self.restore)
        if from_id < end_id:
            self._read_log(from_id, end_id)
        self.save(end_id)

    def _read_log(self, from_id: int, end_id: int) -> None:
        reader = open_reader(self._place, from_id)
        try:
            while reader.next_id < end_id:
                batches = reader.poll()
                if not batches:  # Records would be read again, and be there twice.
                    raise TuplesMissing(self._place, reader.next_id, end_id)
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
            good = times[mine & (times > BEGINNING_US)]
            self.advance(int(partition), int(offsets[mine].max()) + 1)
            if len(good):
                now_us = time.time_ns() // 1000
                position = self.of[int(partition)]
                reach = Reach(self._ahead_us, position.newest_us)
                reach.admit(spans_of(good, self._ahead_us, now_us), now_us)
                position.newest_us = reach.newest_us

    def save(self, end_id: int, *, is_ahead: bool = False) -> None:
        """Leave the positions; the log is durable before `end_id`, and holds no more.

        Args:
            end_id: Of the log, as of the positions.
            is_ahead: Whether the log has yet to get there; then the former ones stay.

        Raises:
            StoreUnavailable: The first one, or one ahead, which must be there, cannot be written.
        """
        name = positions_name(self._incarnation, end_id)
        if name in self._left:
            return
        try:
            put_or_read(self._store, name, [encode_sealed(self.to_json())])
        except StoreUnavailable:
            if is_ahead or not self._left:
                raise
            return
        self.late_saved = self.late_rows
        former, self._left = self._left, [name]
        if is_ahead:
            self._left.insert(0, former.pop())  # The log has got there by now.
        earlier = () if former else self._store.names(FOLDER)
        for old in [*former, *superseded(earlier, self._incarnation)]:
            with suppress(StoreUnavailable):  # It costs room and nothing else.
                self._store.delete(old)

    def span(self) -> Span | None:
        """What is wanted of the topic; None as long as it has not been settled."""
        found = read_if_any(self._store, _TOPIC)
        return None if found is None else self._span(found)

    def settle(self, wanted: Span) -> Span:
        """Settle what is wanted of the topic, unless it has been; what holds."""
        return self._span(put_or_read(self._store, _TOPIC, [encode_sealed(wanted.to_json())]))

    def _span(self, content: bytes) -> Span:
        return decode(content, f"{self._place}/{_TOPIC}", Span.from_json)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()
