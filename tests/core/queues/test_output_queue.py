"""The output queue: positions, credit, trimming, spilling."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import LocalProtocolError, RemoteProtocolError
from holdfast.core.model.ids import StreamId
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch
from holdfast.core.queues.output_queue import OutputQueue

STREAM = StreamId("a[0]>b[0]")


def tuples(first_id: int, count: int, boundary_us: int = 0) -> TupleBatch:
    ids = np.arange(first_id, first_id + count, dtype=np.int64)
    batch = pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ids)], names=["v", TIME_COLUMN])
    return TupleBatch(first_id, batch, boundary_us)


def queue(memory_limit_bytes: int = 1 << 20, *, retain: bool = True) -> OutputQueue:
    return OutputQueue(STREAM, first_id=0, retain=retain, memory_limit_bytes=memory_limit_bytes)


def test_nothing_is_sent_without_subscriber_or_credit() -> None:
    output = queue()
    output.append(tuples(0, 10))
    output.primary.grant(10)
    assert output.primary.take_sendable() == []
    output.primary.subscribe(0)
    output.primary.reset_credit(0)
    assert output.primary.take_sendable() == []


def test_a_batch_is_cut_at_the_credit_and_its_head_promises_no_boundary() -> None:
    output = queue()
    output.append(tuples(0, 10, boundary_us=99))
    output.primary.subscribe(0)
    output.primary.reset_credit(4)
    (head,) = output.primary.take_sendable()
    assert (head.first_id, head.next_id) == (0, 4)
    assert head.boundary_us < 99
    output.primary.grant(100)
    (rest,) = output.primary.take_sendable()
    assert (rest.first_id, rest.next_id, rest.boundary_us) == (4, 10, 99)


def test_subscribing_again_sends_again_from_the_named_id() -> None:
    output = queue()
    output.append(tuples(0, 10))
    output.primary.subscribe(0)
    output.primary.reset_credit(100)
    output.primary.take_sendable()
    output.primary.subscribe(3)
    assert [b.first_id for b in output.primary.take_sendable()] == [3]


def test_what_was_trimmed_cannot_be_asked_for_again() -> None:
    output = queue()
    output.append(tuples(0, 10))
    output.primary.subscribe(0)
    output.primary.reset_credit(100)
    output.primary.take_sendable()
    output.primary.acknowledge(10, 10)
    with pytest.raises(RemoteProtocolError, match="trimmed"):
        output.primary.subscribe(9)


def test_a_tuple_that_is_still_needed_is_kept() -> None:
    output = queue()
    output.append(tuples(0, 5))
    output.append(tuples(5, 5))
    output.primary.subscribe(0)
    output.primary.reset_credit(100)
    output.primary.take_sendable()
    output.primary.acknowledge(10, 7)
    output.primary.subscribe(7)
    assert [(b.first_id, b.next_id) for b in output.primary.take_sendable()] == [(7, 10)]


def test_an_ack_of_tuples_not_yet_produced_is_refused_and_changes_nothing() -> None:
    output = queue()
    output.append(tuples(0, 5))
    with pytest.raises(RemoteProtocolError):
        output.primary.acknowledge(6, 0)
    assert output.primary.received_before == 0


def test_ids_must_continue() -> None:
    output = queue()
    with pytest.raises(LocalProtocolError):
        output.append(tuples(1, 1))


def test_beyond_the_limit_sent_tuples_are_spilled_and_must_be_read_back() -> None:
    output = queue(memory_limit_bytes=300)
    for i in range(5):
        output.append(tuples(10 * i, 10))
    assert output.take_spill() == []
    output.primary.subscribe(0)
    output.primary.reset_credit(1000)
    output.primary.take_sendable()
    spilled = output.take_spill()
    assert spilled[0].first_id == 0
    output.primary.subscribe(0)
    assert output.primary.take_sendable() == []
    assert output.primary.missing_for_send() == (0, spilled[-1].next_id)
    output.primary.resent(spilled[-1].next_id)
    assert output.primary.take_sendable()[0].first_id == spilled[-1].next_id


def test_what_a_gate_holds_is_not_read_back_before_it_opens() -> None:
    output = queue(memory_limit_bytes=300)
    output.append(tuples(0, 10))
    output.shut()
    output.append(tuples(10, 20))
    output.append(tuples(30, 20))
    output.primary.subscribe(0)
    output.primary.reset_credit(45)
    output.primary.take_sendable()
    spilled = output.take_spill(has_to_be_sent=False)
    assert [(batch.first_id, batch.next_id) for batch in spilled] == [(0, 10), (10, 30), (30, 50)]
    assert output.primary.missing_for_send() is None
    output.primary.subscribe(5)
    assert output.primary.missing_for_send() == (5, 10), "what has left may come again"
    output.primary.resent(10)
    output.open_to(30, 0)
    assert output.primary.missing_for_send() == (10, 30)
    output.primary.resent(30)
    output.open_to(50, 0)
    assert output.primary.missing_for_send() == (30, 45), "credit counts as well"


def test_without_retention_sent_tuples_are_gone() -> None:
    output = queue(retain=False)
    output.append(tuples(0, 5))
    output.primary.subscribe(0)
    output.primary.reset_credit(100)
    output.primary.take_sendable()
    assert output.statistics().retained_tuples == 0


def test_small_batches_that_were_sent_are_merged_and_replayed_as_one() -> None:
    output = queue()
    output.primary.subscribe(0)
    output.primary.reset_credit(1_000)
    for i in range(100):
        output.append(tuples(i, 1, boundary_us=i))
    assert len(output.primary.take_sendable()) == 100
    output.append(tuples(100, 1, boundary_us=100))
    output.primary.acknowledge(50, 30)
    output.primary.subscribe(40)
    replayed = output.primary.take_sendable()
    assert [(batch.first_id, batch.count) for batch in replayed] == [(40, 60), (100, 1)]
    assert replayed[0].boundary_us == 99
    assert replayed[0].batch.column(0).to_pylist() == list(range(40, 100))
    output.check_invariants()


@settings(max_examples=200)
@given(st.lists(st.tuples(st.sampled_from("asgkrp"), st.integers(0, 40)), max_size=60))
def test_the_queue_agrees_with_a_list(steps: list[tuple[str, int]]) -> None:
    """Whatever happens, what is sent after a subscription is a gap-free run of ids from there."""
    output = queue(memory_limit_bytes=2000)
    spilled: dict[int, int] = {}
    expected = 0
    needed = 0
    is_subscribed = False
    for kind, number in steps:
        if kind == "a":
            output.append(tuples(output.next_id, number + 1))
        elif kind == "s":
            expected = min(needed + number, output.next_id)
            output.primary.subscribe(expected)
            output.primary.reset_credit(expected + number)
            is_subscribed = True
        elif kind == "g":
            output.primary.grant(expected + number)
        elif kind == "k":
            needed = max(needed, min(expected, needed + number))
            output.primary.acknowledge(expected, needed)
        for batch in output.take_spill():
            spilled.update({i: i for i in range(batch.first_id, batch.next_id)})
        while is_subscribed and (missing := output.primary.missing_for_send()) is not None:
            assert missing[0] == expected
            assert all(i in spilled for i in range(*missing))
            expected = missing[1]
            output.primary.resent(expected)
        for batch in output.primary.take_sendable():
            assert batch.first_id == expected
            assert batch.batch.column(0).to_pylist() == list(range(batch.first_id, batch.next_id))
            expected = batch.next_id
        output.check_invariants()


def test_many_small_batches_between_two_acknowledgements_are_all_merged() -> None:
    output = queue(1 << 30)
    output.primary.subscribe(0)
    output.primary.reset_credit(1 << 30)
    for _ in range(3):
        for _ in range(300):
            output.append(tuples(output.next_id, 400))
            output.primary.take_sendable()
        output.append(tuples(output.next_id, 5))  # Not sent yet.
        output.primary.acknowledge(output.primary.next_to_send, 0)
    held = output.held_from(0)
    assert [batch.first_id for batch in held] == [0, *(batch.next_id for batch in held[:-1])]
    assert len(held) < 900 * 400 // (1 << 14) + 3 * 16
    assert held[-1].count == 5
    values = np.concatenate([batch.batch.column(0).to_numpy() for batch in held])
    assert np.array_equal(values, np.arange(output.next_id))
    assert output.statistics().retained_bytes == sum(batch.nbytes for batch in held)
