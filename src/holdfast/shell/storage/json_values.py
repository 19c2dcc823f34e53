"""JSON's values as those of columns: what Arrow's reader would take for something else is an error.

A date is a text to JSON, such as `2026-11-25`; Arrow takes numbers for one, and no texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable


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


def as_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows as they were read as those of the schema, which has the same names.

    Raises:
        ValueError: A text is no date; the message names the column.
    """
    columns = []
    for field in schema:
        column = rows.column(field.name)
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            raise ValueError(f"column {field.name!r} is not {field.type}: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)
