"""The round log of an arbitrary node: a claimed stream log (claimed_log.py)."""

from __future__ import annotations

from holdfast.core.haunit.rounds import ROUND_SCHEMA, Round, RoundsLost, rounds_of
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.wire.log_owners import Owners, read_in_vain
from holdfast.shell.storage.claimed_log import ClaimedLogWriter
from holdfast.shell.storage.errors import TuplesMissing
from holdfast.shell.storage.logs import open_reader


class RoundLogWriter(ClaimedLogWriter):
    """Appends rounds as one incarnation."""

    def __init__(self, place: str, stream: str, incarnation: int) -> None:
        """Claim the log, then find its end; errors as of `ClaimedLogWriter`."""
        super().__init__(place, ROUND_SCHEMA, stream, incarnation)


def read_rounds(place: str, from_number: int, to_number: int) -> tuple[Round, ...]:
    """The rounds [from_number, to_number). Raises `TuplesMissing` if the log lacks one."""
    follower = RoundLogReader(place, from_number, is_tailing=False)
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

    def __init__(self, place: str, from_number: int, *, is_tailing: bool = True) -> None:
        """Begin at a round; see `open_reader`."""
        self._place = place
        self._reader = open_reader(place, from_number, is_tailing=is_tailing)

    def poll(self) -> tuple[Round, ...]:
        """What has come, perhaps nothing."""
        batches = tuple(TupleBatch(b.first_id, b.batch, 0, 0) for b in self._reader.poll())
        return rounds_of(batches)

    def require_held(self, owners: Owners) -> None:
        """Raise `RoundsLost` if a round that was read is not one of the log's.

        1. A successor has found the log's end. 2. The writer before it, a zombie, logs one more
        round, which does not count; a secondary reads it. 3. The successor begins, and
        decides that round otherwise. 4. It dies; the secondary takes over.
        """
        lost = read_in_vain(self._reader.read_of, self._reader.next_id, owners)
        if lost is not None:
            raise RoundsLost(f"{self._place} has lost round {lost}, which this replica has read")

    def close(self) -> None:
        """Read no more."""
        self._reader.close()
