"""Footprint logs of units whose instances change: what is read of them, and what is refused."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.haunit.plan import (
    FootprintPlan,
    InputSpec,
    NodePlan,
    OperatorSpec,
    OutputSpec,
)
from holdfast.core.model.footprints import FootprintKind, FootprintRecord, PassMark
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.operators.footprinted_windows import FootprintedWindows
from holdfast.core.operators.window_kinds import CountWindows
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageManager
from holdfast.driver.rescaled_footprints import DividedFootprints
from holdfast.shell.storage.errors import SchemaMismatch
from holdfast.shell.storage.footprint_log import FootprintLogWriter, footprint_place

SCHEMA = pa.schema([("k", pa.int64())])
A, LOG = StreamId("a>n"), StreamId("n~footprints")


@dataclass(frozen=True)
class Windows:
    """Three tuples of a key."""

    def __call__(self, manager: PageManager) -> FootprintedWindows:
        return FootprintedWindows(
            "w", SCHEMA, ["k"], [("count", None, "n")], windows=CountWindows(3, 3), manager=manager
        )


MADE = Windows()(PageManager())
PLAN = NodePlan(
    NodeId("n"), "n", 0, (InputSpec(A, 0, SCHEMA, NodeId("a")),), 1,
    (OperatorSpec("w", Windows(), (("port", 0),)),),
    (OutputSpec(("operator", 0), MADE.output_schema, (StreamId("out"),), (), is_sink=True),),
    footprints=FootprintPlan(extent_bytes=0),
)  # fmt: skip


def write(location: Path, body: pa.Schema) -> RestartPoint:
    """One open window, whose footprint has these columns; the point that leads to it."""
    place = footprint_place(str(location), PLAN)
    with closing(FootprintLogWriter(place, body, LOG, 1)) as log:
        kinds = np.array([FootprintKind.G_CHECK], dtype=np.uint8)
        rows = pa.RecordBatch.from_arrays([pa.array([1], f.type) for f in body], schema=body)
        mark = PassMark(1, 2, 0, (0,), 0)
        batch = FootprintRecord(0, mark, kinds, rows).to_batch()
        log.append(0, 0, batch.batch, batch.boundary_us, 0)
        log.sync()
    return RestartPoint(1, {A: 0, LOG: 0}, {A: 2}, 0, {LOG: 1})


def test_windows_are_read_of_a_log_with_the_columns_that_their_operator_reads(
    tmp_path: Path,
) -> None:
    point = write(tmp_path, MADE.body_schema)
    assert DividedFootprints(str(tmp_path)).is_at_cut(PLAN, point)
    (operator,) = DividedFootprints(str(tmp_path)).operators(PLAN, point) or ()
    assert isinstance(operator, FootprintedWindows)
    assert operator.open_windows == 1


def test_a_log_of_a_version_whose_footprints_had_other_columns_is_refused_by_name(
    tmp_path: Path,
) -> None:
    point = write(tmp_path, MADE.body_schema.append(pa.field("state.9", pa.int64())))
    read = DividedFootprints(str(tmp_path))
    for reads in (read.is_at_cut, read.operators):
        with pytest.raises(SchemaMismatch, match=r"(?s)footprints/n holds .*state\.9.*differs"):
            reads(PLAN, point)
