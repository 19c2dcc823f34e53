"""Where a source goes on in its topic."""

import numpy as np
import pytest

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.queues.topic_positions import (
    FROM_THE_FIRST,
    Position,
    Span,
    TopicPositions,
    believed,
    positions_name,
    superseded,
)


def names(*left: tuple[int, int]) -> list[str]:
    return [positions_name(incarnation, end_id) for incarnation, end_id in left]


def test_the_last_positions_of_the_newest_incarnation_are_believed() -> None:
    assert believed([], 10) is None
    assert believed(names((1, 0), (1, 7), (1, 12)), 10) == positions_name(1, 7)
    assert believed(names((1, 10), (1, 12), (2, 10)), 10) == positions_name(2, 10)


def test_what_a_zombie_has_left_since_is_not_believed() -> None:
    assert believed(names((1, 10), (2, 5)), 20) == positions_name(2, 5)
    assert believed(names((1, 3), (2, 15)), 10) is None, "then the log itself is read"


def test_an_incarnation_deletes_what_earlier_ones_have_left() -> None:
    left = names((1, 3), (2, 5), (3, 5))
    assert superseded(left, 2) == names((1, 3))


def test_partitions_go_on_and_others_begin_where_they_were_wanted_to() -> None:
    positions = TopicPositions()
    positions.advance(0, 17, 500)
    positions.advance(0, 12, 700)
    assert positions.of[0] == Position(17, 700)
    span = Span({0: 3, 1: 4}, None)
    assert positions.begin([0, 1, 2], span) == {0: 17, 1: 4, 2: FROM_THE_FIRST}
    again = TopicPositions()
    again.restore(positions.to_json())
    assert again.begin([0, 1, 2], span) == {0: 17, 1: 4, 2: FROM_THE_FIRST}
    again.advance(2, 1)
    assert again.of[2] == Position(1, BEGINNING_US)


def test_late_tuples_are_counted_with_the_positions() -> None:
    positions = TopicPositions()
    positions.restore({"0": [17, 500], "1": [3, 7, 4]})
    assert positions.late_rows == 4, "files of before count none"
    positions.put_aside(np.array([1, 0, 1], np.int32))
    again = TopicPositions()
    again.restore(positions.to_json())
    assert again.of == {0: Position(17, 500, 1), 1: Position(3, 7, 6)}
    assert again.late_rows == 7


@pytest.mark.parametrize("end", [None, {0: 20, 1: 5}])
def test_a_span_is_what_its_file_says(end: dict[int, int] | None) -> None:
    span = Span({0: 10, 1: 0}, end, "id")
    assert Span.from_json(span.to_json()) == span


def test_offsets_are_of_one_topic() -> None:
    span = Span({}, None, "abc")
    assert span.is_of("abc")
    assert not span.is_of("abd")
    assert span.is_of(""), "a broker without ids cannot tell"
    assert Span.from_json({"begin": {}, "end": None}).is_of("abc"), "nor can an older file"
