"""Logs of parts: whatever the store does, readers see each tuple once, in order."""

import os
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash
from s3_server import s3_place

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.wire import log_parts, log_records
from holdfast.core.wire.log_opening import SinkLacksTuples
from holdfast.shell.storage import part_log, part_log_reader
from holdfast.shell.storage.errors import (
    SchemaMismatch,
    StorageError,
    StreamLogCorrupt,
    TuplesMissing,
)
from holdfast.shell.storage.part_log import PartLogWriter
from holdfast.shell.storage.part_log_reader import PartLogReader
from holdfast.shell.storage.places import store_at
from holdfast.shell.stores.base import CheckpointStore, StoreUnavailable

SCHEMA = with_time(pa.schema([("v", pa.int64())]))


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_place("logs") as place:
        yield place


@pytest.fixture(params=["memory", "local", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for a log, behind each kind of URL."""
    match request.param:
        case "memory":
            return f"memory://{uuid.uuid4()}"
        case "local":
            return f"local://{tmp_path}/log"
        case _:
            return f"{request.getfixturevalue('s3')}/{uuid.uuid4()}"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for intervals: what a reader may see, it sees at once."""
    monkeypatch.setattr(part_log, "PART_INTERVAL_S", 0.0)
    monkeypatch.setattr("holdfast.shell.stores.patience._RETRY_S", 0.0)
    for name in ("_SURE_INTERVAL_S", "_LOOK_INTERVAL_S", "_SURE_SHARE"):
        monkeypatch.setattr(part_log_reader, name, 0.0)


def writer(place: str, incarnation: int = 1, part_bytes: int = 1 << 20) -> PartLogWriter:
    return PartLogWriter(place, SCHEMA, "s", incarnation, part_bytes=part_bytes)


def put(log: PartLogWriter, count: int = 1, boundary_us: int | None = None) -> None:
    """Append and store `count` tuples whose value is their id."""
    append(log, count, boundary_us)
    log.sync()


def append(log: PartLogWriter, count: int = 1, boundary_us: int | None = None) -> None:
    ids = pa.array(range(log.next_id, log.next_id + count), pa.int64())
    rows = pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)
    boundary = log.next_id if boundary_us is None else boundary_us
    log.append(TupleType.STABLE, log.next_id, rows, boundary, 0)


def taken(reader: PartLogReader) -> list[int]:
    """What a reader can get now."""
    found: list[int] = []
    while batches := reader.poll(max_rows=3):
        for logged in batches:
            assert logged.first_id == logged.batch.column(0)[0].as_py()
            found += logged.batch.column(0).to_pylist()
    return found


def values(place: str, from_id: int = 0) -> list[int]:
    return taken(PartLogReader(place, from_id))


def test_a_log_is_read_while_it_is_written(place: str) -> None:
    reader = PartLogReader(place)
    assert taken(reader) == []
    log = writer(place)
    assert taken(reader) == []
    seen: list[int] = []
    for _ in range(5):
        put(log, 4)
        seen += taken(reader)
    assert seen == list(range(20))
    assert reader.boundary_us == 16
    assert values(place, 7) == list(range(7, 20))
    assert not reader.ended
    log.end()
    assert taken(reader) == []
    assert reader.ended
    assert reader.schema == SCHEMA


def test_what_was_not_synced_is_not_there(place: str) -> None:
    log = writer(place)
    put(log, 3)
    append(log, 2)
    log.close()
    assert values(place) == [0, 1, 2]
    successor = writer(place, 2)
    assert (successor.next_id, successor.boundary_us) == (3, 0)
    put(successor, 2)
    assert values(place) == [0, 1, 2, 3, 4]


def test_much_at_once_becomes_parts_of_a_bounded_size(place: str) -> None:
    log = writer(place, part_bytes=2_000)
    for _ in range(40):
        append(log, 2)
    log.sync()
    assert 3 < len(store_at(place).names("0000000001")) < 20
    assert values(place) == list(range(80))
    assert values(place, 41) == list(range(41, 80))
    assert writer(place, 2).next_id == 80


def test_of_two_writers_the_later_incarnation_wins_however_late_the_other_stores(
    place: str,
) -> None:
    zombie = writer(place, 1)
    put(zombie, 10)
    append(zombie, 5)
    reader = PartLogReader(place)
    assert taken(reader) == list(range(10))
    successor = writer(place, 2)
    assert successor.next_id == 10
    zombie.sync()  # Its part lands after the successor has found the end.
    assert taken(reader) == []
    put(successor, 3)
    put(zombie, 5)
    assert taken(reader) == [10, 11, 12]
    fresh = PartLogReader(place)
    assert [logged.incarnation for logged in fresh.poll()] == [1, 2]
    assert fresh.next_id == 13
    with pytest.raises(StorageError, match="incarnation 2, this is 1"):
        writer(place, 1)
    zombie.end()
    assert not PartLogReader(place).ended
    assert writer(place, 3).next_id == 13


def test_a_successors_mark_cuts_a_part_of_the_zombie(place: str) -> None:
    zombie = writer(place, 1)
    put(zombie, 10)
    store_at(place).put(
        "writers/00000000000000000004-0000000002",
        log_parts.encode_part("s", 2, SCHEMA, 4, [], 4, 0, has_ended=False),
    )
    assert values(place) == [0, 1, 2, 3]
    third = writer(place, 3)
    assert third.next_id == 4
    put(third, 2)
    assert values(place) == [0, 1, 2, 3, 4, 5]


def test_boundary_and_end_are_found_again(place: str) -> None:
    log = writer(place)
    put(log, 5, boundary_us=123)
    log.close()
    writer(place, 2).close()
    third = writer(place, 3)
    assert (third.next_id, third.boundary_us, third.has_ended) == (5, 123, False)
    third.end()
    fourth = writer(place, 4)
    assert fourth.has_ended
    reader = PartLogReader(place, 5)
    assert taken(reader) == []
    assert reader.ended


def test_small_parts_are_merged_and_their_number_stays_low(place: str) -> None:
    log = writer(place)
    reader, slow = PartLogReader(place), PartLogReader(place)
    assert taken(slow) == []
    seen: list[int] = []
    most, passes = 0, 40 if place.startswith("s3") else 300
    for number in range(passes):
        put(log, boundary_us=number)
        log.tidy()
        if number % 3 == 0:
            seen += taken(reader)
        if number == 20:
            assert len(slow.poll(max_rows=1)) == 1
        if number % 20 == 19:
            most = max(most, len(store_at(place).names("0000000001")))
    assert most <= 3 * 16
    assert seen + taken(reader) == list(range(passes))
    assert taken(slow) == list(range(1, passes))
    assert reader.boundary_us == passes - 1
    for start in (0, 15, 16, 17, 32, 39, passes - 1):
        assert values(place, start) == list(range(start, passes))
    assert writer(place, 2).next_id == passes


def test_trimmed_and_missing_tuples_are_an_error_and_not_a_silence(place: str) -> None:
    log = writer(place)
    for _ in range(8):
        put(log, 5)
    log.trim(10)
    assert values(place, 10) == list(range(10, 40))
    with pytest.raises(TuplesMissing, match="tuples 0 to 9"):
        values(place)
    store_at(place).delete(f"0000000001/{20:020d}.part")
    with pytest.raises(TuplesMissing, match="tuples 20 to 24 are missing"):
        values(place, 10)
    log.skip_to(100)
    put(log, 2)
    assert values(place, 100) == [100, 101]


def test_another_schema_is_refused(place: str) -> None:
    put(writer(place))
    with pytest.raises(SchemaMismatch):
        PartLogWriter(place, with_time(pa.schema([("w", pa.string())])), "s", 2)


def test_damage_is_an_error_with_place_and_cure(place: str) -> None:
    log = writer(place)
    append(log, 5)
    append(log, 5)
    log.sync()
    store = store_at(place)
    name = f"0000000001/{0:020d}.part"
    data = bytearray(store.read(name))
    data[-300] ^= 1
    store.delete(name)
    store.put(name, [bytes(data)])
    with pytest.raises(StreamLogCorrupt, match=r"damaged at byte .*checksum is wrong. Restore"):
        values(place)
    with pytest.raises(StreamLogCorrupt, match="checksum is wrong"):
        writer(place, 2)


def test_what_is_restored_from_a_copy_counts_though_somebody_has_tried_to_open(
    place: str,
) -> None:
    log = writer(place)
    put(log, 5)
    put(log, 5)
    store, name = store_at(place), f"0000000001/{5:020d}.part"
    data = bytes(store.read(name))
    store.delete(name)
    with pytest.raises(SinkLacksTuples, match=r"tuples 5 to 9 are missing.*Restore it"):
        PartLogWriter(place, SCHEMA, "s", 2, wanted=10)
    store.put(name, [data])
    assert PartLogWriter(place, SCHEMA, "s", 3, wanted=10).next_id == 10
    assert values(place) == list(range(10))


def test_damage_of_merged_parts_is_an_error_and_not_an_earlier_end(place: str) -> None:
    log = writer(place)
    for _ in range(32):
        put(log)
        log.tidy()
    store = store_at(place)
    name = f"0000000001/{16:020d}-{32:020d}.part"
    data = bytes(store.read(name))
    store.delete(name)
    store.put(name, [data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]])
    with pytest.raises(StreamLogCorrupt, match=r"-0+32.part is damaged at byte .*Restore"):
        values(place)
    with pytest.raises(StreamLogCorrupt, match=r"-0+32.part is damaged at byte"):
        writer(place, 2)
    store.delete(name)
    store.put(name, [data])
    assert writer(place, 3).next_id == 32
    assert values(place) == list(range(32))


def test_a_part_is_used_as_far_as_it_is_whole_wherever_its_writer_died(tmp_path: Path) -> None:
    """Object stores show an object whole or not at all; a file system may show its beginning."""
    log = writer(f"local://{tmp_path}/log")
    put(log, 5)
    append(log, 3)
    append(log, 2)
    log.sync()
    part = tmp_path / "log" / "0000000001" / f"{5:020d}.part"
    data = part.read_bytes()
    for number, size in enumerate(range(0, len(data), 37)):
        copy = tmp_path / f"copy{number}"
        place = f"local://{copy}"
        put(writer(place), 5)
        (copy / part.relative_to(tmp_path / "log")).write_bytes(data[:size])
        reader = PartLogReader(place)
        before = taken(reader)
        assert before in [list(range(n)) for n in (5, 8, 10)]
        successor = writer(place, 2)
        assert successor.next_id == len(before)
        put(successor, 2)
        assert before + taken(reader) == list(range(len(before) + 2))


def test_a_part_that_is_being_written_is_read_to_its_end_later(tmp_path: Path) -> None:
    place = f"local://{tmp_path}/log"
    log = writer(place)
    append(log, 3)
    append(log, 2)
    log.sync()
    part = tmp_path / "log" / "0000000001" / f"{0:020d}.part"
    data = part.read_bytes()
    part.write_bytes(data[:-200])
    reader = PartLogReader(place)
    assert taken(reader) == [0, 1, 2]
    assert taken(reader) == []
    part.write_bytes(data)
    assert taken(reader) == [3, 4]


class Faulty(CheckpointStore):
    """A store around another one, whose `put` does as told: one letter for each call.

    `.`: works. `x`: refuses. `l`: works, and its answer is lost. `t`: stores the first half.
    """

    def __init__(self, store: CheckpointStore, script: list[str]) -> None:
        self._store, self._script = store, script

    def put(self, name: str, parts: Sequence[bytes | pa.Buffer]) -> None:
        fault = self._script.pop(0) if self._script else "."
        data = b"".join(bytes(part) for part in parts)
        if fault == "x":
            raise StoreUnavailable("503 Slow Down")
        self._store.put(name, [data[: len(data) // 2] if fault == "t" else data])
        if fault != ".":
            raise StoreUnavailable("the connection broke")

    def create(self, name: str) -> object:  # type: ignore[override]
        raise NotImplementedError

    def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        self._store.read_into(name, offset, buffer)

    def read(self, name: str) -> memoryview:
        return self._store.read(name)

    def size(self, name: str) -> int:
        return self._store.size(name)

    def names(self, folder_prefix: str = "") -> list[str]:
        return self._store.names(folder_prefix)

    def delete(self, name: str) -> None:
        self._store.delete(name)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the stores of all logs opened from now on do."""
    faults: list[str] = []
    for module in (part_log, part_log_reader):
        monkeypatch.setattr(module, "store_at", lambda place: Faulty(store_at(place), faults))
    return faults


@pytest.mark.parametrize("faults", ["l", "x", "t", "xl", "xxl", "tl", "tt", "lt", "xxxx", "xtxl"])
def test_a_part_is_stored_once_whatever_becomes_of_the_answer(
    place: str, script: list[str], faults: str
) -> None:
    log = writer(place)
    put(log, 3)
    script += faults
    put(log, 4)
    assert not script or faults[0] == "l"  # Once stored, nothing is tried again.
    script.clear()
    put(log, 2)
    assert values(place) == list(range(9))
    assert len(store_at(place).names("0000000001")) == 3


def test_a_mark_whose_answer_is_lost_counts_once(place: str, script: list[str]) -> None:
    put(writer(place), 2)
    script += "l"
    second = writer(place, 2)
    assert second.next_id == 2
    put(second)
    assert values(place) == [0, 1, 2]


def test_a_store_that_stays_away_fails_the_writer_and_what_it_stored_counts(
    place: str, script: list[str]
) -> None:
    log = writer(place, part_bytes=1)
    append(log, 2)
    append(log, 2)
    script += ".xxxxx"
    with pytest.raises(StoreUnavailable, match="503"):
        log.sync()
    assert values(place) == [0, 1]
    assert writer(place, 2).next_id == 2


def test_a_writer_given_up_whose_part_was_stored_nonetheless(place: str, script: list[str]) -> None:
    """1. The answer is lost. 2. The store is away. 3. The writer fails. 4. Its successor looks."""
    log = writer(place)
    put(log, 2)
    append(log, 3)
    script += "lxxxx"
    with pytest.raises(StoreUnavailable):
        log.sync()
    assert writer(place, 2).next_id == 5
    assert values(place) == list(range(5))


def test_two_processes_of_one_incarnation_do_not_overwrite_each_other(place: str) -> None:
    first, second = writer(place), None
    put(first, 2)
    second = PartLogWriter(place, SCHEMA, "s", 1, is_sole=True)
    append(second, 3)
    with pytest.raises(StorageError, match="written by another process of incarnation 1"):
        second.sync()
    assert values(place) == [0, 1]


def test_tuples_must_continue_the_log(place: str) -> None:
    log = writer(place)
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], schema=SCHEMA)
    with pytest.raises(StorageError, match="tuple 3, expected 0"):
        log.append(TupleType.STABLE, 3, rows, BEGINNING_US, 0)


def test_credentials_come_from_the_environment_alone(s3: str) -> None:
    assert os.environ["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1")
    assert store_at(f"{s3}/{uuid.uuid4()}").children() == []


@pytest.mark.parametrize("is_tailing", [False, True])
def test_what_was_merged_after_a_failover_is_read_at_once(
    place: str, monkeypatch: pytest.MonkeyPatch, is_tailing: bool
) -> None:
    """1. A reader comes to the border of two writers. 2. It cannot guess the name of what comes."""
    monkeypatch.setattr(part_log_reader, "_SURE_INTERVAL_S", 3_600.0)
    monkeypatch.setattr(part_log_reader, "_LOOK_INTERVAL_S", 3_600.0)
    put(writer(place), 4)
    bounded = PartLogReader(place, is_tailing=is_tailing)
    assert len(bounded.poll(max_rows=1)) == 1
    second = writer(place, 2)
    for _ in range(16):
        put(second)
    second.tidy()
    assert len(store_at(place).names("0000000002")) == 1
    assert taken(bounded) == list(range(4, 20))


def test_a_bounded_reader_finds_what_is_merged_while_it_reads(place: str) -> None:
    log = writer(place)
    reader = PartLogReader(place)
    for number in range(16):
        put(log)
        assert taken(reader) == [number]
    for _ in range(16):
        put(log)
    log.tidy()
    assert taken(reader) == list(range(16, 32))


def test_a_slow_opener_hides_nothing(place: str) -> None:
    """1. 3 finds the end at 4. 2. 1 goes on to 6. 3. 4 begins there. 4. 3 begins at 4."""
    zombie = writer(place, 1)
    put(zombie, 4)
    begun: list[PartLogWriter] = []

    def meanwhile() -> None:
        put(zombie, 2)
        begun.append(writer(place, 4))

    slow = opened_slowly(place, 3, meanwhile)
    put(slow, 1)
    assert begun[0].next_id == 6
    put(begun[0], 1)
    assert values(place) == list(range(7))
    assert writer(place, 5).next_id == 7


def opened_slowly(place: str, incarnation: int, meanwhile: Callable[[], None]) -> PartLogWriter:
    """A writer that finds the end, stands still while something happens, and puts its mark."""

    class Slow(Faulty):
        def put(self, name: str, parts: Sequence[bytes | pa.Buffer]) -> None:
            if name.startswith(log_parts.MARKS):
                patch.undo()
                meanwhile()
            super().put(name, parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part_log, "store_at", lambda place: Slow(store_at(place), []))
        return writer(place, incarnation)


def test_boundaries_without_a_tuple_are_stored_one_after_another(place: str) -> None:
    """As of a source whose partitions are idle."""
    log = writer(place)
    reader = PartLogReader(place)
    put(log, 2)
    assert taken(reader) == [0, 1]
    for boundary_us in range(10, 40):
        put(log, 0, boundary_us)
        reader.poll()
        assert reader.boundary_us == boundary_us
    assert len(store_at(place).names("0000000001")) == 2
    late = PartLogReader(place)
    late.poll()
    late.poll()
    assert late.boundary_us == 39
    put(log, 3, 50)
    log.tidy()
    assert taken(reader) == [2, 3, 4]
    assert values(place) == list(range(5))
    successor = writer(place, 2)
    assert (successor.next_id, successor.boundary_us) == (5, 50)


def test_a_successor_finds_the_end_behind_leftovers_of_merging(place: str) -> None:
    """1. Parts are merged and not all deleted. 2. What they became is merged once more."""
    log = writer(place)
    store = store_at(place)
    kept: dict[str, bytes] = {}
    for number in range(256):
        put(log)
        if number in (20, 31):
            name = f"0000000001/{number:020d}.part"
            kept[name] = bytes(store.read(name))
        log.tidy()
    for name, data in kept.items():
        store.put(name, [data])
    assert writer(place, 2).next_id == 256
    assert values(place) == list(range(256))


def test_a_torn_part_of_merged_ones_hides_nothing(tmp_path: Path) -> None:
    """1. Sixteen parts are merged. 2. Their writer dies while it stores what they became."""
    place = f"local://{tmp_path}/log"
    log = writer(place)
    for _ in range(16):
        put(log)
    plain = {path: path.read_bytes() for path in (tmp_path / "log" / "0000000001").iterdir()}
    log.tidy()
    [merged] = (tmp_path / "log" / "0000000001").iterdir()
    data = merged.read_bytes()
    for path, content in plain.items():
        path.write_bytes(content)
    for size in (0, 40, len(data) // 2, len(data) - 64):
        merged.write_bytes(data[:size])
        assert values(place) == list(range(16))
        assert values(place, 7) == list(range(7, 16))
    assert writer(place, 2).next_id == 16


def test_parts_that_are_merged_while_a_successor_looks_are_found(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie = writer(place, 1)
    for _ in range(16):
        put(zombie)
    names = Faulty.names

    def merged_meanwhile(self: Faulty, folder_prefix: str = "") -> list[str]:
        found = names(self, folder_prefix)
        if folder_prefix == "0000000001":
            zombie.tidy()
        return found

    monkeypatch.setattr(Faulty, "names", merged_meanwhile)
    monkeypatch.setattr(part_log, "store_at", lambda place: Faulty(store_at(place), []))
    assert writer(place, 2).next_id == 16


def test_a_log_of_the_version_before_is_read_and_gone_on_with(place: str) -> None:
    """Its marks name no owners: a later incarnation holds from its first id on."""
    store = store_at(place)
    for incarnation, first_id, count in ((1, 0, 10), (2, 6, 3)):
        ids = pa.array(range(first_id, first_id + count), pa.int64())
        rows = pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)
        fields = (TupleType.STABLE, incarnation, first_id, 5, 0, rows)
        body = log_records.encode_record(log_records.RecordKind.DATA, *fields)
        mark = log_parts.encode_part("s", incarnation, SCHEMA, first_id, [], first_id, 0, **OPEN)
        end = first_id + count
        part = log_parts.encode_part("s", incarnation, SCHEMA, first_id, body, end, 5, **OPEN)
        store.put(log_parts.mark_name(first_id, incarnation), as_version_2(mark))
        store.put(f"{incarnation:010d}/{first_id:020d}.part", as_version_2(part))
    assert values(place) == list(range(9))
    third = writer(place, 3)
    assert third.next_id == 9
    put(third, 2)
    assert values(place) == list(range(11))


OPEN = {"has_ended": False}


def as_version_2(parts: Sequence[bytes | pa.Buffer]) -> list[bytes]:
    """A part without owners, with the magic of before and its checksum."""
    data = bytearray(b"".join(bytes(part) for part in parts))
    data[7] = 2
    header = log_records.decode_segment_header(b"HFSEG\0\0\5" + bytes(data[8:]))
    assert isinstance(header, log_records.SegmentHeader)
    name_size, schema_size = struct.unpack_from("<II", data, 8)
    body = bytes(data[40 : 40 + name_size + schema_size])
    digest = xxhash.xxh3_64(bytes(data[:32]))
    digest.update(body)
    struct.pack_into("<Q", data, 32, digest.intdigest())
    return [bytes(data)]


@pytest.mark.parametrize("from_id", [0, 80])
def test_a_reader_that_follows_many_parts_reads_none_again(
    monkeypatch: pytest.MonkeyPatch, from_id: int
) -> None:
    """Large parts are not merged, so there may be any number of them."""
    monkeypatch.setattr(part_log_reader, "_SURE_INTERVAL_S", 3600.0)
    place = f"memory://{uuid.uuid4()}"
    log = writer(place)
    for _ in range(80):
        put(log)
    reader = PartLogReader(place, from_id, is_tailing=True)
    read: list[str] = []
    reading = reader._store.read

    def noted(name: str) -> memoryview:
        found = reading(name)
        if name.endswith(".part"):
            read.append(name)
        return found

    monkeypatch.setattr(reader._store, "read", noted)
    assert taken(reader) == list(range(from_id, 80))
    assert len(read) == len({*read})
    for number in range(80, 86, 2):
        monkeypatch.setattr(reader, "_sure_at_s", float("-inf"))
        assert taken(reader) == []  # It has listed all names.
        read.clear()
        for _ in range(2):
            put(log)
            assert taken(reader) == [log.next_id - 1]
        assert read == [f"0000000001/{at:020d}.part" for at in (number, number + 1)]
    reader.close()
    log.close()
