"""Opening a stream log wherever it lies: segments in a folder, parts behind a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import pyarrow as pa

from holdfast.core.wire.log_owners import Owners
from holdfast.core.wire.log_records import EncodeRecord, encode_record
from holdfast.shell.storage.beginnings import first_kept
from holdfast.shell.storage.log_follower import LogFollower
from holdfast.shell.storage.part_log import PartLogWriter
from holdfast.shell.storage.part_log_reader import PartLogReader
from holdfast.shell.storage.places import is_remote, local_path
from holdfast.shell.storage.stream_log import (
    SEGMENT_BYTES,
    StreamLogReader,
    StreamLogWriter,
    segments,
)


class LogWriter(Protocol):
    """Appends to a log as one incarnation; the methods are described at `StreamLogWriter`."""

    next_id: int
    boundary_us: int
    has_ended: bool

    def append(
        self,
        tuple_type: int,
        first_id: int,
        batch: pa.RecordBatch,
        boundary_us: int,
        created_us: int,
    ) -> None:
        """Put a batch behind the log's end; it is durable from the next `sync` on."""

    def end(self) -> None:
        """Nothing follows."""

    def sync(self) -> None:
        """Make all that was appended durable."""

    def publish(self) -> None:
        """Let readers see all that is durable."""

    def tidy(self) -> None:
        """Merge or remove files that readers need no more."""

    def skip_to(self, first_id: int) -> None:
        """Leave a gap: the next tuple has this id."""

    def trim(self, before: int) -> None:
        """Nobody needs the tuples before this id."""

    def close(self) -> None:
        """Give up the log's files."""


class OpenedLog(LogWriter, Protocol):
    """A log that was taken over.

    Attributes:
        owners: Of the log: whose tuples were found, and the writer.
    """

    owners: Owners


def open_reader(
    place: str,
    from_id: int = 0,
    *,
    is_sole: bool = False,
    is_finished: bool = False,
    is_tailing: bool = False,
) -> LogFollower:
    """Follow a log. What it does not find when it is asked was not there then.

    Args:
        place: Its folder or URL.
        from_id: The first tuple wanted.
        is_sole: As its writer was told.
        is_finished: Nobody writes to it any more.
        is_tailing: It will be asked again and again: where each look is a request to a store, it
            may find what is there a little later.
    """
    if is_remote(place):
        return PartLogReader(place, from_id, is_sole=is_sole, is_tailing=is_tailing)
    return StreamLogReader(local_path(place), from_id, is_finished=is_finished)


def open_kept(place: str) -> LogFollower:
    """Follow a log from the first tuple that is kept. See `open_reader` for the rest."""
    return open_reader(place, first_kept(place))


def open_writer(
    place: str,
    schema: pa.Schema,
    stream: str,
    incarnation: int,
    *,
    first_id: int | None = None,
    is_sole: bool = False,
    is_lasting: bool = True,
    encode: EncodeRecord = encode_record,
    segment_bytes: int = SEGMENT_BYTES,
    segment_s: float | None = None,
    switches_beside: bool = False,
    wanted: int = 0,
    tail: StreamLogReader | None = None,
) -> OpenedLog:
    """Go on writing a log.

    Args:
        place: The log's folder or URL.
        schema: Of the batches, time column included.
        stream: The stream's name.
        incarnation: Of the writer; must exceed that of every earlier one.
        first_id: For an empty log, the id of its first tuple; otherwise the log says.
        is_sole: The log has a unique name, and nobody else ever opens it to write.
        is_lasting: False: whoever writes it is the only one who reads it; nothing need be durable.
        encode: Makes records of tuples; not in an object store. A log that is written more often
            than read is best narrow.
        segment_bytes: From which size on another file is begun; not in an object store.
        segment_s: From which age on it is.
        switches_beside: Whether that waits for `tidy`, so that whoever appends need not.
        wanted: The id before which the log must not end.
        tail: What `open_tail` gave for the log.

    Raises:
        SchemaMismatch: The log holds tuples of another schema.
        SinkLacksTuples: It ends before `wanted`, and was not begun.
        StorageError: The log has a writer of this incarnation or a later one.
    """
    if is_remote(place):
        return PartLogWriter(
            place, schema, stream, incarnation, first_id=first_id, is_sole=is_sole, wanted=wanted
        )
    return StreamLogWriter(
        local_path(place),
        schema,
        stream,
        incarnation,
        first_id=first_id,
        is_lasting=is_lasting,
        encode=encode,
        segment_bytes=segment_bytes,
        segment_s=segment_s,
        switches_beside=switches_beside,
        wanted=wanted,
        tail=tail,
    )


def open_tail(place: str) -> StreamLogReader | None:
    """Follow the end of a log that may have to be taken over; None where that is no help.

    It begins with the newest segment: what it costs does not depend on how long the log is.
    """
    if is_remote(place):
        return None
    folder = local_path(place)
    first_id = max((segment.first_id for segment in segments(Path(folder))), default=0)
    return StreamLogReader(folder, first_id, skips=True)
