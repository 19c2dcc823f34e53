"""Races at one log of parts: openers, zombies, mergers and readers, one request at a time.

The real steps (core/wire/part_writing, part_reading) run over objects in memory, and a seed draws
whose request comes next. So a successor stands still between finding the end and putting its mark,
zombies store and merge meanwhile, and a reader asks for a part that is gone by then. A listing is
made in two moments; of what is put its beginning may be seen first, or all that ever is; what is
deleted may stay. What must hold:

    L-READ   a reader that must end where the log ends reads every tuple that was stored before it
             began, by a writer that nobody had begun to replace; and as that writer wrote it
    L-ZOMBIE nobody reads what was stored by a writer after the mark of a later one was there, if
             nobody had begun to replace that one
    L-GAP    ids begin at 0 and go on without gap; none is missing that lies before another
    L-END    a writer goes on where all that was stored so ends, or behind it
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from zlib import crc32

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.wire import log_parts, part_writing
from holdfast.core.wire import log_records as records
from holdfast.core.wire.log_opening import OpenedLater
from holdfast.core.wire.log_parts import StoredPart
from holdfast.core.wire.part_marks import PartDamaged
from holdfast.core.wire.part_reading import IdsMissing, PartReading
from holdfast.core.wire.store_steps import (
    ChangesTooFast,
    DeleteObject,
    ListNames,
    PutObject,
    ReadObject,
    StoreAnswer,
    StoreRequest,
)
from holdfast.sim.checkers.base import Violation
from holdfast.sim.draw import Draw

if TYPE_CHECKING:
    from typing import TypeVar

    from holdfast.core.wire.store_steps import Steps
    from holdfast.sim.scheduler import Trace

    _T = TypeVar("_T")

SCHEMA: Final = with_time(pa.schema([("writer", pa.int64())]))
_MOMENTS: Final = 600
_MERGED: Final = 3
_WRITERS: Final = 10
_Moments = Generator[None, None, "_T"]
"""What somebody does; another may come between any two moments."""


@dataclass(slots=True)
class RaceOutcome:
    """How a run ended.

    Attributes:
        seed: Its seed.
        invariant: The one that does not hold; None: all do.
        violation: What was seen.
        reached: How often rare situations were met.
    """

    seed: int
    invariant: str | None = None
    violation: str = ""
    reached: dict[str, int] = field(default_factory=dict)


def race(seed: int, trace: Trace | None = None) -> RaceOutcome:
    """One run; the same seed gives the same run. `trace` is told of every moment and request."""
    world = _Races(seed, trace)
    outcome = RaceOutcome(seed, reached=world.reached)
    try:
        world.run()
    except Violation as violation:
        outcome.invariant, outcome.violation = violation.invariant, str(violation)
    except (IdsMissing, PartDamaged, ChangesTooFast) as error:
        outcome.invariant, outcome.violation = "L-GAP", f"{type(error).__name__}: {error}"
    return outcome


@dataclass(slots=True)
class _Stored:
    """A tuple that was stored.

    Attributes:
        writer: Who wrote it.
        at: When it could be seen first.
        counts: Whether nobody had begun to replace the writer when it was whole.
    """

    writer: int
    at: int
    counts: bool


class _Races:
    """The objects of one log, and all who work with them."""

    def __init__(self, seed: int, trace: Trace | None) -> None:
        self._draw = Draw(f"{seed}/log races")
        self._trace = trace
        self._shows_parts = self._draw.percent(30)  # of objects that are being put
        self._keeps_some = self._draw.percent(30)  # that are deleted
        self._objects: dict[str, bytes] = {}
        self.reached: dict[str, int] = {}
        self.now = 0
        self._given = 0  # incarnations
        self._newest = 0  # incarnation that has begun to open the log
        self._marked: dict[int, int] = {}  # when the mark of an incarnation was there in time
        self._stored: dict[tuple[int, int], _Stored] = {}  # by writer and id
        self._actors: list[_Moments[None]] = []

    def run(self) -> None:
        """Let all work side by side; then read once more, and open once more."""
        self._actors.append(self._writer())
        for _ in range(_MOMENTS):
            self.now += 1
            if self._draw.percent(2) and self._given < _WRITERS:
                self._actors.append(self._writer())
            if self._draw.percent(2):
                self._actors.append(self._read_all())
            if self._draw.percent(1):
                self._actors.append(self._tail())
            actor = self._actors[-self._draw.steep(1, len(self._actors))]  # Others are slow.
            if next(actor, self) is self:
                self._actors.remove(actor)
            if not self._actors:
                self._actors.append(self._writer())
        self._last(self._read_all())
        self._last(self._writer(parts=0))
        self._last(self._read_all())

    def _last(self, actor: _Moments[None]) -> None:
        for _ in actor:
            self.now += 1

    def _count(self, what: str) -> None:
        self._tell(what)
        self.reached[what] = self.reached.get(what, 0) + 1

    def _tell(self, what: str) -> None:
        if self._trace is not None:
            self._trace(self.now, what)

    # -- the store --------------------------------------------------------------------------

    def _take_steps(
        self, who: str, steps: Steps[_T], on_put: Callable[[int], None] | None = None
    ) -> _Moments[_T]:
        """Take steps, each at a moment of its own.

        `on_put` is told when an object is whole, and since when something of it was there.
        """
        answer: StoreAnswer = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration as end:
                result: _T = end.value
                return result
            yield
            self._tell(f"{who} {_described(request)}")
            answer = yield from self._perform(request, on_put)

    def _perform(
        self, request: StoreRequest, on_put: Callable[[int], None] | None
    ) -> _Moments[StoreAnswer]:
        match request:
            case ListNames():
                return (yield from self._listed(f"{request.folder}/"))
            case ReadObject():
                data = self._objects.get(request.name)
                return None if data is None else memoryview(data)
            case PutObject():
                data, shown = b"".join(bytes(part) for part in request.parts), self.now
                if self._shows_parts:
                    self._objects[request.name] = data[: self._draw.number(0, len(data))]
                    yield
                    if self._draw.percent(5):
                        self._count("writer died while it put an object")
                        raise _Died
                self._objects[request.name] = data
                if on_put is not None:
                    on_put(shown)
            case DeleteObject():
                if not (self._keeps_some and self._draw.percent(20)):
                    self._objects.pop(request.name, None)
        return None

    def _listed(self, start: str) -> _Moments[list[str]]:
        """Some names now, the others a moment later: in which order they come nobody says."""
        salt = self._draw.number(0, 1 << 30) | 1  # A product, as a checksum keeps parities.

        def there() -> list[str]:
            return [name for name in self._objects if name.startswith(start)]

        def seen(is_now: bool) -> list[str]:
            return [n for n in there() if (crc32(n.encode()) * salt >> 31 & 1) == is_now]

        now = seen(True)
        yield
        names = sorted(now + seen(False))
        if names != sorted(there()):
            self._count("listing of what was never there at once")
        return names

    # -- writers ----------------------------------------------------------------------------

    def _writer(self, parts: int = 40) -> _Moments[None]:
        self._given += 1
        return self._write(self._given, parts)

    def _write(self, incarnation: int, parts: int) -> _Moments[None]:
        """Open the log, then store parts and merge them, whoever may have come since."""
        self._newest = max(self._newest, incarnation)
        own = Incarnation(incarnation)
        steps = part_writing.open_parts("s", own, SCHEMA, 0)
        due = self._end_of_what_counts()
        try:
            begun = yield from self._take_steps(
                f"writer {incarnation}", steps, lambda _: self._put_mark(incarnation)
            )
        except OpenedLater:
            self._count("opener was too late")
            return
        except _Died:
            return
        if begun.end.next_id < due and self._newest == incarnation:
            raise Violation("L-END", f"{incarnation} begins at {begun.end.next_id}, not {due}")
        stored: list[StoredPart] = []
        next_id = begun.end.next_id
        try:
            for _ in range(parts):
                count = self._draw.number(1, 3)
                yield from self._store(own, next_id, count)
                stored.append(StoredPart(next_id, next_id + count, count))
                next_id += count
                if len(stored) >= _MERGED and self._draw.percent(40):
                    wanted = stored[-_MERGED:]
                    merged = yield from self._take_steps(
                        f"writer {incarnation}", part_writing.merge_parts("s", own, SCHEMA, wanted)
                    )
                    self._count("parts merged")
                    stored[-_MERGED:] = [] if merged is None else [merged]
        except _Died:
            return

    def _put_mark(self, incarnation: int) -> None:
        if incarnation == self._newest:
            self._marked[incarnation] = self.now
        elif any(later > incarnation for later in self._marked):
            self._count("mark of a slow opener")

    def _store(self, writer: Incarnation, first_id: int, count: int) -> _Moments[None]:
        ids = pa.array(range(first_id, first_id + count), pa.int64())
        rows = pa.RecordBatch.from_arrays([pa.array([writer] * count), ids], schema=SCHEMA)
        body = records.encode_record(
            records.RecordKind.DATA, TupleType.STABLE, writer, first_id, BEGINNING_US, 0, rows
        )
        end = first_id + count
        part = log_parts.encode_part(
            *("s", writer, SCHEMA, first_id, body, end, BEGINNING_US), has_ended=False
        )

        def put(shown: int) -> None:
            if writer < self._newest:
                self._count("part of a zombie")
            for tuple_id in range(first_id, end):
                self._stored[(writer, tuple_id)] = _Stored(
                    writer, shown, counts=writer == self._newest
                )

        def steps() -> Steps[None]:
            yield PutObject(str(log_parts.PartName(writer, first_id)), part)

        yield from self._take_steps(f"writer {writer}", steps(), put)

    def _end_of_what_counts(self) -> int:
        return max((i + 1 for (_, i), stored in self._stored.items() if stored.counts), default=0)

    # -- readers ----------------------------------------------------------------------------

    def _read_all(self) -> _Moments[None]:
        """Read the log as far as it goes."""
        due = {i: s.writer for (_, i), s in sorted(self._stored.items()) if s.counts}
        found: dict[int, int] = {}
        reading = PartReading()
        while (yield from self._read_more(reading, found, is_sure=True)):
            pass
        for tuple_id, writer in due.items():
            if found.get(tuple_id) != writer:
                what = f"{found.get(tuple_id)}'s" if tuple_id in found else "not there"
                raise Violation("L-READ", f"tuple {tuple_id} of {writer} is {what}")
        self._count("log read whole")

    def _tail(self) -> _Moments[None]:
        """Follow the log for a while, looking surely now and then."""
        found: dict[int, int] = {}
        reading = PartReading()
        for _ in range(20):
            is_sure = self._draw.percent(20)
            due = self._end_of_what_counts()
            is_more = yield from self._read_more(reading, found, is_sure=is_sure)
            if is_sure and not is_more and len(found) < due:
                raise Violation("L-READ", f"tuple {len(found)} was not found, nor up to {due}")
            yield
        self._count("log followed")

    def _read_more(
        self, reading: PartReading, found: dict[int, int], *, is_sure: bool
    ) -> _Moments[bool]:
        """Read the next part, if there is one."""
        next_id = len(found)
        part = yield from self._take_steps(
            f"reader at {next_id}", reading.find(next_id, is_sure=is_sure)
        )
        if part is None:
            return False
        if part.part.corrupt is not None:
            raise Violation("L-GAP", f"{part.name} is damaged")
        limit = part.owner.superseded_from
        for record in part.part.records:
            if record.first_id >= limit:
                break
            if record.first_id > len(found):
                raise Violation("L-GAP", f"tuple {record.first_id} after {len(found) - 1}")
            for tuple_id in range(len(found), min(record.first_id + record.count, limit)):
                found[tuple_id] = record.incarnation
                self._check(record.incarnation, tuple_id)
        reading.read_whole(part)
        return True

    def _check(self, writer: int, tuple_id: int) -> None:
        """[L-ZOMBIE] What is seen while it is being put may never be whole."""
        stored = self._stored.get((writer, tuple_id))
        later = [at for other, at in self._marked.items() if other > writer]
        if stored is not None and later and min(later) < stored.at:
            raise Violation("L-ZOMBIE", f"tuple {tuple_id}, stored by {writer} at {stored.at}")


def _described(request: StoreRequest) -> str:
    match request:
        case ListNames():
            return f"lists {request.folder or 'all'}"
        case ReadObject():
            return f"reads {request.name}"
        case PutObject():
            return f"puts {request.name}"
        case DeleteObject():
            return f"deletes {request.name}"


class _Died(Exception):
    """Whoever does this dies."""
