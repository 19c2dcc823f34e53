"""The same events for every system, each in the format that it reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from holdfast.nexmark.generator import NexmarkConfig, event_time_us
from holdfast_bench.throughput import recordings


@dataclass(frozen=True, slots=True)
class Events:
    """A query's input on disk.

    Attributes:
        tuples: Of all kinds together.
        closed_us: Event time that every kind has reached: windows that end by then are closed.
        folders: Per format, the folder of each kind.
    """

    tuples: int
    closed_us: int
    folders: dict[str, dict[str, str]]


FORMATS: Final = ("log", "parquet", "csv", "bare-csv")


def recorded(query: str, tuples: int, folder: Path, formats: Collection[str] = FORMATS) -> Events:
    """Write so many events of the kinds that a query reads, in these formats."""
    made = recordings(query, tuples, folder)
    folders = {
        "log": {kind: recording.log for kind, recording in made.items()},
        "parquet": {kind: recording.parquet for kind, recording in made.items()},
        "csv": {kind: str(folder / f"{kind}-csv") for kind in made},
        "bare-csv": {kind: str(folder / f"{kind}-bare-csv") for kind in made},
    }
    for kind, recording in made.items():
        if not set(formats) & {"csv", "bare-csv"}:
            continue
        for parquet in sorted(Path(recording.parquet).glob("*.parquet")):
            table = pq.read_table(parquet)
            for form in set(formats) & {"csv", "bare-csv"}:
                write_csv(table, Path(folders[form][kind]) / f"{parquet.stem}.csv", form)
    config = NexmarkConfig()
    last_us = [event_time_us(kind, made[kind].count - 1, config) for kind in made]
    return Events(sum(recording.count for recording in made.values()), min(last_us), folders)


def write_csv(table: pa.Table, path: Path, form: str) -> None:
    """Write a file; times are microseconds since the epoch, `csv` has a header.

    There `id` is called `key`: to Pathway, which reads it, `id` is the name of its own row ids.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "key" if name == "id" else name: column.cast(pa.int64())
        if pa.types.is_timestamp(column.type)
        else column
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    options = pa_csv.WriteOptions(include_header=form == "csv", quoting_style="none")
    pa_csv.write_csv(pa.table(columns), path, options)
