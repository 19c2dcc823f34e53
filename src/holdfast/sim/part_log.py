"""A stream log in a store that cannot append, as bytes: what shell/storage/part_log.py does.

It is opened, read and merged by the steps that the shell takes (core/wire/part_writing,
part_reading), here without anything in between; sim/log_races.py takes them one by one. What a
writer has not stored dies with its process. An object may be stored while its answer is lost, and
it may be stored after its writer died or was replaced: whole, or, where a store shows what is being
written, its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, NO_ID, Incarnation
from holdfast.core.model.tuples import TupleBatch, between
from holdfast.core.wire import log_parts
from holdfast.core.wire import log_records as records
from holdfast.core.wire.log_opening import EndsEarly, OpenedLater, SinkLacksTuples
from holdfast.core.wire.log_owners import Owner, Owners
from holdfast.core.wire.log_parts import Part, PartName, StoredPart
from holdfast.core.wire.log_records import RecordKind
from holdfast.core.wire.part_marks import Marks, PartDamaged
from holdfast.core.wire.part_reading import IdsMissing, PartReading
from holdfast.core.wire.part_writing import merge_parts, open_parts
from holdfast.core.wire.steps import run
from holdfast.core.wire.store_steps import (
    DeleteObject,
    ListNames,
    PutObject,
    ReadObject,
    Steps,
    StoreAnswer,
    StoreRequest,
)
from holdfast.sim.disk import Damage, File, Pick, Superseded

_T = TypeVar("_T")


@dataclass(slots=True)
class _Writer:
    """What one incarnation has in memory."""

    machine: int
    next_id: int
    stored_before: int  # ids before it are in parts that the store has confirmed
    waiting: list[tuple[int, bytes]] = field(default_factory=list)  # (next id, record)
    sent: tuple[str, bytes, int] | None = None  # name, bytes and end of a part without an answer
    parts: list[StoredPart] = field(default_factory=list)


@dataclass(slots=True)
class SimulatedPartLog:
    """A stream log of parts, with the calls of `SimulatedLog`; `sync` is `store`, then `stored`."""

    stream: str
    schema: pa.Schema
    _objects: dict[str, File] = field(default_factory=dict)
    _ends: dict[str, int] = field(default_factory=dict)  # of parts: ids before it are whole
    _writers: dict[Incarnation, _Writer] = field(default_factory=dict)
    _seen: tuple[TupleBatch, ...] | None = None  # all that counts, until an object changes

    def open(
        self, incarnation: Incarnation, machine: int, first_id: int = 0, wanted: int = 0
    ) -> int:
        """Find the end, put a mark there; the next id.

        Raises:
            SinkLacksTuples: It ends before `wanted`.
            Superseded: A later incarnation has opened it.
            Damage: What is there cannot be read.
        """
        steps = open_parts(self.stream, incarnation, self.schema, first_id, wanted)
        try:
            next_id = self._run(steps).end.next_id
        except OpenedLater as later:
            raise Superseded(f"{self.stream} is written by a later incarnation") from later
        except EndsEarly as early:
            raise SinkLacksTuples(self.stream, early.end, early.wanted) from early
        self._writers[incarnation] = _Writer(machine, next_id, next_id)
        return next_id

    def _run(self, steps: Steps[_T]) -> _T:
        try:
            return run(steps, self.perform)
        except PartDamaged as damaged:
            raise Damage(f"{self.stream}: {damaged}") from damaged
        except IdsMissing as missing:
            raise Damage(f"{self.stream}: ids from {missing.next_id} on are gone") from missing

    def perform(self, request: StoreRequest) -> StoreAnswer:
        """What the store does."""
        match request:
            case ListNames():
                return sorted(n for n in self._objects if n.startswith(f"{request.folder}/"))
            case ReadObject():
                file = self._objects.get(request.name)
                return None if file is None else memoryview(bytes(file.data))
            case PutObject():
                self._seen = None
                data = b"".join(bytes(part) for part in request.parts)
                self._objects[request.name] = File(bytearray(data))
                self._ends[request.name] = _end_of(data)
            case DeleteObject():
                self._seen = None
                self._objects.pop(request.name, None)
        return None

    def _encoded(
        self, incarnation: Incarnation, first_id: int, body: list[bytes], next_id: int
    ) -> bytearray:
        parts = log_parts.encode_part(
            self.stream,
            incarnation,
            self.schema,
            first_id,
            body,
            next_id,
            BEGINNING_US,
            has_ended=False,
        )
        return bytearray(b"".join(bytes(part) for part in parts))

    def append(self, incarnation: Incarnation, batch: TupleBatch) -> None:
        """Keep tuples until they are stored. Raises `Damage` unless they continue the log."""
        writer = self._writers[incarnation]
        if batch.first_id != writer.next_id:
            raise Damage(f"{self.stream}: tuple {batch.first_id}, expected {writer.next_id}")
        record = records.encode_record(
            RecordKind.DATA,
            batch.tuple_type,
            incarnation,
            batch.first_id,
            batch.boundary_us,
            0,
            batch.batch,
        )
        writer.waiting.append((batch.next_id, b"".join(bytes(part) for part in record)))
        writer.next_id = batch.next_id

    def store(self, incarnation: Incarnation, pick: Pick | None = None) -> None:
        """What waits becomes a part; the one before, as long as it has no answer.

        With `pick` its beginning alone may arrive: the writer died meanwhile.
        """
        writer = self._writers[incarnation]
        if writer.sent is None:
            if not writer.waiting:
                return
            first_id, end = writer.stored_before, writer.waiting[-1][0]
            body = [record for _, record in writer.waiting]
            name = str(PartName(incarnation, first_id))
            writer.sent = name, bytes(self._encoded(incarnation, first_id, body, end)), end
        name, data, _ = writer.sent
        present = self._objects.get(name)
        if present is None:
            kept = len(data) if pick is None or pick(0, 1) else pick(0, len(data))
            self._seen = None
            self._objects[name] = File(bytearray(data[:kept]))
            self._ends[name] = _end_of(data[:kept])
        elif bytes(present.undamaged()) != data:
            raise InvariantViolation(f"{name} was to be stored twice, with different bytes")

    def stored(self, incarnation: Incarnation) -> None:
        """The store has confirmed the part."""
        writer = self._writers[incarnation]
        if writer.sent is None:
            return
        _, data, end = writer.sent
        writer.parts.append(StoredPart(writer.stored_before, end, len(data)))
        writer.stored_before = end
        writer.waiting = [one for one in writer.waiting if one[0] > writer.stored_before]
        writer.sent = None
        while wanted := log_parts.to_merge(writer.parts):
            merged = self._run(merge_parts(self.stream, incarnation, self.schema, wanted))
            if merged is None:
                break
            writer.parts[-len(wanted) :] = [merged]

    def durable_before(self) -> int:
        """Ids before it survive whatever dies."""
        durable = 0
        for owner in self._owners():
            durable = owner.first_id
            for part in sorted(self._parts(owner), key=lambda part: part.first_id):
                if part.first_id <= durable:
                    durable = max(durable, self._ends[str(part)])
            durable = min(durable, owner.superseded_from)
            if durable < owner.superseded_from:
                break
        return durable

    def is_newest(self, incarnation: Incarnation) -> bool:
        """Whether no later incarnation has opened it."""
        return max(self._writers) == incarnation

    def next_id(self, incarnation: Incarnation) -> int:
        """The next id that a writer appends."""
        return self._writers[incarnation].next_id

    def unsynced_bytes(self) -> dict[int, int]:
        """By machine, how much a crash would lose."""
        sizes: dict[int, int] = {}
        for writer in self._writers.values():
            size = sum(len(record) for _, record in writer.waiting)
            sizes[writer.machine] = sizes.get(writer.machine, 0) + size
        return sizes

    def unsynced_bytes_of(self, incarnation: Incarnation) -> int:
        """How much a writer has not stored."""
        writer = self._writers.get(incarnation)
        return 0 if writer is None else sum(len(record) for _, record in writer.waiting)

    def crash(self, machine: int, _: Pick) -> int:
        """A machine crashed: what its writers had in memory is gone; how many bytes that was."""
        return self.unsynced_bytes().get(machine, 0)

    def flip(self, pick: Pick) -> bool:
        """Flip one bit of a part before its last record, if there is any part."""
        names = [name for name in sorted(self._objects) if log_parts.parse_part(name)]
        whole = [name for name in names if self._is_whole(name)]
        if not whole:
            return False
        file = self._objects[whole[pick(0, len(whole) - 1)]]
        self._seen = None
        last = len(file.data) - records.RECORD_HEADER_BYTES
        file.flip(pick(0, last - 1), 1 << pick(0, 7))
        return True

    def _is_whole(self, name: str) -> bool:
        part = log_parts.decode_part(memoryview(bytes(self._objects[name].data)))
        return isinstance(part, Part) and part.end is not None

    def restore(self) -> bool:
        """Mend all damage; whether there was any."""
        self._seen = None
        return sum(file.restore() for file in self._objects.values()) > 0

    def read(self) -> list[TupleBatch]:
        """All tuples that count, in order of ids. Raises `Damage`."""
        if self._seen is None:
            self._seen = tuple(self._read())
        return list(self._seen)

    def _read(self) -> list[TupleBatch]:
        batches: list[TupleBatch] = []
        reading, owners = PartReading(), self._owners()
        next_id = owners[0].first_id if owners else 0
        while found := self._run(reading.find(next_id, is_sure=True)):
            if found.part.corrupt is not None:
                raise Damage(f"{self.stream}/{found.name}: {found.part.corrupt[1].reason}")
            held = [
                TupleBatch(record.first_id, record.batch, record.boundary_us, 0, record.tuple_type)
                for record in found.part.records
                if record.batch is not None
            ]
            new = between(held, next_id, found.owner.superseded_from)
            batches += new
            next_id = new[-1].next_id if new else next_id
            reading.read_whole(found)
        return batches

    def _owners(self) -> Owners:
        marks = Marks()
        self._run(marks.look())
        return marks.owners

    def _parts(self, owner: Owner) -> list[PartName]:
        return [p for p in log_parts.parts_in(self._objects) if p.incarnation == owner.incarnation]


def _end_of(data: bytes) -> int:
    part = log_parts.decode_part(memoryview(data))
    end = log_parts.end_of(part, NO_ID) if isinstance(part, Part) else None
    return 0 if end is None else end.next_id
