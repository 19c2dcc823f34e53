"""From Kafka's records to rows of a log: bytes, strings, JSON, Arrow, Avro; and bad records.

A row carries, beside its attributes, the partition and offset of its record: the log is where the
positions in the topic are kept. With dead letters it also carries what was wrong with its record,
and the record itself if something was.

What a record is decoded to depends on it alone: a batch with a bad record in it is cut in halves
until that one is found, and the others are decoded as if it had not been there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from holdfast.core.model.nested_types import holds
from holdfast.core.model.tuples import EARLIEST_US, LATEST_US, outside, with_time
from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.kafka.debezium import CHANGE, CHANGE_OF_LOG, NoChange, changes_of
from holdfast.shell.kafka.debezium import FORMAT as DEBEZIUM
from holdfast.shell.kafka.few_records import read_few
from holdfast.shell.kafka.registry import FORMATS as REGISTERED
from holdfast.shell.kafka.registry import NoRecord, Registry, rows_of
from holdfast.shell.storage.column_values import require_values
from holdfast.shell.storage.json_values import as_columns, as_read, require_capitals, require_floats

FORMATS = ("bytes", "string", "json", "arrow", DEBEZIUM, *REGISTERED)
PARTITION, OFFSET, ERROR = "kafka_partition", "kafka_offset", "kafka_error"
POSITION = pa.schema([pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())])
_AT = pa.timestamp("us", tz="UTC")
DEAD = pa.schema(
    [
        pa.field("kafka_timestamp", _AT),
        pa.field("kafka_key", pa.binary()),
        pa.field("kafka_value", pa.binary()),
        pa.field(ERROR, pa.string()),
    ]
)
"""What the log of a source with dead letters has more, null for a good record."""

_PLAIN = {
    "bytes": pa.schema(
        [pa.field("key", pa.binary()), pa.field("value", pa.binary()), pa.field("timestamp", _AT)]
    ),
    "string": pa.schema(
        [pa.field("key", pa.string()), pa.field("value", pa.string()), pa.field("timestamp", _AT)]
    ),
}
_Rows = tuple[pa.RecordBatch, np.ndarray]
"""Attributes, and the number of each row's record."""

_Value = TypeVar("_Value")

_BAD = (pa.ArrowException, ValueError, TypeError, UnicodeDecodeError, MemoryError)


@dataclass(slots=True)
class Records:
    """Records of a topic, in the order in which they were read.

    Attributes:
        partitions: Partition of each.
        offsets: Offset of each.
        timestamps_us: Kafka's own time of each, microseconds since the epoch; 0: it has none. It
            may be any number that a producer has given.
        keys: May be None.
        values: May be None.
    """

    partitions: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    timestamps_us: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows of a log.

    Attributes:
        batch: In the log's columns.
        times_us: Their times, int64.
        partitions: Partition of each row's record, int32.
        is_bad: Whether the row stands for a record that could not be decoded.
    """

    batch: pa.RecordBatch
    times_us: np.ndarray
    partitions: np.ndarray
    is_bad: np.ndarray


@dataclass(frozen=True)
class Decoder:
    """How the records of a topic become tuples.

    Attributes:
        kind: One of `FORMATS`.
        schema: The attributes.
        time: The attribute with the event time; None: Kafka's timestamp of the record.
        has_dead_letters: Whether a record that cannot be decoded becomes a row; else it raises.
        registry: Where the schemas of records in Avro are; None for other formats.
        keys: Of a database's table the columns of its primary key, as far as anybody says.
        declared: The attributes that records have, with what must not be null in them, at any
            depth; None: all may be null.
    """

    kind: str
    schema: pa.Schema
    time: str | None = None
    has_dead_letters: bool = False
    registry: Registry | None = None
    keys: tuple[str, ...] = ()
    declared: pa.Schema | None = None

    @cached_property
    def log_schema(self) -> pa.Schema:
        """Of the rows, without the time column."""
        fields = [*self.schema, *POSITION, *(DEAD if self.has_dead_letters else [])]
        return pa.schema(fields)

    @cached_property
    def _timed_schema(self) -> pa.Schema:
        return with_time(self.log_schema)

    def decode(self, records: Records, floor_us: int) -> Decoded:
        """Rows in the order of their records; a record in Arrow may hold any number.

        Args:
            records: At least one.
            floor_us: The time of what has none, and of a change: at least this, and the record's.

        Raises:
            KafkaError: A record cannot be decoded, and there are no dead letters.
        """
        errors: dict[int, str] = {}
        records = self._with_stamps(records, errors)
        attributes, of = _DECODERS[self.kind](self, records, errors)
        times = self._times(attributes, records, of, errors)
        if self.kind == DEBEZIUM and len(times):  # None is left out, and none overtakes another.
            times = np.maximum.accumulate(np.maximum(times, max(floor_us, 0)))
        is_bad = np.zeros(len(of), np.bool_)
        if errors:
            self._require_dead_letters(records, errors)
            is_bad = np.isin(of, np.fromiter(errors, np.int64, len(errors)))
            stamps = np.array(records.timestamps_us, dtype=np.int64)[of]
            times = np.where(is_bad, np.maximum(stamps, max(floor_us, 0)), times)
        partitions = np.array(records.partitions, dtype=np.int32)[of]
        columns = [*(self._nulled(attributes, is_bad) if errors else attributes.columns)]
        columns.append(pa.array(partitions))
        columns.append(pa.array(np.array(records.offsets, dtype=np.int64)[of]))
        if self.has_dead_letters:
            columns += _dead(records, of, is_bad, errors)
        columns.append(pa.array(times))
        batch = pa.RecordBatch.from_arrays(columns, schema=self._timed_schema)
        return Decoded(batch, times, partitions, is_bad)

    def _with_stamps(self, records: Records, errors: dict[int, str]) -> Records:
        """Without timestamps that are none; a record whose time or column that is, is a bad one."""
        wrong = [i for i, us in enumerate(records.timestamps_us) if not 0 <= us <= LATEST_US]
        if not wrong:
            return records
        stamps = list(records.timestamps_us)
        for number in wrong:
            if self.time is None or self.kind in _PLAIN:
                errors[number] = (
                    f"its timestamp, {stamps[number] // 1000} ms since 1970, is outside of the "
                    "years 1970 to 9999; Kafka counts milliseconds"
                )
            stamps[number] = 0
        return replace(records, timestamps_us=stamps)

    def _require_dead_letters(self, records: Records, errors: dict[int, str]) -> None:
        if not self.has_dead_letters:
            first = min(errors)
            raise KafkaError(
                f"partition {records.partitions[first]}, offset {records.offsets[first]}: "
                f"{errors[first]}; give the source dead_letters=... to put such records aside"
            )

    def _nulled(self, attributes: pa.RecordBatch, is_bad: np.ndarray) -> list[pa.Array]:
        keep = pa.array(~is_bad)
        return [
            pc.if_else(keep, column, pa.scalar(None, column.type)) for column in attributes.columns
        ]

    def _times(
        self,
        attributes: pa.RecordBatch,
        records: Records,
        of: np.ndarray,
        errors: dict[int, str],
    ) -> np.ndarray:
        """Event times; a record with one that is null or outside of all years is a bad one."""
        if self.time is None:
            return np.asarray(np.array(records.timestamps_us, dtype=np.int64)[of])
        column = attributes.column(self.schema.get_field_index(self.time))
        if column.null_count:
            for record in np.unique(of[column.is_null().to_numpy(zero_copy_only=False)]):
                errors.setdefault(int(record), f"its time column {self.time!r} is null")
        filled = column.cast(pa.int64()).fill_null(0)
        times = np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)
        if outside(times):
            is_outside = (times < EARLIEST_US) | (times > LATEST_US)
            for record in np.unique(of[is_outside]):
                errors.setdefault(
                    int(record),
                    f"its time column {self.time!r} is outside of the years 1 to 9999",
                )
        return times


def attributes_of(kind: str, schema: pa.Schema | None) -> pa.Schema:
    """The attributes of a source, which all may be null: a bad record is.

    Raises:
        KafkaError: The format cannot have the schema.
    """
    if kind not in FORMATS:
        raise KafkaError(f"format={kind!r}; it is one of {', '.join(FORMATS)}")
    if kind in _PLAIN:
        if schema is not None:
            raise KafkaError(f"format={kind!r} has its own columns; leave schema out")
        return _PLAIN[kind]
    if schema is None:
        raise KafkaError(f"format={kind!r} needs a schema, e.g. 'id BIGINT, at TIMESTAMP'")
    taken = {*POSITION.names, *DEAD.names, CHANGE}.intersection(schema.names)
    if taken:
        raise KafkaError(f"column names {', '.join(sorted(taken))} are Holdfast's own; rename them")
    schema = pa.schema([f.with_nullable(True) for f in schema])
    if kind in ("json", DEBEZIUM):
        for each in schema:
            if holds(each.type, pa.types.is_map) or holds(each.type, pa.types.is_binary):
                raise KafkaError(
                    f"column {each.name!r} is {each.type}, which is not read from JSON: declare a "
                    "struct of the fields, or a string"
                )
        try:
            _read_json([b"{}"], schema)
        except _BAD as error:
            raise KafkaError(f"JSON cannot have this schema: {error}") from None
    if kind == "protobuf":
        for each in schema:
            if holds(each.type, pa.types.is_map) or holds(each.type, pa.types.is_struct):
                raise KafkaError(
                    f"column {each.name!r} is {each.type}, which is not read from Protobuf: leave "
                    "it out of schema=..."
                )
    return schema.append(CHANGE_OF_LOG) if kind == DEBEZIUM else schema


# -- the formats ----------------------------------------------------------------------------


def _decode_plain(of: Decoder, records: Records, errors: dict[int, str]) -> _Rows:
    kind = of.schema.field("value").type
    stamps = pa.array(records.timestamps_us, pa.int64()).cast(_AT)
    columns = []
    for given in (records.keys, records.values):
        column = pa.array(given, pa.binary())
        columns.append(column if kind == pa.binary() else _text(column, given, errors))
    batch = pa.RecordBatch.from_arrays([*columns, stamps], schema=of.schema)
    return batch, np.arange(batch.num_rows)


def _text(column: pa.Array, given: Sequence[bytes | None], errors: dict[int, str]) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = []
    for number, value in enumerate(given):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            errors.setdefault(number, f"it is no UTF-8: {error}")
            texts.append(None)
    return pa.array(texts, pa.string())


def _decode_json(of: Decoder, records: Records, errors: dict[int, str]) -> _Rows:
    few = read_few(records.values, of.schema) if of.declared is None else None
    if few is not None:
        return few, np.arange(few.num_rows)
    lines: list[bytes] = []
    numbers: list[int] = []
    for number, value in enumerate(records.values):
        line = _json_line(value)
        if line is None:
            errors[number] = "it is no JSON object"
        else:
            lines.append(line)
            numbers.append(number)
    good = _halved(
        lines,
        numbers,
        errors,
        lambda part: require_values(_read_json(part, of.schema), of.declared),
    )
    return _in_place(good, records, of, errors)


def _decode_debezium(of: Decoder, records: Records, errors: dict[int, str]) -> _Rows:
    """A row for each change; of a bad record one with nulls."""
    schema = of.schema.remove(of.schema.get_field_index(CHANGE))
    told: list[list[tuple[str, bytes]]] = []
    for number, value in enumerate(records.values):
        try:
            told.append(changes_of(value, schema.names, of.keys))
        except NoChange as error:
            told.append([])
            errors[number] = str(error)
    numbers = [number for number, changes in enumerate(told) if changes]
    lines = [[row for _, row in told[number]] for number in numbers]
    good = _halved(
        lines,
        numbers,
        errors,
        lambda part: require_values(
            _read_json(list(chain.from_iterable(part)), schema, has_days=True), of.declared
        ),
    )
    rows, pieces, counts = _joined(good, schema), [], []
    at = 0
    for number, changes in enumerate(told):
        if number in errors:
            pieces.append(_nulls(of.schema))
            counts.append(1)
            continue
        kinds = pa.array([kind for kind, _ in changes], pa.string())
        mine = rows.slice(at, len(changes))
        pieces.append(pa.RecordBatch.from_arrays([*mine.columns, kinds], schema=of.schema))
        counts.append(len(changes))
        at += len(changes)
    return _joined(pieces, of.schema), np.repeat(np.arange(len(told)), counts)


def _in_place(
    good: list[pa.RecordBatch], records: Records, of: Decoder, errors: dict[int, str]
) -> _Rows:
    """A row for each record; a bad one has nulls."""
    if errors:
        empty = _nulls(of.schema)
        whole = iter([batch.slice(i, 1) for batch in good for i in range(batch.num_rows)])
        good = [empty if i in errors else next(whole) for i in range(len(records.values))]
    return _joined(good, of.schema), np.arange(len(records.values))


def _decode_registered(of: Decoder, records: Records, errors: dict[int, str]) -> _Rows:
    assert of.registry is not None
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    for number, value in enumerate(records.values):
        try:
            rows.append(of.registry.read(value))
            numbers.append(number)
        except NoRecord as error:
            errors[number] = str(error)
    good = _halved(
        rows,
        numbers,
        errors,
        lambda part: require_values(rows_of(part, of.schema), of.declared),
    )
    return _in_place(good, records, of, errors)


def _json_line(value: bytes | None) -> bytes | None:
    """A JSON object in one line; None if it is none."""
    line = (value or b"").strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        return None
    if b"\n" in line or b"\r" in line:
        try:
            json.loads(line)  # Within a string they would not be allowed.
        except (ValueError, RecursionError):
            return None
        line = line.replace(b"\n", b" ").replace(b"\r", b" ")
    return line


def _read_json(lines: list[bytes], schema: pa.Schema, *, has_days: bool = False) -> pa.RecordBatch:
    """Rows of lines with an object each; `has_days`: a date is a number of days, and no text."""
    few = read_few(lines, schema)
    if few is not None:
        return few
    text, explicit = b"\n".join(lines) + b"\n", schema if has_days else as_read(schema)
    rows = _read_lines(text, len(lines), explicit)
    require_floats(rows, explicit, partial(_read_lines, text, len(lines)))
    require_capitals(rows, text, schema)
    return as_columns(rows, schema)


def _read_lines(text: bytes, count: int, schema: pa.Schema) -> pa.RecordBatch:
    table = arrow_json.read_json(
        pa.BufferReader(text),  # A file of Python's would be read by a thread that needs the GIL.
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != count:
        raise ValueError(f"{count} records hold {table.num_rows} JSON objects")
    table.validate(full=True)
    (rows,) = table.select(schema.names).cast(schema).combine_chunks().to_batches()
    return rows


def _halved(
    values: list[_Value],
    numbers: list[int],
    errors: dict[int, str],
    decode: Callable[[list[_Value]], pa.RecordBatch],
) -> list[pa.RecordBatch]:
    """Decode all that can be. Cost: O(bad values * log values) calls."""
    if not values:
        return []
    try:
        return [decode(values)]
    except _BAD as error:
        if len(values) == 1:
            errors[numbers[0]] = str(error).splitlines()[0] if str(error) else "it is too large"
            return []
    half = len(values) // 2
    return [
        *_halved(values[:half], numbers[:half], errors, decode),
        *_halved(values[half:], numbers[half:], errors, decode),
    ]


def _decode_arrow(of: Decoder, records: Records, errors: dict[int, str]) -> _Rows:
    pieces: list[pa.RecordBatch] = []
    for number, value in enumerate(records.values):
        try:
            piece = require_values(_read_arrow(value or b"", of.schema), of.declared)
            if of.time is not None and piece.column(of.time).null_count:
                raise ValueError(f"its time column {of.time!r} has nulls")
            pieces.append(piece)
        except (*_BAD, OSError) as error:
            errors[number] = str(error).splitlines()[0] if str(error) else "it is no Arrow stream"
            pieces.append(_nulls(of.schema))
    rows = [piece.num_rows for piece in pieces]
    return _joined(pieces, of.schema), np.repeat(np.arange(len(rows)), rows)


def _read_arrow(value: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """All rows of an Arrow IPC stream. Nothing in it is believed before it is validated."""
    reader = pa.ipc.open_stream(pa.py_buffer(value))
    found = [(f.name, f.type) for f in reader.schema]
    wanted = [(f.name, f.type) for f in schema]
    if found != wanted:
        given = ", ".join(f"{name} {kind}" for name, kind in found)
        raise ValueError(f"its columns are {given}")
    batches = list(reader)
    for batch in batches:
        batch.validate(full=True)
    return _joined([b.cast(schema) for b in batches], schema)


_DECODERS: dict[str, Callable[[Decoder, Records, dict[int, str]], _Rows]] = {
    "bytes": _decode_plain,
    "string": _decode_plain,
    "json": _decode_json,
    "arrow": _decode_arrow,
    DEBEZIUM: _decode_debezium,
    **dict.fromkeys(REGISTERED, _decode_registered),
}


# -- rows -----------------------------------------------------------------------------------


def _joined(pieces: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if not pieces:
        return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
    return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)


def _nulls(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=schema)


def _dead(
    records: Records, of: np.ndarray, is_bad: np.ndarray, errors: dict[int, str]
) -> list[Any]:
    """The columns of `DEAD`."""
    if not is_bad.any():
        return [pa.nulls(len(of), f.type) for f in DEAD]
    numbers = [int(i) if bad else None for i, bad in zip(of, is_bad, strict=True)]
    stamps = [None if i is None else records.timestamps_us[i] for i in numbers]
    return [
        pa.array(stamps, pa.int64()).cast(_AT),
        pa.array([None if i is None else records.keys[i] for i in numbers], pa.binary()),
        pa.array([None if i is None else records.values[i] for i in numbers], pa.binary()),
        pa.array([None if i is None else errors[i] for i in numbers], pa.string()),
    ]
