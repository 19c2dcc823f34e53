"""Whether what a sink's feed says of tentative results and of their corrections holds. [DPC §4]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.core.model.feed_rows import TYPE_NAMES
from holdfast.core.model.tuples import TupleType
from holdfast.core.replication.feed_reading import FeedBroken, FeedReading
from holdfast.shell.spark.data_source import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

_STABLE: Final = TYPE_NAMES[TupleType.STABLE]
_WORDS: Final = ("_type", "_tuple_id", "_run")
_COUNTS: Final = ("tentative", "undone", "standing")


@dataclass(frozen=True, slots=True)
class FeedCheck:
    """What a feed holds, over all instances that write the sink.

    Attributes:
        tentative: Tentative rows.
        undone: How many of them were undone.
        standing: How many stand: without a later failure, none once all input has come.
        faults: What cannot be, as text; at most one per instance.
    """

    tentative: int = 0
    undone: int = 0
    standing: int = 0
    faults: tuple[str, ...] = ()


def check_feed(spark: SparkSession, sink: str, location: str) -> FeedCheck:
    """Read a sink together with its feed; each undo must leave a prefix of what the sink holds."""
    rows: DataFrame = load(spark, location, stream=sink, types="all")
    if "_run" not in rows.columns:
        return FeedCheck()
    counts = ", ".join(f"{name} bigint" for name in _COUNTS)
    parts = rows.select(*_WORDS).mapInArrow(_checked, f"{counts}, fault string").collect()
    faults = tuple(part["fault"] for part in parts if part["fault"])
    found = {name: sum(part[name] for part in parts) for name in _COUNTS}
    return FeedCheck(**found, faults=faults)


def _checked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the rows of one instance come to; one row."""
    reading = FeedReading()
    fault = _fault_in(reading, (row for batch in batches for row in _rows(batch)))
    counts = (reading.tentative, reading.undone, reading.tuples if reading.run else 0)
    values = [pa.array([count], pa.int64()) for count in counts]
    yield pa.RecordBatch.from_arrays(
        [*values, pa.array([fault], pa.string())], names=[*_COUNTS, "fault"]
    )


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, int, str | None]]:
    yield from zip(*(batch.column(name).to_pylist() for name in _WORDS), strict=True)


def _fault_in(reading: FeedReading, rows: Iterable[tuple[str, int, str | None]]) -> str | None:
    """The first row that cannot stand where it does; None: there is none."""
    stable: int | None = None  # The oldest tuples may have been removed.
    for kind, tuple_id, run in rows:
        if kind == _STABLE:
            if reading.run:
                return f"stable tuple {tuple_id} behind {reading.run}, without undo"
            if stable is None and reading.stands_at > tuple_id:
                return f"stable tuple {tuple_id} behind what stands at {reading.stands_at}"
            stable = tuple_id + 1
            continue
        try:
            reading.take(kind, tuple_id, run)
        except FeedBroken as error:
            return str(error)
        if stable is not None and reading.stands_at != stable:
            return f"{kind} of {run} stands at {reading.stands_at}, behind {stable} stable tuples"
    return None
