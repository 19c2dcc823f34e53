"""Results of any system as tables of the same columns and types, and how they differ.

Times become microseconds since the epoch and prices tenths of a cent, both integers: peers write
them as timestamps, integers, decimals or floats.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from holdfast.core.wire.log_records import records_of
from holdfast.shell.storage.paths import stream_path
from holdfast.shell.storage.stream_log import StreamLogReader

TIMES: Final = frozenset({"date_time", "window_start", "window_end"})
PRICE: Final = "price"
COLUMNS: Final = {
    "q1": ("auction", "bidder", PRICE, "date_time"),
    "q3": ("name", "city", "state", "id"),
    "q8": ("window_start", "window_end", "id", "name", "auction"),
    "q12": ("window_start", "window_end", "bidder", "bids"),
}


def canonical(table: pa.Table, query: str) -> pa.Table:
    """A query's results in the columns and types that all systems are compared in."""
    return pa.table({name: _canonical(name, table.column(name)) for name in COLUMNS[query]})


def _canonical(name: str, column: Any) -> Any:
    if name in TIMES and pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    if name == PRICE:
        return pc.round(pc.multiply(column.cast(pa.float64()), 1000.0)).cast(pa.int64())
    return column


# -- outputs that grow ----------------------------------------------------------------------------


class Output(Protocol):
    """A system's output while it grows."""

    def poll(self) -> list[pa.Table]:
        """What has become visible since the last call, in canonical form."""
        ...


class Parts:
    """Files that appear whole, under names that do not begin with a dot or an underscore."""

    def __init__(self, folder: str, query: str) -> None:
        """The folder need not exist yet."""
        self._folder, self._query = Path(folder), query
        self._seen: set[str] = set()

    def poll(self) -> list[pa.Table]:
        """See `Output`."""
        return [table for path in self._new() if (table := self._read(path)) is not None]

    def _new(self) -> Iterator[Path]:
        for path in sorted(self._folder.glob("[!._]*")):
            if path.name not in self._seen:
                self._seen.add(path.name)
                yield path

    def _read(self, path: Path) -> pa.Table | None:
        return parsed(path.read_bytes(), self._query)


class SparkFiles(Parts):
    """Parquet files that count once Spark's file sink has written them into its log."""

    def _new(self) -> Iterator[Path]:
        for commit in sorted((self._folder / "_spark_metadata").glob("[0-9]*")):
            if commit.name not in self._seen:
                self._seen.add(commit.name)
                yield from self._added(commit)

    def _added(self, commit: Path) -> Iterator[Path]:
        for line in commit.read_text().splitlines()[1:]:
            name = Path(json.loads(line)["path"]).name
            if name not in self._seen:  # A compacted log repeats what came before.
                self._seen.add(name)
                yield self._folder / name

    def _read(self, path: Path) -> pa.Table | None:
        return canonical(pq.ParquetFile(path).read(), self._query)


class ParquetParts(Parts):
    """Parquet files that appear whole, as `Parts`."""

    def _read(self, path: Path) -> pa.Table | None:
        return canonical(pq.ParquetFile(path).read(), self._query)


class DeltaParts(ParquetParts):
    """Files of a Delta table; they count once a commit of the table names them."""

    def _new(self) -> Iterator[Path]:
        for commit in sorted((self._folder / "_delta_log").glob("[0-9]*.json")):
            if commit.name not in self._seen:
                self._seen.add(commit.name)
                actions = map(json.loads, commit.read_text().splitlines())
                yield from (self._folder / a["add"]["path"] for a in actions if "add" in a)


class Lines:
    """Files that grow by lines; what ends with a line break is visible."""

    def __init__(self, folder: str, query: str) -> None:
        """The folder need not exist yet."""
        self._folder, self._query = Path(folder), query
        self._offsets: dict[str, int] = {}

    def poll(self) -> list[pa.Table]:
        """See `Output`."""
        found = [self._read(path) for path in sorted(self._folder.glob("[!._]*"))]
        return [table for table in found if table is not None]

    def _read(self, path: Path) -> pa.Table | None:
        offset = self._offsets.get(path.name, 0)
        size = path.stat().st_size
        if size < offset:  # Cut off after a crash; what is written again comes again.
            self._offsets[path.name] = offset = size
        if size == offset:
            return None
        with path.open("rb") as file:
            file.seek(offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offsets[path.name] = offset + len(whole)
        return parsed(whole, self._query) if whole else None


class Log:
    """A sink of Holdfast."""

    def __init__(self, location: str, query: str) -> None:
        """The log need not exist yet."""
        self._folder = Path(stream_path(location, query, 0))
        self._reader, self._query = StreamLogReader(str(self._folder)), query
        self._sizes: list[int] = []
        self._seen_at_s: list[float] = []

    def poll(self) -> list[pa.Table]:
        """See `Output`."""
        return [self._table(logged.batch) for logged in self._reader.poll()]

    def glance(self) -> bool:
        """Note that there is more, whatever it is; whether there is.

        What reading costs, millions of results at once, is taken neither from the cores nor from
        the times.
        """
        size = sum(segment.stat().st_size for segment in self._folder.glob("*.seg"))
        if size <= (self._sizes[-1] if self._sizes else 0):
            return False
        self._sizes.append(size)
        self._seen_at_s.append(time.time())
        return True

    def glanced_at(self) -> list[tuple[pa.Table, float]]:
        """All there is, and when the glance was that first showed it."""
        found = []
        for end, batch in self._records():
            glance = bisect_left(self._sizes, end)
            if glance < len(self._sizes):
                found.append((self._table(batch), self._seen_at_s[glance]))
        return found

    def _records(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batches of a log that one writer has written, and the log's size after each."""
        before = 0
        for path in sorted(self._folder.glob("*.seg")):
            data = memoryview(path.read_bytes())
            for record, end in records_of(data):
                if record.batch is not None:
                    yield before + end, record.batch
            before += len(data)

    def _table(self, batch: pa.RecordBatch) -> pa.Table:
        return canonical(pa.Table.from_batches([batch]), self._query)


OUTPUTS: Final[dict[str, Callable[[str, str], Output]]] = {
    "parts": Parts,
    "parquet": ParquetParts,
    "delta": DeltaParts,
    "spark": SparkFiles,
    "lines": Lines,
    "log": Log,
}


def parsed(text: bytes, query: str) -> pa.Table | None:
    """CSV with or without a header, with a column `diff` for withdrawals or without one."""
    first = text[: text.find(b"\n")].decode().replace('"', "").split(",")
    has_header = first[0] in COLUMNS[query]
    if has_header and text.count(b"\n") < 2:
        return None
    # By place: not every peer can have a column of any name.
    names = [*COLUMNS[query], *_EXTRA][: len(first)]
    options = pa_csv.ReadOptions(column_names=names, skip_rows=int(has_header))
    table = pa_csv.read_csv(BytesIO(text), options)
    if "diff" in table.column_names and pc.any(pc.less(table.column("diff"), 0)).as_py():
        raise ValueError(f"{query}: a result was withdrawn")
    return canonical(table, query)


_EXTRA: Final = ("time", "diff")
"""What Pathway adds to every line; only the first lines have a header."""


def everything(output: Output, query: str) -> pa.Table:
    """All that is visible."""
    tables: list[pa.Table] = []
    while found := output.poll():
        tables += found
    return pa.concat_tables(tables) if tables else _empty(query)


def _empty(query: str) -> pa.Table:
    texts = {"name", "city", "state"}
    schema = [(c, pa.string() if c in texts else pa.int64()) for c in COLUMNS[query]]
    return pa.schema(schema).empty_table()


# -- comparison -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """How results differ from what Spark SQL gives: rows missing, and rows too many or wrong."""

    expected: int
    lost: int
    surplus: int

    @property
    def is_identical(self) -> bool:
        """Whether they do not."""
        return self.lost == 0 and self.surplus == 0


def expected_rows(folder: str, query: str, closed_us: int) -> pa.Table:
    """What Spark SQL wrote, without the windows that no event has closed."""
    return closed(canonical(pq.read_table(folder), query), closed_us)


def closed(table: pa.Table, closed_us: int) -> pa.Table:
    """Without the results of windows that end later; systems differ in whether they show them."""
    if "window_end" not in table.column_names:
        return table
    return table.filter(pc.less_equal(table.column("window_end"), closed_us))


def difference(found: pa.Table, expected: pa.Table) -> Difference:
    """Compare as multisets of rows."""
    names = expected.column_names
    both = _counted(expected, "want").join(_counted(found, "have"), names, join_type="full outer")
    want = pc.fill_null(both.column("want"), 0)
    have = pc.fill_null(both.column("have"), 0)
    surplus = pc.subtract(have, want)
    lost = -(pc.sum(pc.min_element_wise(surplus, 0)).as_py() or 0)
    return Difference(expected.num_rows, lost, pc.sum(pc.max_element_wise(surplus, 0)).as_py() or 0)


def _counted(table: pa.Table, name: str) -> pa.Table:
    names = table.column_names
    counted = table.group_by(names).aggregate([([], "count_all")])
    return counted.rename_columns([name if c == "count_all" else c for c in counted.column_names])
