"""When checkpoints go together, results leave and a failure is over, with many instances.

A simulation of cuts alone: instances cut by the clocks and rounds of nodes, each checkpoint takes
as long to be durable as one of the real runs did, and results leave when the line has passed the
cut behind them. The rules are those of core/: with uncoordinated cuts a checkpoint of an instance
is on the line once each instance before it has a durable one that is later; a round is on it once
all its checkpoints are durable; after a recovery periods are short (recovery/first_periods.py).
Without a circle nothing is forced, so that CIC goes as UNC.

The costs come from real runs (calibration.py); nothing here is measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.core.recovery.first_periods import FirstPeriods
from holdfast_bench.running import median

UNIONS: Final = {"q1": 1, "q3": 2, "q8": 2, "q12": 1}
"""Units that take input as it comes, of each query; all but q1 have one more behind them."""
ALONE: Final = "q1"
ROUND_CHECK_MS: Final = 20.0
"""The coordinator looks so often whether a round is due."""
_STEADY_S: Final = (3.0, 15.0)
_LOOKS: Final = 400


@dataclass(frozen=True, slots=True)
class Times:
    """What single steps took, in ms.

    Attributes:
        durable_ms: Of checkpoints, from their cuts on: some of them.
        hop_ms: From one instance's pass to that of one behind it.
        detected_ms: Of a failure.
        restarted_ms: From there until a replacement had its state, and worked it off.
    """

    durable_ms: tuple[float, ...]
    hop_ms: float
    detected_ms: float
    restarted_ms: float


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated.

    Attributes:
        query: One of `UNIONS`.
        workers: Instances of each unit.
        protocol: `COOR`, `COOR unaligned`, `UNC` or `CIC`.
        interval_ms: Of checkpoints.
        jitter_ms: Of those by one's own clock.
        seconds: How long.
        fails_at_s: When an instance is killed.
    """

    query: str
    workers: int
    protocol: str
    interval_ms: int
    jitter_ms: int
    seconds: float
    fails_at_s: float

    @property
    def has_rounds(self) -> bool:
        """Whether all cut together."""
        return self.protocol.startswith("COOR")

    @property
    def senders(self) -> int:
        """Instances that others read from."""
        return 0 if self.query == ALONE else UNIONS[self.query] * self.workers


@dataclass(frozen=True, slots=True)
class Foretold:
    """What comes of it, in ms.

    Attributes:
        delay_ms: Of a result, the median.
        complete_ms: From the beginning of a round, or from when a checkpoint is durable, until the
            line has passed it: the median.
        recovered_ms: From the failure to the first new result.
    """

    delay_ms: float
    complete_ms: float
    recovered_ms: float


@dataclass(frozen=True, slots=True)
class _Cut:
    """A checkpoint: of which moment it is, and when it is durable."""

    at_ms: float
    durable_ms: float


def foretell(setting: Setting, times: Times, seeds: Iterable[int] = range(5)) -> Foretold:
    """Medians over some seeds."""
    found = [_Run(setting, times, seed).foretell() for seed in seeds]
    return Foretold(
        median(each.delay_ms for each in found),
        median(each.complete_ms for each in found),
        median(each.recovered_ms for each in found),
    )


class _Run:
    """One seed."""

    def __init__(self, setting: Setting, times: Times, seed: int) -> None:
        self._setting, self._times = setting, times
        self._rng = random.Random(f"{setting} {seed}")
        self._fails_ms = setting.fails_at_s * 1000

    def foretell(self) -> Foretold:
        return self._rounds() if self._setting.has_rounds else self._own_clocks()

    def _durable(self) -> float:
        return self._rng.choice(self._times.durable_ms)

    # -- rounds -------------------------------------------------------------------------------

    def _rounds(self) -> Foretold:
        setting = self._setting
        interval_ms, began_ms = setting.interval_ms, 0.0
        rounds: list[tuple[float, float]] = []
        while began_ms < setting.seconds * 1000:
            rounds.append((began_ms, began_ms + self._round_ms()))
            began_ms = max(began_ms + interval_ms, rounds[-1][1])
        leave = [self._leaves(at_ms, rounds) - at_ms for at_ms in self._looks()]
        took = median(end - begin for begin, end in rounds)
        return Foretold(median(leave), took, self._recovered_by_round())

    def _round_ms(self) -> float:
        """All write; with alignment those behind begin when the markers have come."""
        setting, hop_ms = self._setting, self._times.hop_ms
        waits_ms = hop_ms if setting.senders and setting.protocol == "COOR" else 0.0
        first = [self._durable() for _ in range(setting.senders)]
        behind = [waits_ms + self._durable() for _ in range(setting.workers)]
        return max((*first, *behind))

    def _leaves(self, at_ms: float, rounds: list[tuple[float, float]]) -> float:
        return next((end for begin, end in rounds if begin >= at_ms), rounds[-1][1])

    def _recovered_by_round(self) -> float:
        """A round begins when the plan is written; the replacement cuts when it has its state."""
        times, setting = self._times, self._setting
        begins_ms = times.detected_ms + ROUND_CHECK_MS / 2
        others = [begins_ms + self._durable() for _ in range(setting.senders + setting.workers - 1)]
        own_ms = times.detected_ms + times.restarted_ms + times.hop_ms + self._durable()
        return max((own_ms, *others))

    # -- clocks of one's own --------------------------------------------------------------------

    def _own_clocks(self) -> Foretold:
        senders = [self._cuts() for _ in range(self._setting.senders)]
        own = self._cuts()
        passed = [(cut, self._passed(cut, senders)) for cut in own]
        leave = [
            next((end for cut, end in passed if cut.at_ms >= at_ms), passed[-1][1]) - at_ms
            for at_ms in self._looks()
        ]
        took = median(end - cut.durable_ms for cut, end in passed)
        return Foretold(median(leave), took, self._recovered_by_clocks(passed))

    def _cuts(self) -> list[_Cut]:
        """Of one instance, until well behind the end."""
        setting = self._setting
        at_ms, cuts = 0.0, []
        while at_ms < setting.seconds * 1000 + 3 * setting.interval_ms:
            at_ms += setting.interval_ms + self._rng.uniform(0, setting.jitter_ms)
            cuts.append(_Cut(at_ms, at_ms + self._durable()))
        return cuts

    def _passed(self, cut: _Cut, senders: list[list[_Cut]]) -> float:
        """When the line has passed it: all before it have a durable one of later."""
        sent_ms = cut.at_ms - self._times.hop_ms
        later = [
            next((c.durable_ms for c in cuts if c.at_ms >= sent_ms), cuts[-1].durable_ms)
            for cuts in senders
        ]
        return max((cut.durable_ms, *later))

    def _recovered_by_clocks(self, passed: list[tuple[_Cut, float]]) -> float:
        """Survivors cut when they go on, and then all cut often.

        The line comes to the newest checkpoint of the lost instance then. If it was there already,
        the first new results are those before the replacement's first checkpoint.
        """
        times, setting, fails_ms = self._times, self._setting, self._fails_ms
        works_ms = times.detected_ms + times.restarted_ms
        newest = [end for cut, end in passed if cut.durable_ms <= fails_ms]
        if newest and newest[-1] > fails_ms:
            others = [times.detected_ms + self._durable() for _ in range(setting.senders)]
            return max((works_ms, *others))
        own = self._early(works_ms)[1]
        senders = [self._early(times.detected_ms) for _ in range(setting.senders)]
        return self._passed(own, senders)

    def _early(self, from_ms: float) -> list[_Cut]:
        """Checkpoints of one that goes on at a time: at once, and then often."""
        periods = FirstPeriods(self._setting.interval_ms)
        periods.recovered()
        cuts = [_Cut(from_ms, from_ms + self._durable())]
        for _ in range(12):
            at_ms = cuts[-1].at_ms + periods.take(self._setting.interval_ms)
            cuts.append(_Cut(at_ms, at_ms + self._durable()))
        return cuts

    def _looks(self) -> list[float]:
        first, last = (1000 * min(s, self._setting.fails_at_s) for s in _STEADY_S)
        return [first + (last - first) * look / _LOOKS for look in range(_LOOKS)]
