"""Spark reads a log that grows: each micro-batch gets its ids, wherever records begin and end."""

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.model.tuples import TupleType, with_time
from holdfast.driver.data_source import HoldfastSource
from holdfast.shell.storage.stream_log import StreamLogWriter

SCHEMA = with_time(pa.schema([("v", pa.int64())]))


@pytest.mark.parametrize("start", [0, 7, 10, 35])
@pytest.mark.parametrize("end", [3, 10, 25, 49, 50])
def test_a_micro_batch_is_what_lies_between_its_ids(tmp_path: Path, start: int, end: int) -> None:
    writer = StreamLogWriter(str(tmp_path / "0"), SCHEMA, "s", 1)
    for first in range(0, 50, 10):
        ids = pa.array(range(first, first + 10), pa.int64())
        writer.append(TupleType.STABLE, first, pa.record_batch([ids, ids], schema=SCHEMA), 0, 0)
    writer.close()
    source = HoldfastSource({"path": str(tmp_path)})
    reader = source.streamReader(source.schema())
    parts = reader.partitions({"0": start}, {"0": end})
    rows = [v for part in parts for b in reader.read(part) for v in b.column("v").to_pylist()]
    assert rows == list(range(start, end))
