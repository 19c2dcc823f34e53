"""Says once that something new has left the node: recovery times are measured by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.events import ReportFirstOutput

if TYPE_CHECKING:
    from holdfast.core.machine import Effect


class FirstOutput:
    """What all outputs of one incarnation share. Volatile: all fields."""

    __slots__ = ("_has_left",)

    def __init__(self) -> None:
        """Nothing has left yet."""
        self._has_left = False

    def note(self) -> list[Effect]:
        """Something new leaves the node."""
        if not self._has_left:
            self._has_left = True
            return [ReportFirstOutput()]
        return []
