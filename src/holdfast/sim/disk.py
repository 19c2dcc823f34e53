"""Durable things, as bytes: stream logs and the coordinator's journal.

Both hold what the real files hold, made and read by the same core functions (wire/log_records,
wire/journal_lines). What was not synced is torn off at any byte when the machine that wrote it
crashes; bits can be flipped anywhere, and disks be full or slow (see world.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.core.coordinator.journal_entries import JournalEntry
from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import Incarnation
from holdfast.core.model.tuples import TupleBatch, between
from holdfast.core.wire import journal_volumes
from holdfast.core.wire import log_records as records
from holdfast.core.wire.journal_entries import decode_entries, encode_entry
from holdfast.core.wire.journal_lines import decode_lines, encode_line
from holdfast.core.wire.log_opening import (
    BeginAt,
    EndsEarly,
    FindEnd,
    LogEnd,
    LookAtOwners,
    OpenAnswer,
    OpenedLater,
    OpenRequest,
    OwnersSeen,
    SinkLacksTuples,
    open_log,
)
from holdfast.core.wire.log_owners import Owner, Owners, live_segments, owners_of
from holdfast.core.wire.log_records import CorruptRecord, LogRecord, RecordKind, SegmentHeader
from holdfast.core.wire.steps import run

Pick = Callable[[int, int], int]
"""Draws a whole number in [low, high]."""


class Damage(Exception):
    """A reader met bytes that fail their checksum where nothing was torn."""


class Superseded(Exception):
    """A later incarnation writes the log already."""


@dataclass(slots=True)
class File:
    """Bytes, how many of them are on disk, and which of them were damaged."""

    data: bytearray = field(default_factory=bytearray)
    synced_bytes: int = 0
    _flipped: list[tuple[int, int]] = field(default_factory=list)

    def truncate(self, size: int) -> None:
        """Tear off what is behind; the rest is on disk."""
        del self.data[size:]
        self.synced_bytes = min(self.synced_bytes, size)
        self._flipped = [(at, mask) for at, mask in self._flipped if at < size]

    def flip(self, at: int, mask: int) -> None:
        """Damage a byte."""
        self.data[at] ^= mask
        self._flipped.append((at, mask))

    def undamaged(self) -> bytes:
        """The bytes as they were written."""
        data = bytearray(self.data)
        for at, mask in self._flipped:
            data[at] ^= mask
        return bytes(data)

    def restore(self) -> bool:
        """Mend all damage, as from a copy; whether there was any."""
        for at, mask in self._flipped:
            self.data[at] ^= mask
        had_damage = bool(self._flipped)
        self._flipped.clear()
        return had_damage


@dataclass(slots=True)
class _Segment:
    """One segment of a log."""

    incarnation: Incarnation
    first_id: int
    machine: int
    file: File
    header_bytes: int
    next_id: int
    synced_before: int  # ids before it are on disk
    records_at: list[int] = field(default_factory=list)  # where records begin, torn ones too
    size: int = 0  # as it was written
    seen: bytes = b""  # whole records that were read, and the header before them
    seen_batches: tuple[TupleBatch, ...] = ()  # in these

    def last_durable_record_at(self) -> int:
        """Where the last record that is all on disk begins; 0: there is none."""
        ends = [*self.records_at, self.size][1:]
        records = zip(self.records_at, ends, strict=True)
        return max((at for at, end in records if end <= self.file.synced_bytes), default=0)


@dataclass(slots=True)
class SimulatedLog:
    """A stream log: one segment per writer, read as shell/storage/stream_log.py reads it."""

    stream: str
    schema: pa.Schema
    _segments: list[_Segment] = field(default_factory=list)

    def open(
        self, incarnation: Incarnation, machine: int, first_id: int = 0, wanted: int = 0
    ) -> int:
        """Begin a segment after the log's end, making what is before it durable; its first id.

        Raises:
            SinkLacksTuples: It ends before `wanted`.
            Superseded: A later incarnation has opened it.
            Damage: What is there cannot be read.
        """
        try:
            return run(
                open_log(incarnation, first_id, wanted),
                lambda request: self._perform(request, incarnation, machine),
            ).end.next_id
        except OpenedLater as later:
            raise Superseded(f"{self.stream} is written by a later incarnation") from later
        except EndsEarly as early:
            raise SinkLacksTuples(self.stream, early.end, early.wanted) from early

    def _perform(self, request: OpenRequest, incarnation: Incarnation, machine: int) -> OpenAnswer:
        match request:
            case LookAtOwners():
                newest = max((s.incarnation for s in self._segments), default=0)
                return OwnersSeen(newest, self._owners())
            case FindEnd():
                return self._end_of(request.owner)
            case BeginAt():
                self._begin(incarnation, machine, request)
        return None

    def _end_of(self, owner: Owner) -> LogEnd | None:
        """Where an owner's tuples end, made durable; None: it has none."""
        own = [s for s, _ in self._live() if s.incarnation == owner.incarnation]
        tuples = [b for s in own for b in between(self._records(s), 0, owner.superseded_from)]
        for segment in own:
            self._sync(segment)
        return LogEnd(tuples[-1].next_id) if tuples else LogEnd(owner.first_id)

    def _begin(self, incarnation: Incarnation, machine: int, begin: BeginAt) -> None:
        next_id = begin.end.next_id
        header = records.encode_segment_header(
            self.stream, incarnation, next_id, self.schema, begin.owners
        )
        file = File(bytearray(header))
        self._segments.append(
            _Segment(incarnation, next_id, machine, file, len(header), next_id, next_id)
        )

    def append(self, incarnation: Incarnation, batch: TupleBatch) -> None:
        """Append to the segment of a writer, zombie or not.

        Raises:
            Damage: The tuples do not continue the log, as it was found.
        """
        segment = self._of(incarnation)
        if batch.first_id != segment.next_id:
            raise Damage(f"{self.stream}: tuple {batch.first_id}, expected {segment.next_id}")
        parts = records.encode_record(
            RecordKind.DATA,
            batch.tuple_type,
            incarnation,
            batch.first_id,
            batch.boundary_us,
            0,
            batch.batch,
        )
        segment.records_at.append(len(segment.file.data))
        for part in parts:
            segment.file.data += bytes(part)
        segment.size = len(segment.file.data)
        segment.next_id = batch.next_id

    def skip_to(self, incarnation: Incarnation, first_id: int) -> None:
        """Go on at a later id; what comes before it is gone."""
        machine = self._of(incarnation).machine
        self._segments.clear()
        self.open(incarnation, machine, first_id)

    def sync(self, incarnation: Incarnation) -> None:
        """Make a writer's segment durable."""
        self._sync(self._of(incarnation))

    def _sync(self, segment: _Segment) -> None:
        segment.file.synced_bytes = len(segment.file.data)
        segment.synced_before = segment.next_id

    def durable_before(self) -> int:
        """Ids before it survive the crash of every machine."""
        durable = 0
        for segment, limit in self._live():
            durable = min(segment.synced_before, limit)
            if durable < limit:
                break
        return durable

    def is_newest(self, incarnation: Incarnation) -> bool:
        """Whether no later incarnation has opened it."""
        return self._segments[-1].incarnation == incarnation

    def next_id(self, incarnation: Incarnation) -> int:
        """The next id that a writer appends."""
        return self._of(incarnation).next_id

    def _of(self, incarnation: Incarnation) -> _Segment:
        for segment in reversed(self._segments):
            if segment.incarnation == incarnation:
                return segment
        raise InvariantViolation(f"{self.stream}: incarnation {incarnation} has no segment")

    def unsynced_bytes(self) -> dict[int, int]:
        """By machine, how much a crash would tear off."""
        sizes: dict[int, int] = {}
        for segment in self._segments:
            size = len(segment.file.data) - segment.file.synced_bytes
            sizes[segment.machine] = sizes.get(segment.machine, 0) + size
        return sizes

    def unsynced_bytes_of(self, incarnation: Incarnation) -> int:
        """How much a writer has not synced."""
        found = (s.file for s in self._segments if s.incarnation == incarnation)
        return sum(len(file.data) - file.synced_bytes for file in found)

    def crash(self, machine: int, pick: Pick) -> int:
        """A machine crashed: tear off what it had not synced; how many bytes that was."""
        lost = 0
        for segment in self._segments:
            size, synced = len(segment.file.data), segment.file.synced_bytes
            if segment.machine == machine and size > synced:
                kept = pick(synced, size)
                segment.file.truncate(kept)
                lost += size - kept
        return lost

    def flip(self, pick: Pick) -> bool:
        """Flip one bit of a record, if there is any.

        The last durable record of a segment is spared: with what follows it torn off, damage there
        would be taken for a torn end.
        """
        full = [s for s in self._segments if s.last_durable_record_at() > s.header_bytes]
        if not full:
            return False
        segment = full[pick(0, len(full) - 1)]
        end = segment.last_durable_record_at()
        segment.file.flip(pick(segment.header_bytes, end - 1), 1 << pick(0, 7))
        return True

    def restore(self) -> bool:
        """Mend all damage; whether there was any."""
        return sum(segment.file.restore() for segment in self._segments) > 0

    def read(self) -> list[TupleBatch]:
        """All tuples that count, in order of ids.

        Raises:
            Damage: A record fails its checksum, and it is no torn end; or ids are missing.
        """
        batches: list[TupleBatch] = []
        live = self._live()
        next_id = live[0][0].first_id if live else 0
        for segment, limit in live:
            found = between(self._records(segment), next_id, limit)
            if found and found[0].first_id > next_id:
                raise Damage(f"{self.stream}: ids {next_id} to {found[0].first_id} are gone")
            if found:
                next_id = found[-1].next_id
            batches += found
        return batches

    def _live(self) -> list[tuple[_Segment, int]]:
        """The segments that count, each with the id from which a later one supersedes it."""
        places = {(s.incarnation, s.first_id): s for s in self._segments}
        live = live_segments(places, self._owners())
        return [(places[place], until) for place, until in live.items()]

    def _owners(self) -> Owners:
        """As the newest segment's header has them."""
        places = {(s.incarnation, s.first_id): s for s in self._segments}
        return owners_of(places, lambda place: self._owners_in(places[place]))

    def _owners_in(self, segment: _Segment) -> Owners | None:
        header = records.decode_segment_header(bytes(segment.file.data[: segment.header_bytes]))
        if isinstance(header, CorruptRecord):
            raise Damage(f"{self.stream}: {header.reason}")
        return header.owners if isinstance(header, SegmentHeader) else None

    def _records(self, segment: _Segment) -> list[TupleBatch]:
        """The tuples of a segment up to its end, torn or not."""
        data = bytes(segment.file.data)
        found: list[TupleBatch] = []
        at = segment.header_bytes
        if segment.seen and data.startswith(segment.seen):  # Nothing happened to what was read.
            found += segment.seen_batches
            at = len(segment.seen)
        view = memoryview(data)
        while at < len(data):
            record = records.decode_record(view[at:], self.schema)
            if not isinstance(record, LogRecord):
                if records.has_record_beyond(view, at, self.schema):
                    raise Damage(f"{self.stream}: no record at byte {at}, but one behind")
                break  # A torn end.
            if record.batch is not None:
                kind, boundary_us = record.tuple_type, record.boundary_us
                found.append(TupleBatch(record.first_id, record.batch, boundary_us, 0, kind))
            at += record.size
        segment.seen, segment.seen_batches = data[:at], tuple(found)
        return found


@dataclass(slots=True)
class SimulatedJournal:
    """The coordinator's journal: numbered volumes, of which the newest counts.

    Whoever has a volume open writes into its file, even when it has been deleted.
    """

    _volumes: dict[int, File] = field(default_factory=dict)
    _open: dict[int, File] = field(default_factory=dict)

    def numbers(self) -> list[int]:
        """Of the volumes that are there, ascending."""
        return sorted(self._volumes)

    def claim(self, number: int) -> None:
        """Create a volume. Raises `Superseded` if there is one of this number."""
        if number in self._open:
            raise Superseded(f"another driver has begun epoch {number}")
        self._open[number] = self._volumes[number] = File()

    def append(self, number: int, entries: Iterable[JournalEntry]) -> None:
        """Write entries; they are not durable before `sync`."""
        for entry in entries:
            self._open[number].data += encode_line(encode_entry(entry))

    def sync(self, number: int) -> None:
        """Make a volume durable. Raises `Superseded` if what it holds does not count."""
        file = self._open[number]
        file.synced_bytes = len(file.data)
        if not journal_volumes.is_newest(number, self._volumes):
            raise Superseded(f"another driver has begun epoch {max(self._volumes)}")

    def delete(self, numbers: Iterable[int]) -> None:
        """Their content is in a later volume."""
        for number in numbers:
            self._volumes.pop(number, None)

    def crash(self, pick: Pick) -> None:
        """Tear off what was not synced."""
        for file in self._volumes.values():
            file.truncate(pick(file.synced_bytes, len(file.data)))

    def flip(self, pick: Pick) -> bool:
        """Flip one bit before the last durable line of the newest volume, if there is any."""
        if not self._volumes:
            return False
        file = self._volumes[max(self._volumes)]
        last_end = file.data.rfind(b"\n", 0, file.synced_bytes)
        last_at = file.data.rfind(b"\n", 0, max(0, last_end)) + 1
        if last_at < 2:
            return False
        file.flip(pick(0, last_at - 2), 1 << pick(0, 7))
        return True

    def restore(self) -> bool:
        """Mend all damage; whether there was any."""
        return sum(file.restore() for file in self._open.values()) > 0

    def read(self, *, apart_from: int = 0) -> tuple[JournalEntry, ...]:
        """All whole entries of all volumes but one. Raises `Damage` on anything but a torn end."""
        found: list[JournalEntry] = []
        for number in self.numbers():
            if number == apart_from:
                continue
            lines = decode_lines(bytes(self._volumes[number].data))
            entries = lines if isinstance(lines, CorruptRecord) else decode_entries(lines)
            if isinstance(entries, CorruptRecord):
                raise Damage(f"journal: {entries.reason}")
            found += entries
        return tuple(found)
