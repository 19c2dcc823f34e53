"""The headers of a log's segments, as they lie in files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.core.wire import log_records as records
from holdfast.shell.storage.small_files import open_regular, read_at

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.core.wire.log_records import CorruptRecord, Incomplete, SegmentHeader


def header_of(path: Path) -> SegmentHeader | CorruptRecord | Incomplete:
    """A segment's header, as far as it is there.

    Raises:
        FileNotFoundError: There is no such segment.
        StorageError: It cannot be read.
    """
    file = open_regular(path)
    try:
        return read_header(file, path)
    finally:
        os.close(file)


def has_records(path: Path) -> bool:
    """Whether whole records follow a header that is none; errors as of `header_of`."""
    file = open_regular(path)
    try:
        data = read_at(file, path, os.fstat(file).st_size, 0)
    finally:
        os.close(file)
    return records.has_record_beyond(memoryview(data), 0, None)


def read_header(file: int, path: Path) -> SegmentHeader | CorruptRecord | Incomplete:
    """The same of a segment that is open. Raises `StorageError`."""
    header = records.decode_segment_header(read_at(file, path, records.HEADER_READ_BYTES, 0))
    if isinstance(header, records.Incomplete):
        header = records.decode_segment_header(read_at(file, path, header.needed, 0))
    return header
