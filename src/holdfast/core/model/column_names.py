"""How Spark SQL writes the names of columns."""

from __future__ import annotations


def quoted(name: str) -> str:
    """A column's name as Spark SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def unquoted(text: str) -> str:
    """A name as it may be written: between back-ticks, or as it is."""
    if len(text) > 1 and text[0] == text[-1] == "`":
        return text[1:-1].replace("``", "`")
    return text
