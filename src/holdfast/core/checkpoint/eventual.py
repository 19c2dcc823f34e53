"""Which windows to write next, and how much: the control of eventual checkpoints. [CEC
"Controlling the extent", §III]

Theory of operation. All windows that have their newest footprint in one record are a *generation*.
Generations are ordered by their cuts (the paper's order by tau2); one is over when none of its
windows is left, as each has closed or has a newer footprint. T is the cut of the oldest one that is
not over. Only when the oldest generation is over does T move, so its windows are written first: any
other footprint would bring nothing. A generation costs as much as it has windows left, so that fast
windows, which close by themselves, are mostly gone before their turn comes.

Footprints that are parts of a window bind T no longer once there is a newer part, but the log needs
them until the window closes: a generation counts both. So that the log does not become long, what
has not changed may stay where it is for `rest_bytes`, and is written again then.

Nothing is looked up to know T: records of windows name their generation, and whoever closes or
writes a window tells its former one. Cost: O(1) per footprint, O(windows) memory.

`RecoveryObjective` says how large the extent may become: the time to read it back, and to replay
the tuples since T, must stay within what the user names. It says why, when it cannot.
`Pacer` keeps all that footprints cost a node within its share of the time, and what is written in
the background below a millisecond at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from holdfast.core.errors import InvariantViolation

AT_ONCE_US: Final = 500
"""A piece of background work is to take so long."""
STANDSTILL_US: Final = 1_000
"""No tuple is to wait longer for it."""
_AIM_LEAST_US: Final = 100.0
_STEP: Final = 0.1
_WINDOWS_FEW: Final = 4
"""Of the first piece, of which nobody knows what it costs."""
_NEARLY: Final = 0.8
"""A piece whose record is dear is to take such a part of a standstill at most."""
_GROWTH: Final = 2
"""A piece has at most so many times the windows of the largest one of late."""
_WINDOWS_MAX: Final = 1 << 14
_MEMORY: Final = 0.9
"""What a piece counts beside the next one, where costs are learned."""
_ALIKE: Final = 0.05
"""Pieces whose sizes differ by a smaller part do not tell what a footprint costs."""
_BUDGET_MAX_US: Final = 20_000
_DEBT_MAX_US: Final = 100_000
"""Whoever seems to have worked for longer at a time was stopped, and did not work."""
_FOR_MARKS: Final = 0.5
"""The part of the share that goes to restart points at most; the rest moves T."""
COLD: Final = 1.5
"""How many times its own time work for footprints takes from a node: passes behind it find their
caches cold. Measured with shares of 0.02 to 0.2 and a state larger than the caches."""
MARKS_APART_MAX_MS: Final = 2_000
"""Restart points are at most so far apart: upstream keeps what comes between them."""
_EAGER: Final = 0.5
"""From such a part of what is allowed on, windows are written."""
_RESTING: Final = 0.125
"""The part of what is allowed that may go to reading what has not changed for long."""
REPLAY_FACTOR: Final = 1.5
"""How many times as long a tuple takes in a replay as in a pass, until a node has replayed."""
_SURE: Final = 1.25
"""How many times as long it takes as it has taken: a prediction is rather too long than too short.
The next replay may meet a larger state, or a machine that has more to do."""
_TUPLE_US: Final = 1.0
"""What a tuple costs in a pass, as long as nobody knows."""
_BYTE_US: Final = 0.01
"""What reading a byte of a log costs, as long as nobody knows: 100 MB/s."""
_TUPLE_BYTES: Final = 64
"""What a tuple since T weighs that upstream keeps, as far as the size of an extent is bounded."""


@dataclass(slots=True)
class Generation:
    """The windows whose newest footprint one record holds.

    Attributes:
        number: Counts generations; windows' records hold it.
        cut: Of the record.
        starts: Per input stream from where to replay.
        first_id: Of the record in the log.
        bytes_before: What was written to the log before the record.
        left: How many of them have neither closed nor a newer footprint: they bind T.
        needed: How many of its footprints are needed; more than `left` where they are parts.
        windows: The windows, int64 (n, 2) each, some of which have; the first `done` were taken.
    """

    number: int
    cut: int
    starts: tuple[int, ...]
    first_id: int
    bytes_before: int
    left: int = 0
    needed: int = 0
    windows: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    done: int = 0


class FootprintOrder:
    """The open windows in the order of their newest footprints. Volatile: all fields."""

    def __init__(self) -> None:
        """No window is open."""
        self._generations: deque[Generation] = deque()
        self._needed: deque[Generation] = deque()  # these and older ones, of which T needs none
        self._by_number: dict[int, Generation] = {}
        self._recent: deque[tuple[int, int]] = deque()  # of these, too: bytes before, and number
        self._recent_from = 0

    @property
    def open_windows(self) -> int:
        """How many footprints are needed. Cost: O(generations)."""
        return sum(generation.needed for generation in self._needed)

    @property
    def oldest(self) -> Generation | None:
        """The generation that T is the cut of; None: no window is open."""
        while self._generations and not self._generations[0].left:
            self._generations.popleft()
        return self._generations[0] if self._generations else None

    @property
    def oldest_needed(self) -> Generation | None:
        """The oldest generation with a footprint that is needed; None: no window is open."""
        while self._needed and not self._needed[0].needed:
            del self._by_number[self._needed.popleft().number]
        oldest = self._needed[0] if self._needed else None
        while self._recent and (oldest is None or self._recent[0][1] < oldest.number):
            self._recent_from = self._recent.popleft()[1] + 1
        return oldest

    def taken(
        self, generation: Generation, windows: np.ndarray, binding: np.ndarray | None = None
    ) -> None:
        """A record holds footprints of these windows, int64 (n, 2).

        Args:
            generation: Of the record.
            windows: The windows.
            binding: bool (n,), which of the footprints are the windows' newest; None: all.
        """
        if not len(windows):
            return
        if self._generations and generation.cut < self._generations[-1].cut:
            raise InvariantViolation(f"a footprint at {generation.cut}, behind a later one")
        generation.needed = len(windows)
        generation.windows = windows if binding is None else windows[binding]
        generation.left = len(generation.windows)
        self._generations.append(generation)
        self._needed.append(generation)
        self._by_number[generation.number] = generation
        self._recent.append((generation.bytes_before, generation.number))

    def gone(self, numbers: np.ndarray, let_go: np.ndarray) -> None:
        """Windows have closed or have newer footprints.

        Args:
            numbers: int64 (n,), the generations of their newest ones.
            let_go: int64 (m,), the generations of the footprints that are needed no more.
        """
        for number, count in _counted(numbers):
            generation = self._by_number[number]
            generation.left -= count
            if generation.left < 0:
                raise InvariantViolation(f"generation {number} binds less than nothing")
        for number, count in _counted(let_go):
            generation = self._by_number[number]
            generation.needed -= count
            if generation.needed < generation.left:
                raise InvariantViolation(f"generation {number} has lost more windows than it had")

    def written_since(self, nbytes: int) -> int:
        """The number from which on generations were written behind so many bytes of the log.

        It may be too high by generations of which no footprint is needed.

        Args:
            nbytes: Never less than before.
        """
        while self._recent and self._recent[0][0] < nbytes:
            self._recent_from = self._recent.popleft()[1] + 1
        return self._recent_from

    def next(self, limit: int, before_cut: int) -> tuple[np.ndarray, int] | None:
        """Up to so many windows of the oldest generation, and its number; each is given once.

        Some of them may have closed. None: no window has a footprint from before this cut.
        """
        oldest = self.oldest
        if oldest is None or oldest.cut >= before_cut:
            return None
        some = oldest.windows[oldest.done : oldest.done + limit]
        oldest.done += len(some)
        return some, oldest.number

    def give_back(self, number: int, windows: int) -> None:
        """So many of the windows that this generation gave last are to be given again."""
        self._by_number[number].done -= windows


_MANY: Final = 256
"""From so many on arrays count faster."""


def _counted(numbers: np.ndarray) -> list[tuple[int, int]]:
    """Each number with how often it occurs."""
    if len(numbers) < _MANY:
        return list(Counter(numbers.tolist()).items())
    found, counts = np.unique(numbers, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class ExtentSize:
    """What recovery would have to do now.

    Attributes:
        log_bytes: Of the footprint log from T's record on.
        tuples: Input tuples from T on.
        footprints: Windows that are open.
    """

    log_bytes: int
    tuples: int
    footprints: int


@dataclass(frozen=True, slots=True)
class ExtentStatistics:
    """What recovery would have to do now, and how long it would take.

    Attributes:
        size: What it would have to do.
        predicted_ms: How long it would take, without finding the failure.
        shortfall: Why that is longer than it should be, in words; empty: it is not.
    """

    size: ExtentSize
    predicted_ms: float
    shortfall: str = ""


@dataclass(frozen=True, slots=True)
class RecoveryCosts:
    """What the parts of a recovery cost on this machine, as a shell has measured them.

    Each is 0 where nobody knows.

    Attributes:
        tuple_us: A tuple in the passes of late.
        replayed_us: A tuple in the node's own replay, with the wait for whoever sends it again.
        footprint_us: A footprint that the node took over from its predecessor, or else one that it
            has written.
        byte_us: A byte of the log to be read.
        fixed_us: What a replacement takes however small the extent is: to start, to open what it
            needs, to connect.
    """

    tuple_us: float = 0.0
    replayed_us: float = 0.0
    footprint_us: float = 0.0
    byte_us: float = 0.0
    fixed_us: float = 0.0


@dataclass(slots=True)
class RecoveryObjective:
    """How large an extent may become.

    Attributes:
        extent_bytes_max: Most bytes of the log.
        recovery_us: Most time that a replacement may take; None: no matter.
        costs: What was measured last.
        tuple_us: What a tuple costs in a pass, on average of late; 0: not known.
        tuples_per_s: How fast input comes; 0: not known.
        windows_per_s: How many windows are written in the share of the time; 0: not known.
    """

    extent_bytes_max: int
    recovery_us: int | None = None
    costs: RecoveryCosts = RecoveryCosts()
    tuple_us: float = 0.0
    tuples_per_s: float = 0.0
    windows_per_s: float = 0.0

    def learn(self, costs: RecoveryCosts) -> None:
        """The shell has measured again."""
        self.costs = costs
        if costs.tuple_us:
            self.tuple_us += (costs.tuple_us - self.tuple_us) / (8 if self.tuple_us else 1)

    def learn_rates(self, tuples_per_s: float, windows_per_s: float) -> None:
        """So many tuples have come of late, and so many windows could be written."""
        self.tuples_per_s += (tuples_per_s - self.tuples_per_s) / 8
        self.windows_per_s = windows_per_s

    @property
    def replayed_us(self) -> float:
        """What a tuple costs in a replay.

        A node that has replayed knows; if passes have become slower since, so has a replay.
        """
        if self.costs.replayed_us:
            return max(self.costs.replayed_us, self.tuple_us) * _SURE
        return (self.tuple_us or _TUPLE_US) * REPLAY_FACTOR

    def predicted_us(self, extent: ExtentSize) -> float:
        """How long recovery would take from such an extent, without finding the failure."""
        return self.costs.fixed_us + self._reading_us(extent) + extent.tuples * self.replayed_us

    def _reading_us(self, extent: ExtentSize) -> float:
        costs = self.costs
        read_us = extent.log_bytes * (costs.byte_us or _BYTE_US)
        return read_us + extent.footprints * costs.footprint_us

    @property
    def rest_bytes(self) -> int:
        """So far back in the log may be what has not changed since."""
        most = self.extent_bytes_max * _RESTING
        if self.recovery_us is not None:
            most = min(most, self._left_us * _RESTING / (self.costs.byte_us or _BYTE_US))
        return int(most)

    @property
    def _left_us(self) -> float:
        """What a replacement may take for what depends on the extent, if its time is bounded."""
        return max(0.0, (self.recovery_us or 0) - self.costs.fixed_us)

    def is_due(self, extent: ExtentSize) -> bool:
        """Whether windows should be written now, so that the bounds are kept."""
        if extent.log_bytes + extent.tuples * _TUPLE_BYTES > _EAGER * self.extent_bytes_max:
            return True
        if self.recovery_us is None:
            return False
        return self.predicted_us(extent) - self.costs.fixed_us > _EAGER * self._left_us

    def shortfall(self, extent: ExtentSize) -> str:
        """Why the objective is not met, or will not be, in words; empty: it is."""
        if self.recovery_us is None:
            return ""
        allowed, fixed_us = f"{self.recovery_us / 1000:.0f}", self.costs.fixed_us
        if fixed_us >= self.recovery_us:
            return (
                f"recovery takes {fixed_us / 1000:.0f} ms, not {allowed}, before anything is read: "
                "a process starts, opens its logs, and connects. Allow more time, or keep a "
                "standby: ActiveStandby()"
            )
        if not self.is_due(extent):
            return ""
        predicted_us, reading_us = self.predicted_us(extent), self._reading_us(extent)
        if predicted_us > self.recovery_us:
            return (
                f"recovery would take {predicted_us / 1000:.0f} ms, not {allowed}: "
                f"{fixed_us / 1000:.0f} ms until a process is there, "
                f"{reading_us / 1000:.0f} ms to read {extent.footprints} footprints, "
                f"{extent.log_bytes} bytes, "
                f"{(predicted_us - reading_us - fixed_us) / 1000:.0f} ms to replay "
                f"{extent.tuples} tuples. {_CURES}"
            )
        round_s = extent.footprints / self.windows_per_s if self.windows_per_s else 0.0
        replay_us = round_s * self.tuples_per_s * self.replayed_us
        whole_us = fixed_us + reading_us + replay_us
        if whole_us <= self.recovery_us:
            return ""
        return (
            f"recovery will take {whole_us / 1000:.0f} ms, not {allowed}: all "
            f"{extent.footprints} footprints are written once in {round_s:.1f} s, in which "
            f"{round_s * self.tuples_per_s:.0f} tuples come. {_CURES}"
        )


_CURES: Final = "Give footprints a larger share=, run more instances, or allow more time"


class PieceCost:
    """What a record costs by itself, and each footprint in it: a line through recent pieces.

    Attributes:
        tells: Whether sizes of late differ by enough to tell the two apart.
    """

    def __init__(self) -> None:
        """No piece has been written."""
        self._sums = np.zeros(5)  # of 1, of footprints, of times, and of products with footprints
        self._each_us = 0.0
        self.tells = False

    def learn(self, footprints: int, took_us: float) -> None:
        """A piece of so many footprints, at least one, took so long."""
        n, t = float(footprints), took_us
        self._sums = _MEMORY * self._sums + np.array([1.0, n, t, n * n, n * t])
        weight, n, t, nn, nt = self._sums.tolist()
        mean, took = n / weight, t / weight
        spread = nn / weight - mean * mean
        self.tells = spread > (_ALIKE * mean) ** 2
        if self.tells:
            self._each_us = (nt / weight - mean * took) / spread
        elif not self._each_us:
            self._each_us = took / mean / 2
        # Neither part costs less than nothing.
        self._each_us = min(max(self._each_us, took / mean / 20), took / mean)

    @property
    def each_us(self) -> float:
        """Of a footprint; 0: not known."""
        return self._each_us

    @property
    def record_us(self) -> float:
        """Of a record without any."""
        weight, n, t, _, _ = self._sums.tolist()
        return max(0.0, (t - self._each_us * n) / weight) if weight else 0.0


class Pacer:
    """Holds what footprints cost to a share of a node's time, and pieces of it below a millisecond.

    All that the node's thread does for footprints is paid from one budget: the windows that are
    written in the background, and the records before restart points (G_open, R), which are *marks*.
    Marks come first. So that they leave something of the share, they are made the rarer the longer
    they take.

    A record costs something however few footprints it has. Were it counted as theirs, few of them
    would seem dear, and even fewer be written, down to one at a time. So the two are told apart,
    and footprints have a part of each piece, even where a record alone takes longer than it should.

    A piece is as large as is known to be short enough: the first one is small, none has more than
    twice the windows of the largest one of late, whatever the costs of small ones foretell, and one
    that was long is followed by no larger one. Pieces of one size tell nothing of the two costs; so
    now and then one has a quarter more.
    One in a hundred may take longer than `STANDSTILL_US`: each that does makes the next ones
    shorter by a tenth, and each other one lets them grow by a hundredth of that.

    Work costs more than its own time, as it leaves caches cold (`COLD`). Times are told, never
    looked up.
    """

    def __init__(self, share: float) -> None:
        """`share` of the time, 0 to 1."""
        self._share = share
        self._budget_us = 0.0
        self._cost = PieceCost()
        self._aim_us = float(AT_ONCE_US)
        self._size = float(_WINDOWS_FEW)  # of the next piece
        self._largest = float(_WINDOWS_FEW)  # of late
        self._window_us = float(AT_ONCE_US) / _WINDOWS_FEW
        self._mark_us = 0.0  # what a mark takes
        self._marks_us = self._worked_us = 0.0  # of marks of late, and of all work beside them
        self._since_mark_us = 0.0  # work

    def worked(self, took_us: float) -> None:
        """The node has worked, or waited, for so long."""
        self._budget_us = min(_BUDGET_MAX_US, self._budget_us + self._share * took_us)
        self._since_mark_us += took_us

    def _pay(self, took_us: float) -> None:
        self._budget_us = max(-float(_DEBT_MAX_US), self._budget_us - took_us * COLD)

    def marked(self, took_us: float) -> None:
        """A restart point was noted, and what had to be said before it."""
        self._pay(took_us)
        self._mark_us += (took_us - self._mark_us) / (4 if self._mark_us else 1)
        self._marks_us = _MEMORY * self._marks_us + took_us
        self._worked_us = _MEMORY * self._worked_us + self._since_mark_us
        self._since_mark_us = 0.0

    @property
    def marks_apart_ms(self) -> int:
        """How far apart restart points are to be, so that they leave some of the share."""
        allowed = max(self._share / COLD * _FOR_MARKS, 1e-9)
        return min(MARKS_APART_MAX_MS, int(self._mark_us / allowed / 1000))

    def wrote(self, windows: int, took_us: float, taking_us: float = 0.0) -> None:
        """A record of so many footprints took so long, and to take them before. 0: had to be said.

        The longer of the two is what a tuple may have waited for.
        """
        self._pay(took_us + taking_us)
        if not windows:
            return
        self._window_us += ((took_us + taking_us) / windows - self._window_us) / 4
        took_us = max(took_us, taking_us)
        if took_us > STANDSTILL_US:
            self._aim_us = max(_AIM_LEAST_US, self._aim_us * (1 - _STEP))
        else:
            self._aim_us = min(AT_ONCE_US, self._aim_us * (1 + _STEP / 100))
        self._cost.learn(windows, took_us)
        self._largest = max(float(windows), self._largest * _MEMORY)
        record_us = self._cost.record_us
        wanted = max(self._aim_us - record_us, self._least_us(record_us)) / self._cost.each_us
        most = min(_GROWTH * self._largest, _WINDOWS_MAX)
        if took_us > STANDSTILL_US >= record_us:
            most = min(most, windows)
        self._size = max(min(wanted, most), 1.0)
        if not self._cost.tells and self._size < most:
            # Is it the footprints that are dear, or the record? Pieces of another size tell.
            change = max(1, windows // 4)
            self._size = windows - change if took_us > STANDSTILL_US else windows + change
            self._size = max(1.0, self._size)

    @staticmethod
    def _least_us(record_us: float) -> float:
        """What footprints are to have of a piece, however dear its record."""
        least_us = record_us / 4
        if record_us < STANDSTILL_US:
            least_us = min(least_us, max(_NEARLY * STANDSTILL_US - record_us, record_us / 16))
        return least_us

    @property
    def footprint_us(self) -> float:
        """What one more footprint in a piece costs; 0: not known."""
        return self._cost.each_us

    @property
    def windows_per_s(self) -> float:
        """How many footprints are written in what marks leave of the share of the time."""
        marks = self._marks_us / self._worked_us if self._worked_us else 0.0
        share = self._share / COLD
        left = max(share - marks, share * (1 - _FOR_MARKS))
        return left * 1e6 / max(self._window_us, 1e-3)

    @property
    def windows(self) -> int:
        """How many footprints may be written now, so that it takes about `AT_ONCE_US`; 0: none."""
        return 0 if self._budget_us < AT_ONCE_US else int(self._size)
