"""Which aggregates are computed in part where their rows come from, and what then is placed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Protections
from holdfast.api.steps import PartialAggregate
from holdfast.api.streams import Stream
from holdfast.api.windows import counting, sliding, tumbling
from holdfast.core.haunit.plan import NodeLimits
from holdfast.core.model.tuples import with_time
from holdfast.driver.description import describe
from holdfast.driver.inspection import describe_operators
from holdfast.planning.plan import Plan, plan_dataflow
from holdfast.shell.sources.log_source import LogSourceReader, LogSourceSpec
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.ingest_log import IngestMeta

SCHEMA = pa.schema(
    [("key", pa.string()), ("i", pa.int32()), ("x", pa.float64()), ("d", pa.decimal128(9, 2))]
)


@dataclass(frozen=True)
class Recorded:
    """A log that nobody opens."""

    speed: float | None = None
    schema: pa.Schema = SCHEMA

    def spec(self, partition: int, partitions: int) -> LogSourceSpec:
        return LogSourceSpec("nowhere", "ingest", partition, partitions, self.speed)


def recorded(flow: Dataflow, partitions: int = 1, speed: float | None = None) -> Stream:
    return flow.source_generator(Recorded(speed), name="rows", partitions=partitions)


def place(flow: Dataflow, *, has_parts: bool = True) -> Plan:
    return plan_dataflow(flow, "", parallelism=2, limits=NodeLimits(), has_parts=has_parts)


def operators(plan: Plan) -> dict[str, list[str]]:
    return {node.unit: [spec.name for spec in node.operators] for node in plan.nodes}


def counted(stream: Stream, *aggregates: str) -> None:
    windows = stream.key_by("key").window(sliding("6 seconds", "2 seconds"))
    windows.aggregate(*(aggregates or ("count(*) AS n",)), name="counts").sink("counts")


def test_parts_are_made_with_the_source_and_travel_by_key() -> None:
    flow = Dataflow("parts")
    counted(recorded(flow, 2).filter("i > 0"), "count(*) AS n", "max(x * 2) AS most")
    plan = place(flow)
    assert operators(plan) == {"rows": ["filter", "counts~part"], "counts": ["counts"]}
    sender, *_, receiver = plan.nodes
    assert sender.outputs[0].keys == ("key",)
    assert sender.outputs[0].schema.names == receiver.inputs[0].schema.names == ["key", "n", "most"]
    part = plan.flow.steps[-2].operation
    assert isinstance(part, PartialAggregate)
    assert part.pane_us == 2_000_000
    assert all(spec.is_in_records for spec in plan.sources.values())  # type: ignore[attr-defined]
    assert operators(place(flow, has_parts=False))["rows"] == ["filter"]


def test_the_result_has_the_types_that_it_has_without_parts() -> None:
    flow = Dataflow("parts")
    counted(recorded(flow), "count(i) AS n", "sum(i) AS total", "min(x) AS low", "max(i) AS high")
    whole, parts = place(flow, has_parts=False), place(flow)
    assert whole.nodes[-1].outputs[0].schema == parts.nodes[-1].outputs[0].schema
    made = [plan.nodes[-1].operators[0].build(None).output_schema for plan in (whole, parts)]  # type: ignore[arg-type]
    assert made[0] == made[1]


def _changes(stream: Stream) -> None:
    windows = stream.key_by("key").window(tumbling("1 second"))
    windows.aggregate("count(*) AS n", name="counts", emit="changes").sink("counts")


def _by_count(stream: Stream) -> None:
    windows = stream.key_by("key").window(counting(3))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")


def _aligned_to_keys(stream: Stream) -> None:
    windows = stream.key_by("key").window(tumbling("1 second", alignment="first"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")


def _in_the_unit(stream: Stream) -> None:
    windows = stream.unit("rows").key_by("key").window(tumbling("1 second"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")


def _sampled(stream: Stream) -> None:
    counted(stream.unit("rows").sample(0.5))


def _beside_a_union(stream: Stream) -> None:
    windows = stream.unit("counts").key_by("key").window(tumbling("1 second"))
    made = windows.aggregate("count(*) AS n", name="counts")
    made.union(made.filter("n > 1")).sink("counts")


@pytest.mark.parametrize(
    "build",
    [
        _changes,
        _by_count,
        _aligned_to_keys,
        _in_the_unit,
        _sampled,
        _beside_a_union,
        lambda stream: counted(stream, "count(*) AS n", "avg(i) AS mean"),
        lambda stream: counted(stream, "sum(x) AS total"),
        lambda stream: counted(stream, "sum(d) AS total"),
        lambda stream: counted(stream, "min(key) AS first"),
    ],
)
def test_no_parts_where_they_would_change_the_result(build: Callable[[Stream], None]) -> None:
    flow = Dataflow("whole")
    build(recorded(flow))
    plan = place(flow)
    assert not any("part" in name for names in operators(plan).values() for name in names)
    assert not any(spec.is_in_records for spec in plan.sources.values())  # type: ignore[attr-defined]


def test_no_parts_of_a_source_whose_batches_differ() -> None:
    flow = Dataflow("paced")
    counted(recorded(flow, speed=2.0))
    assert operators(place(flow))["rows"] == []


def test_a_location_knows_about_parts() -> None:
    flow = Dataflow("parts")
    counted(recorded(flow))
    texts = [describe(flow, place(flow, has_parts=h), Protections(None)) for h in (True, False)]
    assert "counts~part" in texts[0]
    assert "counts~part" not in texts[1]
    assert b'"sum"' in describe_operators(place(flow), None)


def test_a_log_in_records_is_read_from_where_one_begins(tmp_path: Path) -> None:
    schema = with_time(pa.schema([("i", pa.int64())]))
    root = str(tmp_path / "log")
    meta = IngestMeta(schema.remove(1), "at", 0)
    ingest_log.prepare(root, meta)
    for n in range(3):
        batch = pa.RecordBatch.from_pydict({"i": [n, n], "__time_us": [n, n]}, schema=schema)
        file = ingest_log.write_file(root, meta, iter([batch]))
        assert file is not None
        ingest_log.append_batch(root, [file])
    spec = LogSourceSpec(root, "ingest")
    records = spec.in_records()
    assert records is not None
    assert [b.first_id for b in LogSourceReader(records).read(2, 1).batches] == [2]
    assert [b.first_id for b in LogSourceReader(spec).read(3, 1).batches] == [3]
    with pytest.raises(StorageError, match="no record begins with tuple 3"):
        LogSourceReader(records).read(3, 1)
