"""Records of a segment, newest first: what a piece of a file holds that ends where a record does.

Records do not say where the one before them begins. But each begins at a multiple of `ALIGNMENT`
with a magic, and tells its size: so the first place in a piece from which whole records lead
exactly to its end is where a record begins. Only such records count as have their checksum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

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
    for at in _with_magics(piece):
        records: list[LogRecord] = []
        end = at
        while isinstance(record := decode_record(piece[end:], schema), LogRecord):
            records.append(record)
            end += record.size
        if records and (is_torn or end == len(piece)):
            return at, records, end
    return None


def _with_magics(piece: memoryview) -> list[int]:
    """Where in a piece records may begin, rising. A last place that is cut short has none."""
    places = len(piece) // ALIGNMENT
    begins = np.frombuffer(piece, dtype="<u4", count=places * ALIGNMENT // 4)[:: ALIGNMENT // 4]
    magics = [int.from_bytes(magic, "little") for magic in RECORD_MAGICS]
    found: list[int] = (np.flatnonzero(np.isin(begins, magics)) * ALIGNMENT).tolist()
    return found
