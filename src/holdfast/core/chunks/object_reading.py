"""What a client does to read a range of an object. [SGuard §5]

Theory of operation. The object is located by the master, or by an answer of before. The pieces that
the range touches are asked for, at most `read_window` at a time, chunk after chunk; the chunks are
spread over their copies. A piece is checked with its table, and the table with the checksum in the
master's answer, so that a wrong byte is noticed wherever it arose. A data node that refuses, does
not answer for `read_timeout_ms`, or gives something wrong, is passed over for this chunk; a piece
that came is never asked for again. When all copies of a chunk were passed over, the object is
located anew, since copies move, and all are tried again, until `operation_timeout_ms` is over. A
chunk of which the master knows no copy is waited for during `reach_timeout_ms`: its data nodes may
yet come up.

The caller gets each piece's part of the range by `Deliver`, in any order, and in the end
`ReadDone`, `ReadMissing` (there is no such object, or it is shorter), `ReadOutOfReach` or
`ObjectFailed`. `ReadWaits` tells meanwhile what holds it up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.data_node import is_whole
from holdfast.core.chunks.object_writing import ObjectFailed
from holdfast.core.errors import InvariantViolation
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import ChunkCopies, ChunkId, Home, Replica
    from holdfast.core.chunks.settings import ChunkSettings

_TICK: Final = "read"
_TICKS: Final = 8  # so often within a `read_timeout_ms` is it looked whether one is over


@dataclass(frozen=True, slots=True)
class Deliver(Effect):
    """Bytes of the range, from `offset` in the range on."""

    offset: int
    data: memoryview


@dataclass(frozen=True, slots=True)
class ReadDone(Effect):
    """The whole range was delivered.

    Attributes:
        chunks: Serves the next read of the same object.
        is_smooth: Whether no copy was passed over.
    """

    chunks: tuple[ChunkCopies, ...]
    is_smooth: bool


@dataclass(frozen=True, slots=True)
class ReadMissing(Effect):
    """There is no such object, or it is shorter."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReadWaits(Effect):
    """What the read waits for has changed: what may not come, for people; empty: nothing such."""

    reason: str


@dataclass(frozen=True, slots=True)
class ReadOutOfReach(Effect):
    """A chunk of the object has had no copy within reach for too long."""

    reason: str


@dataclass(slots=True)
class _Wanted:
    """A piece of the range.

    Attributes:
        chunk: Place of its chunk in the object.
        index: Place of the piece in the chunk.
        from_byte: Of the piece, the first one wanted.
        to_byte: Of the piece, the one behind the last one wanted.
        offset: Where they go in the range.
        request: The question on its way; 0: none.
        asked_ms: When it was asked.
        asked_of: Whom.
    """

    chunk: int
    index: int
    from_byte: int
    to_byte: int
    offset: int
    request: int = 0
    asked_ms: int = 0
    asked_of: Replica | None = None


@dataclass(slots=True)
class _Range:
    """What is still to come, by when it is to be asked for."""

    waiting: list[_Wanted] = field(default_factory=list)
    asked: dict[int, _Wanted] = field(default_factory=dict)  # by request


class ObjectReading:
    """The machine of one read. Volatile as a whole."""

    def __init__(
        self,
        *,
        client: str,
        name: str,
        offset: int,
        size: int,
        first_request: int,
        settings: ChunkSettings,
        chunks: tuple[ChunkCopies, ...] | None = None,
    ) -> None:
        """Begin with `Started`.

        Args:
            client: Who reads.
            name: The object.
            offset: Where the range begins.
            size: How long it is; at least 1.
            first_request: Above the numbers of all requests of this client before.
            settings: The store's.
            chunks: What the master said of the object before, if it did.
        """
        self._client = client
        self._name = name
        self._offset = offset
        self._size = size
        self._settings = settings
        self._next_request = first_request
        self._located_by = 0  # the question to the master; 0: answered
        self._chunks = chunks
        self._range: _Range | None = None  # None until located for the first time
        self._passed_over: dict[tuple[int, str], None] = {}  # place of the chunk, data node
        self._silent: dict[str, None] = {}  # data nodes that did not answer; asked last
        self._is_smooth = True
        self._away: tuple[Home, ...] = ()
        self._started_ms = 0
        self._deadline_ms = 0
        self._locate_due_ms = 0
        self._is_over = False
        self._trouble_told = ""
        self._last_reason = "the master does not answer"

    @property
    def next_request(self) -> int:
        """Above the numbers of all requests made."""
        return self._next_request

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus; an answer to something this client did before is dropped."""
        handler = _HANDLERS.get(type(stimulus))
        if handler is None or self._is_over:
            return []
        return handler(self, stimulus, now_ms)

    def _on_started(self, _: e.Started, now_ms: int) -> list[Effect]:
        self._started_ms = now_ms
        self._deadline_ms = now_ms + self._settings.operation_timeout_ms
        timer = self._tick(now_ms)
        if self._chunks is None:
            return [timer, self._locate(now_ms)]
        return [timer, *self._found(self._chunks, now_ms)]

    def _tick(self, now_ms: int) -> SetTimer:
        period = max(1, min(self._settings.read_timeout_ms // _TICKS, self._settings.resend_ms))
        return SetTimer(_TICK, now_ms + period)

    def _request(self) -> int:
        self._next_request += 1
        return self._next_request - 1

    def _locate(self, now_ms: int) -> Effect:
        self._located_by = self._request()
        self._locate_due_ms = now_ms + self._settings.resend_ms
        asked = m.ObjectLocateRequested(self._client, self._located_by, self._name)
        return e.SendToMaster(asked)

    def _on_object_located(self, located: m.ObjectLocated, now_ms: int) -> list[Effect]:
        if located.request != self._located_by or self._located_by == 0:
            return []
        self._located_by = 0
        self._away = located.away
        self._passed_over.clear()
        return self._found(located.chunks, now_ms)

    def _on_object_unknown(self, unknown: m.ObjectUnknown, _: int) -> list[Effect]:
        if unknown.request != self._located_by or self._located_by == 0:
            return []
        return self._end(ReadMissing(f"{self._name} is missing"))

    def _end(self, effect: Effect) -> list[Effect]:
        self._is_over = True
        return [effect]

    def _found(self, chunks: tuple[ChunkCopies, ...], now_ms: int) -> list[Effect]:
        if self._range is None or not _is_same(chunks, self._chunks):
            size = sum(copies.chunk.size for copies in chunks)
            if self._offset + self._size > size:
                return self._end(ReadMissing(f"{self._name} is cut short at byte {size}"))
            self._range = _Range(self._pieces(chunks))
        self._chunks = chunks
        return self._ask(now_ms)

    def _pieces(self, chunks: tuple[ChunkCopies, ...]) -> list[_Wanted]:
        """The pieces that the range touches, in order."""
        wanted: list[_Wanted] = []
        start, step = 0, self._settings.piece_bytes
        for place, copies in enumerate(chunks):
            size = copies.chunk.size
            low = max(0, self._offset - start)
            high = min(size, self._offset + self._size - start)
            for at in range(low // step * step, high, step):
                first, last = max(low, at), min(high, at + step)
                offset = start + first - self._offset
                wanted.append(_Wanted(place, at // step, first - at, last - at, offset))
            start += size
        return wanted

    # -- asking -----------------------------------------------------------------------------

    def _ask(self, now_ms: int) -> list[Effect]:
        """Fill the window; a chunk without a copy left waits for the object to be located."""
        if self._range is None or self._chunks is None:
            return []
        effects: list[Effect] = []
        later: list[_Wanted] = []
        waiting, self._range.waiting = self._range.waiting, []
        for place, wanted in enumerate(waiting):
            if len(self._range.asked) >= self._settings.read_window:
                later += waiting[place:]
                break
            replica = self._choose(wanted)
            if replica is None:
                later.append(wanted)
            else:
                effects.append(self._ask_for(wanted, replica, now_ms))
        self._range.waiting = later
        return effects

    def _choose(self, wanted: _Wanted) -> Replica | None:
        """A copy not passed over; neighbouring chunks begin with different ones."""
        replicas = () if self._chunks is None else self._chunks[wanted.chunk].replicas
        first = wanted.chunk % max(1, len(replicas))
        left = [
            replica
            for replica in (*replicas[first:], *replicas[:first])
            if (wanted.chunk, replica.node) not in self._passed_over
        ]
        return next((r for r in left if r.node not in self._silent), next(iter(left), None))

    def _ask_for(self, wanted: _Wanted, replica: Replica, now_ms: int) -> Effect:
        if self._range is None or self._chunks is None:
            raise InvariantViolation(f"{self._name} is read before it is located")
        wanted.request = self._request()
        wanted.asked_ms = now_ms
        wanted.asked_of = replica
        self._range.asked[wanted.request] = wanted
        chunk = self._chunks[wanted.chunk].chunk.chunk
        asked = m.PieceRequested(wanted.request, chunk, wanted.index)
        return e.SendToEndpoint(replica.endpoint, asked)

    def _on_timer_fired(self, _: TimerFired, now_ms: int) -> list[Effect]:
        if self._lacking() is not None:
            self._deadline_ms = now_ms + self._settings.operation_timeout_ms
            waited_ms = now_ms - self._started_ms
            if waited_ms >= self._settings.reach_timeout_ms:
                return self._end(ReadOutOfReach(f"{self._trouble()}, for {waited_ms} ms"))
        if now_ms >= self._deadline_ms:
            return self._end(ObjectFailed(f"{self._name}: {self._last_reason}"))
        effects: list[Effect] = [self._tick(now_ms)]
        if self._range is not None:
            timeout_ms = self._settings.read_timeout_ms
            for wanted in list(self._range.asked.values()):
                if now_ms - wanted.asked_ms >= timeout_ms and wanted.asked_of is not None:
                    self._silent[wanted.asked_of.node] = None
                    self._pass_over(wanted, f"no answer for {timeout_ms} ms")
            effects += self._ask(now_ms)
        if now_ms >= self._locate_due_ms and (self._located_by or self._is_stuck()):
            effects.append(self._locate(now_ms))
        if self._trouble() != self._trouble_told:
            self._trouble_told = self._trouble()
            effects.append(ReadWaits(self._trouble_told))
        return effects

    def _lacking(self) -> ChunkId | None:
        """A chunk still to be read of which there is no live copy."""
        if self._range is None or self._chunks is None:
            return None
        found = (self._chunks[wanted.chunk] for wanted in self._range.waiting)
        return next((copies.chunk.chunk for copies in found if not copies.replicas), None)

    def _trouble(self) -> str:
        """What it waits for that may not come; empty: nothing."""
        chunk = self._lacking()
        if chunk is not None:
            away = ", ".join(f"{home.node} is not on {home.machine}" for home in self._away)
            where = f" ({away})" if away else ""
            return f"{self._name}: no data node within reach has chunk {chunk}{where}"
        return f"{self._name}: {self._last_reason}" if self._is_stuck() else ""

    def _is_stuck(self) -> bool:
        """Whether some piece has no copy left to ask."""
        return self._range is not None and any(
            self._choose(wanted) is None for wanted in self._range.waiting
        )

    def _pass_over(self, wanted: _Wanted, reason: str) -> None:
        """Another copy is to give this piece."""
        if self._range is None or wanted.asked_of is None:
            return
        self._is_smooth = False
        del self._range.asked[wanted.request]
        self._passed_over[(wanted.chunk, wanted.asked_of.node)] = None
        self._last_reason = f"{wanted.asked_of.node}: {reason}"
        wanted.request = 0
        self._range.waiting.insert(0, wanted)

    # -- answers ----------------------------------------------------------------------------

    def _asked(self, request: int) -> _Wanted | None:
        return None if self._range is None else self._range.asked.get(request)

    def _on_piece_answered(self, answered: m.PieceAnswered, now_ms: int) -> list[Effect]:
        wanted = self._asked(answered.request)
        if wanted is None or self._range is None or self._chunks is None:
            return []  # Passed over since.
        stored = self._chunks[wanted.chunk].chunk
        is_right = (
            (answered.chunk, answered.index) == (stored.chunk, wanted.index)
            and len(answered.data) >= wanted.to_byte
            and is_whole(stored, wanted.index, answered.table, answered.data)
        )
        if not is_right:
            self._pass_over(wanted, "what it sent fails its checksum")
            return self._ask(now_ms)
        del self._range.asked[wanted.request]
        part = memoryview(answered.data)[wanted.from_byte : wanted.to_byte]
        delivered = Deliver(wanted.offset, part)
        if not (self._range.asked or self._range.waiting):
            return [delivered, *self._end(ReadDone(self._chunks, self._is_smooth))]
        return [delivered, *self._ask(now_ms)]

    def _on_piece_refused(self, refused: m.PieceRefused, now_ms: int) -> list[Effect]:
        wanted = self._asked(refused.request)
        if wanted is None:
            return []
        self._pass_over(wanted, refused.reason)
        effects = self._ask(now_ms)
        if self._is_stuck() and not self._located_by and now_ms >= self._locate_due_ms:
            effects.append(self._locate(now_ms))
        return effects

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the machine's own state makes no sense."""
        asked = 0 if self._range is None else len(self._range.asked)
        if asked > self._settings.read_window:
            raise InvariantViolation(f"{asked} pieces of {self._name} are asked for")

    def statistics(self) -> int:
        """How many pieces are still to come."""
        return 0 if self._range is None else len(self._range.asked) + len(self._range.waiting)


def _is_same(one: tuple[ChunkCopies, ...], other: tuple[ChunkCopies, ...] | None) -> bool:
    """Whether both are the same object: its name may have been deleted and given again."""
    return other is not None and [c.chunk for c in one] == [c.chunk for c in other]


_HANDLERS: dict[type[Stimulus], Callable[[ObjectReading, Any, int], list[Effect]]] = {
    e.Started: ObjectReading._on_started,
    TimerFired: ObjectReading._on_timer_fired,
    m.ObjectLocated: ObjectReading._on_object_located,
    m.ObjectUnknown: ObjectReading._on_object_unknown,
    m.PieceAnswered: ObjectReading._on_piece_answered,
    m.PieceRefused: ObjectReading._on_piece_refused,
}
