"""Rows in the order in which a node takes them, and where it stands behind so many of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.core.haunit.durability.footprint_writer import Place
from holdfast.core.model.ids import BEGINNING_US, END_US

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from holdfast.core.haunit.durability.footprint_writer import FootprintWriter
    from holdfast.core.model.tuples import TupleBatch


def next_footprints(footprints: FootprintWriter, most: int, place: Place) -> list[TupleBatch]:
    """The records of a piece of background work and of those behind it that write what it takes."""
    records = footprints.piece(most, place)
    while footprints.has_taken:
        records += footprints.piece(most, place)
    return records


@dataclass
class PlacedRows:
    """Rows (stream or side, time, values) of one stream, by id, or of several, by time.

    Attributes:
        ids: Of each row in its stream. Of several streams, ids need not be in the order of times:
            a row whose time has not come yet is held while later ones are taken.
    """

    rows: list[tuple[int, int, Any]]
    streams: int
    ids: list[int] = field(init=False)

    def __post_init__(self) -> None:
        """Streams send their rows in the order of times."""
        streams = [row[0] if self.streams > 1 else 0 for row in self.rows]
        self.ids = [streams[:at].count(stream) for at, stream in enumerate(streams)]

    def shuffle(self, rng: random.Random, by: int) -> None:
        """Each of several streams sends its rows up to so many places from the order of times."""
        for stream in range(self.streams):
            mine = [at for at, row in enumerate(self.rows) if row[0] == stream]
            sent = sorted(range(len(mine)), key=lambda n: n + rng.uniform(0, by))
            for first_id, n in enumerate(sent):
                self.ids[mine[n]] = first_id
        order = sorted(range(len(self.rows)), key=lambda at: (*self.rows[at][1::-1], self.ids[at]))
        self.rows, self.ids = [self.rows[at] for at in order], [self.ids[at] for at in order]

    def _ids_by_stream(self, first: int, end: int) -> list[list[int]]:
        ids: list[list[int]] = [[] for _ in range(self.streams)]
        for at in range(first, end):
            ids[self.rows[at][0] if self.streams > 1 else 0].append(self.ids[at])
        return ids

    def before(self, taken: int) -> tuple[int, ...]:
        """Per stream the oldest id of the rows that are not among so many."""
        counts = [len(ids) for ids in self._ids_by_stream(0, len(self.rows))]
        left = self._ids_by_stream(taken, len(self.rows))
        return tuple(min(ids, default=n) for ids, n in zip(left, counts, strict=True))

    def received(self, taken: int) -> tuple[int, ...]:
        """Per stream the id behind all that came with so many rows."""
        some = self._ids_by_stream(0, taken)
        return tuple(max(ids, default=-1) + 1 for ids in some)

    def again(self, starts: Sequence[int], first: int, end: int) -> list[int]:
        """Which of the rows [first, end) come from streams that begin at these ids."""
        streams = [row[0] if self.streams > 1 else 0 for row in self.rows]
        return [at for at in range(first, end) if self.ids[at] >= starts[streams[at]]]

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
        return Place(cut, boundary_us, self.before(taken), self.received(taken))
