"""The journal: of two drivers only one writes what counts, in folders and in stores."""

import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.core.coordinator.journal_entries import (
    Ending,
    JournalEntry,
    LeaseRenewed,
    LifeEnded,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.shell.spark import journal as journal_module
from holdfast.shell.spark.journal import COORDINATOR, Journal, look, read_entries
from holdfast.shell.storage.errors import JournalCorrupt, JournalSuperseded, StorageError
from holdfast.shell.storage.places import store_at

FIRST, SECOND, THIRD = (
    RecoveryDecision((NewLife(NodeId("a[0]"), Incarnation(n)),)) for n in (1, 2, 3)
)


@pytest.fixture(params=["folder", "memory", "local"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "folder": f"{tmp_path}/journal",
        "memory": f"memory://{uuid.uuid4()}",
        "local": f"local://{tmp_path}/journal",
    }[request.param]


def test_a_driver_that_was_replaced_cannot_write_what_counts(place: str) -> None:
    first = Journal(place, COORDINATOR)
    first.write([FIRST])
    second = Journal(place, COORDINATOR)
    assert (first.epoch, second.epoch) == (1, 2)
    assert second.entries == (FIRST,)
    with pytest.raises(JournalSuperseded, match=r"has begun epoch 2 at .*; stop one of them"):
        first.write([SECOND])
    with pytest.raises(JournalSuperseded, match="epoch 2"):
        first.begin_anew([SECOND])
    second.write([THIRD])
    assert read_entries(place)[-1] == THIRD
    assert Journal(place, COORDINATOR).entries == (THIRD,)


def during(
    monkeypatch: pytest.MonkeyPatch, method: str, action: Callable[[], None], *, before: bool
) -> None:
    """Do something once, before or after the next call of a method of the volumes."""
    left = [action]

    def act() -> None:
        if left:
            left.pop()()

    for owner in (journal_module._FileVolumes, journal_module._ObjectVolumes):
        monkeypatch.setattr(owner, method, _acting(getattr(owner, method), act, before=before))


def _acting(
    original: Callable[..., object], act: Callable[[], None], *, before: bool
) -> Callable[..., object]:
    def wrapped(self: object, *args: int) -> object:
        if before:
            act()
        answer = original(self, *args)
        if not before:
            act()
        return answer

    return wrapped


def test_what_is_written_before_the_claim_is_read_and_what_comes_later_is_refused(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Journal(place, COORDINATOR)
    refused: list[bool] = []

    def write_late() -> None:
        with pytest.raises(JournalSuperseded):
            first.write([SECOND])
        refused.append(True)

    with monkeypatch.context() as patch:
        during(patch, "claim", lambda: first.write([FIRST]), before=True)
        during(patch, "read", write_late, before=False)
        second = Journal(place, COORDINATOR)
    assert refused
    assert FIRST in second.entries


def test_of_two_drivers_that_begin_at_once_one_is_told_of_the_other(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Journal(place, COORDINATOR).write([FIRST])
    begun: list[Journal[JournalEntry]] = []
    with monkeypatch.context() as patch:
        during(patch, "claim", lambda: begun.append(Journal(place, COORDINATOR)), before=True)
        with pytest.raises(JournalSuperseded, match="epoch 2"):
            Journal(place, COORDINATOR)
    begun[0].write([SECOND])
    assert Journal(place, COORDINATOR).entries == (SECOND,)


def test_a_volume_that_goes_while_it_is_read_is_in_a_later_one(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(place, COORDINATOR)
    journal.write([FIRST])
    during(monkeypatch, "read", lambda: journal.begin_anew([SECOND]), before=True)
    assert read_entries(place) == [SECOND]


def test_what_a_replaced_driver_has_left_does_not_count(place: str) -> None:
    first = Journal(place, COORDINATOR)
    second = Journal(place, COORDINATOR)
    for _ in range(3):
        with pytest.raises(JournalSuperseded):
            first.write([FIRST])
    second.write([SECOND])
    assert Journal(place, COORDINATOR).entries == (SECOND,)


def test_a_lost_object_of_a_volume_is_damage(tmp_path: Path) -> None:
    place = f"local://{tmp_path}/journal"
    journal = Journal(place, COORDINATOR)
    for entry in (FIRST, SECOND, THIRD):
        journal.write([entry])
    store_at(place).delete(f"{1:010d}/{2:010d}")
    with pytest.raises(JournalCorrupt, match="is missing; restore"):
        Journal(place, COORDINATOR)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(str(tmp_path), COORDINATOR)
    journal.write([FIRST])
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:-10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StorageError, match=r"No space left on device; make room"):
            journal.write([SECOND])
    journal.write([THIRD])
    assert read_entries(str(tmp_path)) == [FIRST, THIRD]


def test_a_volume_that_cannot_be_created_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(str(tmp_path), COORDINATOR)

    def full(path: Path, flags: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(journal_module, "create_file", full)
    with pytest.raises(StorageError, match=r"2\.journal: No space left on device"):
        journal.begin_anew([FIRST])
    with pytest.raises(StorageError, match=r"2\.journal: No space left on device"):
        Journal(str(tmp_path), COORDINATOR)


def test_a_lease_is_renewed_in_a_folder_without_a_line(tmp_path: Path) -> None:
    """Else the journal of a query that decides nothing grows for as long as it runs."""
    place = str(tmp_path / "coordinator")
    journal = Journal(place, COORDINATOR)
    (file,) = Path(place).iterdir()
    os.utime(file, ns=(0, 0))
    before, size = look(place), file.stat().st_size
    for _ in range(100):
        journal.renew(LeaseRenewed(), 0)
    seen = look(place)
    assert file.stat().st_size == size
    assert (seen.volume, seen.length) == (before.volume, before.length)
    assert seen != before
    journal.renew(LeaseRenewed(), 60)
    assert look(place) == seen


def test_a_replaced_driver_learns_of_it_when_it_renews_its_lease(tmp_path: Path) -> None:
    place = str(tmp_path / "coordinator")
    former = Journal(place, COORDINATOR)
    Journal(place, COORDINATOR).close()
    with pytest.raises(JournalSuperseded):
        former.renew(LeaseRenewed(), 0)


def test_a_lease_is_renewed_in_a_store_by_a_line() -> None:
    """Its objects cannot be touched; there, journals begin anew now and then."""
    place = "memory://lease/coordinator"
    journal = Journal(place, COORDINATOR)
    before = look(place)
    journal.renew(LeaseRenewed(), 0)
    assert look(place).length == before.length + 1


def noted(sequence: int) -> PointNoted:
    point = RestartPoint(sequence, {"a": sequence}, {"a": sequence}, sequence, {"b": sequence})
    return PointNoted(NodeId("a[0]"), Incarnation(1), point)


def test_restart_points_of_a_long_life_do_not_make_a_folder_grow(tmp_path: Path) -> None:
    place = str(tmp_path / "coordinator")
    journal = Journal(place, COORDINATOR, grown_bytes_max=2_000)
    journal.write([FIRST])
    sizes = []
    for sequence in range(1, 500):
        journal.write([noted(sequence)])
        sizes.append(sum(file.stat().st_size for file in Path(place).iterdir()))
    assert max(sizes) < 6_000, "with all its points it has 100,000 bytes"
    assert len(list(Path(place).iterdir())) == 1
    assert look(place).volume > journal.epoch
    journal.close()
    later = Journal(place, COORDINATOR)
    assert later.epoch > journal.epoch
    assert later.entries == (FIRST, noted(499))


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_how_a_life_ended_stays_at_the_end_however_long_it_was(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module._ObjectVolumes, "objects_max", 2)
    place = f"{tmp_path}/c" if kind == "folder" else f"memory://{uuid.uuid4()}"
    journal = Journal(place, COORDINATOR, grown_bytes_max=0)
    journal.write([FIRST])
    journal.write([noted(1), LifeEnded(Ending.STOPPED)])
    assert look(place).ending is Ending.STOPPED
    assert Journal(place, COORDINATOR).entries == (FIRST, noted(1))
