"""What a node of a loop knows of its laps, as a restart point says it. [CheckMate §VI, "cyclic"]

What it is for, and why a replacement may go on with it: haunit/loop_progress.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.notes import LoopMark

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class EntranceState:
    """What an entrance knows.

    Attributes:
        promised_us: What it has promised on its feedback streams.
        open_us: What the input from outside had passed when the present lap began.
        oldest_us: The time of the oldest tuple that has come back in it; `END_US`: none has.
        back: What the last lap said that has come back.
        laps_to: It begins laps up to this one though it gains nothing by them.
    """

    promised_us: int
    open_us: int = BEGINNING_US
    oldest_us: int = BEGINNING_US
    back: LoopMark | None = None
    laps_to: int = 0


@dataclass(frozen=True, slots=True)
class LoopState:
    """What a node knows.

    Attributes:
        waiting: Per stream the marks that have been taken, and wait for those of other streams; in
            the order of their laps. One that is missing has none.
        entrance: What it knows as an entrance; None: it is none.
    """

    waiting: Mapping[str, tuple[LoopMark, ...]] = field(default_factory=dict)
    entrance: EntranceState | None = None

    def to_json(self) -> dict[str, object]:
        """Plain values for messages and the catalogue."""
        value: dict[str, object] = {}
        if self.waiting:
            value["waiting"] = {s: [*map(_said, marks)] for s, marks in self.waiting.items()}
        if (of := self.entrance) is not None:
            value["entrance"] = [of.promised_us, of.open_us, of.oldest_us, of.laps_to]
            if of.back is not None:
                value["back"] = _said(of.back)
        return value

    @staticmethod
    def from_json(value: object) -> LoopState:
        """The inverse of `to_json`. Raises `ValueError` on anything else."""
        if not isinstance(value, dict):
            raise ValueError("what is known of laps is an object")
        waiting = value.get("waiting", {})
        if not isinstance(waiting, dict):
            raise ValueError("the marks that wait are said by stream")
        return LoopState({s: _marks(s, each) for s, each in waiting.items()}, _entrance(value))


def _entrance(value: dict[Any, Any]) -> EntranceState | None:
    if "entrance" not in value:
        return None
    promised_us, open_us, oldest_us, laps_to = _numbers(value["entrance"], 4)
    back = _mark(value["back"]) if "back" in value else None
    return EntranceState(promised_us, open_us, oldest_us, back, laps_to)


def _said(mark: LoopMark) -> list[int]:
    return [mark.lap, mark.open_us, mark.clean_us]


def _marks(stream: object, value: object) -> tuple[LoopMark, ...]:
    if not isinstance(stream, str) or not isinstance(value, list):
        raise ValueError("the marks of a stream are a list")
    marks = tuple(map(_mark, value))
    if any(after.lap <= before.lap for before, after in pairwise(marks)):
        raise ValueError(f"the marks of {stream} are not in the order of their laps")
    return marks


def _mark(value: object) -> LoopMark:
    return LoopMark(*_numbers(value, 3))


def _numbers(value: object, count: int) -> list[int]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"what is known of laps has lists of {count} numbers")
    if not all(type(n) is int and BEGINNING_US <= n <= END_US for n in value):
        raise ValueError("what is known of laps is said by numbers of 64 bits")
    return value
