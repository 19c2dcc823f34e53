"""A replica that follows a source's log and takes it over reads what the log holds, and no more."""

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.wire.log_owners import chained
from holdfast.shell.kafka import source as source_module
from holdfast.shell.kafka.source import KafkaReader
from holdfast.shell.storage import part_log
from holdfast.shell.storage.errors import LogSuperseded
from holdfast.shell.storage.logs import OpenedLog, open_writer

SCHEMA = with_time(pa.schema([("v", pa.int64())]))


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(part_log, "PART_INTERVAL_S", 0.0)
    return str(tmp_path) if request.param == "folder" else f"memory://{uuid.uuid4()}"


def opened(place: str, incarnation: int) -> OpenedLog:
    return open_writer(place, SCHEMA, "s", incarnation)


def put(log: OpenedLog, count: int, writer: int) -> None:
    """Tuples that tell who wrote them."""
    ids = pa.array(range(log.next_id, log.next_id + count), pa.int64())
    values = pa.array([writer] * count, pa.int64())
    rows = pa.RecordBatch.from_arrays([values, ids], schema=SCHEMA)
    log.append(TupleType.STABLE, log.next_id, rows, BEGINNING_US, 0)
    log.sync()


def read(reader: KafkaReader, from_id: int, before: int) -> list[int]:
    """Who wrote the tuples [from_id, before)."""
    found: list[int] = []
    while from_id + len(found) < before:
        for batch in reader.read(from_id + len(found), 100).batches:
            found += batch.batch.column(0).to_pylist()
    return found


def promote(
    monkeypatch: pytest.MonkeyPatch, reader: KafkaReader, log: OpenedLog
) -> SimpleNamespace:
    """The reader leads, and `log` is what its thread would write."""
    ingest = SimpleNamespace(
        begun_at=log.next_id,
        owners=log.owners,
        durable_before=log.next_id,
        boundary_us=BEGINNING_US,
        late_rows=0,
        error=None,
        close=lambda: None,
    )
    monkeypatch.setattr(source_module, "KafkaIngest", lambda *_, **__: ingest)
    reader.lead(Incarnation(2))
    return ingest


def follower(place: str) -> KafkaReader:
    spec: Any = SimpleNamespace(place=place, reading=None, is_draining=False)
    return KafkaReader(spec)


def test_a_promoted_replica_reads_no_part_of_a_zombie(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. It has read up to the end. 2. It takes the log over. 3. The zombie writes there."""
    zombie = opened(place, 1)
    put(zombie, 10, 1)
    reader = follower(place)
    assert read(reader, 0, 10) == [1] * 10
    successor = opened(place, 2)
    put(zombie, 5, 1)
    ingest = promote(monkeypatch, reader, successor)
    put(successor, 3, 2)
    ingest.durable_before = successor.next_id
    assert read(reader, 10, 13) == [2] * 3
    reader.close()


def test_a_replica_that_has_read_what_the_log_does_not_hold_cannot_take_it_over(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if the log goes further: another writer's tuples stand there."""
    zombie = opened(place, 1)
    put(zombie, 10, 1)
    reader = follower(place)
    assert read(reader, 0, 8) == [1] * 10
    successor = opened(place, 4)
    successor.owners = chained([(Incarnation(n), at) for n, at in ((1, 0), (3, 5), (4, 10))])
    with pytest.raises(LogSuperseded, match="has lost tuples from 5 on, which this replica has"):
        promote(monkeypatch, reader, successor)
    reader.close()
