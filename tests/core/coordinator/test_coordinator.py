"""The coordinator: assignment, fencing, replacement, durability before action. [HA §4]"""

from dataclasses import replace

import pytest

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.coordinator import Coordinator
from holdfast.core.coordinator.journal_entries import JournalEntry
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.coordinator.replica import Replica
from holdfast.core.haunit.plan import Assignment, NodePlan, Standby
from holdfast.core.machine import Effect, Stimulus, TimerFired
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.recovery.restart_point import RestartPoint

A = NodeId("a[0]")


def plan(node: NodeId = A, *, is_protected: bool = True) -> NodePlan:
    return NodePlan(node, "a", 0, (), 0, (), (), is_protected)


class Driver:
    """Steps a coordinator and answers its journal writes."""

    def __init__(self, *plans: NodePlan, journal: tuple[JournalEntry, ...] = ()) -> None:
        self.journal: list[JournalEntry] = []
        self.now_ms = 0
        self.machine = Coordinator(
            plans or (plan(),), epoch=1, limits=CoordinatorLimits(failures_max=3), journal=journal
        )
        self.effects: list[Effect] = []
        self.step(c.Started())

    def step(self, stimulus: Stimulus, *, journal: bool = True) -> list[Effect]:
        effects = self.machine.step(stimulus, self.now_ms)
        made = list(effects)
        for effect in effects:
            if isinstance(effect, c.WriteJournal) and journal:
                self.journal += effect.entries
                made += self.step(c.JournalWritten(effect.request_id))
        self.machine.check_invariants()
        self.effects += effects
        return made

    def hello(self, task: str, *, journal: bool = True) -> list[Effect]:
        """A task of the newest launch comes up."""
        launch = [e.launch for e in self.effects if isinstance(e, c.LaunchTask)][-1]
        return self.step(c.HelloReceived(A, launch, task, "ipc://x"), journal=journal)

    def up(self, task: str) -> Incarnation:
        effects = self.hello(task)
        (assigned,) = [e for e in effects if isinstance(e, c.SendAssignment)]
        return assigned.assignment.incarnation

    def check_until(self, at_ms: int) -> list[Effect]:
        """Time goes by, and all checks are on time."""
        made: list[Effect] = []
        while self.now_ms < at_ms:
            self.now_ms += 20
            made += self.step(TimerFired("check"))
        return made

    def keep(self, *replicas: Replica) -> None:
        """Replicas say that they live."""
        for replica in replicas:
            self.step(c.KeepAliveReceived(A, replica.incarnation, {}))


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def test_no_assignment_before_the_journal_has_the_incarnation() -> None:
    driver = Driver()
    effects = driver.hello("t1", journal=False)
    assert kinds(effects) == ["WriteJournal"]


def test_three_missed_keep_alives_fence_and_replace() -> None:
    driver = Driver()
    first = driver.up("t1")
    assert "ReportFailure" not in kinds(driver.check_until(300))
    effects = driver.check_until(320)
    assert {"ReportFailure", "EndTask", "LaunchTask"} <= set(kinds(effects))
    assert not driver.machine.instance(A).counts(first)
    assert driver.up("t2") > first


def test_a_coordinator_that_stood_still_first_hears_what_was_said_meanwhile() -> None:
    driver = Driver()
    first = driver.up("t1")
    driver.check_until(100)
    driver.now_ms = 2_000
    assert "ReportFailure" not in kinds(driver.step(TimerFired("check")))
    driver.step(c.KeepAliveReceived(A, first, {}))
    assert "ReportFailure" not in kinds(driver.check_until(2_300))
    assert "ReportFailure" in kinds(driver.check_until(2_320))


def test_a_launch_is_waited_for_without_the_time_that_the_coordinator_stood_still() -> None:
    driver = Driver()
    driver.check_until(10_000)
    driver.now_ms = 50_000
    assert "FailQuery" not in kinds(driver.step(TimerFired("check")))
    assert "FailQuery" not in kinds(driver.check_until(69_800))
    assert "FailQuery" in kinds(driver.check_until(69_900))


def test_a_coordinator_that_is_always_late_finds_the_dead_all_the_same() -> None:
    driver = Driver()
    driver.up("t1")
    made: list[Effect] = []
    for now_ms in (10, 400, 800):
        driver.now_ms = now_ms
        made = driver.step(TimerFired("check"))
    assert "ReportFailure" in kinds(made)


def test_a_replacement_that_spark_started_fences_the_former_one() -> None:
    driver = Driver()
    first = driver.up("t1")
    second = driver.up("t2")
    assert second > first
    assert driver.step(c.RestartPointReceived(A, first, RestartPoint(5))) == []


def test_a_restart_point_counts_once_it_is_durable_and_not_before() -> None:
    driver = Driver()
    incarnation = driver.up("t1")
    point = RestartPoint(1, {"s": 7}, {"s": 9}, 3, {"o": 4})
    asked = driver.step(c.RestartPointReceived(A, incarnation, point), journal=False)
    assert kinds(asked) == ["WriteJournal"]
    (write,) = asked
    assert isinstance(write, c.WriteJournal)
    assert kinds(driver.step(c.JournalWritten(write.request_id))) == ["TellPointStored"]
    effects = driver.hello("t2")
    (assigned,) = [e for e in effects if isinstance(e, c.SendAssignment)]
    assert assigned.assignment.restart_point == point


def test_a_new_life_goes_on_from_the_journal() -> None:
    driver = Driver()
    first = driver.up("t1")
    point = RestartPoint(1, {"s": 7}, {"s": 9}, 3, {"o": 4})
    driver.step(c.RestartPointReceived(A, first, point))
    again = Driver(journal=tuple(driver.journal))
    effects = again.hello("t1")
    (assigned,) = [e for e in effects if isinstance(e, c.SendAssignment)]
    assert assigned.assignment.restart_point == point
    assert assigned.assignment.incarnation > first


def test_a_node_that_keeps_failing_fails_the_query_with_the_last_reason() -> None:
    driver = Driver()
    for launch in range(1, 4):
        effects = driver.step(c.TaskEnded(A, launch, f"poison {launch}"))
    (failed,) = [e for e in effects if isinstance(e, c.FailQuery)]
    assert "poison" in failed.reason
    assert "LaunchTask" not in kinds(effects)


def standby() -> Driver:
    """An instance with two replicas at work: the primary's launch is 1, the secondary's 2."""
    driver = Driver(replace(plan(), standby=Standby.ACTIVE))
    for launch in (1, 2):
        driver.step(c.HelloReceived(A, launch, f"t{launch}", "ipc://x"))
    return driver


def pause_ms(driver: Driver) -> int:
    """The secondary's task ends: how long until it is launched again, while the primary is well."""
    began_ms, instance = driver.now_ms, driver.machine.instance(A)
    launch = instance.launches
    effects = driver.step(c.TaskEnded(A, launch, "poison"))
    assert "FailQuery" not in kinds(effects)
    assert not driver.machine.instance(A).expects(launch)
    while instance.launches == launch:
        driver.keep(instance.primary)
        driver.check_until(driver.now_ms + 20)
    return driver.now_ms - began_ms


def test_a_secondary_that_fails_again_and_again_is_launched_after_longer_pauses() -> None:
    driver = standby()
    pauses_ms = []
    for i in range(9):
        pauses_ms.append(pause_ms(driver))
        driver.up(f"again {i}")
    assert pauses_ms == [0, 100, 300, 700, 1_500, 3_100, 6_300, 6_300, 6_300]


def test_a_secondary_that_does_not_come_up_fails_nothing_and_is_launched_after_pauses() -> None:
    driver = standby()
    assert [pause_ms(driver) for _ in range(5)] == [0, 100, 300, 700, 1_500]


def test_a_secondary_that_has_lived_for_long_is_launched_again_at_once() -> None:
    driver = standby()
    for i in range(3):
        pause_ms(driver)
        driver.up(f"again {i}")
    for _ in range(550):
        driver.keep(*driver.machine.instance(A).replicas)
        driver.check_until(driver.now_ms + 20)
    assert pause_ms(driver) == 0


def test_a_secondary_that_its_task_starts_again_and_again_is_ended_and_waits() -> None:
    driver = standby()
    assert "SendAssignment" in kinds(driver.step(c.HelloReceived(A, 2, "t2b", "ipc://x")))
    effects = driver.step(c.HelloReceived(A, 2, "t2c", "ipc://x"))
    assert c.EndTask(A, "t2c") in effects
    assert not {"SendAssignment", "LaunchTask"} & set(kinds(effects))
    assert driver.step(c.HelloReceived(A, 2, "t2d", "ipc://x")) == []
    assert [r.is_waiting for r in driver.machine.instance(A).replicas] == [False, True]


def test_a_secondary_waits_no_longer_when_the_primary_is_lost() -> None:
    driver = standby()
    for i in range(3):
        pause_ms(driver)
        driver.up(f"again {i}")
    driver.step(c.TaskEnded(A, driver.machine.instance(A).launches, "poison"))
    assert driver.machine.instance(A).awaited_launch is None
    driver.step(c.TaskEnded(A, 1, "killed"))
    primary = driver.machine.instance(A).awaited_launch
    effects = driver.check_until(driver.now_ms + 20)
    (launch,) = [e.launch for e in effects if isinstance(e, c.LaunchTask)]
    assert launch != primary
    driver.step(c.HelloReceived(A, launch, "t9", "ipc://x"))
    assert driver.machine.instance(A).primary.task == "t9", "whoever comes up first"


def test_an_unprotected_node_that_fails_fails_the_query() -> None:
    driver = Driver(plan(is_protected=False))
    driver.up("t1")
    assert "FailQuery" in kinds(driver.step(c.TaskEnded(A, 1, "killed")))


@pytest.mark.parametrize(("is_protected", "limit_ms"), [(True, 300), (False, 2_400)])
def test_silence_is_borne_longer_where_it_ends_the_query(is_protected: bool, limit_ms: int) -> None:
    driver = Driver(plan(is_protected=is_protected))
    driver.up("t1")
    assert not {"FailQuery", "EndTask"} & set(kinds(driver.check_until(limit_ms)))
    ends = {"EndTask"} if is_protected else {"FailQuery"}
    assert ends <= set(kinds(driver.check_until(limit_ms + 400)))


def test_a_recovery_is_reported_in_four_numbers() -> None:
    driver = Driver()
    driver.up("t1")
    driver.now_ms = 100
    driver.step(c.TaskEnded(A, 1, "killed"))
    driver.now_ms = 300
    incarnation = driver.up("t2")
    driver.now_ms = 350
    driver.step(c.NodeCaughtUp(A, incarnation, 42))
    driver.now_ms = 360
    effects = driver.step(c.FirstOutput(A, incarnation))
    assert effects == [c.ReportRecovery(A, 100, 200, 50, 360, 42, was_promoted=False)]


def test_the_query_ends_when_all_nodes_have_finished() -> None:
    driver = Driver()
    incarnation = driver.up("t1")
    assert kinds(driver.step(c.NodeFinished(A, incarnation))) == ["FinishQuery"]


def test_who_handed_over_goes_on_until_the_other_has_had_time_to_take_over() -> None:
    driver = standby()
    primary, secondary = driver.machine.instance(A).replicas
    secondary.has_joined = secondary.has_caught_up = True
    task = str(primary.task)
    effects = driver.step(c.HandoverWanted(A, task))
    assert "SendPromotion" in kinds(effects)
    assert not {"LaunchTask", "EndTask"} & set(kinds(effects))
    assert driver.machine.instance(A).outgoing == task
    began_ms = driver.now_ms
    driver.keep(secondary)
    effects = driver.check_until(began_ms + 80)
    assert not {"LaunchTask", "EndTask"} & set(kinds(effects))
    effects = driver.check_until(began_ms + 140)
    assert [k for k in kinds(effects) if k in ("EndTask", "LaunchTask")] == [
        "EndTask",
        "LaunchTask",
    ]
    assert c.EndTask(A, task) in effects
    assert driver.machine.instance(A).outgoing is None


def test_a_node_that_said_why_it_fails_is_not_called_silent() -> None:
    driver = Driver()
    first = driver.up("t1")
    driver.step(c.NodeFailed(A, first, "StoreUnavailable: the disk is full", is_fatal=False))
    lost = [e for e in driver.check_until(2_000) if isinstance(e, c.ReportFailure)]
    assert [e.reason for e in lost] == ["StoreUnavailable: the disk is full"]
    driver.up("t2")
    lost = [e for e in driver.check_until(4_000) if isinstance(e, c.ReportFailure)]
    assert [e.reason.split(" for ")[0] for e in lost] == ["no keep-alive"]


def assignments(effects: list[Effect]) -> list[Assignment]:
    return [e.assignment for e in effects if isinstance(e, c.SendAssignment)]


@pytest.mark.parametrize("is_protected", [True, False])
def test_an_assignment_that_was_lost_comes_again_and_its_node_is_not_lost(
    is_protected: bool,
) -> None:
    driver = Driver(plan(is_protected=is_protected))
    first = driver.up("t1")
    for at_ms in range(100, 3_000, 100):
        assert "ReportFailure" not in kinds(driver.check_until(at_ms))
        again = driver.hello("t1")
        assert kinds(again) == ["SendAssignment"]
        assert [given.incarnation for given in assignments(again)] == [first]


def test_a_process_that_never_takes_its_assignment_is_lost() -> None:
    driver = Driver()
    driver.up("t1")
    lost: list[str] = []
    for at_ms in range(100, CoordinatorLimits().launch_timeout_ms + 2_000, 100):
        lost += [e.reason for e in driver.check_until(at_ms) if isinstance(e, c.ReportFailure)]
        driver.hello("t1")
    assert [reason.split(" for ")[0] for reason in lost] == ["no keep-alive"]


def test_a_node_that_has_spoken_needs_no_assignment_any_more() -> None:
    driver = Driver()
    driver.up("t1")
    driver.keep(driver.machine.instance(A).primary)
    assert driver.hello("t1") == []  # Said before, and late.


def test_hello_again_before_the_journal_has_the_incarnation_gets_no_assignment() -> None:
    driver = Driver()
    driver.hello("t1", journal=False)
    assert driver.hello("t1", journal=False) == []


def test_a_secondary_that_is_promoted_before_it_has_an_assignment_begins_as_what_it_was() -> None:
    driver = standby()
    primary, secondary = driver.machine.instance(A).replicas
    given, task = secondary.incarnation, str(secondary.task)
    secondary.has_spoken = False
    hello = c.HelloReceived(A, secondary.launch, task, "ipc://x")
    driver.step(c.TaskEnded(A, primary.launch, "killed"))
    assert driver.machine.instance(A).primary is secondary
    (again,) = assignments(driver.step(hello))
    assert (again.incarnation, again.is_secondary) == (given, True)
    promoted = driver.step(c.KeepAliveReceived(A, given, {}))
    assert "SendPromotion" in kinds(promoted)
    assert driver.step(hello) == []


def test_a_process_that_was_replaced_does_not_come_back() -> None:
    driver = Driver()
    driver.up("t1")
    second = driver.up("t2")
    assert driver.hello("t1") == []
    assert driver.machine.instance(A).counts(second)
    assert driver.machine.instance(A).has_ended("t1")
