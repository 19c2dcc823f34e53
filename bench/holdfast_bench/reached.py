"""Figures beside what they were to be, on the pages of benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast_bench.reporter import table


class Reached(NamedTuple):
    """One figure.

    Attributes:
        figure: What was measured.
        target: What it was to be.
        measured: What it is.
        limit: Of one that misses its target, the bound or the part that it is missed by.
    """

    figure: str
    target: str
    measured: str
    limit: str


def reached(figure: str, target: str, measured: str, limit: str, *, is_met: bool) -> Reached:
    """A figure that says what limits it if it misses its target."""
    return Reached(figure, target, measured, "" if is_met else limit)


def section(figures: Sequence[Reached]) -> str:
    """All of them on a page; empty if there are none."""
    if not figures:
        return ""
    return "\n## Targets\n\n" + table(("figure", "target", "measured", "limited by"), figures)
