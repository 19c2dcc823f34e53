"""The disk of a simulated data node: what was sealed survives a crash, what was not does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.chunks import effects as e
from holdfast.core.chunks.messages import checksum_table, chunk_checksum, piece_checksum

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import ChunkId, StoredChunk
    from holdfast.core.machine import Effect, Stimulus


@dataclass(slots=True)
class DiskFile:
    """A chunk's file.

    Attributes:
        stored: What its name says.
        data: Its bytes.
        table: Its table of checksums.
        is_damaged: Whether it has the name of a damaged chunk.
    """

    stored: StoredChunk
    data: bytearray
    table: bytes
    is_damaged: bool = False


@dataclass(slots=True)
class ChunkDisk:
    """Files by chunk.

    Attributes:
        piece_bytes: The store's.
        chunks: Whole chunks, damaged ones too.
        parts: What is being received.
        flipped: Chunks with a wrong bit.
        is_full: Whether writes are refused.
        is_read_only: Whether nothing can be deleted either.
        busy_until_us: When what waits will be done.
        waiting: How much waits.
    """

    piece_bytes: int
    chunks: dict[ChunkId, DiskFile] = field(default_factory=dict)
    parts: dict[tuple[ChunkId, int], bytearray] = field(default_factory=dict)
    flipped: dict[ChunkId, None] = field(default_factory=dict)
    is_full: bool = False
    is_read_only: bool = False
    busy_until_us: int = 0
    waiting: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return self.waiting == 0

    def found(self) -> tuple[tuple[StoredChunk, ...], tuple[StoredChunk, ...]]:
        """The chunks by their names: sound ones, damaged ones."""
        files = self.chunks.values()
        sound = tuple(file.stored for file in files if not file.is_damaged)
        return sound, tuple(file.stored for file in files if file.is_damaged)

    def perform(self, effect: Effect) -> Stimulus | None:
        """What a data node's disk does; the answer, if there is one."""
        match effect:
            case e.WritePiece():
                return self._write(effect)
            case e.SealChunk():
                return self._seal(effect)
            case e.DropWrite():
                self.parts.pop((effect.chunk, effect.write), None)
            case e.EraseChunk():
                if self.is_read_only:
                    return e.EraseFailed(effect.stored)
                self.chunks.pop(effect.stored.chunk, None)
                self.flipped.pop(effect.stored.chunk, None)
                return e.ChunkErased(effect.stored)
            case e.MarkDamaged():
                if effect.stored.chunk in self.chunks:
                    self.chunks[effect.stored.chunk].is_damaged = True
            case e.LoadPiece():
                return self._load(effect)
        return None

    def _write(self, effect: e.WritePiece) -> Stimulus | None:
        key = (effect.chunk, effect.write)
        if effect.index == 0:
            self.parts[key] = bytearray()
        if key not in self.parts:
            return None
        if self.is_full or self.is_read_only:
            del self.parts[key]
            return e.WriteFailed(*key, "No space left on device")
        self.parts[key] += effect.data
        return None

    def _seal(self, effect: e.SealChunk) -> Stimulus:
        key = (effect.stored.chunk, effect.write)
        data = self.parts.pop(key, None)
        if data is None or self.is_full or self.is_read_only:
            return e.WriteFailed(*key, "No space left on device")
        self.chunks[effect.stored.chunk] = DiskFile(effect.stored, data, effect.table)
        self.flipped.pop(effect.stored.chunk, None)
        return e.ChunkSealed(effect.write, effect.stored)

    def _load(self, effect: e.LoadPiece) -> Stimulus:
        file = self.chunks.get(effect.stored.chunk)
        if file is None:
            return e.LoadFailed(effect.request_id, "No such file or directory")
        at = effect.index * self.piece_bytes
        data = bytes(file.data[at : at + self.piece_bytes])
        return e.PieceLoaded(effect.request_id, file.table, data)

    # -- faults and looking -----------------------------------------------------------------

    def crash(self) -> None:
        """The process is gone; a restart forgets what was being received."""
        self.parts.clear()

    def wipe(self) -> None:
        """All is lost."""
        self.parts.clear()
        self.chunks.clear()
        self.flipped.clear()

    def flip(self, pick: Callable[[int, int], int]) -> bool:
        """A bit of a chunk turns over; whether there was any chunk."""
        if not self.chunks:
            return False
        chunk = list(self.chunks)[pick(0, len(self.chunks) - 1)]
        data = self.chunks[chunk].data
        data[pick(0, len(data) - 1)] ^= 1 << pick(0, 7)
        self.flipped[chunk] = None
        return True

    def rotten(self) -> list[ChunkId]:
        """Chunks that are not what they should be, and not known as damaged."""
        suspects = (self.chunks[chunk] for chunk in self.flipped if chunk in self.chunks)
        return [
            file.stored.chunk
            for file in suspects
            if not file.is_damaged and not self.is_sound(file.stored)
        ]

    def is_sound(self, stored: StoredChunk) -> bool:
        """Whether the chunk is here, and is what it should be."""
        file = self.chunks.get(stored.chunk)
        if file is None:
            return False
        size = self.piece_bytes
        pieces = [bytes(file.data[at : at + size]) for at in range(0, len(file.data), size)]
        table = checksum_table([piece_checksum(piece) for piece in pieces])
        return chunk_checksum(table) == stored.checksum

    def content(self, stored: StoredChunk) -> bytes:
        """The bytes of a chunk."""
        return bytes(self.chunks[stored.chunk].data)
