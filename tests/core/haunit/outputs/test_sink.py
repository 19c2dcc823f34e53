"""A sink: exactly once by id, what is held, and the log of passes."""

from dataclasses import replace

import pyarrow as pa
import pytest

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.events import EndSink, HastenSink, ReportFirstOutput, SyncSink, WriteSink
from holdfast.core.haunit.outputs.first_output import FirstOutput
from holdfast.core.haunit.outputs.pass_log import PassLog
from holdfast.core.haunit.outputs.sink import Sink
from holdfast.core.haunit.passes import Pass
from holdfast.core.machine import Effect
from holdfast.core.model.ids import StreamId

SINK = StreamId("results")


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(count), pa.int64())], names=["t"])


def sink(next_id: int = 0, in_log: int = 0) -> Sink:
    return Sink(SINK, next_id, in_log, FirstOutput())


def put_out(target: Sink, count: int, *, is_held: bool = False) -> list[Effect]:
    effects = target.put_out(rows(count), 0, 0, is_held=is_held)
    target.check_invariants()
    return effects


def written(effects: list[Effect]) -> list[tuple[int, int]]:
    found = [effect.batch for effect in effects if isinstance(effect, WriteSink)]
    return [(batch.first_id, batch.next_id) for batch in found]


def test_what_the_log_has_is_not_written_again() -> None:
    target = sink(next_id=3, in_log=8)
    assert put_out(target, 4) == []
    effects = put_out(target, 4)
    assert written(effects) == [(8, 11)]
    assert sum(isinstance(effect, ReportFirstOutput) for effect in effects) == 1


def test_what_is_held_leaves_in_the_pieces_in_which_it_came() -> None:
    target = sink()
    for _ in range(3):
        assert put_out(target, 5, is_held=True) == []
    assert target.held_tuples == 15
    effects = target.let_out(12)
    assert written(effects) == [(0, 5), (5, 10)]
    assert target.held_tuples == 5
    target.let_go(15)
    assert target.held_tuples == 0
    target.check_invariants()


def test_a_replica_that_numbers_otherwise_goes_on_where_the_log_ends() -> None:
    target = sink()
    put_out(target, 5, is_held=True)
    put_out(target, 2, is_held=True)
    target.let_go(5)
    target.go_on_from(40)
    target.number_anew()
    effects = target.let_out(target.next_id)
    assert written(effects) == [(40, 42)]
    target.check_invariants()


def test_a_sink_is_synced_when_something_was_written_and_ends_once() -> None:
    target = sink()
    effects = put_out(target, 5)
    effects += target.sync()
    effects += target.sync()
    assert effects.count(SyncSink(SINK)) == 1
    assert target.unsynced_tuples == 5
    target.synced(5)
    target.synced(3)
    assert target.unsynced_tuples == 0
    ended: list[Effect] = []
    ended += target.end()
    ended += target.end()
    assert ended == [EndSink(SINK)]


def test_what_is_written_of_an_ended_sink_is_hastened_once() -> None:
    """Not what is held: nothing has asked for it to be durable yet."""
    target = sink()
    put_out(target, 5, is_held=True)
    assert target.hasten() == []
    target.let_out(target.next_id)
    assert target.hasten() == [SyncSink(SINK), HastenSink(SINK)]
    assert target.hasten() == []
    assert target.sync() == []


def test_an_ended_sink_is_not_asked_twice_to_be_synced() -> None:
    target = sink()
    put_out(target, 5)
    assert target.sync() == [SyncSink(SINK)]
    assert target.hasten() == [HastenSink(SINK)]


def test_positions_that_do_not_fit_are_an_error() -> None:
    target = sink()
    target.durable_before = 1
    with pytest.raises(InvariantViolation, match="durable beyond"):
        target.check_invariants()
    target = sink()
    put_out(target, 5, is_held=True)
    target.next_id = 9
    with pytest.raises(InvariantViolation, match="ends at 5"):
        target.check_invariants()


def test_passes_that_come_during_a_sync_share_the_next() -> None:
    log = PassLog(StreamId("n~passes"), 0, 0, FirstOutput())
    effects: list[Effect] = []
    pass_ = Pass(0, 0, 0, 0, (1,))
    for number in range(3):
        effects += log.log(replace(pass_, number=number))
    effects += log.log(pass_)
    assert written(effects) == [(0, 1), (1, 2), (2, 3)]
    assert effects.count(SyncSink(StreamId("n~passes"))) == 1
    log.synced(1)
    effects += log.sync()
    assert effects.count(SyncSink(StreamId("n~passes"))) == 2
    log.synced(3)
    effects += log.sync()
    assert effects.count(SyncSink(StreamId("n~passes"))) == 2
