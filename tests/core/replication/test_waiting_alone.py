"""Nodes that wait for their own bound before they go on with what is tentative. [DPC §5.2]"""

from __future__ import annotations

import pytest

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.replication.consistency_manager import (
    PATIENCE,
    Action,
    Consistency,
    ConsistencyManager,
    Event,
    Step,
)
from holdfast.core.replication.input_delay import DuringFailure, InputDelay
from holdfast.core.replication.turns import Turn
from holdfast.core.replication.waiting_alone import OwnWait, WaitingFollower

BOUND_MS = 100
PROCESS, DELAY, SUSPEND = DuringFailure.PROCESS, DuringFailure.DELAY, DuringFailure.SUSPEND


def waiting(during: DuringFailure = PROCESS, turn: Turn | None = None) -> WaitingFollower:
    """One whose stream has promised 10 at 1,000 ms, as stable."""
    node = WaitingFollower(turn, BOUND_MS, during)
    node.resume(0, 900)
    node.promised(10, 1_000, is_full=False)
    node.waits(stable=True, tentative=False)
    step = node.next_step(1_000)
    assert step == Step(None, None, END_US)
    node.did(step, 10, 1_000)
    node.waits(stable=False, tentative=False)
    return node


def came(node: WaitingFollower, at_ms: int) -> None:
    node.waits_since(at_ms)
    node.waits(stable=False, tentative=True)


def do(node: WaitingFollower, boundary_us: int | None, now_ms: int) -> Action | None:
    step = node.next_step(now_ms)
    assert step is not None
    node.did(step, boundary_us, now_ms)
    return step.action


def failed(turn: Turn | None = None, during: DuringFailure = PROCESS) -> WaitingFollower:
    """One that has processed what is older than 50 as tentative, at 1,200 ms."""
    node = waiting(during, turn)
    came(node, 1_050)
    assert do(node, 50, 1_200) is Action.HOLD_CUT
    node.waits_since(None)
    node.waits(stable=False, tentative=False)
    return node


def test_it_waits_from_when_the_stream_last_promised_and_then_no_more() -> None:
    """Other nodes of the chain have waited in the same time."""
    node = waiting()
    came(node, 1_050)
    assert node.next_step(1_099) is None
    assert node.due_ms() == 1_100
    assert do(node, 50, 1_100) is Action.HOLD_CUT
    assert node.statistics().delay_max_ms == 50
    came(node, 1_130)
    assert node.next_step(1_130) == Step(None, None, BEGINNING_US, True), "it has waited"


def test_what_comes_after_the_wait_of_those_before_it_is_taken_at_once() -> None:
    node = waiting()
    came(node, 1_102)
    assert do(node, 50, 1_102) is Action.HOLD_CUT


def test_who_delays_holds_each_for_the_bound() -> None:
    node = waiting(DELAY)
    came(node, 1_050)
    assert node.next_step(1_149) is None
    assert node.came_until_ms(1_150) == 1_050
    assert do(node, 50, 1_150) is Action.HOLD_CUT
    came(node, 1_130)
    assert node.next_step(1_229) is None
    assert node.due_ms() == 1_230
    assert node.next_step(1_230) is not None


def test_who_suspends_takes_nothing_that_is_tentative() -> None:
    node = waiting(SUSPEND)
    came(node, 1_050)
    assert node.next_step(1_000_000) is None
    assert node.due_ms() is None


def test_what_is_void_before_the_bound_is_over_leaves_the_node_stable() -> None:
    node = waiting()
    came(node, 1_050)
    node.undone()
    node.waits_since(None)
    node.promised(60, 1_090, is_full=False)
    node.waits(stable=True, tentative=False)
    assert do(node, 60, 1_090) is None
    assert node.state is Consistency.STABLE
    assert node.statistics().failures == 0


def test_it_goes_back_when_all_that_was_tentative_is_promised_as_stable() -> None:
    node = failed()
    node.undone()
    node.promised(49, 1_300, is_full=False)
    node.waits(stable=True, tentative=False)
    assert node.next_step(1_300) is None, "a part is there"
    node.promised(50, 1_310, is_full=False)
    assert do(node, None, 1_310) is Action.GO_BACK
    assert do(node, 50, 1_310) is None
    node.waits(stable=False, tentative=False)
    assert do(node, None, 1_310) is Action.SAY_DONE
    assert node.state is Consistency.STABLE


@pytest.mark.parametrize("is_full", [False, True])
def test_it_corrects_a_part_when_no_more_can_come_or_none_has_for_long(is_full: bool) -> None:
    node = failed()
    node.promised(20, 1_300, is_full=is_full)
    node.waits(stable=True, tentative=False)
    from_ms = 1_300
    if not is_full:
        assert node.next_step(from_ms) is None
        from_ms += PATIENCE * BOUND_MS
        assert node.due_ms() == from_ms
    step = node.next_step(from_ms)
    assert step == Step(Event.OVERDUE, Action.GO_BACK)
    node.did(step, None, from_ms)
    assert do(node, 20, from_ms) is None
    assert node.state is Consistency.STABILIZATION, "50 has not been promised"


def test_it_goes_on_as_it_is_until_it_has_a_turn() -> None:
    node = failed(Turn(is_needed=True))
    node.promised(50, 1_300, is_full=False)
    came(node, 1_300)
    assert node.next_step(1_300) == Step(None, None, BEGINNING_US, True)
    assert node.turn.is_waiting
    assert node.turn.granted(node.turn.asking)
    assert do(node, None, 1_310) is Action.GO_BACK


def merging(own: OwnWait | None) -> ConsistencyManager:
    """Two streams, which have promised 10 at 1,000 ms; nothing waits."""
    delay = InputDelay(2, BOUND_MS, PROCESS)
    manager = ConsistencyManager(2, delay, own_wait=own)
    manager.resume(0, 900)
    manager.came([(0, 10), (1, 10)], 5, 1_000)
    step = manager.next_step(1_000)
    assert step is not None
    manager.did(step, 10, 1_000)
    return manager


def test_who_merges_does_not_go_on_with_tentative_tuples_before_its_own_bound() -> None:
    for own, begins_ms in ((None, 1_050), (OwnWait(2, BOUND_MS), 1_100)):
        manager = merging(own)
        manager.delay.arrived(30, 1_050)
        for stream in (0, 1):
            manager.promised_tentative(stream, 40, 1_050)
        steps = (manager.next_step(now_ms) for now_ms in range(1_050, begins_ms))
        assert not any(steps)
        if own is not None:
            assert manager.due_ms() == 1_100
        step = manager.next_step(begins_ms)
        assert step is not None
        assert (step.action, step.is_tentative) == (Action.HOLD_CUT, True)


def test_who_merges_waits_no_longer_than_its_bound_for_what_may_become_stable() -> None:
    """A stable stream waits for one that others say is tentative, and keeps promising more."""
    manager = merging(OwnWait(2, BOUND_MS))
    manager.came([(0, 20)], 15, 1_010)
    manager.promised_tentative(1, 40, 1_020)
    manager.promised(1, 12, 1_090)
    step = manager.next_step(1_090)
    assert step is not None
    assert not step.is_tentative
    manager.did(step, 12, 1_090)
    assert manager.next_step(1_109) is None, "stream 1 has promised more at 1,090"
    step = manager.next_step(1_110)
    assert step is not None
    assert (step.boundary_us, step.is_tentative) == (20, True)
