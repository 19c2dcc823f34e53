"""The stream log as a file: torn ends, damage, several writers, segments, full disks."""

import errno
import os
import struct
import threading
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.wire import log_records
from holdfast.core.wire.log_opening import BeginAt, SinkLacksTuples
from holdfast.core.wire.log_owners import chained
from holdfast.core.wire.log_records import encode_narrow, encode_record
from holdfast.shell.storage.errors import (
    SchemaMismatch,
    StorageError,
    StreamLogCorrupt,
    TuplesMissing,
)
from holdfast.shell.storage.logs import open_tail, open_writer
from holdfast.shell.storage.stream_log import (
    StreamLogReader,
    StreamLogWriter,
    _SegmentReader,
    segments,
)

SCHEMA = with_time(pa.schema([("v", pa.int64())]))


def put(writer: StreamLogWriter, count: int = 1, boundary_us: int | None = None) -> None:
    """Append `count` tuples whose value is their id."""
    ids = pa.array(range(writer.next_id, writer.next_id + count), pa.int64())
    rows = pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)
    boundary = writer.next_id if boundary_us is None else boundary_us
    writer.append(TupleType.STABLE, writer.next_id, rows, boundary, 0)


def writer(path: Path, incarnation: int = 1, segment_bytes: int = 1 << 20) -> StreamLogWriter:
    return StreamLogWriter(str(path), SCHEMA, "s", incarnation, segment_bytes=segment_bytes)


def values(path: Path, from_id: int = 0) -> list[int]:
    reader = StreamLogReader(str(path), from_id)
    found: list[int] = []
    while batches := reader.poll(max_rows=3):
        for logged in batches:
            assert logged.first_id == logged.batch.column(0)[0].as_py()
            found += logged.batch.column(0).to_pylist()
    reader.close()
    return found


def newest(path: Path) -> Path:
    return max(path.glob("*.seg"))


def test_a_log_goes_on_in_another_version(tmp_path: Path) -> None:
    """A sink of before is taken over by a writer that keeps columns as offsets."""
    sizes = []
    for incarnation, encode in enumerate((encode_record, encode_narrow, encode_record), 1):
        with StreamLogWriter(str(tmp_path), SCHEMA, "s", incarnation, encode=encode) as log:
            put(log, 5_000)
            put(log, 10)
        sizes.append(newest(tmp_path).stat().st_size)
    assert sizes[1] < sizes[0] / 3
    assert values(tmp_path) == list(range(3 * 5_010))


def test_a_tail_costs_as_much_as_the_newest_segment_has(tmp_path: Path) -> None:
    first = writer(tmp_path, segment_bytes=2_000)
    for _ in range(40):
        put(first)
    assert len(segments(tmp_path)) > 3
    tail = open_tail(str(tmp_path))
    assert tail is not None
    begun = tail.next_id
    assert begun == segments(tmp_path)[-1].first_id
    tail.skip_to_end(1)
    assert tail.next_id == begun + 1
    put(first, 3)
    put(first)
    tail.skip_to_end(2)
    first.close()
    second = open_writer(str(tmp_path), SCHEMA, "s", 2, tail=tail)
    assert second.next_id == 44
    second.close()


def followed(path: Path) -> tuple[StreamLogWriter, StreamLogReader]:
    """The writer of five tuples, and a tail that has seen them."""
    log = writer(path)
    put(log, 5)
    tail = open_tail(str(path))
    assert tail is not None
    tail.skip_to_end()
    return log, tail


def test_a_takeover_finds_a_segment_that_its_tail_has_not_seen_yet(tmp_path: Path) -> None:
    _, tail = followed(tmp_path)
    listed_ns = tmp_path.stat().st_mtime_ns
    put(writer(tmp_path, 2), 3)
    os.utime(tmp_path, ns=(listed_ns, listed_ns))  # The file system's clock has not moved on.
    assert open_writer(str(tmp_path), SCHEMA, "s", 3, tail=tail).next_id == 8


def test_a_takeover_does_not_count_what_its_tail_has_seen_of_a_zombie(tmp_path: Path) -> None:
    zombie, tail = followed(tmp_path)
    put(zombie, 10)
    tail.skip_to_end()
    supersede(tmp_path, 5)
    assert open_writer(str(tmp_path), SCHEMA, "s", 3, tail=tail).next_id == 7


def test_a_tail_forgets_what_a_zombie_wrote_when_it_comes_to_the_successor(tmp_path: Path) -> None:
    zombie, tail = followed(tmp_path)
    put(zombie, 10)
    tail.skip_to_end()
    supersede(tmp_path, 5)
    tail.skip_to_end()
    assert tail.next_id == 7


def supersede(path: Path, first_id: int) -> None:
    """Two tuples of a successor that found the log's end there, before the zombie went on."""
    with StreamLogWriter(str(path / "apart"), SCHEMA, "s", 2, first_id=first_id) as successor:
        put(successor, 2)
        newest(path / "apart").rename(path / newest(path / "apart").name)


def test_a_tail_of_a_log_that_has_not_begun_follows_from_its_first_tuple(tmp_path: Path) -> None:
    tail = open_tail(str(tmp_path / "log"))
    assert tail is not None
    tail.skip_to_end()
    put(writer(tmp_path / "log"), 5)
    tail.skip_to_end()
    assert tail.next_id == 5


def test_a_log_is_read_while_it_is_written_over_many_segments(tmp_path: Path) -> None:
    log = writer(tmp_path, segment_bytes=2_000)
    reader = StreamLogReader(str(tmp_path))
    seen: list[int] = []
    for _ in range(40):
        put(log, 2)
        seen += [v for logged in reader.poll() for v in logged.batch.column(0).to_pylist()]
    assert seen == list(range(80))
    assert len(list(tmp_path.glob("*.seg"))) > 3
    assert values(tmp_path, 33) == list(range(33, 80))
    log.end()
    reader.poll()
    assert reader.ended


def test_a_segment_goes_on_until_little_of_it_is_not_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.shell.storage.stream_log._UNSYNCED_BYTES", 3_000)
    monkeypatch.setattr("holdfast.shell.storage.stream_log._OVERDUE_BYTES", 20_000)
    log = writer(tmp_path, segment_bytes=2_000)
    put(log, 500)
    put(log, 1)
    put(log, 1)
    assert len(segments(tmp_path)) == 1, "a burst goes on"
    log.sync()
    put(log, 1)
    assert [s.first_id for s in segments(tmp_path)] == [0, 502]
    put(log, 2_000)
    put(log, 1)
    assert [s.first_id for s in segments(tmp_path)] == [0, 502, 2_503], "but not for ever"
    assert values(tmp_path) == list(range(2_504))


def beside(tmp_path: Path) -> StreamLogWriter:
    log = open_writer(str(tmp_path), SCHEMA, "s", 1, segment_bytes=2_000, switches_beside=True)
    assert isinstance(log, StreamLogWriter)
    return log


def test_whoever_appends_never_waits_for_a_disk_where_another_thread_begins_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = beside(tmp_path)
    with monkeypatch.context() as patched:
        for name in ("fsync", "fdatasync"):
            patched.setattr(os, name, lambda file: pytest.fail("a disk was waited for"))
        put(log, 500)
        put(log, 500)
        log.tidy()
    assert len(segments(tmp_path)) == 1, "its rows are not durable yet"
    log.sync()
    log.tidy()
    log.tidy()
    put(log, 3)
    assert [s.first_id for s in segments(tmp_path)] == [0, 1_000]
    log.sync()
    assert values(tmp_path) == list(range(1_003))


def test_segments_that_another_thread_begins_lose_no_row(tmp_path: Path) -> None:
    log, is_over = beside(tmp_path), threading.Event()

    def sync() -> None:
        while not is_over.is_set():
            log.sync()
            log.tidy()

    thread = threading.Thread(target=sync, daemon=True)
    thread.start()
    for size in range(400):
        put(log, 1 + size % 60)
    is_over.set()
    thread.join()
    log.sync()
    log.tidy()
    put(log, 1)
    log.sync()
    assert values(tmp_path) == list(range(log.next_id))
    assert len(segments(tmp_path)) > 1


def test_what_need_not_last_is_never_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(os, "fsync", asked.append)
    monkeypatch.setattr(os, "fdatasync", asked.append)
    log = open_writer(str(tmp_path), SCHEMA, "s", 1, is_lasting=False)
    assert isinstance(log, StreamLogWriter)
    log._segment_bytes = 2_000
    put(log, 2_000_000)
    put(log)
    log.skip_to(2_000_005)
    assert not asked
    assert len(segments(tmp_path)) == 1, "a segment ends by its size alone, and is trimmed"


def test_a_segment_does_not_end_while_another_thread_makes_it_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path, segment_bytes=2_000)
    put(log, 500)
    syncing, may_end = threading.Event(), threading.Event()
    synced: list[os.stat_result] = []

    def slowly(file: int) -> None:
        syncing.set()
        may_end.wait(240)
        synced.append(os.fstat(file))

    monkeypatch.setattr(os, "fdatasync", slowly)
    disk = threading.Thread(target=log.sync)
    disk.start()
    assert syncing.wait(240)
    stream = threading.Thread(target=lambda: put(log))
    stream.start()
    first = newest(tmp_path)
    may_end.set()
    disk.join()
    stream.join()
    assert synced[0].st_ino == first.stat().st_ino
    assert len(segments(tmp_path)) == 2
    assert values(tmp_path) == list(range(501))


def test_a_finished_log_is_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.shell.storage.stream_log._READ_BYTES", 5_000)
    log = writer(tmp_path, segment_bytes=30_000)
    for count in (1, 700, 3, 2_000, 1, 90, 5):
        put(log, count)
    log.close()
    found: list[int] = []
    reader = StreamLogReader(str(tmp_path), 2, is_finished=True)
    while batches := reader.poll(max_rows=3):
        for logged in batches:
            logged.batch.validate(full=True)
            found += logged.batch.column(0).to_pylist()
    reader.close()
    assert found == list(range(2, 2_800))
    newest(tmp_path).write_bytes(newest(tmp_path).read_bytes()[:-8])
    torn = StreamLogReader(str(tmp_path), 2, is_finished=True)
    while torn.poll():
        pass
    assert torn.next_id < 2_800


def test_a_torn_end_is_cut_off_at_every_byte(tmp_path: Path) -> None:
    log = writer(tmp_path)
    put(log, 5)
    whole = os.path.getsize(newest(tmp_path))
    put(log, 3)
    log.close()
    data = newest(tmp_path).read_bytes()
    for number, size in enumerate(range(whole, len(data), 7)):
        copy = tmp_path / f"copy{number}"
        copy.mkdir()
        (copy / newest(tmp_path).name).write_bytes(data[:size])
        assert values(copy) == list(range(5))
        successor = writer(copy, 2)
        assert (successor.next_id, successor.boundary_us) == (5, 0)
        put(successor, 2)
        successor.close()
        assert values(copy) == list(range(7))


def test_garbage_at_the_end_is_a_torn_end_too(tmp_path: Path) -> None:
    log = writer(tmp_path)
    put(log, 5)
    log.close()
    with newest(tmp_path).open("ab") as file:
        file.write(os.urandom(500))
    assert values(tmp_path) == list(range(5))
    assert writer(tmp_path, 2).next_id == 5


def test_damage_with_good_records_behind_it_is_an_error_with_place_and_cure(
    tmp_path: Path,
) -> None:
    log = writer(tmp_path)
    put(log, 5)
    place = os.path.getsize(newest(tmp_path))
    put(log, 5)
    put(log, 5)
    log.close()
    data = bytearray(newest(tmp_path).read_bytes())
    data[place + 80] ^= 1
    newest(tmp_path).write_bytes(data)
    message = f"damaged at byte {place}: checksum is wrong. Restore"
    with pytest.raises(StreamLogCorrupt, match=message):
        values(tmp_path)
    with pytest.raises(StreamLogCorrupt, match=message):
        writer(tmp_path, 2)


def test_what_is_restored_from_a_copy_counts_though_somebody_has_tried_to_open(
    tmp_path: Path,
) -> None:
    log = writer(tmp_path)
    put(log, 5)
    put(log, 5)
    log.close()
    data = newest(tmp_path).read_bytes()
    newest(tmp_path).write_bytes(data[:-9])
    with pytest.raises(SinkLacksTuples, match=r"tuples 5 to 9 are missing.*Restore it"):
        StreamLogWriter(str(tmp_path), SCHEMA, "s", 2, wanted=10)
    newest(tmp_path).write_bytes(data)
    assert StreamLogWriter(str(tmp_path), SCHEMA, "s", 3, wanted=10).next_id == 10
    assert values(tmp_path) == list(range(10))


def test_a_record_that_seems_to_go_on_beyond_the_end_is_damage_to_whoever_takes_over(
    tmp_path: Path,
) -> None:
    """1. A bit of its size flips. 2. It looks like one that is just being written."""
    log = writer(tmp_path)
    put(log, 5)
    place = os.path.getsize(newest(tmp_path))
    put(log, 5)
    put(log, 5)
    log.close()
    whole = newest(tmp_path).read_bytes()
    refused, open_before = 0, len(os.listdir("/proc/self/fd"))
    for position in range(64 * 8):
        data = bytearray(whole)
        data[place + position // 8] ^= 1 << (position % 8)
        copy = tmp_path / f"copy{position}"
        copy.mkdir()
        (copy / newest(tmp_path).name).write_bytes(data)
        try:
            taken_over = writer(copy, 2)
        except StreamLogCorrupt:
            refused += 1
        else:
            assert taken_over.next_id == 15, "a byte without a meaning"
            taken_over.close()
    assert refused > 64 * 8 * 3 / 4
    assert len(os.listdir("/proc/self/fd")) == open_before, "who is refused leaves no file open"


def test_a_writer_that_goes_on_meanwhile_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The log's end is half a record. 2. Its writer, alive, writes the rest and more."""
    log = writer(tmp_path)
    put(log, 5)
    place = os.path.getsize(newest(tmp_path))
    put(log, 5)
    put(log, 5)
    whole = newest(tmp_path).read_bytes()
    newest(tmp_path).write_bytes(whole[: place + 40])
    look = _SegmentReader.has_record_beyond

    def look_late(self: _SegmentReader) -> bool:
        newest(tmp_path).write_bytes(whole)
        return look(self)

    monkeypatch.setattr(_SegmentReader, "has_record_beyond", look_late)
    assert writer(tmp_path, 2).next_id == 15


def test_of_two_writers_the_later_incarnation_wins(tmp_path: Path) -> None:
    zombie = writer(tmp_path, 1)
    put(zombie, 10)
    successor = writer(tmp_path, 2)
    put(zombie, 5)
    put(successor, 3)
    assert values(tmp_path) == list(range(13))
    reader = StreamLogReader(str(tmp_path))
    assert {logged.incarnation for logged in reader.poll(max_rows=13)} == {1, 2}
    with pytest.raises(StorageError, match="incarnation 2, this is 1"):
        writer(tmp_path, 1)


def test_a_reader_of_a_zombies_segment_notices_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.shell.storage.stream_log._LIST_INTERVAL_S", -1.0)
    zombie = writer(tmp_path, 1)
    put(zombie, 4)
    reader = StreamLogReader(str(tmp_path))
    assert sum(logged.count for logged in reader.poll()) == 4
    successor = writer(tmp_path, 2)
    put(zombie, 6)
    put(successor, 1)
    assert [logged.incarnation for logged in reader.poll()] == [2]


def test_an_empty_newest_segment_hides_neither_boundary_nor_end(tmp_path: Path) -> None:
    log = writer(tmp_path)
    put(log, 5, boundary_us=123)
    log.close()
    writer(tmp_path, 2).close()
    third = writer(tmp_path, 3)
    assert (third.next_id, third.boundary_us, third.has_ended) == (5, 123, False)
    third.end()
    third.close()
    assert writer(tmp_path, 4).has_ended
    reader = StreamLogReader(str(tmp_path), 5)
    reader.poll()
    assert reader.ended


def test_trimmed_and_missing_tuples_are_an_error_and_not_a_silence(tmp_path: Path) -> None:
    log = writer(tmp_path, segment_bytes=500)
    for _ in range(30):
        put(log)
    segments = sorted(tmp_path.glob("*.seg"))
    log.trim(10)
    with pytest.raises(TuplesMissing, match="tuples 0 to"):
        StreamLogReader(str(tmp_path)).poll()
    assert values(tmp_path, 10) == list(range(10, 30))
    segments[-3].unlink()
    with pytest.raises(TuplesMissing, match="are missing"):
        values(tmp_path, 10)


def test_another_schema_is_refused(tmp_path: Path) -> None:
    log = writer(tmp_path)
    put(log)
    log.close()
    with pytest.raises(SchemaMismatch):
        StreamLogWriter(str(tmp_path), with_time(pa.schema([("w", pa.string())])), "s", 2)


def test_a_full_disk_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = writer(tmp_path)
    put(log, 5)

    def full(file: int, parts: list[bytes]) -> int:
        os.write(file, bytes(parts[0])[:40])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        with pytest.raises(StorageError, match=r"writing tuple 5 .* No space left .* make room"):
            put(log)
    put(log, 2)
    assert values(tmp_path) == list(range(7))


def half_stored(path: Path) -> StreamLogWriter:
    """A log of seven tuples, of which five are known to be on disk."""
    log = writer(path)
    put(log, 5)
    log.sync()
    put(log, 2)
    return log


def test_what_a_disk_has_refused_to_store_is_no_part_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system reports it once, and takes it for stored then: a successor could not know."""
    log = half_stored(tmp_path)
    refuse_to_sync(log, monkeypatch)
    assert values(tmp_path) == list(range(5))
    with pytest.raises(StorageError, match="has not stored"):
        log.sync()  # The system would say now that all is well.
    with pytest.raises(StorageError, match="has not stored"):
        put(log, 1)
    log.close()
    assert values(tmp_path) == list(range(5))
    successor = writer(tmp_path, incarnation=2)
    assert successor.next_id == 5
    successor.close()


def refuse_to_sync(log: StreamLogWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuses)
        with pytest.raises(StorageError, match=r"has not stored .* before tuple 7: Input/output"):
            log.sync()


def test_what_a_successor_has_taken_for_stored_is_not_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A disk keeps a writer waiting. 2. It is replaced. 3. The disk refuses what it had."""
    log = half_stored(tmp_path)
    successor = writer(tmp_path, incarnation=2)
    refuse_to_sync(log, monkeypatch)
    log.close()
    put(successor, 3)
    successor.close()
    assert values(tmp_path) == list(range(10))


def test_a_successor_that_has_read_ahead_looks_again_behind_what_was_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = half_stored(tmp_path)
    tail = StreamLogReader(str(tmp_path), 0, skips=True)
    tail.skip_to_end()
    assert tail.next_id == 7
    refuse_to_sync(log, monkeypatch)
    log.close()
    successor = StreamLogWriter(str(tmp_path), SCHEMA, "s", 2, tail=tail)
    assert successor.next_id == 5
    successor.close()


def test_a_full_disk_leaves_no_half_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = writer(tmp_path, segment_bytes=500)
    put(log)
    log.sync()
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:-50])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StorageError, match="make room"):
        put(log)
    assert len(segments(tmp_path)) == 1
    monkeypatch.undo()
    put(log)
    log.close()
    assert values(tmp_path) == [0, 1]


def test_tuples_must_continue_the_log(tmp_path: Path) -> None:
    log = writer(tmp_path)
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], schema=SCHEMA)
    with pytest.raises(StorageError, match="tuple 3, expected 0"):
        log.append(TupleType.STABLE, 3, rows, BEGINNING_US, 0)


def test_a_slow_opener_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. 3 finds the end at 10. 2. 1 goes on to 15. 3. 4 begins there. 4. 3 begins at 10."""
    zombie = writer(tmp_path)
    put(zombie, 10)
    begun: list[StreamLogWriter] = []
    begin = StreamLogWriter._begin

    def slowly(self: StreamLogWriter, at: BeginAt) -> None:
        monkeypatch.undo()
        put(zombie, 5)
        zombie.sync()
        begun.append(writer(tmp_path, 4))
        begin(self, at)

    monkeypatch.setattr(StreamLogWriter, "_begin", slowly)
    slow = writer(tmp_path, 3)
    put(slow, 2)
    assert begun[0].next_id == 15
    assert values(tmp_path) == list(range(15))
    put(begun[0], 2)
    assert values(tmp_path) == list(range(17))
    assert writer(tmp_path, 5).next_id == 17


def test_a_reader_goes_back_to_an_earlier_writer_if_the_newest_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has come to a writer that began late, and of which it has read nothing."""
    monkeypatch.setattr("holdfast.shell.storage.stream_log._LIST_INTERVAL_S", -1.0)
    zombie = writer(tmp_path)
    put(zombie, 10)
    apart = tmp_path / "apart"
    with StreamLogWriter(str(apart), SCHEMA, "s", 4, first_id=15) as fourth:
        put(fourth, 2)
    third = writer(tmp_path, 3)
    reader = StreamLogReader(str(tmp_path))
    assert sum(logged.count for logged in reader.poll()) == 10
    assert reader.poll() == []
    put(zombie, 5)
    newest(apart).rename(tmp_path / newest(apart).name)
    header = tmp_path / f"{15:020d}-{4:010d}.seg"
    data = header.read_bytes()
    owners = chained([(Incarnation(1), 0), (Incarnation(4), 15)])
    found = log_records.decode_segment_header(data)
    assert isinstance(found, log_records.SegmentHeader)
    named = log_records.encode_segment_header("s", 4, 15, SCHEMA, owners)
    header.write_bytes(named + data[found.size :])
    assert sum(logged.count for logged in reader.poll()) == 7
    assert third.next_id == 10


def test_an_opener_that_has_not_written_its_header_yet_owns_nothing(tmp_path: Path) -> None:
    put(writer(tmp_path), 4)
    second = writer(tmp_path, 2)
    put(second, 1)
    segment = newest(tmp_path)
    data = segment.read_bytes()
    for size in (0, 20, 60):
        segment.write_bytes(data[:size])
        reader = StreamLogReader(str(tmp_path))
        assert sum(logged.count for logged in reader.poll()) == 4
        segment.write_bytes(data)
        assert sum(logged.count for logged in reader.poll()) == 1, "it is looked at again"
        reader.close()
    segment.write_bytes(b"")
    assert writer(tmp_path, 3).next_id == 4


def test_a_damaged_header_with_records_behind_it_is_an_error(tmp_path: Path) -> None:
    log = writer(tmp_path)
    put(log, 5)
    segment = newest(tmp_path)
    data = bytearray(segment.read_bytes())
    data[50] ^= 1
    segment.write_bytes(bytes(data))
    with pytest.raises(StreamLogCorrupt, match="checksum of the segment header is wrong"):
        values(tmp_path)
    with pytest.raises(StreamLogCorrupt, match="checksum of the segment header is wrong"):
        writer(tmp_path, 2)


def test_a_log_of_the_version_before_is_read_and_gone_on_with(tmp_path: Path) -> None:
    """Its segments name no owners: a later incarnation holds from its first id on."""
    for incarnation, first_id, count in ((1, 0, 10), (2, 6, 3)):
        with StreamLogWriter(
            str(tmp_path / str(incarnation)), SCHEMA, "s", incarnation, first_id=first_id
        ) as log:
            put(log, count)
        written = newest(tmp_path / str(incarnation))
        data = written.read_bytes()
        header = log_records.decode_segment_header(data)
        assert isinstance(header, log_records.SegmentHeader)
        (tmp_path / written.name).write_bytes(as_version_2(data) + data[header.size :])
    assert values(tmp_path) == list(range(9))
    third = writer(tmp_path, 3)
    assert third.next_id == 9
    put(third, 2)
    assert values(tmp_path) == list(range(11))


def as_version_2(data: bytes) -> bytes:
    """The header of a segment as it was before it named the owners."""
    name_size, schema_size, incarnation, _, first_id = struct.unpack_from("<IIIIq", data, 8)
    body = data[40 : 40 + name_size + schema_size]
    fields = (name_size, schema_size, incarnation, first_id)
    head = b"HFSEG\0\0\2" + struct.pack("<IIIxxxxq", *fields)
    digest = xxhash.xxh3_64(head)
    digest.update(body)
    whole = head + struct.pack("<Q", digest.intdigest()) + body
    return whole.ljust(-(-len(whole) // 64) * 64, b"\0")
