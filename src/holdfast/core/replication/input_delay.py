"""How long input has waited for streams that are missing, and how far to go without them. [DPC]

Theory of operation. A tuple of time t waits until every stream has promised a time beyond t. A
boundary waits for nothing by itself: what waits is a result that it would put out, as a window's
that it closes. Both are *claims* here: a time that the node should reach, and when that was first
asked for. One that has waited for the bound has *expired*: the node goes at least as far, without
whoever is behind.

A claim of a tuple that is behind a later and larger one never counts, so they are kept as a rising
sequence, oldest first; so are the boundaries of each stream. When one of those expires, the
operators are asked which time it would close (`closes`), of what is made of this stream's own
tuples. Is there none, nothing has waited, and nothing will: of this stream nothing older follows.
Only what came too late for tentative passes is in no operator. So when the node goes back all that
is promised counts anew.

How far it goes beyond that while streams are missing is the user's choice. `PROCESS`: as far as
those streams have promised that are not silent, so that new tuples wait for nobody who is not
there. `DELAY`: no further, so that each waits for the bound and there are fewer to correct.
`SUSPEND`: nowhere, so that everything waits and nothing is to correct. [DPC "Up_failure"]

A *silent stream* is one that others went on without, until it promises more. Then it is waited
for again, up to the bound: else streams that are a little ahead of it would go on without it for
ever, and the correction would never begin.

Only missing input is waited for, as far as `longest_ms` goes. A node that corrects processes
nothing new, as it has one state. New input waits for that, too; this wait is counted apart.

Departures from [DPC]: the paper's clock runs from the first tuple of a bucket. Here a result that
waits for a boundary counts, too. 1. All tuples of stream a have been released; c is silent. 2. A
boundary of a closes a window. 3. Its result would wait for c without any bound.

But no boundary counts that closes nothing of its stream's. 1. Source b promises 1,000, as it has
nothing until then. 2. Source a is at 900, alive, and as slow as time. 3. After the bound a would be
missing, and its tuples tentative up to 1,000, though nothing waits for it. How fast a moves does
not count: b's tuples would wait for an a that creeps without any bound.
"""

from __future__ import annotations

import enum
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Closes: TypeAlias = Callable[[Sequence[int], int], int]


class DuringFailure(enum.Enum):
    """What is done with new tuples while inputs are missing."""

    PROCESS = "process"
    DELAY = "delay"
    SUSPEND = "suspend"


class _Claim(NamedTuple):
    """Something waits for this boundary since then; so long had corrections taken by then."""

    needs_us: int
    since_ms: int
    corrected_ms: int


class _Claims:
    """A rising sequence of them, oldest first: a later one that is no larger never counts."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._claims: deque[_Claim] = deque()  # both fields ascending
        self.newest_us = BEGINNING_US
        """The largest claim ever."""

    def claim(self, needs_us: int, now_ms: int, corrected_ms: int = 0) -> None:
        """Something waits from now on, where corrections have taken so long."""
        self.newest_us = max(self.newest_us, needs_us)
        if self._claims and needs_us <= self._claims[-1].needs_us:
            return
        if self._claims and self._claims[-1].since_ms == now_ms:
            self._claims.pop()
        self._claims.append(_Claim(needs_us, now_ms, corrected_ms))

    def reached(self, boundary_us: int) -> _Claim | None:
        """Nothing waits for this any more; the claim that has waited longest, None: nothing did."""
        first = None
        while self._claims and self._claims[0].needs_us <= boundary_us:
            claim = self._claims.popleft()
            first = claim if first is None else first
        return first

    @property
    def since_ms(self) -> int | None:
        """Since when the first one waits; None: nothing does."""
        return self._claims[0].since_ms if self._claims else None

    def before(self, until_ms: int) -> int:
        """The newest that was claimed until then; `BEGINNING_US`: none was."""
        found_us = BEGINNING_US
        for claim in self._claims:
            if claim.since_ms > until_ms:
                break
            found_us = claim.needs_us
        return found_us

    def first_of(self, boundary_us: int) -> _Claim | None:
        """The first that needs as much."""
        found = (claim for claim in self._claims if claim.needs_us >= boundary_us)
        return next(found, None)

    def check_invariants(self, reached_us: int) -> None:
        """Raise `InvariantViolation` unless they rise, beyond what has been reached."""
        pairs = zip(self._claims, list(self._claims)[1:], strict=False)
        if any(a.needs_us >= b.needs_us or a.since_ms > b.since_ms for a, b in pairs):
            raise InvariantViolation("claims on boundaries are out of order")
        if self._claims and self._claims[0].needs_us <= reached_us:
            raise InvariantViolation("a claim waits for what has been reached")


def _as_far(streams: Sequence[int], boundary_us: int) -> int:
    """Of operators of which nothing is known: each boundary closes something."""
    del streams
    return boundary_us


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
        self.closes: Closes = _as_far
        """Of these streams' own tuples, the newest time, at most a boundary, that it would close;
        what has been acted on, or less: none."""
        self._boundaries_us = [BEGINNING_US] * streams  # tentative ones too
        self._is_silent = [False] * streams
        self._tuples = _Claims()
        self._promises = [_Claims() for _ in range(streams)]
        self._waiting: dict[int, _Claims] = {}  # those of streams whose boundaries wait
        self._closing: list[_Claim] = []  # results that have waited for the bound
        self._reached_us = BEGINNING_US
        self._corrected_ms = 0  # so long have corrections taken that are over
        self._correcting_from_ms: int | None = None  # since when one is under way
        self.longest_ms = 0
        """The longest that a tuple, or a result, has waited so far, corrections apart."""
        self.longest_corrected_ms = 0
        """The longest that a tuple has waited for one correction."""

    # -- what comes -------------------------------------------------------------------------

    def arrived(self, newest_us: int, now_ms: int) -> None:
        """Tuples have come, the newest of this time."""
        if newest_us >= self._reached_us:
            self._tuples.claim(newest_us + 1, now_ms, self._corrected_by(now_ms))

    def promised(self, stream: int, boundary_us: int, now_ms: int) -> None:
        """A stream has promised this, as stable or as tentative.

        The end of a stream waits for nobody: it is not a time that other streams will reach.
        """
        if boundary_us <= self._boundaries_us[stream]:
            return
        self._boundaries_us[stream] = boundary_us
        self._is_silent[stream] = False
        self._promise(stream, boundary_us, now_ms)

    def undone(self, stream: int, boundary_us: int) -> None:
        """What a stream had promised as tentative is void; this holds."""
        self._boundaries_us[stream] = boundary_us

    def went_back(self, now_ms: int) -> None:
        """To the cut: what came too late for the passes since will be in the state.

        So boundaries that closed nothing may close something now. The correction begins.
        """
        self._correcting_from_ms = now_ms
        for stream, boundary_us in enumerate(self._boundaries_us):
            self._promise(stream, boundary_us, now_ms)

    def corrected(self, now_ms: int) -> None:
        """The correction is over, if there was one: new input has waited for it."""
        from_ms, since_ms = self._correcting_from_ms, self._tuples.since_ms
        if from_ms is None:
            return
        self._corrected_ms, self._correcting_from_ms = self._corrected_by(now_ms), None
        if since_ms is not None:
            waited_ms = now_ms - max(since_ms, from_ms)
            self.longest_corrected_ms = max(self.longest_corrected_ms, waited_ms)

    def _corrected_by(self, now_ms: int) -> int:
        """So long have corrections taken until now."""
        from_ms = self._correcting_from_ms
        return self._corrected_ms + (0 if from_ms is None else now_ms - from_ms)

    def _promise(self, stream: int, boundary_us: int, now_ms: int) -> None:
        if self._reached_us < boundary_us != END_US:
            self._promises[stream].claim(boundary_us, now_ms, self._corrected_by(now_ms))
            self._waiting[stream] = self._promises[stream]

    # -- what is done -----------------------------------------------------------------------

    def reached(self, boundary_us: int, now_ms: int) -> None:
        """The node has acted on this, as stable or as tentative; or is about to, as all have come.

        Cost: that of what waits, which is mostly nothing where no stream is ahead of another.
        """
        if boundary_us <= self._reached_us:
            return  # After going back: it had been reached before.
        self._reached_us = boundary_us
        if not self._is_waiting and not self._closing:
            return
        ended = [claim for claim in self._closing if claim.needs_us <= boundary_us]
        self._closing = [claim for claim in self._closing if claim.needs_us > boundary_us]
        first = self._tuples.reached(boundary_us)
        ended += [] if first is None else [first]
        counted_ms = now_ms - self._corrected_by(now_ms)
        waits_ms = (counted_ms - claim.since_ms + claim.corrected_ms for claim in ended)
        self.longest_ms = max(self.longest_ms, *waits_ms, 0)
        for stream, claims in list(self._waiting.items()):
            claims.reached(boundary_us)
            self._forget_if_idle(stream)

    @property
    def _is_waiting(self) -> bool:
        """Whether there is any claim."""
        return bool(self._waiting) or self._tuples.since_ms is not None

    def _forget_if_idle(self, stream: int) -> None:
        if self._waiting[stream].since_ms is None:
            del self._waiting[stream]

    def due_ms(self) -> int | None:
        """When something will, or may, have waited for the bound; None: nothing waits."""
        if self.during is DuringFailure.SUSPEND:
            return None
        first = [claims.since_ms for claims in (self._tuples, *self._waiting.values())]
        due_ms = min((since_ms for since_ms in first if since_ms is not None), default=None)
        return None if due_ms is None else due_ms + self.bound_ms

    def expired_us(self, now_ms: int) -> int:
        """The boundary that has been waited for as long as the bound; `BEGINNING_US`: none.

        Boundaries that have waited as long, and close nothing, are forgotten; not before the tuples
        that came before them are taken, and with the operators.
        """
        until_ms = now_ms - self.bound_ms
        expired_us = self._tuples.before(until_ms)
        are_taken = expired_us <= self._reached_us  # tuples that came before what has expired
        self._closing.clear()
        for stream, claims in list(self._waiting.items()):
            promised_us = claims.before(until_ms)
            if promised_us <= max(expired_us, self._reached_us):
                continue
            closes_us = self.closes((stream,), promised_us)
            first = claims.first_of(closes_us)
            if closes_us > self._reached_us and first is not None:
                self._closing.append(first._replace(needs_us=closes_us))
                expired_us = max(expired_us, closes_us)
            elif are_taken:
                claims.reached(promised_us)
                self._forget_if_idle(stream)
        return expired_us

    def tentative_us(self, now_ms: int) -> int:
        """How far to go without the streams that are missing; never behind what was reached."""
        if self.during is DuringFailure.SUSPEND or self._is_in_step:
            return self._reached_us
        waited_us = self.expired_us(now_ms)
        expired_us = max(self._reached_us, waited_us)
        if self.during is DuringFailure.DELAY:
            return expired_us
        is_over = waited_us != BEGINNING_US  # for who is behind what has expired
        present = [
            stream
            for stream, boundary_us in enumerate(self._boundaries_us)
            if not (self._is_silent[stream] or (is_over and boundary_us < expired_us))
        ]
        bound_us = min((self._boundaries_us[s] for s in present), default=BEGINNING_US)
        if bound_us == END_US:
            bound_us = max(claims.newest_us for claims in (self._tuples, *self._promises))
        if bound_us <= expired_us:
            return expired_us
        newest_us = self._tuples.newest_us
        if newest_us < bound_us:
            newest_us = max(newest_us, self.closes(present, bound_us))
        return max(expired_us, min(bound_us, newest_us))

    @property
    def _is_in_step(self) -> bool:
        """Whether nothing waits, and some stream that is not silent has promised nothing more."""
        if self._is_waiting or True in self._is_silent:
            return False
        return min(self._boundaries_us) <= self._reached_us

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
        for claims in (self._tuples, *self._promises):
            claims.check_invariants(self._reached_us)
