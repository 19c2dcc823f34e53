"""Records that are written twice: into a checkpoint, and into the log that waits for it.

Results that wait for a line are in checkpoints meanwhile. Once the line has passed them they go to
their sink's log: as the same record, byte by byte. To encode one takes much longer than to write
it. So what a checkpoint has encoded is kept here until the log wants it.

A record is known by the very object that holds its rows, which nobody changes, and by all that its
header says. Whatever is not found is encoded. What nobody wants makes room for later records: a
sink that is no log of ours, or a log that has these rows already.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.wire.log_records import Parts, encode_narrow

if TYPE_CHECKING:
    import pyarrow as pa

BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _Kept:
    """A record; as long as it is here no other rows can take the place of its rows in memory."""

    batch: pa.RecordBatch
    header: tuple[Any, ...]
    parts: Parts
    size: int


class EncodedRecords:
    """See the module. `first` and `again` are each an `EncodeRecord`. Volatile: all fields."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """Keep at most so many bytes of records."""
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: OrderedDict[int, _Kept] = OrderedDict()  # by the rows' place in memory
        self._lock = threading.Lock()  # Checkpoints are written beside the node.

    def first(self, *header: Any, batch: pa.RecordBatch | None) -> Parts:
        """Encode a record, and keep it."""
        parts = encode_narrow(*header, batch=batch)
        if batch is not None:
            size = sum(len(part) for part in parts)
            with self._lock:
                self._forget(id(batch))
                self._kept[id(batch)] = _Kept(batch, header, parts, size)
                self._bytes += size
                while self._bytes > self._bytes_max:
                    self._forget(next(iter(self._kept)))
        return parts

    def again(self, *header: Any, batch: pa.RecordBatch | None) -> Parts:
        """A record that may be kept; it is no more."""
        with self._lock:
            kept = self._forget(id(batch))
        if kept is not None and kept.batch is batch and kept.header == header:
            return kept.parts
        return encode_narrow(*header, batch=batch)

    def _forget(self, place: int) -> _Kept | None:
        kept = self._kept.pop(place, None)
        if kept is not None:
            self._bytes -= kept.size
        return kept
