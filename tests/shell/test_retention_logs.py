"""A stream log of which the oldest segments were removed."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from trimmed_logs import lead, read

from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.core.queues.retention import FOR_EVER, Retention
from holdfast.shell.storage.errors import JournalSuperseded, TuplesMissing, TuplesRemoved
from holdfast.shell.storage.log_trimming import LogTrimmer
from holdfast.shell.storage.logs import open_kept
from holdfast.shell.storage.stream_log import StreamLogReader, StreamLogWriter, segments

SCHEMA = pa.schema([("v", pa.int64()), (TIME_COLUMN, pa.int64())])
NOTHING_KEPT = Retention(time_us=1)
LATER_US = 2**60


def write(place: Path, incarnation: int, records: int) -> None:
    """Two tuples a record, one record a segment."""
    with StreamLogWriter(str(place), SCHEMA, "out", incarnation, segment_bytes=1) as log:
        for _ in range(records):
            ids = pa.array([log.next_id, log.next_id + 1])
            batch = pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)
            log.append(0, log.next_id, batch, log.next_id, 0)
            log.sync()


def trim(place: Path, needed_from: int | None = None, retention: Retention = NOTHING_KEPT) -> int:
    return LogTrimmer(str(place), lead).trim(retention, needed_from, LATER_US)


def test_what_is_removed_is_gone_from_the_front_and_readers_are_told(tmp_path: Path) -> None:
    write(tmp_path, 1, 5)
    early = StreamLogReader(str(tmp_path))
    assert trim(tmp_path, retention=FOR_EVER) == 0
    assert trim(tmp_path, needed_from=5) == 2
    assert read(str(tmp_path), 4) == list(range(4, 10))
    reader = open_kept(str(tmp_path))
    assert reader.next_id == 4
    for late in (early, StreamLogReader(str(tmp_path), 3)):
        with pytest.raises(TuplesRemoved, match=r"tuples [03] to 3 were removed"):
            late.poll()
    assert trim(tmp_path) == 1
    assert read(str(tmp_path), 6) == [6, 7, 8, 9]
    assert trim(tmp_path) == 0


def test_a_reader_in_the_middle_is_told(tmp_path: Path) -> None:
    write(tmp_path, 1, 5)
    reader = StreamLogReader(str(tmp_path))
    reader.poll(max_rows=1)
    trim(tmp_path)
    with pytest.raises(TuplesRemoved):
        list(iter(partial(reader.poll, max_rows=1), []))


def test_who_takes_the_log_over_finds_its_end(tmp_path: Path) -> None:
    """A segment that says nothing is the newest; the one before it is not removed."""
    write(tmp_path, 1, 3)
    for incarnation in (2, 3):
        write(tmp_path, incarnation, 0)
        trim(tmp_path)
    write(tmp_path, 4, 2)
    assert read(str(tmp_path), 4) == list(range(4, 10))
    trim(tmp_path)
    write(tmp_path, 5, 1)
    assert read(str(tmp_path), 8) == [8, 9, 10, 11]


def test_segments_that_are_gone_without_a_mark_were_lost(tmp_path: Path) -> None:
    write(tmp_path, 1, 5)
    trim(tmp_path, needed_from=4)
    segments(tmp_path)[0].path.unlink()
    with pytest.raises(TuplesMissing) as caught:
        read(str(tmp_path), 4)
    assert not isinstance(caught.value, TuplesRemoved)


class Crash(Exception):
    """The driver dies."""


def test_a_crash_between_any_two_changes_leaves_a_log_without_gaps(tmp_path: Path) -> None:
    from holdfast.shell.stores.folder import FolderStore

    at = steps = 0
    while at <= steps:
        place, count = tmp_path / str(at), 0
        write(place, 1, 6)
        trim(place, needed_from=2)

        def counting(change: Any) -> Any:
            def changed(*args: Any, **options: Any) -> Any:
                nonlocal count
                count += 1
                if count > at:  # noqa: B023
                    raise Crash
                return change(*args, **options)

            return changed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FolderStore, "put", counting(FolderStore.put))
            patch.setattr(FolderStore, "delete", counting(FolderStore.delete))
            patch.setattr(Path, "unlink", counting(Path.unlink))
            with suppress(Crash):
                trim(place, needed_from=8)
        steps = max(steps, min(count, at + 1))
        first = open_kept(str(place)).next_id
        assert first in (2, 8)
        assert read(str(place), first) == list(range(first, 12))
        trim(place, needed_from=8)
        assert read(str(place), 8) == list(range(8, 12))
        assert [segment.first_id for segment in segments(place)] == [8, 10]
        assert len(list((place / "begin").iterdir())) == 1
        at += 1
    assert steps > 3


def test_a_driver_that_does_not_lead_removes_nothing(tmp_path: Path) -> None:
    write(tmp_path, 1, 5)
    before = sorted(tmp_path.rglob("*"))

    def superseded() -> None:
        raise JournalSuperseded("another driver has begun")

    with pytest.raises(JournalSuperseded):
        LogTrimmer(str(tmp_path), superseded).trim(NOTHING_KEPT, None, LATER_US)
    assert sorted(tmp_path.rglob("*")) == before


def test_sizes_decide_too(tmp_path: Path) -> None:
    write(tmp_path, 1, 8)
    trimmer = LogTrimmer(str(tmp_path), lead)
    trimmer.trim(FOR_EVER, None, LATER_US)
    size = trimmer.size_bytes
    assert trimmer.trim(Retention(size_bytes=size // 2), None, LATER_US) == 4
    assert trimmer.size_bytes <= size // 2
