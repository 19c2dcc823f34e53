"""What a unit may drop of its input, and how far it may act, by what is durable of that. [DPC §6]

Theory of operation. A tuple that was processed as stable must never be dropped: its effects may be
out, in sinks and in the state of others, and whoever repeats it must repeat those. The incarnation
that processed it knows; one that takes over does not. So restart points name a *horizon* per
stream: an id that lies ahead. Nobody acts on stable tuples behind the horizon of a durable point,
and who takes over drops nothing before the one that it was told. There it keeps to the bound by
reading no more.

Horizons lie far ahead, so that they are written seldom. The newest point is stored once more with
another horizon when half of the way has been gone; and with what is dropped, before a correction
goes without it (model/dropped.py). Until that is durable the unit does not go on.

Invariant: what is dropped lies at or behind the horizon that this incarnation began with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.dropped import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.model.dropped import Ranges
    from holdfast.core.recovery.restart_point import RestartPoint


class DropLedger:
    """Of one incarnation that merges streams. Volatile: all fields; points are durable."""

    def __init__(self, begins: Beginning, streams: tuple[str, ...], ahead: int) -> None:
        """Nothing is dropped.

        Args:
            begins: Where the incarnation begins.
            streams: The names of its input streams.
            ahead: How far a horizon lies ahead.
        """
        self._ahead = ahead
        told = {name: begins.point.horizon.get(name, ahead) for name in streams}
        self._acts_before = dict(told)
        is_first = begins.incarnation <= 1  # Nobody has put anything out.
        self.droppable_from = dict.fromkeys(streams, 0) if is_first else told
        """Per stream, earlier ids may have had effects."""
        self._dropping: dict[str, Ranges] = {}
        self._is_durable = False  # what is to be dropped
        self.dropped_tuples = sum(map(count, begins.point.dropped.values()))
        """So many, as far as is known here."""

    # -- what is to be written ------------------------------------------------------------------

    def horizon(self, taken_before: Mapping[str, int]) -> dict[str, int]:
        """What a point that is noted now says; args: per stream what has been taken."""
        return {
            name: max(before, taken_before[name] + self._ahead)
            for name, before in self._acts_before.items()
        }

    def want(self, dropping: Mapping[str, Ranges]) -> None:
        """The correction is to go without this, if it is not known yet."""
        for name, ranges in dropping.items():
            if ranges and ranges[0][0] < self.droppable_from[name]:
                raise InvariantViolation(f"{name}: {ranges} is dropped, and may have had effects")
        self._dropping = self._dropping or dict(dropping)

    @property
    def unwritten(self) -> Mapping[str, Ranges]:
        """What is to be durable before the node goes back."""
        return {} if self._is_durable else self._dropping

    def has_to_write(self, taken_before: Mapping[str, int]) -> bool:
        """Whether a point should say more than the durable one."""
        half = self._ahead // 2
        is_near = (taken_before[s] + half > before for s, before in self._acts_before.items())
        return bool(self.unwritten) or any(is_near)

    def can_act(self, taken_before: Mapping[str, int]) -> bool:
        """Whether all that has been taken may be processed as stable."""
        is_within = (taken_before[s] <= before for s, before in self._acts_before.items())
        return not self.unwritten and all(is_within)

    def stored(self, point: RestartPoint) -> Iterator[tuple[str, int, int]]:
        """A point is durable; gives the streams and ranges that are dropped with it."""
        for name, before in point.horizon.items():
            self._acts_before[name] = max(self._acts_before.get(name, 0), before)
        for name, ranges in self.unwritten.items():
            if set(ranges) - set(point.dropped.get(name, ())):
                return
        for name, ranges in self.unwritten.items():
            self.dropped_tuples += count(ranges)
            for first, end in ranges:
                yield name, first, end
        self._is_durable = bool(self._dropping)

    def went_back(self) -> None:
        """The correction has begun, without what was dropped."""
        self._dropping, self._is_durable = {}, False
