"""Whether nodes get of a user's file exactly what Spark gets, whatever its format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.shell.storage import exact_parquet
from holdfast.shell.storage.exact_orc import orc_difference
from holdfast.shell.storage.exact_texts import why_not_of_text
from holdfast.shell.storage.user_files import UserFileError, opened
from holdfast.shell.storage.user_rows import read_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.queues.recording import UserFile
    from holdfast.shell.storage.user_rows import FilesFormat

FAILFAST: Final = {"parquet": False, "orc": False, "csv": True, "json": True}
"""Formats that can be read alike, and whether that is so only with `mode=FAILFAST`."""


def why_not_exact(file: UserFile, of: FilesFormat, fields: Sequence[pa.Field]) -> str:
    """Why a file's rows may be others to Spark; empty: they are the same, or an error.

    Args:
        file: As it is.
        of: How its rows lie in it.
        fields: The columns that are read of it.
    """
    if of.name == "parquet":
        return exact_parquet.why_not_exact(file, fields)
    if of.name != "orc":
        return why_not_of_text(file.path, of.name, fields)
    from pyarrow import orc

    try:
        with opened(file) as source:
            return orc_difference(orc.ORCFile(source), fields)
    except UserFileError as error:
        return str(error)


def has_null(file: UserFile, of: FilesFormat, column: pa.Field) -> bool:
    """Whether a column of times holds a null; one that the file lacks is null.

    Cost: of Parquet as its statistics say, of others all of the column is read.

    Raises:
        UserFileError: The file cannot be read; of a text also if a time is null.
    """
    if of.name == "parquet":
        return exact_parquet.has_null(file, column.name)
    if of.name == "orc":
        from pyarrow import orc

        with opened(file) as source:
            found = orc.ORCFile(source)
            if column.name not in found.schema.names:
                return True
            stripes = (found.read_stripe(n, columns=[column.name]) for n in range(found.nstripes))
            return any(rows.column(0).null_count for rows in stripes)
    for _ in read_rows(file, of, pa.schema([column]), column.name, ()):
        pass
    return False
