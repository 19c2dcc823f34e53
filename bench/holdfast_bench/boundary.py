"""How fast rows of any DataFrame come into an ingest log, beside as much as Spark allows.

Spark hands rows to Python as Arrow batches. The least that anybody does to keep them is to write
these into Arrow files, as `mapInArrow` does here; the same DataFrame, in turn, in one session.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.driver.frame_recorders import recorder_of_frame
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.shell.storage.ingest_log import IngestLogReader
from holdfast.shell.storage.paths import ingest_path
from holdfast_bench.inputs import record_parquet
from holdfast_bench.reporter import table
from holdfast_bench.running import BenchFailed, median

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGET: Final = 0.9
"""Of the rows per second that `mapInArrow` writes."""
_PAGE: Final = """
## Any other DataFrame

Bids with a computed column, which Spark has to read: into an ingest log, and by a `mapInArrow`
that writes what it is given into Arrow files and does nothing else. From the start of each to its
last file.

"""


def measure(spark: SparkSession, rows: int, repeats: int, folder: Path) -> dict[str, Any]:
    """Both in turn, once unmeasured: rows, median seconds of each, and their ratio."""
    place = record_parquet("bid", rows, NexmarkConfig(), folder).parquet
    frame = spark.read.parquet(place).selectExpr("*", "price + 1 AS more")
    seconds: dict[str, list[float]] = {"holdfast": [], "mapInArrow": []}
    for run in range(repeats + 1):
        for who, write in (("holdfast", _record), ("mapInArrow", _write)):
            begun_s = time.perf_counter()
            found = write(frame, folder / f"{who}-{run}")
            if run:
                seconds[who].append(found[0] - begun_s)
            if found[1] != rows:
                raise BenchFailed(f"{who} wrote {found[1]} of {rows} rows")
    medians = {who: median(times) for who, times in seconds.items()}
    ratio = round(medians["mapInArrow"] / medians["holdfast"], 2)
    return {"rows": rows, "seconds": medians, "ratio": ratio}


def _record(frame: DataFrame, location: Path) -> tuple[float, int]:
    """Into an ingest log; when it was over, and how many rows are in it."""
    flow = Dataflow("boundary")
    flow.source(frame, name="rows", time="date_time")
    recorder = recorder_of_frame(flow.steps[0], flow, str(location), is_allowed=False)
    recorder.start(frame.sparkSession)
    recorder.wait()
    ended_s = time.perf_counter()
    if recorder.error is not None:
        raise BenchFailed(f"the ingest failed: {recorder.error}")
    reader = IngestLogReader(ingest_path(str(location), "rows"), 0, 1)
    count = 0
    while batches := reader.poll():
        count += sum(batch.count for batch in batches)
    reader.close()
    return ended_s, count


def _write(frame: DataFrame, folder: Path) -> tuple[float, int]:
    """The same by `mapInArrow`."""
    folder.mkdir()
    place = str(folder)

    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import tempfile

        writer, count = None, 0
        descriptor, path = tempfile.mkstemp(dir=place)
        os.close(descriptor)
        for batch in batches:
            writer = pa.ipc.new_stream(path, batch.schema) if writer is None else writer
            writer.write_batch(batch)
            count += batch.num_rows
        if writer is not None:
            writer.close()
        yield pa.RecordBatch.from_pydict({"n": [count]})

    parts = frame.mapInArrow(written, "n bigint").collect()
    return time.perf_counter(), sum(part["n"] for part in parts)


def render(found: dict[str, Any]) -> str:
    """Of the page."""
    is_met = found["ratio"] >= TARGET
    row = (
        f"{found['rows']:,}",
        *(f"{found['rows'] / found['seconds'][who] / 1e6:.2f} M" for who in found["seconds"]),
        f"{found['ratio']:.2f}",
        f"{TARGET}: {'met' if is_met else 'not met'}",
    )
    header = ("rows", "Holdfast, rows/s", "mapInArrow, rows/s", "times", "target")
    return f"{_PAGE}{table(header, [row])}"
