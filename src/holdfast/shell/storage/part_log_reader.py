"""Follows a stream log in a store that cannot append; see core/wire/log_parts.py.

Who owns which ids is listed anew every `_MARKS_INTERVAL_S`; the next part is asked for by
its name, at most once per `_LOOK_INTERVAL_S`; all names are listed when a reader begins or finds
that its part is gone, and seldom otherwise, the less often the longer it takes. The store must list
what was put before; S3, HDFS and local files do.
"""

from __future__ import annotations

import time

import pyarrow as pa

from holdfast.core.model.ids import NO_ID
from holdfast.core.wire import log_parts
from holdfast.core.wire.log_parts import Owner, Part, PartName
from holdfast.core.wire.log_records import CorruptRecord, Incomplete, LogRecord, RecordKind
from holdfast.shell.storage.errors import StreamLogCorrupt, TuplesMissing
from holdfast.shell.storage.log_follower import LogFollower
from holdfast.shell.storage.places import store_at
from holdfast.shell.stores.base import CheckpointStore, ObjectMissing

_MARKS_INTERVAL_S = 1.0
_LOOK_INTERVAL_S = 0.02
_LOOKS = 4
_LIST_SHARE = 20
"""Listing all names takes at most so small a part of a waiting reader's time."""


class PartLogReader(LogFollower):
    """Follows a log of parts."""

    def __init__(
        self,
        path: str,
        from_id: int = 0,
        store: CheckpointStore | None = None,
        *,
        is_sole: bool = False,
    ) -> None:
        """Start at `from_id`.

        Args:
            path: The log's URL.
            from_id: Id of the first tuple wanted.
            store: The log's, if it is open already.
            is_sole: As the writer was told.
        """
        super().__init__(path, from_id)
        self._store = store or store_at(path)
        self._is_sole = is_sole
        self._owners: list[Owner] = list(log_parts.SOLE) if is_sole else []
        self._owners_at_s = float("-inf")
        self._owner: Owner | None = None  # of the part being read
        self._name = ""
        self._read_whole = ""  # the last part that was read up to its end
        self._part: Part | None = None
        self._position = 0  # of the next record of the part
        self._listed: list[PartName] = []
        self._list_at_s = float("-inf")
        self._is_listing_due = from_id > 0
        self._gap_at: int | None = None
        self._look_at_s = 0.0
        self._schema: pa.Schema | None = None

    def _next(self) -> LogRecord | None:
        while True:
            part = self._part
            if part is not None:
                if self._position < len(part.records):
                    self._position += 1
                    return part.records[self._position - 1]
                if part.corrupt is not None:
                    at, reason = part.corrupt
                    raise StreamLogCorrupt(f"{self._place}/{self._name}", at, reason.reason)
                self._part = None
                if part.end is not None:
                    self._read_whole = self._name
                    return part.end
            if not self._open():
                return None

    def _superseded_from(self) -> int:
        """See the base; what the marks said lately."""
        self._look_for_owners()
        owner = self._owner
        if owner is None:
            return NO_ID
        now = [o for o in self._owners if o.incarnation == owner.incarnation]
        return now[-1].superseded_from if now else owner.first_id

    def _look_for_owners(self) -> None:
        now_s = time.monotonic()
        if not self._is_sole and now_s - self._owners_at_s > _MARKS_INTERVAL_S:
            self._owners_at_s = now_s
            self._owners = log_parts.owners(self._store.names(log_parts.MARKS))

    def _open(self) -> bool:
        """Read the part that holds the next id, if there is one now."""
        if time.monotonic() < self._look_at_s:
            return False
        self._look_for_owners()
        owner = log_parts.owner_of(self._owners, self.next_id)
        if owner is None:
            if self._owners:
                raise TuplesMissing(self._place, self.next_id, self._owners[0].first_id)
            self._look_at_s = time.monotonic() + _LOOK_INTERVAL_S
            return False
        if self._owner != owner:
            self._owner, self._listed = owner, []
        if self._read_listed() or (not self._is_listing_due and self._read_next(owner)):
            return True
        for _ in range(_LOOKS):
            if not self._is_listing_due and time.monotonic() < self._list_at_s:
                break
            self._list(owner)
            if self._read_listed():
                return True
            self._check_gap(owner)
        self._look_at_s = time.monotonic() + _LOOK_INTERVAL_S
        return False

    def _read_next(self, owner: Owner) -> bool:
        """Ask for the part that would begin with the next id."""
        return self._read(PartName(owner.incarnation, self.next_id, None))

    def _read_listed(self) -> bool:
        """Read the part that holds the next id, as far as names are known."""
        name = log_parts.covering(self._listed, self.next_id)
        if name is None or str(name) == self._read_whole:
            return False
        if name.end is None:  # How far it goes is not known; and the next may be in the list too.
            self._listed = [p for p in self._listed if p.first_id > name.first_id or p.end]
        return self._read(name, is_listed=True)

    def _read(self, name: PartName, *, is_listed: bool = False) -> bool:
        """Read a part; False if it is gone, not whole yet, or holds nothing new."""
        try:
            data = self._store.read(str(name))
        except ObjectMissing:
            if is_listed:  # It has been merged since.
                self._listed, self._is_listing_due = [], True
            return False
        part = log_parts.decode_part(data)
        if isinstance(part, Incomplete):
            return False
        if isinstance(part, CorruptRecord):
            raise StreamLogCorrupt(f"{self._place}/{name}", 0, part.reason)
        self._schema = part.header.schema
        if not part.records and part.end is None and part.corrupt is None:
            return False
        last_id = part.records[-1].first_id + part.records[-1].count if part.records else -1
        if part.end is None and part.corrupt is None and last_id <= self.next_id:
            return False
        if part.end is not None and part.end.kind is not RecordKind.END and last_id <= self.next_id:
            self.boundary_us = max(self.boundary_us, part.end.boundary_us)
            return False
        self._name, self._part, self._position = str(name), part, 0
        return True

    def _list(self, owner: Owner) -> None:
        began_s = time.monotonic()
        names = self._store.names(log_parts.folder_of(owner.incarnation))
        self._listed = [part for name in names if (part := log_parts.parse_part(name))]
        self._is_listing_due = False
        took_s = time.monotonic() - began_s
        self._list_at_s = time.monotonic() + max(_MARKS_INTERVAL_S, _LIST_SHARE * took_s)

    def _check_gap(self, owner: Owner) -> None:
        """Parts behind the next id without one that holds it: they are missing.

        A listing is not made in one moment: what is merged meanwhile may look gone. So it must be
        seen twice.
        """
        beyond = [part.first_id for part in self._listed if part.first_id > self.next_id]
        beyond += [owner.superseded_from] if owner.superseded_from < NO_ID else []
        if not beyond:
            self._gap_at = None
        elif self._gap_at == self.next_id:
            raise TuplesMissing(self._place, self.next_id, min(beyond))
        else:
            self._gap_at = self.next_id
            self._is_listing_due = True

    @property
    def schema(self) -> pa.Schema | None:
        """See the base; the newest mark that is whole has it, too."""
        if self._schema is not None:
            return self._schema
        if self._is_sole:
            return None
        for name in reversed(self._store.names(log_parts.MARKS)):
            mark = log_parts.decode_part(self._store.read(name))
            if isinstance(mark, Part):
                self._schema = mark.header.schema
                return self._schema
        return None

    def close(self) -> None:
        """See the base."""
        self._store.close()
