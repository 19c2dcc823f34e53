"""Which sources are named as those that hold up event time."""

import pyarrow as pa

from holdfast.core.coordinator.held_up import (
    HeldUp,
    SourcePromise,
    held_up,
    meetings,
    promises_of,
)
from holdfast.core.coordinator.reports import SourceReported
from holdfast.core.haunit.plan import InputSpec, NodePlan
from holdfast.core.model.ids import BEGINNING_US, END_US, NodeId, StreamId

A, B, C = StreamId("a[0]"), StreamId("b[0]"), StreamId("b[1]")


def node(name: str, *inputs: tuple[str, str | None]) -> NodePlan:
    specs = [
        InputSpec(StreamId(stream), 0, pa.schema([]), None if who is None else NodeId(who))
        for stream, who in inputs
    ]
    return NodePlan(NodeId(name), name, 0, tuple(specs), 1, (), ())


def said(
    boundary_us: int, since_ms: int = 0, *, is_idle: bool = False, is_held_up: bool = False
) -> SourcePromise:
    return SourcePromise(boundary_us, since_ms, is_idle, is_held_up)


def holders(
    promises: dict[StreamId, SourcePromise], now_ms: int = 10_000, *, met: bool = True
) -> list[StreamId]:
    groups = (frozenset(promises),) if met else ()
    return [holder.stream for holder in held_up(groups, promises, now_ms)]


def test_sources_meet_wherever_nodes_merge_what_comes_from_them() -> None:
    plans = [
        node("a", ("a[0]", None)),
        node("b", ("b[0]", None)),
        node("c", ("b[1]", None)),
        node("alone", ("a>alone", "a")),
        node("both", ("b>both", "b"), ("c>both", "c")),
        node("all", ("a>all", "a"), ("both>all", "both")),
        node("again", ("a>again", "a"), ("both>again", "both")),
    ]
    assert meetings(plans) == (frozenset({B, C}), frozenset({A, B, C}))


def test_the_slowest_source_holds_up_what_it_is_merged_with() -> None:
    behind, ahead = {A: said(50)}, {B: said(100)}
    assert holders(behind | ahead) == [A]
    assert holders(behind | ahead, met=False) == []
    assert holders({A: said(100), B: said(100)}) == [], "nobody is further"
    assert holders({A: said(50), B: said(70), C: said(100)}) == [A]
    assert holders({A: said(BEGINNING_US), B: said(END_US)}) == [A]
    (found,) = held_up([frozenset({A, B})], {A: said(50, 1_000), B: said(100)}, 4_500)
    assert found == HeldUp(A, 50, 3_500, "")


def test_only_what_has_stood_still_for_a_while_is_named() -> None:
    promises = {A: said(50, 1_000), B: said(100)}
    assert holders(promises, 2_999) == []
    assert holders(promises, 3_000) == [A]


def test_idle_instances_are_named_only_if_nobody_else_is_as_slow() -> None:
    assert holders({A: said(100), B: said(50), C: said(50, is_idle=True)}) == [B]
    assert holders({A: said(100), B: said(50, is_idle=True), C: said(50, is_idle=True)}) == [B, C]


def test_what_a_source_knows_to_hold_it_up_is_named_without_another_one() -> None:
    assert holders({A: said(50, is_held_up=True)}, met=False) == [A]
    assert holders({A: said(END_US, is_held_up=True)}, met=False) == []


def test_a_source_that_promises_the_same_has_stood_still_since_it_first_did() -> None:
    stream, other = StreamId("s[0]"), StreamId("t[0]")
    first = promises_of(
        {stream: SourceReported(boundary_us=5), other: SourceReported(boundary_us=None)}, {}, 10
    )
    assert first == {stream: SourcePromise(5, 10)}, "the node does not work with the other one yet"
    again = promises_of({stream: SourceReported(boundary_us=5, is_idle=True)}, first, 20)
    assert again == {stream: SourcePromise(5, 10, is_idle=True)}
    further = promises_of({stream: SourceReported(boundary_us=6)}, again, 30)
    assert further == {stream: SourcePromise(6, 30)}
