"""The footprint log of a node, and the eventual checkpoint that it holds. [CEC §III]

A claimed stream log (claimed_log.py) in small segments, of which those before the extent can be
dropped. It is read backwards, until the footprints of all open windows are found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.model.footprints import FootprintsDamaged, footprint_schema
from holdfast.core.recovery.extent import ExtentSearch
from holdfast.core.wire.log_records import encode_narrow
from holdfast.shell.storage.backward_reader import batches_before
from holdfast.shell.storage.claimed_log import ClaimedLogWriter
from holdfast.shell.storage.errors import FileDamaged, SchemaMismatch
from holdfast.shell.storage.logs import open_writer
from holdfast.shell.storage.paths import within
from holdfast.shell.storage.places import location_id
from holdfast.shell.stores.embedded_place import place_in

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.recovery.extent import Extent
    from holdfast.shell.storage.logs import OpenedLog

SEGMENT_BYTES: Final = 4 << 20


class FootprintLogWriter(ClaimedLogWriter):
    """Appends footprints as one incarnation."""

    def __init__(
        self, place: str, body: pa.Schema, stream: str, incarnation: int, *, wanted: int = 0
    ) -> None:
        """Claim the log, then find its end; errors as of `ClaimedLogWriter`.

        Args:
            place: Its folder or URL.
            body: The columns in which the operator describes its windows.
            stream: The stream's name.
            incarnation: Of the writer.
            wanted: The id before which the log must not end.
        """
        schema = footprint_schema(body)
        super().__init__(
            place,
            schema,
            stream,
            incarnation,
            segment_bytes=SEGMENT_BYTES,
            encode=encode_narrow,
            switches_beside=True,
            wanted=wanted,
        )


def footprint_place(location: str, plan: NodePlan) -> str:
    """Where a node's footprint log lies, of a query with this checkpoint location.

    Raises:
        StorageError: The location cannot be read.
    """
    if plan.is_log_embedded:
        return place_in(location_id(location), "footprints", plan.node)
    return within(location, "footprints", plan.node)


def open_footprints(place: str, body: pa.Schema, stream: str, incarnation: int) -> OpenedLog:
    """Append footprints without a claim, where no node runs; args as of `FootprintLogWriter`.

    Raises:
        StorageError: It cannot be read, or a later incarnation has written there.
    """
    schema = footprint_schema(body)
    return open_writer(
        place, schema, stream, incarnation, segment_bytes=SEGMENT_BYTES, encode=encode_narrow
    )


def read_extent(
    place: str, from_id: int, ends_at: int, streams: int, body: pa.Schema | None = None
) -> Extent:
    """The eventual checkpoint of the record that ends at a row.

    Args:
        place: The log's folder or URL.
        from_id: The first row that it needs, as the restart point says.
        ends_at: The row behind the record.
        streams: How many input streams the node has.
        body: The columns that its operator reads; None: whatever is there, which none will read.

    Raises:
        SchemaMismatch: The log holds others.
        StorageError: Rows are missing or damaged, or contradict each other.
    """
    search = ExtentSearch(ends_at, streams)
    schema = None if body is None else footprint_schema(body)
    try:
        for batch in batches_before(place, ends_at):
            if schema is not None and not batch.batch.schema.equals(schema):
                raise SchemaMismatch(
                    f"{place} holds {batch.batch.schema}, which differs from {schema}"
                )
            search.add(batch)
            if search.is_complete or batch.first_id <= from_id:
                break
        return search.extent()
    except FootprintsDamaged as damage:
        raise FileDamaged(place, str(damage)) from damage
