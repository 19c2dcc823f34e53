"""The simulated parts do what the real ones do: the same script on both."""

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.coordinator import events as coordinator_events
from holdfast.core.coordinator.admission import AdmitWrite
from holdfast.core.coordinator.checkpoint_rounds import ReportRound
from holdfast.core.coordinator.journal_entries import NewLife, RecoveryDecision
from holdfast.core.coordinator.line_account import ReportLine
from holdfast.core.coordinator.turns import GrantTurn
from holdfast.core.machine import Effect, SetTimer
from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId
from holdfast.core.model.tuples import TupleBatch, TupleType, with_time
from holdfast.core.wire import node_words
from holdfast.core.wire.log_opening import SinkLacksTuples
from holdfast.shell.spark import launch
from holdfast.shell.spark.journal import COORDINATOR, Journal
from holdfast.shell.storage.errors import (
    JournalCorrupt,
    JournalSuperseded,
    StorageError,
    StreamLogCorrupt,
)
from holdfast.shell.storage.part_log import PartLogWriter
from holdfast.shell.storage.part_log_reader import PartLogReader
from holdfast.shell.storage.places import store_at
from holdfast.shell.storage.stream_log import StreamLogReader, StreamLogWriter, segments
from holdfast.sim import driver as simulated_driver
from holdfast.sim.disk import Damage, SimulatedJournal, SimulatedLog, Superseded
from holdfast.sim.part_log import SimulatedPartLog
from holdfast.sim.scheduler import Clock, Scheduler
from holdfast.sim.seeds import Run, simulate

SCHEMA = with_time(pa.schema([("v", pa.int64())]))


def batch(first_id: int, values: list[int]) -> TupleBatch:
    columns = [pa.array(values, pa.int64()), pa.array(values, pa.int64())]
    return TupleBatch(first_id, pa.RecordBatch.from_arrays(columns, schema=SCHEMA), BEGINNING_US)


class RealLog:
    """A stream log in a folder, with the calls of `SimulatedLog`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[int, StreamLogWriter] = {}

    def open(self, incarnation: int, wanted: int = 0) -> int:
        writer = StreamLogWriter(str(self._folder), SCHEMA, "s", incarnation, wanted=wanted)
        self._writers[incarnation] = writer
        return writer.next_id

    def append(self, incarnation: int, tuples: TupleBatch) -> None:
        self._writers[incarnation].append(
            TupleType.STABLE, tuples.first_id, tuples.batch, tuples.boundary_us, 0
        )

    def skip_to(self, incarnation: int, first_id: int) -> None:
        self._writers[incarnation].skip_to(first_id)

    def values(self, from_id: int = 0) -> list[int]:
        reader = StreamLogReader(str(self._folder), from_id)
        found: list[int] = []
        while logged := reader.poll():
            found += [v for part in logged for v in part.batch.column(0).to_pylist()]
        return found

    def newest_file(self) -> Path:
        return segments(self._folder)[-1].path


class FakeLog:
    """The same calls on the simulated log."""

    def __init__(self) -> None:
        self.log = SimulatedLog("s", SCHEMA)

    def open(self, incarnation: int, wanted: int = 0) -> int:
        return self.log.open(Incarnation(incarnation), 1, wanted=wanted)

    def append(self, incarnation: int, tuples: TupleBatch) -> None:
        self.log.append(Incarnation(incarnation), tuples)

    def skip_to(self, incarnation: int, first_id: int) -> None:
        self.log.skip_to(Incarnation(incarnation), first_id)

    def values(self, from_id: int = 0) -> list[int]:
        return [v for b in self.log.read() for v in b.batch.column(0).to_pylist()]


class RealParts:
    """A log of parts in memory; what is appended is stored at once."""

    def __init__(self) -> None:
        self._place = f"memory://{uuid.uuid4()}"
        self._writers: dict[int, PartLogWriter] = {}

    def open(self, incarnation: int, wanted: int = 0) -> int:
        writer = PartLogWriter(self._place, SCHEMA, "s", incarnation, wanted=wanted)
        self._writers[incarnation] = writer
        return writer.next_id

    def append(self, incarnation: int, tuples: TupleBatch) -> None:
        writer = self._writers[incarnation]
        writer.append(TupleType.STABLE, tuples.first_id, tuples.batch, tuples.boundary_us, 0)
        writer.sync(at_once=True)

    def values(self, from_id: int = 0) -> list[int]:
        reader = PartLogReader(self._place, from_id)
        found: list[int] = []
        while logged := reader.poll():
            found += [v for part in logged for v in part.batch.column(0).to_pylist()]
        return found

    def objects(self) -> dict[str, bytes]:
        store = store_at(self._place)
        return {name: bytes(store.read(name)) for name in store.names()}


class FakeParts:
    """The same calls on the simulated log of parts."""

    def __init__(self) -> None:
        self.log = SimulatedPartLog("s", SCHEMA)

    def open(self, incarnation: int, wanted: int = 0) -> int:
        return self.log.open(Incarnation(incarnation), 1, wanted=wanted)

    def append(self, incarnation: int, tuples: TupleBatch) -> None:
        self.log.append(Incarnation(incarnation), tuples)
        self.log.store(Incarnation(incarnation))
        self.log.stored(Incarnation(incarnation))

    def values(self, from_id: int = 0) -> list[int]:
        return [v for b in self.log.read() for v in b.batch.column(0).to_pylist()]

    def objects(self) -> dict[str, bytes]:
        return {name: bytes(file.data) for name, file in self.log._objects.items()}


Log = RealLog | FakeLog | RealParts | FakeParts


@pytest.fixture
def appended(tmp_path: Path) -> list[RealLog | FakeLog]:
    return [RealLog(tmp_path / "log"), FakeLog()]


@pytest.fixture
def logs(appended: list[RealLog | FakeLog]) -> list[Log]:
    return [*appended, RealParts(), FakeParts()]


def test_a_successor_goes_on_where_the_log_ends(logs: list[Log]) -> None:
    for log in logs:
        assert log.open(1) == 0
        log.append(1, batch(0, [10, 11]))
        assert log.open(2) == 2
        log.append(2, batch(2, [12]))
        assert log.values() == [10, 11, 12]


def test_what_a_zombie_writes_is_not_read(logs: list[Log]) -> None:
    for log in logs:
        log.open(1)
        log.append(1, batch(0, [10]))
        log.open(3)
        log.append(1, batch(1, [99, 98]))
        log.append(3, batch(1, [11]))
        assert log.values() == [10, 11]


def test_an_earlier_incarnation_cannot_open_it(logs: list[Log]) -> None:
    for log in logs:
        log.open(2)
        with pytest.raises((StorageError, Superseded)):
            log.open(1)
        with pytest.raises((StorageError, Superseded)):
            log.open(2)


def test_a_log_that_ends_early_is_not_begun(logs: list[Log]) -> None:
    for log in logs:
        log.open(1)
        log.append(1, batch(0, [10, 11]))
        with pytest.raises(SinkLacksTuples, match="tuples 2 to 2 are missing"):
            log.open(2, wanted=3)
        log.append(1, batch(2, [12]))
        assert log.open(3, wanted=3) == 3
        assert log.values() == [10, 11, 12]


def test_a_log_can_go_on_at_a_later_id(appended: list[RealLog | FakeLog]) -> None:
    for log in appended:
        log.open(1)
        log.append(1, batch(0, [10]))
        log.skip_to(1, 7)
        log.append(1, batch(7, [17]))
        assert log.values(7) == [17]


def test_parts_are_the_same_objects_with_the_same_bytes() -> None:
    real, fake = RealParts(), FakeParts()
    for log in (real, fake):
        log.open(1)
        log.append(1, batch(0, [10, 11]))
        log.append(1, batch(2, [12]))
        log.open(4)
        log.append(1, batch(3, [99]))
        log.append(4, batch(3, [13]))
    assert real.values() == fake.values() == [10, 11, 12, 13]
    assert real.objects() == fake.objects()


def test_a_torn_end_is_passed_over_and_damage_before_it_is_not(tmp_path: Path) -> None:
    real, fake = RealLog(tmp_path / "log"), FakeLog()
    for log in (real, fake):
        log.open(1)
        log.append(1, batch(0, [10, 11]))
        log.append(1, batch(2, [12]))
    path = real.newest_file()
    whole = path.read_bytes()
    file = fake.log._segments[0].file
    assert len(whole) == len(file.data), "the simulated log holds the bytes of the real one"
    path.write_bytes(whole[:-40])
    del file.data[-40:]
    assert real.values() == fake.values() == [10, 11]
    damaged = bytearray(whole)
    at = fake.log._segments[0].header_bytes + 30
    damaged[at] ^= 1
    path.write_bytes(bytes(damaged))
    file.data[:] = damaged
    with pytest.raises(StreamLogCorrupt):
        real.values()
    with pytest.raises(Damage):
        fake.values()


def test_journals_agree_about_torn_and_damaged_ends(tmp_path: Path) -> None:
    entries = [RecoveryDecision((NewLife(NodeId("a[0]"), Incarnation(n)),)) for n in (1, 2, 3)]
    fake = SimulatedJournal()
    fake.claim(1)
    fake.append(1, tuple(entries))
    real = Journal(str(tmp_path), COORDINATOR)
    real.write([*entries])
    real.close()
    file = next(tmp_path.glob("*.journal"))
    data = fake._volumes[1].data
    assert file.read_bytes() == bytes(data)
    for torn in (1, 5, 30):
        whole = file.read_bytes()
        file.write_bytes(whole[:-torn])
        other = SimulatedJournal()
        other.claim(1)
        other._volumes[1].data[:] = whole[:-torn]
        again = Journal(str(tmp_path), COORDINATOR)
        assert again.entries[-1] == other.read()[-1]
        again.close()
        next(tmp_path.glob("*.journal")).unlink()
        file.write_bytes(whole)
    damaged = bytearray(file.read_bytes())
    damaged[25] ^= 4
    file.write_bytes(bytes(damaged))
    data[:] = damaged
    with pytest.raises(JournalCorrupt, match="restore the file"):
        Journal(str(tmp_path), COORDINATOR)
    with pytest.raises(Damage):
        fake.read()


def test_a_replaced_driver_finds_out_when_it_writes_to_either_journal(tmp_path: Path) -> None:
    fake, real = SimulatedJournal(), Journal(str(tmp_path), COORDINATOR)
    fake.claim(1)
    fake.claim(2)
    fake.delete([1])
    Journal(str(tmp_path), COORDINATOR)
    for entries in ([], [RecoveryDecision((NewLife(NodeId("a[0]"), Incarnation(1)),))]):
        fake.append(1, entries)
        with pytest.raises(Superseded, match="another driver has begun epoch 2"):
            fake.sync(1)
    with pytest.raises(JournalSuperseded, match="another driver has begun epoch 2"):
        real.write([RecoveryDecision((NewLife(NodeId("a[0]"), Incarnation(1)),))])


def test_a_clock_that_drifts_and_jumps_never_fires_early() -> None:
    scheduler = Scheduler(1)
    clock = Clock(scheduler, offset_ms=5_000, drift_ppm=-40_000)
    fired: list[int] = []
    clock.wait_until(5_100, lambda: fired.append(clock.now_ms()))
    scheduler.after(20_000, lambda: clock.jump(30))
    scheduler.run(lambda: False, lambda: 1_000_000)
    assert fired
    assert fired[0] >= 5_100


def test_both_drivers_perform_every_effect_of_the_coordinator() -> None:
    effects = {
        each
        for each in vars(coordinator_events).values()
        if isinstance(each, type) and issubclass(each, Effect) and each is not Effect
    }
    wanted = {*effects, SetTimer, AdmitWrite, GrantTurn, ReportLine, ReportRound}
    assert wanted == set(simulated_driver._PERFORMERS)
    assert wanted == set(launch._PERFORMERS)


def test_what_the_simulated_driver_and_its_nodes_say_crosses_the_wire_as_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: dict[str, int] = {}

    def encode(word: node_words.Word) -> bytes:
        said[type(word).__name__] = said.get(type(word).__name__, 0) + 1
        return node_words.encode(word)

    monkeypatch.setattr(simulated_driver, "encode", encode)
    assert simulate(Run(3)).invariant is None
    assert {"HelloReceived", "KeepAliveReceived", "AssignmentReceived", "PeerTold"} <= set(said)
    monkeypatch.setattr(simulated_driver, "encode", lambda word: b"[]")
    assert simulate(Run(3)).invariant is not None


def test_what_comes_after_a_limit_happens_when_the_run_goes_on() -> None:
    scheduler, happened = Scheduler(1), list[int]()
    for at_us in (10, 20, 30):
        scheduler.after(at_us, lambda: happened.append(scheduler.now_us))
    assert not scheduler.run(lambda: False, lambda: 15)
    assert happened == [10]
    assert not scheduler.run(lambda: False, lambda: 35)
    assert happened == [10, 20, 30]
