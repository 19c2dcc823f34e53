"""What the shells of the chunk store must do. Timers are those of core/machine.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.machine import Effect, Stimulus

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import ChunkId, Message, StoredChunk


# -- of the master --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendToDataNode(Effect):
    """Tell a data node's process; the word may be lost."""

    task: str
    message: Message


@dataclass(frozen=True, slots=True)
class SendToClient(Effect):
    """Tell a client; the word may be lost."""

    client: str
    message: Message


@dataclass(frozen=True, slots=True)
class WriteJournal(Effect):
    """Make entries durable, in this order; answered by `JournalWritten`."""

    request_id: int
    entries: tuple[dict[str, object], ...]


@dataclass(frozen=True, slots=True)
class JournalWritten(Stimulus):
    """The entries of a `WriteJournal` are durable."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Started(Stimulus):
    """The machine may begin."""


# -- of data nodes and clients --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendToMaster(Effect):
    """Tell the master; the word may be lost."""

    message: Message


@dataclass(frozen=True, slots=True)
class SendToEndpoint(Effect):
    """Tell the data node that listens there; it answers on the same way."""

    endpoint: str
    message: Message


@dataclass(frozen=True, slots=True)
class Reply(Effect):
    """Answer whoever sent a message on the data path."""

    sender: bytes
    message: Message


@dataclass(frozen=True, slots=True)
class Received(Stimulus):
    """A message on the data path from one who waits for an answer: a client or a data node."""

    sender: bytes
    message: Message


@dataclass(frozen=True, slots=True)
class WritePiece(Effect):
    """Append to the file of a chunk that is being received; index 0 begins it.

    There is no answer, unless it fails: `WriteFailed`.
    """

    chunk: ChunkId
    write: int
    index: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SealChunk(Effect):
    """Append the table, make the file durable, and only then give it the chunk's name.

    Answered by `ChunkSealed`, or `WriteFailed`.
    """

    write: int
    stored: StoredChunk
    table: bytes


@dataclass(frozen=True, slots=True)
class DropWrite(Effect):
    """Forget a file that is being received."""

    chunk: ChunkId
    write: int


@dataclass(frozen=True, slots=True)
class EraseChunk(Effect):
    """Delete a chunk; answered by `ChunkErased`, also when it is gone already, or `EraseFailed`."""

    stored: StoredChunk


@dataclass(frozen=True, slots=True)
class MarkDamaged(Effect):
    """Give a chunk a name by which it is known as damaged after a restart too; no answer."""

    stored: StoredChunk


@dataclass(frozen=True, slots=True)
class LoadPiece(Effect):
    """Read a piece and the table; answered by `PieceLoaded` or `LoadFailed`."""

    request_id: int
    stored: StoredChunk
    index: int


@dataclass(frozen=True, slots=True)
class EndProcess(Effect):
    """The data node is to end."""

    reason: str


@dataclass(frozen=True, slots=True)
class ChunkSealed(Stimulus):
    """A chunk is durable here."""

    write: int
    stored: StoredChunk


@dataclass(frozen=True, slots=True)
class WriteFailed(Stimulus):
    """The disk refused a write."""

    chunk: ChunkId
    write: int
    reason: str


@dataclass(frozen=True, slots=True)
class ChunkErased(Stimulus):
    """A chunk's file is gone."""

    stored: StoredChunk


@dataclass(frozen=True, slots=True)
class EraseFailed(Stimulus):
    """The disk refused to delete a chunk: its file may still be there."""

    stored: StoredChunk


@dataclass(frozen=True, slots=True)
class PieceLoaded(Stimulus):
    """A piece and the table, as they are on the disk."""

    request_id: int
    table: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class LoadFailed(Stimulus):
    """The file is missing, cut short, or cannot be read."""

    request_id: int
    reason: str
