"""A data node: receives chunks, passes them down the chain, serves their pieces. [SGuard §2.2]

Theory of operation. Towards the master it is in one of these states:

    JOINING --Welcomed--> SERVING --Fenced--> JOINING;  any --Dismissed, lease over--> (end)

It tells the master its *inventory*, a numbered list of all it holds. Chunks come by *chain
replication*:

- A chunk comes in pieces, in order. Each is written, and passed on to the next of the chain, at
  once. After the last one the chunk is sealed: table of checksums, fsync, then its name. It is
  acknowledged upstream when it is sealed here *and* acknowledged by the next of the chain: so the
  client hears of it when all have it.
- Whatever goes wrong breaks the chain: a piece is missing, the disk refuses, the next refuses or
  stored something else. It is refused upstream at once, and what was written is dropped. Nothing
  is repaired in the middle; the client gets a new chunk id and a new chain.
- A chunk of which nothing more comes is dropped after `write_idle_ms`. One that was sealed stays,
  though the chain broke behind it: the master deletes it when it hears of it.
- A piece is read and checked with the table, and the table with the checksum in the chunk's name.
  One that fails, or cannot be read, makes the chunk damaged: it is refused from then on, marked on
  the disk, and the master is told. The client checks once more. When nobody reads, the data
  node checks its pieces itself, to find rot while there are other copies (scrubbing.py).
- Every piece on its way names the receiver's incarnation; another one is refused and counted. So
  a paused data node that wakes up after it was replaced takes nothing, and when fenced it drops
  all it was receiving, and joins again with what it holds.
- Orders of the master are numbered; one older than the newest is dropped. Who sends a chunk to
  another data node (`CopyWanted`) sends it as a client does, and the receiver reports it.

Reads name no incarnation: a chunk never changes, and the client checks what it gets.

Invariants: no chunk is acknowledged, reported or served that is not sealed; what is being received
is bounded by `writes_max` chunks, what is being read by `reads_max` pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.scrubbing import Scrubber
from holdfast.core.errors import InvariantViolation
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import ChunkId, Replica, StoredChunk
    from holdfast.core.chunks.settings import ChunkSettings

_ALIVE: Final = "alive"
_SCRUB: Final = "scrub"
_WriteKey = tuple["ChunkId", int]


@dataclass(frozen=True, slots=True)
class DataNodeIdentity:
    """Who a data node is; see `DataNodeJoined`."""

    node: str
    task: str
    launch: int
    host: str
    rack: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class DataNodeStatistics:
    """What a data node holds and does.

    Attributes:
        incarnation: 0 while it does not count.
        chunks: Sound ones.
        damaged: Damaged ones.
        writes: Chunks being received.
        stale_messages: Refused for their incarnation since the start.
        broken_chains: Writes given up since the start.
    """

    incarnation: int
    chunks: int
    damaged: int
    writes: int
    stale_messages: int
    broken_chains: int


@dataclass(slots=True)
class _Write:
    """A chunk that is being received.

    Attributes:
        sender: Who waits for the answer.
        count: How many pieces it has.
        chain: Who gets it after this data node.
        heard_ms: When the newest piece came.
        checksums: Of the pieces that came.
        size: Bytes that came.
        stored: What it is; None while pieces are missing.
        is_sealed: Whether it is durable here.
        is_passed_on: Whether all behind have it.
    """

    sender: bytes
    count: int
    chain: tuple[Replica, ...]
    heard_ms: int
    checksums: list[int] = field(default_factory=list)
    size: int = 0
    stored: StoredChunk | None = None
    is_sealed: bool = False
    is_passed_on: bool = False


@dataclass(frozen=True, slots=True)
class _Load:
    """A piece that is being read: for a reader, for another data node, or only to be checked."""

    stored: StoredChunk
    index: int
    sender: bytes = b""
    request: int = 0
    copy: m.CopyWanted | None = None


class DataNode:
    """The machine of one process. Durable: the chunks in its folder. Volatile: the rest."""

    def __init__(
        self,
        identity: DataNodeIdentity,
        settings: ChunkSettings,
        chunks: tuple[StoredChunk, ...],
        damaged: tuple[StoredChunk, ...] = (),
    ) -> None:
        """Begin with the chunks found in the folder."""
        self._identity = identity
        self._settings = settings
        self._chunks = {stored.chunk: stored for stored in chunks}
        self._damaged = {stored.chunk: stored for stored in damaged}
        self._incarnation = 0
        self._join = 0
        self._sequence = 0
        self._order = 0
        self._writes: dict[_WriteKey, _Write] = {}
        self._loads: dict[int, _Load] = {}
        self._next_load = 1
        self._scrubber = Scrubber(settings)
        self._erasing: dict[ChunkId, None] = {}
        self._heard_ms = 0
        self._inventory_due_ms = 0
        self._stale_messages = 0
        self._broken_chains = 0

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus."""
        return _HANDLERS[type(stimulus)](self, stimulus, now_ms)

    # -- the master -------------------------------------------------------------------------

    def _on_started(self, _: e.Started, now_ms: int) -> list[Effect]:
        self._heard_ms = now_ms
        scrub = SetTimer(_SCRUB, now_ms + self._settings.scrub_ms)
        return [*self._join_anew(), self._set_timer(now_ms), scrub]

    def _join_anew(self) -> list[Effect]:
        """Let go of everything of the last incarnation, and ask for another."""
        self._incarnation = 0
        self._join += 1
        self._sequence = self._order = 0
        dropped = [e.DropWrite(*key) for key, w in self._writes.items() if w.stored is None]
        self._writes.clear()
        return [*dropped, self._hello()]

    def _hello(self) -> Effect:
        me = self._identity
        return e.SendToMaster(
            m.DataNodeJoined(
                node=me.node,
                task=me.task,
                join=self._join,
                launch=me.launch,
                host=me.host,
                rack=me.rack,
                endpoint=me.endpoint,
                chunks=tuple(self._chunks.values()),
            )
        )

    def _set_timer(self, now_ms: int) -> SetTimer:
        period = self._settings.keep_alive_ms if self._incarnation else self._settings.resend_ms
        return SetTimer(_ALIVE, now_ms + period)

    def _on_timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        if timer.name == _SCRUB:
            return self._scrub(now_ms)
        if now_ms - self._heard_ms > self._settings.lease_ms:
            return [e.EndProcess("no word from the master for the lease")]
        effects: list[Effect] = [self._set_timer(now_ms)]
        if self._incarnation == 0:
            return [*effects, self._hello()]
        me = self._identity
        effects.append(e.SendToMaster(m.DataNodeAlive(me.node, me.task, self._incarnation)))
        if now_ms >= self._inventory_due_ms:
            effects += self._report_inventory(now_ms)
        for key, write in list(self._writes.items()):
            if now_ms - write.heard_ms > self._settings.write_idle_ms:
                effects += self._break(key, "nothing more came")
        return effects

    def _report_inventory(self, now_ms: int) -> list[Effect]:
        self._inventory_due_ms = now_ms + self._settings.inventory_ms
        chunks, damaged = tuple(self._chunks.values()), tuple(self._damaged)
        report = m.InventoryReported(
            self._identity.node, self._incarnation, self._next_sequence(), chunks, damaged
        )
        return [e.SendToMaster(report)]

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _on_welcomed(self, welcomed: m.Welcomed, now_ms: int) -> list[Effect]:
        if welcomed.join != self._join:
            self._stale_messages += 1
            return []
        self._heard_ms = now_ms
        if self._incarnation == welcomed.incarnation:
            return []
        self._incarnation = welcomed.incarnation
        return [self._set_timer(now_ms), *self._report_inventory(now_ms)]

    def _on_fenced(self, fenced: m.Fenced, now_ms: int) -> list[Effect]:
        if fenced.incarnation != self._incarnation or self._incarnation == 0:
            self._stale_messages += 1
            return []
        self._heard_ms = now_ms
        return self._join_anew()

    def _on_lease_renewed(self, renewed: m.LeaseRenewed, now_ms: int) -> list[Effect]:
        if renewed.incarnation == self._incarnation:
            self._heard_ms = now_ms
        return []

    def _is_next_order(self, incarnation: int, order: int) -> bool:
        """Whether an order is of this incarnation and newer than those before it."""
        if incarnation != self._incarnation or self._incarnation == 0 or order <= self._order:
            self._stale_messages += 1
            return False
        self._order = order
        return True

    # -- receiving --------------------------------------------------------------------------

    def _on_received(self, received: e.Received, now_ms: int) -> list[Effect]:
        message, sender = received.message, received.sender
        if isinstance(message, m.Piece):
            return self._on_piece(message, sender, now_ms)
        if isinstance(message, m.PieceRequested):
            return self._on_piece_requested(message, sender)
        self._stale_messages += 1
        return []

    def _on_piece(self, piece: m.Piece, sender: bytes, now_ms: int) -> list[Effect]:
        key = (piece.chunk, piece.write)
        if piece.incarnation != self._incarnation or self._incarnation == 0:
            self._stale_messages += 1
            return self._refused(key, sender, piece.incarnation, "it is of another incarnation")
        write = self._writes.get(key)
        if write is None:
            reason = self._why_not(piece)
            if reason:
                return self._refused(key, sender, self._incarnation, reason)
            write = self._writes[key] = _Write(sender, piece.count, piece.chain, now_ms)
            write.is_passed_on = not piece.chain
        elif write.sender != sender:
            self._stale_messages += 1
            return self._refused(key, sender, piece.incarnation, "it is another's write")
        if piece.index < len(write.checksums):
            return []  # It came twice.
        if piece.index > len(write.checksums) or not self._settings.fits(
            len(piece.data), is_last=piece.index == piece.count - 1
        ):
            return self._break(key, f"piece {piece.index} came after {len(write.checksums)}")
        return self._take_piece(key, write, piece, now_ms)

    def _why_not(self, piece: m.Piece) -> str:
        if any(piece.chunk in held for held in (self._chunks, self._erasing, self._damaged)):
            return "it is here already"
        if piece.index != 0:
            return f"piece {piece.index} came first"
        if len(self._writes) >= self._settings.writes_max:
            return f"{len(self._writes)} chunks are being received; writes_max allows no more"
        return ""

    def _take_piece(
        self, key: _WriteKey, write: _Write, piece: m.Piece, now_ms: int
    ) -> list[Effect]:
        write.heard_ms = now_ms
        write.checksums.append(m.piece_checksum(piece.data))
        write.size += len(piece.data)
        effects: list[Effect] = [e.WritePiece(piece.chunk, piece.write, piece.index, piece.data)]
        if write.chain:
            onward = replace(piece, incarnation=write.chain[0].incarnation, chain=write.chain[1:])
            effects.append(e.SendToEndpoint(write.chain[0].endpoint, onward))
        if len(write.checksums) == write.count:
            table = m.checksum_table(write.checksums)
            write.stored = m.StoredChunk(piece.chunk, write.size, m.chunk_checksum(table))
            effects.append(e.SealChunk(piece.write, write.stored, table))
        return effects

    def _on_chunk_sealed(self, sealed: e.ChunkSealed, _: int) -> list[Effect]:
        chunk = sealed.stored.chunk
        write = self._writes.get((chunk, sealed.write))
        if chunk in self._chunks:
            return []  # Copied here twice, after the master gave up waiting for the first.
        if write is None and self._incarnation == 0:
            self._erasing[chunk] = None  # Its hello did not name it.
            return [e.EraseChunk(sealed.stored)]
        self._chunks[chunk] = sealed.stored
        report = m.ChunkStored(
            self._identity.node, self._incarnation, self._next_sequence(), sealed.stored
        )
        effects: list[Effect] = [e.SendToMaster(report)]
        if write is not None:
            write.is_sealed = True
            effects += self._acknowledge((chunk, sealed.write), write)
        return effects

    def _on_chunk_acked(self, acked: m.ChunkAcked, _: int) -> list[Effect]:
        key = (acked.stored.chunk, acked.write)
        write = self._writes.get(key)
        if write is None or not write.chain or acked.incarnation != write.chain[0].incarnation:
            return []  # Of a copy sent for the master, or of a chain given up since.
        if write.stored != acked.stored:
            return self._break(key, f"{write.chain[0].node} stored something else")
        write.is_passed_on = True
        return self._acknowledge(key, write)

    def _acknowledge(self, key: _WriteKey, write: _Write) -> list[Effect]:
        """Tell upstream, if the chunk is durable here and everywhere behind."""
        if write.stored is None or not (write.is_sealed and write.is_passed_on):
            return []
        del self._writes[key]
        return [e.Reply(write.sender, m.ChunkAcked(key[1], self._incarnation, write.stored))]

    def _on_chunk_refused(self, refused: m.ChunkRefused, _: int) -> list[Effect]:
        key = (refused.chunk, refused.write)
        write = self._writes.get(key)
        if write is None or not write.chain or refused.incarnation != write.chain[0].incarnation:
            return []
        return self._break(key, f"{write.chain[0].node}: {refused.reason}")

    def _on_write_failed(self, failed: e.WriteFailed, _: int) -> list[Effect]:
        key = (failed.chunk, failed.write)
        return self._break(key, failed.reason) if key in self._writes else []

    def _break(self, key: _WriteKey, reason: str) -> list[Effect]:
        """Nothing will come of this write."""
        self._broken_chains += 1
        write = self._writes.pop(key)
        dropped: list[Effect] = [] if write.stored is not None else [e.DropWrite(*key)]
        return dropped + self._refused(key, write.sender, self._incarnation, reason)

    def _refused(
        self, key: _WriteKey, sender: bytes, incarnation: int, reason: str
    ) -> list[Effect]:
        word = m.ChunkRefused(key[0], key[1], incarnation, f"{self._identity.node}: {reason}")
        return [e.Reply(sender, word)]

    # -- deleting and copying ---------------------------------------------------------------

    def _on_chunks_unwanted(self, unwanted: m.ChunksUnwanted, _: int) -> list[Effect]:
        if not self._is_next_order(unwanted.incarnation, unwanted.order):
            return []
        effects: list[Effect] = []
        gone: list[ChunkId] = []
        for chunk in unwanted.chunks:
            stored = self._chunks.pop(chunk, None) or self._damaged.pop(chunk, None)
            if stored is not None:
                self._erasing[chunk] = None
                effects.append(e.EraseChunk(stored))
            elif chunk not in self._erasing:
                gone.append(chunk)
        return effects + self._report_deleted(tuple(gone))

    def _on_chunk_erased(self, erased: e.ChunkErased, _: int) -> list[Effect]:
        self._erasing.pop(erased.stored.chunk, None)
        return self._report_deleted((erased.stored.chunk,))

    def _on_erase_failed(self, failed: e.EraseFailed, _: int) -> list[Effect]:
        """It takes room, serves nobody, and is deleted when the master says so again."""
        del self._erasing[failed.stored.chunk]
        self._damaged[failed.stored.chunk] = failed.stored
        return []

    def _report_deleted(self, chunks: tuple[ChunkId, ...]) -> list[Effect]:
        if not chunks or self._incarnation == 0:
            return []
        sequence = self._next_sequence()
        report = m.ChunksDeleted(self._identity.node, self._incarnation, sequence, chunks)
        return [e.SendToMaster(report)]

    def _on_copy_wanted(self, wanted: m.CopyWanted, _: int) -> list[Effect]:
        stored = self._chunks.get(wanted.chunk)
        if not self._is_next_order(wanted.incarnation, wanted.order) or stored is None:
            return []
        return self._load(_Load(stored, 0, copy=wanted))

    # -- reading ----------------------------------------------------------------------------

    def _on_piece_requested(self, asked: m.PieceRequested, sender: bytes) -> list[Effect]:
        stored = self._chunks.get(asked.chunk)
        reason = ""
        if stored is None:
            reason = "it is damaged" if asked.chunk in self._damaged else "it is not here"
        elif asked.index >= self._settings.pieces(stored.size):
            reason = "it has no such piece"
        elif len(self._loads) >= self._settings.reads_max:
            reason = f"{len(self._loads)} pieces are being read; reads_max allows no more"
        if stored is None or reason:
            return [e.Reply(sender, self._unread(asked.request, asked.chunk, asked.index, reason))]
        return self._load(_Load(stored, asked.index, sender, asked.request))

    def _unread(self, request: int, chunk: ChunkId, index: int, reason: str) -> m.PieceRefused:
        return m.PieceRefused(request, chunk, index, f"{self._identity.node}: {reason}")

    def _scrub(self, now_ms: int) -> list[Effect]:
        """Check a piece that nobody has asked for, unless somebody reads."""
        effects: list[Effect] = [SetTimer(_SCRUB, now_ms + self._settings.scrub_ms)]
        piece = None if self._loads else self._scrubber.next_piece(self._chunks)
        return effects if piece is None else [*effects, *self._load(_Load(*piece))]

    def _load(self, load: _Load) -> list[Effect]:
        number = self._next_load
        self._next_load += 1
        self._loads[number] = load
        return [e.LoadPiece(number, load.stored, load.index)]

    def _on_piece_loaded(self, loaded: e.PieceLoaded, now_ms: int) -> list[Effect]:
        load = self._loads.pop(loaded.request_id)
        if not is_whole(load.stored, load.index, loaded.table, loaded.data):
            return self._damage(load, "it fails its checksum", now_ms)
        if load.copy is not None:
            return self._pass_on(load, load.copy, loaded.data)
        if not load.sender:
            return []
        answer = m.PieceAnswered(
            load.request, load.stored.chunk, load.index, loaded.table, loaded.data
        )
        return [e.Reply(load.sender, answer)]

    def _pass_on(self, load: _Load, copy: m.CopyWanted, data: bytes) -> list[Effect]:
        """Send a piece to where the master wants a copy, and go on to the next."""
        count = self._settings.pieces(load.stored.size)
        target = copy.target
        piece = m.Piece(copy.chunk, copy.write, target.incarnation, load.index, count, (), data)
        effects: list[Effect] = [e.SendToEndpoint(target.endpoint, piece)]
        if load.index + 1 < count:
            effects += self._load(_Load(load.stored, load.index + 1, copy=copy))
        return effects

    def _on_load_failed(self, failed: e.LoadFailed, now_ms: int) -> list[Effect]:
        return self._damage(self._loads.pop(failed.request_id), failed.reason, now_ms)

    def _damage(self, load: _Load, reason: str, now_ms: int) -> list[Effect]:
        """A chunk is not what it should be: serve it no more, and have it replaced."""
        chunk = load.stored.chunk
        effects: list[Effect] = []
        if load.sender:
            answer = self._unread(load.request, chunk, load.index, reason)
            effects.append(e.Reply(load.sender, answer))
        if self._chunks.get(chunk) != load.stored:
            return effects  # It was deleted while it was being read.
        self._damaged[chunk] = self._chunks.pop(chunk)
        effects.append(e.MarkDamaged(load.stored))
        return effects if self._incarnation == 0 else effects + self._report_inventory(now_ms)

    # -- looking ----------------------------------------------------------------------------

    def holds(self) -> dict[ChunkId, StoredChunk]:
        """The sound chunks, as far as is known."""
        return dict(self._chunks)

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the data node's own state makes no sense."""
        for chunk in self._damaged:
            if chunk in self._chunks:
                raise InvariantViolation(f"{chunk} is sound and damaged")
        if len(self._writes) > self._settings.writes_max:
            raise InvariantViolation(f"{len(self._writes)} chunks are being received")

    def statistics(self) -> DataNodeStatistics:
        """A summary."""
        return DataNodeStatistics(
            incarnation=self._incarnation,
            chunks=len(self._chunks),
            damaged=len(self._damaged),
            writes=len(self._writes),
            stale_messages=self._stale_messages,
            broken_chains=self._broken_chains,
        )


def is_whole(stored: StoredChunk, index: int, table: bytes, data: bytes | memoryview) -> bool:
    """Whether a piece belongs to the chunk: by its table, and the table by the chunk's checksum."""
    if m.chunk_checksum(table) != stored.checksum or len(table) < 8 * (index + 1):
        return False
    expected = int.from_bytes(table[8 * index : 8 * index + 8], "little")
    return m.piece_checksum(data) == expected


_HANDLERS: dict[type[Stimulus], Callable[[DataNode, Any, int], list[Effect]]] = {
    e.Started: DataNode._on_started,
    TimerFired: DataNode._on_timer_fired,
    m.Welcomed: DataNode._on_welcomed,
    m.Fenced: DataNode._on_fenced,
    m.Dismissed: lambda _, dismissed, __: [e.EndProcess(dismissed.reason)],
    m.LeaseRenewed: DataNode._on_lease_renewed,
    e.Received: DataNode._on_received,
    e.WriteFailed: DataNode._on_write_failed,
    e.ChunkSealed: DataNode._on_chunk_sealed,
    m.ChunkAcked: DataNode._on_chunk_acked,
    m.ChunkRefused: DataNode._on_chunk_refused,
    m.ChunksUnwanted: DataNode._on_chunks_unwanted,
    e.ChunkErased: DataNode._on_chunk_erased,
    e.EraseFailed: DataNode._on_erase_failed,
    m.CopyWanted: DataNode._on_copy_wanted,
    e.PieceLoaded: DataNode._on_piece_loaded,
    e.LoadFailed: DataNode._on_load_failed,
}
