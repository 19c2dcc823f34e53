"""The data node, one claim at a time."""

from __future__ import annotations

import pytest

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.data_node import DataNode, DataNodeIdentity
from holdfast.core.chunks.messages import ChunkId, Replica, StoredChunk
from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.machine import Effect, TimerFired

SETTINGS = ChunkSettings(chunk_bytes=64, piece_bytes=4, write_idle_ms=1_000, lease_ms=5_000)
NEXT = Replica("b", 9, "at b")
CHUNK = ChunkId("1-1")
ME = 7


def node(*chunks: StoredChunk) -> DataNode:
    made = DataNode(DataNodeIdentity("a", "a|1", 1, "h", "r", "at a"), SETTINGS, chunks)
    made.step(e.Started(), 0)
    made.step(m.Welcomed(1, ME), 0)
    return made


def piece(index: int, data: bytes, incarnation: int = ME, *, count: int = 2) -> e.Received:
    return e.Received(b"up", m.Piece(CHUNK, 0, incarnation, index, count, (NEXT,), data))


def stored(*pieces: bytes) -> StoredChunk:
    table = m.checksum_table([m.piece_checksum(p) for p in pieces])
    return StoredChunk(CHUNK, sum(map(len, pieces)), m.chunk_checksum(table))


def replies(effects: list[Effect]) -> list[m.Message]:
    return [effect.message for effect in effects if isinstance(effect, e.Reply)]


def test_pieces_are_written_and_passed_on_at_once() -> None:
    effects = node().step(piece(0, b"1234"), 1)
    onward = m.Piece(CHUNK, 0, NEXT.incarnation, 0, 2, (), b"1234")
    assert effects == [
        e.WritePiece(CHUNK, 0, 0, b"1234"),
        e.SendToEndpoint("at b", onward),
    ]


@pytest.mark.parametrize("is_sealed_first", [True, False])
def test_a_chunk_is_acknowledged_when_it_is_sealed_here_and_all_behind_have_it(
    is_sealed_first: bool,
) -> None:
    machine, whole = node(), stored(b"1234", b"56")
    machine.step(piece(0, b"1234"), 1)
    machine.step(piece(1, b"56"), 1)
    steps = [e.ChunkSealed(0, whole), m.ChunkAcked(0, NEXT.incarnation, whole)]
    first, second = steps if is_sealed_first else reversed(steps)
    assert replies(machine.step(first, 2)) == []
    assert replies(machine.step(second, 3)) == [m.ChunkAcked(0, ME, whole)]


def test_a_missing_piece_breaks_the_chain() -> None:
    machine = node()
    machine.step(piece(0, b"1234", count=3), 1)
    effects = machine.step(piece(2, b"56", count=3), 1)
    assert isinstance(replies(effects)[0], m.ChunkRefused)
    assert e.DropWrite(CHUNK, 0) in effects


def test_a_doubled_piece_is_dropped() -> None:
    machine = node()
    machine.step(piece(0, b"1234"), 1)
    assert machine.step(piece(0, b"1234"), 1) == []


def test_a_chain_that_stored_something_else_is_broken() -> None:
    machine, whole = node(), stored(b"1234", b"56")
    machine.step(piece(0, b"1234"), 1)
    machine.step(piece(1, b"56"), 1)
    machine.step(e.ChunkSealed(0, whole), 2)
    other = StoredChunk(CHUNK, 6, whole.checksum ^ 1)
    answer = replies(machine.step(m.ChunkAcked(0, NEXT.incarnation, other), 3))[0]
    assert isinstance(answer, m.ChunkRefused)


def test_pieces_for_another_incarnation_are_refused_and_counted() -> None:
    machine = node()
    assert isinstance(replies(machine.step(piece(0, b"1234", ME - 1), 1))[0], m.ChunkRefused)
    assert machine.statistics().stale_messages == 1


def test_a_full_disk_breaks_the_chain() -> None:
    machine = node()
    machine.step(piece(0, b"1234"), 1)
    answer = replies(machine.step(e.WriteFailed(CHUNK, 0, "No space left"), 2))[0]
    assert isinstance(answer, m.ChunkRefused)
    assert "No space left" in answer.reason


def test_a_chunk_of_which_nothing_more_comes_is_dropped() -> None:
    machine = node()
    machine.step(piece(0, b"1234"), 1)
    assert e.DropWrite(CHUNK, 0) in machine.step(TimerFired("alive"), 2_000)


def test_a_fenced_data_node_drops_what_it_receives_and_joins_with_what_it_has() -> None:
    kept = StoredChunk(ChunkId("1-9"), 4, 5)
    machine = node(kept)
    machine.step(piece(0, b"1234"), 1)
    effects = machine.step(m.Fenced(ME), 2)
    assert e.DropWrite(CHUNK, 0) in effects
    hello = next(x.message for x in effects if isinstance(x, e.SendToMaster))
    assert isinstance(hello, m.DataNodeJoined)
    assert (hello.join, hello.chunks) == (2, (kept,))


def test_a_chunk_sealed_after_the_hello_that_did_not_name_it_is_erased() -> None:
    machine, whole = node(), stored(b"1234", b"56")
    machine.step(piece(0, b"1234"), 1)
    machine.step(piece(1, b"56"), 1)
    machine.step(m.Fenced(ME), 2)
    assert machine.step(e.ChunkSealed(0, whole), 3) == [e.EraseChunk(whole)]


def test_a_damaged_piece_is_never_sent_and_the_master_is_told() -> None:
    whole = stored(b"1234", b"56")
    machine = node(whole)
    asked = e.Received(b"reader", m.PieceRequested(3, CHUNK, 0))
    load = next(x for x in machine.step(asked, 1) if isinstance(x, e.LoadPiece))
    table = m.checksum_table([m.piece_checksum(b"1234"), m.piece_checksum(b"56")])
    effects = machine.step(e.PieceLoaded(load.request_id, table, b"1235"), 2)
    assert isinstance(replies(effects)[0], m.PieceRefused)
    assert e.MarkDamaged(whole) in effects
    report = next(x.message for x in effects if isinstance(x, e.SendToMaster))
    assert isinstance(report, m.InventoryReported)
    assert report.damaged == (CHUNK,)
    assert isinstance(replies(machine.step(asked, 3))[0], m.PieceRefused)


def loads(effects: list[Effect]) -> list[tuple[ChunkId, int]]:
    return [(x.stored.chunk, x.index) for x in effects if isinstance(x, e.LoadPiece)]


def scrub(machine: DataNode, data: bytes, *pieces: bytes) -> tuple[ChunkId, int, list[Effect]]:
    """It checks one of its pieces, and the disk has this; which it was, and what follows."""
    effects = machine.step(TimerFired("scrub"), 1)
    load = next(x for x in effects if isinstance(x, e.LoadPiece))
    table = m.checksum_table([m.piece_checksum(piece) for piece in pieces])
    answer = e.PieceLoaded(load.request_id, table, data)
    return load.stored.chunk, load.index, machine.step(answer, 2)


def test_all_pieces_are_checked_again_and_again_though_nobody_reads() -> None:
    other = StoredChunk(ChunkId("1-2"), 2, stored(b"78").checksum)
    machine = node(stored(b"1234", b"56"), other)
    round_of = []
    for _ in range(2):
        for data, pieces in ((b"1234", (b"1234", b"56")), (b"56", (b"1234", b"56")), (b"78",) * 2):
            if isinstance(pieces, bytes):
                pieces = (pieces,)
            chunk, index, effects = scrub(machine, data, *pieces)
            assert effects == []
            round_of.append((chunk, index))
    assert round_of == [(CHUNK, 0), (CHUNK, 1), (other.chunk, 0)] * 2


def test_a_piece_that_has_rotted_is_found_before_anybody_reads_it() -> None:
    whole = stored(b"1234", b"56")
    machine = node(whole)
    _, _, effects = scrub(machine, b"1235", b"1234", b"56")
    assert replies(effects) == []
    assert e.MarkDamaged(whole) in effects
    report = next(x.message for x in effects if isinstance(x, e.SendToMaster))
    assert isinstance(report, m.InventoryReported)
    assert report.damaged == (CHUNK,)
    assert loads(machine.step(TimerFired("scrub"), 3)) == []


def test_who_reads_comes_first_and_what_was_deleted_is_not_checked() -> None:
    machine = node(stored(b"1234", b"56"))
    machine.step(e.Received(b"reader", m.PieceRequested(3, CHUNK, 0)), 1)
    assert loads(machine.step(TimerFired("scrub"), 2)) == []
    machine = node(stored(b"1234", b"56"))
    scrub(machine, b"1234", b"1234", b"56")
    machine.step(m.ChunksUnwanted(ME, 1, (CHUNK,)), 3)
    assert loads(machine.step(TimerFired("scrub"), 4)) == []


def test_an_old_order_to_delete_is_dropped() -> None:
    whole = stored(b"1234")
    machine = node(whole)
    machine.step(m.ChunksUnwanted(ME, 2, (ChunkId("1-5"),)), 1)
    assert machine.step(m.ChunksUnwanted(ME, 1, (CHUNK,)), 1) == []
    assert machine.step(m.ChunksUnwanted(ME, 3, (CHUNK,)), 1) == [e.EraseChunk(whole)]


def test_without_a_word_from_the_master_for_the_lease_it_ends() -> None:
    assert isinstance(node().step(TimerFired("alive"), 5_001)[0], e.EndProcess)


def test_a_chunk_that_the_disk_would_not_delete_is_deleted_when_the_master_says_so_again() -> None:
    whole = stored(b"1234")
    machine = node(whole)
    machine.step(m.ChunksUnwanted(ME, 1, (CHUNK,)), 1)
    assert machine.step(e.EraseFailed(whole), 2) == []
    assert machine.step(m.ChunksUnwanted(ME, 2, (CHUNK,)), 3) == [e.EraseChunk(whole)]
