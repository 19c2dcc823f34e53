"""What comes of a tentative suffix, and the node that follows its one stream. [DPC §3.1, §3.2]"""

from __future__ import annotations

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, END_US, Incarnation, Run, StreamId
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch, TupleType
from holdfast.core.replication.consistency_manager import Action, Consistency
from holdfast.core.replication.following import Follower
from holdfast.core.replication.tentative_input import TentativeInput

ONE, TWO, THREE = (Run(Incarnation(1), number) for number in (1, 2, 3))
LATER = Run(Incarnation(2), 1)


def tuples(first_id: int, count: int, boundary_us: int = BEGINNING_US) -> TupleBatch:
    rows = pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], names=[TIME_COLUMN])
    return TupleBatch(first_id, rows, boundary_us, tuple_type=TupleType.TENTATIVE)


def ids(suffix: TentativeInput) -> list[int]:
    suffix.check_invariants()
    return [i for batch in suffix.take() for i in range(batch.first_id, batch.next_id)]


def test_what_comes_late_of_a_run_that_is_void_is_dropped() -> None:
    suffix = TentativeInput()
    suffix.receive(ONE, tuples(10, 2))
    suffix.undo(ONE)
    suffix.receive(ONE, tuples(12, 2))
    suffix.promise(ONE, 50)
    assert suffix.take_undone()
    assert not suffix.has_news
    suffix.receive(THREE, tuples(10, 1))
    suffix.receive(TWO, tuples(11, 1))
    assert ids(suffix) == [10]


def test_what_comes_once_more_of_the_run_that_counts_is_dropped() -> None:
    suffix = TentativeInput()
    suffix.receive(ONE, tuples(10, 2))
    suffix.receive(ONE, tuples(10, 2))
    assert ids(suffix) == [10, 11], "neither while the first copy waits"
    suffix.receive(ONE, tuples(10, 2))
    assert not suffix.has_news, "nor after it was taken"
    suffix.receive(ONE, tuples(12, 1))
    suffix.receive(TWO, tuples(10, 2))
    assert ids(suffix) == [10, 11], "another run has ids of its own"


def test_tuples_that_a_boundary_has_overtaken_are_dropped() -> None:
    suffix = TentativeInput()
    suffix.promise(ONE, 1)
    suffix.receive(ONE, tuples(10, 2))
    assert ids(suffix) == []
    suffix.promise(TWO, 0)
    suffix.receive(TWO, tuples(10, 2))
    assert ids(suffix) == [10, 11], "the boundary was that of the run"


def test_tuples_that_have_been_taken_as_stable_of_another_replica_are_void() -> None:
    """The stream may have ended by that."""
    suffix = TentativeInput()
    suffix.receive(ONE, tuples(10, 4))
    suffix.promise(ONE, 2)
    suffix.overtaken(3)
    assert suffix.pending_tuples == 1
    suffix.overtaken(END_US)
    assert not suffix.has_news
    assert ids(suffix) == []


def test_a_later_run_makes_the_one_before_void_though_no_undo_has_come() -> None:
    suffix = TentativeInput()
    suffix.receive(ONE, tuples(10, 2, boundary_us=99))
    suffix.receive(LATER, tuples(7, 1, boundary_us=40))
    assert suffix.take_undone()
    assert suffix.boundary_us == 40
    assert ids(suffix) == [7]


def test_a_run_has_credit_of_its_own_by_what_waits_of_it() -> None:
    suffix = TentativeInput()
    suffix.receive(ONE, tuples(1_000, 3))
    assert suffix.credit(2, 8) == 1_003 + 8 - 2 - 3
    suffix.credit_told(suffix.credit(0, 8))
    assert not suffix.credit_is_due(suffix.credit(0, 8), 8)
    assert len(ids(suffix)) == 3
    suffix.receive(ONE, tuples(1_003, 2))
    assert len(ids(suffix)) == 2
    assert suffix.credit_is_due(suffix.credit(0, 8), 8)


def follow(
    follower: Follower, *, stable: bool = False, tentative: bool = False
) -> list[Action | None]:
    """Do all that there is to do; tentative tuples are of up to 50, stable ones of up to 40."""
    done: list[Action | None] = []
    while True:
        follower.waits(stable=stable, tentative=tentative)
        step = follower.next_step(0)
        if step is None:
            return done
        done.append(step.action)
        boundary_us = None if step.boundary_us is None else 50 if step.is_tentative else 40
        follower.did(step, boundary_us, 0)
        if step.boundary_us is not None:
            stable, tentative = stable and step.is_tentative, tentative and not step.is_tentative


def test_who_follows_a_stream_is_in_failure_while_that_is_and_corrects_with_it() -> None:
    follower = Follower()
    assert follow(follower, stable=True) == [None]
    assert follow(follower, tentative=True) == [Action.HOLD_CUT]
    assert follow(follower, tentative=True) == [None]
    assert follower.state is Consistency.UP_FAILURE
    follower.undone()
    assert follow(follower, stable=True) == [Action.GO_BACK, None]
    assert follower.state is Consistency.STABILIZATION, "50 has not been promised as stable"
    follower.waits(stable=True, tentative=False)
    step = follower.next_step(0)
    assert step is not None
    follower.did(step, END_US, 0)
    assert follow(follower) == [Action.SAY_DONE]
    assert follower.is_finished


def test_new_tentative_tuples_within_a_correction_begin_another_run() -> None:
    follower = Follower()
    assert follow(follower, tentative=True) == [Action.HOLD_CUT]
    follower.undone()
    assert follow(follower, tentative=True) == [Action.GO_BACK, Action.GO_ON, Action.HOLD_CUT]


def test_stable_tuples_while_tentative_ones_stand_are_not_waited_with() -> None:
    follower = Follower()
    assert follow(follower, tentative=True) == [Action.HOLD_CUT]
    assert follow(follower, stable=True) == [Action.GO_BACK, None]


def test_a_run_is_made_without_what_was_said_of_it_last_and_a_void_one_of_nothing() -> None:
    suffix = TentativeInput()
    suffix.promise(ONE, 0, (StreamId("a[0]"),))
    suffix.promise(ONE, 50)
    assert suffix.missing == ("a[0]",)
    suffix.promise(ONE, 50, (StreamId("a[0]"), StreamId("b[0]")))
    assert suffix.missing == ("a[0]", "b[0]")
    suffix.undo(ONE)
    assert suffix.missing == ()
    suffix.promise(ONE, 60, (StreamId("a[0]"),))
    assert suffix.missing == ()
