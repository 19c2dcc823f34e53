"""Drivers in standby over real journals and locks; test_killed_leader.py runs queries."""

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.core.coordinator.journal_entries import Ending
from holdfast.driver.standby import StandbyDriver
from holdfast.errors import QueryEndedError
from holdfast.shell.spark.driver_lease import DriverLease
from holdfast.shell.spark.journal import COORDINATOR, Journal, look
from holdfast.shell.storage.errors import JournalSuperseded, LocationInUse
from holdfast.shell.storage.lock import LocationLock

LONG_MS, SHORT_MS = 3_600_000, 100

LEADER = """
import sys, threading
from holdfast.shell.spark.driver_lease import DriverLease
from holdfast.shell.spark.journal import COORDINATOR, Journal
from holdfast.shell.storage.lock import LocationLock
lock = LocationLock(sys.argv[1])
journal = Journal(sys.argv[1] + "/coordinator", COORDINATOR)
lease = DriverLease(journal, 100)
lock.note(journal.epoch)
print("leads", flush=True)
threading.Event().wait()
"""


@contextmanager
def leader(location: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that leads at a folder."""
    with subprocess.Popen(
        [sys.executable, "-c", LEADER, str(location)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "leads\n"
            yield process
        finally:
            process.kill()


def test_a_leader_that_is_stopped_and_lets_go_of_the_lock_has_not_died(tmp_path: Path) -> None:
    lock = LocationLock(str(tmp_path))
    journal = Journal(str(tmp_path / "coordinator"), COORDINATOR)
    lock.note(journal.epoch)
    standby = StandbyDriver(str(tmp_path), LONG_MS)
    assert not standby.has_to_lead(0.0)
    DriverLease(journal, LONG_MS).end(Ending.STOPPED)
    lock.release()
    with pytest.raises(QueryEndedError, match="has been stopped"):
        standby.wait()
    standby.close()


def test_it_leads_as_soon_as_the_process_that_led_is_killed(tmp_path: Path) -> None:
    with leader(tmp_path) as process:
        standby = StandbyDriver(str(tmp_path), LONG_MS)
        assert not standby.has_to_lead(0.3)
        process.kill()
        standby.wait()  # The lease would last for an hour.
    assert standby.lock is not None
    assert standby.lock.epoch_before == 1
    with pytest.raises(LocationInUse, match="process"):
        LocationLock(str(tmp_path))
    standby.close()
    LocationLock(str(tmp_path)).release()


def test_a_process_that_stands_still_keeps_the_lock_and_the_lead(tmp_path: Path) -> None:
    with leader(tmp_path) as process:
        standby = StandbyDriver(str(tmp_path), SHORT_MS)
        process.send_signal(signal.SIGSTOP)
        for _ in range(30):
            assert not standby.has_to_lead(0.0)
        process.send_signal(signal.SIGCONT)
        standby.close()


@pytest.mark.parametrize("ending", [Ending.LEFT, Ending.FAILED])
def test_it_leads_when_the_other_one_leaves(ending: Ending) -> None:
    location = f"memory://{uuid.uuid4()}"
    journal = Journal(f"{location}/coordinator", COORDINATOR)
    lease = DriverLease(journal, LONG_MS)
    standby = StandbyDriver(location, LONG_MS)
    assert not standby.has_to_lead(0.0)
    lease.end(ending)
    standby.wait()
    assert Journal(f"{location}/coordinator", COORDINATOR).epoch == 2


def test_it_ends_with_the_query(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "coordinator"), COORDINATOR)
    standby = StandbyDriver(str(tmp_path), LONG_MS)
    assert not standby.has_to_lead(0.0)
    DriverLease(journal, LONG_MS).end(Ending.STOPPED)
    with pytest.raises(QueryEndedError, match="has been stopped"):
        standby.wait()
    standby.close()


def test_of_two_in_standby_one_leads_and_the_other_goes_on_watching() -> None:
    location = f"memory://{uuid.uuid4()}"
    place = f"{location}/coordinator"
    Journal(place, COORDINATOR).close()
    both = [StandbyDriver(location, SHORT_MS) for _ in range(2)]
    for standby in both:
        standby.wait()
    first = Journal(place, COORDINATOR)
    with pytest.raises(JournalSuperseded):
        first._volumes.claim(first.epoch)  # As the second does that has seen the same.
    lease = DriverLease(first, SHORT_MS)
    both[1].lost()
    assert not both[1].has_to_lead(0.0)
    lease.end(Ending.FINISHED)
    with pytest.raises(QueryEndedError, match="has finished"):
        both[1].wait()


def test_a_lease_is_renewed_when_nothing_else_is_written(tmp_path: Path) -> None:
    place = str(tmp_path / "coordinator")
    journal = Journal(place, COORDINATOR)
    before = look(place)
    lease = DriverLease(journal, SHORT_MS)
    while (seen := look(place)) == before:
        assert seen.ending is None
    lease.end(Ending.LEFT)
    assert look(place).ending is Ending.LEFT
    journal.close()
    Journal(place, COORDINATOR)
    assert look(place).ending is None, "a new life has begun"
