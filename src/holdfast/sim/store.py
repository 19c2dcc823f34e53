"""The checkpoint store: named objects that may be slow to write, refuse, rot or disappear.

Writers and readers put together and take apart checkpoints by the functions that the real shell
uses (core/wire/checkpoint_files, core/checkpoint/loading). A writer copies pages piece by piece
over virtual time, so that a node which writes to a frozen page in between is found out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.checkpoint.loading import PageLoader
from holdfast.core.haunit import events
from holdfast.core.haunit.restoration import LoadedCheckpoint
from holdfast.core.wire import manifests
from holdfast.core.wire.checkpoint_files import CheckpointFiles, ReadSpill, read_outputs
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.sim.disk import File, Pick

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from holdfast.core.haunit.prepared import OutputSegment, PreparedCheckpoint
    from holdfast.core.machine import Stimulus
    from holdfast.core.model.ids import CheckpointId, NodeId, StreamId
    from holdfast.core.recovery.restart_point import CheckpointRef

PLACES = "places in the store"
"""What chance decides of checkpoints that wait for their turn."""
_NEW_OBJECTS = 12
_SECTOR_BYTES = 512
_ROT_STRIDE = 8


class Unreadable(Exception):
    """A part of a checkpoint is missing or damaged."""


@dataclass(slots=True)
class SimulatedStore:
    """All objects, by name. What is written is durable; who dies while writing leaves a part."""

    _objects: dict[str, File] = field(default_factory=dict)
    _lost: dict[str, File] = field(default_factory=dict)

    def append(self, name: str, data: bytes) -> None:
        """Add to the end of an object that is being written."""
        home = self._lost if name in self._lost else self._objects
        home.setdefault(name, File()).data += data

    def get(self, name: str) -> memoryview:
        """The content of an object. Raises `Unreadable` if there is none."""
        file = self._objects.get(name)
        if file is None:
            raise Unreadable(f"{name} is missing")
        return memoryview(bytes(file.data))

    def found(self, node: NodeId) -> tuple[CheckpointId, ...]:
        """The checkpoints of a node that have objects."""
        return manifests.checkpoints_in(sorted(self._objects), node)

    def forget(self, node: NodeId, checkpoint: CheckpointId) -> None:
        """Delete all objects of a checkpoint."""
        for objects in (self._objects, self._lost):
            for name in [n for n in objects if manifests.parse_name(n) == (node, checkpoint)]:
                del objects[name]

    def flip(self, pick: Pick, node: NodeId | None) -> NodeId | None:
        """A sector of a new object goes bad, if there is any; whose it is."""
        name = self._new_object(pick, node)
        if name is None:
            return None
        _rot(self._objects[name], pick)
        return _owner(name)

    def spoil(self, pick: Pick, node: NodeId, checkpoint: CheckpointId) -> None:
        """A sector of an object of this checkpoint goes bad, if there is any."""
        of_it = (node, checkpoint)
        names = [n for n, f in self._objects.items() if f.data and manifests.parse_name(n) == of_it]
        if names:
            _rot(self._objects[names[pick(0, len(names) - 1)]], pick)

    def lose(self, pick: Pick, node: NodeId | None) -> NodeId | None:
        """A new object disappears, if there is any; whose it is."""
        name = self._new_object(pick, node)
        if name is None:
            return None
        self._lost[name] = self._objects.pop(name)
        return _owner(name)

    def _new_object(self, pick: Pick, node: NodeId | None) -> str | None:
        """One of those written last, of this node if it has any: whoever starts next reads them."""
        names = [name for name, file in self._objects.items() if file.data]
        names = [name for name in names if _owner(name) == node] or names
        return names[-1 - pick(0, min(len(names), _NEW_OBJECTS) - 1)] if names else None

    def restore(self) -> bool:
        """Bring back what was lost and mend what was flipped; whether there was anything."""
        had_damage = bool(self._lost)
        self._objects = {**self._lost, **self._objects}
        self._lost = {}
        return sum(file.restore() for file in self._objects.values()) > 0 or had_damage


def _rot(file: File, pick: Pick) -> None:
    sector = pick(0, (len(file.data) - 1) // _SECTOR_BYTES) * _SECTOR_BYTES
    for at in range(sector, min(sector + _SECTOR_BYTES, len(file.data)), _ROT_STRIDE):
        file.flip(at, 1 << pick(0, 7))


def _owner(name: str) -> NodeId | None:
    parsed = manifests.parse_name(name)
    return None if parsed is None else parsed[0]


class CheckpointWriting:
    """Writes one checkpoint, a piece at a time."""

    def __init__(
        self, store: SimulatedStore, prepared: PreparedCheckpoint, read_spill: ReadSpill
    ) -> None:
        """Begin; `read_spill` gives what an output queue has spilled."""
        self._store = store
        self._prepared = prepared
        self._files = CheckpointFiles(prepared)
        self._pieces = [
            (worker, piece)
            for worker in range(len(self._files.parts))
            for positions in self._files.pieces(worker)
            for piece in (positions[: len(positions) // 2], positions[len(positions) // 2 :])
            if len(piece)
        ]
        self._read_spill = read_spill
        self._segments: tuple[OutputSegment, ...] | None = None

    def step(self) -> Stimulus:
        """The next piece, or the end; what to tell the node."""
        prepared = self._prepared
        if self._segments is None:
            self._segments = self._write_outputs()
        if self._pieces:
            worker, positions = self._pieces.pop(0)
            words = self._files.pages(worker, positions)
            name = manifests.pages_name(prepared.node, prepared.checkpoint, worker)
            self._store.append(name, words.tobytes())
            return events.PagesCopied(prepared.checkpoint, positions)
        manifest, stored = self._files.finish(self._segments, created_ms=0)
        self._store.append(manifests.manifest_name(prepared.node, prepared.checkpoint), manifest)
        return events.CheckpointWritten(stored)

    def _write_outputs(self) -> tuple[OutputSegment, ...]:
        prepared = self._prepared
        parts, segments = self._files.outputs(self._read_spill)
        if segments:
            name = manifests.outputs_name(prepared.node, prepared.checkpoint)
            self._store.append(name, b"".join(bytes(part) for part in parts))
        return segments


def load_checkpoint(
    store: SimulatedStore,
    node: NodeId,
    ref: CheckpointRef,
    schemas: Mapping[StreamId, pa.Schema],
    state_bytes_max: int,
) -> LoadedCheckpoint:
    """A checkpoint with all its parts. Raises `Unreadable` when one is missing or damaged."""
    data = bytes(store.get(manifests.manifest_name(node, ref.checkpoint)))
    manifest = manifests.decode_manifest(data, ref.checksum)
    if isinstance(manifest, CorruptRecord):
        raise Unreadable(manifest.reason)
    loader = PageLoader(manifest.image, state_bytes_max)
    for run in loader.runs():
        name = manifests.pages_name(node, run.file.checkpoint, run.file.worker)
        part = store.get(name)[run.offset : run.offset + run.words.nbytes]
        if len(part) < run.words.nbytes:
            raise Unreadable(f"{name} is cut short")
        run.words.view("uint8")[:] = part
        if not run.is_whole():
            raise Unreadable(f"{name}: a page fails its checksum")
    files = {
        segment.checkpoint: store.get(manifests.outputs_name(node, segment.checkpoint))
        for segment in manifest.outputs
    }
    outputs = read_outputs(manifest, files, schemas)
    if isinstance(outputs, CorruptRecord):
        raise Unreadable(outputs.reason)
    return LoadedCheckpoint(loader.pages, manifest.image, manifest.outputs, outputs, manifest.notes)
