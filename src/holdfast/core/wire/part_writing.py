"""How a log of parts is opened, and its parts merged, as steps over a store; see log_parts.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.wire import log_parts
from holdfast.core.wire.log_opening import (
    BeginAt,
    FindEnd,
    LogEnd,
    LookAtOwners,
    OwnersSeen,
    open_log,
)
from holdfast.core.wire.log_owners import Owner
from holdfast.core.wire.log_parts import PartName, StoredPart
from holdfast.core.wire.log_records import CorruptRecord, RecordKind
from holdfast.core.wire.part_marks import Marks, PartDamaged, not_whole, sound
from holdfast.core.wire.store_steps import (
    ChangesTooFast,
    DeleteObject,
    PutObject,
    Steps,
    read,
    settled,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.wire.log_opening import OpenAnswer

_LOOKS_MAX = 64


class OtherSchema(Exception):
    """The log holds tuples of another schema."""

    def __init__(self, schema: pa.Schema) -> None:
        """Which one."""
        super().__init__(str(schema))
        self.schema = schema


class PartGone(Exception):
    """A part of one's own is not there any more; the text is its name."""


def open_parts(
    stream: str, incarnation: Incarnation, schema: pa.Schema, first_id: int, wanted: int = 0
) -> Steps[BeginAt]:
    """Find the end of a log and put a mark there.

    Raises:
        EndsEarly, OpenedLater, OtherSchema, PartDamaged: It cannot be opened.
        ChangesTooFast: A zombie merged parts whenever they were looked at.
    """
    marks = Marks()
    opening = open_log(incarnation, first_id, wanted)
    answer: OpenAnswer = None
    while True:
        try:
            request = opening.send(answer)
        except StopIteration as end:
            begun: BeginAt = end.value
            return begun
        answer = None
        match request:
            case LookAtOwners():
                yield from marks.look()
                answer = OwnersSeen(marks.newest, marks.owners)
            case FindEnd():
                answer = yield from _end_of(request.owner, schema)
            case BeginAt():
                yield _mark(stream, incarnation, schema, request)


def _mark(stream: str, incarnation: Incarnation, schema: pa.Schema, begin: BeginAt) -> PutObject:
    next_id, boundary_us = begin.end.next_id, begin.end.boundary_us
    parts = log_parts.encode_part(
        stream,
        incarnation,
        schema,
        next_id,
        [],
        next_id,
        boundary_us,
        has_ended=begin.end.has_ended,
        owners=begin.owners,
    )
    return PutObject(log_parts.mark_name(next_id, incarnation), parts)


def _end_of(owner: Owner, schema: pa.Schema) -> Steps[LogEnd | None]:
    """Where an owner's tuples end: in the last of its parts that is whole, or at its mark."""
    folder = log_parts.folder_of(owner.incarnation)
    for _ in range(_LOOKS_MAX):
        parts = log_parts.parts_in((yield from settled(folder)))
        passed_over: list[PartName] = []
        while parts:
            last = log_parts.last_of(parts)
            data = yield from read(str(last))
            if data is None:
                break  # It has been merged since it was listed.
            end = _end_in(str(last), data, owner, schema, is_merged=last.end is not None)
            if end is not None:
                return _required(end, passed_over, owner)
            parts.remove(last)
            passed_over.append(last)
        else:
            name = log_parts.mark_name(owner.first_id, owner.incarnation)
            data = yield from read(name)
            end = None if data is None else _end_in(name, data, owner, schema)
            return _required(end, passed_over, owner)
    raise ChangesTooFast(folder)


def _required(end: LogEnd | None, passed_over: Sequence[PartName], owner: Owner) -> LogEnd | None:
    """The end, unless a merged part was passed over, and what it was made of does not go as far.

    That was stored before, and stays until the merged part is whole. So the part was whole.
    """
    found = owner.first_id if end is None else end.next_id
    for name in passed_over:
        if name.end is not None and found < min(name.end, owner.superseded_from):
            raise not_whole(name)
    return end


def _end_in(
    name: str, data: memoryview, owner: Owner, schema: pa.Schema, *, is_merged: bool = False
) -> LogEnd | None:
    """The end of the log if it is in this object; None if nothing in it counts.

    One of merged parts that is not whole says nothing: those that it is made of are still there.
    """
    part = sound(name, data)
    if part is None or (is_merged and part.end is None):
        return None
    if part.corrupt is not None:
        at, reason = part.corrupt
        raise PartDamaged(name, at, reason.reason)
    if not part.header.schema.equals(schema):
        raise OtherSchema(part.header.schema)
    return log_parts.end_of(part, owner.superseded_from)


def merge_parts(
    stream: str, incarnation: Incarnation, schema: pa.Schema, wanted: Sequence[StoredPart]
) -> Steps[StoredPart | None]:
    """Store parts of one's own as one, then delete them.

    None: the last of them ends the stream, and nothing is gained any more.

    Raises:
        PartGone: One of them is not there.
        PartDamaged: One of them is not what was stored.
    """
    body: list[bytes | pa.Buffer] = []
    boundary_us = BEGINNING_US
    for one in wanted:
        name = str(one.name(incarnation))
        data = yield from read(name)
        if data is None:
            raise PartGone(name)
        part = sound(name, data)
        if part is None or part.end is None:
            raise PartDamaged(name, 0, "it is not what was stored")
        records = log_parts.body_of(data)
        if isinstance(records, CorruptRecord):
            raise PartDamaged(name, 0, records.reason)
        if part.end.kind is RecordKind.END:
            return None
        body.append(bytes(records))
        boundary_us = part.end.boundary_us
    first_id, end = wanted[0].first_id, wanted[-1].end
    parts = log_parts.encode_part(
        stream, incarnation, schema, first_id, body, end, boundary_us, has_ended=False
    )
    size, level = sum(one.size for one in wanted), wanted[0].level + 1
    merged = StoredPart(first_id, end, size, level, is_merged=True)
    yield PutObject(str(merged.name(incarnation)), parts)
    for one in wanted:
        yield DeleteObject(str(one.name(incarnation)))
    return merged
