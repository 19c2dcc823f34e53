"""From tuples to Kafka's records: the key, the value, and a header that names the tuple.

In JSON, timestamps are text in UTC with six digits, dates and decimals are text, so that no digit
is lost, and so are NaN and the infinities, which JSON has not; binary columns are in base64. An
array is one, structs and maps are objects; a key of a map is text.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.changes import CHANGE_COLUMN, COMES, UPDATE_BEFORE
from holdfast.core.model.column_names import quoted
from holdfast.core.model.nested_types import is_nested
from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.kafka.registry import FORMATS as REGISTERED
from holdfast.shell.kafka.registry import Registry

Record: TypeAlias = tuple[bytes | None, bytes | None]
"""Its key and its value."""
Changes: TypeAlias = Literal["paired", "single"]
FORMATS = ("bytes", "string", "json", *REGISTERED)
HEADER = "holdfast"
"""Of every record: `<stream>/<tuple id>`, e.g. `counts[0]/17`."""

_PLAIN_SCALE = 6
"""With more digits behind the point Arrow writes small decimals with an exponent."""
_UTC = datetime.UTC
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


@dataclass(frozen=True, slots=True)
class Encoder:
    """How tuples become records.

    Attributes:
        kind: One of `FORMATS`; the plain ones take the column `value`.
        keys: The columns of the key: the text of one, a JSON list of several; empty: no key.
        registry: Where the schemas of values are; None for formats without.
        topic: Whose values they are.
        stream: Of all records the key instead: they come in order, in one partition; empty: no.
        changes: Of a changelog: whether each row that was is followed by what became of it, or may
            stand alone; then it is gone as far as anybody knows. None: rows are no changes.
    """

    kind: str
    keys: tuple[str, ...] = ()
    registry: Registry | None = None
    topic: str = ""
    stream: str = ""
    changes: Changes | None = None

    def check(self, schema: pa.Schema) -> None:
        """Raises `KafkaError` if these columns cannot be written so."""
        if self.kind not in FORMATS:
            raise KafkaError(f"format={self.kind!r}; it is one of {', '.join(FORMATS)}")
        for name in self.keys:
            if name in schema.names and is_nested(schema.field(name).type):
                raise KafkaError(f"key column {name!r} is an array, a map or a struct")
            if name not in schema.names:
                raise KafkaError(f"no key column {name!r}; there are {', '.join(schema.names)}")
        if self.registry is not None:
            self.registry.check(schema)
        if self.registry is not None or self.kind == "json":
            return
        wanted = pa.binary() if self.kind == "bytes" else pa.string()
        if "value" not in schema.names or schema.field("value").type != wanted:
            columns = ", ".join(f"{f.name} {f.type}" for f in schema)
            raise KafkaError(
                f"format={self.kind!r} writes a column 'value' of type {wanted}; there are "
                f"{columns}: select one, or use format='json'"
            )

    def records(self, batch: pa.RecordBatch) -> Iterator[Record | None]:
        """Key and value of every row, None of one that is not written, as what became of it is; the
        last column, the time, is not written.
        """
        attributes = batch.select(range(batch.num_columns - 1))
        if self.changes is not None:
            return self._upserts(attributes)
        return self._plain_records(attributes)

    def _upserts(self, changes: pa.RecordBatch) -> Iterator[Record | None]:
        """What each change makes of its key."""
        kinds = changes.column(CHANGE_COLUMN).to_pylist()
        rows = changes.drop_columns([CHANGE_COLUMN])
        passed_over = UPDATE_BEFORE if self.changes == "paired" else None
        for kind, (key, value) in zip(kinds, self._plain_records(rows), strict=True):
            if key is None:
                raise KafkaError(
                    f"a row of the changelog has no {self.keys[0]}, which is its key in the topic; "
                    f"leave such rows out, by filter({quoted(self.keys[0]) + ' IS NOT NULL'!r})"
                )
            yield None if kind == passed_over else (key, value if kind in COMES else None)

    def _plain_records(self, attributes: pa.RecordBatch) -> Iterator[Record]:
        values = self._values(attributes)
        if self.stream:
            name = self.stream.encode()
            return ((name, value) for value in values)
        if not self.keys:
            return ((None, value) for value in values)
        columns = [attributes.column(name).to_pylist() for name in self.keys]
        keys = (_key(row) for row in zip(*columns, strict=True))
        return zip(keys, values, strict=True)

    def _values(self, attributes: pa.RecordBatch) -> Iterator[bytes | None]:
        if self.kind == "json":
            return _objects(attributes)
        if self.registry is not None:
            return self.registry.write(self.topic, attributes)
        values = attributes.column("value").to_pylist()
        if self.kind == "bytes":
            return iter(values)
        return (None if value is None else value.encode() for value in values)


def _key(row: Sequence[Any]) -> bytes | None:
    if len(row) > 1:
        return _json([_plain(value) for value in row])
    value = _plain(row[0])
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else _json(value)


def _objects(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Every row as an object."""
    if not rows.num_columns:
        return iter([b"{}"] * rows.num_rows)
    names = [_text(name).replace("%", "%%") for name in rows.schema.names]
    template = "{" + ",".join(f"{name}:%s" for name in names) + "}"
    columns = (_texts(column) for column in rows.columns)
    return (text.encode() for text in map(template.__mod__, zip(*columns, strict=True)))


def _texts(column: pa.Array) -> list[Any]:
    """Each value as it stands in JSON, or what `%s` makes into that."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        moments = pc.strftime(column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
        column = pc.binary_join_element_wise('"', moments, 'Z"' if kind.tz else '"', "")
        texts = column.to_pylist()
    elif pa.types.is_decimal(kind) and 0 <= kind.scale <= _PLAIN_SCALE:
        texts = pc.binary_join_element_wise('"', column.cast(pa.string()), '"', "").to_pylist()
    elif pa.types.is_integer(kind) or (pa.types.is_floating(kind) and _all_finite(column)):
        texts = column.to_pylist()
    elif kind == pa.string():
        return [_text(value) for value in column.to_pylist()]
    else:
        values = column.to_pylist(maps_as_pydicts="strict")
        return [_text(_plain(value)) for value in values]
    return ["null" if text is None else text for text in texts] if column.null_count else texts


def _all_finite(column: pa.Array) -> bool:
    return bool(pc.all(pc.is_finite(column), min_count=0).as_py())


def _json(value: Any) -> bytes:
    return _text(value).encode()


_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _key_text(key: Any) -> str:
    """What JSON has for a key of a map, or a struct's field."""
    plain = _plain(key)
    return plain if isinstance(plain, str) else _text(plain)


def _plain(value: Any) -> Any:
    """What JSON has for a value."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _NOT_FINITE[str(value)]
        case datetime.datetime():
            moment = value if value.tzinfo is None else value.astimezone(_UTC)
            text = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text if value.tzinfo is None else f"{text}Z"
        case datetime.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case decimal.Decimal():
            return f"{value:f}"
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {_key_text(key): _plain(each) for key, each in value.items()}
        case _:
            raise KafkaError(f"JSON has no {type(value).__name__}")
