"""Which filters leave out groups of rows of users' files, before they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.core.haunit.plan import NodeLimits
from holdfast.planning.plan import plan_dataflow


def files(flow: Dataflow, place: Path) -> Stream:
    columns = [("at", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("v", pa.int64())]
    schema = pa.schema(columns)
    return flow.source_files(str(place), time="at", schema=schema, name="rows")


def pruned(flow: Dataflow) -> list[list[str]]:
    """Per filter the columns of its parts; none: every row is read."""
    plan = plan_dataflow(flow, "/tmp/nowhere", parallelism=1, limits=NodeLimits())
    (spec,) = plan.sources.values()
    pruning: Any = spec.pruning  # type: ignore[union-attr]
    if pruning is None:
        return []
    return [[each.column for part in parts for each in part] for parts in pruning.filters]


def test_filters_behind_files_leave_out_groups_of_rows(tmp_path: Path) -> None:
    flow = Dataflow("chain")
    files(flow, tmp_path).filter("k > 3 AND v <> 9").filter("v = 1").sink("out")
    assert pruned(flow) == [["k", "v"]]


def test_of_two_readers_each_must_leave_the_group_out(tmp_path: Path) -> None:
    flow = Dataflow("both")
    rows = files(flow, tmp_path)
    rows.filter("k > 3").sink("high")
    rows.filter("v = 1").sink("one")
    assert pruned(flow) == [["k"], ["v"]]


def all_wanted(rows: Stream) -> None:
    rows.filter("k > 3").sink("high")
    rows.sink("all")


def counted(rows: Stream) -> None:
    rows.filter("k > 3").sink("high")
    rows.window(tumbling("1 second")).aggregate("count(*) AS n").sink("counts")


def in_another_unit(rows: Stream) -> None:
    rows.unit("own").filter("k > 3").sink("high")


def undecided(rows: Stream) -> None:
    rows.filter("k + 1 > 3").sink("high")


def may_fail(rows: Stream) -> None:
    rows.filter("k > 3 AND v / k > 1").sink("high")


@pytest.mark.parametrize("build", [all_wanted, counted, in_another_unit, undecided, may_fail])
def test_who_may_see_a_row_has_it_read(build: Any, tmp_path: Path) -> None:
    flow = Dataflow("seen")
    build(files(flow, tmp_path))
    assert not pruned(flow)
