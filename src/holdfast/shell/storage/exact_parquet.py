"""Whether pyarrow gives of a Parquet file exactly what Spark gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.core.model.nested_types import canonical, is_nested
from holdfast.shell.storage.parquet_ends import column_number
from holdfast.shell.storage.user_files import UserFileError, opened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.queues.recording import UserFile

_OF_FOLDERS: Final = (pa.string(), pa.int32(), pa.int64(), pa.date32())
"""Types of columns that folders name, of which Spark and Arrow read the same."""
_OLD_CALENDAR: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


def why_not_exact(file: UserFile, fields: Iterable[pa.Field]) -> str:
    """Why a file's rows may be others to Spark; empty: they are the same.

    Args:
        file: As it is.
        fields: The columns that are read of it.
    """
    from pyarrow import parquet

    try:
        with opened(file) as source:
            found = parquet.ParquetFile(source, coerce_int96_timestamp_unit="us")
            return difference(found, fields)
    except UserFileError as error:
        return str(error)


def has_null(file: UserFile, column: str) -> bool:
    """Whether a column of a file holds a null; one that the file lacks is null.

    Cost: as its statistics say; INT96 has none, and is read.

    Raises:
        UserFileError: The file cannot be read.
    """
    from pyarrow import parquet

    with opened(file) as source:
        found = parquet.ParquetFile(source)
        of, at = found.metadata, column_number(found, column)
        if at < 0:
            return True
        groups = (of.row_group(number) for number in range(of.num_row_groups))
        said = [group.column(at).statistics for group in groups]
        if all(each is not None and each.has_null_count for each in said):
            return any(each.null_count for each in said)
        return any(rows.column(0).null_count for rows in found.iter_batches(columns=[column]))


def why_not_of_folders(named: Iterable[str], fields: Iterable[pa.Field]) -> str:
    """Why Spark may read other values of folders' names (`key=value`); empty: it does not.

    Args:
        named: The keys.
        fields: The columns that are read.
    """
    keys = set(named)
    folded = {name.casefold() for name in keys}
    for field in fields:
        if field.name in keys and field.type not in _OF_FOLDERS:
            return f"folders name the column {field.name!r}, which is {field.type}"
        if field.name not in keys and field.name.casefold() in folded:
            return f"column {field.name!r} is written otherwise in folders' names"
    return ""


def difference(found: Any, fields: Iterable[pa.Field]) -> str:
    """The same of a `ParquetFile` with INT96 in microseconds.

    A column that is not in the file is null for both. Spark, though, also takes one whose name
    differs in upper and lower case.
    """
    if any(key in (found.metadata.metadata or {}) for key in _OLD_CALENDAR):
        return "its times are of Spark's old calendar"
    own = found.schema_arrow
    instants = _instants(found)
    folded = {name.casefold() for name in own.names}
    for field in fields:
        if field.name not in own.names:
            if field.name.casefold() in folded:
                return f"column {field.name!r} is written otherwise in the file"
        elif not _is_same(own.field(field.name).type, field.type, field.name in instants):
            return f"column {field.name!r} is {own.field(field.name).type}, not {field.type}"
    return ""


def _instants(found: Any) -> set[str]:
    """Columns of INT96, which is a point in time to Spark, though the file names no time zone."""
    columns = (found.schema.column(number) for number in range(len(found.schema)))
    return {column.path for column in columns if column.physical_type == "INT96"}


def _is_same(own: pa.DataType, wanted: pa.DataType, is_instant: bool) -> bool:
    """Whether a type of a file is that of a stream, but for the unit of its times."""
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(own):
        is_zoned = is_instant or own.tz is not None
        return is_zoned == (wanted.tz is not None) and own.unit in ("ms", "us")
    return bool((canonical(own) if is_nested(own) else own) == wanted)
