"""What the chunk master knows: data nodes, what each of them holds, and the committed objects.

The objects and the data nodes' homes are durable (in the journal; see homes.py); where chunks are
is learned from the data nodes' own listings. A data node *holds* a chunk of a committed object when
the chunk is sound there and the master has not asked for its deletion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.chunks.messages import (
    ChunkCopies,
    ChunkId,
    DataNodeJoined,
    Home,
    Replica,
    StoredChunk,
)
from holdfast.core.errors import InvariantViolation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


@dataclass(slots=True)
class DataNodeRecord:
    """A data node. A lost one stays, without chunks, so that its incarnations go on growing.

    Attributes:
        name: Its name.
        incarnation: The newest one given out; never moves back.
        launch: The newest launch that said hello.
        is_live: Whether its incarnation counts.
        task: Its process; `join` counts that process's hellos.
        sequence: Number of the newest report taken; older ones are dropped.
        order: Number of the newest order given.
        chunks: All sound chunks there, committed or not.
        damaged: Chunks there that cannot be read; deleted once a sound copy is known elsewhere.
        deleting: Chunks it was told to delete and has not said to have deleted: they are not
            `chunks`, and no copy of them goes there.
    """

    name: str
    incarnation: int
    launch: int = 0
    is_live: bool = False
    task: str = ""
    join: int = 0
    host: str = ""
    rack: str = ""
    endpoint: str = ""
    heard_ms: int = 0
    sequence: int = 0
    order: int = 0
    chunks: dict[ChunkId, StoredChunk] = field(default_factory=dict)
    damaged: dict[ChunkId, None] = field(default_factory=dict)
    deleting: dict[ChunkId, None] = field(default_factory=dict)

    def replica(self) -> Replica:
        """Where it takes pieces now."""
        return Replica(self.name, self.incarnation, self.endpoint)

    def is_at(self, machine: str) -> bool:
        """Whether it lives there."""
        return self.is_live and self.host == machine

    def load(self) -> int:
        """How much it holds."""
        return len(self.chunks)

    def begin_life(self, joined: DataNodeJoined, now_ms: int) -> None:
        """A process of the data node has said hello, and counts from now on."""
        self.incarnation += 1
        self.launch, self.task, self.join = joined.launch, joined.task, joined.join
        self.host, self.rack, self.endpoint = joined.host, joined.rack, joined.endpoint
        self.is_live = True
        self.heard_ms = now_ms
        self.sequence = self.order = 0


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """A committed object.

    Attributes:
        upload: Which attempt wrote it: a commit that is said again is recognised by it.
        copies: How many data nodes are to hold each chunk.
        chunks: In order.
    """

    upload: str
    copies: int
    chunks: tuple[StoredChunk, ...]


@dataclass(slots=True)
class ChunkRecord:
    """A chunk of an object that exists or is being committed; `holders` are live data nodes."""

    stored: StoredChunk
    copies: int
    holders: dict[str, None] = field(default_factory=dict)


class Directory:
    """Objects, chunks, data nodes."""

    def __init__(self) -> None:
        """Know nothing."""
        self.nodes: dict[str, DataNodeRecord] = {}
        self.objects: dict[str, ObjectRecord] = {}
        self.chunks: dict[ChunkId, ChunkRecord] = {}
        self.homes: dict[str, tuple[str, ...]] = {}  # machines by data node, oldest first

    # -- objects ----------------------------------------------------------------------------

    def add_chunks(self, record: ObjectRecord) -> None:
        """Chunks are to have their copies; whoever holds them already counts."""
        for stored in record.chunks:
            chunk = self.chunks[stored.chunk] = ChunkRecord(stored, record.copies)
            for node in self.live():
                if node.chunks.get(stored.chunk) == stored:
                    chunk.holders[node.name] = None

    def register(self, record: ObjectRecord, chains: Mapping[ChunkId, Sequence[Replica]]) -> None:
        """From now on the chunks of an upload count, where they were placed."""
        self.add_chunks(record)
        for stored in record.chunks:
            for replica in chains[stored.chunk]:
                node = self.current(replica.node, replica.incarnation)
                if node is not None and stored.chunk not in node.damaged:
                    self.hold(node, stored)

    def copies_of(self, name: str) -> list[int]:
        """How many live copies each chunk of an object has. Raises `KeyError`: no such object."""
        return [len(self.chunks[c.chunk].holders) for c in self.objects[name].chunks]

    def remove_chunks(self, record: ObjectRecord) -> tuple[ChunkId, ...]:
        """Nobody needs these chunks any more."""
        for stored in record.chunks:
            del self.chunks[stored.chunk]
        return tuple(stored.chunk for stored in record.chunks)

    def remove_object(self, name: str) -> tuple[ChunkId, ...]:
        """An object is gone; its chunks, which nobody needs any more."""
        record = self.objects.pop(name, None)
        return () if record is None else self.remove_chunks(record)

    # -- data nodes -------------------------------------------------------------------------

    def live(self) -> Iterator[DataNodeRecord]:
        """The data nodes that count."""
        return (node for node in self.nodes.values() if node.is_live)

    def current(self, name: str, incarnation: int) -> DataNodeRecord | None:
        """A data node, if this is its present incarnation."""
        node = self.nodes.get(name)
        is_current = node is not None and node.is_live and node.incarnation == incarnation
        return node if is_current else None

    def stands(self, chain: tuple[Replica, ...]) -> bool:
        """Whether all data nodes of a chain are the ones that they were."""
        return all(self.current(r.node, r.incarnation) is not None for r in chain)

    def beside(self, host: str) -> str:
        """A writer as Peace knows it: a data node on its host, or any."""
        live = list(self.live())
        return next((node.name for node in live if node.host == host), live[0].name)

    def located(self, name: str) -> tuple[tuple[ChunkCopies, ...], tuple[Home, ...]] | None:
        """Where its chunks are, and who is away that may have some; None: no such object."""
        record = self.objects.get(name)
        if record is None:
            return None
        chunks = tuple(ChunkCopies(s, self.replicas(s.chunk)) for s in record.chunks)
        return chunks, () if all(copies.replicas for copies in chunks) else self.away()

    def hold(self, node: DataNodeRecord, stored: StoredChunk) -> None:
        """A sound chunk is at a data node."""
        if stored.chunk in node.deleting:
            return
        node.chunks[stored.chunk] = stored
        node.damaged.pop(stored.chunk, None)
        chunk = self.chunks.get(stored.chunk)
        if chunk is not None and chunk.stored == stored:
            chunk.holders[node.name] = None

    def unhold(self, node: DataNodeRecord, chunk: ChunkId) -> None:
        """A chunk is no longer to be read at a data node."""
        node.chunks.pop(chunk, None)
        record = self.chunks.get(chunk)
        if record is not None:
            record.holders.pop(node.name, None)

    def lose(self, node: DataNodeRecord) -> tuple[ChunkId, ...]:
        """A data node no longer counts; the chunks that it held."""
        node.is_live = False
        held = tuple(node.chunks)
        for chunk in held:
            self.unhold(node, chunk)
        node.damaged.clear()
        node.deleting.clear()
        return held

    def replicas(self, chunk: ChunkId) -> tuple[Replica, ...]:
        """Where a committed chunk can be read."""
        return tuple(self.nodes[name].replica() for name in self.chunks[chunk].holders)

    def away(self) -> tuple[Home, ...]:
        """The homes where no data node of theirs is, by its name."""
        return tuple(
            Home(name, machine)
            for name, machines in sorted(self.homes.items())
            for machine in machines
            if not (name in self.nodes and self.nodes[name].is_at(machine))
        )

    # -- journal ----------------------------------------------------------------------------

    def replay(self, entry: dict[str, object]) -> None:
        """Take up a journal entry of an earlier life."""
        name, deleted, node = entry.get("object"), entry.get("deleted"), entry.get("data_node")
        if isinstance(node, str):
            self.homes[node] = _homes_of(entry)
        if isinstance(deleted, str):
            self.remove_object(deleted)
        if isinstance(name, str):
            self.remove_object(name)
            record = self.objects[name] = _object_of(entry)
            self.add_chunks(record)

    def entries(self) -> list[dict[str, object]]:
        """The shortest journal that leads here."""
        return [
            *(homes_entry(node, machines) for node, machines in self.homes.items()),
            *(object_entry(name, record) for name, record in self.objects.items()),
        ]

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when holders and data nodes disagree."""
        for chunk, record in self.chunks.items():
            for name in record.holders:
                node = self.nodes[name]
                if not node.is_live or chunk not in node.chunks or chunk in node.deleting:
                    raise InvariantViolation(f"{name} counts as a holder of {chunk}, and is none")


def object_entry(name: str, record: ObjectRecord) -> dict[str, object]:
    """The journal entry of a committed object."""
    chunks = [[c.chunk, c.size, c.checksum] for c in record.chunks]
    return {"object": name, "upload": record.upload, "copies": record.copies, "chunks": chunks}


def homes_entry(node: str, machines: tuple[str, ...]) -> dict[str, object]:
    """The journal entry of a data node's homes."""
    return {"data_node": node, "homes": list(machines)}


def compacted(entries: Iterable[dict[str, object]]) -> list[dict[str, object]]:
    """The shortest journal that says the same."""
    directory = Directory()
    for entry in entries:
        directory.replay(entry)
    return directory.entries()


def _homes_of(entry: dict[str, object]) -> tuple[str, ...]:
    machines = entry["homes"]
    if not isinstance(machines, list):
        raise InvariantViolation(f"the journal says {entry}")
    return tuple(str(machine) for machine in machines)


def _object_of(entry: dict[str, object]) -> ObjectRecord:
    chunks, copies = entry["chunks"], entry["copies"]
    if not isinstance(chunks, list) or not isinstance(copies, int):
        raise InvariantViolation(f"the journal says {entry}")
    stored = tuple(StoredChunk(ChunkId(chunk), size, checksum) for chunk, size, checksum in chunks)
    return ObjectRecord(str(entry["upload"]), copies, stored)
