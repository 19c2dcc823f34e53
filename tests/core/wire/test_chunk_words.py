"""The chunk store's messages as bytes: back as they went, and nothing else accepted."""

from __future__ import annotations

import random

import pytest

from holdfast.core.chunks import messages as m
from holdfast.core.chunks.messages import ChunkId, Replica, StoredChunk
from holdfast.core.wire import chunk_words as words
from holdfast.core.wire.frames import CorruptFrame

ALL = (
    *words.TO_MASTER,
    *words.TO_DATA_NODE,
    *words.TO_CLIENT,
    *words.UP_THE_CHAIN,
    *words.TO_READER,
    *words.DOWN_THE_CHAIN,
)
CHUNK = StoredChunk(ChunkId("3-14"), 10, 2**64 - 1)
REPLICA = Replica("data-0", 1 << 40, "ipc:///tmp/x")
EXAMPLES = [
    m.DataNodeJoined("n", "t", 1, 2, "h", "r", "e", (CHUNK, CHUNK)),
    m.InventoryReported("n", 1, 2, (CHUNK,), (CHUNK.chunk,)),
    m.ObjectCommitRequested("c", "u", 4, "a-1/ö", (CHUNK,)),
    m.CopyWanted(1, 2, CHUNK.chunk, 3, REPLICA),
    m.ObjectLocated(5, (m.ChunkCopies(CHUNK, (REPLICA, REPLICA)),)),
    m.NamesListed(5, ("a", "b")),
    m.ObjectUnknown(5),
    m.ChunkAcked(1, 2, CHUNK),
    m.Piece(CHUNK.chunk, 1, 2, 3, 4, (REPLICA,), b"piece"),
    m.PieceAnswered(9, CHUNK.chunk, 3, b"12345678", b"piece"),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda x: type(x).__name__)
def test_a_message_comes_back_as_it_went(message: m.Message) -> None:
    assert words.decode(words.encode(message), ALL) == message


def test_every_message_that_is_no_piece_has_a_kind() -> None:
    assert {kind.__name__ for kind in ALL} == {
        *(kind.__name__ for kind in words.WORDS),
        "Piece",
        "PieceAnswered",
    }


def test_a_message_for_somebody_else_is_refused() -> None:
    parts = words.encode(m.ObjectUnknown(5))
    assert isinstance(words.decode(parts, words.TO_MASTER), CorruptFrame)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"[1]",
        b'["Nothing"]',
        b'["ObjectUnknown"]',
        b'["ObjectUnknown",-1]',
        b'["ObjectUnknown",1.0]',
        b'["ObjectUnknown",true]',
        b'["ObjectUnknown",18446744073709551616]',
        b'["ObjectUnknown",1,2]',
        b'["ChunksUnwanted",1,1,["../../etc"]]',
        b'["ChunksUnwanted",1,1,["1-01"]]',
        b'["NamesListed",1,"ab"]',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_no_word_is_refused(text: bytes) -> None:
    assert isinstance(words.decode([text], ALL), CorruptFrame)


def test_every_flipped_bit_and_every_cut_of_a_piece_is_noticed_or_harmless() -> None:
    message = m.Piece(CHUNK.chunk, 1, 2, 0, 1, (), b"piece of data")
    parts = words.encode(message)
    for part, whole in enumerate(parts):
        for bit in range(len(whole) * 8):
            broken = bytearray(whole)
            broken[bit // 8] ^= 1 << bit % 8
            changed = [bytes(broken) if n == part else p for n, p in enumerate(parts)]
            decoded = words.decode(changed, ALL)
            if part == 2:
                assert isinstance(decoded, CorruptFrame)
        for end in range(len(whole)):
            cut = [p[:end] if n == part else p for n, p in enumerate(parts)]
            decoded = words.decode(cut, ALL)
            assert isinstance(decoded, CorruptFrame), (part, end)


def test_any_bytes_are_a_message_or_corrupt() -> None:
    draw = random.Random(1)
    for _ in range(2_000):
        parts = [draw.randbytes(draw.randrange(0, 90)) for _ in range(draw.randrange(0, 5))]
        words.decode(parts, ALL)
