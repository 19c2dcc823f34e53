"""Checkpoints of units that recover together. [CheckMate §III]"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from holdfast.api.protections.base import Protection, interval_ms_of, require_guarantee
from holdfast.api.protections.checkpointed import StoredCheckpoints
from holdfast.api.windows import duration_us
from holdfast.core.haunit.plan import CheckpointPlan, Cuts, UnitProtection
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import OptionError

if TYPE_CHECKING:
    from holdfast.api.graph import Graph

_ALGORITHMS: Final = tuple(cuts.value for cuts in Cuts if cuts.is_induced)
_AFTER_WINDOWS: Final = "after_windows"
_TRIGGERS: Final = ("interval", _AFTER_WINDOWS)
_SCOPES: Final = ("component", "all")
_ROLLS_BACK: Final = ("affected", "all")


@dataclass(frozen=True, slots=True)
class RegionCheckpoints(StoredCheckpoints):
    """Checkpoints of units that recover together; each kind has `workers`. [CheckMate §III]"""

    rolls_back: str = "affected"
    kept: int = 1

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        if self.rolls_back not in _ROLLS_BACK:
            raise OptionError(
                f"{type(self).__name__}(rolls_back={self.rolls_back!r}); there are "
                f"{', '.join(_ROLLS_BACK)}"
            )
        require_guarantee(self, Guarantee.PRECISE, Guarantee.ROLLBACK)
        self._require_within("workers", 1, 32)
        self._require_within("kept", 1, 2)
        self.of_unit()

    def describe(self) -> str:
        """As of all with a store; a checkpoint holds results that wait, or it does not."""
        is_precise = self.guarantee == Guarantee.PRECISE.value
        return f"{type(self).__name__}{'' if is_precise else ' rollback'}{self.where()}"


@dataclass(frozen=True, slots=True)
class Uncoordinated(RegionCheckpoints):
    """Units that take their input as it comes are checkpointed, and log nothing. [CheckMate §III-B]

    Every instance takes checkpoints when it wants to. After a failure all instances that depend on
    each other halt, and the newest checkpoints that go together are looked for; who has processed
    what would come otherwise goes back, the others go on. Results of such units wait until no
    recovery can go back behind them, for an interval or more, so that each comes exactly once.

    Units whose output depends on their input alone wait for nothing: they are protected as by
    `Checkpointed()`. Survives any number of simultaneous failures, the driver's included, as long
    as the store does. A damaged checkpoint of units that recover together is passed over, and
    reported: all go back to an earlier line. If there is none the query ends and says so; with
    `kept=2` there is one.

    Attributes:
        interval: Period of checkpoints, as `tumbling` takes it: about how long results wait.
        store: As for `Checkpointed`.
        jitter: By up to so much longer each period is, so that not all write at once.
        workers: Files per checkpoint, written and read side by side, 1 to 32.
        rolls_back: Who goes back after a failure, of those that recover together: `affected`, whose
            state depends on what was lost, or `all`, as in the paper.
        kept: How many lines units that recover together can go back to, 1 or 2. With 2 a damaged
            checkpoint costs a line and no result, and results wait for one line more.
        guarantee: `precise`: each result comes once; or `rollback`: results wait for nothing, and
            those put out since the line may come again after a failure, and otherwise. Nothing is
            lost, and states stand for each tuple once, in both. [CheckMate §II-A]
        trigger: `interval`, or `after_windows`: a checkpoint that is due waits until windows have
            closed, when there is less to write, but for another interval at most.
    """

    interval: str = "5 seconds"
    jitter: str = "1 second"
    workers: int = 2
    trigger: str = "interval"

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        if self.trigger not in _TRIGGERS:
            raise OptionError(
                f"Uncoordinated(trigger={self.trigger!r}); there are {', '.join(_TRIGGERS)}"
            )
        RegionCheckpoints.check(self, flow)

    def of_unit(self) -> UnitProtection:
        """Checkpointed, and recovered with others where it does not repeat."""
        plan = _jittered(self, self.interval, self.jitter, self.workers)
        plan = replace(plan, waits_for_windows=self.trigger == _AFTER_WINDOWS)
        return UnitProtection(
            checkpoints=plan,
            cuts=Cuts.UNCOORDINATED,
            all_go_back=self.rolls_back == "all",
            lines_kept=self.kept,
            guarantee=Guarantee(self.guarantee),
        )


@dataclass(frozen=True, slots=True)
class Coordinated(RegionCheckpoints):
    """Units that take their input as it comes are checkpointed in rounds. [CheckMate §III-A]

    As `Uncoordinated`, but instances that depend on each other take checkpoints for the same round,
    which go together: none is useless, and results wait for no more than their round.

    Attributes:
        interval: From the beginning of one round to that of the next, as `tumbling` takes it.
        store: As for `Checkpointed`, like `workers`.
        rolls_back: As for `Uncoordinated`, like `kept` and `guarantee`.
        aligned: Whether an instance takes nothing behind the round's marker on one input before it
            has come on all. Else it cuts as soon as it hears of the round.
    """

    interval: str = "5 seconds"
    aligned: bool = True
    workers: int = 2

    def of_unit(self) -> UnitProtection:
        """Checkpointed in rounds, and recovered with others where it does not repeat."""
        plan = CheckpointPlan(interval_ms_of(self, self.interval), workers=self.workers)
        return UnitProtection(
            checkpoints=plan,
            cuts=Cuts.ALIGNED if self.aligned else Cuts.UNALIGNED,
            all_go_back=self.rolls_back == "all",
            lines_kept=self.kept,
            guarantee=Guarantee(self.guarantee),
        )


@dataclass(frozen=True, slots=True)
class CommunicationInduced(RegionCheckpoints):
    """As `Uncoordinated`, but no checkpoint is useless: others force some. [CheckMate §III-C]

    Only where streams go in a circle could one be; with `scope="component"` nothing is said, and
    nothing forced, elsewhere.

    Attributes:
        interval: As for `Uncoordinated`, like `store`, `jitter`, `workers`, `rolls_back`, `kept`
            and `guarantee`.
        algorithm: `hmnr`, `lazy-fi` with clocks that rise less often, or `bcs`, which forces more.
        scope: `component`: of those on a circle together; `all`: of all that recover together.
    """

    interval: str = "5 seconds"
    jitter: str = "1 second"
    algorithm: str = "hmnr"
    scope: str = "component"
    workers: int = 2

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        for name, known in (("algorithm", _ALGORITHMS), ("scope", _SCOPES)):
            if (given := getattr(self, name)) not in known:
                raise OptionError(
                    f"CommunicationInduced({name}={given!r}); there are {', '.join(known)}"
                )
        RegionCheckpoints.check(self, flow)

    def of_unit(self) -> UnitProtection:
        """Checkpointed, and recovered with others where it does not repeat."""
        plan = _jittered(self, self.interval, self.jitter, self.workers)
        is_whole = self.scope == "all"
        return UnitProtection(
            checkpoints=plan,
            cuts=Cuts(self.algorithm),
            is_scope_whole=is_whole,
            all_go_back=self.rolls_back == "all",
            lines_kept=self.kept,
            guarantee=Guarantee(self.guarantee),
        )


def _jittered(protection: Protection, interval: str, jitter: str, workers: int) -> CheckpointPlan:
    """The plan of nodes that cut by timers of their own."""
    jitter_ms = duration_us(jitter) // 1000
    return CheckpointPlan(
        interval_ms_of(protection, interval), workers=workers, jitter_ms=jitter_ms
    )
