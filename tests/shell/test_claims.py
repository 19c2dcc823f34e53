"""Nothing of a claimed log counts that a successor may have missed."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.core.haunit.passes import PASS_SCHEMA, PassesLost
from holdfast.core.model.ids import Incarnation
from holdfast.core.wire import part_writing
from holdfast.core.wire.log_opening import BeginAt, Opening, open_log
from holdfast.shell.storage import claimed_log, part_log, pass_log, stream_log
from holdfast.shell.storage.claim import Claim
from holdfast.shell.storage.errors import LogSuperseded
from holdfast.shell.storage.logs import LogWriter, open_writer
from holdfast.shell.storage.pass_log import PassLogReader, PassLogWriter
from holdfast.shell.stores.base import StoreUnavailable


def put_pass(log: PassLogWriter) -> None:
    rows = [[7], [0], [[log.next_id]], [0]]
    columns = [pa.array(row, kind.type) for row, kind in zip(rows, PASS_SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=PASS_SCHEMA)
    log.append(0, log.next_id, batch, 0, 0)


@pytest.mark.parametrize("place", ["{}", "memory://{}"])
def test_the_newest_claim_holds(tmp_path: Path, place: str) -> None:
    log = place.format(tmp_path)
    first = Claim(log, 1)
    first.require_newest()
    third = Claim(log, 3)
    third.require_newest()
    with pytest.raises(LogSuperseded, match="claimed by incarnation 3 now"):
        first.require_newest()
    with pytest.raises(LogSuperseded, match="claimed by incarnation 3 now"):
        Claim(log, 2)
    with pytest.raises(LogSuperseded, match="claimed by incarnation 3"):
        Claim(log, 3)
    first.close()
    third.close()


def test_a_claim_is_looked_up_again_where_the_store_is_away_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.shell.stores.patience._RETRY_S", 0.0)
    claim = Claim(str(tmp_path), 1)
    names = claim._store.names
    away = iter([True] * 4)

    def answered(prefix: str) -> list[str]:
        if next(away, False):
            raise StoreUnavailable("away")
        return names(prefix)

    monkeypatch.setattr(claim._store, "names", answered)
    claim.require_newest()
    assert next(away, None) is None
    away = iter([True] * 5)
    with pytest.raises(StoreUnavailable, match="away"):
        claim.require_newest()


def test_a_pass_that_a_successor_has_missed_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The successor finds the log's end. 2. A zombie logs a pass. 3. The successor goes on."""
    zombie = PassLogWriter(str(tmp_path), "a~passes", 1)
    put_pass(zombie)
    zombie.sync()

    def opened(place: str, *how: Any, **more: Any) -> LogWriter:
        writer = open_writer(place, *how, **more)
        put_pass(zombie)
        with pytest.raises(LogSuperseded, match="claimed by incarnation 2"):
            zombie.sync()
        return writer

    monkeypatch.setattr(claimed_log, "open_writer", opened)
    successor = PassLogWriter(str(tmp_path), "a~passes", 2)
    assert successor.next_id == 1
    put_pass(successor)
    successor.sync()
    assert [each.number for each in pass_log.read_passes(str(tmp_path), 0, 2)] == [0, 1]
    zombie.close()
    successor.close()


@pytest.mark.parametrize("place", ["{}", "memory://{}"])
def test_a_replica_that_has_read_a_pass_of_a_zombie_cannot_take_the_log_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The zombie logs it between its successor's look at the end and its beginning there."""
    monkeypatch.setattr(part_log, "PART_INTERVAL_S", 0.0)
    log = place.format(tmp_path)
    zombie = PassLogWriter(log, "r", 1)
    put_pass(zombie)
    zombie.sync()
    follower = PassLogReader(log, 0, is_tailing=False)
    assert [r.number for r in follower.poll()] == [0]
    begun = open_log

    def meanwhile(incarnation: Incarnation, first_id: int, wanted: int) -> Opening:
        opening, answer = begun(incarnation, first_id, wanted), None
        while True:
            try:
                request = opening.send(answer)
            except StopIteration as end:
                last: BeginAt = end.value
                return last
            if isinstance(request, BeginAt) and incarnation == 3:
                put_pass(zombie)
                with pytest.raises(LogSuperseded):
                    zombie.sync()
                assert [r.number for r in follower.poll()] == [1]
            answer = yield request

    for module in (stream_log, part_writing):
        monkeypatch.setattr(module, "open_log", meanwhile)
    third = PassLogWriter(log, "r", 3)
    assert third.next_id == 1
    for _ in range(2):
        put_pass(third)
        third.sync()
    assert [r.number for r in follower.poll()] == [2]
    fourth = PassLogWriter(log, "r", 4)
    assert fourth.next_id == 3
    with pytest.raises(PassesLost, match="has lost pass 1, which this replica has read"):
        follower.require_held(fourth.owners)
    other = PassLogReader(log, 0, is_tailing=False)
    assert [r.number for r in other.poll()] == [0, 1, 2]
    other.require_held(fourth.owners)
    for one in (follower, other, zombie, third, fourth):
        one.close()


@pytest.mark.parametrize("place", ["{}", "memory://{}"])
def test_pass_logs_stay_where_an_earlier_version_began_them(tmp_path: Path, place: str) -> None:
    new, old = place.format(tmp_path / "new"), place.format(tmp_path / "old")
    assert pass_log.pass_folder(new) == f"{new}/passes"
    former = PassLogWriter(f"{old}/rounds/a[0]", "a[0]~rounds", 1)
    put_pass(former)
    former.sync()
    former.close()
    assert pass_log.pass_folder(old) == f"{old}/rounds"
    successor = PassLogWriter(f"{pass_log.pass_folder(old)}/a[0]", "a[0]~passes", 2)
    assert successor.next_id == 1
    put_pass(successor)
    successor.sync()
    successor.close()
    assert [p.number for p in pass_log.read_passes(f"{old}/rounds/a[0]", 0, 2)] == [0, 1]
