"""What is tentative on the way to a receiver. [DPC "SOutput"]"""

from __future__ import annotations

import pyarrow as pa

from holdfast.core.haunit.outputs.suffix import Suffix
from holdfast.core.model.ids import Incarnation, Run, StreamId
from holdfast.core.model.tuples import TIME_COLUMN, TupleType

A, B = StreamId("a[0]"), StreamId("b[0]")
US = Incarnation(3)


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], names=[TIME_COLUMN])


def sent(suffix: Suffix) -> list[int]:
    batches = suffix.take_sendable()
    assert all(batch.tuple_type is TupleType.TENTATIVE for batch in batches)
    return [i for batch in batches for i in range(batch.first_id, batch.next_id)]


def test_a_run_counts_on_from_the_stable_tuples_and_is_sent_as_far_as_its_credit_allows() -> None:
    suffix = Suffix(US, room=4)
    suffix.put_out(rows(6), 0, stable_before=100)
    suffix.promise(77, 100)
    assert sent(suffix) == [100, 101, 102, 103]
    assert suffix.take_boundary() is None, "tuples stand before it"
    suffix.grant(Run(US, 7), 200)
    assert sent(suffix) == [], "that is credit for another run"
    suffix.grant(Run(US, 1), 105)
    assert sent(suffix) == [104]
    assert suffix.unsent_tuples == 1
    suffix.grant(Run(US, 1), 106)
    assert sent(suffix) == [105]
    assert suffix.take_boundary() == 77
    assert suffix.take_boundary() is None


def test_what_is_undone_is_not_sent_and_the_next_run_has_a_number_of_its_own() -> None:
    suffix = Suffix(US, room=4)
    suffix.put_out(rows(6), 0, stable_before=10)
    assert suffix.undo() == Run(US, 1)
    assert sent(suffix) == []
    assert suffix.rec_done() == Run(US, 1)
    assert suffix.undo() is None
    suffix.put_out(rows(2), 0, stable_before=12)
    assert suffix.run == Run(US, 2)
    assert sent(suffix) == [12, 13]


def test_a_receiver_that_subscribes_again_is_sent_what_was_not_sent_and_told_the_boundary() -> None:
    suffix = Suffix(US, room=3)
    suffix.put_out(rows(4), 0, stable_before=0)
    assert sent(suffix) == [0, 1, 2]
    suffix.subscribed()
    suffix.promise(5, 0)
    assert sent(suffix) == [3]
    assert suffix.take_boundary() == 5
    suffix.subscribed()
    assert suffix.take_boundary() == 5


def test_what_a_run_lacks_is_told_once_to_each_subscriber_and_again_when_it_changes() -> None:
    suffix = Suffix(US, room=4)
    suffix.lacks((A,), 10)
    assert suffix.take_missing() == (A,)
    suffix.lacks((A,), 10)
    assert suffix.take_missing() == ()
    suffix.lacks((A, B), 10)
    assert suffix.take_missing() == (A, B)
    suffix.lacks((B,), 10)
    assert suffix.take_missing() == (B,)
    suffix.subscribed()
    assert suffix.take_missing() == (B,)
    suffix.undo()
    suffix.lacks((B,), 12)
    assert suffix.take_missing() == (B,)
