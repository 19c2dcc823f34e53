"""How much of a log is kept: what the user wants, and what of it may be removed now.

A log is a row of *pieces*, the oldest first: commits of a recording, segments or parts of a stream
log. Pieces are removed from the front, and the newest ones never. The user names a time, a size, or
neither; what a restart or a reader of ours still needs stays in any case, so that a log may be
longer than the user has asked for, and never shorter.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept; for ever, if neither is given.

    Attributes:
        time_us: For so long; None: however old.
        size_bytes: Up to so many bytes of a log; None: however large.
    """

    time_us: int | None = None
    size_bytes: int | None = None

    def __str__(self) -> str:
        """For people."""
        if self.time_us is not None:
            return f"{self.time_us / 1e6:g} s, and what a restart needs"
        if self.size_bytes is not None:
            return f"{self.size_bytes} bytes, and what a restart needs"
        return "for ever"

    @property
    def is_for_ever(self) -> bool:
        """Whether nothing is ever removed."""
        return self.time_us is None and self.size_bytes is None


FOR_EVER = Retention()


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a log that is removed as a whole.

    Attributes:
        first: Its number, or the id of its first tuple.
        size_bytes: What it takes.
        at_us: When the newest thing in it was written; by the clock of who wrote it.
    """

    first: int
    size_bytes: int
    at_us: int


def removable(
    pieces: Collection[Piece], retention: Retention, now_us: int, newest_kept: int
) -> int:
    """How many of the oldest pieces the user does not want any more.

    Args:
        pieces: All there are, the oldest first.
        retention: What the user wants.
        now_us: The clock.
        newest_kept: So many of the newest ones are never removed.
    """
    if retention.is_for_ever:
        return 0
    left_bytes = sum(piece.size_bytes for piece in pieces)
    count = 0
    for piece in islice(pieces, max(0, len(pieces) - newest_kept)):
        is_old = retention.time_us is not None and piece.at_us < now_us - retention.time_us
        is_much = retention.size_bytes is not None and left_bytes > retention.size_bytes
        if not (is_old or is_much):
            break
        left_bytes -= piece.size_bytes
        count += 1
    return count
