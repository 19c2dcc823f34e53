"""A dataflow that would read its own results is refused; others are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from holdfast.api.dataflow import Dataflow
from holdfast.driver.own_output import require_other_places
from holdfast.errors import DataflowError

SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.int64())])


def flow_between(
    source: str, sink: str, *, by: str | tuple[str, ...] = (), **more: Any
) -> Dataflow:
    flow = Dataflow("copy")
    rows = flow.source_files(source, name="in", schema=SCHEMA, time="at", **more)
    rows.sink_files(sink, name="out", partition_by=by)
    return flow


@pytest.mark.parametrize(
    ("source", "sink", "by"),
    [
        ("{0}", "{0}", ()),
        ("{0}", "{0}/", "k"),
        ("{0}", "{0}/k=7", ()),
        ("{0}/k=7", "{0}", "k"),
        ("{0}/*.parquet", "{0}", ()),
        ("{0}/*", "{0}", "k"),
        ("s3://bucket/rows", "s3://bucket/rows/", ()),
    ],
)
def test_a_sink_in_the_folder_of_a_source_that_goes_on_is_refused(
    tmp_path: Path, source: str, sink: str, by: str
) -> None:
    (tmp_path / "k=7").mkdir()
    flow = flow_between(source.format(tmp_path), sink.format(tmp_path), by=by)
    with pytest.raises(DataflowError, match=r"'out' writes into the folder .* where source 'in'"):
        require_other_places(flow)


@pytest.mark.parametrize(
    ("source", "sink", "by"),
    [
        ("{0}", "{0}/results", ()),
        ("{0}/results", "{0}", ()),
        ("{0}/k=7", "{0}", ()),
        ("{0}/*.csv", "{0}", ()),
        ("{0}/results/*.parquet", "{0}", "k"),
        ("s3://bucket/rows", "s3://bucket/results", ()),
    ],
)
def test_other_folders_are_not(tmp_path: Path, source: str, sink: str, by: str) -> None:
    (tmp_path / "k=7").mkdir()
    (tmp_path / "results").mkdir()
    require_other_places(flow_between(source.format(tmp_path), sink.format(tmp_path), by=by))


def test_a_source_of_what_is_there_at_the_start_may_have_its_results_beside(tmp_path: Path) -> None:
    require_other_places(flow_between(str(tmp_path), str(tmp_path), ends=True))


@pytest.mark.parametrize("reads_files", [False, True])
def test_a_table_that_is_read_and_written_is_refused(tmp_path: Path, reads_files: bool) -> None:
    table = str(tmp_path / "table")
    DeltaTable.create(table, schema=SCHEMA)
    flow = Dataflow("copy")
    if reads_files:
        rows = flow.source_files(table, name="in", schema=SCHEMA, time="at")
    else:
        rows = flow.source_delta(table, name="in", time="at")
    rows.sink_delta(table, name="out")
    with pytest.raises(DataflowError, match="'out' writes into the Delta table"):
        require_other_places(flow)
