"""What an idle instance may promise."""

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.queues.idle_floor import Reached, idle_floor_us

IDLE = Reached(BEGINNING_US, BEGINNING_US, is_idle=True)


def busy(boundary_us: int, furthest_us: int = 10**6) -> Reached:
    return Reached(boundary_us, furthest_us, is_idle=False)


def test_the_floor_is_the_slowest_of_those_that_are_not_idle() -> None:
    assert idle_floor_us([busy(100), IDLE, busy(70), IDLE]) == 70
    assert idle_floor_us([busy(100), Reached(30, 40, is_idle=True)]) == 100


def test_if_all_are_idle_the_floor_is_where_the_furthest_is() -> None:
    assert idle_floor_us([IDLE, Reached(30, 80, is_idle=True), Reached(60, 60, is_idle=True)]) == 80
    assert idle_floor_us([IDLE, IDLE]) == BEGINNING_US


def test_one_of_which_nothing_is_known_holds_all_up() -> None:
    assert idle_floor_us([busy(100), None, IDLE]) == BEGINNING_US
    assert idle_floor_us([]) == BEGINNING_US


def test_one_that_has_ended_counts_only_by_what_it_has_read() -> None:
    assert idle_floor_us([busy(END_US, 90), IDLE]) == 90
    assert idle_floor_us([busy(END_US, 90), IDLE, busy(50)]) == 50
