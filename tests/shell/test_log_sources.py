"""Logs as sources: from whatever id on."""

from pathlib import Path

import pyarrow as pa

from holdfast.core.model.tuples import TupleType, with_time
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage.logs import open_writer

SCHEMA = with_time(pa.schema([("v", pa.int64())]))


def test_whoever_goes_back_is_promised_no_boundary_of_what_comes_later(tmp_path: Path) -> None:
    log = open_writer(str(tmp_path), SCHEMA, "rows", 1)
    for at_us in (10, 20, 30):
        row = pa.RecordBatch.from_pydict({"v": [at_us], "__time_us": [at_us]}, schema=SCHEMA)
        log.append(TupleType.STABLE, log.next_id, row, at_us, 0)
    reader = LogSourceSpec(str(tmp_path), "stream").open()
    assert reader.read(0, 10).boundary_us == 30
    again = reader.read(0, 1)
    assert [batch.count for batch in again.batches] == [1]
    assert again.boundary_us == 10
    reader.close()
    log.close()
