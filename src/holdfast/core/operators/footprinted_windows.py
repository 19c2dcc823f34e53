"""Windows of keys that leave footprints: they are written one by one, and put together again. [CEC
§II.B, §III]

Theory of operation. While the node works, the operator says after each pass which windows have
opened, with their states, and which have closed; between passes the node asks for windows of its
choice. Each window's record holds the number of the *generation* that its newest footprint belongs
to (core/checkpoint/eventual.py).

A replacement adopts the newest footprints of all windows that were open at a cut. They are of
different cuts, so the input from the oldest of these on is replayed, in silence, up to the cut:

1. A window takes the rows behind its own footprint's cut; rows before it are in there.
2. No window opens. Each window that was open at the cut has been adopted, and what another one held
   has been put out. 1. A window of three tuples closes, and the next one of the key opens. 2. The
   replay begins before that. 3. Taken as new, the closed window would be put out once more.
3. A key's count of tuples goes on from the oldest footprint of its windows. From a newer one, rows
   in between would be counted twice. A key without open windows counts from zero: its last window
   took all its tuples, and nothing of the next one has come.

Rows are told apart by their places in the node's order, as cuts are: with one input stream by id,
with several by tuple time, which is what SUnion orders by.

Where windows begin with a key's first tuple, its time outlives them. It is a footprint of its own,
the key's *origin*, which opens with the key and never closes. Windows with a timeout close by the
clock: planning refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation
from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.model.schema import array_over
from holdfast.core.operators.base import Output, Rows, chosen
from holdfast.core.operators.footprinted import Footprinted, WindowsOfPass, places_of
from holdfast.core.operators.keyed_windows import (
    BEGUN,
    EARLIEST,
    KEY_AT,
    LATEST,
    TOUCHED,
    KeyedWindows,
    Parts,
)
from holdfast.core.operators.window_kinds import Entered
from holdfast.core.state.ordered_map import OrderedMap

if TYPE_CHECKING:
    from holdfast.core.operators.accumulators import Aggregate, AggregateFunction
    from holdfast.core.operators.base import Evaluator, Operator, Owns
    from holdfast.core.operators.window_kinds import WindowKind
    from holdfast.core.state.page_manager import PageManager

_NO_WINDOWS: Final = np.zeros((0, 2), dtype=np.int64)
ORIGIN: Final = BEGINNING_US
"""In the place of a window's number: what the key keeps beyond its windows. None ends so early."""
_NOT_FOUND: Final = NO_ID
"""The floor of a key of which no window was open: no row moves its count."""


class FootprintedWindows(KeyedWindows, Footprinted):
    """Aggregates per key and window, whose windows can be written one by one.

    Volatile: what of the present pass is not said yet, and, while it replays, where rows count
    from.
    """

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Sequence[Aggregate | tuple[AggregateFunction, Evaluator | None, str]],
        *,
        windows: WindowKind,
        manager: PageManager | None = None,
    ) -> None:
        """As `KeyedWindows`."""
        super().__init__(name, schema, keys, aggregates, windows=windows, manager=manager)
        self._state_at = [EARLIEST, LATEST, BEGUN]
        self._state_at += range(self._values_at, self._values_at + self._groups.value_words)
        self._text_at = [self._values_at + word for word in self._groups.text_words]
        self.body_schema = self._schema_of_bodies()
        keeps_times = not windows.is_absolute and not windows.closes_by_count
        self._origins = (
            OrderedMap(self._manager, 2, self._windows.value_words) if keeps_times else None
        )
        self._generation = 0
        self._opened: list[np.ndarray] = []
        self._closed: list[tuple[np.ndarray, np.ndarray]] = []
        self._floors: np.ndarray | None = None  # while it replays, by key: rows from here on count
        self._cuts = np.zeros(0, dtype=np.int64)  # of generations that were adopted
        self._low = np.zeros(1, dtype=np.int64)
        self._places = np.zeros(0, dtype=np.int64)  # of the rows that are being entered

    def _schema_of_bodies(self) -> pa.Schema:
        fields = [pa.field("window", pa.int64())]
        keys = self._groups.key_fields
        fields += [pa.field(f"key.{i}", field.type) for i, field in enumerate(keys)]
        fields += [pa.field("key_word", pa.int64())]
        fields += [pa.field(f"state.{i}", pa.int64()) for i in range(len(self._state_at))]
        fields += [pa.field(f"text.{i}", pa.large_binary()) for i in range(len(self._text_at))]
        return pa.schema(fields)

    @property
    def open_windows(self) -> int:
        """How many windows are open, and keys have origins: N."""
        return len(self._windows) + (0 if self._origins is None else len(self._origins))

    # -- while the node works -----------------------------------------------------------------

    def begin_pass(self, generation: int) -> None:
        """What opens from now on belongs to a generation."""
        self._generation = generation
        self._opened, self._closed = [], []

    def end_pass(self, *, closing: bool = True) -> WindowsOfPass:
        """As `Footprinted`."""
        del closing  # All is said at once.
        opened = np.concatenate([_NO_WINDOWS, *self._opened])
        found, records = self._records_of(opened)
        opened, records = opened[found], records[found]
        windows = np.concatenate([_NO_WINDOWS, *(w for w, _ in self._closed)])
        closed = np.concatenate([records[:0], *(r for _, r in self._closed)])
        were_open = closed[:, TOUCHED] != self._generation
        windows, closed = windows[were_open], closed[were_open]
        self._opened, self._closed = [], []
        former = closed[:, TOUCHED]
        names = self._names(windows, closed)
        return WindowsOfPass(opened, self._bodies(opened, records), names, former, former)

    def footprints(
        self, windows: np.ndarray, former: int, generation: int, most: int
    ) -> WindowsOfPass:
        """As `Footprinted`."""
        del most  # Each window has one.
        self._generation = generation
        found, records = self._records_of(windows)
        mine = found & (records[:, TOUCHED] == former)
        windows, records = windows[mine], records[mine]
        numbers = records[:, TOUCHED].copy()
        records[:, TOUCHED] = generation
        self._keep(windows, records)
        bodies = self._bodies(windows, records)
        return WindowsOfPass(windows, bodies, bodies.slice(0, 0), numbers, numbers)

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """As `KeyedWindows`; what keys keep beyond their windows follows from the keys."""
        super().adopt(others, owns, streams)
        if self._origins is None:
            return
        entries, words = self._keys.entries(), self._groups.key_words
        origins = np.empty((len(entries), 2), dtype=np.int64)
        origins[:, 0], origins[:, 1] = ORIGIN, entries[:, words] - 1
        records = np.zeros((len(entries), self._windows.value_words), dtype=np.int64)
        records[:, EARLIEST] = records[:, LATEST] = entries[:, words + 1]
        records[:, KEY_AT : self._values_at] = entries[:, :words]
        self._origins.put(origins, records)

    def whole(self) -> WindowsOfPass:
        """As `Footprinted`."""
        entries = self._windows.entries()
        if self._origins is not None:
            entries = np.concatenate([entries, self._origins.entries()])
        windows = np.ascontiguousarray(entries[:, :2])
        records = np.ascontiguousarray(entries[:, 2:])
        bodies, none = self._bodies(windows, records), np.zeros(0, dtype=np.int64)
        return WindowsOfPass(windows, bodies, bodies.slice(0, 0), none, none)

    def _records_of(self, windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of these windows and origins are open, and what is kept of them."""
        found, records = self._windows.get(windows)
        if self._origins is not None:
            at = np.flatnonzero(windows[:, 0] == ORIGIN)
            found[at], records[at] = self._origins.get(windows[at])
        return found, records

    def _keep(self, windows: np.ndarray, records: np.ndarray) -> None:
        """Windows and origins as they are now."""
        if self._origins is not None:
            is_origin = windows[:, 0] == ORIGIN
            self._origins.put(windows[is_origin], records[is_origin])
            windows, records = windows[~is_origin], records[~is_origin]
        self._windows.put(windows, records)

    def _open_origins(self, keys: np.ndarray, entered: Entered, first: int) -> None:
        """Keys with these numbers, and higher ones, have come for the first time."""
        assert self._origins is not None
        numbers, at = np.unique(entered.windows[:, self._kind.number_at], return_index=True)
        rows = entered.rows[at[numbers >= first]]
        origins = np.empty((len(rows), 2), dtype=np.int64)
        origins[:, 0], origins[:, 1] = ORIGIN, numbers[numbers >= first]
        records = np.zeros((len(rows), self._windows.value_words), dtype=np.int64)
        records[:, EARLIEST] = records[:, LATEST] = entered.words[rows]
        records[:, TOUCHED] = self._generation
        records[:, KEY_AT : self._values_at] = keys[rows]
        self._origins.put(origins, records)
        self._opened.append(origins)

    def _touch(
        self, windows: np.ndarray, records: np.ndarray, found: np.ndarray, is_full: np.ndarray
    ) -> None:
        records[~found, TOUCHED] = self._generation
        if not bool(found.all()):
            self._opened.append(windows[~found & ~is_full])
        if bool(is_full.any()):
            self._closed.append((windows[is_full], records[is_full]))

    def _let_go(self, windows: np.ndarray, records: np.ndarray) -> None:
        self._closed.append((windows, records))

    def _named(self, windows: np.ndarray, keys: np.ndarray) -> list[pa.Array]:
        """The columns that tell windows."""
        numbers = np.ascontiguousarray(windows[:, 1 - self._kind.number_at])
        return [array_over(numbers), *self._groups.key_columns(keys, self._key_strings)]

    def _names(self, windows: np.ndarray, records: np.ndarray) -> pa.RecordBatch:
        """Windows that have closed, in the columns of footprints: of their states nothing is left.

        1. A pass closes windows. 2. With them most strings have become garbage, so that the others
        are stored anew. 3. What the records of closed windows refer to is gone.
        """
        columns = self._named(windows, np.ascontiguousarray(records[:, KEY_AT : self._values_at]))
        rest = list(self.body_schema)[len(columns) :]
        columns += [pa.nulls(len(windows), field.type) for field in rest]
        return pa.RecordBatch.from_arrays(columns, schema=self.body_schema)

    def _bodies(self, windows: np.ndarray, records: np.ndarray) -> pa.RecordBatch:
        """Windows in the columns of footprints."""
        keys = np.ascontiguousarray(records[:, KEY_AT : self._values_at])
        columns = self._named(windows, keys)
        columns.append(array_over(self._words_of(keys)))
        columns += [array_over(np.ascontiguousarray(records[:, at])) for at in self._state_at]
        for at in self._text_at:
            assert self._strings is not None
            references = np.ascontiguousarray(records[:, at])
            columns.append(self._strings.pages.gather(references, pa.large_binary()))
        return pa.RecordBatch.from_arrays(columns, schema=self.body_schema)

    def _words_of(self, keys: np.ndarray) -> np.ndarray:
        """What is kept of these keys, where that tells their windows. int64 (n,)."""
        if not self._kind.closes_by_count and self._origins is None:
            return np.zeros(len(keys), dtype=np.int64)
        known = self._keys.read_values(self._keys.lookup_slots(keys))
        return np.ascontiguousarray(known[:, 1])

    # -- taking the place of another ------------------------------------------------------------

    def adopt_footprints(
        self, bodies: pa.RecordBatch, generations: np.ndarray, cuts: np.ndarray, streams: int
    ) -> np.ndarray:
        """As `Footprinted`; each window has one footprint, its newest."""
        n, at = bodies.num_rows, 1 + len(self._groups.key_fields)
        keys = self._groups.pack_keys(bodies.columns[1:at], n, self._key_strings)
        words = bodies.column(at).to_numpy()
        numbers = self._adopt_key_words(keys, words, cuts[generations])
        windows = np.empty((n, 2), dtype=np.int64)
        windows[:, self._kind.number_at] = numbers
        windows[:, 1 - self._kind.number_at] = bodies.column(0).to_numpy()
        records = np.zeros((n, self._windows.value_words), dtype=np.int64)
        records[:, KEY_AT : self._values_at] = keys
        for position, word in enumerate(self._state_at):
            records[:, word] = bodies.column(at + 1 + position).to_numpy()
        for position, word in enumerate(self._text_at):
            assert self._strings is not None
            text = bodies.column(at + 1 + len(self._state_at) + position)
            records[:, word] = self._strings.pages.intern(text)
        records[:, TOUCHED] = generations
        self._keep(windows, records)
        if n:
            # No tuple is needed again for what they hold.
            self._causes.note(records[:, LATEST], np.full(streams, NO_ID, dtype=np.int64))
            self._taken = int(records[:, BEGUN].max()) + 1
        self._cuts, self._generation = cuts, len(cuts)
        return windows

    def _adopt_key_words(self, keys: np.ndarray, words: np.ndarray, cuts: np.ndarray) -> np.ndarray:
        """Keys as their oldest footprints have them; their numbers, int64 (n,)."""
        newest_first = np.argsort(-cuts, kind="stable")
        slots, known, _ = self._numbered(keys)
        known[:, 1] = words
        self._keys.write_values(slots[newest_first], known[newest_first])
        numbers = known[:, 0] - 1
        self._floors = np.full(len(self._keys), _NOT_FOUND, dtype=np.int64)
        np.minimum.at(self._floors, numbers, cuts)
        return numbers

    def end_replay(self, boundary_us: int) -> None:
        """As `Footprinted`."""
        del boundary_us  # What it closes had been put out.
        self._floors = None
        self._cuts = self._cuts[:0]

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """As `KeyedWindows`; while it replays, it puts nothing out.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            InvariantViolation: It has replayed, and a window closes that was open at the cut.
            StateLimitExceeded: The pages are used up.
        """
        if self._floors is None:
            return super().process(inputs, low, boundary_us)
        self._low = low
        before = len(self._windows)
        output = super().process([self._replayed(rows) for rows in inputs], low, boundary_us)
        if len(self._windows) != before:
            raise InvariantViolation(f"{self.name}: replaying has opened or closed a window")
        return output

    def _replayed(self, rows: Rows | None) -> Rows | None:
        """The rows of keys whose windows were open, from the oldest footprints on."""
        if rows is None or not len(rows.time_us) or self._floors is None:
            return None
        slots = self._keys.lookup_slots(self._groups.keys_of(rows.batch, self._key_strings))
        floors = np.full(len(slots), _NOT_FOUND, dtype=np.int64)
        known = slots >= 0
        floors[known] = self._floors[self._keys.read_values(slots[known])[:, 0] - 1]
        counts = places_of(self._low, rows.time_us, rows.order) >= floors
        return chosen(rows, np.flatnonzero(counts))

    def _take_some(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[pa.Array | None],
        time_us: np.ndarray,
        order: np.ndarray,
        parts: Parts,
    ) -> None:
        if self._floors is not None:
            self._places = places_of(self._low, time_us, order)
        super()._take_some(batch, columns, time_us, order, parts)

    def _enter(self, keys: np.ndarray, time_us: np.ndarray) -> Entered:
        """While it replays, only the windows that were open, behind their own cuts."""
        known = len(self._keys)
        entered = super()._enter(keys, time_us)
        if self._floors is None:
            if self._origins is not None and len(self._keys) > known:
                self._open_origins(keys, entered, known)
            return entered
        found, records = self._windows.get(entered.windows)
        cuts = np.full(len(found), _NOT_FOUND, dtype=np.int64)
        cuts[found] = self._cuts[records[found, TOUCHED]]
        counts = self._places[entered.rows] >= cuts
        return Entered(entered.words, entered.rows[counts], entered.windows[counts])

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if a structure or a generation makes no sense."""
        super().check_invariants()
        entries = self._windows.entries()
        if self._origins is not None:
            self._origins.check_invariants()
            entries = np.concatenate([entries, self._origins.entries()])
            if len(self._origins) != len(self._keys):
                raise InvariantViolation(
                    f"{self.name}: {len(self._keys)} keys with {len(self._origins)} origins"
                )
        if bool((entries[:, 2 + TOUCHED] > self._generation).any()):
            raise InvariantViolation(f"{self.name}: a window's footprint is of no generation")

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        pages = 0 if self._origins is None else self._origins.page_count
        return super().state_bytes() + pages * self._manager.page_bytes
