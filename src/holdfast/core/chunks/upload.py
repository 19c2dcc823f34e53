"""Objects on their way into the chunk store; chunk_master.py says what becomes of them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.chunks import messages as m
from holdfast.core.errors import InvariantViolation
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
        taken: The place of a reservation that it has: Peace's request, and the number there.
        chains: Of every chunk id given out for it.
        record: What it is to become; None until its commit was asked for.
        is_committing: Whether its entry is on its way to the journal.
    """

    asked: m.ObjectCreateRequested
    heard_ms: int
    request: int = 0
    current: ChunkId | None = None
    taken: tuple[peace_messages.WriteRequestId, int] | None = None
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


class Uploads:
    """The open uploads, and the names they will give their objects. Volatile."""

    def __init__(self, uploads_max: int) -> None:
        """Begin without any; so many may be open at once, and of so many ended ones is known."""
        self._max = uploads_max
        self._open: dict[str, Upload] = {}
        self._names: dict[str, str] = {}  # uploads by the object's name
        self._ended: dict[str, None] = {}  # uploads that ended lately, oldest first

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def all(self) -> tuple[Upload, ...]:
        """The open ones, oldest first."""
        return tuple(self._open.values())

    def get(self, upload: str) -> Upload | None:
        """The open upload of this name."""
        return self._open.get(upload)

    def of_name(self, name: str) -> Upload | None:
        """The one that writes the object of this name."""
        return self._open.get(self._names.get(name, ""))

    def why_not(self, asked: m.ObjectCreateRequested) -> str:
        """Why another cannot be opened for this; empty: it can."""
        if asked.upload in self._ended:
            return "the upload has ended"  # Said again, too late; else an object could rise anew.
        if asked.name in self._names:
            return f"{asked.name} is being written by another"
        if len(self._open) >= self._max:
            return f"{len(self._open)} objects are being written; uploads_max allows no more"
        return ""

    def begin(self, asked: m.ObjectCreateRequested, now_ms: int) -> None:
        """Open one; its name is its own from now on."""
        self._open[asked.upload] = Upload(asked, now_ms)
        self._names[asked.name] = asked.upload

    def end(self, upload: Upload) -> None:
        """It is open no more, and nobody opens it again."""
        del self._open[upload.asked.upload]
        del self._names[upload.asked.name]
        self._ended[upload.asked.upload] = None
        while len(self._ended) > self._max:
            del self._ended[next(iter(self._ended))]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` unless every name belongs to the upload that has it."""
        for name, upload in self._names.items():
            if self._open[upload].asked.name != name:
                raise InvariantViolation(f"{name} belongs to another upload")
