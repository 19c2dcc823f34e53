"""What a dataflow means, in plain Python: a second opinion that shares no code with the operators.

It evaluates steps over rows in memory, as the batch twin does in Spark SQL, with which it is itself
compared (tests/spark/test_oracle_equals_spark.py). Expressions are looked up by their SQL text:
whoever builds a workload writes each expression twice, as SQL and as a Python function.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import chain, pairwise
from operator import and_, or_, xor
from typing import TYPE_CHECKING, Any

from holdfast.api import steps
from holdfast.api.steps import IncrementalJoin, Resample, RunningJoin, WindowAggregate, WindowJoin
from holdfast.api.windows import CountWindow, SessionWindow
from holdfast.planning.units import keys_read

if TYPE_CHECKING:
    from holdfast.api.graph import Graph
    from holdfast.api.steps import Expression, Step

_BITS = {"bit_and": and_, "bit_or": or_, "bit_xor": xor}
Values = dict[str, Any]
Meaning = Callable[[Values], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimedRow:
    """A row.

    Attributes:
        time_us: Its tuple time.
        values: Its values by column.
        place: What sorts the rows that an instance of a unit takes in; empty: not known.
        ties: The ports of the unions on its way in the unit, last one first.
        instance: Which instance of the unit has it; None: not known.
        has_time: Whether the tuple time is known.
        since_us: When the first of the input that it is made of arrived, in virtual time.
    """

    time_us: int
    values: Values
    place: tuple[int, ...] = ()
    ties: tuple[int, ...] = ()
    instance: int | None = None
    has_time: bool = True
    since_us: int = 0

    @property
    def sorts_by(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What sorts the rows of an instance at a step of its unit."""
        return self.place, self.ties


TimedValues = tuple[int, tuple[Any, ...]]
"""Of a tuple in a sink."""


@dataclass(frozen=True, slots=True)
class Conserved:
    """What neither chance nor the clock can change about a sink: its rows stand for input rows.

    Attributes:
        step: Whose rows.
        group: Of an input row what a row of the sink says of it too.
        said: The same of a row in the sink.
        weight: For how many input rows it stands.
        is_whole: Whether it stands for all input rows; else for some of them.
    """

    step: Step
    group: Callable[[TimedRow], tuple[Any, ...]]
    said: Callable[[TimedRow], tuple[Any, ...]]
    weight: Callable[[TimedRow], int]
    is_whole: bool


Table = Counter[tuple[Any, ...]]
"""Rows that there are, each as often as it is there."""


@dataclass(frozen=True, slots=True)
class Adding:
    """A `Conserved` with the input rows counted, or what the changes of a changelog come to.

    Attributes:
        columns: Of the sink.
        given: How many there are of each group.
        conserved: What a row of the sink stands for.
    """

    columns: tuple[str, ...]
    given: Counter[tuple[Any, ...]]
    conserved: Conserved

    def found(self, tuples: Iterable[TimedValues]) -> Counter[tuple[Any, ...]]:
        """For how many input rows of each group these tuples stand."""
        found: Counter[tuple[Any, ...]] = Counter()
        for time_us, values in tuples:
            row = TimedRow(time_us, dict(zip(self.columns, values, strict=True)))
            found[self.conserved.said(row)] += self.conserved.weight(row)
        return found


@dataclass(frozen=True, slots=True)
class Expected:
    """What sinks must hold, of each as much as is known.

    Attributes:
        rows: Per sink its rows, copies counted; none of those that chance decides.
        timed: Of those the ones whose tuple times are known, with them.
        ordered: Per stream of a sink all of it in order.
        adding: Of sinks that chance decides what it cannot change.
        since: Per sink its rows, each with when the first of its input arrived.
    """

    rows: dict[str, Counter[tuple[Any, ...]]]
    timed: dict[str, Counter[TimedValues]] = field(default_factory=dict)
    ordered: dict[str, list[TimedValues]] = field(default_factory=dict)
    adding: dict[str, Adding] = field(default_factory=dict)
    since: dict[str, list[tuple[int, tuple[Any, ...]]]] = field(default_factory=dict)

    def sinks(self) -> list[str]:
        """All sinks of which anything is known."""
        return list(self.rows | self.adding)


_LAPS_MAX = 100
"""No loop of a run goes round more often."""
ARBITRARY_SINK = "any"
"""How the names of sinks begin of which no two runs hold the same."""


class Oracle:
    """Evaluates a dataflow's sinks."""

    def __init__(
        self,
        inputs: dict[str, list[TimedRow]],
        meanings: dict[str, Meaning],
        ports: dict[str, list[tuple[Step, tuple[str, ...]]]],
        instances: dict[str, int],
    ) -> None:
        """Evaluate a dataflow.

        Args:
            inputs: The on-time rows per source.
            meanings: Per SQL text what it computes.
            ports: Per unit what it reads, port by port, and by which keys that is split.
            instances: Per unit how many it has.
        """
        self._inputs = inputs
        self._meanings = meanings
        self._ports = ports
        self._instances = instances
        self._known: dict[str, list[TimedRow]] = {}

    def expected(
        self, flow: Graph, conserved: dict[str, Conserved], tables: dict[str, Table] | None = None
    ) -> Expected:
        """What the sinks of a dataflow must hold.

        Args:
            flow: The dataflow.
            conserved: Of sinks that chance decides what it cannot change.
            tables: Of changelogs the rows that there are in the end.
        """
        found = Expected({})
        for sink, step in flow.sinks.items():
            names = tuple(step.schema.names)
            if tables is not None and sink in tables:
                found.adding[sink] = Adding(names, tables[sink], _changes_of(step))
            if sink in conserved:
                given = Counter(map(conserved[sink].group, self.rows(conserved[sink].step)))
                found.adding[sink] = Adding(names, given, conserved[sink])
            if sink.startswith(ARBITRARY_SINK):
                continue
            rows = self.rows(step)
            timed = [(row.time_us, tuple(row.values[name] for name in names)) for row in rows]
            found.rows[sink] = Counter(values for _, values in timed)
            arrived = zip(rows, timed, strict=True)
            found.since[sink] = [(row.since_us, values) for row, (_, values) in arrived]
            if all(row.has_time for row in rows):
                found.timed[sink] = Counter(timed)
            if _has_order(rows):
                places = [(row.instance, row.sorts_by) for row in rows]
                for i in sorted(range(len(rows)), key=places.__getitem__):
                    stream = f"{sink}[{rows[i].instance}]"
                    found.ordered.setdefault(stream, []).append(timed[i])
        return found

    def rows(self, step: Step) -> list[TimedRow]:
        """What a step puts out, in no particular order."""
        if isinstance(step.operation, steps.Loop):
            return self._looped(step)
        if step.name not in self._known:
            inputs = [
                self._taken_in(step, position, self.rows(source))
                for position, source in enumerate(step.inputs)
            ]
            self._known[step.name] = self._put_out(step, inputs)
        return self._known[step.name]

    def _looped(self, loop: Step) -> list[TimedRow]:
        """What goes in and what comes back, lap after lap until nothing new does."""
        if loop.name in self._known:
            return self._known[loop.name]  # Of the lap before, while this one is evaluated.
        went_in = _united([self.rows(source) for source in loop.inputs], is_by_arrival=True)
        known = dict(self._known)
        looped, laps = went_in, 0
        while True:
            self._known = {**known, loop.name: looped}
            came_back = [row for source in loop.feedback for row in self.rows(source)]
            after = [*went_in, *_united([came_back], is_by_arrival=True)]
            laps += 1
            if len(after) == len(looped) or laps > _LAPS_MAX:
                break  # What goes round once more only adds.
            looped = after
        self._known = {**known, loop.name: looped}
        return looped

    def _put_out(self, step: Step, inputs: list[list[TimedRow]]) -> list[TimedRow]:
        match step.operation:
            case steps.Filter(expression):
                condition = self._meaning(expression.sql)
                return [row for row in inputs[0] if condition(row.values) is True]
            case steps.Select(expressions):
                return self._selected(expressions, inputs[0])
            case steps.Apply():
                raise AssertionError(f"{step.name}: the workload draws no functions")
            case steps.Process() as process:
                told: list[TimedRow] = process.processor.processor.expected(inputs[0])
                return told
            case steps.Union() as union:
                return _united(inputs, is_by_arrival=union.is_by_arrival)
            case steps.Distinct() as distinct:
                return _first_ones(step.name, distinct, inputs[0])
            case steps.Sort():
                return [_out_of_place(row) for row in inputs[0]]
            case steps.WindowAggregate() as aggregate:
                return self._aggregate(step.name, aggregate, inputs[0])
            case steps.RunningAggregate() as running:
                return self._of_all(step.name, running, inputs[0])
            case steps.Resample() as resample:
                return _resampled(resample, inputs)
            case steps.WindowJoin() | steps.RunningJoin() as join:
                return _window_join(join, step.inputs[1].schema.names, *inputs)
            case steps.IntervalJoin() as join:
                return self._within(join, *inputs)
            case steps.IncrementalJoin() as join:
                return _joined(join, *inputs)
            case steps.FromGenerator():
                return self._source(step)
            case operation:
                raise ValueError(f"{step.name}: the oracle knows no {type(operation).__name__}")

    def _taken_in(self, step: Step, position: int, rows: list[TimedRow]) -> list[TimedRow]:
        """Rows of another unit as they come: of one stream as they are, of several by time."""
        source = step.inputs[position]
        if source.unit == step.unit:
            return rows
        if not _has_order(rows):
            return [replace(row, place=(), ties=(), instance=None) for row in rows]
        keys = keys_read(step, position)
        ports = self._ports[step.unit]
        port = ports.index((source, keys))
        senders, receivers = self._instances[source.unit], self._instances[step.unit]
        is_forward = not keys and receivers > 1
        taken: list[TimedRow] = []
        for row in rows:
            place = row.place + row.ties
            if len(ports) > 1 or (senders > 1 and not is_forward):
                place = (row.time_us, port, row.instance or 0, *place)
            instance = row.instance if is_forward else 0 if receivers == 1 else None
            taken.append(replace(row, place=place, ties=(), instance=instance))
        return taken

    def _meaning(self, sql: str) -> Meaning:
        """What was given for the text; a column's name means its value."""
        return self._meanings.get(sql) or (lambda row: row[sql])

    def _source(self, step: Step) -> list[TimedRow]:
        rows = self._inputs[step.name]
        ports = self._ports[step.unit]
        if len(ports) == 1:
            return rows
        port = ports.index((step, ()))
        return [replace(row, place=(row.time_us, port, *row.place)) for row in rows]

    def _selected(self, expressions: Iterable[Expression], rows: list[TimedRow]) -> list[TimedRow]:
        columns = [(e.name, self._meaning(e.sql)) for e in expressions]
        return [replace(row, values={name: of(row.values) for name, of in columns}) for row in rows]

    def _aggregate(self, name: str, of: WindowAggregate, rows: list[TimedRow]) -> list[TimedRow]:
        if isinstance(of.windows, CountWindow):
            return self._counted(name, of, of.windows, rows)
        if isinstance(of.windows, SessionWindow):
            return self._in_sessions(of, of.windows.gap_us, rows)
        size_us, slide_us = of.windows.size_us, of.windows.slide_us
        keys = of.keys
        is_running = of.emit == "changes"
        origins: dict[tuple[Any, ...], int] = {}
        if of.windows.alignment == "first":
            for row in _as_they_come(name, rows):
                origins.setdefault(_key(row, keys), row.time_us)
        has_order = all(row.place for row in rows)
        if is_running and has_order:
            rows = sorted(rows, key=lambda row: row.sorts_by)
        groups: dict[tuple[Any, ...], list[TimedRow]] = {}
        for row in rows:
            key = _key(row, keys)
            newest_us = row.time_us - (row.time_us - origins.get(key, 0)) % slide_us
            for start_us in range(newest_us, row.time_us - size_us, -slide_us):
                groups.setdefault((start_us, *key), []).append(row)
        results: list[TimedRow] = []
        for (start_us, *group), members in groups.items():
            prefixes: Iterable[int] = range(1, len(members) + 1) if is_running else (len(members),)
            for count in prefixes:
                values = _window(start_us, size_us) | dict(zip(keys, group, strict=True))
                values |= self._aggregates(of, members[:count])
                time_us = members[count - 1].time_us if is_running else start_us + size_us - 1
                has_time = has_order or not is_running
                since_us = _since(members[:count])
                results.append(TimedRow(time_us, values, has_time=has_time, since_us=since_us))
        return results

    def _of_all(
        self, name: str, of: steps.RunningAggregate, rows: list[TimedRow]
    ) -> list[TimedRow]:
        groups: dict[tuple[Any, ...], list[TimedRow]] = {}
        former: dict[tuple[Any, ...], Values] = {}
        results: list[TimedRow] = []
        for row in _as_they_come(name, rows):
            key = _key(row, of.keys)
            members = groups.setdefault(key, [])
            members.append(row)
            values = dict(zip(of.keys, key, strict=True)) | self._aggregates(of, members)
            since_us = _since(members)
            if of.presence is None:
                results.append(TimedRow(row.time_us, values, since_us=since_us))
                continue
            was = former.get(key)
            told = [("insert", values)]
            if was is not None:
                told = [("update_before", was), ("update_after", values)]
            former[key] = values
            results += [
                TimedRow(row.time_us, each | {"_change": kind}, since_us=since_us)
                for kind, each in told
            ]
        return results

    def _aggregates(
        self, of: WindowAggregate | steps.RunningAggregate, members: list[TimedRow]
    ) -> Values:
        values: Values = {}
        for each in of.aggregates:
            argument = None if each.expression is None else self._meaning(each.expression.sql)
            values[each.name] = _aggregated(each.function, argument, members)
        return values

    def _within(
        self, join: steps.IntervalJoin, left: list[TimedRow], right: list[TimedRow]
    ) -> list[TimedRow]:
        """Rows within a span of each other, and rows without a match, as nested loops find them."""
        holds = None if join.where is None else self._meaning(join.where)
        results: list[TimedRow] = []
        matched: list[set[int]] = [set(), set()]
        for at, row in enumerate(left):
            key = _join_key(row, join.left_keys)
            pairs: list[TimedRow] = []
            for other_at, other in enumerate(right):
                is_near = join.lower_us <= other.time_us - row.time_us <= join.upper_us
                if key is None or not is_near or key != _join_key(other, join.right_keys):
                    continue
                values = _picked(join.fields, row, other)
                if holds is None or holds(values) is True:
                    time_us = max(row.time_us, other.time_us)
                    pairs.append(TimedRow(time_us, values, since_us=_since((row, other))))
                    matched[0].add(at)
                    matched[1].add(other_at)
            if join.how == "semi":
                pairs = sorted(pairs, key=lambda pair: pair.time_us)[:1]
            results += pairs if join.how != "anti" else []
        ends_us = max(0, join.upper_us), max(0, -join.lower_us)
        shown = {"left": (0,), "anti": (0,), "right": (1,), "full": (0, 1)}.get(join.how, ())
        for side in shown:
            for at, row in enumerate((left, right)[side]):
                if at not in matched[side]:
                    none = TimedRow(0, dict.fromkeys(c for _, c, _ in join.fields), since_us=0)
                    values = _picked(join.fields, *((row, none) if side == 0 else (none, row)))
                    time_us = row.time_us + ends_us[side]
                    results.append(TimedRow(time_us, values, since_us=row.since_us))
        return results

    def _in_sessions(
        self, of: WindowAggregate, gap_us: int, rows: list[TimedRow]
    ) -> list[TimedRow]:
        by_key: dict[tuple[Any, ...], list[TimedRow]] = {}
        for row in sorted(rows, key=lambda row: row.time_us):
            by_key.setdefault(_key(row, of.keys), []).append(row)
        results: list[TimedRow] = []
        for key, members in by_key.items():
            begins = [
                i
                for i, row in enumerate(members)
                if i == 0 or row.time_us - members[i - 1].time_us > gap_us
            ]
            for first, beyond in pairwise([*begins, len(members)]):
                session = members[first:beyond]
                start_us, end_us = session[0].time_us, session[-1].time_us + gap_us
                values = _window(start_us, end_us - start_us) | dict(zip(of.keys, key, strict=True))
                values |= self._aggregates(of, session)
                results.append(TimedRow(end_us, values, since_us=_since(session)))
        return results

    def _counted(
        self, name: str, of: WindowAggregate, windows: CountWindow, rows: list[TimedRow]
    ) -> list[TimedRow]:
        keys = of.keys
        is_stream = windows.alignment == "stream"
        sequences: dict[tuple[Any, ...], list[TimedRow]] = {}
        for row in _as_they_come(name, rows):
            sequences.setdefault(() if is_stream else _key(row, keys), []).append(row)
        results: list[TimedRow] = []
        for sequence in sequences.values():
            for first in range(0, len(sequence) - windows.size + 1, windows.advance):
                whole = sequence[first : first + windows.size]
                groups: dict[tuple[Any, ...], list[TimedRow]] = {}
                for row in whole:
                    groups.setdefault(_key(row, keys), []).append(row)
                for key, members in groups.items():
                    values: Values = {"first_id": first, "next_id": first + windows.size}
                    if not is_stream:
                        times = [row.time_us for row in members]
                        values = _window(min(times), max(times) - min(times))
                    values |= dict(zip(keys, key, strict=True)) | self._aggregates(of, members)
                    results.append(TimedRow(whole[-1].time_us, values, since_us=_since(whole)))
        return results


def _changes_of(step: Step) -> Conserved:
    """What a row of a changelog adds to the table, or takes away."""

    def said(row: TimedRow) -> tuple[Any, ...]:
        return tuple(value for name, value in row.values.items() if name != "_change")

    def weight(row: TimedRow) -> int:
        return 1 if row.values["_change"] in ("insert", "update_after") else -1

    return Conserved(step, said, said, weight, is_whole=True)


def _united(inputs: list[list[TimedRow]], *, is_by_arrival: bool) -> list[TimedRow]:
    if is_by_arrival or not all(map(_has_order, inputs)):
        return [_out_of_place(row) for rows in inputs for row in rows]
    return [
        replace(row, ties=(port, *row.ties)) for port, rows in enumerate(inputs) for row in rows
    ]


def _first_ones(name: str, of: steps.Distinct, rows: list[TimedRow]) -> list[TimedRow]:
    until: dict[tuple[Any, ...], float] = {}
    kept: list[TimedRow] = []
    for row in _as_they_come(name, rows):
        key = _key(row, of.keys)
        if of.is_of_one_time:
            key = (row.time_us, *key)
        if row.time_us >= until.get(key, -math.inf):
            until[key] = row.time_us + of.within_us if of.within_us else math.inf
            kept.append(row)
    return kept


def _resampled(of: Resample, inputs: list[list[TimedRow]]) -> list[TimedRow]:
    within_us, every_us = of.within_us, of.every_us
    known: dict[tuple[Any, ...], dict[int, list[TimedRow]]] = {}
    for row in inputs[0]:
        mine = known.setdefault(_key(row, of.match[0]), {})
        mine.setdefault(row.time_us, []).append(row)
    results: list[TimedRow] = []

    def put_out(key: tuple[Any, ...], at_us: int, values: Values, *at: TimedRow) -> None:
        mine = known.get(key, {})
        for column, name in of.resampled:
            values[name] = _on_line(_greatest(mine, column), at_us, within_us)
        near = (rows for time_us, rows in mine.items() if abs(time_us - at_us) <= within_us)
        results.append(TimedRow(at_us, values, since_us=_since(chain(at, *near))))

    if every_us is None:
        for row in inputs[1]:
            key = _key(row, of.match[1])
            put_out(() if None in key and key else key, row.time_us, dict(row.values), row)
        return results
    for key, times in known.items():
        for at_us in _multiples(sorted(times), every_us, within_us):
            named = dict(zip(of.match[0], key, strict=True))
            put_out(key, at_us, {"time": _EPOCH + timedelta(microseconds=at_us)} | named)
    return results


def _window_join(
    join: WindowJoin | RunningJoin,
    right_columns: list[str],
    left: list[TimedRow],
    right: list[TimedRow],
) -> list[TimedRow]:
    size_us = join.windows.size_us
    index: dict[tuple[Any, ...], list[TimedRow]] = {}
    for row in right:
        key = _join_key(row, join.right_keys)
        if key is not None:
            index.setdefault((row.time_us // size_us, *key), []).append(row)
    results: list[TimedRow] = []
    for row in left:
        key = _join_key(row, join.left_keys)
        window = row.time_us // size_us
        matches = [] if key is None else index.get((window, *key), [])
        if not matches and join.how == "left":
            matches = [TimedRow(0, dict.fromkeys(right_columns), since_us=row.since_us)]
        for other in matches:
            values = _window(window * size_us, size_us)
            values |= _picked(join.fields, row, other)
            last_us = max(row.time_us, other.time_us)
            time_us = last_us if isinstance(join, RunningJoin) else window * size_us + size_us - 1
            results.append(TimedRow(time_us, values, since_us=_since((row, other))))
    return results


def _joined(join: IncrementalJoin, left: list[TimedRow], right: list[TimedRow]) -> list[TimedRow]:
    index: dict[tuple[Any, ...], list[TimedRow]] = {}
    for row in right:
        key = _join_key(row, join.right_keys)
        if key is not None:
            index.setdefault(key, []).append(row)
    return [
        TimedRow(
            max(row.time_us, other.time_us),
            _picked(join.fields, row, other),
            since_us=_since((row, other)),
        )
        for row in left
        if (key := _join_key(row, join.left_keys)) is not None
        for other in index.get(key, [])
    ]


def _as_they_come(name: str, rows: list[TimedRow]) -> list[TimedRow]:
    if not all(row.place for row in rows):
        raise ValueError(f"{name} depends on the order of its input, which is not known")
    return sorted(rows, key=lambda row: row.sorts_by)


def _out_of_place(row: TimedRow) -> TimedRow:
    return TimedRow(row.time_us, row.values, has_time=row.has_time, since_us=row.since_us)


def _since(rows: Iterable[TimedRow]) -> int:
    return min(row.since_us for row in rows)


def _has_order(rows: list[TimedRow]) -> bool:
    return all(row.place and row.instance is not None for row in rows)


def _key(row: TimedRow, columns: Iterable[str]) -> tuple[Any, ...]:
    return tuple(row.values[column] for column in columns)


def _greatest(known: dict[int, list[TimedRow]], column: str) -> dict[int, float]:
    """The greatest value of a column at each time, where there is one."""
    several = {
        time_us: [float(row.values[column]) for row in rows if row.values[column] is not None]
        for time_us, rows in known.items()
    }
    return {time_us: max(values) for time_us, values in several.items() if values}


def _on_line(points: dict[int, float], at_us: int, within_us: int) -> float | None:
    """The value at a time between the nearest points on either side."""
    before = max((time_us for time_us in points if time_us <= at_us), default=None)
    after = min((time_us for time_us in points if time_us >= at_us), default=None)
    if before is None or after is None or max(at_us - before, after - at_us) > within_us:
        return None
    if before == after:
        return points[at_us]
    share = (at_us - before) / (after - before)
    return points[before] + (points[after] - points[before]) * share


def _multiples(times: list[int], every_us: int, within_us: int) -> Iterable[int]:
    """The multiples at one of these times, or near enough between two."""
    yield from (time_us for time_us in times if time_us % every_us == 0)
    for before, after in pairwise(times):
        low = max(before + 1, after - within_us)
        high = min(after - 1, before + within_us)
        yield from range(-(-low // every_us) * every_us, high + 1, every_us)


def _window(start_us: int, size_us: int) -> Values:
    start = _EPOCH + timedelta(microseconds=start_us)
    return {"window_start": start, "window_end": start + timedelta(microseconds=size_us)}


def _join_key(row: TimedRow, columns: Iterable[str]) -> tuple[Any, ...] | None:
    """A null key equals nothing."""
    key = tuple(row.values[column] for column in columns)
    return None if None in key else key


def _picked(fields: Iterable[tuple[str, str, str]], left: TimedRow, right: TimedRow) -> Values:
    return {
        name: (left if side == "left" else right).values[column] for side, column, name in fields
    }


def _aggregated(function: str, of: Meaning | None, rows: list[TimedRow]) -> Any:
    if of is None:
        return len(rows)
    values = [value for row in rows if (value := of(row.values)) is not None]
    if function == "count":
        return len(values)
    if not values:
        return None
    if function in _BITS:
        return reduce(_BITS[function], values)
    if function == "sum":
        return sum(values)
    if function == "avg":
        return sum(values) / len(values)
    return min(values) if function == "min" else max(values)
