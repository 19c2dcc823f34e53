"""Whether a sink's log holds what a node has put out, before an elastic restart stops the node."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.model.ids import StreamId
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.driver.rescaling import _Home
from holdfast.shell.storage.logs import open_writer

SCHEMA = with_time(pa.schema([("n", pa.int64())]))


@pytest.mark.parametrize(("scheme", "holds_before_sync"), [("", True), ("local://", False)])
def test_a_part_of_an_object_counts_when_it_is_stored(
    tmp_path: Path, scheme: str, holds_before_sync: bool
) -> None:
    """What is in a file outlives its node; a part that is not stored yet is dropped with it."""
    place = f"{scheme}{tmp_path}/out"
    home = _Home(str(tmp_path), {StreamId("out"): place}, None)
    assert home.sink_holds("a topic", 7), "its log is not here"
    writer = open_writer(place, SCHEMA, "out", 1)
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), pa.array([1, 2])], schema=SCHEMA)
    writer.append(TupleType.STABLE, 0, rows, 5, 0)
    assert home.sink_holds("out", 2) is holds_before_sync
    writer.sync()
    assert home.sink_holds("out", 2)
    assert not home.sink_holds("out", 3)
    writer.close()
