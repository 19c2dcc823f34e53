"""Where an instance of a source goes on in its partitions of a topic, and whether that is sound.

The log of a source is the truth: every tuple in it carries its partition and offset. Positions that
were saved beside it only save reading it from its beginning. A writer leaves them once before it
appends anything. So of all that there are, those of the newest incarnation up to the end of its log
count, and those of earlier ones do not: what a zombie still saves describes tuples that nobody will
ever see.

Late tuples are not in the log, and yet are to be counted once. So positions that count more of them
are saved for the end that the log will have with the next rows, before those are appended: either
they are there, and the positions count, or neither is, and the records are read and counted again.

Offsets mean something within one topic only. One that is deleted and made anew under the same name
has another id, and other records at the same offsets: to go on there would leave out as many as
were read of the former one. So the id is settled with where to begin, and compared ever after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.model.ids import BEGINNING_US

FOLDER = "positions"
FROM_THE_FIRST = -1
"""Stands for the first offset that a partition holds, whichever that is."""


@dataclass(frozen=True, slots=True)
class Span:
    """What is wanted of a topic, for one instance.

    Attributes:
        begin: Per partition the first offset.
        end: Per partition the offset before which to stop; None: there is no end.
        topic_id: Of the topic that the offsets are of; empty: its broker has none.
    """

    begin: Mapping[int, int]
    end: Mapping[int, int] | None
    topic_id: str = ""

    def is_of(self, topic_id: str) -> bool:
        """Whether the offsets are of the topic that has this id now, as far as anybody can tell."""
        return not self.topic_id or not topic_id or topic_id == self.topic_id

    def to_json(self) -> dict[str, Any]:
        """For its file."""
        end = None if self.end is None else {str(p): o for p, o in self.end.items()}
        begin = {str(p): o for p, o in self.begin.items()}
        return {"begin": begin, "end": end, "topic": self.topic_id}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Span:
        """The inverse of `to_json`. Raises what comes of members that make no sense."""
        end = value["end"]
        begin = _offsets(value["begin"])
        return Span(begin, None if end is None else _offsets(end), str(value.get("topic", "")))


@dataclass(slots=True)
class Position:
    """How far a partition has been read.

    Attributes:
        next_offset: Of the next record.
        newest_us: Its newest tuple time; `BEGINNING_US`: it had none.
        late_rows: How many tuples of the records before were late.
    """

    next_offset: int
    newest_us: int = BEGINNING_US
    late_rows: int = 0


class TopicPositions:
    """The positions of the partitions of one instance."""

    def __init__(self) -> None:
        """Nothing has been read."""
        self.of: dict[int, Position] = {}

    def advance(self, partition: int, next_offset: int, newest_us: int = BEGINNING_US) -> None:
        """A partition has been read up to an offset; never moves back."""
        found = self.of.setdefault(partition, Position(next_offset))
        found.next_offset = max(found.next_offset, next_offset)
        found.newest_us = max(found.newest_us, newest_us)

    def put_aside(self, partitions: np.ndarray) -> None:
        """Late tuples of these partitions, one of each mention, are not in the log."""
        for partition, count in zip(*np.unique(partitions, return_counts=True), strict=True):
            self.of[int(partition)].late_rows += int(count)

    @property
    def late_rows(self) -> int:
        """How many tuples of the records before the positions were late."""
        return sum(found.late_rows for found in self.of.values())

    def begin(self, partitions: Iterable[int], span: Span) -> dict[int, int]:
        """Per partition the offset from which to read, `FROM_THE_FIRST` if that is not known.

        Those that have been read go on; others begin where they were wanted to, and those that the
        topic has got since then, with their first record.
        """
        for partition in partitions:
            if partition not in self.of:
                self.advance(partition, span.begin.get(partition, FROM_THE_FIRST))
        return {partition: self.of[partition].next_offset for partition in partitions}

    def to_json(self) -> dict[str, Any]:
        """For its file."""
        return {
            str(p): [found.next_offset, found.newest_us, found.late_rows]
            for p, found in self.of.items()
        }

    def restore(self, value: dict[str, Any]) -> None:
        """Go on from what `to_json` gave. Raises what comes of members that make no sense."""
        self.of = {int(p): Position(*map(int, entry)) for p, entry in value.items()}


def positions_name(incarnation: int, end_id: int) -> str:
    """Of the file with an incarnation's positions when its log ended before `end_id`."""
    return f"{FOLDER}/{incarnation:010d}-{end_id:020d}.json"


def end_of(name: str) -> int:
    """Of the log, when a file of this name was left."""
    return int(name.rpartition("-")[2].partition(".")[0])


def believed(names: Iterable[str], end_id: int) -> str | None:
    """The name of the positions to go on from in a log that ends before `end_id`; None: of none."""
    known = list(names)
    newest = max(map(_incarnation_of, known), default=0)
    mine = [name for name in known if _incarnation_of(name) == newest and end_of(name) <= end_id]
    return max(mine, key=end_of, default=None)


def superseded(names: Iterable[str], incarnation: int) -> list[str]:
    """Those of earlier incarnations, once this one has left its own."""
    return [name for name in names if _incarnation_of(name) < incarnation]


def _incarnation_of(name: str) -> int:
    return int(name.rpartition("/")[2].partition("-")[0])


def _offsets(value: dict[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in value.items()}
