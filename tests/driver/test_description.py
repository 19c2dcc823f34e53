"""What a checkpoint location says of each kind of step: later versions have to write the same."""

from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Protections
from holdfast.api.steps import Operation
from holdfast.api.windows import counting, sliding, tumbling
from holdfast.core.haunit.plan import NodeLimits
from holdfast.driver.description import claim, describe
from holdfast.errors import DataflowChangedError
from holdfast.planning.plan import plan_dataflow

WRITTEN = Path(__file__).parent / "data" / "dataflow.txt"
COLUMNS = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("k", pa.int32()), ("v", pa.float64())])


class Streaming:
    """A streaming DataFrame, as far as a description goes."""

    isStreaming = True

    def __init__(self) -> None:
        from pyspark.sql.types import DoubleType, IntegerType, StructType, TimestampType

        columns = StructType().add("t", TimestampType()).add("k", IntegerType())
        self.schema = columns.add("v", DoubleType())


def every_kind(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Dataflow:
    """A dataflow that has each kind of step, with what can be said of it."""
    frame: Any = Streaming()
    monkeypatch.chdir(folder)
    (folder / "in").mkdir()
    flow = Dataflow("golden")
    flow.source(frame, name="a", time="t", delay="1 second", partitions=2)
    a0 = flow.source(frame, name="a0", time="t", speed=2.0, ahead=None)
    b = flow.source_files(
        "in",
        time="t",
        schema=COLUMNS,
        name="b",
        delay="2 seconds",
        format="csv",
        options={"header": "true"},
    )
    c = flow.source_kafka(
        servers="localhost:1", topic="c", schema=COLUMNS, time="t", dead_letters="dead"
    )
    b.sample(0.5).sink("sampled")
    b.union(a0).sink("u1")
    b.union(a0, order="arrival").sink("u2")
    b.select("k", "v * 2 AS w", dead_letters="bad").filter("w > 1").sink("f")
    keyed = b.key_by("k").window(tumbling("10 seconds"))
    keyed.aggregate("count(*) AS n", "sum(v) AS s").sink("agg")
    keyed.aggregate("count(*) AS n", emit="changes").sink("run")
    b.key_by("k").window(counting(3, 1, timeout="1 second")).aggregate("count(*)").sink("cnt")
    first = b.window(sliding("10 seconds", "5 seconds", alignment="first"))
    first.aggregate("avg(v) AS m").sink("first")
    keyed.join(c, on="k", select=["left.v", "right.v AS r"]).sink("wj")
    keyed.join(c, on=[("k", "k")], select=["left.v"], how="left").sink("wl")
    keyed.join(c, on="k", select=["left.v"], emit="changes").sink("rj")
    b.join(c, on="k", select=["left.v"]).sink("j")
    b.sort("k", slack=3).sink("so")
    b.sort(slack=4).sink("so2")
    b.key_by("k").resample("v AS x", within="1 second", every="1 second").sink("re")
    b.resample("v AS x", within="1 second", at=c, on="k").sink("ra")
    b.sink_kafka("ks", servers="localhost:1", topic="o", key="k")
    return flow


YOUNGER = ("apply", "loop", "distinct", "interval_join", "running_aggregate", "process")
"""Steps that came after what was written."""


def test_a_location_that_was_written_before_is_still_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flow = every_kind(monkeypatch, tmp_path)
    plan = plan_dataflow(flow, "somewhere", parallelism=1, limits=NodeLimits())
    text = describe(flow, plan, Protections(None))
    assert text == WRITTEN.read_text()
    words = {kind.WORD for kind in get_args(Operation)} - {"part", *YOUNGER}
    # No recorded source has parts.
    assert words <= {line.split()[0] for line in text.splitlines()}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("t timestamp[us, tz=UTC], d decimal128(9, 2), v double, more int64", "more int64 besides"),
        ("t timestamp[us, tz=UTC], v double", "no d any more"),
        ("t timestamp[us, tz=UTC], d double, v double", "d as double, and not as decimal128(9, 2)"),
        ("t timestamp[us, tz=UTC], e int32, v double", "no d any more; e int32 besides"),
        (
            "t timestamp[us, tz=UTC], v double, d decimal128(9, 2)",
            "its columns in another order",
        ),
    ],
)
def test_a_source_whose_columns_have_changed_is_told_of_with_a_way_back(
    tmp_path: Path, columns: str, told: str
) -> None:
    text = "dataflow f\nsource s in s: ({}) time=t, delay_us=(0)\nselect x in s: (v double)  <- s\n"
    claim(str(tmp_path), text.format("t timestamp[us, tz=UTC], d decimal128(9, 2), v double"))
    with pytest.raises(DataflowChangedError) as refused:
        claim(str(tmp_path), text.format(columns))
    way = "give it those that it had, as by df.select('t', 'd', 'v'), or schema=..."
    assert f"source s has {told}: {way}" in str(refused.value)
