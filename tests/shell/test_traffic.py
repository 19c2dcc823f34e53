"""Bytes of frames are counted once, under what they are for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.core.haunit import events
from holdfast.core.haunit.copied_pages import PageRun
from holdfast.core.model.ids import Incarnation, StreamId
from holdfast.core.model.tuples import TupleBatch
from holdfast.shell.spark.traffic import Traffic

STREAM = StreamId("a>b")
ONE = Incarnation(1)
BATCH = TupleBatch(0, pa.RecordBatch.from_pydict({"v": [1, 2, 3]}), 0)


def test_tuples_count_apart_for_primaries_and_secondaries() -> None:
    traffic = Traffic()
    sent = events.SendBatch(STREAM, ONE, BATCH)
    traffic.sent(sent, [b"12", pa.py_buffer(b"345")], to_secondary=False)
    traffic.sent(sent, [b"1234"], to_secondary=True)
    assert (traffic.tuple_bytes, traffic.standby_bytes) == (5, 4)


def test_what_receivers_answer_counts_apart_too() -> None:
    traffic = Traffic()
    for is_secondary, frame in ((False, b"123"), (True, b"12345")):
        ack = events.AckReceived(STREAM, ONE, ONE, 1, 1, 9, is_secondary)
        traffic.answered(ack, [frame])
    traffic.answered(events.DeltaAckReceived(STREAM, ONE, ONE, 1, 1, is_applied=True), [b"1"])
    assert (traffic.ack_bytes, traffic.standby_bytes) == (3, 6)


def test_of_a_difference_what_has_changed_and_nothing_else_is_its_size() -> None:
    traffic = Traffic()
    ids = np.zeros((2, 2), dtype=np.int64)
    changed = np.zeros((2, 64), dtype=np.bool_)
    changed[1, :3] = True
    run = PageRun(1, ids, changed, np.zeros(3, dtype=np.int64))
    traffic.sent(events.SendPageRun(STREAM, ONE, run), [b"x" * 1_100], to_secondary=True)
    assert (traffic.difference_bytes, traffic.standby_bytes) == (32 + 12 + 24, 1_100)
    assert traffic.reported().difference_bytes == 68
