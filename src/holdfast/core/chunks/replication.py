"""Keeps every committed chunk at as many data nodes as its object wants. [SGuard §2.2]

A chunk with too few holders is *wanting*; after a delay, in which a data node that was only killed
may come back, one of its holders is asked to copy it to another data node. One with too many loses
the copy at the fullest. A damaged copy is deleted once a sound one is known, never before. Chunks
that belong to nobody are deleted.

Deletion is acknowledged: until a data node has said that a chunk is gone, it does not count as a
holder whatever it lists, and gets no copy of it. So no two messages that cross can make the master
delete more copies than are too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.chunks.effects import SendToDataNode
from holdfast.core.chunks.messages import ChunksUnwanted, CopyWanted
from holdfast.core.chunks.placement import Candidate, least_loaded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.chunks.directory import ChunkRecord, DataNodeRecord, Directory
    from holdfast.core.chunks.messages import ChunkId
    from holdfast.core.chunks.settings import ChunkSettings
    from holdfast.core.machine import Effect


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy under way."""

    target: str
    incarnation: int
    until_ms: int


class Replication:
    """A part of the chunk master. Volatile."""

    def __init__(self, directory: Directory, settings: ChunkSettings) -> None:
        """Watch over the chunks of a directory."""
        self._directory = directory
        self._settings = settings
        self._wanting: dict[ChunkId, int] = {}  # from when on it may be copied, ms
        self._copies: dict[ChunkId, _Copy] = {}
        self._next_write = 1
        self.copies_started = 0

    @property
    def wanting(self) -> int:
        """How many chunks have too few holders."""
        return len(self._wanting)

    @property
    def out_of_reach(self) -> int:
        """How many chunks have no holder."""
        return sum(not self._directory.chunks[chunk].holders for chunk in self._wanting)

    def review(self, chunks: Iterable[ChunkId], now_ms: int, *, delay_ms: int) -> list[Effect]:
        """The holders of these chunks have changed."""
        effects: list[Effect] = []
        for chunk in chunks:
            record = self._directory.chunks.get(chunk)
            if record is None:
                self._wanting.pop(chunk, None)
                continue
            if len(record.holders) < record.copies:
                self._wanting.setdefault(chunk, now_ms + delay_ms)
            else:
                self._wanting.pop(chunk, None)
            effects += self._trim(record) + self._delete_damaged(record)
        return effects

    def _trim(self, record: ChunkRecord) -> list[Effect]:
        """Take away what is too much, from the fullest data node first."""
        effects: list[Effect] = []
        nodes = self._directory.nodes
        while len(record.holders) > record.copies:
            fullest = max(record.holders, key=lambda name: (nodes[name].load(), name))
            effects += self.unwanted(nodes[fullest], (record.stored.chunk,))
        return effects

    def _delete_damaged(self, record: ChunkRecord) -> list[Effect]:
        chunk = record.stored.chunk
        if not record.holders:
            return []
        damaged = [node for node in self._directory.live() if chunk in node.damaged]
        return [effect for node in damaged for effect in self.unwanted(node, (chunk,))]

    def unwanted(self, node: DataNodeRecord, chunks: tuple[ChunkId, ...]) -> list[Effect]:
        """Have a data node delete chunks; they no longer count from now on."""
        if not chunks:
            return []
        for chunk in chunks:
            self._directory.unhold(node, chunk)
            node.damaged.pop(chunk, None)
            node.deleting[chunk] = None
        node.order += 1
        return [SendToDataNode(node.task, ChunksUnwanted(node.incarnation, node.order, chunks))]

    # -- copying ----------------------------------------------------------------------------

    def check(self, now_ms: int) -> list[Effect]:
        """Start what copies are due, as far as the bound allows."""
        for chunk, copy in list(self._copies.items()):
            if self._is_over(chunk, copy, now_ms):
                del self._copies[chunk]
        effects: list[Effect] = []
        for chunk, due_ms in self._wanting.items():
            if len(self._copies) >= self._settings.copies_in_flight_max:
                break
            if now_ms >= due_ms and chunk not in self._copies:
                effects += self._copy(self._directory.chunks[chunk], now_ms)
        return effects

    def _is_over(self, chunk: ChunkId, copy: _Copy, now_ms: int) -> bool:
        record = self._directory.chunks.get(chunk)
        return (
            record is None
            or copy.target in record.holders
            or now_ms >= copy.until_ms
            or self._directory.current(copy.target, copy.incarnation) is None
        )

    def _copy(self, record: ChunkRecord, now_ms: int) -> list[Effect]:
        chunk, nodes = record.stored.chunk, self._directory.nodes
        free = [
            Candidate(node.name, node.host, node.load())
            for node in self._directory.live()
            if not (chunk in node.chunks or chunk in node.deleting or chunk in node.damaged)
        ]
        chosen = least_loaded(free, 1, [nodes[name].host for name in record.holders])
        if not chosen or not record.holders:
            return []  # Nowhere to, or nothing to copy from; a data node that joins changes that.
        holders = list(record.holders)
        source = nodes[holders[self._next_write % len(holders)]]  # Not twice the same bad one.
        target = nodes[chosen[0]]
        until_ms = now_ms + self._settings.copy_timeout_ms
        self._copies[chunk] = _Copy(target.name, target.incarnation, until_ms)
        self.copies_started += 1
        source.order += 1
        word = CopyWanted(
            source.incarnation, source.order, chunk, self._next_write, target.replica()
        )
        self._next_write += 1
        return [SendToDataNode(source.task, word)]
