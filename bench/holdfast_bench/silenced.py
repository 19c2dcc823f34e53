"""A source at a steady rate that can be silenced, and gives all of it when it is back.

Tuple i is due at `origin_us` + i / rate, and that is its tuple time. The source promises every
`interval_us`. While a folder holds a file `<name>.cut` with two wall-clock times, it stands still
between them: it gives and promises what it had before. A file `end` holds the time at which all
end. The same ids are always the same tuples.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import END_US
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.shell.sources.base import SourceReader, SourceRows
from holdfast_bench.running import BenchFailed, write_whole

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema([("n", pa.int64()), ("key", pa.int64())])


@dataclass(frozen=True, slots=True)
class Silenced:
    """The source and its only partition; see the module.

    Attributes:
        name: Of its file.
        rate: Tuples per second.
        keys: Of its tuples, one after the other.
        origin_us: Wall-clock time of the first tuple, microseconds since the epoch.
        folder: Where the files are.
        interval_us: How often it promises.
    """

    name: str
    rate: int
    keys: int
    origin_us: int
    folder: str
    interval_us: int = 10_000

    @property
    def schema(self) -> pa.Schema:
        """The attributes."""
        return SCHEMA

    def spec(self, partition: int, partitions: int) -> Silenced:
        """Itself. Raises `BenchFailed` for more than one partition."""
        if partitions != 1:
            raise BenchFailed(f"a silenced source has one partition, not {partitions}")
        return self

    def open(self) -> SourceReader:
        """A reader of the only partition."""
        return SilencedReader(self)

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """All that it has given, for the batch twin."""
        total = self.before(self._end_us() or 0)
        rows = SilencedReader(self).rows(0, total)
        return spark.createDataFrame(rows.to_pandas())

    def silence(self, from_us: int, to_us: int) -> None:
        """Stand still between two wall-clock times."""
        write_whole(self._path("cut"), f"{from_us} {to_us}")

    def end(self, at_us: int) -> None:
        """Have all sources of the folder end at a wall-clock time."""
        write_whole(Path(self.folder) / "end", str(at_us))

    def _path(self, kind: str) -> Path:
        return Path(self.folder) / f"{self.name}.{kind}"

    def _end_us(self) -> int | None:
        path = Path(self.folder) / "end"
        return int(path.read_text()) if path.exists() else None

    def before(self, time_us: int) -> int:
        """How many tuples are due before a time."""
        return max(0, -((self.origin_us - time_us) * self.rate // 1_000_000))

    def due(self, now_us: int) -> tuple[int, int]:
        """How many tuples there are by now, and the boundary behind them."""
        path, end_us = self._path("cut"), self._end_us()
        if path.exists():
            from_us, to_us = map(int, path.read_text().split())
            now_us = from_us if from_us <= now_us < to_us else now_us
        if end_us is not None and now_us >= end_us:
            return self.before(end_us), END_US
        boundary_us = now_us // self.interval_us * self.interval_us
        return self.before(now_us), boundary_us


class SilencedReader:
    """Makes any range of the tuples that are due."""

    def __init__(self, source: Silenced) -> None:
        """Nothing is kept between reads."""
        self._source = source
        self._schema = with_time(source.schema)

    def rows(self, first: int, end: int) -> pa.RecordBatch:
        """Tuples [first, end), the time column last."""
        source = self._source
        ids = np.arange(first, end, dtype=np.int64)
        times = source.origin_us + ids * 1_000_000 // source.rate
        columns = [pa.array(ids), pa.array(ids % source.keys), pa.array(times)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def read(self, from_id: int, max_tuples: int) -> SourceRows:
        """See `SourceReader.read`."""
        due, boundary_us = self._source.due(int(time.time() * 1e6))
        end = min(due, from_id + max_tuples)
        if end < due:  # What comes next stands before what it promises then.
            boundary_us = self._source.origin_us + end * 1_000_000 // self._source.rate
        if end <= from_id:
            return SourceRows((), boundary_us)
        batch = self.rows(from_id, end)
        created_us = int(batch.column(batch.num_columns - 1)[0].as_py())
        return SourceRows((TupleBatch(from_id, batch, boundary_us, created_us),), boundary_us)

    def close(self) -> None:
        """See `SourceReader.close`."""
