"""The state at a cut is made again from input. [DPC §4.2]"""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.core.model.ids import NO_ID
from holdfast.core.replication.undo_redo import LOOK_AT, UndoHistory


class Operators:
    """Note which passes are run."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.took_part: list[list[bool]] = []

    def process(
        self, ports: Any, low: Any, boundary_us: int, *, is_silent: bool, taking_part: Any
    ) -> None:
        del ports, low
        assert is_silent
        self.ran.append(boundary_us)
        self.took_part.append(list(taking_part))


def history(tuples_max: int, passes: int) -> UndoHistory:
    """Passes of ten tuples of one stream, each up to ten times its number."""
    made = UndoHistory(tuples_max)
    for number in range(1, passes + 1):
        low = np.array([10 * number - 10])
        made.ran([None], low, 10 * number, 10, (10 * number,))
    return made


def replayed(made: UndoHistory) -> list[int]:
    operators = Operators()
    made.replay(operators, np.array([[0]]))
    return operators.ran


def test_what_no_state_goes_back_to_is_forgotten() -> None:
    made = history(50, 6)
    assert made.is_to_be_trimmed
    made.trim(np.array([25]))
    assert replayed(made) == [30, 40, 50, 60]
    assert made.tuples == 40
    assert made.reaches(np.array([0])), "nothing has been given up"
    made.trim(np.array([30]))
    assert replayed(made) == [40, 50, 60], "the first one that is needed is of the next pass"
    made.trim(np.array([NO_ID]))
    assert replayed(made) == []


def run_on(made: UndoHistory, tuples: int) -> int:
    """Passes of ten tuples, which all stay in the state; how many of them were kept for a while."""
    kept = 0
    for _ in range(tuples // 10):
        held = made.tuples
        made.ran([None], np.array([0]), 0, 10, (10,))
        kept += made.tuples > held
        if made.is_to_be_trimmed:
            made.trim(np.array([0]))
    return kept


def test_beyond_its_bound_it_keeps_nothing_until_the_markers_move_on() -> None:
    made = history(80, 9)
    assert made.is_to_be_trimmed
    made.trim(np.array([0]))
    assert (replayed(made), made.tuples) == ([], 0)
    made.ran([None], np.array([90]), 100, 10, (100,))
    made.ran([None], np.array([100]), 110, 10, (110,))
    assert replayed(made) == [110], "ten tuples are passed over, an eighth of the bound"
    assert not made.reaches(np.array([99]))
    assert made.reaches(np.array([100]))
    made.trim(np.array([110]))
    assert replayed(made) == []


def test_for_state_that_never_closes_ever_less_is_kept() -> None:
    made = UndoHistory(1_000)
    first, *_, last = [run_on(made, 10_000) for _ in range(20)]
    assert first > 500
    assert last < 120, "a bound of tuples is kept, sixteen are not"


def test_markers_are_looked_at_when_twice_as_much_is_kept_as_they_need() -> None:
    made = UndoHistory(1_000_000)
    most = 0
    for number in range(1, 60_001):
        made.ran([None], np.array([0]), 0, 10, (10 * number,))
        if made.is_to_be_trimmed:
            made.trim(np.array([10 * number - 100]))
        most = max(most, made.tuples)
    assert most <= LOOK_AT + 10


def test_each_operator_takes_part_from_its_own_markers_on() -> None:
    made = history(1_000, 4)
    operators = Operators()
    assert made.replay(operators, np.array([[15], [30], [NO_ID]])) == 30
    took_part = [[False] * 3, [True, False, False], [True, False, False], [True, True, False]]
    assert operators.took_part == took_part
