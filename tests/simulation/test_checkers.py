"""The checkers themselves: what they accept, what they refuse, and what they call it."""

from collections import Counter

import pytest

from holdfast.sim.checkers import Violation
from holdfast.sim.checkers.output import check_gap, check_precise, check_rollback

EXPECTED = Counter({("a", 1): 2, ("b", 2): 1})


def test_precise_is_exactly_what_was_expected() -> None:
    check_precise("out", EXPECTED, Counter(EXPECTED))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (Counter({("b", 2): -1}), "1 lost"),
        (Counter({("b", 2): 1}), "1 doubled"),
        (Counter({("c", 3): 1}), "1 never expected"),
    ],
)
def test_precise_names_the_kind_of_difference(change: Counter[tuple[str, int]], word: str) -> None:
    found = Counter(EXPECTED)
    found.update(change)
    with pytest.raises(Violation, match=f"I-PRECISE.*{word}"):
        check_precise("out", EXPECTED, +found)


def test_repeating_rollback_allows_repetitions_and_no_more() -> None:
    check_rollback("out", EXPECTED, EXPECTED + Counter({("a", 1): 3}))
    with pytest.raises(Violation, match=r"I-ROLLBACK.*never expected"):
        check_rollback("out", EXPECTED, EXPECTED + Counter({("c", 3): 1}))
    with pytest.raises(Violation, match=r"I-ROLLBACK.*lost"):
        check_rollback("out", EXPECTED, EXPECTED - Counter({("a", 1): 1}))


def test_gap_allows_a_bounded_gap_and_nothing_extra() -> None:
    check_gap("out", EXPECTED, EXPECTED - Counter({("a", 1): 1}), 1)
    with pytest.raises(Violation, match="at most 0"):
        check_gap("out", EXPECTED, EXPECTED - Counter({("a", 1): 1}), 0)
    with pytest.raises(Violation, match="doubled"):
        check_gap("out", EXPECTED, EXPECTED + Counter({("a", 1): 1}), 5)
