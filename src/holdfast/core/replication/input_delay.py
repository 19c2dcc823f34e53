"""How long input has waited for streams that are missing, and how far to go without them. [DPC]

Theory of operation. A tuple of time t waits until every stream has promised a time beyond t; a
boundary waits until every other stream has promised as much. Both are *claims* here: a time that
the node should reach, and when that was first asked for. A claim that is behind a later and larger
one never counts, so they are kept as a rising sequence, oldest first. One that has waited for the
bound has *expired*: the node goes at least as far, without whoever is behind.

How far it goes beyond that while streams are missing is the user's choice. `PROCESS`: as far as
those streams have promised that are not silent, so that new tuples wait for nobody who is not
there. `DELAY`: no further, so that each waits for the bound and there are fewer to correct.
`SUSPEND`: nowhere, so that everything waits and nothing is to correct. [DPC "Up_failure"]

A *silent stream* is one that others went on without, until it promises more. Then it is waited
for again, up to the bound: else streams that are a little ahead of it would go on without it for
ever, and the correction would never begin.

Departure from [DPC]: the paper's clock runs from the first tuple of a bucket. Here a boundary that
waits counts, too. 1. All tuples of stream a have been released; c is silent. 2. A boundary of a
closes a window. 3. Its result would wait for c without any bound.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import NamedTuple

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US


class DuringFailure(enum.Enum):
    """What is done with new tuples while inputs are missing."""

    PROCESS = "process"
    DELAY = "delay"
    SUSPEND = "suspend"


class _Claim(NamedTuple):
    """Something waits for this boundary since then."""

    needs_us: int
    since_ms: int


class InputDelay:
    """The waiting of one node's input. Volatile: all fields."""

    def __init__(self, streams: int, bound_ms: int, during_failure: DuringFailure) -> None:
        """Nothing has come.

        Args:
            streams: Input streams.
            bound_ms: What waits for so long does not wait any longer: the paper's αX.
            during_failure: How far to go while streams are missing.
        """
        self.bound_ms = bound_ms
        self.during = during_failure
        """What is done with new tuples now."""
        self._boundaries_us = [BEGINNING_US] * streams  # tentative ones too
        self._is_silent = [False] * streams
        self._claims: deque[_Claim] = deque()  # both fields ascending
        self._newest_us = BEGINNING_US  # the largest claim ever
        self._reached_us = BEGINNING_US
        self.longest_ms = 0
        """The longest that something has waited so far."""

    # -- what comes -------------------------------------------------------------------------

    def arrived(self, newest_us: int, now_ms: int) -> None:
        """Tuples have come, the newest of this time."""
        self._claim(newest_us + 1, now_ms)

    def promised(self, stream: int, boundary_us: int, now_ms: int) -> None:
        """A stream has promised this, as stable or as tentative.

        The end of a stream waits for nobody: it is not a time that other streams will reach.
        """
        if boundary_us <= self._boundaries_us[stream]:
            return
        self._boundaries_us[stream] = boundary_us
        self._is_silent[stream] = False
        if boundary_us != END_US:
            self._claim(boundary_us, now_ms)

    def undone(self, stream: int, boundary_us: int) -> None:
        """What a stream had promised as tentative is void; this holds."""
        self._boundaries_us[stream] = boundary_us

    def _claim(self, needs_us: int, now_ms: int) -> None:
        if needs_us <= max(self._newest_us, self._reached_us):
            return
        self._newest_us = needs_us
        if self._claims and self._claims[-1].since_ms == now_ms:
            self._claims.pop()
        self._claims.append(_Claim(needs_us, now_ms))

    # -- what is done -----------------------------------------------------------------------

    def reached(self, boundary_us: int, now_ms: int) -> None:
        """The node has acted on this, as stable or as tentative."""
        self._reached_us = max(self._reached_us, boundary_us)
        while self._claims and self._claims[0].needs_us <= boundary_us:
            waited_ms = now_ms - self._claims.popleft().since_ms
            self.longest_ms = max(self.longest_ms, waited_ms)

    def due_ms(self) -> int | None:
        """When something will have waited for the bound; None: nothing waits."""
        if not self._claims or self.during is DuringFailure.SUSPEND:
            return None
        return self._claims[0].since_ms + self.bound_ms

    def expired_us(self, now_ms: int) -> int:
        """The boundary that has been waited for as long as the bound; `BEGINNING_US`: none."""
        expired_us = BEGINNING_US
        for claim in self._claims:
            if claim.since_ms + self.bound_ms > now_ms:
                break
            expired_us = claim.needs_us
        return expired_us

    def tentative_us(self, now_ms: int) -> int:
        """How far to go without the streams that are missing; never behind what was reached."""
        if self.during is DuringFailure.SUSPEND:
            return self._reached_us
        expired_us = max(self._reached_us, self.expired_us(now_ms))
        if self.during is DuringFailure.DELAY:
            return expired_us
        is_over = self.expired_us(now_ms) != BEGINNING_US  # for who is behind what has expired
        waited_for = [
            boundary_us
            for boundary_us, is_silent in zip(self._boundaries_us, self._is_silent, strict=True)
            if not (is_silent or (is_over and boundary_us < expired_us))
        ]
        bound_us = min(waited_for, default=BEGINNING_US)
        return max(expired_us, min(bound_us, self._newest_us))

    def behind(self, boundary_us: int) -> tuple[int, ...]:
        """The streams that have not promised a boundary."""
        promised = enumerate(self._boundaries_us)
        return tuple(stream for stream, before_us in promised if before_us < boundary_us)

    def went_without(self, boundary_us: int) -> tuple[int, ...]:
        """The streams that had not promised a boundary which was acted on; silent from now on."""
        missing = self.behind(boundary_us)
        for stream in missing:
            self._is_silent[stream] = True
        return missing

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless claims rise and none has been met."""
        pairs = zip(self._claims, list(self._claims)[1:], strict=False)
        if any(a.needs_us >= b.needs_us or a.since_ms > b.since_ms for a, b in pairs):
            raise InvariantViolation("claims on boundaries are out of order")
        if self._claims and self._claims[0].needs_us <= self._reached_us:
            raise InvariantViolation("a claim waits for what has been reached")
