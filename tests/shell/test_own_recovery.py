"""A process measures how it has come to work: so a node knows what its next recovery takes."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.haunit.events import FootprintsTaken, WriteSink
from holdfast.core.haunit.plan import FootprintPlan, NodePlan
from holdfast.core.machine import Effect, TimerFired
from holdfast.core.model.footprints import FootprintKind, FootprintRecord, PassMark
from holdfast.core.model.ids import StreamId
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.recovery.extent import Extent
from holdfast.shell.spark import background
from holdfast.shell.spark.background import Background, OwnRecovery
from holdfast.shell.spark.meter import Meter

MS = 1_000_000


class Process:
    """One whose clock stands still unless it is told otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        monkeypatch.setattr(background, "time", SimpleNamespace(monotonic_ns=lambda: self.now_ns))
        self.meter = SimpleNamespace(has_received=False)
        self.recovery = OwnRecovery(cast("Meter", self.meter), 0)

    def reads(self, took_ms: int, nbytes: int, footprints: int) -> None:
        self.now_ns += took_ms * MS
        last, records = SimpleNamespace(open_windows=footprints), [SimpleNamespace(nbytes=nbytes)]
        extent: Any = SimpleNamespace(last=last, records=records)
        self.recovery.has_read(cast("Extent", extent), took_ms * MS)

    def works(self, after_ms: int) -> None:
        self.now_ns += after_ms * MS
        self.recovery.look(self.now_ns)

    def receives(self, after_ms: int) -> None:
        self.meter.has_received = True
        self.works(after_ms)

    def replays(self, took_ms: int, tuples: int) -> None:
        self.now_ns += took_ms * MS
        self.recovery.has_replayed(tuples)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


def test_each_part_of_a_recovery_is_measured_by_itself(process: Process) -> None:
    process.now_ns = 30 * MS
    process.reads(20, nbytes=2 << 20, footprints=10_000)
    process.works(50)
    process.receives(12)
    process.replays(80, tuples=40_000)
    costs = process.recovery.costs(1.5, 3.0)
    assert costs.fixed_us == pytest.approx(42_000), "30 before it reads, 12 to connect"
    assert costs.byte_us == pytest.approx(20_000 / (2 << 20))
    assert costs.footprint_us == pytest.approx(5.0)
    assert costs.replayed_us == pytest.approx(2.0)
    assert costs.tuple_us == 1.5


def test_too_little_to_tell_what_one_costs_is_part_of_every_recovery(process: Process) -> None:
    process.now_ns = 30 * MS
    process.reads(20, nbytes=1_000, footprints=10)
    process.works(5)
    process.receives(12)
    process.replays(3, tuples=40)
    costs = process.recovery.costs(1.5, 3.0)
    assert costs.fixed_us == pytest.approx(67_000)
    assert (costs.byte_us, costs.footprint_us, costs.replayed_us) == (0.0, 3.0, 0.0)


def test_the_wait_for_others_and_for_a_quiet_source_is_left_out(process: Process) -> None:
    process.now_ns = 500 * MS
    process.recovery.leave_out(470 * MS)
    process.works(0)
    process.works(201)
    process.receives(5_000)
    assert process.recovery.costs(0.0, 0.0).fixed_us == pytest.approx(30_000)


BODY = pa.schema([("window", pa.int64())])


def written(kind: FootprintKind, count: int = 1) -> Effect:
    """A record of so many rows goes to the node's footprint log."""
    bodies = pa.RecordBatch.from_arrays([pa.nulls(count, pa.int64())], schema=BODY)
    mark, kinds = PassMark(count, 0, 0, (0,), 0), np.full(count, kind, dtype=np.uint8)
    return WriteSink(LOG, FootprintRecord(0, mark, kinds, bodies).to_batch())


LOG = StreamId("n~footprints")
MARK = written(FootprintKind.PASS)
RESULTS = cast("Effect", WriteSink(StreamId("out"), cast("TupleBatch", None)))


def background_of(process: Process) -> Background:
    """Of a node that may give a fiftieth of its time to footprints."""
    plan = SimpleNamespace(
        footprints=FootprintPlan(share=0.02),
        footprint_stream=LOG,
        limits=SimpleNamespace(pass_tuples=8_192),
    )
    process.meter.replay_cost_us = lambda pass_tuples: 1.0
    return Background(cast("NodePlan", plan), cast("Meter", process.meter), 0)


def test_a_node_hears_how_far_apart_points_are_to_be_though_it_has_no_time_for_windows(
    process: Process,
) -> None:
    behind = background_of(process)
    assert behind.watched == {TimerFired}
    behind.stepped([RESULTS, MARK], 2 * MS)
    behind.stepped([RESULTS], 100 * MS)  # As without footprints.
    process.now_ns = 501 * MS
    for _ in range(10):
        behind.stepped([MARK], 2 * MS)
    told = behind.due()
    assert told is not None
    assert told.windows == 0
    assert told.marks_apart_ms == 300, "half of 2 % for marks of 2 ms that cost half as much again"
    behind.done([])
    assert behind.due() is None


def asked(process: Process, behind: Background) -> int:
    """How many windows the node is to write now."""
    told = behind.due()
    return 0 if told is None else told.windows


@pytest.mark.parametrize("is_for_a_point", [False, True])
def test_footprints_are_paid_when_their_record_is_written_behind_whatever_has_come(
    process: Process, is_for_a_point: bool
) -> None:
    behind = background_of(process)
    process.now_ns = 30 * MS  # Of which there is time for one piece.
    assert asked(process, behind) == 4
    process.now_ns += MS // 4
    behind.done([FootprintsTaken(4)])
    assert behind.is_eager, "the record is still to be made"
    if is_for_a_point:
        behind.stepped([written(FootprintKind.G_CHECK, 4), MARK], MS // 4)
    else:
        assert asked(process, behind)
        process.now_ns += MS // 4
        behind.done([written(FootprintKind.G_CHECK, 4)])
    assert not behind.is_eager
    process.now_ns += 17 * MS
    assert not asked(process, behind), "0.5 ms, half as much again, at 2 %: 37.5 ms"
    process.now_ns += 17 * MS
    assert asked(process, behind)


def test_what_has_to_be_said_is_paid_but_makes_no_piece_smaller(process: Process) -> None:
    behind = background_of(process)

    def piece(*effects: Effect, took_us: int) -> int:
        """Wait until there is time for one; how many windows it may have."""
        process.now_ns += 100 * MS
        found = asked(process, behind)
        process.now_ns += took_us * 1000
        behind.done(list(effects))
        return found

    sizes = []
    for _ in range(40):
        piece(FootprintsTaken(0), took_us=900)
        piece(written(FootprintKind.G_OPEN), took_us=300)
        now_ns, told = process.now_ns, behind.due()
        n = 4 if told is None else max(1, told.windows)
        process.now_ns = now_ns + (100 + 4 * n) * 1000
        behind.done([FootprintsTaken(n)])
        piece(written(FootprintKind.G_OPEN), took_us=300)
        piece(written(FootprintKind.G_CHECK, n), took_us=100)
        sizes.append(n)
    assert 80 < sizes[-1] < 150, "half a millisecond, of which a tenth is the record's"


def test_whoever_has_nothing_to_write_is_asked_again_a_little_later(process: Process) -> None:
    behind = background_of(process)
    process.now_ns = 1_000 * MS
    assert asked(process, behind)
    behind.done([])
    assert not asked(process, behind)
    process.now_ns += 10 * MS
    assert asked(process, behind)
