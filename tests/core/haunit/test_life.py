"""A process's life, stepped by hand: what it asks for in which order, and what it takes for old."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.checkpoint.page_image import PageImage
from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit import events
from holdfast.core.haunit import life_events as le
from holdfast.core.haunit.life import RECOVERABLE, TRANSITIONS, NodeLife, Phase
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.openings import OPENINGS
from holdfast.core.haunit.passes import Pass, PassesLost
from holdfast.core.haunit.plan import (
    CheckpointPlan,
    Cuts,
    InputSpec,
    NodePlan,
    OutputSpec,
    Standby,
)
from holdfast.core.haunit.restoration import (
    CheckpointLoaded,
    CheckpointsLost,
    CheckpointUnreadable,
    LoadCheckpoint,
    LoadedCheckpoint,
    LoadingFailed,
    ReportDamage,
    StoreAway,
    StoreFailed,
)
from holdfast.core.haunit.standby_replica import StandbyReplica
from holdfast.core.haunit.state_delta import StateDelta
from holdfast.core.haunit.told import (
    AssignmentReceived,
    PeerTold,
    PromotionReceived,
    RoundTold,
)
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.ids import NOBODY, CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.model.notes import CheckpointMarker, PlacedNote
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.core.state.page_manager import PageManager
from holdfast.core.wire.log_opening import SinkLacksTuples

SCHEMA = pa.schema([("v", pa.int64())])
IN, EDGE, SINK = StreamId("a>n"), StreamId("n>c"), StreamId("n.out")
A, C, N = NodeId("a"), NodeId("c"), NodeId("n")
ONE, TWO, THREE, FOUR = (Incarnation(i) for i in (1, 2, 3, 4))
CHECKPOINT = CheckpointRef(CheckpointId(7, ONE), 99)
PLAN = NodePlan(
    N,
    "n",
    0,
    (InputSpec(IN, 0, SCHEMA, A),),
    1,
    (),
    (
        OutputSpec(("port", 0), SCHEMA, (EDGE,), (C,)),
        OutputSpec(("port", 0), SCHEMA, (SINK,), (), is_sink=True),
    ),
)
CHECKPOINTED = replace(PLAN, checkpoints=CheckpointPlan(100))
ACTIVE = replace(PLAN, standby=Standby.ACTIVE)
PASSIVE = replace(PLAN, standby=Standby.PASSIVE)
ARBITRARY = replace(PLAN, keeps_passes=True, merges_by_arrival=True)
_E = TypeVar("_E", bound=Effect)


def told(peer: NodeId, incarnation: int, endpoint: str = "", secondary: int = 0) -> PeerTold:
    where = endpoint or f"{peer}{incarnation}"
    return PeerTold(peer, Incarnation(incarnation), where, Incarnation(secondary))


def learned(told: PeerTold) -> events.PeerIncarnationLearned:
    return events.PeerIncarnationLearned(told.peer, told.incarnation, told.secondary)


def assigned(
    incarnation: Incarnation = ONE,
    point: RestartPoint | None = None,
    *peers: PeerTold,
    is_secondary: bool = False,
) -> AssignmentReceived:
    return AssignmentReceived(5, incarnation, point, is_secondary, peers)


class Living:
    """A life whose requests are answered at once, as long as somebody answers."""

    def __init__(self, plan: NodePlan = PLAN, **answers: Callable[[Effect], Stimulus] | None):
        self.life = NodeLife(plan)
        self.now_ms = 0
        self.waiting: list[Effect] = []
        self._answers = {
            le.OpenSinks: self._opened,
            le.OpenSources: lambda e: le.SourcesOpened(e.request_id),
            le.ReadRecordedPasses: lambda e: le.RecordedPassesRead(e.request_id, self.passes),
            le.OpenStore: lambda e: le.StoreOpened(e.request_id, ()),
        }
        self._answers |= {getattr(le, name): answer for name, answer in answers.items()}
        self.sinks: dict[StreamId, int] = {SINK: 0}
        self.passes: tuple[Pass, ...] = ()

    def _opened(self, asked: le.OpenSinks) -> Stimulus:
        """As shells answer: a log that ends too early is not begun."""
        ends: dict[StreamId, int] = {}
        for stream, end in self.sinks.items():
            wanted = asked.needs.of(stream, ends)
            if end < wanted:
                error = SinkLacksTuples(f"/{stream}", end, wanted)
                return le.OpeningFailed(asked.request_id, error)
            ends[stream] = end
        return le.SinksOpened(asked.request_id, ends)

    def step(self, stimulus: Stimulus) -> list[Effect]:
        """What was asked for, and what came of it, in order."""
        self.now_ms += 1
        effects = self.life.step(stimulus, self.now_ms)
        self.life.check_invariants()
        for effect in list(effects):
            answer = self._answers.get(type(effect))
            if answer is not None:
                effects += self.step(answer(effect))
            elif type(effect) in self._answers:
                self.waiting.append(effect)
        return effects

    def waited(self) -> Effect:
        """The request that nobody has answered."""
        (effect,) = self.waiting
        self.waiting.clear()
        return effect


def of_kind(effects: list[Effect], kind: type[_E]) -> list[_E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def asked(effects: list[Effect]) -> list[str]:
    """The requests among effects, and what a machine says first."""
    kinds = (le.OpenSinks, le.OpenSources, le.ReadRecordedPasses, le.OpenStore, LoadCheckpoint)
    return [type(effect).__name__ for effect in effects if isinstance(effect, kinds)]


def following(plan: NodePlan = ACTIVE, **answers: Callable[[Effect], Stimulus] | None) -> Living:
    """A secondary, incarnation 2 beside a primary 1, between a's 1 and c's 1."""
    living = Living(plan, **answers)
    peers = told(A, 1), told(C, 1), told(N, 1, secondary=2)
    living.step(assigned(TWO, None, *peers, is_secondary=True))
    assert living.life.phase is Phase.FOLLOWING
    return living


# -- the table ------------------------------------------------------------------------------


def test_every_phase_has_its_transitions_and_all_but_failing_lead_somewhere() -> None:
    assert set(TRANSITIONS) == set(Phase)
    reached = {phase for following in TRANSITIONS.values() for phase in following}
    assert reached == set(Phase) - {Phase.UNASSIGNED}
    assert [phase for phase, then in TRANSITIONS.items() if not then] == [Phase.FAILED]


def test_the_documented_transitions_are_those_of_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "protocols" / "node-life.md"
    rows = [line.split("|")[1:-1] for line in page.read_text().splitlines() if line.count("|") == 4]
    documented = {row[0].strip(): row[2].strip() for row in rows[2:]}
    assert documented == {
        phase.value: ", ".join(then.value for then in TRANSITIONS[phase]) for phase in Phase
    }


def test_a_transition_that_the_table_does_not_have_is_refused() -> None:
    living = Living()
    with pytest.raises(InvariantViolation, match="n: unassigned to at work"):
        living.life._go(Phase.AT_WORK)


# -- bring-up -------------------------------------------------------------------------------


def test_a_primary_opens_sinks_then_sources_then_passes_and_works() -> None:
    living = Living(ARBITRARY)
    living.sinks |= {ARBITRARY.pass_stream: 4}
    point = RestartPoint(3, {IN: 0, ARBITRARY.pass_stream: 2}, {IN: 0})
    effects = living.step(assigned(TWO, point))
    assert asked(effects) == ["OpenSinks", "OpenSources", "ReadRecordedPasses"]
    assert of_kind(effects, le.OpenSinks)[0].incarnation == TWO
    assert of_kind(effects, le.OpenSources)[0].leads_as == TWO
    (read,) = of_kind(effects, le.ReadRecordedPasses)
    assert (read.first, read.before) == (1, 4)  # One earlier: its clock goes on.
    assert living.life.phase is Phase.AT_WORK


def test_a_secondary_opens_no_sinks_and_leads_no_sources() -> None:
    effects = Living(ACTIVE).step(assigned(TWO, is_secondary=True))
    assert asked(effects) == ["OpenSources"]
    assert of_kind(effects, le.OpenSources)[0].leads_as == NOBODY


def test_the_store_is_opened_for_plans_with_checkpoints_alone() -> None:
    assert asked(Living(CHECKPOINTED).step(assigned())) == ["OpenSinks", "OpenSources", "OpenStore"]
    assert len(OPENINGS) == 4


def test_nothing_is_asked_for_before_the_former_answer_has_come() -> None:
    living = Living(OpenSinks=None)
    assert asked(living.step(assigned())) == ["OpenSinks"]
    assert living.life.phase is Phase.OPENING
    opened = le.SinksOpened(living.waited().request_id, living.sinks)
    assert asked(living.step(opened)) == ["OpenSources"]


def test_it_speaks_as_its_incarnation_before_anything_is_open() -> None:
    living = Living(OpenSinks=None)
    first, *_ = living.step(assigned(THREE))
    assert isinstance(first, le.BeginIncarnation)
    assert (living.life.incarnation, living.life.born, living.life.epoch) == (3, 3, 5)


def test_an_assignment_that_comes_twice_changes_nothing() -> None:
    living = Living()
    living.step(assigned(ONE))
    machine = living.life.machine
    assert living.step(assigned(TWO)) == []
    assert living.life.machine is machine
    assert (living.life.incarnation, living.life.statistics().outdated_words) == (1, 1)


def test_what_comes_before_the_assignment_is_for_nobody() -> None:
    living = Living()
    assert living.step(told(A, 1)) == []
    assert living.step(PromotionReceived(TWO, None)) == []
    assert living.step(events.SourceStirred(IN)) == []
    assert living.life.statistics().outdated_words == 2
    assert living.life.statistics().refused_frames == 1


# -- a log that has lost something ----------------------------------------------------------


def test_a_log_that_ends_before_the_restart_point_fails_by_its_place() -> None:
    living = Living()
    living.sinks = {SINK: 3}
    effects = living.step(assigned(TWO, RestartPoint(1, {IN: 0}, {IN: 0}, next_ids={SINK: 5})))
    (failed,) = of_kind(effects, le.Fail)
    assert isinstance(failed.error, SinkLacksTuples)
    assert "/n.out: tuples 3 to 4 are missing" in str(failed.error)
    assert not isinstance(failed.error, RECOVERABLE)
    assert (living.life.phase, living.life.machine) == (Phase.FAILED, None)


def test_a_pass_log_that_lacks_what_results_came_from_is_not_gone_on_with() -> None:
    passes = ARBITRARY.pass_stream
    point = RestartPoint(3, {IN: 0, passes: 2}, {IN: 0}, next_ids={SINK: 5, passes: 2})
    for results, logged, phase in ((5, 2, Phase.AT_WORK), (6, 3, Phase.AT_WORK), (6, 2, None)):
        living = Living(ARBITRARY)
        living.sinks = {SINK: results, passes: logged}
        effects = living.step(assigned(TWO, point))
        assert living.life.phase is (phase or Phase.FAILED)
        failures = [str(failed.error) for failed in of_kind(effects, le.Fail)]
        assert [text.split(";")[0] for text in failures] == (
            [] if phase else ["/n~passes: tuples 2 to 2 are missing"]
        )


def test_a_pass_log_that_lacks_all_of_a_first_life_is_missed_without_a_restart_point() -> None:
    living = Living(ARBITRARY)
    living.sinks = {SINK: 1, ARBITRARY.pass_stream: 0}
    (failed,) = of_kind(living.step(assigned(TWO)), le.Fail)
    assert isinstance(failed.error, SinkLacksTuples)


def test_a_log_need_not_hold_what_the_checkpoint_holds() -> None:
    point = RestartPoint(1, {IN: 0}, {IN: 0}, next_ids={SINK: 5}, held_from={SINK: 3})
    for end, phase in ((3, Phase.AT_WORK), (2, Phase.FAILED)):
        living = Living()
        living.sinks = {SINK: end}
        living.step(assigned(TWO, point))
        assert living.life.phase is phase


@pytest.mark.parametrize("name", ["OpenSinks", "OpenSources", "OpenStore"])
def test_a_failed_opening_is_the_end_and_what_comes_later_changes_nothing(name: str) -> None:
    living = Living(CHECKPOINTED, **{name: None})
    living.step(assigned())
    error = OSError("no such place")
    request_id = living.waited().request_id
    (failed,) = living.step(le.OpeningFailed(request_id, error))
    assert failed == le.Fail(error)
    assert living.step(le.SinksOpened(request_id, {})) == []
    assert living.step(told(A, 1)) == []
    assert living.life.phase is Phase.FAILED


def test_an_answer_that_nobody_waits_for_is_counted() -> None:
    living = Living(OpenSinks=None)
    living.step(assigned())
    request_id = living.waited().request_id
    assert living.step(le.SourcesOpened(request_id + 1)) == []
    living.step(le.SinksOpened(request_id, living.sinks))
    assert living.step(le.SinksOpened(request_id, {})) == []
    assert living.step(le.OpeningFailed(request_id, OSError())) == []
    assert living.life.statistics().outdated_answers == 3
    assert living.life.phase is Phase.AT_WORK


# -- neighbours -----------------------------------------------------------------------------


def test_neighbours_are_told_to_the_node_once_it_is_there() -> None:
    living = Living(OpenSinks=None)
    effects = living.step(assigned(ONE, None, told(A, 1)))
    assert of_kind(effects, le.Connect) == [le.Connect(A, ONE, "a1")]
    effects = living.step(told(A, 2))
    assert of_kind(effects, le.Connect) == [le.Connect(A, TWO, "a2")]
    assert living.life.known_peers() == {A: TWO}
    effects = living.step(le.SinksOpened(living.waited().request_id, living.sinks))
    (subscribed,) = of_kind(effects, events.SendSubscribe)
    assert subscribed.producer == TWO


def test_a_receiver_needs_no_channel() -> None:
    living = Living()
    assert of_kind(living.step(assigned(ONE, None, told(C, 1))), le.Connect) == []
    assert living.life.known_peers() == {C: ONE}


@pytest.mark.parametrize("is_open", [True, False])
def test_an_earlier_incarnation_of_a_neighbour_never_makes_way_for_a_later_one(
    is_open: bool,
) -> None:
    living = Living() if is_open else Living(OpenSinks=None)
    living.step(assigned(ONE, None, told(A, 3)))
    assert living.step(told(A, 2)) == []
    assert living.life.known_peers() == {A: THREE}
    assert living.life.statistics().outdated_words == 1


def test_a_word_that_comes_twice_connects_once() -> None:
    living = Living()
    living.step(assigned(ONE, None, told(A, 3)))
    assert living.step(told(A, 3)) == []
    moved = living.step(told(A, 3, "elsewhere"))
    assert of_kind(moved, le.Connect) == [le.Connect(A, THREE, "elsewhere")]


def test_a_receiver_that_subscribes_before_there_is_a_node_is_served_once_there_is() -> None:
    living = Living(OpenSinks=None)
    living.step(assigned(TWO))
    for from_id in (0, 0):  # It asks again.
        living.step(events.SubscribeReceived(EDGE, ONE, TWO, from_id, 0, 100))
    living.step(events.SubscribeReceived(EDGE, THREE, TWO, 0, 0, 100))
    living.step(le.SinksOpened(living.waited().request_id, living.sinks))
    assert isinstance(living.life.machine, Node)
    assert living.life.machine.peer_incarnation(EDGE) == THREE
    assert living.life.machine.statistics().refused_frames == 0


# -- restoration ----------------------------------------------------------------------------

OLDER = RestartPoint(6, {IN: 0}, {IN: 10}, 50, {EDGE: 10, SINK: 0}, CHECKPOINT)
NEWER = replace(
    OLDER, sequence=8, checkpoint=CheckpointRef(CheckpointId(9, ONE), 1), older=(OLDER,)
)


def loaded() -> CheckpointLoaded:
    limits = PLAN.limits
    pages = PageManager(limits.page_bytes, limits.state_bytes)
    none = np.array([], np.int64)
    image = PageImage(limits.page_bytes, (), none, 1, (), none, none, none)
    return CheckpointLoaded(LoadedCheckpoint(pages, image, (), {EDGE: ()}))


def restoring(point: RestartPoint = NEWER) -> tuple[Living, list[Effect]]:
    living = Living(CHECKPOINTED)
    effects = living.step(assigned(TWO, point))
    assert living.life.phase is Phase.RESTORING
    return living, effects


def test_a_damaged_checkpoint_is_reported_and_the_older_one_is_loaded() -> None:
    living, effects = restoring()
    assert of_kind(effects, LoadCheckpoint) == [LoadCheckpoint(NEWER.checkpoint)]
    effects = living.step(CheckpointUnreadable("rot"))
    assert effects == [
        ReportDamage(NEWER.checkpoint.checkpoint, "rot"),
        LoadCheckpoint(OLDER.checkpoint),
    ]
    assert living.life.phase is Phase.RESTORING


def test_a_node_begins_at_the_cut_of_the_checkpoint_that_was_loaded() -> None:
    living, _ = restoring()
    living.step(told(A, 1))
    effects = living.step(loaded())
    assert living.life.began_at is not None
    assert living.life.began_at.sequence == 8
    (subscribed,) = of_kind(effects, events.SendSubscribe)
    assert subscribed.boundary_us == 50  # It has everything older.
    assert living.life.phase is Phase.AT_WORK


@pytest.mark.parametrize(("over", "cuts_for"), [(5, []), (4, [5])])
def test_a_node_knows_from_its_assignment_which_rounds_are_over(
    over: int, cuts_for: list[int]
) -> None:
    """A marker may come before a word about its round."""
    plan = replace(
        CHECKPOINTED,
        inputs=(replace(PLAN.inputs[0], is_from_region=True),),
        region="n",
        cuts=Cuts.ALIGNED,
        merges_by_arrival=True,
    )
    living = Living(plan)
    living.step(AssignmentReceived(5, TWO, NEWER, False, (told(A, 1),), over))
    living.step(loaded())
    marker = PlacedNote(7, 0, CheckpointMarker(5))
    effects = living.step(events.NotesReceived(IN, ONE, TWO, 0, 0, None, (marker,)))
    effects += living.step(events.Proceed())
    assert [e.prepared.point.round for e in of_kind(effects, events.WriteCheckpoint)] == cuts_for


def test_a_round_that_begins_while_a_state_is_loaded_is_cut_for_as_soon_as_it_is_there() -> None:
    """1. Its region has recovered, and a round begins. 2. The word comes too early. 3. It was said
    again with the next keep-alive, and results waited for that.
    """
    plan = replace(CHECKPOINTED, region="n", cuts=Cuts.ALIGNED, merges_by_arrival=True)
    living = Living(plan)
    living.step(AssignmentReceived(5, TWO, NEWER, False, (told(A, 1),), 4))
    living.step(RoundTold(5, 4))
    effects = living.step(loaded())
    assert [e.prepared.point.round for e in of_kind(effects, events.WriteCheckpoint)] == [5]


def test_without_any_checkpoint_left_it_fails_for_good() -> None:
    living, _ = restoring()
    living.step(CheckpointUnreadable("rot"))
    *_, failed = living.step(CheckpointUnreadable("lost"))
    assert isinstance(failed, le.Fail)
    assert isinstance(failed.error, CheckpointsLost)
    assert "rot; lost. Restore the files" in str(failed.error)
    assert not isinstance(failed.error, RECOVERABLE)


def test_a_store_that_does_not_answer_is_asked_by_the_next_incarnation() -> None:
    living, _ = restoring()
    (failed,) = living.step(StoreFailed("away"))
    assert isinstance(failed, le.Fail)
    assert isinstance(failed.error, StoreAway)
    assert isinstance(failed.error, RECOVERABLE)


def test_an_error_of_its_own_while_loading_is_the_nodes() -> None:
    living, _ = restoring()
    error = ValueError("too large")
    assert living.step(LoadingFailed(error)) == [le.Fail(error)]


def test_the_very_beginning_needs_no_checkpoint() -> None:
    living = Living(CHECKPOINTED)
    effects = living.step(assigned(TWO, RestartPoint()))
    assert of_kind(effects, LoadCheckpoint) == []
    assert living.life.began_at == RestartPoint()
    assert living.life.phase is Phase.AT_WORK


def test_plans_without_checkpoints_begin_empty() -> None:
    living = Living()
    living.step(assigned(TWO, RestartPoint(1, {IN: 0}, {IN: 5}, 50, {EDGE: 5, SINK: 0})))
    assert living.life.began_at is None
    assert living.life.phase is Phase.AT_WORK


# -- promotion ------------------------------------------------------------------------------


def test_a_promoted_node_opens_its_sinks_as_who_it_will_be_and_then_says_so() -> None:
    living = following(OpenSinks=None)
    (asked_for,) = living.step(PromotionReceived(THREE, None))
    assert isinstance(asked_for, le.OpenSinks)
    assert asked_for.incarnation == THREE
    assert (living.life.phase, living.life.incarnation) == (Phase.PROMOTING, TWO)
    effects = living.step(le.SinksOpened(living.waited().request_id, living.sinks))
    assert isinstance(effects[1], events.ReportPromoted | le.OpenSources)
    assert (living.life.phase, living.life.incarnation) == (Phase.AT_WORK, THREE)
    assert of_kind(effects, le.OpenSources)[0].leads_as == THREE
    assert len(of_kind(effects, events.ReportPromoted)) == 1
    assert living.life.born == TWO


def test_a_secondary_still_follows_while_its_sinks_are_opened() -> None:
    living = following(OpenSinks=None)
    living.step(PromotionReceived(THREE, None))
    positions = events.PositionsReceived(N, ONE, TWO, ((0, 0), (0, 0)))
    living.step(positions)
    assert living.life.is_secondary
    assert living.life.machine is not None


def test_a_promotion_that_is_said_again_counts_once() -> None:
    living = following(OpenSinks=None)
    living.step(PromotionReceived(THREE, None))
    assert living.step(PromotionReceived(THREE, None)) == []
    living.step(le.SinksOpened(living.waited().request_id, living.sinks))
    assert living.step(PromotionReceived(THREE, None)) == []
    assert living.step(PromotionReceived(FOUR, None)) == []  # It is the primary.
    assert living.life.incarnation == THREE
    assert living.life.statistics().outdated_words == 3


def test_a_primary_is_never_promoted() -> None:
    living = Living(ACTIVE)
    living.step(assigned(ONE))
    assert living.step(PromotionReceived(TWO, None)) == []
    assert (living.life.phase, living.life.incarnation) == (Phase.AT_WORK, ONE)


def test_a_promotion_while_it_is_opening_takes_over_as_soon_as_it_follows() -> None:
    living = Living(ACTIVE, OpenSources=None)
    living.step(assigned(TWO, None, told(N, 1, secondary=2), is_secondary=True))
    assert living.step(PromotionReceived(THREE, None)) == []
    assert living.life.phase is Phase.OPENING
    effects = living.step(le.SourcesOpened(living.waited().request_id))
    assert asked(effects) == ["OpenSinks", "OpenSources"]
    living.step(le.SourcesOpened(living.waited().request_id))
    assert (living.life.phase, living.life.incarnation) == (Phase.AT_WORK, THREE)


def test_a_failed_opening_of_a_promotion_is_the_end_of_who_it_was() -> None:
    living = following(OpenSinks=None)
    living.step(PromotionReceived(THREE, None))
    error = OSError("superseded")
    assert living.step(le.OpeningFailed(living.waited().request_id, error)) == [le.Fail(error)]
    assert living.life.incarnation == TWO  # As which the coordinator still knows it, too.


def test_a_secondary_that_has_run_what_the_log_has_lost_is_not_promoted() -> None:
    plan = replace(ARBITRARY, standby=Standby.ACTIVE)
    living = following(plan)
    living.step(events.PassesRead((Pass(0, 1, 1, 5, (0,)),)))
    living.step(events.Proceed())
    living.sinks |= {plan.pass_stream: 0}
    *_, failed = living.step(PromotionReceived(THREE, None))
    assert isinstance(failed, le.Fail)
    assert isinstance(failed.error, PassesLost)
    assert isinstance(failed.error, RECOVERABLE)


def image() -> Living:
    """A passive secondary that has applied a delta."""
    living = following(PASSIVE)
    cut = RestartPoint(4, {IN: 5}, {IN: 5}, 50, {EDGE: 3, SINK: 0})
    delta = StateDelta(1, True, 0, {}, (), 0, cut, ((3, 3),), ())
    living.step(events.DeltaReceived(PASSIVE.replica_stream, ONE, TWO, delta))
    assert living.life.has_joined
    return living


def test_a_promoted_image_becomes_a_node_and_says_so_first() -> None:
    living = image()
    assert isinstance(living.life.machine, StandbyReplica)
    effects = living.step(PromotionReceived(THREE, None))
    assert asked(effects) == ["OpenSinks", "OpenSources"]
    machine = living.life.machine
    assert isinstance(machine, Node)
    assert machine.incarnation == THREE
    assert living.life.began_at is not None
    after = effects[effects.index(of_kind(effects, le.OpenSources)[0]) + 1 :]
    assert isinstance(after[0], events.ReportPromoted)
    (subscribed,) = of_kind(effects, events.SendSubscribe)
    assert subscribed.from_id == 5  # The image has what comes before.


def test_a_promoted_image_is_told_of_neighbours_and_not_of_itself() -> None:
    living = image()
    living.step(PromotionReceived(THREE, None))
    assert living.life.known_peers() == {A: ONE, C: ONE}
    assert living.life.known_secondaries() == {}
    assert living.step(told(N, 1, secondary=2)) == []  # Late.
    assert living.step(told(N, 1, "again", secondary=2)) == []
    effects = living.step(told(N, 3, secondary=4))
    assert of_kind(effects, le.Disconnect) == [le.Disconnect(N)]
    assert living.life.known_secondaries() == {N: FOUR}


def test_an_image_of_no_use_gives_way_to_the_restart_point() -> None:
    living = following(PASSIVE)
    point = RestartPoint(2, {IN: 1}, {IN: 4}, 40, {EDGE: 2, SINK: 0})
    effects = living.step(PromotionReceived(THREE, point))
    assert living.life.began_at is None
    (subscribed,) = of_kind(effects, events.SendSubscribe)
    assert subscribed.from_id == 1
    assert living.life.phase is Phase.AT_WORK


@pytest.mark.parametrize("plan", [PASSIVE, PLAN, CHECKPOINTED])
def test_nobody_starts_without_the_state_that_only_the_replicas_had(plan: NodePlan) -> None:
    """However the unit is protected now: its producers have trimmed what a replay needs."""
    point = RestartPoint(2, {IN: 4}, {IN: 4}, 40, {EDGE: 2, SINK: 0}, is_mirrored=True)
    living = Living(plan)
    failed = living.step(assigned(TWO, point, told(A, 1), told(C, 1)))[-1]
    assert isinstance(failed, le.Fail)
    assert "n survives one failure at a time" in str(failed.error)
    assert not isinstance(failed.error, RECOVERABLE)


def test_an_image_goes_on_from_a_point_that_only_it_can_start_from() -> None:
    point = RestartPoint(4, {IN: 5}, {IN: 5}, 50, {EDGE: 3, SINK: 0}, is_mirrored=True)
    image_there = image()
    image_there.step(PromotionReceived(THREE, point))
    assert image_there.life.phase is Phase.AT_WORK
    image_lost = following(PASSIVE)
    effects = image_lost.step(PromotionReceived(THREE, point))
    assert isinstance(effects[-1], le.Fail)
    assert image_lost.life.phase is Phase.FAILED


def test_what_was_meant_for_the_image_is_refused_by_the_node() -> None:
    living = image()
    living.step(PromotionReceived(THREE, None))
    cut = RestartPoint(5, {IN: 6}, {IN: 6}, 60, {EDGE: 3, SINK: 0})
    delta = StateDelta(2, False, 0, {}, (), 0, cut, ((3, 3),), ())
    assert living.step(events.DeltaReceived(PASSIVE.replica_stream, ONE, TWO, delta)) == []
    assert isinstance(living.life.machine, Node)
    assert living.life.machine.statistics().refused_frames == 1


def test_a_node_told_of_its_former_primary_violates_an_invariant() -> None:
    living = image()
    living.step(PromotionReceived(THREE, None))
    assert living.life.machine is not None
    living.life.machine.step(learned(told(N, 1, secondary=2)), 99)
    with pytest.raises(InvariantViolation, match="former primary"):
        living.life.check_invariants()
