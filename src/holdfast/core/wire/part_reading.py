"""Which object of a log of parts holds the next tuple: what a reader does, as steps over a store.

The next part is asked for by its name, which follows from the ids. That it is not there says
nothing by itself: it may have been merged, or another incarnation may write by now. A *sure* look
lists the parts until two listings agree, and finds whatever was there when it began. Others do
without: a reader that follows a log looks surely now and then, and a reader that has to end where
the log ends looks surely each time.

Whatever has been read counts only if its writer owns it by the marks listed *after* that. So
nobody reads what a zombie stores after its successor's mark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.model.ids import NO_ID, Incarnation
from holdfast.core.wire import log_parts
from holdfast.core.wire.log_owners import SOLE, Owner, owner_of
from holdfast.core.wire.log_records import RecordKind
from holdfast.core.wire.part_marks import Marks, not_whole, sound
from holdfast.core.wire.store_steps import ChangesTooFast, Steps, listed, read

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.wire.log_parts import Part, PartName

_LOOKS_MAX = 64


class IdsMissing(Exception):
    """The log goes on behind tuples that are not there."""

    def __init__(self, next_id: int, before: int) -> None:
        """The ids [next_id, before)."""
        super().__init__(next_id, before)
        self.next_id, self.before = next_id, before


@dataclass(frozen=True, slots=True)
class FoundPart:
    """A part with something new, and whose tuples in it count, up to where."""

    name: PartName
    part: Part
    owner: Owner


class PartReading:
    """What a reader knows of the names in a log of parts."""

    def __init__(self, *, is_sole: bool = False) -> None:
        """Nothing yet; `is_sole`: there are no marks, as the writer was told."""
        self._marks = Marks(SOLE if is_sole else ())
        self._is_sole = is_sole
        self._incarnation = Incarnation(0)  # whose parts are known
        self._known: list[PartName] = []
        self._whole: PartName | None = None  # what was read to its end, last of all
        self._is_listing_due = False

    def find(self, next_id: int, *, is_sure: bool) -> Steps[FoundPart | None]:
        """The part that holds the next tuple, or what else is new behind it; None: there is none.

        Args:
            next_id: Of the tuple.
            is_sure: None is to mean that there was none when this began.

        Raises:
            IdsMissing: Later tuples are there, and this one is not.
            PartDamaged: A part or mark is not what was stored.
            ChangesTooFast: No two listings agreed.
        """
        before: list[str] | None = None  # the names, as listed last, when none was of use
        if is_sure or not self._marks.owners:
            yield from self._look_at_marks()
        for _ in range(_LOOKS_MAX):
            owner = owner_of(self._marks.owners, next_id)
            if owner is None:
                if self._marks.owners:
                    raise IdsMissing(next_id, self._marks.owners[0].first_id)
                return None
            if owner.incarnation != self._incarnation:  # Its next part may long be merged.
                self._incarnation, self._known, self._is_listing_due = owner.incarnation, [], True
            name = self._candidate(owner, next_id)
            found = None if name is None else (yield from self._read(name, owner, next_id))
            if found is not None:
                return found
            if owner_of(self._marks.owners, next_id) != owner:
                continue
            if name is not None and name in self._known:
                self._known.remove(name)
                if name.end is None:
                    self._forget_before(name.first_id, name.number)
                continue
            if not (is_sure or self._is_listing_due):
                return None
            names = yield from listed(log_parts.folder_of(owner.incarnation))
            yield from self._look_at_marks()
            if owner_of(self._marks.owners, next_id) != owner:
                before = None
            elif names == before:
                if (yield from self._is_merged_meanwhile(names, next_id)):
                    before, self._known = None, log_parts.parts_in(names)
                    continue
                self._is_listing_due = False
                self._require_no_gap(names, owner, next_id)
                return None
            else:
                before = names
                self._known = log_parts.parts_in(names)
        raise ChangesTooFast(log_parts.folder_of(self._incarnation))

    def _look_at_marks(self) -> Steps[None]:
        if not self._is_sole:
            yield from self._marks.look()

    def _candidate(self, owner: Owner, next_id: int) -> PartName | None:
        """The part to ask for: one that is known, or the one that would come next."""
        name = log_parts.covering(self._known, next_id)
        if name is not None and name != self._whole:
            return name
        whole, number = self._whole, 0
        if whole is not None and (whole.incarnation, whole.first_id, whole.end) == (
            *(owner.incarnation, next_id),
            None,
        ):
            number = whole.number + 1
        return log_parts.PartName(owner.incarnation, next_id, None, number)

    def _read(self, name: PartName, owner: Owner, next_id: int) -> Steps[FoundPart | None]:
        """A part, if it is there, holds anything new, and counts."""
        data = yield from read(str(name))
        if data is None:
            # It has been merged, if it was known; other names may be out of date, too.
            self._is_listing_due = self._is_listing_due or name in self._known
            return None
        part = sound(str(name), data)
        if part is None or (name.end is not None and part.end is None):
            return None  # Not whole yet: what is merged is still there by itself.
        yield from self._look_at_marks()
        if owner_of(self._marks.owners, next_id) != owner:
            return None
        if _is_new(part, next_id):
            return FoundPart(name, part, owner)
        if part.end is not None:  # Need not be read again, by whoever begins where it ends.
            self._whole = name
        return None

    def read_whole(self, found: FoundPart) -> None:
        """All of a part has been read, so that those before it are of no use any more."""
        if found.part.end is not None:
            self._whole = found.name
            end = found.name.first_id if found.name.end is None else found.name.end
            self._forget_before(end, found.name.number)

    def _forget_before(self, first_id: int, number: int) -> None:
        """Plain parts before another one of the same writer end there.

        If the nearest one before a tuple does not hold it, no earlier one does. What has been
        merged overlaps with others, and tells its end.
        """
        here = first_id, number
        self._known = [
            p for p in self._known if p.end is not None or (p.first_id, p.number) >= here
        ]

    def _is_merged_meanwhile(self, names: list[str], next_id: int) -> Steps[bool]:
        """Whether a merged part holds the next tuple, though it has been of no use so far.

        It was not whole when it was read. What it is made of was there by then. If two listings
        since do not show that, the part is whole by now.

        Raises:
            PartDamaged: It is not.
        """
        name = log_parts.covering(log_parts.parts_in(names), next_id)
        if name is None or name.end is None:
            return False
        data = yield from read(str(name))
        part = None if data is None else sound(str(name), data)
        if data is not None and (part is None or part.end is None):
            raise not_whole(name)
        return True

    def _require_no_gap(self, names: list[str], owner: Owner, next_id: int) -> None:
        """Raise `IdsMissing` if there is anything behind the next id."""
        beyond = [p.first_id for p in log_parts.parts_in(names) if p.first_id > next_id]
        beyond += [owner.superseded_from] if owner.superseded_from < NO_ID else []
        if beyond:
            raise IdsMissing(next_id, min(beyond))

    def schema_of_marks(self) -> Steps[pa.Schema | None]:
        """The log's schema, by the newest mark; None: there is none."""
        yield from self._look_at_marks()
        return self._marks.schema


def _is_new(part: Part, next_id: int) -> bool:
    """Whether it holds the next tuple, ends the stream there, or may move the boundary."""
    if part.corrupt is not None:
        return True
    end = max((r.first_id + r.count for r in part.records), default=part.header.first_id)
    if end > next_id:
        return True
    if part.end is None:
        return False
    return part.end.kind is RecordKind.END or (end == next_id and part.header.first_id == next_id)
