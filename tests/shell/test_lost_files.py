"""What is missing or damaged below a location is named, and nothing else is taken for it."""

from pathlib import Path

import pytest

from holdfast.core.coordinator.journal_entries import InstancesDecided, NewLife, RecoveryDecision
from holdfast.core.model.ids import Incarnation, NodeId
from holdfast.core.queues.committed_id import GoOn, next_of
from holdfast.driver.description import claim, described, instances_in, with_instances
from holdfast.errors import DataflowChangedError
from holdfast.shell.kafka.sink import _made_up
from holdfast.shell.spark.journal import COORDINATOR, Journal, read_entries
from holdfast.shell.storage.errors import FileDamaged, FileMissing
from holdfast.shell.storage.lock import LocationLock
from holdfast.shell.storage.places import location_id, put_or_read, store_at
from holdfast.shell.stores.base import ObjectDamaged

TEXT = "dataflow a\nunit s: 1 instances\n"


@pytest.fixture(params=["", "local://"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}{tmp_path}"


def run_there(place: str) -> None:
    """What the first start leaves."""
    location_id(place)
    claim(place, TEXT, described(place))
    journal = Journal(f"{place}/coordinator", COORDINATOR)
    journal.write([RecoveryDecision((NewLife(NodeId("s[0]"), Incarnation(1)),))])
    journal.close()


def test_no_dataflow_goes_on_where_nobody_knows_which_one_has_run(
    place: str, tmp_path: Path
) -> None:
    run_there(place)
    assert described(place) == TEXT
    (tmp_path / "dataflow.txt").unlink()
    with pytest.raises(FileMissing, match=r"dataflow.txt is missing.*Restore it"):
        described(place)


def test_a_description_that_is_no_text_is_damaged_and_another_one_may_be(
    place: str, tmp_path: Path
) -> None:
    run_there(place)
    (tmp_path / "dataflow.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(FileDamaged, match=r"dataflow.txt is damaged: it is no text"):
        described(place)
    (tmp_path / "dataflow.txt").write_bytes(TEXT[:10].encode())
    with pytest.raises(DataflowChangedError, match=r"restore .*dataflow.txt from a copy"):
        claim(place, TEXT, described(place))


def test_an_elastic_restart_is_known_from_the_journal_alone(place: str) -> None:
    run_there(place)
    journal = Journal(f"{place}/coordinator", COORDINATOR)
    journal.begin_anew([InstancesDecided({"s": 3})])
    journal.close()
    assert described(place) == TEXT.replace("1 instances", "3 instances")


def test_a_text_like_a_unit_is_none() -> None:
    text = "filter f in s: note = 'unit s: 7 instances' <- r\nunit s: 1 instances\n"
    assert instances_in(text) == {"s": 1}
    assert "unit s: 7 instances'" in with_instances(text, {"s": 2})


@pytest.mark.parametrize("at", range(21))
def test_an_id_is_known_by_its_check_digits(tmp_path: Path, at: int) -> None:
    made = location_id(str(tmp_path))
    assert location_id(str(tmp_path)) == made
    file = tmp_path / "location.id"
    file.write_text(made[:at])
    with pytest.raises(FileDamaged, match=r"location.id is damaged"):
        location_id(str(tmp_path))
    file.write_text(made[:at] + ("0" if made[at] != "0" else "1") + made[at + 1 :])
    with pytest.raises(FileDamaged, match=r"location.id is damaged"):
        location_id(str(tmp_path))


def test_an_id_is_made_up_once(place: str, tmp_path: Path) -> None:
    run_there(place)
    (tmp_path / "location.id").unlink()
    with pytest.raises(FileMissing, match=r"location.id is missing"):
        location_id(place)


def test_ids_of_earlier_versions_hold(tmp_path: Path) -> None:
    (tmp_path / "location.id").write_text("0123456789abcdef")
    assert location_id(str(tmp_path)) == "0123456789abcdef"


def test_a_topic_is_not_written_again_by_another_id(place: str, tmp_path: Path) -> None:
    made = _made_up(place, "out[0]")
    assert _made_up(place, "out[0]") == made
    put_or_read(store_at(place), "written", [b"1"])
    (tmp_path / "sink.json").write_bytes(b"{")
    with pytest.raises(FileDamaged, match=r"sink.json is damaged"):
        _made_up(place, "out[0]")
    (tmp_path / "sink.json").unlink()
    with pytest.raises(FileMissing, match=r"sink.json is missing"):
        _made_up(place, "out[0]")


def test_a_topic_that_was_written_by_the_users_id_before_names_were_kept_gets_one(
    place: str, tmp_path: Path
) -> None:
    put_or_read(store_at(place), "written", [b"1"])
    made = _made_up(place, "out[0]", has_own_id=True)
    assert _made_up(place, "out[0]", has_own_id=True) == made
    assert next_of(
        *(18, "incarnation 4"), writer=made, incarnation=Incarnation(5), has_written=True
    ) == GoOn(18)


def test_a_folder_in_the_place_of_a_file_is_damage(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(ObjectDamaged, match="file is damaged: it is a folder"):
        store_at(place).read("file")


def test_a_folder_in_the_place_of_a_journal_or_a_lock_is_damage(tmp_path: Path) -> None:
    (tmp_path / "coordinator" / "0000000001.journal").mkdir(parents=True)
    with pytest.raises(FileDamaged, match=r"0000000001.journal is damaged: it is a folder"):
        read_entries(str(tmp_path / "coordinator"))
    (tmp_path / "lock").mkdir()
    with pytest.raises(FileDamaged, match=r"lock is damaged: it is a folder"):
        LocationLock(str(tmp_path))
