"""The pass log of an arbitrary node: a claimed stream log (claimed_log.py)."""

from __future__ import annotations

from typing import Final

from holdfast.core.haunit.passes import PASS_SCHEMA, Pass, PassesLost, passes_of
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.wire.log_owners import Owners, read_in_vain
from holdfast.shell.storage.claimed_log import ClaimedLogWriter
from holdfast.shell.storage.errors import TuplesMissing
from holdfast.shell.storage.logs import open_reader
from holdfast.shell.storage.paths import within
from holdfast.shell.storage.places import has_files

_FOLDER: Final = "passes"
_FOLDER_FORMERLY: Final = "rounds"


def pass_folder(location: str) -> str:
    """Where a location has its nodes' pass logs: still there, if an earlier version began it.

    Raises:
        BadName: It is elsewhere by way of a link.
        StoreUnavailable: A URL's store does not answer.
    """
    former = within(location, _FOLDER_FORMERLY)
    return former if has_files(former) else within(location, _FOLDER)


class PassLogWriter(ClaimedLogWriter):
    """Appends passes as one incarnation."""

    def __init__(self, place: str, stream: str, incarnation: int, *, wanted: int = 0) -> None:
        """Claim the log, then find its end; errors as of `ClaimedLogWriter`."""
        super().__init__(place, PASS_SCHEMA, stream, incarnation, wanted=wanted)


def read_passes(place: str, from_number: int, to_number: int) -> tuple[Pass, ...]:
    """The passes [from_number, to_number). Raises `TuplesMissing` if the log lacks one."""
    follower = PassLogReader(place, from_number, is_tailing=False)
    try:
        passes: tuple[Pass, ...] = ()
        while len(passes) < to_number - from_number:
            more = follower.poll()
            if not more:
                raise TuplesMissing(place, from_number + len(passes), to_number)
            passes += more
        return passes[: to_number - from_number]
    finally:
        follower.close()


class PassLogReader:
    """Follows a pass log."""

    def __init__(self, place: str, from_number: int, *, is_tailing: bool = True) -> None:
        """Begin at a pass; see `open_reader`."""
        self._place = place
        self._reader = open_reader(place, from_number, is_tailing=is_tailing)

    def poll(self) -> tuple[Pass, ...]:
        """What has come, perhaps nothing."""
        batches = tuple(TupleBatch(b.first_id, b.batch, 0, 0) for b in self._reader.poll())
        return passes_of(batches)

    def require_held(self, owners: Owners) -> None:
        """Raise `PassesLost` if a pass that was read is not one of the log's.

        1. A successor has found the log's end. 2. The writer before it, a zombie, logs one more
        pass, which does not count; a secondary reads it. 3. The successor begins, and
        decides that pass otherwise. 4. It dies; the secondary takes over.
        """
        lost = read_in_vain(self._reader.read_of, self._reader.next_id, owners)
        if lost is not None:
            raise PassesLost(f"{self._place} has lost pass {lost}, which this replica has read")

    def close(self) -> None:
        """Read no more."""
        self._reader.close()
