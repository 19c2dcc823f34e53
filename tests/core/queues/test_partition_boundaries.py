"""How far event time has come in several partitions."""

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.queues.idle_floor import Reached
from holdfast.core.queues.partition_boundaries import PartitionBoundaries


def of(
    *partitions: int, delay_us: int = 0, idle_ms: int | None = 100, is_sole: bool = True
) -> PartitionBoundaries:
    return PartitionBoundaries(partitions, delay_us=delay_us, idle_ms=idle_ms, is_sole=is_sole)


def idle(boundaries: PartitionBoundaries, *partitions: int) -> None:
    for partition in partitions:
        boundaries.reached_end(partition, 0)
        boundaries.set_idle(partition)


def test_the_boundary_is_that_of_the_slowest_partition_less_the_delay() -> None:
    boundaries = of(0, 1, delay_us=10)
    boundaries.received(0, 100)
    assert boundaries.advance() == BEGINNING_US
    boundaries.received(1, 60)
    assert boundaries.advance() == 50
    boundaries.received(1, 500)
    assert boundaries.advance() == 90


def test_the_boundary_never_moves_back() -> None:
    boundaries = of(0, 1)
    boundaries.received(0, 100)
    boundaries.reached_end(1, 0)
    assert boundaries.quiet(100) == [1]
    boundaries.set_idle(1)
    assert boundaries.advance() == 100
    boundaries.received(1, 30)
    assert boundaries.advance() == 100


def test_a_partition_is_quiet_only_after_the_whole_time_at_its_end() -> None:
    boundaries = of(0, 1)
    boundaries.received(0, 100)
    assert boundaries.quiet(10_000) == []  # Nothing is known of the end of either.
    boundaries.reached_end(1, 1_000)
    boundaries.reached_end(1, 1_050)  # Said again.
    assert boundaries.quiet(1_099) == []
    assert boundaries.quiet(1_100) == [1]


def test_a_record_ends_idleness() -> None:
    boundaries = of(0, 1)
    boundaries.received(0, 100)
    boundaries.reached_end(1, 0)
    boundaries.set_idle(1)
    boundaries.received(1, 150)
    boundaries.received(0, 300)
    assert boundaries.advance() == 150
    assert boundaries.quiet(10_000) == []


def test_what_was_away_has_its_whole_time_again() -> None:
    boundaries = of(0)
    boundaries.received(0, 100)
    boundaries.reached_end(0, 0)
    boundaries.resumed(90)
    assert boundaries.quiet(150) == []
    assert boundaries.quiet(190) == [0]


def test_behind_a_pause_nothing_is_idle_until_it_has_been_looked_at_for_the_whole_time() -> None:
    boundaries = of(0, 1)
    boundaries.received(0, 100)
    idle(boundaries, 1)
    assert boundaries.advance() == 100
    for now_ms in (0, 1_000, 2_000):
        boundaries.looked(now_ms)
    boundaries.received(0, 200)
    assert boundaries.advance() == 200
    boundaries.looked(3_001)
    boundaries.received(0, 300)
    assert boundaries.advance() == 200, "partition 1 may hold records that nobody has seen"
    assert boundaries.quiet(3_100) == []
    assert boundaries.quiet(3_101) == [1]


def test_an_instance_of_several_goes_by_what_it_is_told_while_all_are_idle() -> None:
    boundaries = of(0, 1, is_sole=False)
    boundaries.received(0, 500)
    boundaries.received(1, 60)
    boundaries.told(300)
    assert boundaries.advance() == 60
    idle(boundaries, 1)
    assert boundaries.advance() == 500
    idle(boundaries, 0)
    boundaries.told(700)
    assert boundaries.advance() == 700
    boundaries.received(1, 710)
    boundaries.told(900)
    assert boundaries.advance() == 710
    boundaries.told(800)
    idle(boundaries, 1)
    assert boundaries.advance() == 800


def test_without_a_word_an_idle_instance_of_several_stays_where_it_is() -> None:
    boundaries = of(0, is_sole=False)
    idle(boundaries, 0)
    assert boundaries.advance() == BEGINNING_US
    assert boundaries.reached(BEGINNING_US) == Reached(BEGINNING_US, BEGINNING_US, is_idle=True)


def test_it_says_how_far_it_is() -> None:
    boundaries = of(0, 1, delay_us=10)
    boundaries.received(0, 100)
    assert boundaries.reached(70) == Reached(70, 90, is_idle=False)
    idle(boundaries, 0)
    assert not boundaries.reached(70).is_idle
    boundaries.ended(1)
    assert boundaries.reached(70) == Reached(70, 90, is_idle=True)
    boundaries.ended(0)
    assert not boundaries.reached(70).is_idle, "what has ended does not wait"


def test_it_names_the_partitions_that_hold_up_time() -> None:
    boundaries = of(0, 1, 2, 3)
    assert boundaries.slowest() == ([0, 1, 2, 3], False)
    boundaries.received(0, 100)
    assert boundaries.slowest() == ([1, 2, 3], True)
    boundaries.received(3, 70)
    idle(boundaries, 1)
    assert boundaries.slowest() == ([2], True)
    boundaries.ended(2)
    assert boundaries.slowest() == ([3], True)
    boundaries.received(3, 100)
    assert boundaries.slowest() == ([0, 3], False)
    idle(boundaries, 0, 3)
    assert boundaries.slowest() == ([], False)


def test_if_all_are_idle_time_is_that_of_the_furthest() -> None:
    boundaries = of(0, 1)
    boundaries.received(0, 100)
    boundaries.received(1, 60)
    for partition in (0, 1):
        boundaries.reached_end(partition, 0)
        boundaries.set_idle(partition)
    assert boundaries.advance() == 100


def test_without_a_time_partitions_are_never_idle() -> None:
    boundaries = of(0, idle_ms=None)
    boundaries.reached_end(0, 0)
    assert boundaries.quiet(10**9) == []


def test_partitions_that_have_ended_hold_nothing_up() -> None:
    boundaries = of(0, 1)
    boundaries.received(0, 100)
    boundaries.ended(1)
    assert boundaries.advance() == 100
    boundaries.ended(0)
    assert boundaries.advance() == END_US


def test_it_goes_on_where_a_log_ends() -> None:
    boundaries = PartitionBoundaries(
        (0, 1), delay_us=0, idle_ms=None, boundary_us=70, newest_us={0: 100, 1: 50}
    )
    assert boundaries.advance() == 70
    assert boundaries.newest_us(1) == 50
    boundaries.received(1, 80)
    assert boundaries.advance() == 80


def test_a_record_of_a_broken_clock_moves_no_time_of_its_partition() -> None:
    boundaries = PartitionBoundaries([0], delay_us=5, idle_ms=None, ahead_us=1_000)
    boundaries.received_spans(0, [(90, 100, 7), (10**15, 10**15, 1)], now_us=80)
    assert (boundaries.advance(), boundaries.tuples_beyond) == (95, 1)
    boundaries.received_spans(0, [(10**15, 10**15, 1)], now_us=200)
    assert (boundaries.advance(), boundaries.newest_us(0)) == (95, 100)
