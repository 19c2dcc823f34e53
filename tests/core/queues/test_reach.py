"""Which tuples move the time of their stream."""

import numpy as np
import pytest

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import EARLIEST_US, LATEST_US
from holdfast.core.queues.reach import JUMP_TUPLES, Reach, Span, spans_of

NOW = 1_700_000_000_000_000
AHEAD = 1_000


def admit(reach: Reach, times: list[int], now_us: int = NOW) -> int | None:
    return reach.admit(spans_of(np.array(times, np.int64), AHEAD, now_us), now_us)


def test_one_tuple_of_a_broken_clock_does_not_move_time() -> None:
    reach = Reach(AHEAD)
    assert admit(reach, [NOW - 50, NOW - 40]) is None
    bound_us = admit(reach, [NOW - 30, LATEST_US, NOW - 20])
    assert bound_us == LATEST_US - 1
    assert (reach.newest_us, reach.tuples_beyond) == (NOW - 20, 1)
    assert admit(reach, [LATEST_US]) == LATEST_US - 1
    assert (reach.newest_us, reach.tuples_beyond) == (NOW - 20, 2)


def test_it_may_come_first_or_with_the_first() -> None:
    reach = Reach(AHEAD)
    assert admit(reach, [LATEST_US, NOW]) == LATEST_US - 1
    assert reach.newest_us == NOW


def test_whatever_is_not_ahead_of_the_clock_moves_time() -> None:
    reach = Reach(AHEAD, 5)
    assert admit(reach, [NOW + AHEAD]) is None
    assert reach.newest_us == NOW + AHEAD


def test_a_stream_ahead_of_the_clock_goes_on_in_steps() -> None:
    reach = Reach(AHEAD)
    for first in range(NOW * 2, NOW * 2 + 40 * AHEAD, 2 * AHEAD):
        assert admit(reach, [first, first + AHEAD, first + 2 * AHEAD]) is None
    assert reach.tuples_beyond == 0


def test_a_stream_that_has_jumped_for_good_is_followed() -> None:
    reach = Reach(AHEAD, NOW)
    for number in range(JUMP_TUPLES - 1):
        assert admit(reach, [NOW * 2 + number]) == NOW * 2 + number - 1
    assert admit(reach, [NOW * 2]) is None
    assert reach.newest_us == NOW * 2


def test_tuples_within_reach_between_others_keep_time() -> None:
    reach = Reach(AHEAD, NOW)
    for _ in range(JUMP_TUPLES):
        admit(reach, [LATEST_US])
        admit(reach, [NOW])
    assert reach.newest_us == NOW
    assert reach.tuples_beyond == JUMP_TUPLES


def test_without_a_bound_every_tuple_moves_time() -> None:
    reach = Reach(None)
    assert reach.admit([(1, LATEST_US, 2)], NOW) is None
    assert reach.newest_us == LATEST_US
    assert reach.believes(LATEST_US, NOW)


@pytest.mark.parametrize("now_us", [BEGINNING_US, EARLIEST_US, NOW, LATEST_US])
def test_spans_hold_all_tuples_in_order(now_us: int) -> None:
    draw = np.random.default_rng(7)
    times = np.concatenate([draw.integers(EARLIEST_US, LATEST_US, 500), [EARLIEST_US, LATEST_US]])
    spans: list[Span] = spans_of(times, AHEAD, now_us)
    assert sum(count for _, _, count in spans) == len(times)
    assert spans == sorted(spans)
    assert (spans[0][0], spans[-1][1]) == (EARLIEST_US, LATEST_US)


def test_a_watermark_beyond_reach_is_not_believed() -> None:
    reach = Reach(AHEAD, NOW - 5)
    assert reach.believes(NOW + AHEAD, NOW)
    assert not reach.believes(NOW + AHEAD + 1, NOW)
