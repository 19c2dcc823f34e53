"""Sessions that leave footprints: one for each key, which holds all its open sessions. [CEC §II.B,
§III]

Theory of operation. As long as a session is open its end moves, and a row may join two together, so
that no name of a session lasts. A key's name does. A footprint is opened with the first session of
a key, holds all that are open when it is written, and closes when none is left. A key that is seen
again opens another one.

A replacement adopts the newest footprints of all keys that had open sessions at a cut, and replays
the input from the oldest of these on, in silence, up to the cut:

1. A key takes the rows behind its own footprint's cut; rows before it are in there.
2. Other keys take none: all of their sessions had been put out. 1. A key's session is put out. 2.
   The replay begins before that. 3. Taken as new, it would be put out once more.
3. Sessions of adopted keys open, join and end as they did then. One that ends was put out at the
   time, so that nothing is put out now. The boundary of the cut ends the last ones.
4. Sessions that end together are put out in the order in which they began. So rows are counted from
   the oldest footprint on, those included that no key takes: what begins in a replay has the
   number that it had then. Rows before its cut are left out: of several streams some come again,
   namely those sent behind a row that was held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.footprints import KEY, WINDOW
from holdfast.core.model.ids import NO_ID
from holdfast.core.model.schema import array_over
from holdfast.core.operators.accumulators import Aggregate, AggregateFunction
from holdfast.core.operators.base import NOTHING, Evaluator, Output, Rows, chosen
from holdfast.core.operators.footprinted import Footprinted, WindowsOfPass, places_of, rows_from
from holdfast.core.operators.sessions import BEGUN, EARLIEST, LATEST, VALUES_AT, SessionWindows
from holdfast.core.state.ordered_map import OrderedMap
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.string_pages import StringPages, moved
from holdfast.core.state.unordered_map import UnorderedMap, distinct_keys

_SPAN: Final = ("earliest", "latest", "begun")
_GENERATION, _KEY_AT = range(2)
"""Words of what is kept of a footprint."""


@dataclass(frozen=True, slots=True)
class _Floors:
    """The keys that take rows while they are replayed, in pages of their own.

    Attributes:
        keys: By key the cut of its footprint, and the footprint's number.
        strings: Of the keys.
        oldest: Of the cuts.
    """

    keys: UnorderedMap
    strings: StringPages | None
    oldest: int


class FootprintedSessions(SessionWindows, Footprinted):
    """Aggregates per key and session; keys with open sessions are written one by one.

    In pages beside the others: by number, the footprints that are needed, each with its generation
    and its key. Volatile: what of the present pass is not said yet, and, while it replays, from
    where on keys take rows.
    """

    _last_words = 2  # The number of the key's footprint is the second.

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        gap_us: int,
        manager: PageManager | None = None,
    ) -> None:
        """As `SessionWindows`."""
        super().__init__(name, schema, keys, aggregates, gap_us=gap_us, manager=manager)
        groups = self._groups
        self._open = OrderedMap(self._manager, 1, _KEY_AT + groups.key_words)
        self._opened = 0  # footprints, so far
        self._generation = 0
        self._opening: list[np.ndarray] = []  # numbers, by the present pass
        self._closing: list[np.ndarray] = []
        self._floors: _Floors | None = None  # while it replays
        self._fixed_words = [w for w in range(groups.value_words) if w not in groups.text_words]
        parts = [pa.field(name, pa.int64()) for name in _SPAN]
        parts += [pa.field(f"state.{word}", pa.int64()) for word in self._fixed_words]
        parts += [pa.field(f"text.{word}", pa.large_binary()) for word in groups.text_words]
        self._session_type = pa.struct(parts)
        self.body_schema = pa.schema(
            [
                pa.field(WINDOW, pa.int64()),
                *(pa.field(f"{KEY}{i}", each.type) for i, each in enumerate(groups.key_fields)),
                pa.field("taken", pa.int64()),
                pa.field("sessions", pa.large_list(self._session_type)),
            ]
        )

    @property
    def open_windows(self) -> int:
        """How many keys have open sessions: N."""
        return len(self._open)

    # -- while the node works -----------------------------------------------------------------

    def begin_pass(self, generation: int) -> None:
        """As `Footprinted`."""
        self._generation = generation
        self._opening, self._closing = [], []

    def end_pass(self, *, closing: bool = True) -> WindowsOfPass:
        """As `Footprinted`; a key whose footprint closes and opens in one pass has a newer one."""
        del closing  # All is said at once.
        closed = _joined(self._closing)
        opened = _joined(self._opening)
        opened = opened[~np.isin(opened, closed)]
        self._opening, self._closing = [], []
        _, records = self._open.get(closed[:, None])
        self._open.remove(closed[:, None])
        records = records[records[:, _GENERATION] != self._generation]
        former = records[:, _GENERATION].copy()
        keys = records[:, _KEY_AT:]
        is_open, _ = self._last.get(keys)
        _, new = self._open.get(opened[:, None])
        bodies, names = self._bodies(new[:, _KEY_AT:]), self._names(keys[~is_open])
        return WindowsOfPass(_windows(opened), bodies, names, former, former)

    def footprints(
        self, windows: np.ndarray, former: int, generation: int, most: int
    ) -> WindowsOfPass:
        """As `Footprinted`."""
        del most  # Each key has one.
        self._generation = generation
        found, records = self._open.get(windows[:, :1])
        mine = found & (records[:, _GENERATION] == former)
        windows, records = windows[mine], records[mine]
        numbers = records[:, _GENERATION].copy()
        records[:, _GENERATION] = generation
        self._open.put(windows[:, :1], records)
        bodies = self._bodies(records[:, _KEY_AT:])
        return WindowsOfPass(windows, bodies, bodies.slice(0, 0), numbers, numbers)

    def whole(self) -> WindowsOfPass:
        """As `Footprinted`."""
        entries = self._open.entries()
        bodies, none = self._bodies(entries[:, 1 + _KEY_AT :]), np.zeros(0, dtype=np.int64)
        return WindowsOfPass(_windows(entries[:, 0]), bodies, bodies.slice(0, 0), none, none)

    def _name_last(self, keys: np.ndarray, ends: np.ndarray) -> None:
        found, last = self._last.get(keys)
        if not bool(found.all()):
            last[~found, 1] = self._numbers_of(np.ascontiguousarray(keys[~found]))
        last[:, 0] = ends
        self._last.put(keys, last)

    def _numbers_of(self, keys: np.ndarray) -> np.ndarray:
        """The numbers of the footprints of keys without open sessions. int64 (n,)."""
        if self._floors is not None:
            return self._adopted(keys)[:, 1]
        number_of, fresh = distinct_keys(self._manager, keys)
        numbers = self._opened + np.arange(len(fresh), dtype=np.int64)
        self._opened += len(fresh)
        records = np.empty((len(fresh), _KEY_AT + fresh.shape[1]), dtype=np.int64)
        records[:, _GENERATION], records[:, _KEY_AT:] = self._generation, fresh
        self._open.put(numbers[:, None], records)
        self._opening.append(numbers)
        found: np.ndarray = numbers[number_of]
        return found

    def _let_go(self, last: np.ndarray) -> None:
        if self._floors is None:
            self._closing.append(last[:, 1])

    def _texts(self) -> list[tuple[OrderedMap, list[int]]]:
        at = [1 + _KEY_AT + word for word in self._groups.key_text_words]
        return [*super()._texts(), (self._open, at)]

    # -- footprints ---------------------------------------------------------------------------

    def _names(self, keys: np.ndarray) -> pa.RecordBatch:
        """Keys without open sessions, in the columns of footprints."""
        columns = [array_over(np.zeros(len(keys), dtype=np.int64))]
        columns += self._groups.key_columns(np.ascontiguousarray(keys), self._pages)
        columns += [pa.nulls(len(keys), f.type) for f in list(self.body_schema)[-2:]]
        return pa.RecordBatch.from_arrays(columns, schema=self.body_schema)

    def _bodies(self, keys: np.ndarray) -> pa.RecordBatch:
        """Keys with all their open sessions, those of each by their ends."""
        keys = np.ascontiguousarray(keys)
        entries, owners = self._open_of(keys)
        entries = entries[np.lexsort((entries[:, 0], owners))]
        counts = np.bincount(owners, minlength=len(keys))
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
        columns = list(self._names(keys).columns)
        columns[-2] = array_over(np.full(len(keys), self._taken, dtype=np.int64))
        kind = self.body_schema.types[-1]
        offsets = pa.array(ends, pa.int64())
        columns[-1] = pa.LargeListArray.from_arrays(offsets, self._structs(entries), type=kind)
        return pa.RecordBatch.from_arrays(columns, schema=self.body_schema)

    def _structs(self, entries: np.ndarray) -> pa.StructArray:
        """Sessions as footprints have them."""
        values_at = self._at(VALUES_AT)
        at = [self._at(EARLIEST), self._at(LATEST), self._at(BEGUN)]
        at += [values_at + word for word in self._fixed_words]
        columns = [array_over(np.ascontiguousarray(entries[:, each])) for each in at]
        for word in self._groups.text_words:
            assert self._pages is not None
            references = np.ascontiguousarray(entries[:, values_at + word])
            columns.append(self._pages.gather(references, pa.large_binary()))
        return pa.StructArray.from_arrays(columns, fields=list(self._session_type))

    # -- taking the place of another ------------------------------------------------------------

    def adopt_footprints(
        self, bodies: pa.RecordBatch, generations: np.ndarray, cuts: np.ndarray, streams: int
    ) -> np.ndarray:
        """As `Footprinted`."""
        n, groups = bodies.num_rows, self._groups
        key_columns = bodies.columns[1:-2]
        keys = groups.pack_keys(key_columns, n, self._pages)
        numbers = np.arange(n, dtype=np.int64)
        records = np.concatenate([generations[:, None], keys], axis=1)
        self._open.put(numbers[:, None], records)
        self._last.put(keys, np.stack([np.zeros(n, dtype=np.int64), numbers], axis=1))
        self._opened, self._generation = n, len(cuts)
        manager = PageManager()
        strings = StringPages(manager) if groups.key_has_text else None
        floors = UnorderedMap(manager, groups.key_words, 2)
        slots = floors.upsert_slots(groups.pack_keys(key_columns, n, strings))
        floors.write_values(slots, np.stack([cuts[generations], numbers], axis=1))
        self._floors = _Floors(floors, strings, int(cuts[generations].min()) if n else 0)
        if n:
            self._adopt_sessions(keys, bodies.columns[-1], streams)
            self._taken = int(bodies.columns[-2][0].as_py())  # of the oldest
        return _windows(numbers)

    def _adopt_sessions(self, keys: np.ndarray, lists: pa.LargeListArray, streams: int) -> None:
        counts = np.diff(lists.offsets.to_numpy())
        owners = np.repeat(np.arange(len(keys), dtype=np.int64), counts)
        columns = lists.flatten().flatten()
        spans = np.stack([column.to_numpy() for column in columns[: len(_SPAN)]])
        values = np.empty((len(owners), self._groups.value_words), dtype=np.int64)
        at = len(_SPAN)
        for word in self._fixed_words:
            values[:, word], at = columns[at].to_numpy(), at + 1
        for word in self._groups.text_words:
            assert self._pages is not None
            values[:, word], at = self._pages.intern(columns[at]), at + 1
        self._store(keys, owners, spans, values)
        # No tuple is needed again for what they hold.
        self._causes.note(spans[1], np.full(streams, NO_ID, dtype=np.int64))

    def _adopted(self, keys: np.ndarray) -> np.ndarray:
        """Cuts and numbers of adopted keys, by their words here. int64 (n, 2)."""
        assert self._floors is not None
        keys, at = np.array(keys, order="C"), self._groups.key_text_words
        if self._floors.strings is not None and self._pages is not None:
            keys[:, at] = moved(keys[:, at], self._pages, self._floors.strings)
        found = self._floors.keys
        return found.read_values(found.lookup_slots(keys))

    def end_replay(self, boundary_us: int) -> None:
        """As `Footprinted`."""
        if self._floors is None:
            return
        self._close(boundary_us)
        self._floors = None
        if len(self._last) != len(self._open):
            raise InvariantViolation(
                f"{self.name}: after the replay {len(self._last)} keys have open sessions, "
                f"{len(self._open)} had"
            )

    def break_off_replay(self, boundary_us: int) -> None:
        """As `Footprinted`; a key has none open whose last session needs what is lost.

        Be it to begin, or to last beyond the boundary: then nobody has put it out, nor can it be,
        as receivers have been promised the time of its end.
        """
        self._close(boundary_us)
        self._floors = None
        begun = self._sessions.entries()[:, self._at(BEGUN)]
        self._taken = max(self._taken, int(begun.max(initial=-1)) + 1)  # Lost rows are not counted.
        entries = self._open.entries()
        is_open, _ = self._last.get(np.ascontiguousarray(entries[:, 1 + _KEY_AT :]))
        self._closing.append(entries[~is_open, 0])

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """As `SessionWindows`; while it replays, it puts nothing out.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            StateLimitExceeded: The pages are used up.
        """
        if self._floors is None:
            return super().process(inputs, low, boundary_us)
        (rows,) = inputs
        came = None if rows is None else rows_from(rows, low, self._floors.oldest)
        rows = came
        if came is not None:
            self._numbers = self._replayed(self._floors, came, low)
            rows = chosen(came, self._numbers) if len(self._numbers) else None
        super().process([rows], low, boundary_us)
        self._taken += 0 if came is None else len(came.time_us)
        self._numbers = None
        return NOTHING

    def _replayed(self, floors: _Floors, rows: Rows, low: np.ndarray) -> np.ndarray:
        """The numbers of the rows that keys take, from their footprints on. int64."""
        slots = floors.keys.lookup_slots(self._groups.keys_of(rows.batch, floors.strings))
        known = np.flatnonzero(slots >= 0)
        cuts = floors.keys.read_values(slots[known])[:, 0]
        numbers: np.ndarray = known[places_of(low, rows.time_us, rows.order)[known] >= cuts]
        return numbers

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if sessions and footprints disagree."""
        super().check_invariants()
        self._open.check_invariants()
        entries = self._open.entries()
        if self._floors is None and len(entries) != len(self._last) + len(_joined(self._closing)):
            raise InvariantViolation(
                f"{self.name}: {len(self._last)} keys with {len(entries)} footprints"
            )
        if bool((entries[:, 1 + _GENERATION] > self._generation).any()):
            raise InvariantViolation(f"{self.name}: a key's footprint is of no generation")

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        return super().state_bytes() + self._open.page_count * self._manager.page_bytes


def _windows(numbers: np.ndarray) -> np.ndarray:
    """Footprints as `WindowsOfPass` names windows. int64 (n, 2)."""
    return np.stack([numbers, np.zeros(len(numbers), dtype=np.int64)], axis=1)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """int64, one after the other."""
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
