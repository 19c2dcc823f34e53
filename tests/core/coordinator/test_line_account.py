"""Which checkpoints of a region came to nothing, as it is counted."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.coordinator.journal_entries import PointNoted
from holdfast.core.coordinator.line_account import LineAccount
from holdfast.core.model.ids import Incarnation, NodeId, StreamId
from holdfast.core.recovery.checkpoint_graph import BEGINNING, LIVE, Channel, Place, place_of
from holdfast.core.recovery.recovery_plan import recovery_plan
from holdfast.core.recovery.restart_point import RestartPoint

A, B = NodeId("a"), NodeId("b")
THERE, BACK = StreamId("a>b"), StreamId("b>a")
CHANNELS = (Channel(THERE, A, B), Channel(BACK, B, A))


def _point(sequence: int, sent: int, received: int, *, of: NodeId = A) -> RestartPoint:
    out, back = (THERE, BACK) if of == A else (BACK, THERE)
    return RestartPoint(sequence, processed_before={back: received}, next_ids={out: sent})


def _noted(account: LineAccount, node: NodeId, point: RestartPoint, at_ms: int) -> None:
    account.noted(PointNoted(node, Incarnation(1), point, keeps_older=True), at_ms, is_void=False)


def test_a_checkpoint_on_a_z_cycle_is_useless_and_one_that_was_only_skipped_is_not() -> None:
    """A's first: B has received what was sent behind it, then sent what A received before it."""
    # 1. B sends 0; A receives it, cuts (1), and sends 0. B receives that in the same interval.
    account = LineAccount.of((A, B))
    points = {
        A: (_point(1, sent=0, received=1), _point(2, sent=1, received=1)),
        B: (_point(1, sent=1, received=1, of=B),),
    }
    for node, own in points.items():
        for point in own:
            _noted(account, node, point, 100)
    places = {n: (Place(BEGINNING), *map(place_of, own)) for n, own in points.items()}
    line = {A: places[A][2], B: places[B][1]}
    account.moving(places, CHANNELS, line)
    account.moved(line, 130)
    report = account.report(130)
    assert {n: c.useless for n, c in report.members.items()} == {A: 1, B: 0}
    assert (report.members[A].noted, report.members[A].line_ms) == (2, 30)

    apart = LineAccount.of((A, B))  # Nothing comes back from B: A's first is merely skipped.
    quiet = {A: points[A], B: (replace(points[B][0], next_ids={BACK: 0}),)}
    quiet[A] = tuple(replace(point, processed_before={BACK: 0}) for point in points[A])
    places = {n: (Place(BEGINNING), *map(place_of, own)) for n, own in quiet.items()}
    line = {A: places[A][2], B: places[B][1]}
    apart.moving(places, CHANNELS, line)
    apart.moved(line, 130)
    assert [count.useless for count in apart.report(130).members.values()] == [0, 0]


def test_what_a_recovery_goes_back_behind_is_rolled_past_and_so_is_what_comes_later() -> None:
    account = LineAccount.of((A, B))
    newer = _point(1, sent=0, received=0, of=B), _point(2, sent=0, received=3, of=B)
    for point in newer:
        _noted(account, B, point, 100)
    points = {A: (Place(BEGINNING),), B: (Place(BEGINNING), *map(place_of, newer))}
    # A is lost and begins anew; B has acted on three of its tuples.
    plan = recovery_plan(points, {B: Place(LIVE, {THERE: 3})}, CHANNELS)
    assert plan.back_to == {A: BEGINNING, B: 1}
    account.went_back(plan, points)
    assert account.report(200).members[B].rolled_past == 1
    late = PointNoted(B, Incarnation(1), _point(3, sent=0, received=4, of=B), keeps_older=True)
    account.noted(late, 210, is_void=True)
    assert account.report(220).members[B].rolled_past == 2


def test_a_point_that_was_asked_for_twice_counts_once() -> None:
    account = LineAccount.of((A, B))
    forced = replace(_point(1, sent=0, received=0), is_forced=True)
    _noted(account, A, forced, 10)
    _noted(account, A, forced, 20)
    count = account.report(30).members[A]
    assert (count.noted, count.forced) == (1, 1)
