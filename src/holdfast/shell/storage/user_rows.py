"""The rows of users' files: chunk by chunk, and row by row only where something is wrong.

A chunk that cannot be made into rows of the schema is cut in halves until the rows that are bad are
found; the others are as if those had not been there. Which rows are bad depends on the file and the
schema alone, so every reader, and every replay, finds the same ones.

Texts (CSV, JSON) are read by lines: what is wrong with one leaves the next one alone, and a line is
what an editor shows. A value that holds the end of a line is therefore bad.

Readers of formats are imported when a file is read: most processes that know of logs read none.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.nested_types import is_nested, of_stream
from holdfast.core.model.tuples import outside, with_time
from holdfast.core.queues.lateness import FileTimes
from holdfast.core.queues.recording import UserFile
from holdfast.shell.storage.column_values import (
    as_type,
    has_infinity,
    require_columns,
    require_names,
)
from holdfast.shell.storage.exact_orc import orc_difference, require_new_calendar
from holdfast.shell.storage.exact_parquet import difference, why_not_of_folders
from holdfast.shell.storage.exact_texts import (
    COLUMNS,
    Parse,
    columns_of,
    csv_exactly,
    json_exactly,
    require_plain_values,
    why_not_of_text,
)
from holdfast.shell.storage.json_values import as_read, require_capitals, require_floats
from holdfast.shell.storage.parquet_ends import KeepsNone, groups_kept
from holdfast.shell.storage.parquet_times import (
    GroupTimes,
    file_times,
    group_times,
    oldest_behind,
    rows_of_group,
)
from holdfast.shell.storage.user_files import (
    UserFileDamaged,
    opened,
    partition_of,
    require_unchanged,
)

FORMATS: Final = ("parquet", "orc", "arrow", "csv", "json")
_TEXTS: Final = ("csv", "json")
PATH, ROW, TEXT, ERROR = "file_path", "file_row", "file_text", "file_error"
DEAD: Final = pa.schema(
    [
        pa.field(PATH, pa.string()),
        pa.field(ROW, pa.int64()),
        pa.field(TEXT, pa.string()),
        pa.field(ERROR, pa.string()),
    ]
)
"""What a log with dead letters has more, null for a good row."""
_BATCH_ROWS: Final = 1 << 17
_BLOCK_BYTES: Final = 4 << 20
_PARSERS: Final = min(4, os.cpu_count() or 1)
"""Threads that parse a long text."""
_BAD: Final = (pa.ArrowException, ValueError, OverflowError)
_MARK: Final = b"\xef\xbb\xbf"
_ASIDE: Final = "give a source of files dead_letters=... to put such rows aside"
_UNPACKED: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""How a text is packed, by the end of its name."""
_PACKED_OTHERWISE: Final = (".deflate", ".lz4", ".snappy", ".xz")
_OFF: Final = (
    "have Spark read it: begin again in a new checkpointLocation with "
    "spark.holdfast.readFilesInNodes=false, or for from_dataframe with any option of the reader, "
    "e.g. pathGlobFilter='*'"
)


_WHOLE: Final = (
    "is it damaged, or of another format (format=...)? Replace it, move it away, or give the "
    "source dead_letters=..."
)


@dataclass(frozen=True, slots=True)
class FilesFormat:
    """How rows lie in files.

    Attributes:
        name: One of `FORMATS`.
        options: Of CSV `header` and `sep`, as Spark names them, and if it is exact `COLUMNS`.
        has_dead_letters: Whether a bad row becomes a row that says so; else it raises.
        is_exact: Whether Spark must read it alike; see exact_files.py.
    """

    name: str
    options: tuple[tuple[str, str], ...] = ()
    has_dead_letters: bool = False
    is_exact: bool = False

    def option(self, name: str, default: str) -> str:
        """An option's value."""
        return dict(self.options).get(name, default)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is not of the schema, or what is left of a file that is not of its format.

    Attributes:
        number: Of the line, or of the row, from 1 on; None: all from some place on.
        text: The line, where the file is a text.
        reason: What is wrong.
    """

    number: int | None
    text: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """Consecutive rows of a file.

    Attributes:
        parts: Good ones in batches, and bad ones between them; at least one part.
        behind_us: No row of the file behind them is older; `BEGINNING_US`: nobody knows.
    """

    parts: list[pa.RecordBatch | BadRow]
    behind_us: int = BEGINNING_US


class Chunk(Protocol):
    """Consecutive rows of a file as they lie in it."""

    first: int
    behind_us: int

    def __len__(self) -> int:
        """How many rows, or lines."""
        ...

    def part(self, start: int, stop: int | None) -> pa.RecordBatch:
        """Rows with the file's columns; raises what Arrow has against one of them."""
        ...

    def text(self, number: int) -> str | None:
        """A row as the file has it."""
        ...


# -- reading --------------------------------------------------------------------------------------


def read_rows(
    file: UserFile,
    of: FilesFormat,
    schema: pa.Schema,
    time: str,
    columns: Sequence[str] | None = None,
    pruning: KeepsNone | None = None,
) -> Iterator[Found]:
    """The rows of a file, in the same parts whenever it is read; times in a last column.

    Args:
        file: As it was recorded.
        of: How its rows lie in it.
        schema: The columns to give, with what must not be null at any depth; what the file lacks,
            is null. Those that are named in the file's path (`key=value`) come from there. Rows
            have the types that streams have.
        time: The column with the event time.
        columns: Those that are read; the others come as nulls. None: all are, and so they are
            with dead letters, as whether a row is bad must not depend on who reads it.
        pruning: Of which groups of Parquet's rows nothing but the time is read; None, or with dead
            letters: of none.

    Raises:
        UserFileChanged: It is not as it was recorded, before or after it was read.
        UserFileDamaged: A row is bad, or the file is, and there are no dead letters.
    """
    require_unchanged(file)
    if of.has_dead_letters:
        columns = pruning = None
    wanted = set(schema.names if columns is None else (*columns, time))
    named = {k: v for k, v in partition_of(file.path).items() if k in wanted}
    if of.is_exact and (reason := _why_not_by_name(file, of, schema)):
        raise UserFileDamaged(f"{file.path} cannot be read: {reason}; {_OFF}")
    making = _Making(schema, time, wanted, named)
    try:
        with _opened(file, of) as packed:
            source = _unpacked(packed, file) if of.name in _TEXTS else packed
            chunks = _READERS[of.name](source, of, schema, wanted - set(named), time, pruning)
            yield from _all_sorted_out(file, of, chunks, making)
    except UserFileDamaged as error:
        cause = error.__cause__
        is_of_disk = isinstance(cause, OSError) and cause.errno is not None
        if not of.has_dead_letters or cause is None or is_of_disk:
            raise
        yield Found([BadRow(None, None, f"the rest of the file cannot be read: {cause}")])
    require_unchanged(file)


@contextmanager
def _opened(file: UserFile, of: FilesFormat) -> Iterator[Any]:
    """See `opened`; whoever meets the error is asked what the file is."""
    try:
        with opened(file) as source:
            yield source
    except UserFileDamaged as error:
        cause = error.__cause__
        is_of_format = isinstance(cause, OSError) and cause.errno is None
        if of.is_exact or not (is_of_format or isinstance(cause, pa.ArrowException)):
            raise
        raise UserFileDamaged(f"{error}; as {of.name}: {_WHOLE}") from cause


def _unpacked(source: Any, file: UserFile) -> Any:
    """The bytes of a text. Raises `ValueError` if it is packed in a way that nobody reads here."""
    ending = os.path.splitext(file.path)[1].lower()
    if ending in _PACKED_OTHERWISE:
        raise ValueError(f"it is packed; unpack it, or pack it as {', '.join(_UNPACKED)}")
    return pa.CompressedInputStream(source, _UNPACKED[ending]) if ending in _UNPACKED else source


def _why_not_by_name(file: UserFile, of: FilesFormat, schema: pa.Schema) -> str:
    """Why Spark may read other rows, as a file's path and its columns show; empty: it does not."""
    named = partition_of(file.path)
    if of.name == "csv" and (taken := set(named).intersection(columns_of(of.option(COLUMNS, "")))):
        return f"folders name the column {min(taken)!r}"
    reason = why_not_of_folders(named, schema)
    if not reason and of.name in _TEXTS:
        own = (field for field in schema if field.name not in named)
        reason = why_not_of_text(file.path, of.name, own)
    return reason


def _all_sorted_out(
    file: UserFile, of: FilesFormat, chunks: Iterable[Chunk], making: _Making
) -> Iterator[Found]:
    """The rows of all chunks, in their order; those of long texts are parsed side by side."""
    if of.name not in _TEXTS or file.size_bytes <= _BLOCK_BYTES:
        for chunk in chunks:
            yield from _sorted_out(file, of, chunk, making)
        return
    waiting: deque[Future[list[Found]]] = deque()
    with ThreadPoolExecutor(_PARSERS, "parse") as pool:
        try:
            for chunk in chunks:
                waiting.append(pool.submit(lambda c: list(_sorted_out(file, of, c, making)), chunk))
                if len(waiting) > _PARSERS:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for left in waiting:
                left.cancel()


def _sorted_out(file: UserFile, of: FilesFormat, chunk: Chunk, making: _Making) -> Iterator[Found]:
    """A chunk's good rows, in batches of a bearable size, and bad ones between them."""
    try:
        made = making.made(chunk.part(0, None))
    except _BAD:
        found = list(_halved(chunk, making, 0, len(chunk)))
        bad = next((row for row in found if isinstance(row, BadRow)), None)
        if bad is not None and not of.has_dead_letters:
            word = "line" if of.name in _TEXTS else "row"
            way_out = _OFF if of.is_exact else _ASIDE
            raise UserFileDamaged(
                f"{file.path}, {word} {bad.number}: {bad.reason}; {way_out}"
            ) from None
        if found:
            yield Found(found)
        return
    for start in range(0, made.num_rows, _BATCH_ROWS):
        is_last = start + _BATCH_ROWS >= made.num_rows
        behind_us = chunk.behind_us if is_last else BEGINNING_US
        yield Found([made.slice(start, _BATCH_ROWS)], behind_us)


def _halved(
    chunk: Chunk, making: _Making, start: int, stop: int
) -> Iterator[pa.RecordBatch | BadRow]:
    """All that can be made. Cost: O(bad rows * log rows) calls of Arrow."""
    try:
        made = making.made(chunk.part(start, stop))
    except _BAD as error:
        if stop - start == 1:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            yield BadRow(chunk.first + start, chunk.text(start), reason)
            return
        half = (start + stop) // 2
        yield from _halved(chunk, making, start, half)
        yield from _halved(chunk, making, half, stop)
    else:
        if made.num_rows:
            yield made


def times_said(
    file: UserFile, of: FilesFormat, schema: pa.Schema, time: str, until_us: int | None
) -> FileTimes | None:
    """What a file says of its times without a look at its rows; None: it does not, or has none.

    Args:
        file: As it was listed.
        of: How its rows lie in it.
        schema: The columns of the stream.
        time: The one with the event time.
        until_us: As of `file_times`.

    Raises:
        UserFileChanged: It is not as it was listed.
        UserFileDamaged: It is no Parquet.
    """
    if of.name != "parquet" or of.has_dead_letters or time in partition_of(file.path):
        return None
    from pyarrow import parquet

    require_unchanged(file)
    with _opened(file, of) as source:
        found = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us")
        if of.is_exact and (reason := difference(found, [schema.field(time)])):
            raise ValueError(f"{reason}; {_OFF}")
        times = file_times(found, time, until_us)
    require_unchanged(file)
    return times


def schema_of(file: UserFile, of: FilesFormat) -> pa.Schema:
    """The columns that a file of Parquet, ORC or Arrow says it has. Raises as `read_rows`."""
    from pyarrow import orc, parquet

    with _opened(file, of) as source:
        if of.name == "parquet":
            return parquet.ParquetFile(source, coerce_int96_timestamp_unit="us").schema_arrow
        return orc.ORCFile(source).schema if of.name == "orc" else pa.ipc.open_file(source).schema


@dataclass(frozen=True)
class _Making:
    """Makes rows of the schema of what a file has.

    Attributes:
        schema: The columns.
        time: The one with the event time.
        wanted: Those that are read.
        named: Those that the file's path names.
    """

    schema: pa.Schema
    time: str
    wanted: set[str]
    named: dict[str, str | None]

    @cached_property
    def _timed(self) -> pa.Schema:
        return with_time(pa.schema([f.with_type(of_stream(f.type)) for f in self.schema]))

    def made(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The schema's columns, and the time. Raises one of `_BAD` if a row is bad."""
        present = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns = [self._column(field, present, rows.num_rows) for field in self.schema]
        times = columns[self.schema.get_field_index(self.time)]
        if times.null_count:
            if self.time not in present and self.time not in self.named:
                raise ValueError(f"its file has no column {self.time!r}, which has the time")
            raise ValueError(f"its time column {self.time!r} is null")
        times_us = times.cast(pa.timestamp("us")).cast(pa.int64())
        if outside(np.asarray(times_us.to_numpy())):
            raise ValueError(f"its time column {self.time!r} is outside of the years 1 to 9999")
        return pa.RecordBatch.from_arrays([*columns, times_us], schema=self._timed)

    def _column(self, field: pa.Field, present: dict[str, pa.Array], count: int) -> pa.Array:
        try:
            if field.name in self.named:
                value = as_type(pa.array([self.named[field.name]], pa.string()), field.type)
                made = pa.repeat(value[0], count)
            elif field.name in present and field.name in self.wanted:
                made = as_type(present[field.name], field.type, field.name)
            else:
                return pa.nulls(count, of_stream(field.type))
            if made.null_count and not field.nullable:
                raise ValueError("a value is null")
            return made.cast(of_stream(field.type)) if is_nested(field.type) else made
        except _BAD as error:
            kind = str(field.type) if field.nullable else f"{field.type} NOT NULL"
            raise ValueError(f"column {field.name!r} is not {kind}: {error}") from None


# -- formats with columns -------------------------------------------------------------------------


class _Columns:
    """Rows of a file that has columns."""

    def __init__(self, first: int, rows: pa.RecordBatch, behind_us: int) -> None:
        self.first = first
        self.behind_us = behind_us
        self._rows = rows

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def part(self, start: int, stop: int | None) -> pa.RecordBatch:
        return self._rows.slice(start, None if stop is None else stop - start)

    def text(self, number: int) -> None:
        del number


def _numbered(batches: Iterable[tuple[pa.RecordBatch, int]]) -> Iterator[Chunk]:
    first = 1
    for rows, behind_us in batches:
        yield _Columns(first, rows, behind_us)
        first += rows.num_rows


def _parquet(
    source: Any,
    of: FilesFormat,
    schema: pa.Schema,
    wanted: set[str],
    time: str,
    pruning: KeepsNone | None,
) -> Iterator[tuple[pa.RecordBatch, int]]:
    from pyarrow import parquet

    opened = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=False)
    if of.is_exact and (
        reason := difference(opened, [schema.field(name) for name in sorted(wanted)])
    ):
        raise ValueError(f"{reason}; {_OFF}")
    require_columns(opened.schema_arrow, schema, wanted)
    columns = [name for name in schema.names if name in wanted & set(opened.schema_arrow.names)]
    if not columns:  # Nothing is wanted but how many rows there are.
        count = opened.metadata.num_rows
        if count:
            yield _empty_rows(count), BEGINNING_US
        return
    said: list[GroupTimes | None] = [None] * opened.metadata.num_row_groups
    if time in columns and not of.has_dead_letters:  # A bad row has another row's time.
        said = group_times(opened, time)
    kept = groups_kept(opened, schema, pruning)
    for group, behind_us in enumerate(oldest_behind(said)):
        read = columns if kept[group] else [name for name in columns if name == time]
        if not read:
            yield _empty_rows(opened.metadata.row_group(group).num_rows), BEGINNING_US
            continue
        yield from rows_of_group(
            opened,
            group,
            columns=read,
            time=time,
            said=said[group],
            behind_us=behind_us,
            batch_rows=_BATCH_ROWS,
        )


def _empty_rows(count: int) -> pa.RecordBatch:
    """Rows of which no column is wanted."""
    return pa.RecordBatch.from_arrays([pa.nulls(count)], names=[""])


def _orc(
    source: Any, of: FilesFormat, schema: pa.Schema, wanted: set[str], *_: Any
) -> Iterable[pa.RecordBatch]:
    from pyarrow import orc

    opened = orc.ORCFile(source)
    if of.is_exact and (
        reason := orc_difference(opened, [schema.field(name) for name in sorted(wanted)])
    ):
        raise ValueError(f"{reason}; {_OFF}")
    require_columns(opened.schema, schema, wanted)
    columns = [name for name in schema.names if name in wanted & set(opened.schema.names)]
    for stripe in range(opened.nstripes):
        rows = opened.read_stripe(stripe, columns=columns or opened.schema.names[:1])
        made = rows if isinstance(rows, pa.RecordBatch) else rows.combine_chunks().to_batches()[0]
        if of.is_exact:
            require_new_calendar(made)
        yield made


def _arrow(
    source: Any, _: FilesFormat, schema: pa.Schema, wanted: set[str], *__: Any
) -> Iterable[pa.RecordBatch]:
    opened = pa.ipc.open_file(source)
    require_columns(opened.schema, schema, wanted)
    return (opened.get_batch(number) for number in range(opened.num_record_batches))


# -- texts ----------------------------------------------------------------------------------------


class _Lines:
    """Lines of a text, parsed together."""

    def __init__(self, first: int, block: bytes, parse: Parse) -> None:
        self.first = first
        self.behind_us = BEGINNING_US
        self._block = block
        self._parse = parse

    @cached_property
    def _lines(self) -> list[bytes]:
        return self._block.removesuffix(b"\n").split(b"\n")

    def __len__(self) -> int:
        return len(self._lines)

    def part(self, start: int, stop: int | None) -> pa.RecordBatch:
        if stop is None:
            count = self._block.count(b"\n") + (not self._block.endswith(b"\n"))
            return self._parse(self._block, count)
        lines = [line for line in self._lines[start:stop] if line.strip()]
        return self._parse(b"".join(line + b"\n" for line in lines), len(lines))

    def text(self, number: int) -> str:
        return self._lines[number].rstrip(b"\r").decode(errors="replace")


def _blocks(source: Any) -> Iterator[bytes]:
    """A text in blocks of whole lines."""
    begun: list[bytes] = []
    while read := source.read(_BLOCK_BYTES):
        end = read.rfind(b"\n") + 1
        begun.append(read[:end] if end else read)
        if end:
            yield b"".join(begun)
            begun = [read[end:]]
    if rest := b"".join(begun):
        yield rest


def _in_lines(blocks: Iterator[bytes], first: int, parse: Parse) -> Iterator[Chunk]:
    for block in blocks:
        lines = _Lines(first, block, parse)
        yield lines
        first += block.count(b"\n")


def _unmarked(blocks: Iterator[bytes], of: FilesFormat) -> Iterator[bytes]:
    """Without the mark that some editors put before a text in UTF-8, unless it must be exact."""
    for number, block in enumerate(blocks):
        yield block if number or of.is_exact else block.removeprefix(_MARK)


def _csv(
    source: Any, of: FilesFormat, schema: pa.Schema, wanted: set[str], *__: Any
) -> Iterator[Chunk]:
    from pyarrow import csv

    sep = of.option("sep", ",")
    parsing = csv.ParseOptions(delimiter=sep, newlines_in_values=False)
    blocks, first = _unmarked(_blocks(source), of), 1
    names = columns_of(of.option(COLUMNS, "")) if of.is_exact else list(schema.names)
    if of.option("header", "false") == "true":
        block = next(blocks, b"")
        header, _, rest = block.partition(b"\n")
        if not of.is_exact:
            names = _header(header, parsing)
            if names:
                require_names(names, schema, wanted)
        elif block:
            require_plain_values(header + b"\n", sep, 1)  # Spark looks for one that is not blank.
        blocks, first = _with_first(rest, blocks), 2
    included = [name for name in names if name in wanted] or names[:1]
    read = [field for field in schema if field.name in included]
    ways = [_converting(types, included) for types in _ways_of_times(schema)]
    as_texts = _converting(_as_text(schema, pa.types.is_floating), included)

    def parse(block: bytes, _: int) -> pa.RecordBatch:
        if not block.strip():
            return _empty_rows(0)
        reading = csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names)
        for way in list(ways):
            try:
                rows = _one(csv.read_csv(pa.BufferReader(block), reading, parsing, way))
                if of.is_exact or not _may_be_too_large(rows):
                    return rows
                return _one(csv.read_csv(pa.BufferReader(block), reading, parsing, as_texts))
            except pa.ArrowInvalid:
                if way is ways[-1]:
                    raise
                with suppress(ValueError):
                    ways.remove(way)  # The next block is most likely as this one.
        raise AssertionError("one way is always left")

    if of.is_exact:
        return _in_lines(blocks, first, csv_exactly(parse, sep, names, read))
    return _in_lines(blocks, first, parse)


def _converting(types: pa.Schema, included: list[str]) -> Any:
    from pyarrow import csv

    return csv.ConvertOptions(
        column_types=types,
        include_columns=included,
        null_values=[""],
        strings_can_be_null=True,
        true_values=["true", "True", "TRUE"],
        false_values=["false", "False", "FALSE"],
    )


def _may_be_too_large(rows: pa.RecordBatch) -> bool:
    """Whether a number is infinite, which Arrow also makes of one that is too large."""
    return any(pa.types.is_floating(each.type) and has_infinity(each) for each in rows.columns)


def _ways_of_times(schema: pa.Schema) -> list[pa.Schema]:
    """How a text may hold its times: all with a zone, all without one; the last way takes all."""
    text, times = _as_text(schema), [f.type for f in schema if pa.types.is_timestamp(f.type)]
    found = [pa.timestamp("us")] if times else []
    if times and all(time.tz is not None for time in times):
        found.insert(0, pa.timestamp("us", tz="UTC"))
    ways = (
        pa.schema(f.with_type(to) if pa.types.is_timestamp(f.type) else f for f in schema)
        for to in found
    )
    return [*ways, text]


def _header(line: bytes, parsing: Any) -> list[str]:
    """The names of a CSV's columns."""
    from pyarrow import csv

    if not line.strip():
        return []
    found = csv.read_csv(pa.BufferReader(line + b"\n"), parse_options=parsing)
    return [str(name) for name in found.column_names]


def _with_first(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from others


def _json(
    source: Any, of: FilesFormat, schema: pa.Schema, wanted: set[str], *_: Any
) -> Iterator[Chunk]:
    from pyarrow import json

    read = [field for field in schema if field.name in wanted]
    loose = pa.schema([field.with_nullable(True) for field in read])  # Arrow names no column.
    explicit = as_read(_as_text(loose))

    def parse(block: bytes, lines: int) -> pa.RecordBatch:
        if not block.strip():
            return _empty_rows(0)
        reading = json.ReadOptions(use_threads=False, block_size=len(block) + 1)

        def read_by(explicit: pa.Schema) -> pa.RecordBatch:
            parsing = json.ParseOptions(
                explicit_schema=explicit, unexpected_field_behavior="ignore"
            )
            return _one(json.read_json(pa.BufferReader(block), reading, parsing))

        found = read_by(explicit)
        if found.num_rows != lines:  # An empty line, or one with two records.
            raise ValueError(f"{lines} lines hold {found.num_rows} records")
        require_floats(found, explicit, read_by)
        if not of.is_exact:  # To Spark such a field is another one, and the column null.
            require_capitals(found, block, explicit)
        return found

    blocks = _unmarked(_blocks(source), of)
    return _in_lines(blocks, 1, json_exactly(parse, read) if of.is_exact else parse)


def _as_text(
    schema: pa.Schema, is_too: Callable[[pa.DataType], bool] = pa.types.is_timestamp
) -> pa.Schema:
    """How a text holds the columns: times are converted once it is known which have a zone.

    Args:
        schema: The columns.
        is_too: Whether a type is to be converted then, too.
    """
    return pa.schema(
        f.with_type(pa.string()) if pa.types.is_timestamp(f.type) or is_too(f.type) else f
        for f in schema
    )


def _one(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else _empty_rows(0)


Reader = Callable[[Any, FilesFormat, pa.Schema, set[str], str, KeepsNone | None], Iterator[Chunk]]
"""Reads the columns that are wanted, as far as the file has them: of bytes, of a format, of a
schema; then the column with the time, and what leaves out groups of rows.
"""


def _of_columns(
    read: Callable[..., Iterable[pa.RecordBatch]],
) -> Reader:
    def reading(*of: Any) -> Iterator[Chunk]:
        return _numbered((rows, BEGINNING_US) for rows in read(*of))

    return reading


_READERS: Final[dict[str, Reader]] = {
    "parquet": lambda *of: _numbered(_parquet(*of)),
    "orc": _of_columns(_orc),
    "arrow": _of_columns(_arrow),
    "csv": _csv,
    "json": _json,
}
