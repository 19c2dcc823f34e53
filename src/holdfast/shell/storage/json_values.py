"""JSON's values as those of columns: what Arrow's reader would take for something else is an error.

- A date is a text to JSON, such as `2026-11-25`; Arrow takes numbers for one, and no texts.
- A number for a FLOAT is the nearest one that there is; of one beyond all of them Arrow makes an
  infinity. `Infinity` is one.
- A field with its name in other capitals is passed over, and what it is meant for is null.
"""

from __future__ import annotations

import json
import re
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.nested_types import holds
from holdfast.shell.storage.column_values import as_type, has_infinity, offsets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_DATE: Final = re.compile(
    r"([+]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL
)
_PLAIN_DATE: Final = r"^(\d{3}[1-9]|\d{2}[1-9]0|\d[1-9]00|[1-9]000)-\d\d-\d\d$"
"""As Arrow takes dates; but of a year."""
_BLANKS: Final = "".join(map(chr, (*range(0x21), 0x7F)))
"""What Spark passes over around a date."""
_ESCAPED_NAME: Final = re.compile(rb'\\u[0-9a-fA-F]{4}[^"\\]*"\s*:')


def as_read(schema: pa.Schema) -> pa.Schema:
    """How Arrow's reader is to read JSON for the columns of a schema: dates as texts."""
    return pa.schema([_with_parts(field, _dates_as_texts) for field in schema])


def _dates_as_texts(of: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_date(of) else of


def _with_parts(field: pa.Field, of_part: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    """A field with what holds nothing in it replaced; what may not be null stays so."""
    of = field.type
    if pa.types.is_struct(of):
        return field.with_type(pa.struct([_with_parts(part, of_part) for part in of]))
    if pa.types.is_list(of):
        return field.with_type(pa.list_(_with_parts(of.value_field, of_part)))
    return field.with_type(of_part(of))


def require_floats(
    rows: pa.RecordBatch, schema: pa.Schema, read: Callable[[pa.Schema], pa.RecordBatch]
) -> None:
    """Raise `ValueError` if a number was too large for its column of FLOAT; it names the column.

    Args:
        rows: As they were read.
        schema: By which.
        read: Reads them by another one. Cost: only if there is an infinity among them.
    """
    own = [*_parts_of(rows, schema)]
    if not any(_is_float(part) and has_infinity(part) for _, part in own):
        return
    wider = pa.schema([_with_parts(field, _floats_as_doubles) for field in schema])
    for (path, part), (_, wide) in zip(own, _parts_of(read(wider), wider), strict=True):
        if _is_float(part):
            is_cut = pc.and_(pc.is_inf(part), pc.is_finite(wide))
            if pc.any(is_cut).as_py():
                first = wide.filter(is_cut)[0]
                raise ValueError(f"column {path!r} is not {part.type}: {first} is too large")


def _is_float(part: pa.Array) -> bool:
    return bool(pa.types.is_float32(part.type))


def _floats_as_doubles(of: pa.DataType) -> pa.DataType:
    return pa.float64() if pa.types.is_float32(of) else of


def _parts_of(rows: pa.RecordBatch, schema: pa.Schema) -> Iterator[tuple[str, pa.Array]]:
    """What holds nothing in it, by its path: `a.b[]` is the field b, a list, of the column a."""
    for field in schema:
        yield from _parts(field.name, rows.column(field.name))


def _parts(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    if pa.types.is_struct(values.type):
        for number, field in enumerate(values.type):
            yield from _parts(f"{path}.{field.name}", values.field(number))
    elif pa.types.is_list(values.type):
        yield from _parts(f"{path}[]", values.values)
    else:
        yield path, values


def as_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows as they were read as those of the schema, which has the same names.

    Raises:
        ValueError: A text is no date; the message names the column.
    """
    columns = []
    for field in schema:
        try:
            texts = _plain_dates(rows.column(field.name), field.type)
            columns.append(as_type(texts, field.type, field.name))
        except (pa.ArrowException, ValueError) as error:
            raise ValueError(f"column {field.name!r} is not {field.type}: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain_dates(values: pa.Array, to: pa.DataType) -> pa.Array:
    """Texts of dates as Arrow takes them; of others the same values. Raises `ValueError`."""
    if pa.types.is_struct(to) and to.num_fields:
        if not holds(to, pa.types.is_date):
            return values
        parts = [_plain_dates(values.field(n), each.type) for n, each in enumerate(to)]
        names = [each.name for each in to]
        return pa.StructArray.from_arrays(parts, names=names, mask=values.is_null())
    if pa.types.is_list(to) and holds(to, pa.types.is_date):
        part = _plain_dates(values.flatten(), to.value_type)
        return pa.ListArray.from_arrays(offsets_of(values), part, mask=values.is_null())
    if not (pa.types.is_date(to) and pa.types.is_string(values.type)):
        return values
    if pc.all(pc.match_substring_regex(values, _PLAIN_DATE)).as_py() is not False:
        return values
    return pa.array([None if v is None else _plain_date(v) for v in values.to_pylist()])


def _plain_date(text: str) -> str:
    """A text that Spark's `from_json` takes for a date of the years 1 to 9999 as `2026-01-02`.

    Spark takes a year, a month of it, or a day, of which a blank or `T` may end what counts, with
    blanks around it, and passes over `GMT`. Raises `ValueError` for others.
    """
    found = _DATE.fullmatch(text.replace("GMT", "").strip(_BLANKS))
    if found is None:
        raise ValueError(f"{text!r} is no date")
    try:
        return date(int(found[1]), int(found[2] or 1), int(found[3] or 1)).isoformat()
    except ValueError as error:
        raise ValueError(f"{text!r} is no date: {error}") from None


def require_capitals(rows: pa.RecordBatch, text: bytes, schema: pa.Schema) -> None:
    """Raise `ValueError` if a record has a field of the schema in other capitals, and not itself.

    Args:
        rows: As they were read. Cost: without nulls in them nothing is looked for.
        text: Of which: lines with an object each.
        schema: By which.
    """
    names = {n for f in schema if _has_null(rows.column(f.name)) for n in _names(f)}
    if not names:
        return
    lowered = text.lower()
    is_plain = b"\\u" not in text or _ESCAPED_NAME.search(text) is None
    if is_plain and not any(_may_be_otherwise(name, text, lowered) for name in names):
        return
    for line in text.split(b"\n"):
        if line.strip():
            try:
                record = json.loads(line)
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            require_fields(record, schema)


def _has_null(values: pa.Array) -> bool:
    """Whether there is a null, at any depth."""
    if values.null_count:
        return True
    if pa.types.is_struct(values.type):
        return any(_has_null(values.field(number)) for number in range(values.type.num_fields))
    return bool(pa.types.is_list(values.type)) and _has_null(values.values)


def _names(field: pa.Field) -> Iterator[str]:
    """A field's name, and those in it."""
    yield field.name
    yield from _names_in(field.type)


def _names_in(of: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(of):
        for field in of:
            yield from _names(field)
    elif pa.types.is_list(of):
        yield from _names_in(of.value_type)


def _may_be_otherwise(name: str, text: bytes, lowered: bytes) -> bool:
    """Whether a text may have a field of that name in other capitals; `lowered` is its lower case.

    A count is quick, and the search is not, which tells a field from a value.
    """
    if not name.isascii() or json.dumps(name) != f'"{name}"':
        return True
    own = f'"{name}"'.encode()
    if text.count(own) == lowered.count(own.lower()):
        return False
    return _otherwise(name).search(text) is not None


@cache
def _otherwise(name: str) -> re.Pattern[bytes]:
    own = re.escape(name.encode())
    return re.compile(rb'"(?!%b")(?i:%b)"\s*:' % (own, own))


def require_fields(value: dict[str, Any], fields: Iterable[pa.Field], path: str = "") -> None:
    """Raise `ValueError` if a record has a field in other capitals, and not itself.

    Args:
        value: Of a record, or of a struct in it.
        fields: That it should have.
        path: Where it lies.
    """
    known = {field.name: field.type for field in fields}
    others = {name.lower(): name for name in value if name not in known}
    for name, of in known.items():
        if name in value:
            _require_names_in(value[name], of, f"{path}{name}")
        elif (other := others.get(name.lower())) is not None:
            what = "field" if path else "column"
            said = f"it has a {what} {path + other!r}, and none {path + name!r}"
            raise ValueError(f"{said}; rename it where it is written")


def _require_names_in(value: Any, of: pa.DataType, path: str) -> None:
    if isinstance(value, dict) and pa.types.is_struct(of):
        require_fields(value, of, f"{path}.")
    elif isinstance(value, list) and pa.types.is_list(of):
        for each in value:
            _require_names_in(each, of.value_type, f"{path}[]")
    elif isinstance(value, dict) and pa.types.is_map(of):
        for each in value.values():
            _require_names_in(each, of.item_type, f"{path}{{}}")
