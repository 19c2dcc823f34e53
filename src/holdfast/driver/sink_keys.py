"""`sinks.json`: by which columns the rows of a query's sinks replace each other.

It is for whoever reads a sink as a table without the dataflow. A query writes it when it starts.
Where a changed dataflow gives a sink another key, the sink has none from then on: its rows would be
those of two tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.storage.places import has_files, put_over, read_if_any, store_at
from holdfast.shell.storage.small_files import decode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FILE_NAME: Final = "sinks.json"


def sink_keys_at(location: str) -> dict[str, tuple[str, ...] | None]:
    """By sink what a location says of it; nothing of what ran there before there was such a file.

    Raises:
        FileDamaged: What is there is not what was written.
    """
    found = read_if_any(store_at(location), FILE_NAME) if has_files(location) else None
    if found is None:
        return {}
    said = decode(found, f"{location}/{FILE_NAME}", lambda value: dict(value["replaced_by"]))
    return {sink: None if keys is None else tuple(keys) for sink, keys in said.items()}


def say_sink_keys(location: str, keys: Mapping[str, Sequence[str] | None]) -> None:
    """Say it of the sinks of the query that starts; others keep what was said of them.

    Raises:
        FileDamaged: What is there is not what was written.
    """
    before = sink_keys_at(location)
    said: dict[str, list[str] | None]
    said = {sink: None if of is None else list(of) for sink, of in before.items()}
    for sink, own in keys.items():
        is_other = sink in before and before[sink] != (None if own is None else tuple(own))
        said[sink] = None if own is None or is_other else list(own)
    content = encode_sealed({"format": 1, "replaced_by": said}, indent=1)
    put_over(store_at(location), FILE_NAME, content)
