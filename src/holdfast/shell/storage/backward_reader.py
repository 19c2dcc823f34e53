"""A stream log read backwards, in pieces, as far as somebody wants. [CEC "Constructing an EC"]

Of a folder's segments 256 KiB at a time are read, more only where one record is longer. Behind a
URL a log lies in parts, of which one is read at a time. What a crash has torn off an end is no
record.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.core.model.tuples import TupleBatch, TupleType
from holdfast.core.wire import log_records
from holdfast.core.wire.log_records import LogRecord, SegmentHeader
from holdfast.core.wire.records_backwards import records_up_to
from holdfast.shell.storage.errors import StreamLogCorrupt, TuplesMissing
from holdfast.shell.storage.part_log_reader import parts_backwards
from holdfast.shell.storage.places import is_remote, local_path
from holdfast.shell.storage.segment_headers import read_header
from holdfast.shell.storage.small_files import open_regular, read_at
from holdfast.shell.storage.stream_log import Segment, segments

PIECE_BYTES: Final = 256 << 10


def batches_before(place: str, before: int) -> Iterator[TupleBatch]:
    """The tuples of a log before an id, newest record first, each as it was appended.

    Args:
        place: The log's folder or URL.
        before: The id behind the first record wanted.

    Raises:
        StorageError: A record is damaged, or tuples are missing.
    """
    found = parts_backwards(place, before) if is_remote(place) else _of_folder(place, before)
    for record, superseded_from in found:
        if record.batch is None or not record.count or record.first_id >= superseded_from:
            continue
        if record.first_id >= before:
            continue
        if record.first_id + record.count < before:
            raise TuplesMissing(place, record.first_id + record.count, before)
        before = record.first_id
        times = record.boundary_us, record.created_us
        kind = TupleType(record.tuple_type)
        yield TupleBatch(record.first_id, record.batch, *times, kind)


def _of_folder(place: str, before: int) -> Iterator[tuple[LogRecord, int]]:
    for segment in reversed(segments(Path(local_path(place)))):
        if segment.first_id < before:
            for record in _of_segment(segment):
                yield record, segment.superseded_from


def _of_segment(segment: Segment) -> Iterator[LogRecord]:
    """Its records, newest first."""
    try:
        file = open_regular(segment.path)
    except FileNotFoundError:  # Trimmed just now: whoever wants its tuples misses them.
        return
    try:
        header = _header(file, segment)
        end, is_torn = os.fstat(file).st_size, True
        while end > header.size:
            records, end = _piece(file, segment, header, end, is_torn=is_torn)
            yield from reversed(records)
            is_torn = False
    finally:
        os.close(file)


def _header(file: int, segment: Segment) -> SegmentHeader:
    header = read_header(file, segment.path)
    if not isinstance(header, SegmentHeader):
        raise StreamLogCorrupt(str(segment.path), 0, "no whole header")
    return header


def _piece(
    file: int, segment: Segment, header: SegmentHeader, end: int, *, is_torn: bool
) -> tuple[list[LogRecord], int]:
    """The records of a piece that ends there, one at least, and where they begin.

    None of a segment with nothing but a torn record.
    """
    size = PIECE_BYTES
    while True:
        aligned = (end - size) // log_records.ALIGNMENT * log_records.ALIGNMENT
        begin = max(header.size, aligned)
        piece = memoryview(read_at(file, segment.path, end - begin, begin))
        found = records_up_to(piece, header.schema, is_torn=is_torn)
        is_first = begin == header.size
        if found is not None and (not is_first or found[0] == 0):
            at, records, stop = found
            if log_records.has_record_beyond(piece, stop, header.schema):
                raise StreamLogCorrupt(str(segment.path), begin + stop, "a record is damaged")
            return records, begin + at
        if is_first and found is None and is_torn:
            return [], header.size
        if is_first:
            raise StreamLogCorrupt(str(segment.path), begin, "a record is damaged")
        size *= 2
