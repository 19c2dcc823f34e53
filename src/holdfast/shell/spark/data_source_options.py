"""Options of `format("holdfast")`: their values, and the tables that some of them name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.shell.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


def is_true(options: Mapping[str, str], name: str) -> bool:
    """A switch, off unless it is given. Raises `StorageError` if it is neither on nor off."""
    text = options.get(name, "false").lower()
    if text not in ("true", "false"):
        raise StorageError(f"option {name}={options[name]!r}; it is 'true' or 'false'")
    return text == "true"


def whole_number(options: Mapping[str, str], name: str, default: int) -> int:
    """A count. Raises `StorageError` if it is none."""
    text = options.get(name, str(default))
    if not text.isdigit():
        raise StorageError(f"option {name}={text!r} is no whole number")
    return int(text)


def has_table(options: Mapping[str, str]) -> bool:
    """Whether they name a table, and no log."""
    return "state" in options or "footprints" in options


def table_of(options: Mapping[str, str]) -> pa.Table | None:
    """What checkpoints hold, or footprints are worth; None: the options name a log."""
    if "footprints" in options:
        from holdfast.driver.footprint_inspection import footprint_table

        return footprint_table(options["path"])
    if "state" in options:
        from holdfast.driver.inspection import Inspection

        return Inspection(options["path"]).state(options["state"])
    return None
