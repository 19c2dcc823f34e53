"""Whether a sink's log holds what a node has put out, before an elastic restart stops the node."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from holdfast.api.dataflow import Dataflow
from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.journal_entries import (
    LineMoved,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.haunit.plan import CheckpointPlan, Cuts, NodePlan, OutputSpec
from holdfast.core.model.ids import Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.driver.rescaling import Rescaling, _Home
from holdfast.errors import RescalingError
from holdfast.planning.plan import Plan
from holdfast.shell.sinks.base import Waits
from holdfast.shell.sinks.files import FilesSinkSpec
from holdfast.shell.spark.history import NodeReport
from holdfast.shell.spark.journal import COORDINATOR, JOURNAL_FOLDER, Journal, read_entries
from holdfast.shell.storage.logs import open_writer
from holdfast.shell.stores.folder import FolderStoreSpec

SCHEMA = with_time(pa.schema([("n", pa.int64())]))


@pytest.mark.parametrize(("scheme", "holds_before_sync"), [("", True), ("local://", False)])
def test_a_part_of_an_object_counts_when_it_is_stored(
    tmp_path: Path, scheme: str, holds_before_sync: bool
) -> None:
    """What is in a file outlives its node; a part that is not stored yet is dropped with it."""
    place = f"{scheme}{tmp_path}/out"
    home = _Home(str(tmp_path), {StreamId("out"): place}, {}, None)
    assert home.sink_holds("a topic", 7), "it is nowhere"
    writer = open_writer(place, SCHEMA, "out", 1)
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([1, 2])], schema=SCHEMA)
    writer.append(TupleType.STABLE, 0, rows, 5, 0)
    assert home.sink_holds("out", 2) is holds_before_sync
    writer.sync()
    assert home.sink_holds("out", 2)
    assert not home.sink_holds("out", 3)
    writer.close()


def test_a_sink_outside_has_what_its_last_writer_has_decided(tmp_path: Path) -> None:
    """1. A cut is recorded. 2. Its node is killed before the files have names. 3. With fewer
    instances nobody opens this one again.
    """
    place, folder = str(tmp_path / "place"), tmp_path / "out"
    spec = FilesSinkSpec("out[1]", str(folder), "parquet", (), place, 0.02)
    home = _Home(str(tmp_path), {}, {"out[1]": spec}, None)
    assert home.sink_next_id("out[1]") == 0
    writer = spec.open(1, threading.Event(), Waits())
    writer._folder = SimpleNamespace(write=writer._folder.write, rename=lambda _: None)  # type: ignore[assignment]
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([1, 2])], schema=SCHEMA)
    writer.append(TupleType.STABLE, 0, rows, 5, 0)
    assert not home.sink_holds("out[1]", 2)
    writer.sync()
    assert not list(folder.glob("*.parquet"))
    assert home.sink_holds("out[1]", 2)
    (found,) = folder.glob("*.parquet")
    assert parquet.read_table(found).column("n").to_pylist() == [1, 2]
    assert home.sink_next_id("out[1]") == 2


def _member(index: int) -> NodePlan:
    out = OutputSpec(
        ("port", 0), SCHEMA, (StreamId(f"out[{index}]"),), (), is_sink=True, is_gated=True
    )
    return NodePlan(
        NodeId(f"member[{index}]"), "member", index, (), 1, (), (out,),
        checkpoints=CheckpointPlan(1_000, kept=1), region="member", cuts=Cuts.UNCOORDINATED,
    )  # fmt: skip


class _AtLine:
    """What a driver knows of one member of a region, whose results have left its gate."""

    def __init__(self, folder: Path, *, is_torn: bool) -> None:
        """Two rows are in the sink's log; of the second one a crash leaves a part, if `is_torn`."""
        self._out, self._is_torn = folder / "out", is_torn
        self._writer = open_writer(str(self._out), SCHEMA, "out[0]", 1)
        self._append(0)
        self._size = self._segment.stat().st_size
        self._append(1)
        node = NodeId("member[0]")
        noted = PointNoted(node, Incarnation(1), RestartPoint(4, next_ids={"out[0]": 2}))
        lives = RecoveryDecision((NewLife(node, Incarnation(1)),))
        self.entries: list[Any] = [lives, noted, LineMoved({node: noted.point_id})]
        self.journal = str(folder / JOURNAL_FOLDER)
        journal = Journal(self.journal, COORDINATOR)
        journal.write(self.entries)
        journal.close()
        self.registry = CheckpointRegistry.of(self.entries)
        self.done, self.error = threading.Event(), None
        self.history = SimpleNamespace(reports={node: NodeReport(next_ids={"out[0]": 2})})

    @property
    def _segment(self) -> Path:
        (segment,) = self._out.glob("*.seg")
        return segment

    def _append(self, n: int) -> None:
        rows = pa.RecordBatch.from_arrays([pa.array([n]), pa.array([n])], schema=SCHEMA)
        self._writer.append(TupleType.STABLE, n, rows, n, 0)

    def start(self, _: Any) -> None:
        """All nodes are at work."""

    def stop(self) -> None:
        """They are stopped; the machine of the sink has crashed before its log was synced."""
        self._writer.close()
        if self._is_torn:
            with self._segment.open("r+b") as segment:
                segment.truncate(self._size + 9)


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_region_is_divided_only_if_its_results_have_outlived_its_stop(
    tmp_path: Path, *, is_torn: bool
) -> None:
    """1. A sink's log holds results, readable and not synced, and the line has passed them. 2. Its
    machine crashes while all is stopped. 3. New members began behind results that nobody had.
    """
    first, second = StreamId("out[0]"), StreamId("out[1]")
    paths = {first: str(tmp_path / "out"), second: str(tmp_path / "other")}
    former = Plan(Dataflow("members"), (_member(0),), {}, {first: paths[first]}, ())
    wanted = replace(former, nodes=(_member(0), _member(1)), sink_paths=paths)
    rescaling = Rescaling(
        former, wanted, str(tmp_path), 5, FolderStoreSpec(str(tmp_path / "store"))
    )
    cluster = _AtLine(tmp_path, is_torn=is_torn)
    if is_torn:
        with pytest.raises(RescalingError, match=r"out\[0\] has lost results of member\[0\]"):
            rescaling.run(cluster, dict)  # type: ignore[arg-type]
        assert read_entries(cluster.journal) == cluster.entries
    else:
        rescaling.run(cluster, dict)  # type: ignore[arg-type]
        now = CheckpointRegistry.of(read_entries(cluster.journal))
        assert now.instances == {"member": 2}


def test_rows_that_came_while_it_was_stopped_are_not_put_out_twice(tmp_path: Path) -> None:
    """Nodes may have processed them behind the cut, and the new ones would do so again."""
    first, stream = StreamId("out[0]"), "rows[0]"
    former = Plan(Dataflow("members"), (_member(0),), {}, {first: str(tmp_path / "out")}, ())
    rescaling = Rescaling(former, former, str(tmp_path), 5)
    report = NodeReport(source_rows={stream: 7})
    rescaling._require_nothing_more({stream: 7, "other[0]": None}, {NodeId("member[0]"): report})
    with pytest.raises(RescalingError, match=r"more rows came to rows\[0\] while it was stopped"):
        rescaling._require_nothing_more({stream: 8}, {NodeId("member[0]"): report})
