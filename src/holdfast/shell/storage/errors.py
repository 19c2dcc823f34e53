"""What can be wrong with a log."""

from __future__ import annotations

from holdfast.api.errors import HoldfastError


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


class TuplesMissing(StorageError):
    """Tuples that a reader needs are no longer, or not, in the log."""

    def __init__(self, path: str, first_id: int, next_id: int) -> None:
        """Name the log and the ids [first_id, next_id)."""
        super().__init__(
            f"{path}: tuples {first_id} to {next_id - 1} are missing; they were trimmed, or a "
            "segment file is gone. Restore it from a copy, or begin at a later tuple"
        )


class UnknownStream(StorageError):
    """There is no log of this name."""


class BadName(StorageError, ValueError):
    """A name that cannot be part of a path."""


class SchemaMismatch(StorageError):
    """Rows that do not fit a log's schema."""


class LocationInUse(StorageError):
    """Another query runs at the same checkpoint location."""


class JournalCorrupt(StorageError):
    """The coordinator's journal is damaged, and not just torn at its end."""


class LogSuperseded(StorageError):
    """A later incarnation writes the log now."""


class SpillLost(StorageError):
    """What a node spilled cannot be read back. Its replacement produces the tuples again."""
