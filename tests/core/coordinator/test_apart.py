"""Replicas of an instance on different machines, and launches that nothing is heard of. [HA §4]"""

from dataclasses import replace

from test_coordinator import A, Driver, kinds, plan

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.coordinator.replica import NodeState
from holdfast.core.haunit.plan import Standby
from holdfast.core.machine import Effect, TimerFired

TIMEOUT_MS = CoordinatorLimits().launch_timeout_ms


class Replicas(Driver):
    """An instance with two replicas, and machines."""

    def __init__(self, *hosts: str, is_strict: bool = False) -> None:
        super().__init__(replace(plan(), standby=Standby.ACTIVE, is_strict=is_strict))
        self.step(c.HostsKnown(hosts))

    def launches(self, effects: list[Effect] | None = None) -> list[int]:
        made = self.effects if effects is None else effects
        return [e.launch for e in made if isinstance(e, c.LaunchTask)]

    def comes_up(self, launch: int, host: str) -> list[Effect]:
        return self.step(c.HelloReceived(A, launch, f"t{launch}", "tcp://x", host))

    def later(self, ms: int) -> list[Effect]:
        """Time passes; whoever is up says so meanwhile."""
        until_ms, made = self.now_ms + ms, list[Effect]()
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + 100)
            for replica in self.machine.instance(A).replicas:
                if replica.is_up:
                    self.step(c.KeepAliveReceived(A, replica.incarnation, {}))
            made += self.step(TimerFired("check"))
        return made

    @property
    def hosts(self) -> list[str]:
        return [replica.host for replica in self.machine.instance(A).replicas]


def is_assigned(effects: list[Effect]) -> bool:
    return "SendAssignment" in kinds(effects)


def test_a_secondary_that_comes_up_beside_its_primary_is_launched_elsewhere() -> None:
    driver = Replicas("m0", "m1")
    assert is_assigned(driver.comes_up(1, "m0"))
    effects = driver.comes_up(2, "m0")
    assert not is_assigned(effects)
    assert {"EndTask", "LaunchTask"} <= set(kinds(effects))
    assert is_assigned(driver.comes_up(3, "m1"))
    assert driver.hosts == ["m0", "m1"]
    assert not [e for e in driver.effects if isinstance(e, c.ReportFailure)]


def test_whichever_replica_comes_up_second_is_the_one_to_move() -> None:
    driver = Replicas("m0", "m1")
    assert is_assigned(driver.comes_up(2, "m0"))
    assert driver.launches(driver.comes_up(1, "m0")) == [3]


def test_a_single_machine_is_shared() -> None:
    driver = Replicas("m0")
    driver.comes_up(1, "m0")
    assert is_assigned(driver.comes_up(2, "m0"))
    assert driver.machine.instance(A).shares_a_host


def test_a_replica_that_spark_sends_to_the_same_machine_again_and_again_shares_it() -> None:
    driver = Replicas("m0", "m1")
    driver.comes_up(1, "m0")
    for launch in (2, 3, 4):
        assert not is_assigned(driver.comes_up(launch, "m0"))
    assert is_assigned(driver.comes_up(5, "m0"))


def test_a_shared_machine_is_left_as_soon_as_another_has_room() -> None:
    driver = Replicas("m0")
    driver.comes_up(1, "m0")
    driver.comes_up(2, "m0")
    assert "LaunchTask" not in kinds(driver.later(100))
    driver.step(c.HostsKnown(("m0", "m1")))
    effects = driver.later(100)
    assert driver.launches(effects) == [3]
    assert "ReportFailure" not in kinds(effects)
    assert is_assigned(driver.comes_up(3, "m1"))
    assert driver.hosts == ["m0", "m1"]


def test_a_move_that_leads_nowhere_is_not_tried_all_the_time() -> None:
    driver = Replicas("m0")
    driver.comes_up(1, "m0")
    driver.comes_up(2, "m0")
    driver.step(c.HostsKnown(("m0", "m1")))
    assert driver.launches(driver.later(100)) == [3]
    for launch in (3, 4, 5, 6):
        driver.comes_up(launch, "m0")
    assert driver.machine.instance(A).shares_a_host
    assert driver.launches(driver.later(5_000)) == []
    assert driver.launches(driver.later(5_100)) == [7]


def test_a_strict_unit_s_secondary_waits_for_a_machine() -> None:
    driver = Replicas("m0", is_strict=True)
    driver.comes_up(1, "m0")
    effects = driver.comes_up(2, "m0")
    assert kinds(effects) == ["EndTask"]
    assert not driver.machine.instance(A).expects(2)
    assert driver.launches(driver.later(TIMEOUT_MS * 5)) == []
    assert driver.machine.statistics()[A] is NodeState.RUNNING
    driver.step(c.HostsKnown(("m1",)))
    assert driver.launches(driver.later(2_000)) == [3]
    assert is_assigned(driver.comes_up(3, "m1"))


def test_a_waiting_secondary_is_there_when_the_primary_is_lost() -> None:
    driver = Replicas("m0", is_strict=True)
    driver.comes_up(1, "m0")
    driver.comes_up(2, "m0")
    driver.step(c.TaskEnded(A, 1, "its executor was lost"))
    driver.step(c.HostsKnown(("m1",)))
    driver.later(2_000)
    newest = driver.launches()[-1]
    assert is_assigned(driver.comes_up(newest, "m1"))
    assert driver.hosts[0] == "m1"


def test_a_launch_without_a_hello_fails_a_query_that_starts() -> None:
    driver = Driver()
    driver.now_ms = TIMEOUT_MS + 1
    assert "FailQuery" in kinds(driver.step(TimerFired("check")))


def test_a_relaunch_without_a_hello_is_tried_again_and_then_fails_the_query() -> None:
    driver = Driver()
    driver.up("t1")
    driver.step(c.TaskEnded(A, 1, "its executor was lost"))
    for _ in range(2):
        assert "LaunchTask" in kinds(driver.check_until(driver.now_ms + TIMEOUT_MS + 20))
    assert "FailQuery" in kinds(driver.check_until(driver.now_ms + TIMEOUT_MS + 20))


def test_a_secondary_that_does_not_come_up_fails_nothing() -> None:
    driver = Replicas("m0", "m1")
    driver.comes_up(1, "m0")
    for _ in range(5):
        effects = driver.later(TIMEOUT_MS + 1)
        assert "FailQuery" not in kinds(effects)
        assert "LaunchTask" in kinds(effects)


def test_a_failure_names_the_machine() -> None:
    driver = Replicas("m0", "m1")
    driver.comes_up(1, "m0")
    driver.comes_up(2, "m1")
    driver.now_ms += 1_000
    effects = driver.step(TimerFired("check"))
    assert {e.host for e in effects if isinstance(e, c.ReportFailure)} == {"m0", "m1"}


def test_a_task_that_was_sent_away_does_not_take_its_successors_launch() -> None:
    driver = Replicas("m0", "m1")
    driver.comes_up(1, "m0")
    driver.comes_up(2, "m0")
    again = driver.step(c.HelloReceived(A, 3, "t2", "tcp://x", "m0"))  # Its job carries 3 now.
    assert again == []
    assert is_assigned(driver.comes_up(3, "m1"))
