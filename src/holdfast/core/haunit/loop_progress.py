"""How far event time has come inside a loop: marks that go round. [CheckMate §VI, "cyclic"]

Theory of operation. In a loop nobody can promise anything: each node would wait for the promise of
those before it, and so for its own. So marks go round, each a *loop mark*. The nodes that read what
comes back are the *entrances*; the others pass marks on. Laps are numbered. Lap n+1 begins at an
entrance when the marks of lap n have come back on all of its feedback streams.

A mark says two times, both the least of what its bearers say:

- `open_us`: what an entrance's input from outside had passed when this lap began;
- `clean_us`: the same of the lap before, or the time of a tuple that has come back during that lap,
  if that is older.

When lap n+1 is back, no tuple older than its `clean_us`, nor than any that came back during it, is
anywhere in the loop: one lap shows that none is left, and one tells everybody. So much is promised
on the feedback streams; the rest of the loop follows by ordinary boundaries, the end of all input
too. Shown by brute force: one lap less is not safe with several instances.

That holds where each entrance hears of every other within one lap; planning/loops.py sees to it.

A lap begins only if it may lead to more than has been promised. So an idle loop is silent.

Marks count like tuples when nodes go back: whoever has taken one needs a sender that has put it
(recovery/checkpoint_graph.py). A restart point says which laps have been taken and put, and all
that was known of them at its cut. Why a replacement may go on with that: 1. Nobody goes on with a
mark that its sender has not put, or with a boundary from outside that was not promised; what was
put and not taken comes again, in its place among the tuples. 2. So the loop goes on from a state in
which it could have been without a failure, and what was shown for those holds. 3. What comes again
counts once, marks by their laps and tuples by their ids; a tuple that counted twice would only make
promises later.

It must not know less. 1. An entrance is replaced amid the last lap, and what it had taken of that
says nothing to it. 2. It needs two laps more. 3. The others have promised the end, gain nothing by
another lap, and begin none. Points of earlier versions say less: whoever begins there holds what it
had taken for marks that say nothing. So all entrances that do begin two laps whatever they gain.

Of two marks without a tuple between them only the later is kept (queues/stream_notes.py), so that a
lap may be missing: it said nothing.

Invariants: what is promised never moves back; no stream brings a lap twice.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.notes import LoopMark
from holdfast.core.recovery.loop_state import EntranceState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.core.model.ids import StreamId
    from holdfast.core.recovery.restart_point import RestartPoint

_LAPS_UNKNOWN: Final = 2
"""One lap shows what is left, and one tells everybody."""


class Laps:
    """The marks that a node of a loop has taken and put. Volatile: all fields."""

    def __init__(
        self,
        inputs: Sequence[StreamId],
        outputs: Sequence[StreamId],
        laps: Mapping[str, int],
        waiting: Mapping[str, Sequence[LoopMark]],
    ) -> None:
        """Go on where a restart point stands.

        Args:
            inputs: The streams on which marks come.
            outputs: Those on which they go on.
            laps: Of the point: per stream the last lap that was taken, or put.
            waiting: Of the point: per stream the marks that were taken, and not all came of a lap.
        """
        self._outputs = tuple(outputs)
        self.put = max((laps.get(stream, 0) for stream in outputs), default=0)
        self._taken = {stream: laps.get(stream, 0) for stream in inputs}
        self._waiting = {stream: deque(waiting.get(stream, ())) for stream in inputs}

    def take(self, stream: StreamId, mark: LoopMark) -> None:
        """A mark has come; one that came before, or before the restart point, says nothing new."""
        if mark.lap > self._taken[stream]:
            self._taken[stream] = mark.lap
            self._waiting[stream].append(mark)

    def has_all(self, lap: int) -> bool:
        """Whether a lap has come on all streams."""
        return all(taken >= lap for taken in self._taken.values())

    def least(self, lap: int) -> LoopMark:
        """The least of what the marks of a lap say; those that are missing say nothing."""
        open_us = clean_us = None
        for waiting in self._waiting.values():
            while waiting and waiting[0].lap < lap:
                waiting.popleft()
            said = waiting.popleft() if waiting and waiting[0].lap == lap else _silent(lap)
            open_us = said.open_us if open_us is None else min(open_us, said.open_us)
            clean_us = said.clean_us if clean_us is None else min(clean_us, said.clean_us)
        if open_us is None or clean_us is None:
            raise InvariantViolation("a node of a loop on which no marks come")
        return LoopMark(lap, open_us, clean_us)

    @property
    def point(self) -> dict[str, int]:
        """What a restart point says of it."""
        put: dict[str, int] = dict.fromkeys(self._outputs, self.put)
        return put | {str(stream): lap for stream, lap in self._taken.items()}

    @property
    def waiting(self) -> dict[str, tuple[LoopMark, ...]]:
        """The marks that a restart point has to say, per stream that has some."""
        return {str(stream): tuple(marks) for stream, marks in self._waiting.items() if marks}

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when laps are out of order."""
        for stream, waiting in self._waiting.items():
            laps = [mark.lap for mark in waiting]
            if laps != sorted(set(laps)) or (laps and laps[-1] > self._taken[stream]):
                raise InvariantViolation(f"{stream}: laps {laps} wait, {self._taken[stream]} taken")


def _silent(lap: int) -> LoopMark:
    return LoopMark(lap, BEGINNING_US, BEGINNING_US)


class Entrance:
    """What an entrance promises on its feedback streams. Volatile: all fields."""

    def __init__(self, known: EntranceState) -> None:
        """Go on with what a restart point says."""
        self.promised_us = known.promised_us
        self.back = known.back
        self._open_us, self._oldest_us = known.open_us, known.oldest_us
        self._laps_to = known.laps_to

    @property
    def known(self) -> EntranceState:
        """What a restart point says of it."""
        return EntranceState(
            self.promised_us, self._open_us, self._oldest_us, self.back, self._laps_to
        )

    def came_back(self, oldest_us: int) -> None:
        """Tuples have come back, the oldest of this time."""
        self._oldest_us = min(self._oldest_us, oldest_us)

    def may_gain(self, outside_us: int, put: int) -> bool:
        """Whether another lap could lead to more than is promised, here or at other entrances.

        Args:
            outside_us: What the input from outside has passed.
            put: The last lap that has begun here.
        """
        is_wanted = put < self._laps_to and outside_us == self.promised_us
        return outside_us > self.promised_us or is_wanted

    def lap_is_back(self, said: LoopMark) -> None:
        """The marks of the present lap have come back, and say at least this."""
        self.back = said
        self.promised_us = max(self.promised_us, min(said.clean_us, self._oldest_us))

    def next_mark(self, said: LoopMark, outside_us: int) -> LoopMark:
        """The mark of the next lap, after `lap_is_back` of the present one.

        Args:
            said: Of that.
            outside_us: What the input from outside has passed.
        """
        clean_us = min(said.open_us, self._open_us, self._oldest_us)
        self._open_us, self._oldest_us = outside_us, END_US
        return LoopMark(said.lap + 1, outside_us, clean_us)


def known_at(point: RestartPoint) -> EntranceState:
    """What an entrance knows where it begins."""
    if point.loop is not None and point.loop.entrance is not None:
        return point.loop.entrance
    put = max(point.laps.values(), default=0)  # of an earlier version, if there is any
    return EntranceState(point.boundary_us, laps_to=put + _LAPS_UNKNOWN if put else 0)
