"""What the shell measures of a node's work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from holdfast.core.haunit import events
from holdfast.core.haunit.node_figures import NodeStatistics
from holdfast.core.model.ids import StreamId
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


class Working:
    """A node whose passes are of a size."""

    plan = LookedAt.plan
    input_tuples = 0


class Effects(list[Any]):
    """Those of a pass, and how often they were looked at."""

    looks = 0

    def __iter__(self) -> Any:
        Effects.looks += 1
        return super().__iter__()


def passed(meter: Meter, node: Working, tuples: int, took_us: int) -> None:
    node.input_tuples += tuples
    meter.stepped(cast("Any", node), events.Proceed(0, 0), Effects(), took_us)


def test_of_many_short_passes_one_in_eight_is_looked_at_and_every_long_one() -> None:
    meter, node = Meter(), Working()
    Effects.looks = 0
    for _ in range(64 + 800):
        passed(meter, node, 10, 100)
    assert Effects.looks == 64 + 100
    for _ in range(5):
        passed(meter, node, 10_000, 50_000)
    assert Effects.looks >= 64 + 100 + 5
    assert 4.5 < meter.replay_cost_us(10_000) < 5.5


def test_time_counts_of_passes_that_nobody_looks_at() -> None:
    meter, node = Meter(), LookedAt()
    working = Working()
    for second in range(3):
        for _ in range(100):
            passed(meter, working, 10, 100)
        counted = NodeStatistics(input_tuples=working.input_tuples)
        found = meter.measured(cast("Any", node), counted, 1_000 * second + 1_000)
    assert found.tuple_cost_us == 10.0


def test_readings_are_measured_one_with_each_sign_of_life() -> None:
    meter, node = Meter(), LookedAt()
    rows = pa.record_batch({"price": pa.array(range(100), pa.int64())})
    batch = cast("Any", SimpleNamespace(batch=rows, count=100))
    read = events.SourceRead(StreamId("bids"), (batch,), 0)
    meter.stepped(cast("Any", node), events.SourceRead(StreamId("bids"), (), 0), [], 10)
    assert not meter.has_received
    for now_ms in (100, 200):
        assert events.SourceRead in meter.measured_now
        meter.stepped(cast("Any", node), read, [], 10)
        assert events.SourceRead not in meter.measured_now
        assert events.Proceed in meter.measured_now
        meter.look_at_changes(now_ms)
    found = meter.measured(cast("Any", node), NodeStatistics(), 300)
    assert found.input_tuple_bytes == 8.0
