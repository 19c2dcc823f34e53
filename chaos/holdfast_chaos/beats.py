"""Sources that beat: row n of each is always the same, and comes at its time unless it is held up.

Whoever strikes says by files what a source may give: nothing for a while, rows without a boundary,
or no more than the first part of its rows until all has struck. Readers look whenever they read.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch, with_time
from holdfast.shell.sources.base import SourceRows
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.ingest_log import IngestMeta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_US: Final = 1_700_000_000_000_000
STEP_US: Final = 1_000
"""Event time from one row to the next, and real time too."""
SCHEMA: Final = pa.schema(
    [pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("n", pa.int64(), nullable=False)]
)
DDL: Final = "at TIMESTAMP, n BIGINT"
_META: Final = IngestMeta(SCHEMA, "at", 0)
_WRITE_S: Final = 0.05


def rows_of(first: int, stop: int) -> pa.RecordBatch:
    """Rows [first, stop)."""
    numbers = np.arange(first, stop, dtype=np.int64)
    at = pa.array(AT_US + numbers * STEP_US, SCHEMA.field(0).type)
    return pa.RecordBatch.from_arrays([at, pa.array(numbers)], schema=SCHEMA)


class Hand:
    """Holds sources up, by files in a folder."""

    def __init__(self, folder: Path) -> None:
        """Nothing is held up but the last part of all rows."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def hold(self, number: int, kind: str, until_s: float) -> None:
        """A source gives nothing (`silence`), or promises nothing (`mute`), until then."""
        draft = self.folder / f".{number}-{kind}"
        draft.write_text(json.dumps(until_s))
        os.replace(draft, self.folder / f"{number}-{kind}")

    def is_held(self, number: int, kind: str) -> bool:
        """Whether it still is."""
        path = self.folder / f"{number}-{kind}"
        return path.exists() and time.time() < float(path.read_text())

    def let_go(self) -> None:
        """Let through what is behind the first rows of sources that begin with a few."""
        (self.folder / "gone").touch()

    @property
    def has_let_go(self) -> bool:
        """Whether it may come."""
        return self.is_open or (self.folder / "gone").exists()

    def open(self) -> None:
        """Let the last part through, and all that is held."""
        for path in self.folder.glob("[0-9]*-*"):
            path.unlink()
        (self.folder / "open").touch()

    @property
    def is_open(self) -> bool:
        """Whether the last part may come."""
        return (self.folder / "open").exists()


@dataclass(frozen=True, slots=True)
class Beats:
    """One source, for `Dataflow.source_generator`, for a log or for a folder of files.

    Attributes:
        folder: The hand's.
        number: Of the source.
        count: How many rows it has.
        held_from: Rows from here on wait until the hand is open.
        origin_s: Wall-clock time of row 0.
        first: Rows from here on wait until the hand lets them go; None: none do.
    """

    folder: str
    number: int
    count: int
    held_from: int
    origin_s: float
    first: int | None = None

    @property
    def schema(self) -> pa.Schema:
        """The attributes."""
        return SCHEMA

    def spec(self, partition: int, partitions: int) -> Beats:
        """Its only partition, for a node."""
        assert (partition, partitions) == (0, 1)
        return self

    def open(self) -> BeatsReader:
        """A reader."""
        return BeatsReader(self)

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """All rows, with their times."""
        time_us = f"{AT_US} + id * {STEP_US}"
        at = f"timestamp_micros({time_us}) AS at"
        return spark.range(self.count).selectExpr(at, "id AS n", f"{time_us} AS {TIME_COLUMN}")

    def due(self, hand: Hand) -> int:
        """Rows before this one have come by now."""
        count = max(0, min(self.count, int((time.time() - self.origin_s) * 1e6 / STEP_US)))
        if self.first is not None and not hand.has_let_go:
            return min(count, self.first)
        return count if hand.is_open else min(count, self.held_from)


class BeatsReader:
    """Makes rows inside a node."""

    def __init__(self, beats: Beats) -> None:
        """Nothing is kept between reads."""
        self._beats = beats
        self._hand = Hand(Path(beats.folder))

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        beats = self._beats
        if self._hand.is_held(beats.number, "silence"):
            return SourceRows((), BEGINNING_US)
        stop = min(from_id + max_tuples, beats.due(self._hand))
        boundary_us = END_US if max(stop, from_id) >= beats.count else _time_us(max(stop, from_id))
        if self._hand.is_held(beats.number, "mute"):
            boundary_us = BEGINNING_US
        if stop <= from_id:
            return SourceRows((), boundary_us)
        rows = rows_of(from_id, stop)
        times = rows.column(0).cast(pa.int64())
        timed = pa.RecordBatch.from_arrays([*rows.columns, times], schema=with_time(SCHEMA))
        return SourceRows((TupleBatch(from_id, timed, boundary_us),), boundary_us)

    def close(self) -> None:
        """See `SourceReader.close`."""


def _time_us(row: int) -> int:
    return AT_US + row * STEP_US


class Writer:
    """Writes a source's rows as they are due, into an ingest log or as files, in a thread."""

    def __init__(self, beats: Beats, place: Path, *, is_log: bool) -> None:
        """Begin."""
        self._beats = beats
        self._place = place
        self._is_log = is_log
        self._hand = Hand(Path(beats.folder))
        self._next = 0
        self._files = 0
        self.error: Exception | None = None
        self._is_stopped = threading.Event()
        if is_log:
            ingest_log.prepare(str(place), _META)
        else:
            place.mkdir(parents=True)
            self._put_file(rows_of(0, 1))  # So that the reader knows the schema.
            self._next = 1
        self._thread = threading.Thread(target=self._run, name=f"beats-{beats.number}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while self._next < self._beats.count and not self._is_stopped.wait(_WRITE_S):
                if not self._hand.is_held(self._beats.number, "silence"):
                    self._put(self._beats.due(self._hand))
        except Exception as error:  # The run asks for it.
            self.error = error

    def _put(self, stop: int) -> None:
        if stop <= self._next:
            return
        is_last = stop >= self._beats.count
        rows = rows_of(self._next, stop)
        self._next = stop
        if self._is_log:
            file = ingest_log.write_file(str(self._place), _META, iter([rows]))
            ingest_log.append_batch(str(self._place), [file] if file else [], ends=is_last)
            return
        self._put_file(rows)
        if is_last:  # A folder has no end: a row that is far ahead closes all windows.
            self._put_file(rows_of(10 * stop, 10 * stop + 1))

    def _put_file(self, rows: pa.RecordBatch) -> None:
        self._files += 1
        draft = self._place / f"_{self._files}"
        pq.write_table(pa.Table.from_batches([rows]), draft)
        os.replace(draft, self._place / f"{self._files:06d}.parquet")

    def stop(self) -> None:
        """Write no more."""
        self._is_stopped.set()
        self._thread.join()
