"""Which windows are written next, how much, and when."""

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from holdfast.core.checkpoint.eventual import (
    AT_ONCE_US,
    COLD,
    MARKS_APART_MAX_MS,
    REPLAY_FACTOR,
    STANDSTILL_US,
    ExtentSize,
    FootprintOrder,
    Generation,
    Pacer,
    RecoveryCosts,
    RecoveryObjective,
)
from holdfast.core.errors import InvariantViolation
from holdfast.core.recovery.cost_model import Surroundings

SLOW_LOG = RecoveryCosts(tuple_us=2.0, replayed_us=2.0, byte_us=1.0)
"""A tuple takes two microseconds, a byte one."""


def within_100_ms(costs: RecoveryCosts = SLOW_LOG) -> RecoveryObjective:
    objective = RecoveryObjective(1 << 30, recovery_us=100_000)
    objective.learn(costs)
    return objective


def windows(*numbers: int) -> np.ndarray:
    return np.array([[n, 0] for n in numbers], dtype=np.int64).reshape(-1, 2)


def generation(number: int, cut: int) -> Generation:
    return Generation(number, cut, (cut,), first_id=10 * number, bytes_before=100 * number)


def test_t_moves_only_when_the_oldest_generation_is_over():
    order = FootprintOrder()
    order.taken(generation(0, 5), windows(1, 2))
    order.taken(generation(1, 9), windows(3))
    order.gone(*[np.array([0])] * 2)
    assert order.oldest is not None
    assert order.oldest.cut == 5
    order.gone(*[np.array([0])] * 2)
    assert order.oldest.cut == 9
    assert order.open_windows == 1


def test_the_oldest_windows_are_written_first_and_each_once():
    order = FootprintOrder()
    order.taken(generation(0, 5), windows(1, 2, 3))
    order.taken(generation(1, 9), windows(4))
    some, number = order.next(2, before_cut=20)
    assert (some[:, 0].tolist(), number) == ([1, 2], 0)
    order.gone(*[np.array([0, 0])] * 2)
    order.taken(generation(2, 20), some)
    assert order.next(2, before_cut=20)[0][:, 0].tolist() == [3]
    order.gone(*[np.array([0])] * 2)
    assert order.next(2, before_cut=20)[0][:, 0].tolist() == [4]
    order.gone(*[np.array([1])] * 2)
    assert order.next(2, before_cut=20) is None  # All are of the present cut.


def test_a_window_cannot_go_twice():
    order = FootprintOrder()
    order.taken(generation(0, 5), windows(1))
    with pytest.raises(InvariantViolation):
        order.gone(*[np.array([0, 0])] * 2)


def test_windows_that_close_by_themselves_leave_nothing_behind():
    """Also where no window is ever written again, and nobody asks how far back one was."""
    order = FootprintOrder()
    for number in range(100):
        order.taken(generation(number, number), windows(number))
        if number >= 3:
            order.gone(*[np.array([number - 3])] * 2)
            assert order.oldest_needed is not None
            assert order.oldest_needed.number == number - 2
    assert len(order._recent) == 3
    assert order.written_since(9_750) == 98, "of those that are needed it knows"
    for number in range(97, 100):
        order.gone(*[np.array([number])] * 2)
    assert order.oldest_needed is None
    assert not order._recent


def test_windows_are_written_before_recovery_would_take_too_long():
    objective = within_100_ms()
    assert not objective.is_due(ExtentSize(10_000, 10_000, 5))  # 10 ms and 25 ms
    assert objective.is_due(ExtentSize(40_000, 10_000, 5))
    assert objective.is_due(ExtentSize(0, 30_000, 5))
    assert objective.shortfall(ExtentSize(40_000, 10_000, 5)) == ""


def test_the_bound_of_the_extent_counts_without_an_objective():
    objective = RecoveryObjective(1000)
    assert not objective.is_due(ExtentSize(400, 1, 5))
    assert objective.is_due(ExtentSize(600, 0, 5))
    assert objective.is_due(ExtentSize(0, 1_000, 5)), "upstream has to keep the tuples"
    assert objective.shortfall(ExtentSize(10**9, 10**9, 5)) == ""


def test_what_cannot_be_met_is_said_with_the_reason_and_a_cure():
    objective = within_100_ms()
    said = objective.shortfall(ExtentSize(50_000, 50_000, 5))
    assert "175 ms, not 100" in said
    assert "50000 tuples" in said
    assert "share=" in said


def test_what_a_replacement_takes_before_it_reads_counts():
    objective = within_100_ms(replace(SLOW_LOG, fixed_us=60_000))
    extent = ExtentSize(0, 15_000, 5)
    assert objective.predicted_us(extent) == 97_500
    assert objective.is_due(extent), "more than half of what is left"
    assert not objective.is_due(ExtentSize(0, 7_000, 5)), "less than half of it"
    assert "112 ms, not 100: 60 ms until a process is there" in objective.shortfall(
        ExtentSize(0, 21_000, 5)
    )
    objective.learn(replace(SLOW_LOG, fixed_us=120_000))
    said = objective.shortfall(ExtentSize(0, 0, 0))
    assert "120 ms, not 100" in said
    assert "ActiveStandby" in said


def test_reading_what_has_not_changed_takes_a_part_of_what_is_left_of_the_time():
    assert within_100_ms().rest_bytes == 12_500
    assert within_100_ms(replace(SLOW_LOG, fixed_us=60_000)).rest_bytes == 5_000
    assert within_100_ms(replace(SLOW_LOG, fixed_us=120_000)).rest_bytes == 0


def test_what_will_not_be_met_is_said_before() -> None:
    objective = within_100_ms()
    extent = ExtentSize(10_000, 30_000, 5_000)
    for _ in range(100):
        objective.learn_rates(tuples_per_s=10_000, windows_per_s=1_000)
    assert "135 ms, not 100" in objective.shortfall(extent), "in 5 s 50,000 tuples come"
    objective.learn_rates(tuples_per_s=10_000, windows_per_s=10_000)
    assert objective.shortfall(extent) == ""
    objective.learn_rates(tuples_per_s=10_000, windows_per_s=10)
    assert objective.shortfall(ExtentSize(0, 20_000, 5_000)) == "", "windows close by themselves"


def test_the_cost_of_a_tuple_is_learned_from_the_passes():
    objective = within_100_ms(RecoveryCosts(tuple_us=1.0))
    for _ in range(100):
        objective.learn(RecoveryCosts(tuple_us=5.0))
    foretold_us = objective.predicted_us(ExtentSize(0, 1000, 1))
    assert foretold_us == pytest.approx(5000 * REPLAY_FACTOR, rel=0.01)
    around = Surroundings()
    assert around.footprint_replay == REPLAY_FACTOR, "the adviser foretells the same"
    assert around.footprint_share == 0.05 / COLD, "as does a share of a twentieth"


def test_a_node_that_has_replayed_knows_what_that_takes_and_foretells_a_quarter_more():
    objective = within_100_ms(RecoveryCosts(tuple_us=1.0, replayed_us=4.0))
    assert objective.predicted_us(ExtentSize(0, 1000, 1)) == 5000
    objective.learn(RecoveryCosts(replayed_us=4.0))
    assert objective.predicted_us(ExtentSize(0, 1000, 1)) == 5000
    for _ in range(100):
        objective.learn(RecoveryCosts(tuple_us=9.0, replayed_us=4.0))
    foretold_us = objective.predicted_us(ExtentSize(0, 1000, 1))
    assert foretold_us == pytest.approx(11250, rel=0.01), "passes are slower than the replay was"


def test_windows_that_are_read_back_take_their_time():
    objective = within_100_ms(replace(SLOW_LOG, footprint_us=10.0))
    assert objective.predicted_us(ExtentSize(1_000, 0, 5_000)) == 51_000
    assert objective.is_due(ExtentSize(1_000, 0, 5_000))
    assert "110 ms to read 10000 footprints" in objective.shortfall(ExtentSize(10_000, 0, 10_000))


def test_background_work_keeps_to_its_share_of_the_time():
    pacer, written_us, worked_us = Pacer(0.02), 0.0, 0.0
    for _ in range(100_000):
        pacer.worked(100)
        worked_us += 100
        if some := pacer.windows:
            took_us = 3.0 * some
            assert took_us < 2 * AT_ONCE_US or written_us < 5000  # It learns what one takes.
            pacer.wrote(some, took_us)
            pacer.worked(took_us)
            written_us += took_us
    taken = written_us * COLD / (written_us + worked_us)
    assert 0.018 < taken < 0.021, "with what passes lose behind it"


@pytest.mark.parametrize(("taking_us", "record_us"), [(6.0, 1.0), (1.0, 6.0)])
def test_pieces_in_two_parts_are_as_long_as_the_longer_part_and_cost_both(
    taking_us: float, record_us: float
):
    pacer, size, spent_us, worked_us = Pacer(0.02), 0, 0.0, 0.0
    while worked_us < 60e6:
        pacer.worked(1_000)
        worked_us += 1_000
        if some := pacer.windows:
            size = some
            pacer.wrote(size, record_us * size, taking_us * size)
            spent_us += (taking_us + record_us) * size
    assert size == pytest.approx(AT_ONCE_US / 6.0, rel=0.3)
    assert 0.018 < spent_us * COLD / (spent_us + worked_us) < 0.021


def spent(share: float, mark_us: float, *, windows_each: bool = True) -> tuple[float, float]:
    """Parts of a busy minute that marks and windows take, of a node with points every 50 ms."""
    pacer, now_us, marked_us, marks_us, written_us = Pacer(share), 0.0, 0.0, 0.0, 0.0
    while now_us < 60e6:
        took_us = 2_000.0  # A pass.
        if now_us - marked_us >= 1000 * max(50, pacer.marks_apart_ms):
            pacer.marked(mark_us)
            marked_us, marks_us, took_us = now_us, marks_us + mark_us, took_us + mark_us
        if windows_each and (some := pacer.windows):
            piece_us = 40 + 6.0 * some
            pacer.wrote(some, piece_us)
            written_us, took_us = written_us + piece_us, took_us + piece_us
        pacer.worked(took_us)
        now_us += took_us
    return marks_us / now_us, written_us / now_us


@pytest.mark.parametrize("mark_us", [30.0, 500.0, 1_500.0, 6_000.0])
@pytest.mark.parametrize("share", [0.01, 0.02, 0.05, 0.2])
def test_throughput_is_never_below_what_the_share_promises_whatever_points_cost(
    share: float, mark_us: float
):
    marks, written = spent(share, mark_us)
    taken, last = COLD * (marks + written), COLD * (mark_us + 2 * AT_ONCE_US) / 60e6
    assert taken <= share + last
    assert COLD * marks <= 0.51 * share, "some is left that moves T"
    assert COLD * written > 0.45 * share


def test_points_are_as_often_as_they_may_where_they_cost_little_and_never_too_seldom():
    pacer = Pacer(0.02)
    assert pacer.marks_apart_ms == 0
    pacer.marked(200)
    assert pacer.marks_apart_ms == int(20 * COLD - 0.5), "a hundredth, with what passes lose"
    pacer = Pacer(0.0001)
    pacer.marked(50_000)
    assert pacer.marks_apart_ms == MARKS_APART_MAX_MS


def test_who_was_stopped_in_a_piece_writes_again_before_long():
    pacer = Pacer(0.02)
    pacer.wrote(4, 3600e6)
    pacer.worked(6e6)
    assert pacer.windows


def test_after_an_hour_of_leisure_it_does_not_take_a_minute():
    pacer = Pacer(0.05)
    pacer.worked(3600e6)
    written_us = 0.0
    while some := pacer.windows:
        pacer.wrote(some, float(AT_ONCE_US))
        written_us += AT_ONCE_US
    assert written_us < 25_000


def pieces(cost_us: Callable[[int], float], count: int = 3_000) -> list[tuple[int, float]]:
    """Sizes and durations, one piece after the other."""
    pacer, found = Pacer(0.05), []
    while len(found) < count:
        pacer.worked(1_000)
        if some := pacer.windows:
            found.append((some, cost_us(some)))
            pacer.wrote(*found[-1])
    return found


@pytest.mark.parametrize(("record_us", "each_us"), [(0, 1), (100, 3), (300, 20), (450, 0.2)])
def test_pieces_take_as_long_as_they_should_whatever_records_and_footprints_cost(
    record_us: float, each_us: float
):
    rng = random.Random(3)
    found = pieces(lambda n: (record_us + each_us * n) * rng.lognormvariate(0, 0.2))[200:]
    took = sorted(took_us for _, took_us in found)
    assert 250 < took[len(took) // 2] < 600
    assert took[len(took) * 99 // 100] < 1_050


def test_where_many_pieces_are_late_all_are_made_smaller():
    rng = random.Random(3)
    found = pieces(lambda n: (50 + 3 * n) * rng.choice([1, 1, 1, 4]))[200:]
    took = sorted(took_us for _, took_us in found)
    assert took[len(took) * 99 // 100] < 1_200
    assert took[len(took) // 2] > 140


def test_small_generations_do_not_make_the_first_piece_of_a_large_one_long():
    pacer = Pacer(1.0)
    for _ in range(1_000):
        pacer.worked(10_000)
        pacer.wrote(5, 20 + 5 * 5.0)
    assert 20 + 5.0 * pacer.windows < 1_000


@pytest.mark.parametrize("each_us", [0.5, 8.0, 60.0, 180.0])
def test_no_piece_is_long_from_the_first_one_on(each_us: float):
    """Not even where the first records take three times as long as later ones."""
    found: list[tuple[int, float]] = []

    def cost_us(some: int) -> float:
        found.append((some, (100 + each_us * some) * (3 if len(found) < 3 and some < 32 else 1)))
        return found[-1][1]

    pieces(cost_us, 500)
    assert max(took_us for _, took_us in found[3:]) <= STANDSTILL_US
    assert found[0][0] == 4


def test_a_slow_first_piece_is_not_taken_for_what_footprints_cost():
    first = iter([2_000.0])
    found = pieces(lambda n: next(first, 40 + 2.0 * n), 300)
    assert found[-1][0] > 150


def test_no_piece_has_more_than_twice_the_windows_of_the_largest_of_late():
    pacer = Pacer(1.0)
    for size in (4, 8, 5, 5, 5):
        pacer.worked(10_000)
        pacer.wrote(size, 1.0)  # Few windows cost nothing, it seems.
    assert pacer.windows <= 16


def test_what_marks_take_is_not_there_for_windows():
    pacer = Pacer(0.05)
    for _ in range(200):
        pacer.worked(100_000)
        pacer.marked(2_000)
        some = pacer.windows
        pacer.wrote(some, 10.0 * some)
    assert pacer.windows_per_s == pytest.approx(1_667, rel=0.01)


def test_where_a_record_alone_takes_too_long_footprints_still_have_a_part_of_it():
    found = pieces(lambda n: 1_500 + 0.5 * n)[200:]
    assert all(some > 400 for some, _ in found)
    assert all(took_us < 2_000 for _, took_us in found)


def test_a_share_of_the_time_is_enough_for_as_many_footprints_as_it_was():
    pacer = Pacer(0.05)
    for _ in range(200):
        pacer.worked(100_000)
        some = pacer.windows
        pacer.wrote(some, 10.0 * some)
    assert pacer.windows_per_s == pytest.approx(5_000 / COLD, rel=0.01)
