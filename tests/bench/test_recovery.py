"""The oracle of the recovery experiment sees every way in which an output can be wrong."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.model.tuples import TupleType, with_time
from holdfast.shell.storage.stream_log import StreamLogWriter
from holdfast_bench.recovery import SinkFollower

SCHEMA = with_time(pa.schema([("bidder", pa.int64()), ("bids", pa.int64())]))
BIDDERS, COUNTS = np.array([7, 8, 7, 7]), np.array([1, 1, 2, 3])


@pytest.mark.parametrize(
    ("bidders", "counts", "difference"),
    [
        ([7, 8, 7, 7], [1, 1, 2, 3], None),
        ([7, 8, 7], [1, 1, 2], "3 tuples, not 4"),
        ([7, 8, 7, 7, 7], [1, 1, 2, 3, 4], "5 tuples, not 4"),
        ([7, 7, 8, 7], [1, 2, 1, 3], "2 tuples differ; tuple 1 is bidder 7, count 2, not 8, 1"),
    ],
)
def test_what_is_lost_doubled_or_out_of_order_is_named(
    tmp_path: Path, bidders: list[int], counts: list[int], difference: str | None
) -> None:
    with StreamLogWriter(str(tmp_path), SCHEMA, "counts[0]", 1) as writer:
        for bidder, count in zip(bidders, counts, strict=True):
            batch = pa.RecordBatch.from_arrays(
                [pa.array([bidder]), pa.array([count]), pa.array([0])], schema=SCHEMA
            )
            writer.append(TupleType.STABLE, writer.next_id, batch, 0, 0)
        writer.end()
    sink = SinkFollower(str(tmp_path))
    while not sink.has_ended:
        sink.poll()
    assert sink.difference(BIDDERS, COUNTS) == difference
