"""The marks of a log of parts: who has opened it, and whom the newest whole one names as owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.wire import log_parts
from holdfast.core.wire.log_owners import Owners, Place, owners_of
from holdfast.core.wire.log_parts import Part
from holdfast.core.wire.log_records import CorruptRecord, Incomplete, SegmentHeader
from holdfast.core.wire.store_steps import Steps, listed, read

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.wire.log_parts import PartName


class PartDamaged(Exception):
    """A part, or a mark, is not what was stored."""

    def __init__(self, name: str, offset: int, reason: str) -> None:
        """Which one, at which byte, and what is wrong."""
        super().__init__(f"{name} is damaged at byte {offset}: {reason}")
        self.name, self.offset, self.reason = name, offset, reason


def not_whole(name: PartName) -> PartDamaged:
    """What was merged into this part is gone, and so the part was whole once."""
    return PartDamaged(str(name), 0, "it is not whole, and what was merged into it is gone")


def sound(name: str, data: memoryview) -> Part | None:
    """A part or mark as far as it is there; None: not even a header. Raises `PartDamaged`."""
    part = log_parts.decode_part(data)
    if isinstance(part, Incomplete):
        return None
    if isinstance(part, CorruptRecord):
        raise PartDamaged(name, 0, part.reason)
    return part


class Marks:
    """What is known of a log's marks. They are never changed: each is read once."""

    def __init__(self, owners: Owners = ()) -> None:
        """Nothing is known, or these owners are."""
        self.owners = owners
        self.newest = 0  # incarnation that has put a mark, or is about to
        self._whole: dict[Place, SegmentHeader] = {}

    def look(self) -> Steps[None]:
        """List them, and read the newest if it is not known. Raises `PartDamaged`."""
        places = log_parts.marks_in((yield from listed(log_parts.MARKS)))
        self.newest = max((incarnation for incarnation, _ in places), default=0)
        for place in sorted(places, reverse=True):
            if place in self._whole or (yield from self._read(place)):
                break
        self.owners = owners_of(places, self._said)

    def _read(self, place: Place) -> Steps[bool]:
        """Whether a mark is whole: a store may show one that is being written."""
        name = log_parts.mark_name(place[1], place[0])
        data = yield from read(name)
        mark = None if data is None else sound(name, data)
        if mark is None or mark.end is None:
            return False
        self._whole[place] = mark.header
        return True

    def _said(self, place: Place) -> Owners | None:
        header = self._whole.get(place)
        return None if header is None else header.owners

    @property
    def schema(self) -> pa.Schema | None:
        """Of the log, as the newest mark that is known has it."""
        return self._whole[max(self._whole)].schema if self._whole else None
