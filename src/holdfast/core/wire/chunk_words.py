"""The chunk store's messages as bytes: words are JSON, pieces have a fixed header.

A word is its class's name and its fields, in order (typed_records.py). Decoding never raises: what
is no message gives `CorruptFrame`. Byte by byte in docs/protocols/chunk_store.md.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final

import xxhash

from holdfast.core.chunks import messages as m
from holdfast.core.chunks.settings import PIECE_BYTES_MAX
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.typed_records import RecordCodec, Unfit

if TYPE_CHECKING:
    from collections.abc import Sequence

TO_MASTER: Final = (
    m.DataNodeJoined,
    m.DataNodeAlive,
    m.InventoryReported,
    m.ChunkStored,
    m.ChunksDeleted,
    m.ObjectCreateRequested,
    m.PlacesRequested,
    m.PlacesReturned,
    m.ChunkPlacementRequested,
    m.ChunkCompleted,
    m.ObjectCommitRequested,
    m.UploadAborted,
    m.ObjectLocateRequested,
    m.NamesRequested,
    m.ObjectDeleteRequested,
)
TO_DATA_NODE: Final = (
    m.Welcomed,
    m.Fenced,
    m.Dismissed,
    m.LeaseRenewed,
    m.ChunksUnwanted,
    m.CopyWanted,
)
TO_CLIENT: Final = (
    m.UploadOpened,
    m.UploadRefused,
    m.PlacesGranted,
    m.PlacesRefused,
    m.ChunkPlaced,
    m.PlacementDelayed,
    m.ObjectCommitted,
    m.ObjectLocated,
    m.ObjectUnknown,
    m.NamesListed,
    m.ObjectDeleted,
)
UP_THE_CHAIN: Final = (m.ChunkAcked, m.ChunkRefused)
TO_READER: Final = (m.PieceAnswered, m.PieceRefused)
DOWN_THE_CHAIN: Final = (m.Piece, m.PieceRequested)

WORD_BYTES_MAX: Final = 64 << 20
"""Of a word: a data node lists all its chunks in one."""
PIECE_FRAME_BYTES_MAX: Final = PIECE_BYTES_MAX + 64
"""Of a part of what data nodes are sent."""
_TEXT_MAX: Final = 4_096
_NUMBER_MAX: Final = 2**64
_MAGIC: Final = 0x4348  # "HC", little endian
_VERSION: Final = 2
_PIECE: Final = 1
_ANSWER: Final = 2
# magic, version, kind; chunk's epoch and number; write or request; incarnation; index, count, size;
# checksum of everything
_HEADER: Final = struct.Struct("<HBBxxxxQQQQIIIxxxxQ")


def encode(message: m.Message) -> list[bytes]:
    """The parts of a message."""
    if isinstance(message, m.Piece):
        chain = json.dumps([_CODEC.values(replica) for replica in message.chain]).encode()
        numbers = (message.write, message.incarnation, message.index, message.count)
        header = _header(_PIECE, message, numbers, chain)
        return [header, chain, message.data]
    if isinstance(message, m.PieceAnswered):
        numbers = (message.request, 0, message.index, 0)
        header = _header(_ANSWER, message, numbers, message.table)
        return [header, message.table, message.data]
    return [_CODEC.encode(message)]


def decode(
    parts: Sequence[bytes | memoryview], kinds: tuple[type[m.Message], ...]
) -> m.Message | CorruptFrame:
    """A message of one of these classes."""
    if len(parts) == 3:
        message = _decode_piece(parts)
    elif len(parts) == 1:
        message = _decode_word(bytes(parts[0]))
    else:
        return CorruptFrame(f"{len(parts)} parts")
    if isinstance(message, (CorruptFrame, *kinds)):
        return message
    return CorruptFrame(f"{type(message).__name__} is not for this receiver")


# -- words ----------------------------------------------------------------------------------


def _decode_word(text: bytes) -> m.Message | CorruptFrame:
    made = _CODEC.decode(text)
    if isinstance(made, m.Message | CorruptFrame):
        return made
    return CorruptFrame("no message")


def _chunk_name(value: object) -> object:
    if not isinstance(value, str) or m.parse_chunk_id(value) is None:
        raise Unfit("no name of a chunk")
    return value


def _number(value: object) -> object:
    if type(value) is not int or not 0 <= value < _NUMBER_MAX:
        raise Unfit("no number")
    return value


def _flag(value: object) -> object:
    if type(value) is not bool:
        raise Unfit("neither true nor false")
    return value


def _text(value: object) -> object:
    if not isinstance(value, str) or len(value) > _TEXT_MAX:
        raise Unfit("no text, or a long one")
    return value


WORDS: Final = tuple(
    kind
    for kind in (*TO_MASTER, *TO_DATA_NODE, *TO_CLIENT, *UP_THE_CHAIN, *TO_READER, *DOWN_THE_CHAIN)
    if kind not in (m.Piece, m.PieceAnswered)
)
_CODEC: Final = RecordCodec(WORDS, {m.ChunkId: _chunk_name, int: _number, str: _text, bool: _flag})


# -- pieces ---------------------------------------------------------------------------------


def _header(
    kind: int,
    message: m.Piece | m.PieceAnswered,
    numbers: tuple[int, int, int, int],
    middle: bytes,
) -> bytes:
    """`numbers`: write or request, incarnation, index, count."""
    epoch, chunk = m.parse_chunk_id(message.chunk) or (0, 0)
    data = message.data
    header = _HEADER.pack(_MAGIC, _VERSION, kind, epoch, chunk, *numbers, len(data), 0)
    return header[:-8] + _checksum(header, middle, data).to_bytes(8, "little")


def _checksum(header: bytes, middle: bytes, data: bytes | memoryview) -> int:
    """Of all three parts: the header without its last field, the chain or table, the data."""
    return xxhash.xxh3_64_intdigest(header[:-8] + middle) ^ m.piece_checksum(data)


def _decode_piece(parts: Sequence[bytes | memoryview]) -> m.Message | CorruptFrame:
    header, middle, data = bytes(parts[0]), bytes(parts[1]), parts[2]
    if len(header) != _HEADER.size:
        return CorruptFrame(f"a header of {len(header)} bytes")
    unpacked = _HEADER.unpack(header)
    magic, version, kind, epoch, number, request, incarnation, index, count, size, seal = unpacked
    if (magic, version) != (_MAGIC, _VERSION):
        return CorruptFrame("another magic or version")
    if len(data) != size or size > PIECE_BYTES_MAX:
        return CorruptFrame(f"{len(data)} bytes, announced as {size}")
    if _checksum(header, middle, data) != seal:
        return CorruptFrame("a piece fails its checksum")
    chunk = m.chunk_id(epoch, number)
    if kind == _ANSWER:
        return m.PieceAnswered(request, chunk, index, middle, bytes(data))
    if kind != _PIECE or index >= count:
        return CorruptFrame(f"kind {kind}, piece {index} of {count}")
    chain = _decode_chain(middle)
    if isinstance(chain, CorruptFrame):
        return chain
    return m.Piece(chunk, request, incarnation, index, count, chain, bytes(data))


def _decode_chain(text: bytes) -> tuple[m.Replica, ...] | CorruptFrame:
    try:
        values = json.loads(text)
        if not isinstance(values, list):
            return CorruptFrame("no chain")
        chain = [_CODEC.record(m.Replica, value) for value in values]
    except (ValueError, RecursionError) as error:
        return CorruptFrame(str(error)[:200])
    return tuple(each for each in chain if isinstance(each, m.Replica))
