"""Aggregates over sessions: rows of a key that follow one another closely. Convergent-capable.
[HA §3.2]

A row belongs to the session of every row of its key that is at most the gap away, so that a row
may join two sessions together. A session begins with its earliest row and ends the gap behind its
latest one; a row at its very end still belongs to it, as in Spark. So it is put out when the
boundary has passed its end, with its end as tuple time, in the order (end, when it began).

State, all in pages: a T-tree of the open sessions by (end, key), each with the times of its rows,
when it began, the end of the key's session before it, and its accumulators; and by key the end of
its last session. So a key leaves nothing behind when its sessions have closed. Sessions of a key
are found by the ends that name one another; where such an end is of no open session, that one has
closed, and so have all before it.

Within a pass, rows are put into sessions one after the other (`assign_sessions`), so that neither
sessions nor sums of floats depend on how rows are cut into passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US, NO_ID
from holdfast.core.model.schema import column_of
from holdfast.core.operators.accumulators import (
    WINDOW_FIELDS,
    WINDOW_TIME,
    Accumulators,
    Aggregate,
    AggregateFunction,
)
from holdfast.core.operators.base import (
    AT_CLOSE,
    NOTHING,
    Evaluator,
    Operator,
    OperatorClass,
    Output,
    Owns,
    Rows,
    has_rows,
)
from holdfast.core.operators.causes import Causes
from holdfast.core.state.ordered_map import OrderedMap, time_bound
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.recycled_strings import RecycledStrings
from holdfast.core.state.session_kernels import assign_sessions
from holdfast.core.state.string_pages import StringPages, moved
from holdfast.core.state.total_pages import total_pages
from holdfast.core.state.unordered_map import UnorderedMap, distinct_keys

EARLIEST, LATEST, LINK, BEGUN, VALUES_AT = range(5)
"""Words of a session: times of its rows, end of the key's session before it, when it began; then
its accumulators."""
_NONE: Final = BEGINNING_US
"""The end of no session."""
_NOT_WANTED: Final = 0
_FRESH: Final = 1 << 62
"""More than the number of any row: what begins has begun with none of those before."""


class SessionWindows(Operator):
    """Aggregates per key and session."""

    operator_class = OperatorClass.CONVERGENT_CAPABLE
    _last_words: ClassVar[int] = 1
    """What is kept of a key: the end of its last session first."""
    _numbers: np.ndarray | None = None
    """Where rows are left out, int64: the numbers of the others among all. They begin sessions."""

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
        """Aggregate rows of `schema`.

        Args:
            name: Of the operator.
            schema: Of the input.
            keys: Key columns, maybe none; nulls are a key, -0.0 = 0.0 and NaN = NaN.
            aggregates: Function (count, sum, min, max, avg), argument, output name.
            gap_us: Microseconds without a row after which a session has ended.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: As `Accumulators`, the gap is not positive, or an aggregate depends
                on the order of rows.
        """
        if gap_us <= 0:
            raise LocalProtocolError(f"{name}: a gap of {gap_us} us; more than 0 needed")
        self.name = name
        self._gap_us = gap_us
        self._manager = manager if manager is not None else PageManager()
        self._groups = Accumulators(name, schema, keys, aggregates)
        groups = self._groups
        if groups.needs_order:
            raise LocalProtocolError(
                f"{name}: two sessions that a tuple joins have no order among each other, on which "
                "first, last, min_by, max_by and collect_list depend"
            )
        self._sessions = OrderedMap(
            self._manager, 1 + groups.key_words, VALUES_AT + groups.value_words
        )
        self._last = OrderedMap(self._manager, groups.key_words, self._last_words)
        has_text = groups.key_has_text or groups.value_has_text
        self._strings = RecycledStrings(self._manager) if has_text else None
        self._causes = Causes(self._manager)
        begun = self._sessions.entries()[:, 1 + groups.key_words + BEGUN]
        self._taken = int(begun.max()) + 1 if len(begun) else 0  # rows; orders sessions
        self._created_us = 0
        self.output_schema = pa.schema([*WINDOW_FIELDS, *groups.fields])

    @property
    def _pages(self) -> StringPages | None:
        return None if self._strings is None else self._strings.pages

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Put the rows into sessions; put out those that have ended.

        Raises:
            ArithmeticOverflow: A sum does not fit its type.
            StateLimitExceeded: The pages are used up.
        """
        (rows,) = inputs
        if rows is not None and has_rows(rows):
            self._causes.note(rows.time_us, low)
            self._created_us = max(self._created_us, rows.created_us)
            self._take_rows(rows)
        ended = self._close(boundary_us)
        cause = self._causes.oldest()
        self._forget()
        if not len(ended) or cause is None:
            return NOTHING
        ended = ended[np.lexsort((ended[:, self._at(BEGUN)], ended[:, 0]))]
        batch = self._batch(ended)
        self._renew()
        time_us = np.ascontiguousarray(ended[:, 0])
        order = np.full(len(ended), AT_CLOSE, dtype=np.int64)
        return Output((Rows(batch, time_us, order, self._created_us),), cause)

    def oldest_needed(self) -> np.ndarray | None:
        """The oldest tuple of an open session."""
        return self._causes.oldest()

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Sessions go in the order of the instances that held them."""
        groups, at = self._groups, 1 + self._groups.key_words
        for other in others:
            assert isinstance(other, SessionWindows)
            entries = other._sessions.entries()
            keys = np.ascontiguousarray(entries[:, 1:at])
            entries = np.ascontiguousarray(entries[groups.owned(owns, keys, other._pages)])
            if len(entries):
                # The checkpoint has them: no tuple is needed.
                low = np.full(streams, NO_ID, dtype=np.int64)
                self._causes.note(entries[:, self._at(LATEST)], low)
                if self._pages is not None and other._pages is not None:
                    text_at = self._text_at()
                    entries[:, text_at] = moved(entries[:, text_at], other._pages, self._pages)
                entries[:, self._at(BEGUN)] += self._taken
                self._sessions.put(entries[:, :at], entries[:, at:])
                self._name_last(np.ascontiguousarray(entries[:, 1:at]), entries[:, 0])
            self._taken += other._taken

    # -- taking rows in ---------------------------------------------------------------------

    def _take_rows(self, rows: Rows) -> None:
        columns = self._groups.evaluate(rows.batch)
        all_keys = self._groups.keys_of(rows.batch, self._pages)
        number_of, keys = distinct_keys(self._manager, all_keys)
        found, owners = self._open_of(keys)
        values = self._at(VALUES_AT)
        count, existing = len(rows.time_us), len(found)
        heads = np.full(len(keys), -1, dtype=np.int64)
        links = np.full(existing + count, -1, dtype=np.int64)
        by_owner = np.argsort(owners, kind="stable")
        is_next = owners[by_owner[1:]] == owners[by_owner[:-1]]
        links[by_owner[:-1][is_next]] = by_owner[1:][is_next]
        heads[owners[::-1]] = np.arange(existing - 1, -1, -1, dtype=np.int64)
        spans = np.zeros((3, existing + count), dtype=np.int64)
        for row, word in enumerate((EARLIEST, LATEST, BEGUN)):
            spans[row, :existing] = found[:, self._at(word)]
        places = np.empty(count, dtype=np.int64)
        merges = np.empty((count, 3), dtype=np.int64)
        begun = self._taken if self._numbers is None else _FRESH
        merged = assign_sessions(
            number_of, rows.time_us.copy(), self._gap_us, begun, heads, links,
            spans[0], spans[1], spans[2], existing, places, merges,
        )  # fmt: skip
        if self._numbers is None:
            self._taken += count
        else:
            fresh = np.flatnonzero(spans[2] >= _FRESH)
            spans[2, fresh] = self._taken + self._numbers[spans[2, fresh] - _FRESH]
        made = max(existing - 1, int(places.max())) + 1
        before = np.zeros((made, self._groups.value_words), dtype=np.int64)
        before[:existing] = found[:, values:]
        arguments, mask = self._groups.arguments_of(columns, count, self._pages)
        after = self._updated(places, merges[:merged], before, arguments, mask)
        owner_of = np.empty(made, dtype=np.int64)
        owner_of[:existing] = owners
        owner_of[places] = number_of
        alive = np.ones(made, dtype=np.bool_)
        alive[merges[:merged, 2]] = False
        self._sessions.remove(found[:, : self._at(0)])
        self._store(keys, owner_of[alive], spans[:, :made][:, alive], after[alive])

    def _open_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The open sessions of keys, as stored, and which of the keys each is of."""
        known, last = self._last.get(keys)
        ends, owners = last[known, 0], np.flatnonzero(known)
        parts: list[np.ndarray] = [np.empty((0, self._sessions.width), dtype=np.int64)]
        whose: list[np.ndarray] = [np.empty(0, dtype=np.int64)]
        while len(ends):
            names = np.concatenate([ends[:, None], keys[owners]], axis=1)
            found, records = self._sessions.get(names)
            owners = owners[found]
            parts.append(np.concatenate([names[found], records[found]], axis=1))
            whose.append(owners)
            ends = records[found, LINK]
            owners, ends = owners[ends != _NONE], ends[ends != _NONE]
        return np.concatenate(parts), np.concatenate(whose)

    def _updated(
        self,
        places: np.ndarray,
        merges: np.ndarray,
        before: np.ndarray,
        arguments: np.ndarray,
        mask: np.ndarray,
    ) -> np.ndarray:
        """The accumulators of sessions after the rows, between whose updates some are merged."""
        groups = UnorderedMap(self._manager, 1, self._groups.value_words)
        names = np.arange(len(before), dtype=np.int64)[:, None]
        slots = groups.upsert_slots(names)
        groups.write_values(slots, before)
        begin = 0
        for row, into, other in [*merges.tolist(), [len(places), -1, -1]]:
            if row > begin:
                some = slice(begin, row)
                self._groups.update(
                    self._manager,
                    groups,
                    self._pages,
                    places[some, None],
                    np.ascontiguousarray(arguments[:, some]),
                    np.ascontiguousarray(mask[:, some]) if mask.shape[1] else mask,
                    np.empty((_NOT_WANTED, self._groups.value_words), dtype=np.int64),
                )
                begin = row
            if into >= 0:
                pair = groups.read_values(slots[[into, other]])
                whole = self._groups.merged(pair[0], pair[1], self._pages)
                groups.write_values(slots[[into]], whole[None, :])
        values = groups.read_values(slots)
        groups.destroy()
        return values

    def _store(
        self, keys: np.ndarray, owners: np.ndarray, spans: np.ndarray, values: np.ndarray
    ) -> None:
        """Keep all open sessions of some keys, each naming the end of the one before it."""
        ends = spans[1] + self._gap_us
        order = np.lexsort((ends, owners))
        owners, ends, spans, values = owners[order], ends[order], spans[:, order], values[order]
        is_first = np.ones(len(owners), dtype=np.bool_)
        is_first[1:] = owners[1:] != owners[:-1]
        records = np.empty((len(owners), VALUES_AT + values.shape[1]), dtype=np.int64)
        records[:, EARLIEST], records[:, LATEST], records[:, BEGUN] = spans
        records[:, LINK] = np.where(is_first, _NONE, np.roll(ends, 1))
        records[:, VALUES_AT:] = values
        self._sessions.put(np.concatenate([ends[:, None], keys[owners]], axis=1), records)
        self._name_last(keys[owners], ends)

    def _name_last(self, keys: np.ndarray, ends: np.ndarray) -> None:
        """Sessions of these keys end then; of a key the last one is the last in order."""
        self._last.put(keys, ends[:, None])

    # -- putting sessions out ---------------------------------------------------------------

    def _close(self, boundary_us: int) -> np.ndarray:
        """Take out the sessions that end before the boundary, as stored."""
        ended = self._sessions.pop_below(time_bound(boundary_us, self._sessions.key_words))
        if len(ended):
            keys = np.ascontiguousarray(ended[:, 1 : self._at(0)])
            _, last = self._last.get(keys)
            is_last = last[:, 0] == ended[:, 0]
            self._let_go(last[is_last])
            self._last.remove(keys[is_last])
        return ended

    def _let_go(self, last: np.ndarray) -> None:
        """Of keys of which this was kept, no session is open."""

    def _forget(self) -> None:
        """Let go of causes."""
        self._causes.forget_seldom(
            len(self._sessions),
            lambda: int(self._sessions.entries()[:, self._at(EARLIEST)].min()),
        )

    def _renew(self) -> None:
        """Forget the strings of sessions that have gone, when it is worth it."""
        if self._strings is None or not self._strings.is_due:
            return
        trees = self._texts()
        entries = [tree.entries() for tree, _ in trees]
        texts = [each[:, at] for each, (_, at) in zip(entries, trees, strict=True)]
        found = self._strings.renew(np.concatenate([text.reshape(-1) for text in texts]))
        for each, text, (tree, at) in zip(entries, texts, trees, strict=True):
            each[:, at], found = found[: text.size].reshape(text.shape), found[text.size :]
            tree.pop_first(len(tree))
            tree.put(each[:, : tree.key_words], each[:, tree.key_words :])

    def _texts(self) -> list[tuple[OrderedMap, list[int]]]:
        """The trees, and which words of their entries refer to strings."""
        return [(self._sessions, self._text_at()), (self._last, self._groups.key_text_words)]

    def _batch(self, entries: np.ndarray) -> pa.RecordBatch:
        at, values_at = self._at(0), self._at(VALUES_AT)
        edges = (entries[:, self._at(EARLIEST)], entries[:, 0])
        columns = [column_of(np.ascontiguousarray(edge), None, WINDOW_TIME) for edge in edges]
        keys = np.ascontiguousarray(entries[:, 1:at])
        columns += self._groups.key_columns(keys, self._pages)
        values = np.ascontiguousarray(entries[:, values_at:])
        columns += self._groups.result_columns(values, self._pages)
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)

    def _at(self, word: int) -> int:
        """Where a word of a session is in an entry of the tree."""
        return 1 + self._groups.key_words + word

    def _text_at(self) -> list[int]:
        """Which words of an entry refer to strings."""
        keys = [1 + word for word in self._groups.key_text_words]
        return [*keys, *(self._at(VALUES_AT + word) for word in self._groups.text_words)]

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if a structure makes no sense, or a session's times do."""
        for each in (self._sessions, self._last, self._causes):
            each.check_invariants()
        entries = self._sessions.entries()
        earliest, latest = entries[:, self._at(EARLIEST)], entries[:, self._at(LATEST)]
        if bool((earliest > latest).any()) or bool((latest + self._gap_us != entries[:, 0]).any()):
            raise InvariantViolation(f"{self.name}: a session does not end behind its last row")
        found, _ = self._open_of(
            np.ascontiguousarray(self._last.entries()[:, : self._last.key_words])
        )
        if len(found) != len(entries):
            raise InvariantViolation(
                f"{self.name}: {len(entries)} sessions are open, {len(found)} are named"
            )

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        pages = total_pages(self._sessions, self._last, self._causes, self._strings)
        return pages * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """The open sessions with their results so far."""
        return pa.Table.from_batches([self._batch(self._sessions.entries())])
