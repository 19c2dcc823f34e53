"""The checkers themselves: what they accept, what they refuse, and what they call it."""

from collections import Counter

import pyarrow as pa
import pytest

from holdfast.api.steps import FromGenerator, Step
from holdfast.sim.checkers import Violation
from holdfast.sim.checkers.output import (
    check_gap,
    check_order,
    check_precise,
    check_rollback,
    check_sum,
    check_times,
)
from holdfast.sim.workload.oracle import Adding, Conserved

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


def test_a_row_with_another_time_is_a_violation_of_its_own() -> None:
    check_times("out", Counter([(1, ("a",)), (2, ("b",))]), Counter([(2, ("b",)), (1, ("a",))]))
    with pytest.raises(Violation, match="I-TIME"):
        check_times("out", Counter([(1, ("a",))]), Counter([(2, ("a",))]))


def test_rows_in_another_order_are_a_violation_of_their_own() -> None:
    rows = [(1, ("a",)), (1, ("b",))]
    check_order("out[0]", rows, list(rows))
    with pytest.raises(Violation, match=r"I-ORDER.*tuple 0"):
        check_order("out[0]", rows, rows[::-1])


@pytest.mark.parametrize("is_whole", [True, False])
def test_counts_make_up_their_input_and_a_sample_is_a_part_of_it(is_whole: bool) -> None:
    conserved = Conserved(
        Step(FromGenerator(generator=None, partitions=1), "s", "s", pa.schema([])),
        group=lambda row: (row.values["k"],),
        said=lambda row: (row.values["k"],),
        weight=lambda row: row.values["n"],
        is_whole=is_whole,
    )
    adding = Adding(("k", "n"), Counter({("a",): 3, ("b",): 1}), conserved)
    check_sum("any", adding, [(0, ("a", 1)), (0, ("a", 2)), (0, ("b", 1))])
    with pytest.raises(Violation, match="I-SUM"):
        check_sum("any", adding, [(0, ("a", 2)), (0, ("a", 2)), (0, ("b", 1))])
    if is_whole:
        with pytest.raises(Violation, match="I-SUM"):
            check_sum("any", adding, [(0, ("a", 3))])
    else:
        check_sum("any", adding, [(0, ("a", 3))])
