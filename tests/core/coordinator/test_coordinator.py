"""The coordinator: assignment, fencing, replacement, durability before action. [HA §4]"""

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.coordinator import Coordinator, CoordinatorLimits
from holdfast.core.haunit.plan import NodePlan
from holdfast.core.machine import Effect, Stimulus, TimerFired
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.recovery.restart_point import RestartPoint

A = NodeId("a[0]")


def plan(node: NodeId = A, *, is_protected: bool = True) -> NodePlan:
    return NodePlan(node, "a", 0, (), 0, (), (), is_protected)


class Driver:
    """Steps a coordinator and answers its journal writes."""

    def __init__(self, *plans: NodePlan, journal: tuple[dict[str, object], ...] = ()) -> None:
        self.journal: list[dict[str, object]] = []
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
    assert not driver.machine.is_current(A, first)
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


def test_an_unprotected_node_that_fails_fails_the_query() -> None:
    driver = Driver(plan(is_protected=False))
    driver.up("t1")
    assert "FailQuery" in kinds(driver.step(c.TaskEnded(A, 1, "killed")))


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
