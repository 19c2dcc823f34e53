"""What the shell measures of a node's work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from holdfast.core.haunit.node_figures import NodeStatistics
from holdfast.shell.spark.meter import Meter, _PassCosts


def test_a_tuple_in_a_large_pass_costs_what_the_difference_of_passes_says() -> None:
    costs = _PassCosts()
    for _ in range(10):
        costs.add(10, 200 + 10 * 2)  # 200 µs a pass, and 2 µs a tuple.
        costs.add(100, 200 + 100 * 2)
    assert abs(costs.per_tuple_us(1_000) - 2.2) < 1e-9


def test_slow_passes_now_and_then_do_not_count() -> None:
    costs = _PassCosts()
    for number in range(30):
        costs.add(8, 100 if number % 5 else 90_000)
        costs.add(1_000, 1_092 if number % 7 else 500_000)
    assert abs(costs.per_tuple_us(1 << 15) - 1.0) < 0.01


def test_passes_of_one_size_say_no_better_than_their_mean() -> None:
    costs = _PassCosts()
    for _ in range(10):
        costs.add(10, 300)
    assert costs.per_tuple_us(1_000) == 30


def test_a_few_passes_say_nothing() -> None:
    costs = _PassCosts()
    costs.add(10, 300)
    assert costs.per_tuple_us(1_000) == 0


class LookedAt:
    """As much of a node as is measured, and how often that was."""

    plan = SimpleNamespace(limits=SimpleNamespace(pass_tuples=1_000))
    looks = 0

    def needs(self) -> Any:
        self.looks += 1
        return SimpleNamespace(state_tuples=0, replay_tuples=0)

    def sample_changes(self, _: int) -> Any:
        return SimpleNamespace(changed_bytes=lambda: 0)


def test_a_node_that_reports_often_is_measured_twice_a_second_and_at_its_end() -> None:
    meter, node = Meter(), LookedAt()

    def measured(now_ms: int, tuples: int, *, is_last: bool = False) -> float:
        counted = NodeStatistics(input_tuples=tuples)
        found = meter.measured(cast("Any", node), counted, now_ms, is_last=is_last)
        return found.input_tuples_per_s

    for tick in range(11):
        measured(1_000 + 100 * tick, tick)
    assert node.looks == 3
    before = measured(2_050, 1_000)
    assert measured(2_060, 1_000, is_last=True) > before
    assert node.looks == 4
