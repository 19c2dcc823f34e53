"""What is noted when, and how often a node says how far it is."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.haunit import events
from holdfast.core.haunit.ack_pace import AckPace
from holdfast.core.haunit.delta_sender import DeltaSender
from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.durability.checkpointed import Checkpointed
from holdfast.core.haunit.durability.choice import durability_of
from holdfast.core.haunit.durability.mirrored import Mirrored
from holdfast.core.haunit.durability.replayed import Replayed
from holdfast.core.haunit.ha_unit import HAUnit
from holdfast.core.haunit.plan import (
    Assignment,
    CheckpointPlan,
    InputSpec,
    NodeLimits,
    NodePlan,
    OutputSpec,
    Standby,
)
from holdfast.core.haunit.prepared import PreparedCheckpoint
from holdfast.core.haunit.source_reading import SourceReading
from holdfast.core.haunit.state_delta import StateDelta
from holdfast.core.machine import Effect, SetTimer
from holdfast.core.model.ids import NO_ID, NOBODY, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire.checkpoint_files import CheckpointFiles, read_outputs
from holdfast.core.wire.manifests import Manifest, decode_manifest

SCHEMA = pa.schema([("v", pa.int64())])
A, OUT = StreamId("a>n"), StreamId("n>c")
ONE = Incarnation(1)
PLAN = NodePlan(
    NodeId("n"), "n", 0, (InputSpec(A, 0, SCHEMA, NodeId("a")),), 1, (),
    (OutputSpec(("port", 0), SCHEMA, (OUT,), (NodeId("c"),)),),
)  # fmt: skip
CHECKPOINTED = replace(PLAN, checkpoints=CheckpointPlan(1_000))
PASSIVE = replace(PLAN, standby=Standby.PASSIVE)
SINK = StreamId("n.out")
SURVIVES_ONE = replace(
    PASSIVE,
    survives_one=True,
    outputs=(*PLAN.outputs, OutputSpec(("port", 0), SCHEMA, (SINK,), (), is_sink=True)),
)


def protected(
    plan: NodePlan, point: RestartPoint | None = None, *, is_secondary: bool = False
) -> tuple[HAUnit, Durability]:
    kind = durability_of(plan)
    begins = kind.begin(plan, Assignment(1, ONE, point, {}, is_secondary), None)
    unit = HAUnit(plan, begins, 0)
    unit.inputs.learn(NodeId("a"), ONE, 0)
    made = kind(unit, begins, None)
    made.adopt(begins)
    return unit, made


def run_pass(unit: HAUnit, first_id: int, times: list[int]) -> None:
    columns = [pa.array(times, pa.int64()), pa.array(times, pa.int64())]
    rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    got = events.BatchReceived(A, ONE, ONE, TupleBatch(first_id, rows, times[-1]))
    unit.inputs.receive(got, 1)
    unit.run_pass(events.Proceed(), 1)


@pytest.mark.parametrize(
    ("plan", "kind"),
    [
        (PLAN, Replayed),
        (replace(PLAN, standby=Standby.ACTIVE), Replayed),
        (PASSIVE, Mirrored),
        (CHECKPOINTED, Checkpointed),
        (replace(PLAN, is_protected=False), Durability),
    ],
)
def test_the_plan_says_how_a_unit_is_protected(plan: NodePlan, kind: type[Durability]) -> None:
    assert durability_of(plan) is kind


def test_a_point_is_noted_when_it_is_due_and_says_anything_new() -> None:
    unit, replayed = protected(PLAN)
    replayed.acknowledging(0, is_due=True)
    assert replayed.points.on_their_way() == (), "there has been no pass"
    run_pass(unit, 0, [5, 6])
    replayed.acknowledging(0, is_due=False)
    assert replayed.points.on_their_way() == ()
    for _ in range(2):
        replayed.acknowledging(0, is_due=True)
    (noted,) = replayed.points.on_their_way()
    assert noted == RestartPoint(1, {A: 2}, {A: 2}, 6, {OUT: 2})


def test_what_nothing_protects_and_what_follows_notes_no_points() -> None:
    for plan, is_secondary in ((replace(PLAN, is_protected=False), False), (PLAN, True)):
        unit, made = protected(plan, is_secondary=is_secondary)
        run_pass(unit, 0, [5, 6])
        made.acknowledging(0, is_due=True)
        assert made.points.on_their_way() == ()


def test_a_promoted_secondary_notes_no_cut_before_that_of_its_primary() -> None:
    unit, made = protected(PLAN, is_secondary=True)
    run_pass(unit, 0, [5, 6])
    made.promoted(RestartPoint(4, {A: 3}, {A: 3}, 7, {OUT: 3}))
    made.acknowledging(0, is_due=True)
    assert made.points.on_their_way() == ()
    run_pass(unit, 2, [7])
    made.acknowledging(0, is_due=True)
    assert [point.sequence for point in made.points.on_their_way()] == [5]


def test_a_replay_in_silence_notes_nothing() -> None:
    unit, made = protected(PLAN, RestartPoint(3, {A: 0}, {A: 4}, 9, {OUT: 4}))
    run_pass(unit, 0, [5, 6])
    assert unit.replay.is_silent
    assert not made.may_note()
    run_pass(unit, 2, [7, 9])
    assert not unit.replay.is_silent
    assert made.may_note()


def test_a_checkpoint_is_prepared_at_its_time_and_not_beside_another() -> None:
    unit, made = protected(CHECKPOINTED)
    run_pass(unit, 0, [5, 6])
    made.acknowledging(0, is_due=True)
    assert made.points.on_their_way() == ()
    effects = made.start(0)
    effects += made.timer_fired("checkpoint", 1_000)
    run_pass(unit, 2, [7])
    effects += made.timer_fired("checkpoint", 2_000)
    assert [type(effect) for effect in effects] == [
        SetTimer, SetTimer, events.WriteCheckpoint, SetTimer,
    ]  # fmt: skip


def test_a_checkpoint_that_failed_is_taken_again_though_nothing_has_come() -> None:
    unit, made = protected(CHECKPOINTED)
    run_pass(unit, 0, [5, 6])
    effects = made.timer_fired("checkpoint", 1_000)
    assert not made.may_note()
    (write,) = (e for e in effects if isinstance(e, events.WriteCheckpoint))
    failed = events.CheckpointFailed(write.prepared.checkpoint, "the disk is full")
    effects += made.step(failed, 1_100)
    assert made.may_note()


def test_a_refused_checkpoint_gives_way_and_is_of_the_state_when_its_turn_comes() -> None:
    unit, made = protected(CHECKPOINTED)
    run_pass(unit, 0, [5, 6])
    effects = made.timer_fired("checkpoint", 1_000)
    (first,) = (e.prepared for e in effects if isinstance(e, events.WriteCheckpoint))
    assert unit.network.pages.being_stored is first.snapshot
    assert made.step(events.CheckpointRefused(first.checkpoint), 1_001) == []
    assert unit.network.pages.being_stored is None  # The pages may be written to.
    run_pass(unit, 2, [7])
    waiting = made.timer_fired("checkpoint", 2_000)
    assert not [e for e in waiting if isinstance(e, events.WriteCheckpoint)]
    effects = made.step(events.WriteAdmitted(), 2_100)
    (second,) = (e.prepared for e in effects if isinstance(e, events.WriteCheckpoint))
    assert second.point.processed_before == {A: 3}
    assert made.step(events.CheckpointRefused(first.checkpoint), 2_101) == []
    assert unit.network.pages.being_stored is second.snapshot  # Said of the first: too late.
    made.check_invariants()


def renumbered(unit: HAUnit) -> None:
    """The receiver, which has lost everything, asks anew: the output is numbered from 0."""
    unit.outputs.rebase()
    unit.outputs.receivers.learn(NodeId("c"), ONE, NOBODY)
    got = events.SubscribeReceived(OUT, ONE, ONE, NO_ID, 0, 1_000)
    is_served, _ = unit.outputs.subscribe(got)
    assert is_served
    assert unit.outputs.next_ids == {OUT: 0}


def checkpoint_written(made: Durability, effects: list[Effect]) -> PreparedCheckpoint:
    """The checkpoint that is asked for, as its writer reports it."""
    (prepared,) = (e.prepared for e in effects if isinstance(e, events.WriteCheckpoint))
    files = CheckpointFiles(prepared)
    for worker in range(len(files.parts)):
        for positions in files.pieces(worker):
            files.pages(worker, positions)
    _, segments = files.outputs(lambda *_: ())
    _, stored = files.finish(segments, 0)
    made.step(events.CheckpointWritten(stored), 1)
    return prepared


def test_what_a_checkpoint_holds_of_a_stream_is_no_longer_than_in_a_log_and_comes_back() -> None:
    """Columns whose values lie close together are kept as offsets."""
    unit, made = protected(CHECKPOINTED)
    times = list(range(1_000_000, 1_008_192))
    run_pass(unit, 0, times)
    effects = made.timer_fired("checkpoint", 1_000)
    (prepared,) = (e.prepared for e in effects if isinstance(e, events.WriteCheckpoint))
    files = CheckpointFiles(prepared)
    parts, segments = files.outputs(lambda *_: ())
    written = b"".join(bytes(part) for part in parts)
    assert len(written) < 8 * len(times), "half of what two columns of 64 bits take"
    for worker in range(len(files.parts)):
        for positions in files.pieces(worker):
            files.pages(worker, positions)
    manifest = decode_manifest(files.finish(segments, 0)[0])
    assert isinstance(manifest, Manifest)
    found = read_outputs(
        manifest, {prepared.checkpoint: memoryview(written)}, {OUT: with_time(SCHEMA)}
    )
    assert isinstance(found, dict)
    assert [row for b in found[OUT] for row in b.batch.column(0).to_pylist()] == times


def test_a_stream_that_is_numbered_anew_is_stored_whole_in_the_next_checkpoint() -> None:
    unit, made = protected(CHECKPOINTED)
    run_pass(unit, 0, [5, 6, 7])
    effects = made.timer_fired("checkpoint", 1_000)
    checkpoint_written(made, effects)
    run_pass(unit, 3, [8])
    effects = made.timer_fired("checkpoint", 2_000)
    first = checkpoint_written(made, effects)
    assert [(w.from_id, w.to_id) for w in first.outputs] == [(3, 4)]
    assert len(first.kept_outputs) == 1
    renumbered(unit)
    run_pass(unit, 4, [9, 10])
    effects = made.timer_fired("checkpoint", 3_000)
    second = checkpoint_written(made, effects)
    assert second.kept_outputs == ()
    assert [(w.from_id, w.to_id) for w in second.outputs] == [(0, 2)]


def applied(sender: DeltaSender, unit: HAUnit) -> StateDelta:
    """The next delta, which the secondary applies."""
    effects = sender.prepare(RestartPoint(1), unit.outputs, 0)
    (delta,) = (e.delta for e in effects if isinstance(e, events.SendDelta))
    sender.acknowledged(delta.sequence, delta.pages, is_applied=True, now_ms=0)
    return delta


def test_a_secondary_is_sent_all_once_more_when_a_stream_is_numbered_anew() -> None:
    unit, _ = protected(PASSIVE)
    run_pass(unit, 0, [5, 6, 7])
    sender = DeltaSender(PASSIVE, unit.network.pages)
    sender.begin(ONE)
    deltas = [applied(sender, unit)]
    run_pass(unit, 3, [8])
    deltas.append(applied(sender, unit))
    renumbered(unit)
    run_pass(unit, 4, [9, 10])
    deltas.append(applied(sender, unit))
    assert [delta.is_full for delta in deltas] == [True, False, True]
    assert [delta.outputs for delta in deltas] == [((0, 3),), ((0, 4),), ((0, 2),)]


def test_what_the_secondary_has_come_to_is_noted_and_no_other_cut() -> None:
    """Its sinks are durable before it comes there: it could not make again what a crash tears."""
    unit, made = protected(SURVIVES_ONE)
    run_pass(unit, 0, [5, 6, 7])
    assert made.acknowledging(10, is_due=True) == []
    sent = made.secondary_subscribed(ONE, 20)
    assert not [e for e in sent if isinstance(e, events.SendDelta)]
    run_pass(unit, 3, [8])
    assert made.secondary_subscribed(ONE, 400) == []  # It has only heard nothing for long.
    unit.outputs.sync_sinks()
    unit.outputs.sink_synced(events.SinkSynced(SINK, 3))
    (told,) = made.ask_to_store(410)
    assert isinstance(told, events.SendDelta)
    assert told.delta.cut.processed_before == {A: 3}
    assert made.ask_to_store(420) == []
    stream, sequence = SURVIVES_ONE.replica_stream, told.delta.sequence
    applied_it = events.DeltaAckReceived(stream, ONE, ONE, sequence, 0, is_applied=True)
    (asked,) = made.delta_acknowledged(applied_it, 430)
    assert isinstance(asked, events.StoreRestartPoint)
    assert (asked.point.is_mirrored, asked.point.needed_from) == (True, {A: 3})
    made.check_invariants()
    made.step(events.RestartPointStored(asked.point.sequence), 440)
    assert unit.inputs.needed_from == {A: 3}  # Though no receiver has anything yet.


def mirror(made: Durability, effects: list[Effect]) -> list[Effect]:
    """The secondary applies the delta that is told; the effects: what is to be stored."""
    (delta,) = (e.delta for e in effects if isinstance(e, events.SendDelta))
    stream = SURVIVES_ONE.replica_stream
    got = events.DeltaAckReceived(stream, ONE, ONE, delta.sequence, delta.pages, is_applied=True)
    return made.delta_acknowledged(got, 0)


def sync(unit: HAUnit, next_id: int) -> None:
    unit.outputs.sync_sinks()
    unit.outputs.sink_synced(events.SinkSynced(SINK, next_id))


def test_a_secondary_that_has_nothing_new_adds_no_point() -> None:
    unit, made = protected(SURVIVES_ONE)
    run_pass(unit, 0, [5, 6, 7])
    sync(unit, 3)
    assert len(mirror(made, made.secondary_subscribed(ONE, 0))) == 1
    assert mirror(made, made.timer_fired("delta", 50)) == []
    run_pass(unit, 3, [8])
    sync(unit, 4)
    assert len(mirror(made, made.timer_fired("delta", 100))) == 1


def test_as_long_as_output_is_spilled_points_are_noted_that_are_replayed_from() -> None:
    """1. The receiver trims late. 2. A new secondary can have no copy. 3. It is said; the point
    is one to replay from. 4. The receiver has trimmed: a copy serves again.
    """
    limits = replace(SURVIVES_ONE.limits, output_queue_bytes=1)
    unit, made = protected(replace(SURVIVES_ONE, limits=limits))
    unit.outputs.receivers.learn(NodeId("c"), ONE, NOBODY)
    run_pass(unit, 0, [5, 6, 7])
    sync(unit, 3)
    unit.outputs.subscribe(events.SubscribeReceived(OUT, ONE, ONE, 0, 0, 1_000))
    assert [e for e in unit.outputs.flush() if isinstance(e, events.SpillBatches)]
    assert made.secondary_subscribed(ONE, 0) == []
    assert made.trouble == "the secondary of n has no copy: output is spilled"
    made.acknowledging(10, is_due=True)
    made.acknowledging(60, is_due=True)
    assert made.points.on_their_way() == (RestartPoint(2, {A: 3}, {A: 3}, 7, {OUT: 3, SINK: 3}),)
    assert made.ask_to_store(60) == []  # The receiver may need what comes before it.
    unit.outputs.acknowledge(events.AckReceived(OUT, ONE, ONE, 3, 3, 1_000))
    (asked,) = made.ask_to_store(70)
    assert isinstance(asked, events.StoreRestartPoint)
    assert not asked.point.is_mirrored
    (mirrored,) = mirror(made, made.timer_fired("delta", 100))
    assert isinstance(mirrored, events.StoreRestartPoint)
    assert mirrored.point.is_mirrored
    assert made.trouble is None
    run_pass(unit, 3, [8])
    made.acknowledging(110, is_due=True)
    made.check_invariants()
    assert len(made.points.on_their_way()) == 2, "the copy counts again"


def test_no_point_needs_again_what_producers_have_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unit, made = protected(SURVIVES_ONE)
    run_pass(unit, 0, [5, 6, 7])
    sync(unit, 3)
    (asked,) = mirror(made, made.secondary_subscribed(ONE, 0))
    assert isinstance(asked, events.StoreRestartPoint)
    made.step(events.RestartPointStored(asked.point.sequence), 0)
    made.secondary_replaced()
    run_pass(unit, 3, [8])
    monkeypatch.setattr(unit.network, "oldest_needed", lambda: np.array([1]))
    made.acknowledging(10, is_due=True)
    assert made.points.on_their_way() == ()
    monkeypatch.undo()
    run_pass(unit, 4, [9])
    made.acknowledging(20, is_due=True)
    assert [point.needed_from for point in made.points.on_their_way()] == [{A: 5}]


def test_a_copy_that_is_there_takes_the_place_of_points_that_are_not_safe() -> None:
    unit, made = protected(SURVIVES_ONE)
    run_pass(unit, 0, [5, 6, 7])
    sync(unit, 3)
    made.acknowledging(10, is_due=True)
    assert made.ask_to_store(10) == []
    (asked,) = mirror(made, made.secondary_subscribed(ONE, 20))
    assert isinstance(asked, events.StoreRestartPoint)
    assert asked.point.is_mirrored
    assert made.points.on_their_way() == asked.point.candidates()


def test_what_is_of_another_protection_is_refused_by_name() -> None:
    _, made = protected(PLAN)
    with pytest.raises(LocalProtocolError, match="WriteAdmitted does not concern n"):
        made.step(events.WriteAdmitted(), 0)
    with pytest.raises(LocalProtocolError, match="no timer checkpoint"):
        made.timer_fired("checkpoint", 0)


def test_a_node_at_rest_looks_and_tells_less_often_until_the_next_pass() -> None:
    pace = AckPace(NodeLimits(ack_interval_ms=50, ack_tuples=4))
    told = [(pace.fired(0), pace.timer(0).at_ms) for _ in range(12)]
    assert [is_due for is_due, _ in told] == [False, False, False, True] * 3
    assert [at_ms for _, at_ms in told] == [50] * 8 + [200] * 4
    assert pace.passed(1_000) == [SetTimer("ack", 1_050)]
    assert [pace.fired(tuples) for tuples in (3, 4)] == [False, True]
    assert pace.passed(2_000) == []


def test_a_source_is_asked_for_one_thing_at_a_time() -> None:
    reading = SourceReading(0)
    reading.asked(10)
    with pytest.raises(InvariantViolation):
        reading.asked(10)
    reading.answered(10, 0, 5)
    assert (reading.is_reading, reading.due_ms) == (False, 5)
    reading.asked(10)
    reading.answered(0, 0, 405)
    assert reading.due_ms == 405 + 20, "a twentieth of the pause"
