"""An output edge: any number of replicas, each served by its own link."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import (
    AckReceived,
    ReadSpill,
    SendBatch,
    SendBoundary,
    SendNotes,
    SpillRead,
    SubscribeReceived,
    TrimSpill,
)
from holdfast.core.haunit.outputs.edge import OutputEdge
from holdfast.core.haunit.outputs.first_output import FirstOutput
from holdfast.core.haunit.outputs.kept_passes import KeptPasses
from holdfast.core.haunit.outputs.partition import at_the_earliest, not_before
from holdfast.core.haunit.outputs.suffix import Suffix
from holdfast.core.machine import Effect
from holdfast.core.model.ids import BEGINNING_US, END_US, Incarnation, NodeId, Run, StreamId
from holdfast.core.model.notes import RecDone
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.core.queues.output_queue import OutputQueue
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.wire.frames import encode
from holdfast.core.wire.messages import message_of

STREAM = StreamId("a[0]>b[0]")
US = Incarnation(4)
ONE, TWO, THREE, FOUR = (Incarnation(i) for i in range(1, 5))


def rows(times: list[int]) -> pa.RecordBatch:
    times_us = pa.array(times, pa.int64())
    return pa.RecordBatch.from_arrays([times_us, times_us], names=["v", TIME_COLUMN])


def edge(*, has_own_time: bool = False, memory_limit_bytes: int = 1 << 20) -> OutputEdge:
    queue = OutputQueue(STREAM, first_id=0, retain=True, memory_limit_bytes=memory_limit_bytes)
    return OutputEdge(
        queue,
        NodeId("b[0]"),
        FirstOutput(),
        suffix=Suffix(US, 4),
        has_own_time=has_own_time,
        may_lose=False,
    )


def subscribe(
    output: OutputEdge,
    sender: Incarnation,
    from_id: int,
    *,
    is_secondary: bool = False,
    is_told: bool = False,
) -> list[Effect] | None:
    """What it is answered; None: nobody of that name is linked, or it cannot be served."""
    got = SubscribeReceived(
        STREAM, sender, US, from_id, from_id, 1_000, is_secondary, 50, is_told=is_told
    )
    link = output.link_of(got)
    if link is None:
        return None
    is_served, effects = output.subscribe(link, got)
    output.check_invariants()
    return effects if is_served else None


def acknowledge(
    output: OutputEdge, sender: Incarnation, ids: int, *, is_secondary: bool = False
) -> None:
    got = AckReceived(STREAM, sender, US, ids, ids, 1_000, is_secondary)
    link = output.link_of(got)
    assert link is not None
    output.acknowledge(link, got)
    output.check_invariants()


def sent(output: OutputEdge) -> list[tuple[Incarnation, int]]:
    return [(e.receiver, e.batch.next_id) for e in output.flush() if isinstance(e, SendBatch)]


def test_all_replicas_are_served_and_what_one_of_them_lacks_is_kept() -> None:
    output = edge()
    output.learn(ONE, (TWO, THREE))
    output.put_out(rows([1, 2, 3, 4]), 4, 0)
    assert subscribe(output, ONE, 0) == []
    assert subscribe(output, TWO, 0, is_secondary=True) == []
    assert subscribe(output, THREE, 0, is_secondary=True) == []
    assert sent(output) == [(ONE, 4), (TWO, 4), (THREE, 4)]
    acknowledge(output, ONE, 4)
    acknowledge(output, TWO, 3, is_secondary=True)
    assert output.queue.trimmed_before == 0
    acknowledge(output, THREE, 1, is_secondary=True)
    assert output.queue.trimmed_before == 1
    output.learn(ONE, (TWO,))
    acknowledge(output, TWO, 3, is_secondary=True)
    assert output.queue.trimmed_before == 3


def test_a_replica_that_is_not_linked_is_refused() -> None:
    output = edge()
    output.learn(TWO, (THREE,))
    assert subscribe(output, ONE, 0) is None, "an earlier primary"
    assert subscribe(output, FOUR, 0, is_secondary=True) is None
    output.learn(ONE, (FOUR,))  # An earlier life of the coordinator says so.
    assert list(output.others) == [THREE]


def test_a_newer_primary_is_believed_before_the_coordinator_tells_of_it() -> None:
    output = edge()
    output.learn(ONE, ())
    assert subscribe(output, TWO, 0) == []
    assert subscribe(output, ONE, 0) is None


def test_a_replica_that_becomes_the_primary_is_kept_what_it_lacks() -> None:
    output = edge()
    output.learn(ONE, (TWO,))
    output.put_out(rows([1, 2, 3, 4]), 4, 0)
    subscribe(output, ONE, 0)
    acknowledge(output, ONE, 4)
    output.learn(THREE, ())  # The secondary, under the incarnation of its promotion.
    assert output.queue.trimmed_before == 0
    assert subscribe(output, THREE, 2) == [TrimSpill(STREAM, 2)]
    assert output.queue.trimmed_before == 2


def test_what_a_reader_has_of_another_replica_is_never_unsent() -> None:
    """1. A replica of two comes back, and is behind. 2. Its reader watches it, and says that it has
    ten tuples of the other one. 3. The replica puts them out at once.
    """
    output = edge()
    output.learn(ONE, ())
    output.stands(Consistency.STABLE)
    got = SubscribeReceived(STREAM, ONE, US, 0, 0, 0, is_aside=True)
    assert output.subscribe(output.primary, got)[0]
    output.acknowledge(output.primary, AckReceived(STREAM, ONE, US, 10, 0, 0, is_aside=True))
    output.put_out(rows(list(range(8))), 8, 0)
    assert output.unsent_tuples <= 0
    (said,) = output.flush()
    assert isinstance(said, SendBoundary)
    assert said.boundary_us == 8, "it holds behind what the reader has"
    output.put_out(rows(list(range(8, 12))), 12, 0)
    assert output.unsent_tuples == 2
    output.check_invariants()


def test_who_replaces_a_reader_of_replicas_gets_what_that_had_of_another_one() -> None:
    output = edge()
    output.learn(ONE, ())
    output.stands(Consistency.STABLE)
    subscribe(output, ONE, 0)
    output.acknowledge(output.primary, AckReceived(STREAM, ONE, US, 10, 0, 1_000))
    output.put_out(rows(list(range(8))), 8, 0)
    assert sent(output) == []
    subscribe(output, TWO, 3)
    assert sent(output) == [(TWO, 8)]


def test_a_rebased_edge_serves_nobody_before_it_is_numbered() -> None:
    output = edge()
    output.learn(ONE, (TWO,))
    output.rebase()
    assert subscribe(output, TWO, 0, is_secondary=True) is None
    assert subscribe(output, ONE, 7) is None
    assert output.queue.next_id == 7
    effects = subscribe(output, ONE, 7, is_told=True)
    assert effects == [SendBoundary(STREAM, ONE, 7, BEGINNING_US, rebased_at=7)]
    output.put_out(rows([49, 50, 51]), 60, 0)
    assert output.queue.next_id == 9, "what is older than 50, the receiver has"
    assert not output.lets_go(8, is_held=True)
    acknowledge(output, ONE, 8)
    assert output.lets_go(8, is_held=True)
    output.check_invariants()


def test_a_receiver_hears_nothing_else_until_it_says_that_it_knows_of_other_tuples() -> None:
    """1. It is told so, and the word is lost. 2. It would take what comes next for a replay."""
    output = edge()
    output.learn(ONE, ())
    output.rebase()
    got = SubscribeReceived(STREAM, ONE, US, 7, 7, 1_000, boundary_us=50)
    told = [SendBoundary(STREAM, ONE, 7, BEGINNING_US, rebased_at=7)]
    link = output.primary
    for _ in range(2):
        assert output.subscribe(link, got) == (False, told)
        output.put_out(rows([60]), 70, 0)
        assert output.flush() == []
    assert output.subscribe(link, replace(got, is_told=True))[0]
    assert [effect for effect in output.flush() if isinstance(effect, SendBatch)]


def test_what_is_read_back_is_not_sent_once_the_stream_is_numbered_anew() -> None:
    """1. A receiver lacks what was spilled, which is being read back. 2. The stream is rebased: the
    receiver has named where, or will. 3. Ids that it has since got would be those of other tuples.
    """
    output = edge(memory_limit_bytes=1)
    output.learn(ONE, (TWO,))
    output.put_out(rows([1, 2, 3]), 3, 0)
    (spilled,) = output.queue.take_spill(has_to_be_sent=False)
    subscribe(output, ONE, 0)
    subscribe(output, TWO, 0, is_secondary=True)
    asked = [effect for effect in output.flush() if isinstance(effect, ReadSpill)]
    assert [(a.from_id, a.to_id) for a in asked] == [(0, 3), (0, 3)]
    output.rebase()
    assert not output.spill_read(SpillRead(STREAM, asked[0].request_id, (spilled,)))
    assert output.primary.cursor.next_to_send == 0


def test_an_edge_that_is_served_before_it_is_numbered_is_an_error() -> None:
    output = edge()
    output.rebase()
    output.primary.cursor.is_subscribed = True
    with pytest.raises(InvariantViolation, match="before it is numbered"):
        output.check_invariants()


def test_links_and_cursors_that_are_not_the_same_are_an_error() -> None:
    output = edge()
    output.queue.open_cursor()
    with pytest.raises(InvariantViolation, match="not the same"):
        output.check_invariants()


@pytest.mark.parametrize("bound_us", [BEGINNING_US, 0, 2, 9, END_US])
def test_older_rows_are_left_out_or_get_the_time_that_was_promised(bound_us: int) -> None:
    times = np.array([3, 1, 2])
    left = not_before(rows(times.tolist()), bound_us).column(1).to_pylist()
    assert left == [time for time in times.tolist() if time >= bound_us]
    moved = at_the_earliest(rows(times.tolist()), bound_us).column(1).to_pylist()
    is_bound = bound_us not in (BEGINNING_US, END_US)
    assert moved == (np.maximum(times, bound_us).tolist() if is_bound else left)


def test_a_diverging_secondary_lets_go_of_passes_that_took_only_what_is_not_needed() -> None:
    kept = KeptPasses({"out": 2})
    kept.note((5, 3), {"out": 4})
    kept.note((9, 3), {"out": 7})
    assert kept.let_go((5, 2)) == {"out": 2}
    assert kept.let_go((8, 3)) == {"out": 4}
    kept.forget()
    assert kept.let_go((99, 99)) == {"out": 4}


def test_notes_before_tuples_that_the_receiver_has_had_come_in_a_frame_of_their_own() -> None:
    output = edge()
    output.queue.put_note(RecDone(Run(US, 1)))
    output.put_out(rows([1, 2, 3]), BEGINNING_US, 0)
    got = SubscribeReceived(STREAM, ONE, US, 2, 0, 1_000, boundary_us=50)
    link = output.link_of(got)
    assert link is not None
    is_served, effects = output.subscribe(link, got)
    assert is_served
    effects += output.flush()
    sent = [e for e in effects if isinstance(e, SendNotes | SendBatch)]
    assert [type(effect) for effect in sent] == [SendNotes, SendBatch]
    for effect in sent:
        encode(message_of(effect, US), 1)
