"""A long pass is no death."""

from __future__ import annotations

import time

import pytest

from holdfast.core.model.users_code import USERS_CODE
from holdfast.shell.spark.loop_watch import LoopWatch

_STALL_S = 10.0


class Loop:
    """A loop whose clocks stand still unless told, and its watch."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now_s = self._computed_s = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self._now_s)
        monkeypatch.setattr(time, "clock_gettime", lambda _: self._computed_s)
        self.watch = LoopWatch(_STALL_S)

    def is_stuck_after(self, seconds: int, *, computing: float = 0.0) -> bool:
        """Whether it is stuck, looked at ten times a second, computing a share of the time."""
        for _ in range(10 * seconds):
            self._now_s += 0.1
            self._computed_s += computing * 0.1
            is_stuck = self.watch.is_stuck()
        return is_stuck


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    """One that has just turned."""
    return Loop(monkeypatch)


def test_a_loop_that_neither_turns_nor_computes_is_stuck(loop: Loop) -> None:
    assert not loop.is_stuck_after(9)
    assert loop.is_stuck_after(2)
    loop.watch.turned()
    assert not loop.is_stuck_after(9)


def test_a_pass_that_computes_lives_and_says_how_long_it_has_taken(loop: Loop) -> None:
    assert not loop.is_stuck_after(120, computing=0.05)
    assert loop.watch.pass_s() == pytest.approx(120)
    assert not loop.is_stuck_after(9)
    assert loop.is_stuck_after(2), "it has stopped computing"


def test_a_function_of_the_users_may_wait_for_an_answer(loop: Loop) -> None:
    with USERS_CODE.of("ask_the_bank"):
        assert not loop.is_stuck_after(120)
    assert not loop.is_stuck_after(9)
    assert loop.is_stuck_after(2), "it has returned, and the loop does nothing"


def test_a_function_that_never_returns_is_stuck(loop: Loop) -> None:
    with USERS_CODE.of("ask_the_bank"):
        assert not loop.is_stuck_after(600)
        assert loop.is_stuck_after(11)


def test_a_pass_that_never_ends_is_stuck_although_it_computes(loop: Loop) -> None:
    assert not loop.is_stuck_after(600, computing=1.0)
    assert loop.is_stuck_after(11, computing=1.0)


def test_who_takes_over_windows_may_wait_for_a_store(loop: Loop) -> None:
    loop.watch.takes_over()
    assert not loop.is_stuck_after(600)
    loop.watch.turned()
    assert loop.is_stuck_after(11)
