"""Notes at a node's outputs: who hears of them, behind what, and after which failures."""

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.haunit import events
from holdfast.core.haunit.ha_output import HAOutput
from holdfast.core.haunit.passes import Pass
from holdfast.core.haunit.plan import NodePlan, OutputSpec
from holdfast.core.haunit.state_delta import StandbyImage, StateDelta
from holdfast.core.machine import Effect
from holdfast.core.model.ids import NO_ID, Incarnation, NodeId, StreamId
from holdfast.core.model.notes import CheckpointMarker, PlacedNote
from holdfast.core.operators.base import Rows
from holdfast.core.queues.stream_notes import first_number_of
from holdfast.core.recovery.restart_point import RestartPoint

SCHEMA = pa.schema([("v", pa.int64())])
LEFT, RIGHT, SINK = StreamId("n>l"), StreamId("n>r"), StreamId("results")
OUTPUTS = (
    OutputSpec(("port", 0), SCHEMA, (LEFT,), (NodeId("l"),)),
    OutputSpec(("port", 0), SCHEMA, (RIGHT,), (NodeId("r"),)),
    OutputSpec(("port", 0), SCHEMA, (SINK,), (), is_sink=True),
)
PLAN = NodePlan(NodeId("n"), "n", 0, (), 1, (), OUTPUTS)
ONE, FOUR, SEVEN = Incarnation(1), Incarnation(4), Incarnation(7)
MARKER, LATER = CheckpointMarker(1), CheckpointMarker(2)


def rows(count: int) -> Rows:
    values = np.arange(count, dtype=np.int64)
    batch = pa.RecordBatch.from_arrays([pa.array(values)], schema=SCHEMA)
    return Rows(batch, values, values, 0)


def outputs(incarnation: Incarnation = ONE, plan: NodePlan = PLAN) -> HAOutput:
    made = HAOutput(plan, incarnation, RestartPoint(), {SINK: 0, plan.pass_stream: 0})
    for node in ("l", "r"):
        made.receivers.learn(NodeId(node), ONE, Incarnation(0))
    return made


def put_out(made: HAOutput, count: int) -> list[Effect]:
    effects: list[Effect] = []
    for spec in OUTPUTS:
        effects += made.put_out(spec, [rows(count)], 0)
    made.check_invariants()
    return effects


def subscribe(
    made: HAOutput, stream: StreamId, from_id: int = 0, from_note: int = 0, own: Incarnation = ONE
) -> list[Effect]:
    got = events.SubscribeReceived(stream, ONE, own, from_id, 0, 1_000, from_note=from_note)
    is_served, effects = made.subscribe(got)
    assert is_served
    effects += made.flush_stream(stream)
    made.check_invariants()
    return effects


def said(effects: list[Effect]) -> list[tuple[int, int]]:
    """Number within its incarnation, and place, of every note that is sent."""
    sent = [e for e in effects if isinstance(e, events.SendBatch | events.SendNotes)]
    return [(n.number & 0xFFFF_FFFF, n.before_id) for effect in sent for n in effect.notes]


def test_a_note_stands_on_all_streams_to_other_nodes_behind_what_was_put_out() -> None:
    made = outputs()
    put_out(made, 3)
    made.put_note(MARKER)
    put_out(made, 2)
    for stream in (LEFT, RIGHT):
        effects = subscribe(made, stream)
        assert said(effects) == [(0, 3)]
        assert not any(isinstance(effect, events.SendNotes) for effect in effects)
    made.put_note(LATER, [RIGHT])
    effects = []
    effects += made.flush()
    number = first_number_of(ONE)
    expected = (PlacedNote(number + 1, 5, LATER),)
    assert effects == [events.SendNotes(RIGHT, ONE, 5, number + 1, None, expected)]


def test_a_keep_alive_tells_that_a_note_was_lost() -> None:
    made = outputs()
    subscribe(made, LEFT)
    made.put_note(MARKER)
    effects = made.flush()
    effects += made.keep_alive()
    told = [e for e in effects if isinstance(e, events.SendBoundary)]
    assert [boundary.notes_before for boundary in told] == [first_number_of(ONE) + 1]


def test_what_spilled_tuples_stand_among_is_sent_with_them() -> None:
    made = outputs()
    put_out(made, 3)
    made.put_note(MARKER)
    subscribe(made, LEFT)
    queue = made.queues()[0]
    queue._memory_limit_bytes = 0
    effects = made.flush()
    (spilled,) = [e for e in effects if isinstance(e, events.SpillBatches)]
    effects = subscribe(made, LEFT)
    (read,) = [e for e in effects if isinstance(e, events.ReadSpill)]
    assert said(effects) == []
    effects += made.spill_read(events.SpillRead(LEFT, read.request_id, spilled.batches))
    assert said(effects) == [(0, 3)]


def test_a_replacement_keeps_the_notes_of_its_checkpoint_and_numbers_its_own_behind_them() -> None:
    made = outputs()
    put_out(made, 3)
    made.put_note(MARKER)
    kept, tuples = made.kept.notes(), made.kept.to_be_stored((), 9)[1]
    point = RestartPoint(1, next_ids=made.next_ids)
    batches = {w.stream: w.batches for w in tuples}
    again = HAOutput(PLAN, FOUR, point, {SINK: 3}, batches, restored_notes=kept)
    again.receivers.learn(NodeId("l"), ONE, Incarnation(0))
    again.put_note(LATER)
    put_out(again, 1)
    had = first_number_of(ONE) + 1
    effects = subscribe(again, LEFT, 3, had, FOUR)
    assert [n.note for e in effects if isinstance(e, events.SendBatch) for n in e.notes] == [LATER]
    effects = subscribe(again, LEFT, 3, 0, FOUR)
    assert [n.note for e in effects if isinstance(e, events.SendBatch) for n in e.notes] == [
        MARKER,
        LATER,
    ]


def test_a_receiver_that_takes_what_comes_from_now_on_is_told_from_which_note_on() -> None:
    made = outputs()
    put_out(made, 3)
    made.put_note(MARKER)
    effects = subscribe(made, LEFT, NO_ID)
    assert said(effects) == []
    boundary = next(e for e in effects if isinstance(e, events.SendBoundary))
    assert (boundary.sent_before, boundary.notes_before) == (3, first_number_of(ONE) + 1)


def test_a_promoted_secondary_numbers_what_it_has_kept_as_the_new_incarnation() -> None:
    made = HAOutput(PLAN, FOUR, RestartPoint(), {}, is_secondary=True)
    for _ in range(2):
        put_out(made, 3)
        made.put_note(MARKER)
    made.promote(SEVEN, {SINK: 0})
    made.receivers.learn(NodeId("l"), ONE, Incarnation(0))
    had = first_number_of(Incarnation(5)) + 1  # Of the primary that it follows.
    effects = subscribe(made, LEFT, 4, had, SEVEN)
    assert said(effects) == [(1, 6)]
    assert made.queues()[0].notes.next_number == first_number_of(SEVEN) + 2


def test_a_note_of_a_pass_waits_with_its_tuples_until_the_pass_is_durable() -> None:
    plan = NodePlan(NodeId("n"), "n", 0, (), 1, (), OUTPUTS, keeps_passes=True)
    made = outputs(ONE, plan)
    subscribe(made, LEFT)
    effects = made.begin_pass(Pass(0, 0, 0, 0, ()))
    put_out(made, 3)
    made.put_note(MARKER)
    effects += made.end_pass(())
    made.put_note(LATER)
    effects += made.flush()
    assert said(effects) == []
    effects += made.sink_synced(events.SinkSynced(plan.pass_stream, 1))
    assert said(effects) == [(0, 3), (1, 3)], "what was put behind the pass leaves with it"
    made.put_note(LATER)
    effects += made.flush()
    assert said(effects) == [(0, 3), (1, 3), (2, 3)], "no pass is waited for"


def test_a_passive_secondary_has_the_notes_of_the_newest_delta() -> None:
    plan = NodePlan(NodeId("n"), "n", 0, (), 1, (), OUTPUTS)
    image = StandbyImage(plan)
    cut = RestartPoint(1, next_ids={LEFT: 0, RIGHT: 0, SINK: 0})
    notes = {LEFT: (PlacedNote(3, 0, MARKER),)}
    image.apply(StateDelta(1, True, 0, {}, (), 0, cut, ((0, 0), (0, 0)), (), notes))
    restored = image.restored(RestartPoint(), {SINK: 0})
    assert restored is not None
    assert restored.notes == notes


def test_a_note_on_a_sink_is_an_error() -> None:
    with pytest.raises(KeyError):
        outputs().put_note(MARKER, [SINK])
