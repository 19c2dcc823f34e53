"""What can be wrong with a log."""

from __future__ import annotations

import os

from holdfast.errors import HoldfastError


class StorageError(HoldfastError):
    """The base of all errors of logs."""


class StreamLogCorrupt(StorageError):
    """A log holds bytes that are no record, before its end."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        """Name the segment, the place, and the cure."""
        super().__init__(
            f"{path} is damaged at byte {offset}: {reason}. Restore the file from a copy; what "
            "comes after this place cannot be trusted"
        )


class FileDamaged(StorageError):
    """A file is not what was written."""

    def __init__(self, place: str | os.PathLike[str], reason: str) -> None:
        """Name the file, what is wrong, and the cure."""
        super().__init__(
            f"{os.fspath(place)} is damaged: {reason}. Restore it from a copy, or begin again in "
            "a new checkpointLocation"
        )


class FileMissing(StorageError):
    """A file is gone that had been written."""

    def __init__(self, place: str | os.PathLike[str], evidence: str) -> None:
        """Name the file, how it is known that it was there, and the cure."""
        super().__init__(
            f"{os.fspath(place)} is missing, although {evidence}. Restore it from a copy, or begin "
            "again in a new checkpointLocation"
        )


class TuplesMissing(StorageError):
    """Tuples that a reader needs are no longer, or not, in the log."""

    def __init__(self, path: str, first_id: int, next_id: int) -> None:
        """Name the log and the ids [first_id, next_id)."""
        super().__init__(
            f"{path}: tuples {first_id} to {next_id - 1} are missing; they were trimmed, or a "
            "file there is gone or damaged. Restore it from a copy, or begin at a later tuple"
        )


class TuplesRemoved(TuplesMissing):
    """Tuples that a reader wants are not kept any more; see `retention` of `Dataflow.start`."""

    def __init__(self, path: str, first_id: int, next_id: int) -> None:
        """Name the log and the ids [first_id, next_id)."""
        StorageError.__init__(
            self,
            f"{path}: tuples {first_id} to {next_id - 1} were removed, as its retention asks for; "
            f"this reader comes too late. Begin at tuple {next_id}, without a position of before "
            "(readers of a stream: in a new checkpointLocation), and give start(retention=...) "
            "more time or room",
        )


class LogEnded(StorageError):
    """An ingest log has ended, and something is to follow."""


class PlaceForbidden(StorageError):
    """This user may not read or write at a place."""

    CURE = (
        "choose another checkpointLocation; executors that run as another user than the driver "
        "need spark.holdfast.locationMode=770 and a group in common"
    )

    def __init__(
        self, place: str | bytes, reason: str, user: str, owner: str, cure: str = CURE
    ) -> None:
        """Name the place, the user, the owner, and the cure."""
        super().__init__(
            f"{os.fsdecode(place)}: {reason}, for user {user}; {owner}. Give it to this user or "
            f"{cure}"
        )


class UnknownStream(StorageError):
    """There is no log of this name."""


class BadName(StorageError, ValueError):
    """A name that cannot be part of a path."""


class SchemaMismatch(StorageError):
    """Rows that do not fit a log's schema."""


class NullsMismatch(SchemaMismatch):
    """Other columns must not be null than when a log was begun."""

    def __init__(self, root: str) -> None:
        """Of the log there."""
        super().__init__(
            f"{root} was begun with other columns NOT NULL, or by a version that did not look at "
            "all of them: within arrays, maps and structs, in the schema of source_delta, and with "
            "dead_letters. Use another checkpointLocation, or leave NOT NULL out there"
        )


class WrittenByOther(StorageError):
    """A log has a writer of this incarnation or a later one, which only a journal can give."""

    def __init__(self, path: str | os.PathLike[str], found: int, own: int) -> None:
        """Name the log, both incarnations, and the cure."""
        super().__init__(
            f"{os.fspath(path)} is written by incarnation {found}, this is {own}: another query "
            "writes there, or the journal of this location (coordinator/) has lost what it said. "
            "Stop the other query, or restore the journal from a copy, or begin again in a new "
            "checkpointLocation"
        )


class LocationInUse(StorageError):
    """Another query runs at the same checkpoint location."""


class JournalCorrupt(StorageError):
    """The coordinator's journal is damaged, and not just torn at its end."""


class JournalSuperseded(StorageError):
    """Another driver has begun at the location: what this one writes does not count."""


class LogSuperseded(StorageError):
    """A later incarnation writes the log now."""


class SpillLost(StorageError):
    """What a node spilled cannot be read back. Its replacement produces the tuples again."""
