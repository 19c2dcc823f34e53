"""A stream log that one node alone writes and may read again: it is claimed first (claim.py)."""

from __future__ import annotations

import pyarrow as pa

from holdfast.core.wire.log_owners import Owners
from holdfast.core.wire.log_records import EncodeRecord, encode_record
from holdfast.shell.storage.claim import Claim
from holdfast.shell.storage.logs import open_writer
from holdfast.shell.storage.stream_log import SEGMENT_BYTES


class ClaimedLogWriter:
    """Appends to a claimed log as one incarnation; its calls are those of `StreamLogWriter`."""

    def __init__(
        self,
        place: str,
        schema: pa.Schema,
        stream: str,
        incarnation: int,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        encode: EncodeRecord = encode_record,
        switches_beside: bool = False,
        wanted: int = 0,
    ) -> None:
        """Claim the log, then find its end; args as of `open_writer`.

        Raises:
            LogSuperseded: A later incarnation has claimed it.
            SinkLacksTuples: It ends before `wanted`, and was not begun.
            StorageError: It cannot be read.
        """
        self._claim = Claim(place, incarnation)
        self._writer = open_writer(
            place,
            schema,
            stream,
            incarnation,
            segment_bytes=segment_bytes,
            encode=encode,
            switches_beside=switches_beside,
            wanted=wanted,
        )
        self._unneeded_before = self._trimmed_before = 0

    @property
    def next_id(self) -> int:
        """Number of the next row."""
        return self._writer.next_id

    @property
    def owners(self) -> Owners:
        """Whose rows were found, and the writer."""
        return self._writer.owners

    def append(
        self, kind: int, first_id: int, batch: pa.RecordBatch, boundary_us: int, created_us: int
    ) -> None:
        """Append a record."""
        self._writer.append(kind, first_id, batch, boundary_us, created_us)

    def sync(self) -> None:
        """Make what was appended count. Raises `LogSuperseded` if it may not."""
        self._writer.sync()
        self._claim.require_newest()

    def tidy(self) -> None:
        """Drop what nobody needs, and merge small parts."""
        before = self._unneeded_before
        if before > self._trimmed_before:
            self._writer.trim(before)
            self._trimmed_before = before
        self._writer.tidy()

    def trim(self, before: int) -> None:
        """Nobody needs what comes before a row: it goes with the next `tidy`, as far as is easy.

        Whoever appends does not wait for the store, or for a `sync` that is under way.
        """
        self._unneeded_before = max(self._unneeded_before, before)

    def close(self) -> None:
        """Write no more."""
        self._writer.close()
        self._claim.close()
