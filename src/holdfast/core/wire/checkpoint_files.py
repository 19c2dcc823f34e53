"""The parts of a checkpoint: pages and output tuples to bytes, and back. [SGuard §4.4]

Whoever writes a checkpoint, in a Spark task or in the simulator, copies pages with
`CheckpointFiles.pages`, encodes the output tuples, and gets the manifest in the end; whoever reads
one uses `read_outputs` and core/checkpoint/loading.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.checkpoint.page_checksum import checksums
from holdfast.core.checkpoint.page_image import (
    next_image,
    page_seeds,
    split_among_workers,
)
from holdfast.core.haunit.prepared import OutputSegment, PreparedCheckpoint, StoredCheckpoint
from holdfast.core.model.tuples import TupleBatch, between
from holdfast.core.state import kernels
from holdfast.core.wire.log_records import (
    CorruptRecord,
    EncodeRecord,
    LogRecord,
    RecordKind,
    decode_record,
    encode_narrow,
)
from holdfast.core.wire.manifests import Manifest, encode_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from holdfast.core.model.ids import CheckpointId, StreamId

ReadSpill = Callable[["StreamId", int, int], "tuple[TupleBatch, ...]"]
"""Gives the tuples [from, to) of an output stream that its queue has spilled."""
_MANIFEST_BYTES: Final = 1 << 10
"""At least; a larger one's further chunks are placed one by one."""
PIECE_BYTES: Final = 1 << 20
"""Pages are copied, written and thawed in pieces of about this size."""


class CheckpointFiles:
    """Turns one prepared checkpoint into bytes. Workers may copy pages side by side."""

    def __init__(self, prepared: PreparedCheckpoint) -> None:
        """Split the pages among the workers."""
        self.prepared = prepared
        self.parts = split_among_workers(prepared.snapshot, prepared.workers)
        self._seeds = page_seeds(prepared.snapshot.page_sets, prepared.snapshot.counts)
        self._page_words = prepared.page_bytes // 8
        self._sums: list[list[np.ndarray]] = [[] for _ in self.parts]

    def sizes(self) -> list[int]:
        """The bytes of all files, about: tuples that were spilled count nothing."""
        outputs = sum(b.nbytes for wanted in self.prepared.outputs for b in wanted.batches)
        pages = [len(part) * self.prepared.page_bytes for part in self.parts]
        return [outputs, *pages, _MANIFEST_BYTES]

    def pieces(self, worker: int) -> list[np.ndarray]:
        """The positions that a worker writes, piece by piece."""
        size = max(1, PIECE_BYTES // self.prepared.page_bytes)
        part = self.parts[worker]
        return [part[at : at + size] for at in range(0, len(part), size)]

    def pages(self, worker: int, positions: np.ndarray) -> np.ndarray:
        """Copy the next piece of a worker; the words to be written, int64. Needs no lock."""
        words = self._page_words
        shift = words.bit_length() - 1
        copied = np.empty(len(positions) * words, dtype=np.int64)
        snapshot = self.prepared.snapshot
        kernels.copy_pages(self.prepared.arena, shift, snapshot.pages[positions], copied)
        numbers = np.arange(len(positions), dtype=np.int64)
        self._sums[worker].append(checksums(copied, shift, numbers, self._seeds[positions]))
        return copied

    def outputs(
        self, read_spill: ReadSpill, encode_held: EncodeRecord = encode_narrow
    ) -> tuple[list[bytes | pa.Buffer], tuple[OutputSegment, ...]]:
        """The output tuples as parts of one file, and where each stream's lie in it.

        Args:
            read_spill: Reads what a queue has spilled; whatever it raises is raised.
            encode_held: Makes records of what waits for its sink's log.
        """
        parts: list[bytes | pa.Buffer] = []
        segments: list[OutputSegment] = []
        offset = 0
        checkpoint = self.prepared.checkpoint
        for wanted in self.prepared.outputs:
            begin, encode = offset, encode_held if wanted.is_held else encode_narrow
            spilled: tuple[TupleBatch, ...] = ()
            if wanted.from_id < wanted.in_memory_from:
                spilled = read_spill(wanted.stream, wanted.from_id, wanted.in_memory_from)
            for batch in (*spilled, *wanted.batches):
                record = encode(
                    RecordKind.DATA,
                    batch.tuple_type,
                    checkpoint.incarnation,
                    batch.first_id,
                    batch.boundary_us,
                    batch.created_us,
                    batch=batch.batch,
                )
                parts += record
                offset += sum(len(part) for part in record)
            segments.append(
                OutputSegment(
                    wanted.stream, wanted.from_id, wanted.to_id, checkpoint, begin, offset - begin
                )
            )
        return parts, tuple(segments)

    def finish(
        self, outputs: tuple[OutputSegment, ...], created_ms: int
    ) -> tuple[bytes, StoredCheckpoint]:
        """The manifest, once all workers have copied their pages; and what to tell the node."""
        prepared = self.prepared
        written = [
            (part, np.concatenate(sums)) for part, sums in zip(self.parts, self._sums, strict=True)
        ]
        image = next_image(
            prepared.snapshot, prepared.base, prepared.page_bytes, prepared.checkpoint, written
        )
        segments = (*prepared.kept_outputs, *outputs)
        written_bytes = sum(len(part) for part in self.parts) * prepared.page_bytes
        written_bytes += sum(segment.size for segment in outputs)
        manifest, checksum = encode_manifest(
            Manifest(
                prepared.node,
                prepared.checkpoint,
                prepared.point,
                image,
                segments,
                created_ms,
                written_bytes,
                prepared.notes,
            )
        )
        return manifest, StoredCheckpoint(
            prepared.checkpoint, checksum, image, segments, written_bytes + len(manifest)
        )


def read_outputs(
    manifest: Manifest,
    files: Mapping[CheckpointId, memoryview],
    schemas: Mapping[StreamId, pa.Schema],
) -> dict[StreamId, tuple[TupleBatch, ...]] | CorruptRecord:
    """The output tuples of a checkpoint per stream, up to the cut.

    Args:
        manifest: Of the checkpoint.
        files: The files of output tuples of all checkpoints that it refers to.
        schemas: Per stream, time column included.
    """
    outputs: dict[StreamId, list[TupleBatch]] = {}
    for segment in manifest.outputs:
        data = files[segment.checkpoint][segment.offset : segment.offset + segment.size]
        batches = _decoded(data, schemas[segment.stream])
        if isinstance(batches, CorruptRecord):
            return batches
        held = (batches[0].first_id, batches[-1].next_id) if batches else (-1, -1)
        if held[0] > segment.from_id or held[1] < segment.to_id:
            return CorruptRecord(f"output tuples of {segment.stream} are missing")
        outputs.setdefault(segment.stream, []).extend(
            between(batches, segment.from_id, segment.to_id)
        )
    for stream, found in outputs.items():
        ids = [found[0].first_id if found else 0, *(batch.next_id for batch in found)]
        firsts = [batch.first_id for batch in found]
        if ids[:-1] != firsts or ids[-1] != manifest.point.next_ids[stream]:
            return CorruptRecord(f"output tuples of {stream} are missing")
    return {stream: tuple(found) for stream, found in outputs.items()}


def _decoded(data: memoryview, schema: pa.Schema) -> list[TupleBatch] | CorruptRecord:
    batches: list[TupleBatch] = []
    at = 0
    while at < len(data):
        record = decode_record(data[at:], schema)
        if not isinstance(record, LogRecord) or record.batch is None:
            reason = record.reason if isinstance(record, CorruptRecord) else "cut short"
            return CorruptRecord(f"output tuples: {reason}")
        kind, boundary_us = record.tuple_type, record.boundary_us
        batches.append(
            TupleBatch(record.first_id, record.batch, boundary_us, record.created_us, kind)
        )
        at += record.size
    return batches
