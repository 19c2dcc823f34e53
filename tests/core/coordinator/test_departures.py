"""Executors that leave politely: a node is elsewhere before its task is ended. [HA §4.2]"""

from dataclasses import replace

from test_coordinator import A, Driver, kinds, plan

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.replica import NodeState
from holdfast.core.haunit.plan import Standby


def launches(effects: list) -> list[int]:
    return [effect.launch for effect in effects if isinstance(effect, c.LaunchTask)]


def leave(driver: Driver, *numbers: int) -> list:
    return driver.step(c.TasksLeaving(tuple((A, number) for number in numbers)))


def primary(driver: Driver) -> int:
    return driver.machine.instance(A).primary.launch


def test_a_node_works_on_until_its_relief_is_there() -> None:
    driver = Driver()
    first = driver.up("t1")
    assert launches(leave(driver, 1)) == [2]
    assert launches(leave(driver, 1)) == [], "its relief is on its way"
    assert driver.machine.instance(A).counts(first)
    effects = driver.hello("t2")
    assert [e.task for e in effects if isinstance(e, c.EndTask)] == ["t1"]
    assert "SendAssignment" in kinds(effects)
    assert not driver.machine.instance(A).counts(first)
    assert "ReportFailure" not in kinds(driver.effects)
    assert leave(driver, 1) == [], "nothing of it runs there any more"
    assert driver.step(c.TaskEnded(A, 1, "its task ended")) == []


def test_a_move_is_no_failure_however_often_it_happens() -> None:
    driver = Driver()
    driver.up("t1")
    for number in range(1, 9):
        leave(driver, number)
        driver.up(f"t{number + 1}")
    assert "FailQuery" not in kinds(driver.effects)
    assert driver.machine.failures == 0


def test_a_node_that_is_lost_meanwhile_is_replaced_by_its_relief() -> None:
    driver = Driver()
    driver.up("t1")
    leave(driver, 1)
    effects = driver.step(c.TaskEnded(A, 1, "its executor is gone"))
    assert "ReportFailure" in kinds(effects)
    assert launches(effects) == [], "its relief is on its way"
    assert "SendAssignment" in kinds(driver.hello("t2"))


def test_a_relief_that_ends_before_it_has_come_up_is_launched_again() -> None:
    driver = Driver()
    first = driver.up("t1")
    leave(driver, 1)
    assert driver.step(c.TaskEnded(A, 2, "no executor took it")) == []
    assert driver.machine.instance(A).counts(first)
    assert launches(leave(driver, 1)) == [3]


def test_a_node_started_again_where_it_was_still_gets_its_relief() -> None:
    driver = Driver()
    driver.up("t1")
    leave(driver, 1)
    driver.step(c.HelloReceived(A, 1, "t1-again", "ipc://x", former="killed"))
    assert driver.machine.instance(A).primary.task == "t1-again"
    driver.hello("t2")
    assert driver.machine.instance(A).primary.task == "t2"


def test_a_node_that_has_yet_to_come_up_is_asked_for_again() -> None:
    driver = Driver()
    assert leave(driver, 1) == []
    driver.up("t1")
    assert launches(leave(driver, 1)) == [2]


def replicated(standby: Standby) -> Driver:
    """A primary of launch 1 and a secondary of launch 2, both at work."""
    driver = Driver(replace(plan(), standby=standby))
    for launch, task in ((1, "t1"), (2, "t2")):
        driver.step(c.HelloReceived(A, launch, task, "ipc://x", host=f"machine {launch}"))
    return driver


def test_a_primary_hands_over_to_a_secondary_that_is_ready() -> None:
    driver = replicated(Standby.ACTIVE)
    assert leave(driver, 1) == [], "it has not caught up, and there is time"
    secondary = driver.machine.instance(A).secondaries[0]
    driver.step(c.KeepAliveReceived(A, secondary.incarnation, {}, has_joined=True))
    driver.step(c.NodeCaughtUp(A, secondary.incarnation, 0))
    assert "SendPromotion" in kinds(leave(driver, 1))
    assert driver.machine.instance(A).primary is secondary
    assert primary(driver) == 2


def test_a_relief_of_a_primary_that_has_handed_over_meanwhile_is_not_needed() -> None:
    driver = Driver(replace(plan(), standby=Standby.ACTIVE))
    driver.step(c.HelloReceived(A, 1, "t1", "ipc://x", host="machine 1"))
    assert launches(leave(driver, 1)) == [3], "its secondary has not come up"
    driver.step(c.HelloReceived(A, 2, "t2", "ipc://x", host="machine 2"))
    secondary = driver.machine.instance(A).secondaries[0]
    driver.step(c.KeepAliveReceived(A, secondary.incarnation, {}, has_joined=True))
    driver.step(c.NodeCaughtUp(A, secondary.incarnation, 0))
    driver.step(c.HandoverWanted(A, "t1"))
    assert driver.machine.instance(A).primary is secondary
    assert driver.step(c.HelloReceived(A, 3, "t3", "ipc://x", host="machine 3")) == []
    assert not driver.machine.instance(A).expects(3)


def test_a_secondary_goes_elsewhere() -> None:
    driver = replicated(Standby.PASSIVE)
    effects = leave(driver, 2)
    assert launches(effects) == [3]
    assert [e.task for e in effects if isinstance(e, c.EndTask)] == ["t2"]
    assert "ReportFailure" not in kinds(effects)
    assert driver.machine.instance(A).primary.state is NodeState.RUNNING
    assert driver.machine.instance(A).primary.task == "t1"
