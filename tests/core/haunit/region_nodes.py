"""What tests of nodes that recover together share: a schema, batches, and a node under a test."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from holdfast.core.checkpoint.page_image import PageImage
from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import Assignment
from holdfast.core.haunit.prepared import StoredCheckpoint
from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.model.tuples import TupleBatch, with_time

SCHEMA = pa.schema([("v", pa.int64())])
ONE = Incarnation(1)


def batch(first_id, *times, boundary_us=BEGINNING_US):
    """Tuples of these times, which are their values, too."""
    columns = [pa.array(times, pa.int64())] * 2
    rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    return TupleBatch(first_id, rows, boundary_us)


def counted(first_id, count):
    """So many tuples of one time, with values from 0 on."""
    columns = [pa.array(range(count), pa.int64()), pa.array([1] * count, pa.int64())]
    rows = pa.RecordBatch.from_arrays(columns, schema=with_time(SCHEMA))
    return TupleBatch(first_id, rows, BEGINNING_US)


def stored(prepared):
    """The answer of a store that has taken everything."""
    none = np.zeros(0, dtype=np.int64)
    image = PageImage(prepared.page_bytes, (), none, 1, (), none, none, none)
    return events.CheckpointWritten(StoredCheckpoint(prepared.checkpoint, 0, image, (), 0))


class Running:
    """A node that knows its senders; the test says when its checkpoints are durable."""

    def __init__(self, plan, senders, next_ids, restored=None, *, rounds_over=0):
        point = None if restored is None else restored.point
        assigned = Assignment(1, ONE, point, next_ids, rounds_over=rounds_over)
        self.node = Node(plan, assigned, 0, restored)
        self.node.start(0)
        for sender in senders:
            self.step(events.PeerIncarnationLearned(sender, ONE))

    def step(self, stimulus):
        made = self.node.step(stimulus, 0)
        self.node.check_invariants()
        return made

    def run(self):
        made = []
        while self.node.has_work:
            made += self.step(events.Proceed())
        return made
