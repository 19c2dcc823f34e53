"""What must hold in every run, each invariant in the checker of its subject."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.checkers.bounds import Bounds
from holdfast.sim.checkers.corrections import Corrections
from holdfast.sim.checkers.fencing import Fencing
from holdfast.sim.checkers.footprints import Footprints
from holdfast.sim.checkers.lines import Lines
from holdfast.sim.checkers.output import PreciseOutput, Tape
from holdfast.sim.checkers.promises import PromisedOutput
from holdfast.sim.checkers.promptness import Promptness, timed_sinks
from holdfast.sim.checkers.replicas import Copies, Kept, LoggedPasses
from holdfast.sim.checkers.runs import Runs
from holdfast.sim.checkers.trimming import RestartPoints, Trimming
from holdfast.sim.checkers.turns import Fresh
from holdfast.sim.checkers.waiting import Waiting

if TYPE_CHECKING:
    from holdfast.sim.workload.oracle import Expected
    from holdfast.sim.workload.promises import Promise


def all_checkers(
    expected: Expected,
    promises: dict[str, Promise] | None = None,
    timed: dict[str, frozenset[str]] | None = None,
) -> tuple[Checker, ...]:
    """A fresh set of all checkers for one run.

    Args:
        expected: What sinks must hold, as `Workload.expected`.
        promises: As `Workload.promises`, for sinks behind weaker guarantees; None: there are none.
        timed: As `timed_sinks` gives it; None: of no sink.
    """
    tape = Tape()
    return (
        tape,
        Fencing(),
        Bounds(),
        Trimming(),
        RestartPoints(tape),
        Footprints(),
        Lines(),
        Kept(),
        Copies(),
        LoggedPasses(),
        PreciseOutput(expected, promises or ()),
        PromisedOutput(expected, promises or {}),
        Promptness(timed or {}),
        Corrections(),
        Fresh(),
        Waiting(),
        Runs(),
    )


__all__ = [
    "Bounds",
    "Checker",
    "Copies",
    "Corrections",
    "Fencing",
    "Footprints",
    "Fresh",
    "Kept",
    "Lines",
    "LoggedPasses",
    "PreciseOutput",
    "PromisedOutput",
    "Promptness",
    "RestartPoints",
    "Runs",
    "Tape",
    "Trimming",
    "Violation",
    "Waiting",
    "all_checkers",
    "timed_sinks",
]
