"""An instance of a Kafka source that has come to its end holds up no other."""

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("confluent_kafka")

from holdfast.core.model.ids import END_US, Incarnation
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.queues.idle_floor import Reached, idle_floor_us
from holdfast.core.queues.partition_boundaries import PartitionBoundaries
from holdfast.core.queues.topic_positions import Span
from holdfast.shell.kafka.client import KafkaCluster
from holdfast.shell.kafka.decoding import Decoder
from holdfast.shell.kafka.ingest import KafkaIngest, TopicReading, _Following
from holdfast.shell.kafka.positions import Positions
from holdfast.shell.storage.logs import open_writer

DECODER = Decoder("string", pa.schema([("key", pa.string()), ("value", pa.string())]))
READING = TopicReading(
    source="rows",
    cluster=KafkaCluster("localhost:1"),
    topic="t",
    decoder=DECODER,
    delay_us=100,
    idle_ms=1000,
    begin="earliest",
    end={0: 1},
    instance=0,
    instances=2,
)
SCHEMA = with_time(DECODER.log_schema)
ENDED = Reached(END_US, 900, is_idle=False)


def ingest(place: Path, incarnation: int) -> KafkaIngest:
    return KafkaIngest(READING, str(place), Incarnation(incarnation), lambda: None)


def row(time_us: int) -> pa.RecordBatch:
    values = (["k"], ["v"], [0], [0], [time_us])
    columns = [pa.array(v, f.type) for v, f in zip(values, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def test_whoever_replaces_it_says_how_far_it_has_come(tmp_path: Path) -> None:
    """Nobody goes on without an instance of which nothing is known."""
    writer = open_writer(str(tmp_path), SCHEMA, "rows[0]", 1)
    writer.append(TupleType.STABLE, 0, row(1000), 900, 0)
    writer.end()
    writer.close()
    heir = ingest(tmp_path, 2)
    heir._thread.join(240.0)
    assert heir.error is None
    assert heir.reached == ENDED
    assert idle_floor_us([heir.reached, Reached(200, 200, is_idle=True)]) == 900
    heir.close()


def test_its_end_is_the_last_thing_that_its_node_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. The node reads the end, is done, and says so. 2. The thread goes on."""
    monkeypatch.setattr(KafkaIngest, "_read", lambda *_: None)
    writing = ingest(tmp_path, 1)
    writing._thread.join(240.0)
    said: list[Reached | None] = []
    monkeypatch.setattr(writing, "_on_news", lambda: said.append(writing.reached))
    positions = Positions(str(tmp_path), 1)
    positions.find(0)
    positions.advance(0, 1, 1000)
    boundaries = PartitionBoundaries(
        [0], delay_us=100, idle_ms=1000, newest_us={0: 1000}, is_sole=False
    )
    following = _Following(writing, positions, boundaries, Span({0: 0}, {0: 1}))
    monkeypatch.setattr(following, "_take_records", lambda: type("", (), {"offsets": []})())
    monkeypatch.setattr(following, "_look_at_topic", lambda: None)
    assert following.turn()
    assert {*said} == {ENDED}
    positions.close()
    writing.close()
