"""Who is told what the other instances of a source have promised."""

import pyarrow as pa
import pytest

from holdfast.core.coordinator.idle_floors import IdleFloors
from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.plan import InputSpec, NodePlan
from holdfast.core.model.ids import BEGINNING_US, NOBODY, Incarnation, NodeId, StreamId
from holdfast.core.queues.idle_floor import Reached

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
OF = {A: StreamId("s[0]"), B: StreamId("s[1]"), C: StreamId("other[0]")}
IDLE = Reached(BEGINNING_US, BEGINNING_US, is_idle=True)
BUSY = Reached(100, 100, is_idle=False)


class Floors:
    def __init__(self) -> None:
        schema = pa.schema([])
        self.floors = IdleFloors(
            NodePlan(node, "u", 0, (InputSpec(stream, 0, schema, None),), 1, (), ())
            for node, stream in OF.items()
        )
        self.primaries = dict.fromkeys(OF, Incarnation(1))

    def say(self, node: NodeId, reached: Reached, incarnation: int = 1) -> list[tuple[str, int]]:
        said = {OF[node]: reached}
        told = self.floors.heard(node, Incarnation(incarnation), said, self.primaries.__getitem__)
        return [(str(stream), floor_us) for stream, floor_us in told]


def test_an_idle_instance_is_told_the_floor_as_often_as_it_is_behind() -> None:
    floors = Floors()
    assert floors.say(B, IDLE) == [], "nothing is known of the other one"
    assert floors.say(A, BUSY) == []
    assert floors.say(B, IDLE) == [("s[1]", 100)]
    assert floors.say(B, IDLE) == [("s[1]", 100)]
    assert floors.say(B, Reached(100, 100, is_idle=True)) == []
    assert floors.say(B, Reached(70, 70, is_idle=False)) == []


def test_what_a_former_primary_has_said_does_not_count() -> None:
    floors = Floors()
    floors.say(A, BUSY)
    floors.primaries[A] = Incarnation(2)
    assert floors.say(B, IDLE) == []
    floors.primaries[A] = NOBODY
    assert floors.say(B, IDLE) == []
    floors.primaries[A] = Incarnation(3)
    floors.say(A, BUSY, 3)
    assert floors.say(B, IDLE) == [("s[1]", 100)]


def test_sources_do_not_mix_and_nobody_speaks_for_another_node() -> None:
    floors = Floors()
    floors.say(A, BUSY)
    assert floors.say(C, IDLE) == []
    said = {OF[A]: IDLE, StreamId("unknown[0]"): IDLE}
    assert floors.floors.heard(C, Incarnation(1), said, floors.primaries.__getitem__) == []
    assert floors.say(B, IDLE) == [("s[1]", 100)]


def test_nobody_cannot_have_said_how_far_a_source_is() -> None:
    floors = Floors()
    node = next(iter(OF))
    floors.say(node, Reached(1, 1, is_idle=False))
    floors.floors.check_invariants()
    floors.say(node, Reached(1, 1, is_idle=False), incarnation=0)
    with pytest.raises(InvariantViolation, match="nobody said"):
        floors.floors.check_invariants()
