"""What crosses the channels of the chunk store. wire/chunk_words.py turns it into bytes and back.

Ids: an *upload* is one attempt to write one object, named by its client uniquely; a *chunk* is
named `<epoch of the master>-<number>`, anew for every attempt to place it, so that nothing ever
writes to a chunk twice. A data node's *incarnation* grows with every hello, over all epochs.

Words between the master and a data node carry numbers that grow (`sequence` upwards, `order`
downwards) within an incarnation; an older one that comes late is dropped. Else this could happen:
1. The master has X delete chunk c. 2. An older listing of X, with c in it, comes late. 3. The
master counts X among the holders of c again and, as that is one too many, has Y delete it. 4. Both
delete it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType

import xxhash

from holdfast.core.machine import Stimulus

if TYPE_CHECKING:
    from collections.abc import Sequence

ChunkId = NewType("ChunkId", str)
"""`<epoch>-<number>`; see `chunk_id` and `parse_chunk_id`."""


def chunk_id(epoch: int, number: int) -> ChunkId:
    """The name of a chunk."""
    return ChunkId(f"{epoch}-{number}")


def parse_chunk_id(text: str) -> tuple[int, int] | None:
    """The parts of a chunk's name; None: it is none."""
    epoch, _, number = text.partition("-")
    if not (_is_number(epoch) and _is_number(number)):
        return None
    return int(epoch), int(number)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18 and str(int(text)) == text


def piece_checksum(piece: bytes | memoryview) -> int:
    """The checksum of one piece."""
    return xxhash.xxh3_64_intdigest(piece)


def chunk_checksum(table: bytes) -> int:
    """The checksum of a chunk: that of its table."""
    return xxhash.xxh3_64_intdigest(table)


def checksum_table(checksums: Sequence[int]) -> bytes:
    """The checksums of a chunk's pieces, 8 bytes each, little endian."""
    return b"".join(checksum.to_bytes(8, "little") for checksum in checksums)


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it is on a disk.

    Attributes:
        chunk: Its name.
        size: Bytes, without the table.
        checksum: Of its table of checksums, so that any one piece can be checked with the table.
    """

    chunk: ChunkId
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Replica:
    """A data node that holds, or is to hold, a chunk."""

    node: str
    incarnation: int
    endpoint: str


@dataclass(frozen=True, slots=True)
class ChunkCopies:
    """A chunk of an object, and where it can be read."""

    chunk: StoredChunk
    replicas: tuple[Replica, ...]


@dataclass(frozen=True, slots=True)
class Home:
    """A machine where chunks of a data node may be."""

    node: str
    machine: str


class Message(Stimulus):
    """What one process of the chunk store tells another."""

    __slots__ = ()


# -- data node to master --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataNodeJoined(Message):
    """A data node has come up, or was fenced and begins anew.

    Attributes:
        node: Its name, the same over all its lives.
        task: Its process, unique; answers go there.
        join: Counts the hellos of this process that were not repetitions.
        launch: Number of the launch; the newest one counts.
        host: Where it runs; copies of a chunk go to different hosts if possible.
        rack: Peace's.
        endpoint: Where it takes pieces.
        chunks: All whole chunks in its folder.
    """

    node: str
    task: str
    join: int
    launch: int
    host: str
    rack: str
    endpoint: str
    chunks: tuple[StoredChunk, ...]


@dataclass(frozen=True, slots=True)
class DataNodeAlive(Message):
    """A data node lives.

    Attributes:
        node: Its name.
        task: Its process.
        incarnation: Its incarnation.
        refused_frames: What came to its socket and was no message for it, so far.
        refused_handshakes: Connections to its socket that did not prove the store's key, so far.
    """

    node: str
    task: str
    incarnation: int
    refused_frames: int = 0
    refused_handshakes: int = 0


@dataclass(frozen=True, slots=True)
class InventoryReported(Message):
    """What a data node holds by now.

    Attributes:
        node: Its name.
        incarnation: Its incarnation.
        sequence: Place among its reports.
        chunks: The sound ones.
        damaged: Those that failed a checksum, or could not be read.
    """

    node: str
    incarnation: int
    sequence: int
    chunks: tuple[StoredChunk, ...]
    damaged: tuple[ChunkId, ...]


@dataclass(frozen=True, slots=True)
class ChunkStored(Message):
    """A chunk has become durable at a data node."""

    node: str
    incarnation: int
    sequence: int
    chunk: StoredChunk


@dataclass(frozen=True, slots=True)
class ChunksDeleted(Message):
    """Chunks that the master did not want are gone, or were not there."""

    node: str
    incarnation: int
    sequence: int
    chunks: tuple[ChunkId, ...]


# -- client to master -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObjectCreateRequested(Message):
    """A client wants to write an object; said again unchanged, it is answered again.

    Attributes:
        client: Who.
        upload: The attempt.
        name: The object's.
        host: Where the client runs.
        reservation: Whose places its chunks take; empty: they are placed one by one.
    """

    client: str
    upload: str
    name: str
    host: str
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class PlacesRequested(Message):
    """A client will write a checkpoint, and wants places for all of it. [SGuard §5: (w, r, k)]

    Said again it is answered again; with another size it keeps its place among those that wait.

    Attributes:
        client: Who.
        reservation: Names the places, uniquely.
        host: Where the client runs.
        chunks: How many there will be.
    """

    client: str
    reservation: str
    host: str
    chunks: int


@dataclass(frozen=True, slots=True)
class PlacesReturned(Message):
    """The checkpoint is written, or given up: what is left of its places is for others."""

    client: str
    reservation: str


@dataclass(frozen=True, slots=True)
class ChunkPlacementRequested(Message):
    """A client has a chunk to write.

    Repeated with the same number while the chunk is being written, it asks whether the chain still
    stands; if not, the answer is a new one.
    """

    client: str
    upload: str
    request: int


@dataclass(frozen=True, slots=True)
class ChunkCompleted(Message):
    """All data nodes of a chain have the chunk: Peace may use their time for another."""

    client: str
    upload: str
    request: int


@dataclass(frozen=True, slots=True)
class ObjectCommitRequested(Message):
    """All chunks of an object are stored, in this order.

    Attributes:
        client: Who wrote it.
        upload: Its upload.
        epoch: Of the master that opened the upload: no later one may take it for its own.
        name: The object's name.
        chunks: Its chunks.
    """

    client: str
    upload: str
    epoch: int
    name: str
    chunks: tuple[StoredChunk, ...]


@dataclass(frozen=True, slots=True)
class UploadAborted(Message):
    """A client gives up an object."""

    client: str
    upload: str


@dataclass(frozen=True, slots=True)
class ObjectLocateRequested(Message):
    """A client wants to read an object."""

    client: str
    request: int
    name: str


@dataclass(frozen=True, slots=True)
class NamesRequested(Message):
    """A client wants all names that begin so."""

    client: str
    request: int
    prefix: str


@dataclass(frozen=True, slots=True)
class ObjectDeleteRequested(Message):
    """A client wants an object to be gone."""

    client: str
    request: int
    name: str


# -- master to data node --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcomed(Message):
    """The data node counts, under this incarnation."""

    join: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Fenced(Message):
    """This incarnation no longer counts; the data node may join again. 0: it has none."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Dismissed(Message):
    """The process is to end: it was replaced, or the store is stopped."""

    reason: str


@dataclass(frozen=True, slots=True)
class LeaseRenewed(Message):
    """The master lives and has heard."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class ChunksUnwanted(Message):
    """Delete chunks, and say so."""

    incarnation: int
    order: int
    chunks: tuple[ChunkId, ...]


@dataclass(frozen=True, slots=True)
class CopyWanted(Message):
    """Send a chunk to another data node, as write number `write`."""

    incarnation: int
    order: int
    chunk: ChunkId
    write: int
    target: Replica


# -- master to client -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UploadOpened(Message):
    """The name is the client's to write, in this epoch."""

    upload: str
    epoch: int


@dataclass(frozen=True, slots=True)
class UploadRefused(Message):
    """Nothing will come of the upload."""

    upload: str
    reason: str


@dataclass(frozen=True, slots=True)
class ChunkPlaced(Message):
    """Send the chunk to the first of the chain, now. A later answer replaces an earlier one."""

    upload: str
    request: int
    chunk: ChunkId
    chain: tuple[Replica, ...]


@dataclass(frozen=True, slots=True)
class PlacesGranted(Message):
    """The checkpoint may be written now."""

    reservation: str


@dataclass(frozen=True, slots=True)
class PlacesRefused(Message):
    """Not now: nothing of the checkpoint may be written.

    Attributes:
        reservation: Of whom.
        is_queued: Whether it will be granted later; else it has to be asked for again.
        reason: Why, for people.
    """

    reservation: str
    is_queued: bool
    reason: str


@dataclass(frozen=True, slots=True)
class PlacementDelayed(Message):
    """Not now; ask again. Request 0: it is the commit that has to wait."""

    upload: str
    request: int
    reason: str


@dataclass(frozen=True, slots=True)
class ObjectCommitted(Message):
    """The object exists, whatever fails from now on."""

    upload: str


@dataclass(frozen=True, slots=True)
class ObjectLocated(Message):
    """An object's chunks, in order.

    Attributes:
        request: The question.
        chunks: All.
        away: If one of them has no live copy: the homes where no data node is.
    """

    request: int
    chunks: tuple[ChunkCopies, ...]
    away: tuple[Home, ...] = ()


@dataclass(frozen=True, slots=True)
class ObjectUnknown(Message):
    """There is no such object."""

    request: int


@dataclass(frozen=True, slots=True)
class NamesListed(Message):
    """Names, sorted."""

    request: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ObjectDeleted(Message):
    """The object is gone, or never was."""

    request: int


# -- the data path --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece(Message):
    """A piece of a chunk on its way down the chain.

    Attributes:
        chunk: Of which chunk.
        write: 0 for the client's write, else the number of a copy.
        incarnation: The receiver's, as the sender knows it.
        index: From 0.
        count: How many pieces the chunk has.
        chain: Who gets it after the receiver.
        data: Its bytes; all but the last piece have the same size.
    """

    chunk: ChunkId
    write: int
    incarnation: int
    index: int
    count: int
    chain: tuple[Replica, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class ChunkAcked(Message):
    """The chunk is durable at the sender, and at all behind it in the chain."""

    write: int
    incarnation: int
    stored: StoredChunk


@dataclass(frozen=True, slots=True)
class ChunkRefused(Message):
    """The chain is broken at the sender or behind it: nothing will come of this write."""

    chunk: ChunkId
    write: int
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class PieceRequested(Message):
    """A client wants to read a piece."""

    request: int
    chunk: ChunkId
    index: int


@dataclass(frozen=True, slots=True)
class PieceAnswered(Message):
    """A piece, with the table that it can be checked by."""

    request: int
    chunk: ChunkId
    index: int
    table: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class PieceRefused(Message):
    """The sender has no such chunk, or cannot read it."""

    request: int
    chunk: ChunkId
    index: int
    reason: str
