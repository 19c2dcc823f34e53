"""Replicas of an instance: the states of each, their roles, and what is no state of them."""

from dataclasses import replace
from pathlib import Path

import pytest
from test_coordinator import A, plan

from holdfast.core.coordinator.events import HelloReceived
from holdfast.core.coordinator.instance import Hearing, Instance
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.coordinator.replica import TRANSITIONS, NodeState, Replica, Role
from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.plan import Standby
from holdfast.core.model.ids import Incarnation

PAGE = Path(__file__).parents[3] / "docs" / "protocols" / "upstream-backup.md"


def at_work(role: Role, incarnation: int) -> Replica:
    replica = Replica(role)
    replica.launched(incarnation, 0)
    hello = HelloReceived(A, incarnation, f"t{incarnation}", "ipc://x", f"m{incarnation}")
    replica.came_up(hello, Incarnation(incarnation), 0)
    replica.enter(NodeState.RUNNING)
    return replica


def three() -> Instance:
    """An instance with a primary and two secondaries, all at work."""
    replicas = [at_work(Role.PRIMARY, 1), at_work(Role.SECONDARY, 2), at_work(Role.SECONDARY, 3)]
    active = replace(plan(), standby=Standby.ACTIVE)
    return Instance(active, CoordinatorLimits(), Incarnation(3), replicas)


def test_every_state_can_be_reached_and_left() -> None:
    assert set(TRANSITIONS) == set(NodeState)
    reached = {state for following in TRANSITIONS.values() for state in following}
    assert reached == set(NodeState)
    assert all(TRANSITIONS.values())


def test_the_page_has_the_table_of_states() -> None:
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    shown = {row[0].removeprefix("| "): row[-1].removesuffix(" |") for row in rows}
    for state in NodeState:
        following = ", ".join(then.value for then in TRANSITIONS[state])
        assert shown[state.value] == following, state


@pytest.mark.parametrize("state", NodeState)
@pytest.mark.parametrize("then", NodeState)
def test_a_step_that_the_table_lacks_is_an_error_of_ours(state: NodeState, then: NodeState) -> None:
    replica = Replica(Role.PRIMARY, state)
    if then in TRANSITIONS[state]:
        replica.enter(then)
        assert replica.state is then
    else:
        with pytest.raises(InvariantViolation, match=f"{state.value}, then {then.value}"):
            replica.enter(then)
        assert replica.state is state


def test_of_three_replicas_any_may_lead_and_the_others_follow() -> None:
    instance = three()
    first, second, third = instance.replicas
    instance.lead(third)
    assert [replica.role for replica in instance.replicas] == [
        Role.PRIMARY,
        Role.SECONDARY,
        Role.SECONDARY,
    ]
    assert instance.primary is third
    assert instance.secondaries == [first, second]
    instance.check_invariants(instance.newest)


def test_of_three_replicas_the_first_that_is_there_takes_over() -> None:
    instance = three()
    _, second, third = instance.replicas
    assert instance.successor() is second
    second.lose(10)
    assert instance.successor() is third
    assert instance.secondary_incarnation == 3
    third.lose(10)
    assert instance.successor() is None
    instance.check_invariants(instance.newest)


def test_words_of_a_promoted_replica_s_former_incarnation_are_its_own() -> None:
    instance = three()
    second = instance.secondaries[0]
    instance.lead(second)
    second.promote(instance.next_incarnation())
    assert instance.of_incarnation(Incarnation(2)) is second
    assert instance.of_incarnation(Incarnation(4)) is second
    second.promoted()
    instance.check_invariants(instance.newest)
    second.lose(10)
    assert not instance.counts(Incarnation(2))
    assert not instance.counts(Incarnation(4))


def two_of_one_incarnation(instance: Instance) -> None:
    instance.replicas[1].incarnation = instance.replicas[0].incarnation


def never_given(instance: Instance) -> None:
    instance.newest = Incarnation(2)


def two_primaries(instance: Instance) -> None:
    instance.replicas[2].role = Role.PRIMARY


def secondary_first(instance: Instance) -> None:
    instance.replicas.reverse()


def four(instance: Instance) -> None:
    instance.newest = Incarnation(4)
    instance.replicas.append(at_work(Role.SECONDARY, 4))


def without_a_task(instance: Instance) -> None:
    instance.primary.task = None


def promoted_as_a_secondary(instance: Instance) -> None:
    instance.secondaries[0].promote(instance.next_incarnation())


@pytest.mark.parametrize(
    ("breakage", "reason"),
    [
        (two_of_one_incarnation, r"incarnations \[1, 1, 3\]"),
        (never_given, "up to 2"),
        (two_primaries, "replicas are"),
        (secondary_first, "the primary does not come first"),
        (four, "replicas are"),
        (without_a_task, "running with the task None"),
        (promoted_as_a_secondary, "is being promoted"),
    ],
)
def test_what_no_instance_may_be_is_an_invariant(breakage: object, reason: str) -> None:
    instance = three()
    instance.check_invariants(instance.newest)
    assert callable(breakage)
    breakage(instance)
    with pytest.raises(InvariantViolation, match=reason):
        instance.check_invariants(instance.newest)


def test_nobody_works_as_an_incarnation_that_is_not_durable() -> None:
    instance = three()
    with pytest.raises(InvariantViolation, match=r"works as 3, not durable"):
        instance.check_invariants(Incarnation(2))
    with pytest.raises(InvariantViolation, match=r"4 is durable, and was not given"):
        instance.check_invariants(Incarnation(4))


def test_a_word_counts_by_its_task_and_incarnation() -> None:
    instance = three()
    assert instance.judge("t1", Incarnation(1)) is Hearing.TAKEN
    assert instance.judge("t2", Incarnation(1)) is Hearing.REFUSED
    instance.primary.lose(10)
    assert instance.judge("t1", Incarnation(1)) is Hearing.FENCED
    instance.outgoing = "t1"
    assert instance.judge("t1", Incarnation(1)) is Hearing.PASSED_OVER
    assert instance.judge("t9", Incarnation(1)) is Hearing.FENCED
