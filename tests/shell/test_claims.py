"""Nothing of a claimed log counts that a successor may have missed."""

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.haunit.rounds import ROUND_SCHEMA
from holdfast.shell.storage import round_log
from holdfast.shell.storage.claim import Claim
from holdfast.shell.storage.errors import LogSuperseded
from holdfast.shell.storage.logs import LogWriter, open_writer
from holdfast.shell.storage.round_log import RoundLogWriter
from holdfast.shell.stores.base import StoreUnavailable


def put_round(log: RoundLogWriter) -> None:
    rows = [[7], [0], [[log.next_id]], [0]]
    columns = [pa.array(row, kind.type) for row, kind in zip(rows, ROUND_SCHEMA, strict=True)]
    batch = pa.RecordBatch.from_arrays(columns, schema=ROUND_SCHEMA)
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


def test_a_round_that_a_successor_has_missed_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The successor finds the log's end. 2. A zombie logs a round. 3. The successor goes on."""
    zombie = RoundLogWriter(str(tmp_path), "a~rounds", 1)
    put_round(zombie)
    zombie.sync()

    def opened(place: str, schema: pa.Schema, stream: str, incarnation: int) -> LogWriter:
        writer = open_writer(place, schema, stream, incarnation)
        put_round(zombie)
        with pytest.raises(LogSuperseded, match="claimed by incarnation 2"):
            zombie.sync()
        return writer

    monkeypatch.setattr(round_log, "open_writer", opened)
    successor = RoundLogWriter(str(tmp_path), "a~rounds", 2)
    assert successor.next_id == 1
    put_round(successor)
    successor.sync()
    assert [each.number for each in round_log.read_rounds(str(tmp_path), 0, 2)] == [0, 1]
    zombie.close()
    successor.close()
