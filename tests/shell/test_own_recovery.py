"""A process measures how it has come to work: so a node knows what its next recovery takes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.core.haunit.events import WriteSink
from holdfast.core.haunit.plan import FootprintPlan, NodePlan
from holdfast.core.machine import Effect, TimerFired
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


def test_a_node_hears_how_far_apart_points_are_to_be_though_it_has_no_time_for_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = Process(monkeypatch)
    plan = SimpleNamespace(
        footprints=FootprintPlan(share=0.02),
        footprint_stream="n~footprints",
        limits=SimpleNamespace(pass_tuples=8_192),
    )
    process.meter.replay_cost_us = lambda pass_tuples: 1.0
    behind = Background(cast("NodePlan", plan), cast("Meter", process.meter), 0)
    assert behind.watched == {TimerFired}
    mark = cast("Effect", WriteSink(StreamId("n~footprints"), cast("TupleBatch", None)))
    other = cast("Effect", WriteSink(StreamId("out"), cast("TupleBatch", None)))
    behind.stepped([other, mark], 2 * MS)
    behind.stepped([other], 100 * MS)  # Results, as without footprints.
    process.now_ns = 501 * MS
    for _ in range(10):
        behind.stepped([mark], 2 * MS)
    told = behind.due()
    assert told is not None
    assert told.windows == 0
    assert told.marks_apart_ms == 300, "half of 2 % for marks of 2 ms that cost half as much again"
    behind.done([])
    assert behind.due() is None
