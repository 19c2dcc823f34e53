"""An object on its way into the chunk store; chunk_master.py says what becomes of it."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.chunks import messages as m
from holdfast.core.peace import messages as peace_messages

if TYPE_CHECKING:
    from holdfast.core.chunks.directory import ObjectRecord
    from holdfast.core.chunks.messages import ChunkId, Replica


@dataclass(slots=True)
class Upload:
    """An object that is being written.

    Attributes:
        asked: What opened it.
        heard_ms: When its client last said something.
        request: The newest chunk asked for.
        current: The chunk that it was placed as; None: not placed yet.
        chains: Of every chunk id given out for it.
        record: What it is to become; None until its commit was asked for.
        is_committing: Whether its entry is on its way to the journal.
    """

    asked: m.ObjectCreateRequested
    heard_ms: int
    request: int = 0
    current: ChunkId | None = None
    chains: dict[ChunkId, tuple[Replica, ...]] = field(default_factory=dict)
    record: ObjectRecord | None = None
    is_committing: bool = False

    def key(self) -> peace_messages.WriteRequestId:
        """What Peace calls the newest chunk."""
        return peace_messages.WriteRequestId(f"{self.asked.upload}/{self.request}")

    def why_not(self, asked: m.ObjectCommitRequested, chunks_max: int) -> str:
        """Why it cannot be committed with these chunks; empty: it can."""
        if len(asked.chunks) > chunks_max:
            return f"{len(asked.chunks)} chunks are more than object_chunks_max allows"
        if len({stored.chunk for stored in asked.chunks}) < len(asked.chunks):
            return "a chunk is named twice"
        wrong = [s.chunk for s in asked.chunks if s.chunk not in self.chains]
        return f"chunk {wrong[0]} was not placed for it" if wrong else ""

    def is_on_its_way_to(self, server: str, held: Container[ChunkId]) -> bool:
        """Whether its newest chunk is placed at a data node that does not hold it yet.

        Args:
            server: The data node's name.
            held: The chunks that it holds.
        """
        if self.current is None or self.current in held:
            return False
        return any(replica.node == server for replica in self.chains[self.current])
