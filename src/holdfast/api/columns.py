"""Which names columns may have; core/model/column_names.py says how they are written.

Any text will do that Spark can write between back-ticks, blanks, dots and back-ticks included. What
is refused is what could not be told apart later: Spark compares names without regard to case, and
what reads a log has columns of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.errors import DataflowError

RESERVED: Final = ("_partition", "_tuple_id", "_time", "_type")
"""Columns that reading a log adds."""
_OWN_PREFIX: Final = "__"


def check_columns(names: Sequence[str], what: str) -> None:
    """Refuse columns that cannot be told apart, or not be written.

    Args:
        names: All columns of a stream.
        what: Whose they are.

    Raises:
        DataflowError: A name is empty, has control characters, is reserved, or differs from another
            one in case alone.
    """
    seen: dict[str, str] = {}
    for name in names:
        lower = name.lower()
        if not name or not name.isprintable():
            raise DataflowError(
                f"{what}: a column cannot be named {name!r}: names are not empty and have no "
                "control characters; rename it, e.g. with AS"
            )
        if lower in RESERVED or lower.startswith(_OWN_PREFIX):
            raise DataflowError(
                f"{what}: column {name!r} has a name that is reserved ({', '.join(RESERVED)}, and "
                f"what begins with {_OWN_PREFIX}); rename it, e.g. with AS"
            )
        if lower in seen:
            raise DataflowError(
                f"{what} gives a column twice: {seen[lower]!r} and {name!r}, which Spark takes for "
                "one; rename one of them, e.g. with AS"
            )
        seen[lower] = name
