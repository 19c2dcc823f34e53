"""Follows a stream log in a store that cannot append; see core/wire/part_reading.py.

A reader that tails a log asks for the next part at most once per `_LOOK_INTERVAL_S`, and looks
surely once per `_SURE_INTERVAL_S`, the less often the longer that takes. Others look surely each
time: what they do not find was not there. The store must list what was put before; S3, HDFS and
local files do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeVar

import pyarrow as pa

from holdfast.core.model.ids import NO_ID
from holdfast.core.wire.log_records import LogRecord
from holdfast.core.wire.part_marks import PartDamaged
from holdfast.core.wire.part_reading import FoundPart, IdsMissing, PartReading
from holdfast.core.wire.steps import run
from holdfast.core.wire.store_steps import ChangesTooFast, Steps
from holdfast.shell.storage.beginnings import missing
from holdfast.shell.storage.errors import StorageError, StreamLogCorrupt
from holdfast.shell.storage.log_follower import LogFollower
from holdfast.shell.storage.places import store_at
from holdfast.shell.storage.store_performer import perform_in
from holdfast.shell.stores.base import CheckpointStore

_T = TypeVar("_T")

_SURE_INTERVAL_S = 1.0
_LOOK_INTERVAL_S = 0.02
_SURE_SHARE = 20
"""Looking surely takes at most so small a part of a waiting reader's time."""


def parts_backwards(place: str, before: int) -> Iterator[tuple[LogRecord, int]]:
    """The records of a log of parts before an id, newest first, each with where it is superseded.

    Raises:
        StorageError: A part is damaged, or tuples are missing.
    """
    reader = PartLogReader(place, before)
    try:
        while before > 0:
            found = reader.part_of(before - 1)
            if found is None:
                return
            records = (*found.part.records, *filter(None, (found.part.end,)))
            for record in reversed(records):
                yield record, found.owner.superseded_from
            before = min(record.first_id for record in records)
    finally:
        reader.close()


class PartLogReader(LogFollower):
    """Follows a log of parts."""

    def __init__(
        self,
        path: str,
        from_id: int = 0,
        store: CheckpointStore | None = None,
        *,
        is_sole: bool = False,
        is_tailing: bool = False,
    ) -> None:
        """Start at `from_id`.

        Args:
            path: The log's URL.
            from_id: Id of the first tuple wanted.
            store: The log's, if it is open already.
            is_sole: As the writer was told.
            is_tailing: It will be asked again and again: what is there may be found a little later.
        """
        super().__init__(path, from_id)
        self._store = store or store_at(path)
        self._reading = PartReading(is_sole=is_sole)
        self._is_sole = is_sole
        self._is_tailing = is_tailing
        self._found: FoundPart | None = None
        self._position = 0  # of the next record of the part
        self._look_at_s = 0.0
        self._sure_at_s = float("-inf")
        self._schema: pa.Schema | None = None

    def _next(self) -> LogRecord | None:
        while True:
            found = self._found
            if found is not None:
                part = found.part
                if self._position < len(part.records):
                    self._position += 1
                    return part.records[self._position - 1]
                if part.corrupt is not None:
                    at, reason = part.corrupt
                    raise StreamLogCorrupt(f"{self._place}/{found.name}", at, reason.reason)
                self._reading.read_whole(found)
                self._found = None
                if part.end is not None:
                    return part.end
            if not self._look():
                return None

    def _look(self) -> bool:
        """Read the part that holds the next id, if there is one now."""
        now_s = time.monotonic()
        if self._is_tailing and now_s < self._look_at_s:
            return False
        is_sure = not self._is_tailing or now_s >= self._sure_at_s
        self._found = self._run(self._reading.find(self.next_id, is_sure=is_sure))
        then_s = time.monotonic()
        if is_sure:
            self._sure_at_s = then_s + max(_SURE_INTERVAL_S, _SURE_SHARE * (then_s - now_s))
        if self._found is None:
            self._look_at_s = then_s + _LOOK_INTERVAL_S
            return False
        self._schema = self._found.part.header.schema
        self._superseded_at, self._position = self._found.owner.superseded_from, 0
        return True

    def part_of(self, tuple_id: int) -> FoundPart | None:
        """The part that holds a tuple, whole; None: there is none. Raises the errors of `poll`."""
        found = self._run(self._reading.find(tuple_id, is_sure=True))
        if found is not None and found.part.corrupt is not None:
            at, reason = found.part.corrupt
            raise StreamLogCorrupt(f"{self._place}/{found.name}", at, reason.reason)
        return found

    def _run(self, steps: Steps[_T]) -> _T:
        """Take steps over the store. Raises the errors of `poll`."""
        try:
            return run(steps, lambda request: perform_in(self._store, request))
        except IdsMissing as gap:
            raise missing(self._place, gap.next_id, gap.before) from gap
        except PartDamaged as damaged:
            place = f"{self._place}/{damaged.name}"
            raise StreamLogCorrupt(place, damaged.offset, damaged.reason) from damaged
        except ChangesTooFast as changes:
            raise StorageError(
                f"{self._place}/{changes} was listed again and again, and no two listings agreed; "
                "the store must list what was put before"
            ) from changes

    _superseded_at = NO_ID

    def _superseded_from(self) -> int:
        """See the base; by the marks as they were after the part had been read."""
        return self._superseded_at

    @property
    def schema(self) -> pa.Schema | None:
        """See the base; the newest mark that is whole has it, too."""
        if self._schema is None and not self._is_sole:
            self._schema = self._run(self._reading.schema_of_marks())
        return self._schema

    def close(self) -> None:
        """See the base."""
        self._store.close()
