"""A generator's events exist from their time on, and partitions share them out."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TIME_COLUMN
from holdfast.nexmark.generator import BLOCK, NexmarkConfig, generate
from holdfast.nexmark.source import NexmarkSource
from holdfast_bench.preloaded import PreloadedBids

ORIGIN_US = 1_700_000_000_000_000


def test_an_event_exists_from_its_time_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(after_us: float) -> None:
        monkeypatch.setattr(time, "time", lambda: (ORIGIN_US + after_us) / 1e6)

    source = NexmarkSource("bid", 100, NexmarkConfig(), 100.0, ORIGIN_US)
    reader = source.spec(0, 1).open()
    at(-5_500)
    before = reader.read(0, 10)
    assert (before.batches, before.quiet_ms) == ((), 5)
    at(0)
    (first,) = reader.read(0, 10).batches
    assert (first.count, first.created_us) == (1, ORIGIN_US)
    at(6_000)
    between = reader.read(1, 10)
    assert (between.batches, between.quiet_ms) == ((), 4)
    at(30_000)
    (more,) = reader.read(1, 10).batches
    assert (more.count, more.created_us) == (3, ORIGIN_US + 10_000)
    at(1e9)
    assert sum(b.count for b in reader.read(4, 1_000).batches) == 96


def test_so_do_those_after_the_preloaded_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    source = PreloadedBids(5, 100, ORIGIN_US, "/nowhere")
    for after_us, events in ((-1, 5), (0, 6), (9_990, 6), (10_010, 7)):
        monkeypatch.setattr(time, "time", lambda us=after_us: (ORIGIN_US + us) / 1e6)
        assert source.due() == (events, False)


@pytest.mark.parametrize("kind", ["bid", "auction", "person"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_partitions_share_the_events_out(kind: str, partitions: int) -> None:
    count = 3 * BLOCK + 100
    source = NexmarkSource(kind, count, NexmarkConfig())
    found = []
    for partition in range(partitions):
        reader, next_id = source.spec(partition, partitions).open(), 0
        while (rows := reader.read(next_id, 150)).batches:
            (batch,) = rows.batches
            assert rows.boundary_us > batch.time_us.max()
            found.append(batch.batch.drop_columns([TIME_COLUMN]))
            next_id = batch.next_id
        assert rows.boundary_us == END_US
    whole = generate(kind, 0, count, NexmarkConfig())
    key = [("date_time", "ascending")]
    assert pa.Table.from_batches(found).sort_by(key).equals(pa.Table.from_batches([whole]))
