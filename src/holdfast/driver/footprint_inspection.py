"""Looking into the footprint logs of a checkpoint location. [CEC "Constructing an EC"]

Nothing is written and nothing is locked: it works while the query runs, and after it has died.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.shell.spark.journal import JOURNAL_FOLDER, registry_at
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.footprint_log import read_extent
from holdfast.shell.storage.paths import within
from holdfast.shell.storage.places import has_files, local_path

if TYPE_CHECKING:
    from holdfast.core.model.ids import NodeId
    from holdfast.core.recovery.restart_point import RestartPoint

_SUFFIX = "~footprints"


@dataclass(frozen=True, slots=True)
class EventualCheckpointInfo:
    """What a replacement of a node would begin with now.

    Attributes:
        node: The instance.
        point: Number of its newest restart point.
        footprints: Windows that were open.
        records: Records of the log that it would read.
        extent_bytes: Their size in memory.
        tuples: Input tuples that it would replay.
        predicted_recovery_ms: How long that takes, as the node has predicted for this point: with
            the start of a process, without finding the failure.
        problem: Why the log cannot be read; empty: it can.
    """

    node: str
    point: int
    footprints: int = 0
    records: int = 0
    extent_bytes: int = 0
    tuples: int = 0
    predicted_recovery_ms: float = 0.0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def eventual_checkpoints(location: str) -> list[EventualCheckpointInfo]:
    """Of each node whose windows leave footprints what a replacement would begin with, by node."""
    location = local_path(location)
    if not has_files(os.path.join(location, JOURNAL_FOLDER)):
        return []
    points = registry_at(location).newest_points()
    return [
        _info(location, node, point)
        for node, point in sorted(dict(points).items())
        if f"{node}{_SUFFIX}" in point.needed_from
    ]


def _info(location: str, node: NodeId, point: RestartPoint) -> EventualCheckpointInfo:
    stream = f"{node}{_SUFFIX}"
    inputs = {name: start for name, start in point.needed_from.items() if name != stream}
    found = EventualCheckpointInfo(
        node,
        point.sequence,
        tuples=sum(point.processed_before[name] - start for name, start in inputs.items()),
        predicted_recovery_ms=point.predicted_us / 1000,
    )
    place = within(location, "footprints", node)
    try:
        extent = read_extent(place, point.needed_from[stream], point.next_ids[stream], len(inputs))
    except StorageError as error:
        elsewhere = "" if has_files(place) else "; in an EmbeddedStore only its query reads it"
        return replace(found, problem=f"{error}{elsewhere}")
    return replace(
        found,
        footprints=extent.last.open_windows,
        records=len(extent.records),
        extent_bytes=sum(record.nbytes for record in extent.records),
    )


def footprint_table(location: str) -> pa.Table:
    """The same as a table, a row for each node."""
    kinds = {"int": pa.int64(), "float": pa.float64(), "str": pa.string()}
    schema = pa.schema([(f.name, kinds[str(f.type)]) for f in fields(EventualCheckpointInfo)])
    return pa.Table.from_pylist([c.to_json() for c in eventual_checkpoints(location)], schema)
