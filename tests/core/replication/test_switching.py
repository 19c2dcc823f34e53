"""Which replica of its producer a stream is read from. [DPC §3.2, Table 2]"""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.core.model.ids import BEGINNING_US, Incarnation, NodeId, Run, StreamId
from holdfast.core.model.tuples import TupleBatch, TupleType, with_time
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.replication.switching import Choice, Sender, Standing, choose
from holdfast.core.replication.tentative_input import TentativeInput

STABLE, UP_FAILURE = Consistency.STABLE, Consistency.UP_FAILURE
CORRECTING = Consistency.STABILIZATION
NOW_MS, SILENCE_MS = 1_000, 300
SCHEMA = with_time(pa.schema([("k", pa.int64())]))


def sender(
    name: str, state: Consistency | None, *, stable_us: int = 100, heard_ms: int = NOW_MS
) -> Sender:
    made = Sender(StreamId(name), NodeId(name), heard_ms, Incarnation(1))
    if state is not None:
        made.standing = Standing(state, stable_us, stable_us)
    return made


def chosen(*senders: Sender, main: int = 0, tentative_us: int = BEGINNING_US) -> Choice:
    return choose(
        senders,
        senders[main],
        tentative_us=tentative_us,
        now_ms=NOW_MS,
        silence_ms=SILENCE_MS,
    )


@pytest.mark.parametrize(
    ("present", "other", "changes"),
    [
        (STABLE, STABLE, False),
        (STABLE, UP_FAILURE, False),
        (UP_FAILURE, STABLE, True),
        (UP_FAILURE, UP_FAILURE, False),
        (UP_FAILURE, CORRECTING, False),
        (CORRECTING, UP_FAILURE, True),
        (CORRECTING, STABLE, True),
        (None, UP_FAILURE, True),
        (None, None, False),
    ],
)
def test_stable_goes_over_up_failure_over_nothing(
    present: Consistency | None, other: Consistency | None, *, changes: bool
) -> None:
    a, b = sender("a", present), sender("b", other)
    assert chosen(a, b).main is (b if changes else a)


def test_who_is_not_heard_of_is_not_read() -> None:
    a, b = sender("a", STABLE, heard_ms=NOW_MS - SILENCE_MS - 1), sender("b", UP_FAILURE)
    assert chosen(a, b).main is b


def test_who_corrects_is_read_aside_while_another_one_brings_what_is_fresh() -> None:
    a, b = sender("a", UP_FAILURE), sender("b", CORRECTING)
    assert chosen(a, b) == Choice(a, b)


def test_who_is_stable_and_behind_what_is_tentative_is_read_aside() -> None:
    a, b = sender("a", UP_FAILURE), sender("b", STABLE, stable_us=50)
    assert chosen(a, b, tentative_us=60) == Choice(a, b)
    assert chosen(a, b, tentative_us=50) == Choice(b)


def test_among_equals_the_one_that_is_furthest_is_taken() -> None:
    a, b = sender("a", None), sender("b", STABLE, stable_us=10)
    c = sender("c", STABLE, stable_us=20)
    assert chosen(a, b, c).main is c


def batch(first_id: int, times: list[int]) -> TupleBatch:
    arrays = [pa.array(times, pa.int64()), pa.array(times, pa.int64())]
    rows = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return TupleBatch(first_id, rows, BEGINNING_US, tuple_type=TupleType.TENTATIVE)


def taken(suffix: TentativeInput) -> list[int]:
    return [time for got in suffix.take() for time in got.time_us.tolist()]


def test_of_another_replicas_run_only_what_is_younger_is_taken() -> None:
    """Both have the same number: runs of two replicas have nothing to do with each other."""
    suffix, run = TentativeInput(), Run(Incarnation(1), 1)
    suffix.receive(run, batch(7, [10, 20, 30]))
    assert taken(suffix) == [10, 20, 30]
    suffix.go_over()
    assert not suffix.take_undone()
    suffix.receive(run, batch(3, [10, 20, 25, 30, 40]))
    suffix.receive(run, batch(8, [50]))
    suffix.check_invariants()
    assert taken(suffix) == [40, 50]


def test_what_was_taken_of_a_run_that_was_gone_over_from_is_undone_with_the_next_one() -> None:
    suffix, run = TentativeInput(), Run(Incarnation(1), 1)
    suffix.receive(run, batch(0, [10]))
    taken(suffix)
    suffix.go_over()
    suffix.void()
    assert suffix.take_undone()
    suffix.receive(Run(Incarnation(1), 2), batch(0, [5]))
    assert taken(suffix) == [5]
