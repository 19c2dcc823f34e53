"""What must hold of the simulated chunk store; chunks.py lists the invariants by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.sim.chunks import ChunkWorld


class Violated(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        """Name it."""
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


def explain(world: ChunkWorld) -> None:
    """Raise `Violated`: why the store did not settle."""
    busy = [client.name for client in world.clients if client.is_busy]
    if busy:
        raise Violated("C-LIVE", f"{busy} did not end")
    counting = {} if world.master is None else world.master.incarnations()
    uncounted = [node for node in world.disks if not counting.get(node)]
    if uncounted:
        raise Violated("C-LIVE", f"{uncounted} do not count")
    wanted = world.wanted()
    for node, disk in world.disks.items():
        extra = [chunk for chunk in disk.chunks if chunk not in wanted]
        if extra or disk.parts:
            raise Violated("C-LEAK", f"{node} still has {extra}, {list(disk.parts)}")
    for chunk in wanted:
        copies = [node for node, disk in world.disks.items() if chunk in disk.chunks]
        if len(copies) != world.settings.copies:
            raise Violated("C-COPIES", f"{chunk} is at {copies}")
    for node, disk in world.disks.items():
        if disk.rotten():
            raise Violated("C-ROT", f"{disk.rotten()} at {node}")
    raise Violated("C-LIVE", "the master does not settle")


def check_end(world: ChunkWorld) -> None:
    """Raise `Violated` unless the store holds what it should, now that it has settled."""
    if world.master is None:
        raise Violated("C-LIVE", "there is no master")
    names = set(world.master.directory.objects)
    for name in names:
        if name not in world.expected and name not in world.unsure:
            raise Violated("C-NAMES", f"{name} exists")
    for name, content in world.expected.items():
        if name not in names:
            raise Violated("C-NAMES", f"{name} is gone")
        _check_readable(world, name, content)


def _check_readable(world: ChunkWorld, name: str, content: bytes) -> None:
    """What any reader would get in the end: every chunk from some sound copy."""
    if world.master is None:
        return
    found = b""
    for stored in world.master.directory.objects[name].chunks:
        sound = [disk for disk in world.disks.values() if disk.is_sound(stored)]
        if not sound:
            raise Violated("C-LOST", f"chunk {stored.chunk} of {name}")
        found += sound[0].content(stored)
    if found != content:
        raise Violated("C-READ", f"{name} in the end")


def check_acknowledged(world: ChunkWorld, name: str) -> None:
    """Raise `Violated` unless the copies of an object just acknowledged are on the disks."""
    if world.master is None:
        return
    least = world.settings.copies - len(world.wounded)
    record = world.master.directory.objects.get(name)
    for stored in () if record is None else record.chunks:
        copies = sum(disk.is_sound(stored) for disk in world.disks.values())
        if copies < max(1, least):
            raise Violated("C-ACK", f"{stored.chunk} of {name} has {copies} copies")
