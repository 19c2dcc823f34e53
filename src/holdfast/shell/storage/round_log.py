"""The round log of an arbitrary node: a stream log whose records count once nobody can miss them.

A round has effects outside as soon as its record counts, whoever takes over then. So: 1. A writer
stores its record. 2. It looks at the claims: if there is no newer one, whoever comes later claims
the log first, and then finds the record. 3. If there is a newer one, its owner may have missed the
record: this writer has been replaced, and must not act on it.
"""

from __future__ import annotations

import pyarrow as pa

from holdfast.core.haunit.rounds import ROUND_SCHEMA, Round, rounds_of
from holdfast.core.model.tuples import TupleBatch
from holdfast.shell.storage.errors import LogSuperseded, TuplesMissing
from holdfast.shell.storage.logs import open_reader, open_writer
from holdfast.shell.storage.places import store_at
from holdfast.shell.stores.base import NameTaken

_CLAIMS = "claims"


class RoundLogWriter:
    """Appends to a round log as one incarnation; its calls are those of `StreamLogWriter`."""

    def __init__(self, place: str, stream: str, incarnation: int) -> None:
        """Claim the log, then find its end.

        Raises:
            LogSuperseded: A later incarnation has claimed it.
            StorageError: It cannot be read.
        """
        self._place = place
        self._incarnation = incarnation
        self._store = store_at(place)
        try:
            self._store.put(f"{_CLAIMS}/{incarnation:010d}", [b"claimed"])
        except NameTaken as taken:
            raise LogSuperseded(f"{place} is claimed by incarnation {incarnation}") from taken
        self._require_newest()
        self._writer = open_writer(place, ROUND_SCHEMA, stream, incarnation)

    @property
    def next_id(self) -> int:
        """Number of the next round."""
        return self._writer.next_id

    def append(
        self, kind: int, first_id: int, batch: pa.RecordBatch, boundary_us: int, created_us: int
    ) -> None:
        """Append a round."""
        self._writer.append(kind, first_id, batch, boundary_us, created_us)

    def sync(self) -> None:
        """Make what was appended count. Raises `LogSuperseded` if it may not."""
        self._writer.sync()
        self._require_newest()

    def tidy(self) -> None:
        """Merge small parts."""
        self._writer.tidy()

    def trim(self, before: int) -> None:
        """Drop what comes before a round, as far as that is easy."""
        self._writer.trim(before)

    def close(self) -> None:
        """Write no more."""
        self._writer.close()

    def _require_newest(self) -> None:
        newest = max(int(name.rpartition("/")[2]) for name in self._store.names(_CLAIMS))
        if newest > self._incarnation:
            raise LogSuperseded(f"{self._place} is written by incarnation {newest} now")


def read_rounds(place: str, from_number: int, to_number: int) -> tuple[Round, ...]:
    """The rounds [from_number, to_number). Raises `TuplesMissing` if the log lacks one."""
    follower = RoundLogReader(place, from_number)
    try:
        rounds: tuple[Round, ...] = ()
        while len(rounds) < to_number - from_number:
            more = follower.poll()
            if not more:
                raise TuplesMissing(place, from_number + len(rounds), to_number)
            rounds += more
        return rounds[: to_number - from_number]
    finally:
        follower.close()


class RoundLogReader:
    """Follows a round log."""

    def __init__(self, place: str, from_number: int) -> None:
        """Begin at a round."""
        self._reader = open_reader(place, from_number)

    def poll(self) -> tuple[Round, ...]:
        """What has come, perhaps nothing."""
        batches = tuple(TupleBatch(b.first_id, b.batch, 0, 0) for b in self._reader.poll())
        return rounds_of(batches)

    def close(self) -> None:
        """Read no more."""
        self._reader.close()
