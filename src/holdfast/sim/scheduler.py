"""Virtual time: one heap of events, one clock, one random stream per concern.

Everything that the machines do not determine is drawn here. Each concern draws from a stream of
its own, so that leaving out one fault or one tuple does not shift the draws of all others: a
shrunk run keeps its failure. Only `Random.random()` is used, which no Python version changes.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable

from holdfast.sim.draw import Draw

Trace = Callable[[int, str], None]
"""Is told of an event: its virtual time in microseconds, or the number of a step, and a text."""


class Scheduler:
    """Runs events in order of (virtual microseconds, sequence number)."""

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        """Begin at time 0; `trace` is called with the time and text of every event noted."""
        self._seed = seed
        self._trace = trace
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._draws: dict[str, Draw] = {}
        self._digest = hashlib.blake2b(digest_size=16)
        self.now_us = 0
        self.events = 0

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Run `action` so many virtual microseconds from now."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, action))

    def run(self, is_over: Callable[[], bool], limit_us: Callable[[], int]) -> bool:
        """Run until `is_over`; False when virtual time passed `limit_us` before, or all is idle."""
        while self._heap and self._heap[0][0] <= limit_us():  # What comes later stays for later.
            at_us, _, action = heapq.heappop(self._heap)
            self.now_us = at_us
            self.events += 1
            action()
            if is_over():
                return True
        return False

    def uniform(self, concern: str, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return self._draw(concern).number(low, high)

    def percent(self, concern: str, probability: int) -> bool:
        """True `probability` times in a hundred."""
        return self._draw(concern).percent(probability)

    def _draw(self, concern: str) -> Draw:
        draw = self._draws.get(concern)
        if draw is None:
            draw = self._draws[concern] = Draw(f"{self._seed}/{concern}")
        return draw

    def note(self, text: str) -> None:
        """Make an event part of the run's digest, and of its trace."""
        self._digest.update(b"%d %s\n" % (self.now_us, text.encode()))
        self.tell(text)

    def tell(self, text: str) -> None:
        """Make an event part of the trace alone."""
        if self._trace is not None:
            self._trace(self.now_us, text)

    def digest(self) -> str:
        """A hash over all events noted: equal for equal runs."""
        return self._digest.hexdigest()


_EPOCH_US = 1_700_000_000_000_000
"""The time of day when clocks read 0."""


class Clock:
    """The clock of one machine: begins anywhere, drifts, may jump ahead.

    The time of day is that of the same clock, and may be set back beside it, as Unix has it.
    """

    def __init__(self, scheduler: Scheduler, *, offset_ms: int, drift_ppm: int) -> None:
        """Read `offset_ms` at virtual time 0; gain `drift_ppm` microseconds per second."""
        self._scheduler = scheduler
        self._offset_ms = offset_ms
        self._rate = 1_000_000 + drift_ppm
        self._set_back_ms = 0

    def now_ms(self) -> int:
        """What the machine reads, ms."""
        return self._offset_ms + self._scheduler.now_us * self._rate // 1_000_000_000

    def day_us(self) -> int:
        """The time of day, microseconds since the epoch."""
        return _EPOCH_US + 1_000 * (self.now_ms() - self._set_back_ms)

    def set_back(self, by_ms: int) -> None:
        """Set back the time of day; whoever measures how long something takes sees nothing."""
        self._set_back_ms += by_ms

    def jump(self, ahead_ms: int) -> None:
        """As after a suspension of the machine that its clock counts."""
        self._offset_ms += ahead_ms

    def wait_until(self, at_ms: int, action: Callable[[], None]) -> None:
        """Run `action` once this clock reads `at_ms`."""
        missing_ms = at_ms - self.now_ms()
        if missing_ms <= 0:
            self._scheduler.after(0, action)
            return
        delay_us = max(1, missing_ms * 1_000_000_000 // self._rate)
        self._scheduler.after(delay_us, lambda: self._fire(at_ms, action))

    def _fire(self, at_ms: int, action: Callable[[], None]) -> None:
        if self.now_ms() >= at_ms:
            action()
        else:
            self.wait_until(at_ms, action)
