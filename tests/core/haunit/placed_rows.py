"""Rows in the order in which a node takes them, and where it stands behind so many of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.core.haunit.durability.footprint_writer import Place
from holdfast.core.model.ids import BEGINNING_US, END_US


@dataclass
class PlacedRows:
    """Rows (stream or side, time, values) of one stream, by id, or of several, by time."""

    rows: list[tuple[int, int, Any]]
    streams: int

    def before(self, taken: int) -> tuple[int, ...]:
        """Per stream the id of the first row that is not among so many."""
        if self.streams == 1:
            return (taken,)
        return tuple(sum(r[0] == s for r in self.rows[:taken]) for s in range(self.streams))

    def until(self, taken: int) -> int:
        """An end of a pass near there: with several streams all rows of a time go together."""
        while 0 < taken < len(self.rows) and self.streams > 1:
            if self.rows[taken][1] > self.rows[taken - 1][1]:
                break
            taken += 1
        return taken

    def place(self, taken: int) -> Place:
        """Where a node stands behind so many rows."""
        boundary_us = BEGINNING_US
        if taken:
            boundary_us = max(row[1] for row in self.rows[:taken]) + (self.streams > 1)
            boundary_us = min([boundary_us, *(row[1] for row in self.rows[taken:])])
        if taken == len(self.rows):
            boundary_us = END_US
        cut = taken if self.streams == 1 else boundary_us
        return Place(cut, boundary_us, self.before(taken), self.before(taken))
