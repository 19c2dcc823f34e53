"""A stream log as parts: objects of a store that can only be created, read, listed and deleted.

Theory of operation. Where files can be appended to, a log is a folder of segments. An object store
has no such files, so a segment becomes many small ones, *parts*, each created once and whole:

    writers/<first id>-<incarnation>         a *mark*: from this id on, this incarnation writes
    <incarnation>/<first id>.part            tuples from an id on
    <incarnation>/<first id>.<n>.part        the same, after n parts without any
    <incarnation>/<first id>-<end>.part      the tuples of several parts, merged

A writer that opens a log finds its end, puts its mark there, and only then does its node go on. A
mark names the log's owners (log_owners.py). So a part of a writer that was replaced without knowing
it does no harm, however late it arrives: it lies in another folder under a name of its own, and no
reader takes it. Names follow from ids, so a reader at the end of a part knows how the next one is
called, and asks for it instead of listing (part_reading.py). Parts without a tuple move the
boundary; of several in a row the last one is kept.

A part is a segment header, records, and a last record without rows, which shows that it is whole:
some stores show an object while it is being written. Marks have the form of a part without rows;
the boundary in it is where the writer found the log.

A part whose writer does not know whether it was stored is stored again, under the same name and
with the same bytes: whatever it finds there is its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.model.tuples import TupleType
from holdfast.core.wire import log_records as records
from holdfast.core.wire.log_opening import LogEnd
from holdfast.core.wire.log_owners import Owners, Place
from holdfast.core.wire.log_records import (
    CorruptRecord,
    Incomplete,
    LogRecord,
    RecordKind,
    SegmentHeader,
)

MARKS: Final = "writers"
MERGED_PARTS: Final = 16
"""So many small parts in a row become one."""

SMALL_BYTES: Final = 4 << 20
"""Parts of this size are not merged any more."""


@dataclass(frozen=True, slots=True)
class PartName:
    """What the name of a part says.

    Attributes:
        incarnation: Of the writer.
        first_id: Id of the first tuple.
        end: Exclusive bound of the ids; None where the name does not say.
        number: How many parts that begin with this id, and have no tuple, came before.
    """

    incarnation: Incarnation
    first_id: int
    end: int | None = None
    number: int = 0

    def __str__(self) -> str:
        """The name in the store."""
        end = "" if self.end is None else f"-{self.end:020d}"
        number = f".{self.number:010d}" if self.number else ""
        return f"{folder_of(self.incarnation)}/{self.first_id:020d}{end}{number}.part"


@dataclass(frozen=True, slots=True)
class Part:
    """The content of a part, or of a mark.

    Attributes:
        header: Its header.
        records: All whole records but the last one of a whole part.
        end: The last record of a whole part; None as long as the part is not whole.
        corrupt: What follows the records and is neither a record nor a torn end; and where.
    """

    header: SegmentHeader
    records: tuple[LogRecord, ...]
    end: LogRecord | None
    corrupt: tuple[int, CorruptRecord] | None = None


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of one's own: ids [first_id, end), its size, and how often it was merged."""

    first_id: int
    end: int
    size: int
    level: int = 0
    is_merged: bool = False
    number: int = 0

    def name(self, incarnation: Incarnation) -> PartName:
        """Its name, as a part of this incarnation."""
        end = self.end if self.is_merged else None
        return PartName(incarnation, self.first_id, end, self.number)


def folder_of(incarnation: int) -> str:
    """The folder of a writer's parts."""
    return f"{incarnation:010d}"


def mark_name(first_id: int, incarnation: int) -> str:
    """The name of a mark."""
    return f"{MARKS}/{first_id:020d}-{incarnation:010d}"


def parse_part(name: str) -> PartName | None:
    """The inverse of `str(PartName)`; None for other names."""
    folder, _, rest = name.partition("/")
    ids, _, number = rest.removesuffix(".part").partition(".")
    first, _, end = ids.partition("-")
    if not (rest.endswith(".part") and folder.isdigit() and first.isdigit()):
        return None
    if not (number or "0").isdigit():
        return None
    return PartName(
        Incarnation(int(folder)),
        int(first),
        int(end) if end.isdigit() else None,
        int(number or 0),
    )


def parts_in(names: Iterable[str]) -> list[PartName]:
    """All parts among the names."""
    return [part for name in names if (part := parse_part(name))]


def marks_in(names: Iterable[str]) -> list[Place]:
    """(incarnation, first id) of every mark among the names."""
    found: list[Place] = []
    for name in names:
        folder, _, rest = name.partition("/")
        first, _, incarnation = rest.partition("-")
        if folder == MARKS and first.isdigit() and incarnation.isdigit():
            found.append((Incarnation(int(incarnation)), int(first)))
    return found


def live_parts(parts: Iterable[PartName], marks: Iterable[Place]) -> dict[PartName, int | None]:
    """The parts that count, in the order of their ids, and where each ends.

    A part counts up to where its writer was replaced. None: it may be the last one.
    """
    ordered = sorted(parts, key=lambda part: (part.incarnation, part.first_id, part.number))
    replaced = sorted((incarnation, first_id) for incarnation, first_id in marks)
    found: dict[PartName, int | None] = {}
    for number, part in enumerate(ordered):
        ends = [first_id for later, first_id in replaced if later > part.incarnation]
        if ends and part.first_id > min(ends):
            continue
        if part.end is not None:
            ends.append(part.end)
        else:
            behind = (p for p in ordered[number + 1 :] if p.incarnation == part.incarnation)
            ends += [p.first_id for p in behind if p.first_id > part.first_id][:1]
        found[part] = min(ends, default=None)
    return dict(sorted(found.items(), key=lambda each: each[0].first_id))


def covering(parts: Iterable[PartName], tuple_id: int) -> PartName | None:
    """The part to read for an id: the longest merged one that holds it, or the nearest before."""
    merged = [p for p in parts if p.end is not None and p.first_id <= tuple_id < p.end]
    if merged:
        return max(merged, key=lambda p: (p.end or 0) - p.first_id)
    plain = [p for p in parts if p.end is None and p.first_id <= tuple_id]
    return max(plain, key=lambda p: (p.first_id, p.number), default=None)


def last_of(parts: Sequence[PartName]) -> PartName:
    """The part of a writer to ask first where its tuples end; there must be one.

    What was merged may still lie there in part: a plain part counts behind all merged ones alone.
    """
    merged = [part for part in parts if part.end is not None]
    end = max((part.end or 0 for part in merged), default=0)
    plain = [part for part in parts if part.end is None and (part.first_id >= end or not merged)]
    if plain:
        return max(plain, key=lambda part: (part.first_id, part.number))
    return max(merged, key=lambda part: (part.end or 0, -part.first_id))


def encode_part(
    stream: str,
    incarnation: int,
    schema: pa.Schema,
    first_id: int,
    body: Sequence[bytes | pa.Buffer],
    next_id: int,
    boundary_us: int,
    *,
    has_ended: bool,
    owners: Owners = (),
) -> list[bytes | pa.Buffer]:
    """A part, or a mark, to be written as it is.

    Args:
        stream: The stream's name.
        incarnation: Of the writer.
        schema: Of the batches, time column included.
        first_id: Id of the first tuple.
        body: Encoded records of the tuples [first_id, next_id).
        next_id: Exclusive bound of the ids.
        boundary_us: Nothing older follows.
        has_ended: Whether nothing follows at all.
        owners: Of a mark.
    """
    header = records.encode_segment_header(stream, incarnation, first_id, schema, owners)
    kind = RecordKind.END if has_ended else RecordKind.BOUNDARY
    last = records.encode_record(
        kind, TupleType.BOUNDARY, incarnation, next_id, boundary_us, 0, None
    )
    return [header, *body, *last]


def decode_part(data: memoryview) -> Part | CorruptRecord | Incomplete:
    """The inverse of `encode_part`, as far as the bytes go; `Incomplete`: not even a header yet."""
    header = records.decode_segment_header(bytes(data[:4096]))
    if isinstance(header, Incomplete) and len(data) >= header.needed:
        header = records.decode_segment_header(bytes(data[: header.needed]))
    if isinstance(header, Incomplete | CorruptRecord):
        return header
    found: list[LogRecord] = []
    at = header.size
    while at < len(data):
        record = records.decode_record(data[at:], header.schema)
        if isinstance(record, CorruptRecord | Incomplete):
            is_torn = not records.has_record_beyond(data, at, header.schema)
            if isinstance(record, Incomplete):
                record = CorruptRecord("a record is longer than the part")
            return Part(header, tuple(found), None, None if is_torn else (at, record))
        if record.kind is not RecordKind.DATA:
            return Part(header, tuple(found), record)
        found.append(record)
        at += record.size
    return Part(header, tuple(found), None)


def end_of(part: Part, superseded_from: int) -> LogEnd | None:
    """Where a log ends that ends in this part; None: nothing in it is whole, or nothing counts."""
    next_id, boundary_us = part.header.first_id, BEGINNING_US
    if next_id > superseded_from:
        return None
    for record in part.records:
        if record.first_id + record.count > superseded_from:
            return LogEnd(superseded_from, boundary_us)
        next_id = record.first_id + record.count
        boundary_us = max(boundary_us, record.boundary_us)
    if part.end is None:
        return LogEnd(next_id, boundary_us) if part.records else None
    boundary_us = max(boundary_us, part.end.boundary_us)
    return LogEnd(next_id, boundary_us, part.end.kind is RecordKind.END)


def to_merge(parts: Sequence[StoredPart]) -> list[StoredPart]:
    """The newest parts that should become one now; none, as long as there are few.

    Parts of equal level are merged sixteen at a time, so every byte is written again once per
    level, and there are at most fifteen small parts of each.
    """
    if not parts or parts[-1].size >= SMALL_BYTES or parts[-1].first_id == parts[-1].end:
        return []
    wanted: list[StoredPart] = []
    for part in reversed(parts):
        is_next = not wanted or part.end == wanted[-1].first_id
        if part.level != parts[-1].level or part.size >= SMALL_BYTES or not is_next:
            break
        wanted.append(part)
        if len(wanted) == MERGED_PARTS:
            return wanted[::-1]
    return []


def body_of(data: memoryview) -> memoryview | CorruptRecord:
    """The records of a whole part, without its header and its last record."""
    part = decode_part(data)
    if isinstance(part, Incomplete) or (isinstance(part, Part) and part.end is None):
        return CorruptRecord("a part that was stored is not whole")
    if isinstance(part, CorruptRecord):
        return part
    return data[part.header.size : len(data) - records.RECORD_HEADER_BYTES]
