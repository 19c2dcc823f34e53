"""Resample: values at other times, by linear interpolation. Convergent-capable. [HA §3.2]

The value of a column at a time T lies on the line between its last value at or before T and its
first one at or after T, of the same key, if both are at most `within` away; otherwise it is null.
Of several values at one time the greatest counts (NaN is greatest), so that the order of arrival
does not matter; null values do not count. The times are those of a second input, or the multiples
of a period at which a key has tuples on both sides.

So what comes out at T depends on tuples from T - within to T + within alone, and can be told once
the boundary has passed the latter. Since every look goes over all that is held, it is taken only
when the boundary has moved on by an eighth of `within`: a row is put out at most 9/8 `within` of
tuple time after its own, and the output's boundary is as far behind the input's. Rows come in the
order (T, arrival); at a period's multiples, (T, arrival of the key's last tuple up to T).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.model.schema import RecordPacking, column_of
from holdfast.core.model.stable_hash import normal_float_words
from holdfast.core.operators.accumulators import WINDOW_TIME
from holdfast.core.operators.base import (
    AT_CLOSE,
    NOTHING,
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
from holdfast.core.state.raw_page import RawPage
from holdfast.core.state.recycled_strings import RecycledStrings
from holdfast.core.state.string_pages import moved
from holdfast.core.state.total_pages import total_pages

TIME_NAME: Final = "time"
POINTS_MAX: Final = 100_000
"""Multiples of the period that two tuples may have between them."""
_LOOKS: Final = 8
_SIGN: Final = np.int64(2**63 - 1)
_NO_KEY: Final = -1


class Resample(Operator):
    """Interpolates columns of port 0 at the times of port 1, or at multiples of a period."""

    operator_class = OperatorClass.CONVERGENT_CAPABLE

    def __init__(
        self,
        name: str,
        schemas: Sequence[pa.Schema],
        keys: Sequence[Sequence[str]],
        columns: Sequence[tuple[str, str]],
        *,
        within_us: int,
        every_us: int | None = None,
        manager: PageManager | None = None,
    ) -> None:
        """Resample rows of `schemas[0]`.

        Args:
            name: Of the operator.
            schemas: Of port 0 and, without a period, of port 1, whose rows are put out with the
                interpolated columns after theirs.
            keys: Key columns per port, of the same types; maybe none. A null key of port 1 equals
                nothing.
            columns: Numeric columns of port 0, and the names of the results, which are doubles.
            within_us: How far away a value may be, microseconds.
            every_us: The period, counted from the epoch. Rows have `time`, the keys, the results.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: A column is missing or of a wrong type, or a time not positive.
        """
        self.name = name
        self._manager = manager if manager is not None else PageManager()
        self._every_us = every_us
        _check(name, schemas, keys, columns, within_us, every_us)
        self._within_us = within_us
        self._look_us = max(1, within_us // _LOOKS)
        self._keys = [
            [s.get_field_index(k) for k in k_] for s, k_ in zip(schemas, keys, strict=True)
        ]
        self._columns = [schemas[0].get_field_index(column) for column, _ in columns]
        key_fields = [schemas[0].field(key) for key in self._keys[0]]
        self._key_packing = RecordPacking([field.type for field in key_fields], is_key=True)
        self._key_words = self._key_packing.width
        results = [pa.field(result, pa.float64()) for _, result in columns]
        time = pa.field(TIME_NAME, WINDOW_TIME, nullable=False)
        self._state_schema = pa.schema([time, *key_fields, *results])
        self._row_packing = None if every_us is not None else RecordPacking(schemas[1].types)
        packings = [self._key_packing, *([self._row_packing] if self._row_packing else [])]
        has_text = any(packing.has_text for packing in packings)
        self._strings = RecycledStrings(self._manager) if has_text else None
        self._values = OrderedMap(self._manager, 2, self._key_words + 2 * len(self._columns))
        self._asked: OrderedMap | None = None
        if self._row_packing is not None:
            words = self._key_words + self._row_packing.width
            self._asked = OrderedMap(self._manager, 2, words)
            first = list(schemas[1])
        else:
            first = [time, *key_fields]
        self._state = RawPage(self._manager)  # number of the next row, time put out up to
        self._causes = Causes(self._manager)
        self._created_us = 0
        self.output_schema = pa.schema([*first, *results])

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Take rows in; put out what lies far enough behind the boundary.

        Raises:
            StateLimitExceeded: The pages are used up.
        """
        for port, rows in enumerate(inputs):
            if rows is not None and has_rows(rows):
                self._causes.note(rows.time_us, low)
                self._created_us = max(self._created_us, rows.created_us)
                self._take_rows(port, rows)
        number, done_us = self._read_state()
        until_us = self._told_before(boundary_us)
        if until_us <= done_us:
            return NOTHING
        found = self._look(done_us, until_us)
        self._state.write(np.array([number, until_us], dtype=np.int64))
        cause = self._causes.oldest()
        self._forget(until_us)
        if found is None or cause is None:
            return NOTHING
        batch, time_us = found
        order = np.full(len(time_us), AT_CLOSE, dtype=np.int64)
        return Output((Rows(batch, time_us, order, self._created_us),), cause)

    def promises_us(self, boundary_us: int) -> int:
        """Behind the input's by what has to be known after a row's time."""
        return self._told_before(boundary_us)

    def oldest_needed(self) -> np.ndarray | None:
        """The oldest of the tuples held."""
        return self._causes.oldest()

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Rows are numbered anew, in the order of the instances that held them.

        Raises:
            LocalProtocolError: They have not come equally far.
        """
        low = np.full(streams, NO_ID, dtype=np.int64)  # The checkpoint has it: nothing is needed.
        number, done_us = 0, BEGINNING_US
        for position, other in enumerate(others):
            assert isinstance(other, Resample)
            count, until_us = other._read_state()
            if position and until_us != done_us:
                raise LocalProtocolError(f"{self.name}: one is at {until_us}, one at {done_us}")
            done_us = until_us
            for held, own in ((other._values, self._values), (other._asked, self._asked)):
                if held is None or own is None:
                    continue
                rows = held.entries()
                rows = rows[self._are_own(rows, other, owns)]
                if not len(rows):
                    continue
                rows[:, 1] += number
                if self._strings is not None and other._strings is not None:
                    at = self._text_at(is_asked=own is self._asked)
                    rows[:, at] = moved(rows[:, at], other._strings.pages, self._strings.pages)
                own.put(rows[:, :2], rows[:, 2:])
                self._causes.note(rows[:, 0], low)
            number += count
        if others:
            self._state.write(np.array([number, done_us], dtype=np.int64))

    def _are_own(self, rows: np.ndarray, other: Resample, owns: Owns) -> np.ndarray:
        """Which rows that another instance holds belong to this one. bool (n,)"""
        if not self._keys[0]:
            return np.ones(len(rows), dtype=np.bool_)
        words = np.ascontiguousarray(rows[:, 2 : 2 + self._key_words])
        strings = None if other._strings is None else other._strings.pages
        return owns(self._key_packing.unpack(words, strings))

    def _text_at(self, *, is_asked: bool) -> list[int]:
        """Which words of a value, or of a row that asks, are references to strings."""
        at = [2 + word for word in self._key_packing.text_words]
        if is_asked and self._row_packing is not None:
            at += [2 + self._key_words + word for word in self._row_packing.text_words]
        return at

    # -- taking rows in ---------------------------------------------------------------------

    def _read_state(self) -> tuple[int, int]:
        words = self._state.read().tolist()
        return (words[0], words[1]) if words else (0, BEGINNING_US)

    def _told_before(self, boundary_us: int) -> int:
        """All that is put out before this time can be told."""
        if boundary_us == END_US or boundary_us < BEGINNING_US + 4 * self._within_us:
            return boundary_us if boundary_us == END_US else BEGINNING_US
        return (boundary_us - self._within_us) // self._look_us * self._look_us

    def _take_rows(self, port: int, rows: Rows) -> None:
        """Hold values, or rows that ask for some."""
        count = len(rows.time_us)
        number, done_us = self._read_state()
        self._state.write(np.array([number + count, done_us], dtype=np.int64))
        names = np.stack([rows.time_us, np.arange(number, number + count)], axis=1)
        strings = None if self._strings is None else self._strings.pages
        held = self._values if port == 0 else self._asked
        assert held is not None
        words = np.zeros((count, held.value_words), dtype=np.int64)
        keys = [rows.batch.column(key) for key in self._keys[port]]
        if keys:
            self._key_packing.pack(keys, strings, words[:, : self._key_words])
        if port == 1:
            assert self._row_packing is not None
            self._row_packing.pack(rows.batch.columns, strings, words[:, self._key_words :])
        else:
            for i, column in enumerate(self._columns):
                at = self._key_words + 2 * i
                values = rows.batch.column(column).cast(pa.float64(), safe=False)
                words[:, at] = values.is_valid().to_numpy(zero_copy_only=False)
                words[:, at + 1] = normal_float_words(values) * words[:, at]
        held.put(names, words)

    # -- putting rows out -------------------------------------------------------------------

    def _look(self, from_us: int, until_us: int) -> tuple[pa.RecordBatch, np.ndarray] | None:
        """The rows of times in [from, until), and these."""
        values = self._values.entries()
        if self._asked is None:
            return self._at_multiples(values, from_us, until_us)
        asked = self._asked.pop_below(time_bound(until_us, 2))
        if not len(asked):
            return None
        keys, numbers = self._numbered(values, asked)
        time_us = np.ascontiguousarray(asked[:, 0])
        results = self._interpolated(values, keys, numbers, time_us)
        assert self._row_packing is not None
        words = np.ascontiguousarray(asked[:, 2 + self._key_words :])
        strings = None if self._strings is None else self._strings.pages
        columns = [*self._row_packing.unpack(words, strings), *results]
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema), time_us

    def _numbered(self, values: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the keys of values and of rows that ask; `_NO_KEY` for those with a null."""
        keys = np.concatenate([part[:, 2 : 2 + self._key_words] for part in (values, asked)])
        numbers = _key_numbers(keys)
        if self._key_words:
            numbers[len(values) :][self._key_packing.is_any_null(keys[len(values) :])] = _NO_KEY
        return numbers[: len(values)], numbers[len(values) :]

    def _at_multiples(
        self, values: np.ndarray, from_us: int, until_us: int
    ) -> tuple[pa.RecordBatch, np.ndarray] | None:
        """One row per key and multiple of the period between two of its tuples, or at one."""
        assert self._every_us is not None
        if not len(values):
            return None
        every_us, within_us = self._every_us, self._within_us
        keys = _key_numbers(values[:, 2 : 2 + self._key_words])
        order = np.lexsort((values[:, 1], values[:, 0], keys))
        time_us, key = values[order, 0], keys[order]
        is_last = np.append(key[1:] != key[:-1], True)
        is_own = np.append(is_last[:-1] | (time_us[1:] != time_us[:-1]), True)
        is_own &= (time_us % every_us == 0) & (from_us <= time_us) & (time_us < until_us)
        own = np.flatnonzero(is_own)
        here = np.flatnonzero(~is_last)
        low = np.maximum(time_us[here] + 1, np.maximum(time_us[here + 1] - within_us, from_us))
        high = np.minimum(time_us[here + 1], np.minimum(time_us[here] + within_us + 1, until_us))
        first = -(-low // every_us)
        counts = np.maximum(0, (high - 1) // every_us + 1 - first)
        step = np.arange(counts.sum(), dtype=np.int64)
        step -= np.repeat(np.cumsum(counts) - counts, counts)
        pair = np.concatenate([own, np.repeat(here, counts)])
        at_us = np.concatenate([time_us[own], (np.repeat(first, counts) + step) * every_us])
        if not len(pair):
            return None
        by_time = np.lexsort((values[order[pair], 1], at_us))
        pair, at_us = pair[by_time], at_us[by_time]
        results = self._interpolated(values, keys, key[pair], at_us)
        words = np.ascontiguousarray(values[order[pair], 2 : 2 + self._key_words])
        strings = None if self._strings is None else self._strings.pages
        named = self._key_packing.unpack(words, strings) if self._keys[0] else []
        columns = [column_of(at_us, None, WINDOW_TIME), *named, *results]
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema), at_us

    def _interpolated(
        self, values: np.ndarray, keys: np.ndarray, asking: np.ndarray, at_us: np.ndarray
    ) -> list[pa.Array]:
        """Each column at these times of these keys."""
        results: list[pa.Array] = []
        for i in range(len(self._columns)):
            at = 2 + self._key_words + 2 * i
            is_there = values[:, at] == 1
            found, result = interpolate(
                keys[is_there],
                values[is_there, 0],
                values[is_there, at + 1],
                asking,
                at_us,
                self._within_us,
            )
            results.append(pa.array(result, mask=~found, type=pa.float64()))
        return results

    def _forget(self, until_us: int) -> None:
        """Values too old for any time that is still to come; strings too, now and then."""
        needed_us = until_us if until_us == END_US else until_us - self._within_us
        self._values.pop_below(time_bound(needed_us, 2))
        self._causes.forget(None if until_us == END_US else needed_us)
        if self._strings is None or not self._strings.is_due:
            return
        parts = [(self._values.entries(), self._text_at(is_asked=False))]
        if self._asked is not None:
            parts.append((self._asked.entries(), self._text_at(is_asked=True)))
        live = self._strings.renew(np.concatenate([part[:, at].reshape(-1) for part, at in parts]))
        for held, (part, at) in zip((self._values, self._asked), parts, strict=False):
            part[:, at] = live[: part[:, at].size].reshape(part[:, at].shape)
            live = live[part[:, at].size :]
            assert held is not None
            held.put(part[:, :2], part[:, 2:])

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if something is held that nobody needs."""
        _, done_us = self._read_state()
        for held, slack_us in ((self._values, self._within_us), (self._asked, 0)):
            if held is None:
                continue
            held.check_invariants()
            first = held.first()
            if first is not None and int(first[0]) + slack_us < done_us:
                raise InvariantViolation(f"{self.name}: holds a row of {first[0]} at {done_us}")
        self._causes.check_invariants()

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        pages = total_pages(self._values, self._state, self._causes, self._asked, self._strings)
        return pages * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """The values held: time, key, columns under the names of their results."""
        rows = self._values.entries()
        words = np.ascontiguousarray(rows[:, 2 : 2 + self._key_words])
        strings = None if self._strings is None else self._strings.pages
        columns = [column_of(np.ascontiguousarray(rows[:, 0]), None, WINDOW_TIME)]
        columns += self._key_packing.unpack(words, strings) if self._keys[0] else []
        for i in range(len(self._columns)):
            at = 2 + self._key_words + 2 * i
            values = np.ascontiguousarray(rows[:, at + 1]).view(np.float64)
            columns.append(pa.array(values, mask=rows[:, at] == 0, type=pa.float64()))
        return pa.table(columns, schema=self._state_schema)


def interpolate(
    keys: np.ndarray,
    time_us: np.ndarray,
    bits: np.ndarray,
    asking: np.ndarray,
    at_us: np.ndarray,
    within_us: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Values of keys at times, on the line between the nearest known ones.

    Args:
        keys: int64 (n,), numbers of the keys that values are known of.
        time_us: int64 (n,), at these times.
        bits: int64 (n,), the values, as the bits of normal doubles.
        asking: int64 (m,), keys.
        at_us: int64 (m,), times.
        within_us: How far away a known value may be.

    Returns:
        Whether there is a value, bool (m,), and it, float64 (m,).
    """
    found = np.zeros(len(asking), dtype=np.bool_)
    result = np.zeros(len(asking), dtype=np.float64)
    if not len(keys):
        return found, result
    times = np.unique(np.concatenate([time_us, at_us]))
    place = keys * len(times) + np.searchsorted(times, time_us)
    order = np.lexsort((bits ^ ((bits >> 63) & _SIGN), place))
    order = order[np.append(place[order][1:] != place[order][:-1], True)]  # The greatest of each.
    place, keys, time_us = place[order], keys[order], time_us[order]
    values = np.ascontiguousarray(bits[order]).view(np.float64)
    wanted = asking * len(times) + np.searchsorted(times, at_us)
    before = np.searchsorted(place, wanted, side="right") - 1
    after = np.minimum(np.searchsorted(place, wanted, side="left"), len(place) - 1)
    begin_us, end_us = time_us[before], time_us[after]
    found = (before >= 0) & (keys[before] == asking) & (keys[after] == asking)
    found &= (begin_us <= at_us) & (at_us <= end_us)
    found &= (at_us - begin_us <= within_us) & (end_us - at_us <= within_us)
    apart = np.where(end_us > begin_us, end_us - begin_us, 1)
    with np.errstate(invalid="ignore", over="ignore"):
        share = (at_us - begin_us).astype(np.float64) / apart.astype(np.float64)
        rise = (values[after] - values[before]) * share
        result = np.where(begin_us == at_us, values[before], values[before] + rise)
    return found, result


def _key_numbers(keys: np.ndarray) -> np.ndarray:
    """Equal keys, int64 (n, k), get equal numbers from 0. int64 (n,)."""
    if not keys.shape[1]:
        return np.zeros(len(keys), dtype=np.int64)
    order = np.lexsort(keys.T)
    is_new = np.zeros(len(keys), dtype=np.int64)
    is_new[1:] = (keys[order][1:] != keys[order][:-1]).any(axis=1)
    numbers = np.empty(len(keys), dtype=np.int64)
    numbers[order] = np.cumsum(is_new)
    return numbers


def _check(
    name: str,
    schemas: Sequence[pa.Schema],
    keys: Sequence[Sequence[str]],
    columns: Sequence[tuple[str, str]],
    within_us: int,
    every_us: int | None,
) -> None:
    """Raise `LocalProtocolError` for what makes no sense."""
    for schema, names in zip(schemas, keys, strict=True):
        for key in names:
            if schema.get_field_index(key) < 0:
                raise LocalProtocolError(f"{name}: key {key} is not in {schema.names}")
    for column, _ in columns:
        if schemas[0].get_field_index(column) < 0:
            raise LocalProtocolError(f"{name}: {column} is not in {schemas[0].names}")
        kind = schemas[0].field(column).type
        t = pa.types
        if not (t.is_integer(kind) or t.is_floating(kind)):
            raise LocalProtocolError(
                f"{name}: {column} is {kind}; integers and floats are interpolated, cast it"
            )
    if not columns:
        raise LocalProtocolError(f"{name}: no column to interpolate")
    if within_us <= 0 or (every_us is not None and every_us <= 0):
        raise LocalProtocolError(f"{name}: within {within_us} us, every {every_us} us: positive")
    if every_us is not None and 2 * within_us // every_us > POINTS_MAX:
        raise LocalProtocolError(
            f"{name}: up to {2 * within_us // every_us} rows between two tuples; at most "
            f"{POINTS_MAX}"
        )
