"""By which invariant a deliberate bug is found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

_CRASHES = {error.__name__ for error in (AttributeError, NameError, TypeError)}


class Seen(Protocol):
    """How a simulated run went."""

    @property
    def invariant(self) -> str | None:
        """The one violated, or the name of what was raised; None: all held."""

    @property
    def violation(self) -> str:
        """In words."""


def first_found(runs: Iterable[Seen]) -> str | None:
    """The first invariant that is violated; None: nobody notices.

    A bug that no longer fits the code that it changes crashes in every run, and shows nothing of
    the checkers: that is refused.
    """
    found = next((run for run in runs if run.invariant is not None), None)
    if found is None:
        return None
    assert found.invariant not in _CRASHES, f"the bug crashes: {found.violation}"
    return found.invariant
