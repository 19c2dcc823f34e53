"""When a source is read: at once while it has plenty, ever more seldom while it is quiet.

    WAITING --its time has come, or it stirs--> due --asked--> READING --answered--> WAITING

A source that gave all that it was asked for is read again at once. One that gave less is given
time, so that what comes is worth a pass; one that gave nothing is asked the more seldom the longer
it has been quiet, or when it says itself.

Invariant: it is asked for one thing at a time.
"""

from __future__ import annotations

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import ENOUGH_TUPLES

_PATIENCE = 20
"""A quiet source is asked again after so small a part of the time for which it has been quiet: its
tuples wait for a twentieth of the pause before them, and for `_POLL_MAX_MS` at most."""
_POLL_MAX_MS = 40
_QUIET_MAX_MS = 1_000


class SourceReading:
    """One source's. Volatile: all fields."""

    def __init__(self, now_ms: int) -> None:
        """It is due at once."""
        self.due_ms = 0  # earliest time of the next reading
        self.is_reading = False  # an answer is awaited
        self._asked = 0  # tuples that it was asked for last
        self._fed_ms = now_ms  # when it last gave something

    def asked(self, tuples: int) -> None:
        """It has been asked for so many tuples."""
        if self.is_reading:
            raise InvariantViolation("a source is asked while it is being read")
        self.is_reading = True
        self._asked = tuples

    def answered(self, tuples: int, quiet_ms: int, now_ms: int) -> None:
        """It has given so many.

        Args:
            tuples: How many; 0: there was nothing.
            quiet_ms: For how long it will have nothing, as far as it says so; 0: it does not.
            now_ms: The time.
        """
        self.is_reading = False
        if tuples:
            self._fed_ms = now_ms
        if tuples >= min(self._asked, ENOUGH_TUPLES):
            self.due_ms = now_ms
        elif quiet_ms:
            self.due_ms = now_ms + min(quiet_ms, _QUIET_MAX_MS)
        else:
            patience_ms = (now_ms - self._fed_ms) // _PATIENCE
            self.due_ms = now_ms + max(1, min(patience_ms, _POLL_MAX_MS))

    def stir(self, now_ms: int) -> None:
        """It is worth a look before its time."""
        self.due_ms = now_ms
