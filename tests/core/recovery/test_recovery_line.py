"""Checkpoint graph, recovery line, Z-paths and plan, against brute force on random runs."""

from __future__ import annotations

import itertools
import random

import pytest

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import END_US, NodeId, StreamId
from holdfast.core.recovery.checkpoint_graph import (
    LIVE,
    Channel,
    CheckpointGraph,
    Place,
    place_of,
)
from holdfast.core.recovery.loop_state import EntranceState, LoopState
from holdfast.core.recovery.recovery_line import NoLine, recovery_line
from holdfast.core.recovery.recovery_plan import recovery_plan
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.recovery.z_paths import useless_checkpoints
from holdfast.sim.lines.world import newest_line_by_brute_force

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")
AB = Channel(StreamId("a>b"), A, B)
BA = Channel(StreamId("b>a"), B, A)


def _random_graph(seed, *, with_held):
    """Up to four nodes that send, process and cut at random; what they hold moves at random."""
    rng = random.Random(seed)
    nodes = [NodeId(f"n{i}") for i in range(rng.randint(2, 4))]
    channels = tuple(
        Channel(StreamId(f"{a}>{b}"), a, b, rng.random() < 0.1)
        for a in nodes
        for b in nodes
        if a != b and rng.random() < 0.5
    )
    sent = {c.stream: 0 for c in channels}
    processed = dict(sent)
    held = dict(sent)
    places = {node: [Place(0)] for node in nodes}
    for _ in range(rng.randint(10, 120)):
        action = rng.random()
        if action < 0.12:
            node = rng.choice(nodes)
            if len(places[node]) < 6:
                places[node].append(
                    _place(node, len(places[node]), channels, sent, processed, held)
                )
        elif channels:
            channel = rng.choice(channels)
            stream = channel.stream
            if action < 0.5:
                sent[stream] += 1
            elif action < 0.9:
                processed[stream] = min(sent[stream], processed[stream] + rng.randint(1, 3))
            elif with_held:
                held[stream] = rng.randint(held[stream], processed[stream])
    for node in nodes:
        places[node].append(_place(node, LIVE, channels, sent, processed, held))
    return CheckpointGraph({n: tuple(own) for n, own in places.items()}, channels)


def _place(node, sequence, channels, sent, processed, held):
    ins = {c.stream: processed[c.stream] for c in channels if c.receiver == node}
    outs = {c.stream: sent[c.stream] for c in channels if c.sender == node}
    return Place(sequence, ins, outs, {s: held[s] for s in outs})


@pytest.mark.parametrize("with_held", [False, True])
def test_the_line_is_the_newest_consistent_one(with_held):
    """Some nodes fail: they have no place where they stand."""
    lines = moved = 0
    for seed in range(250):
        graph = _random_graph(seed, with_held=with_held)
        for node in list(graph.places)[: 1 + seed % 3]:
            graph = graph.without(node, LIVE)
        try:
            line = recovery_line(graph)
        except NoLine:
            continue
        lines += 1
        moved += any(place.sequence != LIVE for place in line.values())
        assert line == newest_line_by_brute_force(graph)
        assert not graph.orphans(line)
        assert not graph.losses(line)
    assert lines > 200
    assert moved > 200


def test_a_checkpoint_is_useless_if_and_only_if_no_consistent_line_has_it():
    useless = 0
    for seed in range(250):
        graph = _random_graph(seed, with_held=False)
        nodes = list(graph.places)
        usable = {
            (node, place.sequence)
            for combination in itertools.product(*graph.places.values())
            if not graph.orphans(dict(zip(nodes, combination, strict=True)))
            for node, place in zip(nodes, combination, strict=True)
        }
        found = useless_checkpoints(graph)
        useless += len(found)
        everything = {(n, p.sequence) for n, own in graph.places.items() for p in own[:-1]}
        assert everything - usable == set(found)
    assert useless > 50


def _domino(cuts):
    """Two nodes that answer each other, each cutting between the other's cuts: every checkpoint but
    the first has an orphan. [CheckMate Figure 5]"""
    places_a = [Place(0), *(Place(k, {"b>a": k}, {"a>b": k}) for k in range(1, cuts))]
    places_b = [Place(0), *(Place(k, {"a>b": k + 1}, {"b>a": k}) for k in range(1, cuts))]
    return CheckpointGraph({A: tuple(places_a), B: tuple(places_b)}, (AB, BA))


def test_the_domino_effect_ends_at_the_beginning():
    line = recovery_line(_domino(5))
    assert {node: place.sequence for node, place in line.items()} == {A: 0, B: 0}


def test_nobody_is_an_orphan_behind_a_sender_that_repeats():
    behind = {A: (Place(0),), B: (Place(0), Place(1, {"a>b": 7}))}
    repeating = Channel(AB.stream, A, B, repeats=True)
    assert recovery_line(CheckpointGraph(behind, (AB,)))[B].sequence == 0
    assert recovery_line(CheckpointGraph(behind, (repeating,)))[B].sequence == 1


def test_a_sender_that_holds_too_little_goes_back():
    """1. Round 6 is durable at the sender, not at the receiver. 2. Both fail."""
    places = {
        A: (
            Place(0),
            Place(5, {}, {"a>b": 30}, {"a>b": 20}),
            Place(6, {}, {"a>b": 50}, {"a>b": 40}),
        ),
        B: (Place(0), Place(5, {"a>b": 20})),
    }
    line = recovery_line(CheckpointGraph(places, (AB,)))
    assert (line[A].sequence, line[B].sequence) == (5, 5)


def test_what_is_yet_to_be_made_is_not_missing():
    places = {A: (Place(3, {}, {"a>b": 10}, {"a>b": 15}),), B: (Place(1, {"a>b": 12}),)}
    repeating = Channel(AB.stream, A, B, repeats=True)
    assert recovery_line(CheckpointGraph(places, (repeating,)))[A].sequence == 3


def test_without_a_line_the_error_says_what_was_needed():
    places = {A: (Place(4, {}, {"a>b": 9}, {"a>b": 9}),), B: (Place(2, {"a>b": 5}),)}
    with pytest.raises(NoLine, match=r"a has no checkpoint .* on a>b.*kept=2"):
        recovery_line(CheckpointGraph(places, (AB,)))


def test_a_damaged_checkpoint_is_left_out():
    graph = CheckpointGraph(POINTS, (AB, BC))
    assert recovery_line(graph)[C].sequence == 1
    line = recovery_line(graph.without(B, 1))
    assert {node: place.sequence for node, place in line.items()} == {A: 1, B: 0, C: 0}


def test_places_that_move_back_are_refused():
    with pytest.raises(InvariantViolation, match="moves back from 5 to 4"):
        CheckpointGraph({A: (Place(1, {}, {"a>b": 5}), Place(2, {}, {"a>b": 4}))}, ())


# -- plan ---------------------------------------------------------------------------------------

POINTS = {
    A: (Place(0), Place(1, {}, {"a>b": 10})),
    B: (Place(0), Place(1, {"a>b": 5}, {"b>c": 5})),
    C: (Place(0), Place(1, {"b>c": 4})),
}
BC = Channel(StreamId("b>c"), B, C)


def _live(a, b, c):
    return {
        A: Place(LIVE, {}, {"a>b": a}),
        B: Place(LIVE, {"a>b": b}, {"b>c": b}),
        C: Place(LIVE, {"b>c": c}),
    }


def test_survivors_stay_where_they_stand_if_the_line_lets_them():
    live = _live(20, 8, 8)
    del live[A]
    plan = recovery_plan(POINTS, live, (AB, BC))
    assert plan.back_to == {A: 1}
    assert plan.resumes_at == {"a>b": 10}
    assert plan.rolled_past == 0


def test_survivors_that_are_ahead_go_back_and_take_others_with_them():
    live = _live(20, 15, 12)
    del live[A]
    plan = recovery_plan(POINTS, live, (AB, BC))
    assert plan.back_to == {A: 1, B: 1, C: 1}
    assert plan.resumes_at == {"a>b": 10, "b>c": 5}


def test_everybody_goes_back_if_that_was_asked_for():
    live = _live(20, 8, 5)
    del live[A]
    assert recovery_plan(POINTS, live, (AB, BC), is_whole=True).back_to == {A: 1, B: 1, C: 1}


def test_checkpoints_that_are_newer_than_the_line_are_counted():
    points = {**POINTS, B: (*POINTS[B], Place(2, {"a>b": 14}, {"b>c": 14}))}
    live = _live(20, 15, 5)
    del live[A]
    plan = recovery_plan(points, live, (AB, BC))
    assert plan.back_to == {A: 1, B: 1}
    assert plan.rolled_past == 1


def test_an_entrance_goes_back_that_has_told_its_loop_of_a_boundary_that_is_not_promised_again():
    """It acts on the boundary only when the loop has come as far; its marks are on their way."""
    told, has_not = (
        RestartPoint(n, boundary_us=3, loop=LoopState({}, EntranceState(3, open_us)))
        for n, open_us in ((2, END_US), (1, 3))
    )
    sender, receiver = Place(1, promised={AB.stream: 3}), (place_of(has_not), place_of(told))
    line = recovery_line(CheckpointGraph({A: (sender,), B: receiver}, (AB,)))
    assert line[B].sequence == has_not.sequence
    ended = Place(1, promised={AB.stream: END_US})
    line = recovery_line(CheckpointGraph({A: (ended,), B: receiver}, (AB,)))
    assert line[B].sequence == told.sequence
