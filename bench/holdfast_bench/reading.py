"""How fast a node's own reader reads users' files, beside pyarrow alone: same files and columns."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from holdfast.driver.user_files import files_source
from holdfast.nexmark.generator import NexmarkConfig, generate
from holdfast.shell.sources.file_recorder import FileRecorder
from holdfast.shell.storage.ingest_log import IngestLogReader
from holdfast.shell.storage.paths import ingest_path
from holdfast_bench.running import BenchFailed, median

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TARGET: Final = 0.6
"""Of what pyarrow alone reads."""
_COLUMNS: Final = ("bidder", "price")
_TIME: Final = "date_time"
_FILES: Final = 8
_BATCH_ROWS: Final = 1 << 14


def measure(rows: dict[str, int], repeats: int, folder: Path) -> list[Any]:
    """Read the same bids by both, in turn.

    Args:
        rows: How many, by format.
        repeats: How often.
        folder: For the files.

    Returns:
        By format: rows, median seconds of each, and how many times as fast Holdfast is.
    """
    return [_measured(name, count, repeats, folder) for name, count in rows.items()]


def _measured(name: str, count: int, repeats: int, folder: Path) -> dict[str, Any]:
    place, location = folder / name, folder / f"{name}-query"
    place.mkdir(parents=True)
    schema = _write(name, count, place)
    source = files_source(
        str(place),
        format=name,
        schema=schema,
        time=_TIME,
        delay=None,
        ahead=None,
        trigger=None,
        ends=True,
        options=None,
    )
    recorder = FileRecorder("bids", source, str(location))
    recorder.start(cast("SparkSession", None))  # It needs none.
    recorder.wait()
    log = ingest_path(str(location), "bids")
    seconds: dict[str, list[float]] = {"holdfast": [], "pyarrow": []}
    for run in range(repeats + 1):  # The first one of each is not counted.
        for who, read in (("holdfast", _read(log)), ("pyarrow", _alone(name, place, schema))):
            begun_s = time.perf_counter()
            found = sum(read)
            if found != count:
                raise BenchFailed(f"{who} read {found} of {count} rows of {name}")
            if run:
                seconds[who].append(time.perf_counter() - begun_s)
    medians = {who: median(times) for who, times in seconds.items()}
    ratio = round(medians["pyarrow"] / medians["holdfast"], 2)
    return {"format": name, "rows": count, "seconds": medians, "ratio": ratio}


def _write(name: str, count: int, place: Path) -> pa.Schema:
    """Bids in files of equal size; their schema."""
    each, config = -(-count // _FILES), NexmarkConfig()
    schema = pa.schema([])
    for number, first in enumerate(range(0, count, each)):
        last = min(first + each, count)
        starts = range(first, last, _BATCH_ROWS)
        batches = [generate("bid", s, min(_BATCH_ROWS, last - s), config) for s in starts]
        table = pa.Table.from_batches(batches).select([_TIME, "auction", *_COLUMNS])
        table = table.set_column(0, _TIME, table[_TIME].cast(pa.timestamp("us", tz="UTC")))
        schema, path = table.schema, place / f"{number}.{name}"
        if name == "parquet":
            pq.write_table(table, path)
        elif name == "csv":
            plain = pa.csv.WriteOptions(include_header=False)
            pa.csv.write_csv(table, path, plain)
        else:
            columns = table.set_column(0, _TIME, table[_TIME].cast(pa.string()))
            lines = map(_json_line, columns.to_pylist())
            path.write_text("".join(lines))
    return schema


def _json_line(row: dict[str, Any]) -> str:
    return "{" + ", ".join(f'"{k}": {_json(v)}' for k, v in row.items()) + "}\n"


def _json(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _read(log: str) -> Iterator[int]:
    """Rows as a node reads them."""
    reader = IngestLogReader(log, 0, 1, columns=_COLUMNS)
    while batches := reader.poll():
        yield sum(batch.count for batch in batches)
    reader.close()


def _alone(name: str, place: Path, schema: pa.Schema) -> Iterator[int]:
    """Rows of the same columns, by pyarrow."""
    columns = [_TIME, *_COLUMNS]
    types = pa.schema([schema.field(column) for column in columns])
    for path in sorted(place.iterdir()):
        if name == "parquet":
            yield from (b.num_rows for b in pq.ParquetFile(path).iter_batches(columns=columns))
        elif name == "csv":
            reading = pa.csv.ReadOptions(column_names=schema.names)
            converting = pa.csv.ConvertOptions(column_types=types, include_columns=columns)
            yield pa.csv.read_csv(path, reading, convert_options=converting).num_rows
        else:
            parsing = pa.json.ParseOptions(
                explicit_schema=types, unexpected_field_behavior="ignore"
            )
            yield pa.json.read_json(path, parse_options=parsing).num_rows
