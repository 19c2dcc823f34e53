"""The benchmark's inputs hold the same events in every form, and their oracles are right."""

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from holdfast.core.model.ids import END_US
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.shell.sources.base import SourceReader
from holdfast_bench.inputs import LogInput, first_read_s, record
from holdfast_bench.preloaded import PreloadedBids, expected_counts

COUNT = 600_000


def ids(reader: SourceReader, column: str) -> list[int]:
    """A column of all that a source holds."""
    found: list[int] = []
    while True:
        rows = reader.read(len(found), 50_000)
        for batch in rows.batches:
            assert batch.first_id == len(found)
            found += batch.batch.column(column).to_pylist()
        if rows.boundary_us == END_US and not rows.batches:
            reader.close()
            return found


@pytest.mark.parametrize("partitions", [1, 2])
def test_log_and_parquet_hold_the_same_events_and_none_is_late(
    tmp_path: Path, partitions: int
) -> None:
    recording = record("auction", COUNT, NexmarkConfig(), tmp_path)
    (tmp_path / "marks").mkdir()
    source = LogInput(recording.log, str(tmp_path / "marks"))
    logged = [
        event
        for partition in range(partitions)
        for event in ids(source.spec(partition, partitions).open(), "id")
    ]
    assert sorted(logged) == list(range(COUNT))
    assert first_read_s(str(tmp_path / "marks")) > 0
    files = sorted(Path(recording.parquet).glob("*.parquet"))
    assert [i for f in files for i in pq.read_table(f)["id"].to_pylist()] == list(range(COUNT))


def preloaded(tmp_path: Path) -> PreloadedBids:
    source = PreloadedBids(50, 1000.0, 0, str(tmp_path / "end"))
    Path(source.end_path).write_text("400")
    return source


def test_preloaded_bids_are_the_same_from_any_id_on(tmp_path: Path) -> None:
    source = preloaded(tmp_path)
    whole = ids(source.open(), "bidder")
    assert len(whole) == 400
    assert whole[:50] == list(range(50))
    (batch,) = source.open().read(123, 20).batches
    assert batch.batch.column("bidder").to_pylist() == whole[123:143]


def test_expected_counts_are_running_counts_per_bidder(tmp_path: Path) -> None:
    source = preloaded(tmp_path)
    bidders, counts = expected_counts(source, 400)
    seen: Counter[int] = Counter()
    expected = []
    for bidder in bidders.tolist():
        seen[bidder] += 1
        expected.append(seen[bidder])
    assert np.array_equal(counts, expected)
