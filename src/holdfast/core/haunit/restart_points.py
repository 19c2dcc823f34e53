"""The restart points of one incarnation on their way: noted, safe, asked for, stored, retained.

A point is noted between two passes. It is safe once nothing that was put out before it is needed
from this node any more; then it is sent to the coordinator. Once that has stored it, and never
before, it may move level-1 positions. Points are handled in the order in which they were noted.

Of the stored ones the newest `kept` are retained, so that a replacement may start from any of them:
one where the state is replayed, two or more where it is loaded and could turn out to be damaged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.dropped import Ranges, joined
from holdfast.core.recovery.restart_point import RestartPoint

_NOTED_MAX = 64


class RestartPoints:
    """Volatile: all fields; what is stored is the coordinator's."""

    def __init__(self, sequence: int, kept: int, retained: tuple[RestartPoint, ...]) -> None:
        """Go on after the point `sequence`.

        Args:
            sequence: The newest number that a point of the node has.
            kept: How many points a replacement may start from.
            retained: Those it may start from now, newest first; never empty.
        """
        self._sequence = sequence
        self._kept = kept
        self.retained = retained
        self._noted: deque[RestartPoint] = deque()  # not yet safe
        self._asked: deque[RestartPoint] = deque()  # safe, sent to the coordinator
        self._asked_ms = 0

    def next_sequence(self) -> int:
        """A number for a point; numbers of points that come to nothing are not used again."""
        self._sequence += 1
        return self._sequence

    def note(self, point: RestartPoint) -> None:
        """Note a cut of the node, later than all noted before.

        A mirrored one is safe at once, and takes the place of those that wait to be replayed from.
        """
        if point.is_mirrored:
            self._noted = deque(noted for noted in self._noted if noted.is_mirrored)
        if len(self._noted) >= _NOTED_MAX:
            del self._noted[_NOTED_MAX // 2]  # Keep the oldest, the first to become safe.
        self._noted.append(point)

    @property
    def newest(self) -> RestartPoint:
        """The one that was noted last, as far as it has not come to nothing. O(noted points)."""
        return [self.retained[0], *self._asked, *self._noted][-1]

    def ask(self, is_safe: Callable[[RestartPoint], bool], now_ms: int) -> RestartPoint | None:
        """The newest point that has become safe, to be stored; None: no other has."""
        safe: RestartPoint | None = None
        while self._noted and is_safe(self._noted[0]):
            safe = self._noted.popleft()
        if safe is not None:
            safe = replace(safe, older=self.retained[: self._kept - 1])
            self._asked.append(safe)
            self._asked_ms = now_ms
        return safe

    def restate(
        self, dropped: Mapping[str, Ranges], horizon: dict[str, int], now_ms: int
    ) -> RestartPoint:
        """The newest safe point once more; it is to be stored.

        Those that are not safe yet come to nothing.

        Args:
            dropped: What is dropped, beside what the point says.
            horizon: Instead of the point's.
            now_ms: The time.
        """
        self._noted.clear()
        newest = self._asked[-1] if self._asked else self.retained[0]
        said = joined(newest.dropped, dropped)
        point = replace(newest, sequence=self.next_sequence(), dropped=said, horizon=horizon)
        self._asked.append(point)
        self._asked_ms = now_ms
        return point

    def ask_again(self, now_ms: int, after_ms: int) -> RestartPoint | None:
        """The newest point asked for, if the answer has been missing for longer than that."""
        if not self._asked or now_ms - self._asked_ms <= after_ms:
            return None
        self._asked_ms = now_ms
        return self._asked[-1]

    def stored(self, sequence: int) -> bool:
        """The points up to this one are durable; whether any of them was not known to be."""
        newest: RestartPoint | None = None
        while self._asked and self._asked[0].sequence <= sequence:
            newest = self._asked.popleft()
        if newest is None:
            return False
        self.retained = newest.candidates()
        return True

    def on_their_way(self) -> tuple[RestartPoint, ...]:
        """The points that may become durable yet, with those behind them."""
        asked = (candidate for point in self._asked for candidate in point.candidates())
        return (*self._noted, *asked)

    def check_invariants(self, told: dict[str, int]) -> None:
        """Raise `InvariantViolation` when a low watermark moves back.

        Args:
            told: Per input stream the level-1 position that may be told upstream.
        """
        before = told
        for point in (*self._asked, *self._noted):
            for stream, needed_from in point.needed_from.items():
                if needed_from < before.get(stream, 0):
                    raise InvariantViolation(f"{stream}: a low watermark moved back")
            before = point.needed_from
