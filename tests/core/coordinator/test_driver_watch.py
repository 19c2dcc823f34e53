"""A driver in standby takes over when the one that leads is gone, and only then."""

import pytest

from holdfast.core.coordinator.driver_watch import (
    DriverWatch,
    EndWatch,
    JournalSeen,
    Lead,
    LeadLost,
    LockGot,
)
from holdfast.core.coordinator.journal_entries import Ending
from holdfast.core.machine import Effect

LEASE_MS = 1_000
LOOK_MS = 100


def watching(*, has_lock: bool = True) -> DriverWatch:
    """A watch that has seen epoch 3 at work at 0 ms."""
    watch = DriverWatch(LEASE_MS, has_lock=has_lock)
    assert watch.look_interval_ms == LOOK_MS
    assert watch.step(JournalSeen(3, 10), 0) == []
    return watch


def stands_still(watch: DriverWatch, seen: JournalSeen, from_ms: int, to_ms: int) -> list[Effect]:
    """What comes of looking at a journal that does not change, from one time to another."""
    found: list[Effect] = []
    for now_ms in range(from_ms, to_ms + 1, LOOK_MS):
        found += watch.step(seen, now_ms)
        watch.check_invariants()
    return found


def reasons(effects: list[Effect]) -> list[str]:
    return [effect.reason for effect in effects if isinstance(effect, Lead)]


def test_nobody_has_begun_so_it_leads_at_once() -> None:
    watch = DriverWatch(LEASE_MS, has_lock=True)
    assert watch.step(JournalSeen(0, 0), 5) == [Lead("no driver has begun")]


def test_a_journal_that_grows_is_a_driver_that_lives() -> None:
    watch = watching()
    for turn in range(1, 100):
        assert watch.step(JournalSeen(3, 10 + turn // 5), turn * LOOK_MS) == []


def test_it_leads_once_when_the_journal_stands_still_for_the_lease() -> None:
    watch = watching()
    assert stands_still(watch, JournalSeen(3, 10), 100, LEASE_MS) == []
    found = stands_still(watch, JournalSeen(3, 10), LEASE_MS + 100, 5_000)
    assert reasons(found) == ["the driver of epoch 3 has said nothing for 1100 ms"]


def test_another_driver_in_standby_that_begins_is_watched_in_turn() -> None:
    watch = watching()
    assert watch.step(JournalSeen(4, 1), 900) == []
    assert stands_still(watch, JournalSeen(4, 1), 1_000, 1_900) == []
    assert reasons(watch.step(JournalSeen(4, 1), 2_000))


def test_a_watch_that_stood_still_looks_once_more_before_it_decides() -> None:
    watch = watching()
    assert watch.step(JournalSeen(3, 10), 60_000) == []
    assert watch.step(JournalSeen(3, 11), 60_100) == []
    assert stands_still(watch, JournalSeen(3, 11), 60_200, 61_100) == []


def test_the_lock_of_the_process_that_led_says_that_it_died() -> None:
    watch = watching(has_lock=False)
    assert watch.step(LockGot(3), 50) == []
    found = watch.step(JournalSeen(3, 12), 60)
    assert found == [Lead("the process of the driver of epoch 3 has died")]


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.STOPPED])
def test_a_lock_that_was_let_go_of_after_a_last_word_is_no_death(ending: Ending) -> None:
    watch = watching(has_lock=False)
    assert watch.step(LockGot(3), 50) == []
    assert watch.step(JournalSeen(3, 12, ending), 60) == [EndWatch(ending)]


@pytest.mark.parametrize("epoch", [0, 2])
def test_the_lock_of_whoever_did_not_lead_says_nothing(epoch: int) -> None:
    watch = watching(has_lock=False)
    assert watch.step(LockGot(epoch), 50) == []
    assert reasons(stands_still(watch, JournalSeen(3, 10), 100, 1_100))


def test_without_the_lock_nobody_leads() -> None:
    watch = watching(has_lock=False)
    assert stands_still(watch, JournalSeen(3, 10), 100, 3_000) == []
    assert watch.step(LockGot(0), 3_050) == []
    assert reasons(watch.step(JournalSeen(3, 10), 3_060)) == [
        "the driver of epoch 3 has said nothing for 3060 ms"
    ]


def test_a_driver_that_stood_still_and_goes_on_keeps_the_lead() -> None:
    watch = watching(has_lock=False)
    assert stands_still(watch, JournalSeen(3, 10), 100, 3_000) == []
    assert watch.step(JournalSeen(3, 11), 3_100) == []
    assert watch.step(LockGot(0), 3_150) == []
    assert watch.step(JournalSeen(3, 11), 3_200) == []


@pytest.mark.parametrize("ending", [Ending.LEFT, Ending.FAILED])
def test_it_leads_at_once_when_the_other_leaves_or_fails(ending: Ending) -> None:
    found = watching().step(JournalSeen(3, 11, ending), 100)
    assert found == [Lead(f"the driver of epoch 3 has {ending.value}")]


@pytest.mark.parametrize("ending", [Ending.FINISHED, Ending.STOPPED])
@pytest.mark.parametrize("has_lock", [True, False])
def test_it_ends_when_the_query_is_over(ending: Ending, *, has_lock: bool) -> None:
    watch = watching(has_lock=has_lock)
    assert watch.step(JournalSeen(3, 11, ending), 100) == [EndWatch(ending)]
    assert stands_still(watch, JournalSeen(3, 11, ending), 200, 3_000) == []
    assert watch.step(LockGot(3), 3_050) == []


@pytest.mark.parametrize("ending", list(Ending))
def test_a_query_that_was_over_before_is_begun_again(ending: Ending) -> None:
    watch = DriverWatch(LEASE_MS, has_lock=False)
    assert watch.step(JournalSeen(3, 11, ending), 0) == []
    assert stands_still(watch, JournalSeen(3, 11, ending), 100, 2_000) == []
    assert watch.step(LockGot(3), 2_050) == []
    assert reasons(watch.step(JournalSeen(3, 11, ending), 2_060))


def test_whoever_was_too_slow_goes_on_watching() -> None:
    watch = watching()
    assert reasons(stands_still(watch, JournalSeen(3, 10), 100, 1_100))
    assert watch.step(LeadLost(), 1_150) == []
    assert watch.step(JournalSeen(4, 2), 1_200) == []
    assert stands_still(watch, JournalSeen(4, 2), 1_300, 2_200) == []
    assert reasons(watch.step(JournalSeen(4, 2), 2_300))
