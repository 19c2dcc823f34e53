"""Ranges of a log, one after the other, as replays to several replicas ask for them."""

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.model.tuples import TupleBatch, TupleType, with_time
from holdfast.shell.storage import range_reader
from holdfast.shell.storage.errors import TuplesMissing
from holdfast.shell.storage.log_follower import LogFollower
from holdfast.shell.storage.logs import open_reader
from holdfast.shell.storage.range_reader import RangeReader
from holdfast.shell.storage.stream_log import StreamLogWriter

SCHEMA = with_time(pa.schema([("v", pa.int64())]))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From which ids on the log has been opened."""
    found: list[int] = []

    def note(place: str, from_id: int) -> LogFollower:
        found.append(from_id)
        return open_reader(place, from_id)

    monkeypatch.setattr(range_reader, "open_reader", note)
    return found


def put(log: StreamLogWriter, records: int) -> None:
    """Append records of seven tuples whose value is their id."""
    for _ in range(records):
        ids = pa.array(range(log.next_id, log.next_id + 7), pa.int64())
        rows = pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)
        log.append(TupleType.STABLE, log.next_id, rows, log.next_id, 0)


def writer(path: Path) -> StreamLogWriter:
    return StreamLogWriter(str(path), SCHEMA, "s", 1, segment_bytes=2_000)


def values(batches: tuple[TupleBatch, ...]) -> list[int]:
    found: list[int] = []
    for batch in batches:
        assert batch.first_id == batch.batch.column(0)[0].as_py()
        found += batch.batch.column(0).to_pylist()
    return found


def test_a_range_that_goes_on_where_the_last_one_ended_is_read_on_from_there(
    tmp_path: Path, opened: list[int]
) -> None:
    log = writer(tmp_path)
    put(log, 30)
    reader = RangeReader(str(tmp_path))
    ends = (1, 2, 5, 7, 21, 40, 41, 42, 100, 200, 210)
    for from_id, to_id in zip((0, *ends), ends, strict=False):
        assert values(reader.read(from_id, to_id)) == list(range(from_id, to_id))
    put(log, 10)
    assert values(reader.read(210, 275)) == list(range(210, 275))
    assert opened == [0]
    reader.close()


def test_two_replays_do_not_get_in_each_other_s_way(tmp_path: Path, opened: list[int]) -> None:
    put(writer(tmp_path), 30)
    reader = RangeReader(str(tmp_path))
    for from_id in range(0, 100, 10):
        for begin in (from_id, from_id + 50):
            assert values(reader.read(begin, begin + 10)) == list(range(begin, begin + 10))
    assert opened == [0, 50]
    assert values(reader.read(3, 12)) == list(range(3, 12)), "a third one, anew"
    assert len(reader._replays) == 2
    reader.close()


def test_what_was_trimmed_is_let_go_of_and_what_is_missing_is_named(tmp_path: Path) -> None:
    log = writer(tmp_path)
    put(log, 60)
    reader = RangeReader(str(tmp_path))
    reader.read(0, 10)
    reader.read(100, 110)
    log.trim(105)
    reader.trim(105)
    assert [replay.next_id for replay in reader._replays] == [110]
    with pytest.raises(TuplesMissing):
        reader.read(110, 1_000)
    assert not reader._replays
    with pytest.raises(TuplesMissing):
        reader.read(0, 10)
    assert values(reader.read(110, 120)) == list(range(110, 120))
    reader.close()
