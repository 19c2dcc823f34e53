"""A node and the notes at its inputs: who is told, where it may stop, what a point says of them."""

from typing import Any, TypeVar

import pyarrow as pa
import pytest

from holdfast.core.haunit import events
from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import Assignment, InputSpec, NodeLimits, NodePlan, OutputSpec
from holdfast.core.machine import Effect, TimerFired
from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId, StreamId
from holdfast.core.model.notes import CheckpointMarker, PlacedNote
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.recovery.restart_point import RestartPoint

SCHEMA = pa.schema([("v", pa.int64())])
IN, OUT = StreamId("a>n"), StreamId("n>c")
ONE, TWO = Incarnation(1), Incarnation(2)
PLAN = NodePlan(
    NodeId("n"),
    "n",
    0,
    (InputSpec(IN, 0, SCHEMA, NodeId("a")),),
    1,
    (),
    (OutputSpec(("port", 0), SCHEMA, (OUT,), (NodeId("c"),)),),
    limits=NodeLimits(ack_tuples=0),
)
_E = TypeVar("_E", bound=Effect)


def batch(first_id: int, count: int) -> TupleBatch:
    values = pa.array(range(first_id, first_id + count), pa.int64())
    rows = pa.RecordBatch.from_arrays([values, values], schema=with_time(SCHEMA))
    return TupleBatch(first_id, rows, BEGINNING_US)


def placed(number: int, before_id: int) -> PlacedNote:
    return PlacedNote(number, before_id, CheckpointMarker(number))


def of_kind(effects: list[Effect], kind: type[_E]) -> list[_E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def node(point: RestartPoint | None = None, incarnation: Incarnation = ONE) -> Node:
    machine = Node(PLAN, Assignment(1, incarnation, point, {}), 0)
    machine.step(events.PeerIncarnationLearned(NodeId("c"), ONE), 0)
    from_id = 0 if point is None else point.next_ids[OUT]
    machine.step(events.SubscribeReceived(OUT, ONE, incarnation, from_id, 0, 1_000), 0)
    return machine


def proceed(machine: Node) -> list[Effect]:
    effects: list[Effect] = []
    while machine.has_work:
        effects += machine.step(events.Proceed(), 1)
        machine.check_invariants()
    return effects


class Heard:
    """A durability that passes on what it hears, and stops at every marker of an odd pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.arrived = 0
        self.notes: list[PlacedNote] = []
        self.unit: Any = None

        def noted(owner: Durability, stream: Any, note: PlacedNote, *_: Any) -> list[Any]:
            self.unit = owner.unit
            self.notes.append(note)
            owner.unit.outputs.put_note(note.note)
            if note.number % 2:
                stream.queue.stop_at(note.before_id, note.number + 1)
            return []

        def notes_arrived(*_: Any) -> list[Any]:
            self.arrived += 1
            return []

        monkeypatch.setattr(Durability, "noted", noted)
        monkeypatch.setattr(Durability, "notes_arrived", notes_arrived)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard(monkeypatch)


def started(machine: Node) -> Node:
    machine.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
    return machine


def test_a_note_that_is_passed_on_stands_among_the_outputs_as_it_stood_in_the_input(
    heard: Heard,
) -> None:
    machine = started(node())
    notes = (placed(0, 2), placed(2, 5), placed(4, 5))
    machine.step(events.BatchReceived(IN, ONE, ONE, batch(0, 5), 0, None, notes), 1)
    effects = proceed(machine)
    assert heard.arrived == 1
    sent = of_kind(effects, events.SendBatch) + of_kind(effects, events.SendNotes)
    put = [(n.before_id, n.note) for effect in sent for n in effect.notes]
    assert put == [(note.before_id, note.note) for note in notes]


def test_a_node_goes_on_behind_a_note_only_when_it_is_let(heard: Heard) -> None:
    machine = started(node())
    notes = (placed(1, 2), placed(2, 2))
    machine.step(events.BatchReceived(IN, ONE, ONE, batch(0, 5), 0, None, notes), 1)
    effects = proceed(machine)
    assert [b.batch.next_id for b in of_kind(effects, events.SendBatch)] == [2]
    assert heard.notes == [placed(1, 2)], "the other one stands behind the marker"
    machine.step(events.BatchReceived(IN, ONE, ONE, batch(5, 5), 3), 1)
    assert not machine.has_work
    heard.unit.inputs.arrivals.go_on()
    effects = proceed(machine)
    assert [b.batch.next_id for b in of_kind(effects, events.SendBatch)] == [10]


def test_a_replacement_asks_for_the_first_note_that_its_predecessor_has_not_cut_behind(
    heard: Heard,
) -> None:
    machine = started(node())
    machine.step(events.BatchReceived(IN, ONE, ONE, batch(0, 5), 0, None, (placed(0, 3),)), 1)
    proceed(machine)
    machine.step(events.NotesReceived(IN, ONE, ONE, 5, 1, None, (placed(8, 5), placed(9, 5))), 2)
    proceed(machine)
    machine.step(events.AckReceived(OUT, ONE, ONE, 5, 5, 1_000), 3)
    (stored,) = of_kind(machine.step(TimerFired("ack"), 50), events.StoreRestartPoint)
    assert (stored.point.needed_from[IN], stored.point.next_notes) == (5, {IN: 10})
    again = node(RestartPoint.from_json(stored.point.to_json()), TWO)
    effects = again.step(events.PeerIncarnationLearned(NodeId("a"), ONE), 0)
    (subscribed,) = of_kind(effects, events.SendSubscribe)
    assert (subscribed.from_id, subscribed.from_note) == (5, 10)


def test_a_lost_note_is_asked_for_again(heard: Heard) -> None:
    machine = started(node())
    machine.step(events.BatchReceived(IN, ONE, ONE, batch(0, 2)), 1)
    got = events.BatchReceived(IN, ONE, ONE, batch(2, 2), 7)
    (subscribed,) = of_kind(machine.step(got, 900), events.SendSubscribe)
    assert (subscribed.from_id, subscribed.from_note) == (2, 0)
    assert not heard.notes
