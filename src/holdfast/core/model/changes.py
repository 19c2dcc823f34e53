"""Changelogs: streams whose rows say how a table has changed.

Such a row has, in a column of its own, the kind of its change. A row that has changed comes as two,
one behind the other: as it was (`update_before`), and as it is (`update_after`). The rows there are
now are those that came in, less those that went: a table by its changes.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

CHANGE_COLUMN: Final = "_change"
"""The last column of a changelog."""
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = "insert", "update_before", "update_after", "delete"
CHANGES: Final = (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
COMES: Final = (INSERT, UPDATE_AFTER)
"""Kinds of rows that are there from now on; those of the other kinds are not any more."""
CHANGE_FIELD: Final = pa.field(CHANGE_COLUMN, pa.string(), nullable=False)


def came(kind: str) -> str:
    """Of an expression for the kind of a change whether its row is there, as SQL."""
    return f"{kind} IN ({', '.join(map(repr, COMES))})"


def without_changes(schema: pa.Schema) -> pa.Schema:
    """The columns of rows, without that of changes."""
    at = schema.get_field_index(CHANGE_COLUMN)
    return schema if at < 0 else schema.remove(at)
