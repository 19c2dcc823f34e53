"""What a version of a Delta table adds to a stream of its rows.

A version is a list of actions. Files that it adds with new rows become part of the stream; files
that it merely writes anew, as compaction does, hold rows that the stream has. A version that takes
rows away, or changes them, ends the stream by name: rows that were given out cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_KNOWN_FEATURES: Final = ("timestampNtz", "v2Checkpoint", "vacuumProtocolCheck")
"""Of readers, those that leave alone how rows lie in files."""


class TableUnfit(Exception):
    """A version of a table cannot be part of a stream; the text says why."""


class RowsTakenBack(TableUnfit):
    """A version removes or changes rows; those behind it may be fit."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file with new rows.

    Attributes:
        path: As the table names it: percent-encoded, relative to the table.
        size_bytes: Its size.
    """

    path: str
    size_bytes: int


def added_files(actions: Iterable[Mapping[str, Any]]) -> list[AddedFile]:
    """The files with new rows, in the version's order.

    Args:
        actions: Of one version, each with its kind as its key.

    Raises:
        TableUnfit: It removes or changes rows, or its files must be read in another way.
    """
    found = []
    for action in actions:
        if "protocol" in action:
            require_features(action["protocol"].get("readerFeatures") or ())
        if "metaData" in action:
            require_settings(action["metaData"].get("configuration") or {})
        if "cdc" in action:
            raise RowsTakenBack("it changes rows")
        if "remove" in action and action["remove"].get("dataChange", True):
            raise RowsTakenBack("it removes or changes rows")
        if "add" in action and action["add"].get("dataChange", True):
            added = action["add"]
            if added.get("deletionVector"):
                raise TableUnfit("rows of its files are marked as deleted")
            found.append(AddedFile(str(added["path"]), int(added["size"])))
    return found


def require_features(features: Iterable[str]) -> None:
    """Raise `TableUnfit` if readers must know more than how Parquet is read."""
    for feature in features:
        if feature not in _KNOWN_FEATURES:
            raise TableUnfit(f"it needs the table feature {feature}, which Holdfast does not read")


def require_settings(settings: Mapping[str, Any]) -> None:
    """Raise `TableUnfit` if the files name their columns otherwise."""
    mode = settings.get("delta.columnMapping.mode") or "none"
    if mode != "none":
        raise TableUnfit(f"its columns are mapped by {mode}, which Holdfast does not read")
