"""Join of rows whose tuple times lie within a span of each other. Convergent-capable. [HA §3.2]

A right row matches a left one with an equal key if its tuple time is at least `lower_us` and at
most `upper_us` later (negative: earlier), and the condition holds. Results, by their tuple time:

| result                   | for which `how`          | tuple time                       |
| ------------------------ | ------------------------ | -------------------------------- |
| a pair                   | inner, left, right, full | that of its later row            |
| a left row, first match  | semi                     | that of the pair                 |
| a left row, no match     | left, full, anti         | when the last match could be     |
| a right row, no match    | right, full              | the same                         |

A result is put out when the boundary has passed its time, in the order (time, pairs first, numbers
of its rows). Rows have their turn in order of time, too, whatever the order they come in. So the
output does not depend on passes, nor on the input's order but for rows of one time.

State, all in pages: the rows of both sides (`IntervalSide`) and their strings. A row goes once the
boundary is beyond the times of all its matches. Whether a row has matched depends on rows that may
have gone; so for joins that ask this the low watermark reaches back to these, too. [HA §5.2]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import LocalProtocolError
from holdfast.core.model.ids import NO_ID
from holdfast.core.model.schema import column_of
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
    merge_permutation,
)
from holdfast.core.operators.causes import Causes
from holdfast.core.operators.interval_side import IntervalSide
from holdfast.core.operators.join import JoinLayout
from holdfast.core.state.page_manager import PageManager
from holdfast.core.state.recycled_strings import RecycledStrings
from holdfast.core.state.string_pages import moved

How: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]
_SHOWN_ALONE: Final = {"left": (0,), "right": (1,), "full": (0, 1), "anti": (0,)}
_ASKED: Final = {**_SHOWN_ALONE, "semi": (0,)}
"""Of which sides it is asked whether a row has matched."""
_NAMES: Final = ("left", "right")


class IntervalJoin(Operator):
    """Puts out pairs, or rows with or without matches; a null key matches nothing."""

    operator_class = OperatorClass.CONVERGENT_CAPABLE

    def __init__(
        self,
        layout: JoinLayout,
        *,
        lower_us: int,
        upper_us: int,
        how: How = "inner",
        condition: Evaluator | None = None,
        manager: PageManager | None = None,
    ) -> None:
        """Join port 0 (left) and port 1 (right).

        Args:
            layout: Keys, records and output columns; the name is the operator's.
            lower_us: A right row is at least so much later than a left one that it matches.
            upper_us: At most so much.
            how: See the module.
            condition: Over the output columns; a pair for which it is not true is none.
            manager: Where the state lives; an own one if None.

        Raises:
            LocalProtocolError: The span is empty.
        """
        if lower_us > upper_us:
            raise LocalProtocolError(f"{layout.name}: no time is between {lower_us}, {upper_us} us")
        self.name = layout.name
        self._manager = manager if manager is not None else PageManager()
        self._layout = layout
        self._lower_us, self._upper_us = lower_us, upper_us
        self._is_semi, self._is_anti = how == "semi", how == "anti"
        self._asked = _ASKED.get(how, ())
        self._shown_alone = _SHOWN_ALONE.get(how, ())
        self._condition = condition
        keeps_us = max(0, upper_us), max(0, -lower_us)
        self._sides = [IntervalSide(self._manager, layout, s, keeps_us[s]) for s in range(2)]
        self._strings = RecycledStrings(self._manager)
        self._causes = Causes(self._manager)
        self._reach_us = max(keeps_us) if self._asked else 0
        self._taken = max(side.next_number() for side in self._sides)
        self._created_us = 0
        self.output_schema = pa.schema(layout.output_fields)

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """Take rows in; put out what has a time before the boundary.

        Raises:
            StateLimitExceeded: The pages are used up.
        """
        coming = self._coming(inputs, low)
        left, right = (
            side.turns(entries, boundary_us)
            for side, entries in zip(self._sides, coming, strict=True)
        )
        pairs = self._pairs(left, right)
        alone = [self._alone(number, boundary_us) for number in range(2)]
        cause = self._causes.oldest()
        batch, time_us = self._results(pairs, alone)
        self._forget()
        if batch is None or cause is None:
            return NOTHING
        order = np.full(len(time_us), AT_CLOSE, dtype=np.int64)
        return Output((Rows(batch, time_us, order, self._created_us),), cause)

    def oldest_needed(self) -> np.ndarray | None:
        """The oldest tuple that a row held, or its having matched, goes back to."""
        return self._causes.oldest()

    def adopt(self, others: Sequence[Operator], owns: Owns, streams: int) -> None:
        """Rows go by their keys, in the order of the instances that held them.

        Every instance has numbered its own rows from zero, so they get numbers of this one.
        """
        low = np.full(streams, NO_ID, dtype=np.int64)  # The checkpoint has it: nothing is needed.
        parts: list[list[tuple[np.ndarray, np.ndarray]]] = [[], []]
        for other in others:
            assert isinstance(other, IntervalJoin)
            for number in range(2):
                parts[number].append(self._taken_over(other, number, owns))
            self._taken += other._taken
        for mine, found in zip(self._sides, parts if others else (), strict=False):
            held, waiting = (np.concatenate([part[i] for part in found]) for i in range(2))
            mine.adopt(held, waiting)
            if len(mine):
                self._causes.note(np.concatenate([held, waiting])[:, mine.time_at], low)

    def _taken_over(
        self, other: IntervalJoin, number: int, owns: Owns
    ) -> tuple[np.ndarray, np.ndarray]:
        """Entries of another instance that are one's own, with numbers and strings of this one."""
        side, strings = other._sides[number], other._strings.pages
        found: list[np.ndarray] = []
        for entries in side.all():
            mine = np.ascontiguousarray(entries[owns(side.key_columns(entries, strings))])
            at = side.text_at()
            mine[:, at] = moved(mine[:, at], strings, self._strings.pages)
            mine[:, side.number_at] += self._taken
            found.append(mine)
        return found[0], found[1]

    # -- rows in ----------------------------------------------------------------------------

    def _coming(self, inputs: Sequence[Rows | None], low: np.ndarray) -> list[np.ndarray]:
        """What arrives, as entries per side; rows that nobody will ever see are left out."""
        given: list[tuple[int, Rows]] = []
        for side, rows in enumerate(inputs):
            if rows is not None and has_rows(rows):
                kept = rows if side in self._shown_alone else self._layout.with_keys(side, rows)
                given += [(side, kept)] if has_rows(kept) else []
        coming = [np.empty((0, side.width), dtype=np.int64) for side in self._sides]
        if not given:
            return coming
        sorts = merge_permutation([rows for _, rows in given])
        numbers = np.empty(len(sorts), dtype=np.int64)
        numbers[sorts] = np.arange(self._taken, self._taken + len(sorts))
        self._taken += len(sorts)
        at = 0
        for side, rows in given:
            count = len(rows.time_us)
            own = numbers[at : at + count]
            coming[side] = self._sides[side].entries_of(rows, own, self._strings.pages)
            self._causes.note(rows.time_us, low)
            self._created_us = max(self._created_us, rows.created_us)
            at += count
        return coming

    # -- results ----------------------------------------------------------------------------

    def _pairs(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hold rows whose turn it is; pairs of them with all that had theirs, in order."""
        lefts, rights = self._sides
        usable_l, usable_r = self._usable(0, left), self._usable(1, right)
        # Rows that come pair with those held; those that come on both sides once: the right ones
        # are held already when the left ones look.
        of, earlier = lefts.partners(usable_r, rights.time_at, -self._upper_us, -self._lower_us)
        first = earlier, usable_r[of]
        rights.hold(right)
        of, held = rights.partners(usable_l, lefts.time_at, self._lower_us, self._upper_us)
        lefts.hold(left)
        pairs = np.concatenate([first[0], usable_l[of]]), np.concatenate([first[1], held])
        pairs = self._true(*pairs)
        time_l, time_r = pairs[0][:, lefts.time_at], pairs[1][:, rights.time_at]
        number_l, number_r = pairs[0][:, lefts.number_at], pairs[1][:, rights.number_at]
        is_left_later = (time_l > time_r) | ((time_l == time_r) & (number_l > number_r))
        later = np.where(is_left_later, number_l, number_r)
        earliest = np.where(is_left_later, number_r, number_l)
        order = np.lexsort((earliest, later, np.maximum(time_l, time_r)))
        pairs = pairs[0][order], pairs[1][order]
        return self._asked_for(*pairs)

    def _usable(self, side: int, entries: np.ndarray) -> np.ndarray:
        """Entries without those that have a null in their key."""
        keys = entries[:, : self._layout.key_words]
        usable: np.ndarray = entries[~self._layout.key_packings[side].is_any_null(keys)]
        return usable

    def _true(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pairs for which the condition holds."""
        if self._condition is None or not len(left):
            return left, right
        holds = self._condition.evaluate(self._batch(left, right))
        mask = pc.fill_null(holds, False).to_numpy(zero_copy_only=False)
        return left[mask], right[mask]

    def _asked_for(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Remember who has matched; of the pairs those that are results."""
        if not len(left):
            return left, right
        for number in self._asked:
            side, entries = self._sides[number], (left, right)[number]
            _, at = np.unique(entries[:, side.number_at], return_index=True)
            at = np.sort(at)
            is_new = entries[at, side.matched_at] == 0
            changed = entries[at[is_new]]
            changed[:, side.matched_at] = 1
            side.mark(changed)
            if self._is_semi:
                return left[at[is_new]], right[at[is_new]]
        return (left[:0], right[:0]) if self._is_anti else (left, right)

    def _alone(self, number: int, boundary_us: int) -> np.ndarray:
        """Let go of rows; those that have had no match, if these are shown."""
        side = self._sides[number]
        gone = side.gone(boundary_us)
        is_shown = gone[:, side.matched_at] == 0
        shown: np.ndarray = gone[is_shown & (number in self._shown_alone)]
        return shown

    def _results(
        self, pairs: tuple[np.ndarray, np.ndarray], alone: Sequence[np.ndarray]
    ) -> tuple[pa.RecordBatch | None, np.ndarray]:
        """The rows to put out in their order, and their times."""
        lefts, rights = self._sides
        time_us = np.concatenate(
            [
                np.maximum(pairs[0][:, lefts.time_at], pairs[1][:, rights.time_at]),
                *(e[:, s.time_at] + s.keep_us for e, s in zip(alone, self._sides, strict=True)),
            ]
        )
        if not len(time_us):
            return None, time_us
        left = np.concatenate([pairs[0], alone[0], lefts.absent(len(alone[1]))])
        right = np.concatenate([pairs[1], rights.absent(len(alone[0])), alone[1]])
        if len(alone[0]) or len(alone[1]):  # Each part is in order; of one time pairs come first.
            order = np.argsort(time_us, kind="stable")
            left, right, time_us = left[order], right[order], time_us[order]
        return self._batch(left, right), time_us

    def _batch(self, left: np.ndarray, right: np.ndarray) -> pa.RecordBatch:
        entries, strings = (left, right), self._strings.pages
        columns = [
            self._sides[side].column(entries[side], column, strings)
            for side, column in self._layout.fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.output_schema)

    def _forget(self) -> None:
        """Let go of causes and strings of rows that have gone."""
        held = sum(map(len, self._sides))
        self._causes.forget_seldom(
            held, lambda: min(side.oldest_us() for side in self._sides) - self._reach_us
        )
        if not self._strings.is_due:
            return
        parts = [part for side in self._sides for part in side.all()]
        at = [self._sides[i // 2].text_at() for i in range(len(parts))]
        flat = [part[:, words].reshape(-1) for part, words in zip(parts, at, strict=True)]
        ends = np.cumsum([len(each) for each in flat])[:-1]
        renewed = np.split(self._strings.renew(np.concatenate(flat)), ends)
        for part, words, own in zip(parts, at, renewed, strict=True):
            part[:, words] = own.reshape(len(part), len(words))
        for number, side in enumerate(self._sides):
            side.clear()
            side.adopt(*parts[2 * number : 2 * number + 2])

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` if a structure makes no sense, or two disagree."""
        self._causes.check_invariants()
        for side in self._sides:
            side.check_invariants()

    def state_bytes(self) -> int:
        """Bytes of pages held."""
        pages = sum(side.page_count for side in self._sides)
        pages += self._strings.page_count + self._causes.page_count
        return pages * self._manager.page_bytes

    def state_rows(self) -> pa.Table:
        """The rows of both sides: which side, tuple time, whether it has matched, the columns."""
        tables: list[pa.Table] = []
        for side, name, schema in zip(self._sides, _NAMES, self._layout.schemas, strict=True):
            entries = np.concatenate(side.all())
            time = column_of(entries[:, side.time_at], None, pa.timestamp("us", tz="UTC"))
            columns = [side.column(entries, c, self._strings.pages) for c in range(len(schema))]
            names = ["side", "tuple_time", "has_matched", *(f"{name}_{n}" for n in schema.names)]
            mark = pa.array([name] * len(entries), type=pa.string())
            matched = pa.array(entries[:, side.matched_at] != 0)
            tables.append(pa.table([mark, time, matched, *columns], names=names))
        return pa.concat_tables(tables, promote_options="default")
