"""Packs for the simulator of ingest logs: drivers whose lives overlap make them, and die meanwhile.

What is packed, and when, says core/queues/packing.py, with blocks so short that packs go into
longer ones; the bytes are those of core/wire/commit_packs.py.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from holdfast.core.queues.packing import PACKED_AFTER_US, due, packs_in, within_others
from holdfast.core.queues.recording import NO_COMMIT, Commit
from holdfast.core.queues.retention import Piece
from holdfast.core.wire.commit_packs import (
    TAIL_BYTES,
    PackMaker,
    Place,
    decode_index,
    index_place,
)
from holdfast.core.wire.ingest_commits import decode_commit, encode_commit
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.sim.store_operations import Delete, Put, Read

if TYPE_CHECKING:
    from collections import Counter

    from holdfast.core.queues.beginning import Beginning

_T = TypeVar("_T")
_Part = Generator[Any, Any, _T]
_BLOCKS: Final = (2, 4)
_DIES_PERCENT: Final = 10


class Host(Protocol):
    """What the simulator of ingest logs gives."""

    events: Counter[str]
    is_calm: bool

    def draw(self, concern: str, low: int, high: int) -> int:
        """A number between these."""

    def percent(self, concern: str, probability: int) -> bool:
        """Whether it happens; nothing does once all is calm."""

    def wait(self, us: int) -> _Part[None]:
        """Let time pass."""

    def beginning(self) -> _Part[Beginning]:
        """Where the log begins."""

    def commit_at(self, number: int) -> _Part[Commit | None]:
        """A commit, wherever it lies."""

    def listed(self, folder: str) -> _Part[list[str]]:
        """What lies in a folder."""


class PackedLog:
    """Packs of one log, and whoever makes them.

    Attributes:
        is_packed: Whether there may be any.
    """

    def __init__(self, simulation: Host, *, is_packed: bool) -> None:
        """There is none yet."""
        self._simulation = simulation
        self.is_packed = is_packed

    def commit(self, number: int) -> _Part[Commit | None]:
        """A commit out of a pack; None: it is in none."""
        if not self.is_packed:
            return None
        for pack in packs_in((yield from self._simulation.listed("packs"))):
            if pack.holds(number):
                found = yield Read(str(pack))
                commits = None if found is None else _unpacked(found)
                if commits is not None:
                    return commits[number - pack.first]
        return None

    def delete_before(self, first: int) -> _Part[None]:
        """Delete packs of which nothing is kept."""
        if self.is_packed:
            for pack in packs_in((yield from self._simulation.listed("packs"))):
                if pack.end <= first:
                    yield Delete(str(pack))

    def life(self) -> _Part[None]:
        """Pack again and again, as shell/storage/ingest_packing.py does."""
        simulation = self._simulation
        while not simulation.is_calm:
            yield from simulation.wait(simulation.draw("pack", 10_000, 300_000))
            yield from self._pack()

    def _pack(self) -> _Part[None]:
        simulation = self._simulation
        begin = (yield from simulation.beginning()).first_commit
        numbers = map(_number, (yield from simulation.listed("commits")))
        pieces = [Piece(n, 0, 0) for n in range(begin, max(numbers, default=NO_COMMIT) + 1)]
        packs = packs_in((yield from simulation.listed("packs")))
        for name in due(pieces, packs, PACKED_AFTER_US, _BLOCKS):
            maker = PackMaker()
            for number in range(name.first, name.end):
                commit = yield from simulation.commit_at(number)
                if commit is None:
                    return  # It was removed.
                maker.begin_commit(encode_commit(commit))
            yield Put(str(name), b"".join(map(bytes, maker.made())))
            simulation.events["packed"] += 1
            if simulation.percent("packer dies", _DIES_PERCENT):
                return
        yield from self._clear()

    def _clear(self) -> _Part[None]:
        simulation = self._simulation
        packs = packs_in((yield from simulation.listed("packs")))
        for pack in within_others(packs):
            yield Delete(str(pack))
        for name in (yield from simulation.listed("commits")):
            if any(pack.holds(_number(name)) for pack in packs):
                yield Delete(name)


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].removesuffix(".json"))


def _unpacked(content: bytes) -> list[Commit]:
    place = index_place(content[-TAIL_BYTES:], len(content))
    assert isinstance(place, Place), place
    entries = decode_index(_cut_out(content, place))
    assert not isinstance(entries, CorruptRecord), entries
    commits = [decode_commit(_cut_out(content, entry.place)) for entry in entries]
    return [commit for commit in commits if isinstance(commit, Commit)]


def _cut_out(content: bytes, place: Place) -> bytes:
    return content[place.offset : place.offset + place.size]
