"""What the shell measures of a node's work."""

from __future__ import annotations

from holdfast.shell.spark.meter import _PassCosts


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
