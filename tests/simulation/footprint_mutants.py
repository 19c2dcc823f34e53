"""Deliberate bugs of eventual checkpoints; see mutants.py. [CEC §II.B, §III]"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from mutants import Mutant

from holdfast.core.haunit.durability.eventual import Eventual
from holdfast.core.haunit.durability.footprint_writer import FootprintWriter
from holdfast.core.haunit.events import TrimFootprints
from holdfast.core.operators.base import NOTHING, chosen
from holdfast.core.operators.footprinted_aggregate import FootprintedAggregate
from holdfast.core.operators.footprinted_join import FootprintedJoin
from holdfast.core.operators.footprinted_sessions import FootprintedSessions
from holdfast.core.operators.footprinted_windows import FootprintedWindows
from holdfast.core.operators.window_kinds import Entered
from holdfast.core.recovery.extent import ExtentSearch

_APPROACH = "eventual checkpoints"
_FAULTS = ("kill", "machine-crash")


def _replay_from_the_newest(_: Any) -> Any:
    def starts(self: FootprintWriter, place: Any) -> Any:
        generations = self._order._generations
        return generations[-1].starts if generations else place.starts

    return starts


def _take_what_is_at_the_cut_for_taken(_: Any) -> Any:
    def enter(self: FootprintedWindows, keys: Any, time_us: Any) -> Entered:
        entered = super(FootprintedWindows, self)._enter(keys, time_us)
        if self._floors is None:
            return entered
        found, records = self._windows.get(entered.windows)
        cuts = np.full(len(found), 1 << 62, dtype=np.int64)
        cuts[found] = self._cuts[records[found, 2]]
        counts = self._places[entered.rows] > cuts
        return Entered(entered.words, entered.rows[counts], entered.windows[counts])

    return enter


def _take_what_a_footprint_holds_again(_: Any) -> Any:
    def enter(self: FootprintedWindows, keys: Any, time_us: Any) -> Entered:
        entered = super(FootprintedWindows, self)._enter(keys, time_us)
        if self._floors is None:
            return entered
        counts, _ = self._windows.get(entered.windows)
        return Entered(entered.words, entered.rows[counts], entered.windows[counts])

    return enter


def _open_again_what_has_closed(original: Any) -> Any:
    def are_new(self: ExtentSearch, record: Any) -> Any:
        closed = record.kinds == 3
        kinds = np.where(closed, 0, record.kinds)
        return original(self, replace(record, kinds=kinds))

    return are_new


def _count_before_the_pass(original: Any) -> Any:
    def record(self: FootprintWriter, said: Any, kind: Any, place: Any, **closing: Any) -> Any:
        before = len(said.windows) - said.closed.num_rows if kind == 1 else 0
        n = self._operator.open_windows - before
        owner = type(self._operator)

        class Counting(owner):  # type: ignore[misc, valid-type]
            open_windows = n

        self._operator.__class__ = Counting
        try:
            return original(self, said, kind, place, **closing)
        finally:
            self._operator.__class__ = owner

    return record


def _count_from_the_newest(original: Any) -> Any:
    def adopt(self: FootprintedWindows, keys: Any, words: Any, cuts: Any) -> Any:
        numbers = original(self, keys, words, cuts)
        slots, known, _ = self._numbered(keys)
        known[:, 1] = words
        self._keys.write_values(slots, known)  # The newest is written last.
        return numbers

    return adopt


def _read_half_a_footprint(original: Any) -> Any:
    def adopt(self: FootprintedWindows, bodies: Any, *arguments: Any) -> Any:
        state = bodies.schema.names.index(f"state.{len(self._state_at) - 1}")
        zeros = np.zeros(bodies.num_rows, dtype=np.int64)
        half = bodies.set_column(state, bodies.schema.field(state), pa.array(zeros))
        return original(self, half, *arguments)

    return adopt


def _trim_a_row_too_far(original: Any) -> Any:
    def retained(self: Eventual) -> list[Any]:
        effects = original(self)
        trim = effects[-1]
        effects[-1] = TrimFootprints(trim.stream, trim.before + 1)
        return effects

    return retained


def _let_go_of_the_oldest(_: Any) -> Any:
    return property(lambda self: self._last_id)


def _let_go_of_a_tuple_of_t(original: Any) -> Any:
    def starts(self: FootprintWriter, place: Any) -> Any:
        needed = original(self, place)
        return tuple(min(n + 1, p) for n, p in zip(needed, place.starts, strict=True))

    return starts


def _go_on_behind_a_zombie(original: Any) -> Any:
    def init(self: FootprintWriter, *arguments: Any) -> None:
        original(self, *arguments)
        self._follows = self.next_id

    return init


def _forget_to_say_what_closed(original: Any) -> Any:
    def end_pass(self: FootprintedWindows, *, closing: bool = True) -> Any:
        said = original(self, closing=closing)
        return replace(said, closed=said.closed.slice(0, 0))

    return end_pass


def _forget_when_keys_began(_: Any) -> Any:
    def words_of(self: FootprintedWindows, keys: Any) -> Any:
        if self._kind.closes_by_count:
            return self._keys.read_values(self._keys.lookup_slots(keys))[:, 1].copy()
        return np.zeros(len(keys), dtype=np.int64)

    return words_of


def _have_a_part_again(_: Any) -> Any:
    def store(self: FootprintedJoin, side: int, rows: Any, low: Any) -> None:
        floors, self._floors = self._floors, None
        for start, numbers in self._spec.assign(rows.time_us):
            if floors is None or start in floors:
                mine = chosen(rows, numbers)
                window, _ = self._directory.enter(start, low, rows.created_us)
                window.append(side, mine.batch, mine.time_us)
        self._floors = floors

    return store


def _skip_the_newest_part(original: Any) -> Any:
    def adopt(self: FootprintedJoin, bodies: Any, *arguments: Any) -> Any:
        sides = []
        for name in ("left", "right"):
            lists = bodies.column(name).to_pylist()
            lists[-1:] = [[] for _ in lists[-1:]]
            sides.append(pa.array(lists, bodies.schema.field(name).type))
        less = pa.RecordBatch.from_arrays([*bodies.columns[:2], *sides], schema=bodies.schema)
        return original(self, less, *arguments)

    return adopt


def _take_what_a_segment_holds_again(original: Any) -> Any:
    def set_aside(self: FootprintedAggregate, *groups: Any) -> None:
        original(self, *groups)
        assert self._aside is not None
        for start, window in self._directory.states():
            while self._aside[start]:
                self._put_back(window, self._aside[start].popleft())

    return set_aside


def _open_a_tail_behind_its_pass(original: Any) -> Any:
    def take_said(self: FootprintWriter, place: Any, *, closing: bool = True) -> Any:
        self._stood_at = place
        return original(self, place, closing=closing)

    return take_said


def _leave_a_tail_out(original: Any) -> Any:
    def update(self: FootprintedAggregate, rows: Any, low: Any) -> Any:
        if self._aside is None:
            return original(self, rows, low)
        known = np.zeros(len(rows.time_us), dtype=np.bool_)
        for _, window in self._directory.states():
            keys = self._groups.keys_of(rows.batch, window.strings)
            known |= window.groups.lookup_slots(keys) >= 0
        return original(self, chosen(rows, np.flatnonzero(known)), low) if known.any() else NOTHING

    return update


def _take_what_a_key_holds_again(_: Any) -> Any:
    def replayed(self: FootprintedSessions, floors: Any, rows: Any, low: Any) -> Any:
        keys = self._groups.keys_of(rows.batch, floors.strings)
        return np.flatnonzero(floors.keys.lookup_slots(keys) >= 0)

    return replayed


def _have_one_session_of_a_key(original: Any) -> Any:
    def adopt(self: FootprintedSessions, keys: Any, lists: Any, streams: int) -> None:
        last = [sessions[-1:] for sessions in lists.to_pylist()]
        original(self, keys, pa.array(last, lists.type), streams)

    return adopt


def _mutant(owner: Any, method: str, bug: Any, dataflow: str = "aggregate") -> Mutant:
    return Mutant(owner, method, bug, _FAULTS, _APPROACH, dataflow)


FOOTPRINT_MUTANTS: dict[str, Mutant] = {
    "replays from the newest footprint": _mutant(
        FootprintWriter, "starts", _replay_from_the_newest
    ),
    "takes what is at the cut for taken": _mutant(
        FootprintedWindows, "_enter", _take_what_is_at_the_cut_for_taken
    ),
    "takes again what a footprint holds": _mutant(
        FootprintedWindows, "_enter", _take_what_a_footprint_holds_again
    ),
    "opens again what has closed": _mutant(ExtentSearch, "_are_new", _open_again_what_has_closed),
    "counts open windows before the pass": _mutant(
        FootprintWriter, "_keep", _count_before_the_pass
    ),
    "counts a key from its newest footprint": _mutant(
        FootprintedWindows, "_adopt_key_words", _count_from_the_newest
    ),
    "forgets when keys began": _mutant(FootprintedWindows, "_words_of", _forget_when_keys_began),
    "reads half a footprint": _mutant(
        FootprintedWindows, "adopt_footprints", _read_half_a_footprint
    ),
    "trims footprints a row too far": _mutant(Eventual, "retained", _trim_a_row_too_far),
    "lets go of the oldest footprint": _mutant(
        FootprintWriter, "log_needed_from", _let_go_of_the_oldest
    ),
    "lets go of a tuple of T": _mutant(FootprintWriter, "starts", _let_go_of_a_tuple_of_t),
    "goes on behind what a zombie wrote": _mutant(
        FootprintWriter, "__init__", _go_on_behind_a_zombie
    ),
    "has a part of a join again": _mutant(
        FootprintedJoin, "_store", _have_a_part_again, "window_join"
    ),
    "skips the newest part of a join": _mutant(
        FootprintedJoin, "adopt_footprints", _skip_the_newest_part, "window_join"
    ),
    "forgets to say what closed": _mutant(
        FootprintedWindows, "end_pass", _forget_to_say_what_closed
    ),
    "takes again what a segment holds": _mutant(
        FootprintedAggregate, "_set_aside", _take_what_a_segment_holds_again
    ),
    "says of a tail that it opened behind its pass": _mutant(
        FootprintWriter, "_take_said", _open_a_tail_behind_its_pass
    ),
    "takes again what a key's sessions hold": _mutant(
        FootprintedSessions, "_replayed", _take_what_a_key_holds_again
    ),
    "has one session of each key": _mutant(
        FootprintedSessions, "_adopt_sessions", _have_one_session_of_a_key
    ),
    "leaves new groups out of a replay": _mutant(
        FootprintedAggregate, "_update", _leave_a_tail_out
    ),
}
