"""What must hold in every run, each invariant in the checker of its subject."""

from collections import Counter

from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.checkers.bounds import Bounds
from holdfast.sim.checkers.fencing import Fencing
from holdfast.sim.checkers.output import PreciseOutput, Row, Tape
from holdfast.sim.checkers.replicas import Copies, Kept, LoggedRounds
from holdfast.sim.checkers.trimming import RestartPoints, Trimming


def all_checkers(expected: dict[str, Counter[Row]]) -> tuple[Checker, ...]:
    """A fresh set of all checkers for one run.

    Args:
        expected: Per sink the rows that it must hold, as `Workload.expected`.
    """
    tape = Tape()
    return (
        tape,
        Fencing(),
        Bounds(),
        Trimming(),
        RestartPoints(tape),
        Kept(),
        Copies(),
        LoggedRounds(),
        PreciseOutput(expected),
    )


__all__ = [
    "Bounds",
    "Checker",
    "Copies",
    "Fencing",
    "Kept",
    "LoggedRounds",
    "PreciseOutput",
    "RestartPoints",
    "Tape",
    "Trimming",
    "Violation",
    "all_checkers",
]
