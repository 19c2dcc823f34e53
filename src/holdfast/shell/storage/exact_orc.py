"""Whether pyarrow gives of an ORC file exactly what Spark gives, where the JVM's zone is UTC.

ORC keeps the time of day of a timestamp. Dates and times before the calendar of today may have been
written by the old one, which pyarrow does not say; such a file is bad.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.model.nested_types import canonical, is_nested

if TYPE_CHECKING:
    from collections.abc import Iterable

_FIRST_DAY: Final = -141_427
"""15 October 1582, in days since 1970."""
_DAY_US: Final = 86_400_000_000


def orc_difference(found: Any, fields: Iterable[pa.Field]) -> str:
    """Why rows of an `ORCFile` may be others to Spark; empty: they are the same.

    Args:
        found: The file. A column that it lacks is null for both.
        fields: The columns that are read of it.
    """
    own = found.schema
    if own.names and all(name.startswith("_col") for name in own.names):
        return "its columns have no names"
    folded = {name.casefold() for name in own.names}
    for field in fields:
        if "." in field.name:
            return f"column {field.name!r} has a dot in its name"
        if field.name not in own.names:
            if field.name.casefold() in folded:
                return f"column {field.name!r} is written otherwise in the file"
        elif not _is_same(own.field(field.name).type, field.type):
            return f"column {field.name!r} is {own.field(field.name).type}, not {field.type}"
    return ""


def _is_same(own: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type of a file is that of a stream; ORC's timestamps have no zone."""
    if pa.types.is_timestamp(wanted):
        return bool(own == pa.timestamp("ns")) and wanted.tz is not None
    if is_nested(wanted) and _holds_date(wanted):
        return False
    return bool((canonical(own) if is_nested(own) else own) == wanted)


def _holds_date(of: pa.DataType) -> bool:
    """Whether days are within it, whose calendar nobody looks at there."""
    if pa.types.is_map(of):
        return _holds_date(of.key_type) or _holds_date(of.item_type)
    parts = (of.field(n).type for n in range(of.num_fields))
    return bool(pa.types.is_date(of)) or any(map(_holds_date, parts))


def require_new_calendar(rows: pa.RecordBatch) -> None:
    """Raise `ValueError` if a date or time is older than the calendar."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_date32(field.type):
            oldest = pc.min(column.cast(pa.int32())).as_py()
        elif pa.types.is_timestamp(field.type):
            oldest = pc.min(column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())).as_py()
            oldest = None if oldest is None else oldest // _DAY_US
        else:
            continue
        if oldest is not None and oldest < _FIRST_DAY:
            raise ValueError(f"column {field.name!r} has times of before 15 October 1582")
