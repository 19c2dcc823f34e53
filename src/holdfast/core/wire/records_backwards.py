"""Records of a segment, newest first: what a piece of a file holds that ends where a record does.

Records do not say where the one before them begins. But each begins at a multiple of `ALIGNMENT`
with a magic, and tells its size: so the first place in a piece from which whole records lead
exactly to its end is where a record begins. Only such records count as have their checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.wire.log_records import ALIGNMENT, RECORD_MAGICS, LogRecord, decode_record

if TYPE_CHECKING:
    import pyarrow as pa


def records_up_to(
    piece: memoryview, schema: pa.Schema, *, is_torn: bool
) -> tuple[int, list[LogRecord], int] | None:
    """The most records that lead to the end of a piece.

    Args:
        piece: Bytes of a segment from a multiple of `ALIGNMENT` on.
        schema: Of the segment.
        is_torn: Whether something may follow the last record that is none.

    Returns:
        Where the first of them begins, the records, and where the last one ends; None: there is no
        record that is whole and leads there.
    """
    for at in range(0, len(piece), ALIGNMENT):
        if bytes(piece[at : at + len(RECORD_MAGICS[0])]) not in RECORD_MAGICS:
            continue
        records: list[LogRecord] = []
        end = at
        while isinstance(record := decode_record(piece[end:], schema), LogRecord):
            records.append(record)
            end += record.size
        if records and (is_torn or end == len(piece)):
            return at, records, end
    return None
