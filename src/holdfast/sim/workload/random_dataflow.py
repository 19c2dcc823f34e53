"""Random dataflows: graphs of all operators over random schemas, with skewed and late input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.steps import Filter, Select, Source, Stateful, WindowAggregate
from holdfast.api.streams import Stream
from holdfast.api.windows import (
    AnyWindow,
    CountWindow,
    counting,
    sessions,
    sliding,
    tumbling,
)
from holdfast.core.haunit.plan import NodeLimits
from holdfast.core.model.tuples import EARLIEST_US, LATEST_US
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import DataflowError
from holdfast.sim.draw import Draw
from holdfast.sim.workload.alone import way_alone
from holdfast.sim.workload.base import (
    SPAN_US,
    CommittedRecording,
    Recorded,
    Recording,
    Workload,
    copies_in,
    evenly,
    first_rows,
    placed,
)
from holdfast.sim.workload.commits import committed, strays_of
from holdfast.sim.workload.conserving import BEHIND_US, all_of, counted, values_of, window_behind
from holdfast.sim.workload.expressions import FLAG, INT, REAL, TEXT, TIME, Expression, Expressions
from holdfast.sim.workload.files import FILES_PERCENT, files_drawn
from holdfast.sim.workload.kinds_of_steps import APART, BY_CLOCK, CHAIN, JOINS, TINY, kind_of_step
from holdfast.sim.workload.oracle import ARBITRARY_SINK, Conserved, Meaning, TimedRow, Values
from holdfast.sim.workload.protections import Protections, random_limits, random_protection

_ARROW: Final = {INT: pa.int64(), TEXT: pa.string(), FLAG: pa.bool_()}
_TEXTS: Final = ("ada", "bo", "cleo", "", "ädä", "a long name that no page holds beside others")
_KEY_KINDS: Final = (INT, TEXT, FLAG)
_LOGS_PERCENT: Final = 40
"""So many sources are ingest logs, whose partitions share what is late."""
_EDGE_SPAN_US: Final = 1 << 32
_EDGES_US: Final = (EARLIEST_US + _EDGE_SPAN_US, LATEST_US - 2 * _EDGE_SPAN_US)
"""Where times near the earliest and the latest begin, with room for windows around them."""
_WITHIN_PERCENT: Final = 25
"""So many joins that would have no windows are of rows within a span of time."""
_HOWS: Final = ("inner", "left", "right", "full", "semi", "anti")
_BEHIND_SIZE: Final = f"{BEHIND_US} microseconds"
_BEHIND: Final = tumbling(_BEHIND_SIZE)
"""The windows of what depends on an arbitrary unit."""
_STACKED_PERCENT: Final = 80
"""So often an operator stands in the unit before it, where that may be."""
_ATTEMPTS: Final = 20
_PAIRS_MAX: Final = 5_000
_PAIRS_OF_CHAINS: Final = 200_000
"""Of joins behind joins, whose sources give few rows."""


@dataclass(frozen=True, slots=True)
class _Typed:
    """A stream, the kinds of its columns, and at most how many rows it may have.

    As long as the order of the rows is known, `partitions` is in how many instances they are; else
    zero.
    """

    stream: Stream
    columns: dict[str, str]
    rows_max: int
    partitions: int = 0

    def expressions(self, draw: Draw) -> Expressions:
        return Expressions(draw, self.columns)

    def of_kinds(self, *kinds: str) -> list[str]:
        return [name for name, kind in self.columns.items() if kind in kinds]


def random_workload(
    seed: int,
    tuples_max: int | None = None,
    approach: str | None = None,
    guarantee: str | None = None,
    *,
    only: str | None = None,
) -> Workload:
    """The dataflow of a seed.

    Args:
        seed: Draws everything.
        tuples_max: Most tuples per source partition; cuts the input, changes nothing else.
        approach: One of `APPROACHES`, for all units; None: it is drawn.
        guarantee: One of `GUARANTEES`, the weakest that units have; None: it is drawn.
        only: One of `ONLY` (kinds_of_steps.py), which all steps begin with; None: they are drawn.
    """
    for attempt in range(_ATTEMPTS):
        try:
            protected = partial(
                random_protection,
                name=f"{seed}/protection",
                approach=approach,
                guarantee=guarantee,
            )
            return _Builder(f"{seed}/workload/{attempt}", tuples_max, protected, only).build()
        except DataflowError:
            continue  # Refused, e.g. forward edges between other parallelisms.
    raise AssertionError(f"seed {seed} draws only dataflows that are refused")


class _Builder:
    """Draws one dataflow."""

    def __init__(
        self,
        name: str,
        tuples_max: int | None,
        protected: Callable[[NodeLimits], tuple[NodeLimits, Protections]],
        only: str | None,
    ) -> None:
        self._draw = Draw(name)
        self._name_of_all = name
        self._apart = Draw(f"{name}/within")
        self._only = only
        self._pairs_max = _PAIRS_MAX if only != JOINS else _PAIRS_OF_CHAINS
        self._protected = protected
        _, self._protection = protected(NodeLimits())
        self._tuples_max = tuples_max
        self._flow = Dataflow("random")
        self._meanings: dict[str, Meaning] = {}
        self._conserved: dict[str, Conserved] = {}
        self._names = 0

    def build(self) -> Workload:
        draw = self._draw
        fewest = 2 if self._only in (APART, JOINS) else 1
        streams = [self._source(i) for i in range(draw.number(fewest, 3))]
        used: set[str] = set()
        for _ in range(draw.number(3 if self._only == JOINS else 1, 5)):
            made = self._step(streams, used)
            if made is not None:
                streams.append(made)
        sinks = 0
        for typed in streams:
            step = typed.stream.step
            is_leaf = step.name not in used
            if is_leaf or (not isinstance(step.operation, Source) and draw.percent(15)):
                typed.stream.sink(f"out{sinks}")
                sinks += 1
        stateful = (step for step in self._flow.steps if isinstance(step.operation, Stateful))
        units = Counter(step.unit for step in stateful)
        parallelism = {
            unit: draw.one_of((1, 1, 2, 2, 3, 4)) if units[unit] == 1 else 1
            for unit in sorted(units.keys() - self._sources())
        }
        self._put_alone(streams, parallelism)
        limits = random_limits(draw, may_be_tiny=self._only in TINY)
        limits, protection = self._protected(limits)
        return placed(self._flow, self._meanings, parallelism, limits, protection, self._conserved)

    def _put_alone(self, streams: list[_Typed], parallelism: dict[str, int]) -> None:
        def is_apt(unit: str) -> bool:
            is_delayed = self._protection(unit).delays is not None
            return is_delayed and parallelism.get(unit, 1) == 1 and unit not in self._sources()

        ways = [(typed.stream, typed.columns) for typed in streams]
        own = self._beside_all("alone")
        made = way_alone(self._flow.steps, ways, is_apt, own, is_wanted=self._only == APART)
        if made is not None:
            filtered, condition, end = made
            self._filtered(filtered, condition)
            end.sink("alone")

    def _sources(self) -> set[str]:
        return {step.unit for step in self._flow.steps if isinstance(step.operation, Source)}

    def _beside_all(self, of: str) -> Draw:
        """A draw of its own, so that the rest of the dataflow stays what it is."""
        return Draw(f"{self._name_of_all}/{of}/{self._names}")

    def _name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    # -- sources ------------------------------------------------------------------------------

    def _source(self, number: int) -> _Typed:
        draw = self._draw
        kinds = [INT, *(draw.one_of(_KEY_KINDS) for _ in range(draw.number(1, 3)))]
        columns = {f"s{number}c{i}": kind for i, kind in enumerate(kinds)}
        schema = pa.schema([(name, _ARROW[kind]) for name, kind in columns.items()])
        partitions = draw.one_of((1, 1, 1, 2, 3))
        count = draw.steep(4, 16) if self._only == JOINS else draw.steep(10, 120)
        rows = Draw(f"{draw.number(0, 1 << 30)}/rows")  # Of its own: tuples may be cut off.
        disorder_us = rows.one_of((0, 0, 300, 3_000))
        delay_us = 0 if not disorder_us else rows.one_of((disorder_us, disorder_us // 3))
        records = tuple(self._records(rows, columns, count, disorder_us) for _ in range(partitions))
        arrivals = tuple(map(evenly, records))
        is_recorded = rows.percent(70)
        recording: Recorded = Recording(schema, delay_us, records, arrivals, is_recorded)
        log = Draw(f"{self._name_of_all}/log/{number}")
        if log.percent(_LOGS_PERCENT):
            recording = self._log(number, log, schema, columns, count * partitions, partitions)
        stream = self._flow.source_generator(recording, name=f"src{number}", partitions=partitions)
        return _Typed(stream, columns, count * partitions, partitions)

    def _log(
        self,
        number: int,
        draw: Draw,
        schema: pa.Schema,
        columns: dict[str, str],
        count: int,
        partitions: int,
    ) -> CommittedRecording:
        """An ingest log that all partitions share."""
        disorder_us = draw.one_of((0, 300, 3_000))
        delay_us = draw.one_of((0, disorder_us, disorder_us // 3))
        is_recorded = draw.percent(70)
        edge_us = draw.one_of((0, 0, 0, *_EDGES_US))
        records = tuple(
            tuple(replace(row, time_us=row.time_us % _EDGE_SPAN_US + edge_us) for row in record)
            if edge_us
            else record
            for record in self._records(draw, columns, count, disorder_us)
        )
        strays = strays_of(self._name_of_all, number)
        ahead_us = None if strays is None else strays.ahead_us
        made = CommittedRecording(schema, delay_us, (), partitions, is_recorded, ahead_us)
        files = Draw(f"{self._name_of_all}/files/{number}")
        if files.percent(FILES_PERCENT):
            return files_drawn(files, made, records, SPAN_US, strays)
        return replace(made, commits=committed(draw, records, delay_us, SPAN_US, strays))

    def _records(
        self, draw: Draw, columns: dict[str, str], count: int, disorder_us: int
    ) -> tuple[tuple[TimedRow, ...], ...]:
        time_us = draw.one_of((0, 1_700_000_000_000_000, -5_000))
        step_us = draw.one_of((10, 100, 400))
        keys = draw.one_of((1, 3, 20))
        records: list[tuple[TimedRow, ...]] = []
        made = 0
        while made < count:
            size = min(draw.number(1, 20), count - made)
            record = []
            for _ in range(size):
                time_us += draw.number(0, step_us)
                back_us = draw.number(0, disorder_us) if draw.percent(30) else 0
                values = {name: self._value(draw, kind, keys) for name, kind in columns.items()}
                record.append(TimedRow(time_us - back_us, values))
            made += size
            records.append(tuple(record))
        if self._tuples_max is not None:
            records = first_rows(records, self._tuples_max)
        return tuple(records)

    def _value(self, draw: Draw, kind: str, keys: int) -> object:
        if draw.percent(8):
            return None
        if kind == FLAG:
            return draw.percent(50)
        if kind == TEXT:
            return _TEXTS[draw.number(0, min(keys, len(_TEXTS)) - 1)]
        return 0 if draw.percent(30) else draw.number(-2, keys)  # Zero is the hot key.

    # -- operators ----------------------------------------------------------------------------

    def _step(self, streams: list[_Typed], used: set[str]) -> _Typed | None:
        draw = self._draw
        among = streams[-1:] if self._only == JOINS else streams[-3:]
        one, other = self._stacked(draw.one_of(among)), draw.one_of(streams)
        kind = kind_of_step(draw, self._only)
        made: _Typed | None
        if kind in ("arbitrary", *BY_CLOCK):
            self._arbitrary(one, other)
            used.add(one.stream.step.name)
            return None
        if kind in ("filter", "select", "aggregate", "sort", "resample_every", "diamond"):
            made = getattr(self, f"_{kind}")(one)
            if made is not None:
                used.add(one.stream.step.name)
            return made
        made = getattr(self, f"_{kind}")(one, other)
        if made is not None:
            used.update((one.stream.step.name, other.stream.step.name))
        return made

    def _stacked(self, one: _Typed) -> _Typed:
        """Sometimes what comes next stands in the unit before it, so that both may keep state."""
        unit = one.stream.step.unit
        if unit in self._sources():
            return one
        protection = self._protection(unit)
        is_apt = protection.checkpoints is not None or protection.guarantee is Guarantee.GAP
        is_apt = is_apt or self._only == CHAIN
        if not self._draw.percent(_STACKED_PERCENT if is_apt else _STACKED_PERCENT // 4):
            return one
        if self._only == "aggregate":
            raise DataflowError  # Each has a unit of its own.
        return replace(one, stream=one.stream.unit(unit))

    def _arbitrary(self, one: _Typed, other: _Typed) -> None:
        """A branch of its own: no two runs put the same out, but one run does."""
        draw, stream = self._draw, one.stream
        kind = draw.one_of(("sample", "clock", "timeout", "arrival", "arrival"))
        kind = self._only if self._only in BY_CLOCK else kind
        has_behind = draw.percent(50)  # Another unit depends on what came out.
        if kind == "arrival":
            made = self._united(one, other, order="arrival").stream
            if has_behind:
                made = made.window(_BEHIND).aggregate("count(*) AS n", name=self._name("after"))
            made.sink(self._name("whole"))
            return
        sink = self._name(ARBITRARY_SINK)
        if kind == "sample":
            made = self._beside(stream, one).sample(draw.one_of((0.2, 0.5, 0.9)))
            if has_behind:
                made = made.window(_BEHIND).aggregate("count(*) AS n", name=self._name("after"))
                self._conserved[sink] = Conserved(
                    stream.step, window_behind, window_behind, counted("n"), is_whole=False
                )
            else:
                self._conserved[sink] = Conserved(
                    stream.step, all_of, all_of, lambda _: 1, is_whole=False
                )
            made.sink(sink)
            return
        size = f"{draw.one_of((500, 20_000, 100_000))} microseconds"
        window = tumbling(size, time="processing")
        if kind == "timeout":
            window = tumbling(_BEHIND_SIZE, timeout=size)
        names = [name for name in one.of_kinds(*_KEY_KINDS) if draw.percent(50)][:1]
        keyed = stream.key_by(*names) if names else stream
        name = self._name("arb")
        made = keyed.window(window).aggregate(f"count(*) AS {name}", name=name)
        weight, keys = counted(name), values_of(names)
        if has_behind:
            text = f"sum({name}) AS n"
            made = made.window(_BEHIND).aggregate(text, name=self._name("after"))
            weight, keys = counted("n"), values_of(())
        self._conserved[sink] = Conserved(stream.step, keys, keys, weight, is_whole=True)
        made.sink(sink)

    def _branches(self, one: _Typed, other: _Typed) -> _Typed:
        """A merged stream with an order, and several that read it: some depend on it, and what is
        arbitrary must change nothing for them.
        """
        draw = self._draw
        merged = self._united(one, other, order="time")
        merged.stream.sink(self._name("merged"))
        for _ in range(draw.number(1, 3)):
            if draw.percent(60):
                self._arbitrary(merged, merged)
            else:
                self._aggregate(merged).stream.sink(self._name("branch"))
        return merged

    def _diamond(self, one: _Typed) -> _Typed:
        """Two ways from one stream that meet again, of which one may hold back what it has."""
        draw = self._draw
        way = one
        for kind in draw.one_of((("sort",), ("filter",), ("filter", "sort"), ("sort", "sort"))):
            way = self._sort(way) if kind == "sort" else self._filter(way)
        return self._united(way, one, order="time")

    def _beside(self, stream: Stream, one: _Typed) -> Stream:
        """Sometimes in the unit before it, where a single source's stream is all that comes."""
        is_source = one.partitions > 0 and stream.step.unit in self._sources()
        return stream.unit(stream.step.unit) if is_source and self._draw.percent(40) else stream

    def _learn(self, sql: str, of: Meaning) -> None:
        self._meanings[sql] = of

    def _filter(self, one: _Typed) -> _Typed:
        condition = one.expressions(self._draw).condition()
        stream = self._filtered(self._placed(one.stream).filter(condition.sql), condition)
        return _Typed(stream, one.columns, one.rows_max, _instances(stream, one))

    def _filtered(self, stream: Stream, condition: Expression) -> Stream:
        assert isinstance(stream.step.operation, Filter)
        self._learn(stream.step.operation.expression.sql, condition.of)
        return stream

    def _placed(self, stream: Stream) -> Stream:
        """Sometimes in a unit of its own."""
        return stream.unit(self._name("unit")) if self._draw.percent(15) else stream

    def _select(self, one: _Typed) -> _Typed:
        source = one.expressions(self._draw)
        chosen = {self._name("c"): source.any() for _ in range(self._draw.number(1, 3))}
        for name, kind in one.columns.items():
            if self._draw.percent(50):
                chosen[name] = Expression(name, kind, _column(name))
        return self._projected(one, chosen)

    def _projected(self, one: _Typed, chosen: dict[str, Expression]) -> _Typed:
        stream = self._placed(one.stream).select(
            *(f"{e.sql} AS {name}" for name, e in chosen.items())
        )
        assert isinstance(stream.step.operation, Select)
        compiled = stream.step.operation.expressions
        for expression, given in zip(compiled, chosen.values(), strict=True):
            self._learn(expression.sql, given.of)
        columns = {name: e.kind for name, e in chosen.items()}
        return _Typed(stream, columns, one.rows_max, _instances(stream, one))

    def _windows(self) -> tuple[str, str]:
        """Size and slide."""
        slide = self._draw.one_of((200, 1_000, 5_000))
        size = slide * self._draw.one_of((1, 1, 2, 4))
        if self._beside_all("odd").percent(15):
            size += slide // 2  # No multiple of the slide.
        return f"{size} microseconds", f"{slide} microseconds"

    def _any_windows(self, one: _Typed) -> AnyWindow:
        """Of all kinds, as far as it is known in which order the rows come."""
        draw = self._draw
        own = self._beside_all("sessions")
        if own.percent(15):
            return sessions(f"{own.one_of((20, 200, 2_000))} microseconds")
        kind = draw.one_of(("epoch", "epoch", "first", "count")) if one.partitions else "epoch"
        if kind == "count":
            size = draw.steep(1, 12)
            alignment = draw.one_of(("key", "stream")) if one.partitions == 1 else "key"
            return counting(size, draw.number(1, size), alignment=alignment)
        return sliding(*self._windows(), alignment=kind)

    def _aggregate(self, one: _Typed) -> _Typed:
        draw = self._draw
        keys = [name for name in one.of_kinds(*_KEY_KINDS) if draw.percent(50)][:2]
        windows = self._any_windows(one)
        stream = one.stream.key_by(*keys) if keys else one.stream
        stream = stream.window(windows)
        columns = {"window_start": TIME, "window_end": TIME}
        if isinstance(windows, CountWindow) and windows.alignment == "stream":
            columns = {"first_id": INT, "next_id": INT}
        columns |= {key: one.columns[key] for key in keys}
        is_running = windows.is_plain and draw.percent(15)
        name = self._name("n")
        texts = [f"count(*) AS {name}"]
        meanings: list[Meaning | None] = [None]
        columns[name] = INT
        for _ in range(0 if is_running else draw.number(0, 2)):
            function = draw.one_of(("count", "sum", "min", "max", "avg"))
            kind = INT if function in ("sum", "avg") else draw.one_of((INT, TEXT))
            bits = self._beside_all("bits")
            if kind == INT and bits.percent(10):
                function = bits.one_of(("bit_and", "bit_or", "bit_xor"))
            argument = one.expressions(draw).of_kind(kind, 1)
            name = self._name("a")
            texts.append(f"{function}({argument.sql}) AS {name}")
            meanings.append(argument.of)
            columns[name] = {"count": INT, "avg": REAL}.get(function, kind)
        made = stream.aggregate(
            *texts, name=self._name("agg"), emit="changes" if is_running else "final"
        )
        assert isinstance(made.step.operation, WindowAggregate)
        for aggregate, of in zip(made.step.operation.aggregates, meanings, strict=True):
            if aggregate.expression is not None and of is not None:
                self._learn(aggregate.expression.sql, of)
        if is_running:
            made.sink(self._name("changes"))  # Its tuple times depend on the order: a leaf.
            return _Typed(one.stream, one.columns, one.rows_max)
        return _Typed(made, columns, one.rows_max * copies_in(windows))

    def _distinct(self, one: _Typed) -> _Typed:
        """Of copies the first one, where it is known which that is."""
        draw = self._beside_all("distinct")
        keys = [name for name in one.of_kinds(*_KEY_KINDS) if draw.percent(40)][:2]
        within = draw.one_of((None, "50 microseconds", "2000 microseconds"))
        same_time = within is None and draw.percent(50)
        columns = keys or one.of_kinds(*_KEY_KINDS)[:1]
        name = self._name("distinct")
        stream = one.stream.distinct(*columns, within=within, same_time=same_time, name=name)
        return _Typed(stream, one.columns, one.rows_max)

    def _sort(self, one: _Typed) -> _Typed:
        if one.partitions and self._beside_all("distinct").percent(50):
            return self._distinct(one)
        by = self._draw.one_of((None, None, *one.of_kinds(INT, FLAG)))
        stream = one.stream.sort(by, slack=self._draw.steep(1, 60), name=self._name("sort"))
        return _Typed(stream, one.columns, one.rows_max)

    def _resampled(self, one: _Typed) -> tuple[list[str], dict[str, str], int] | None:
        """Columns to interpolate, the results' kinds, and how far away values may be."""
        columns = [name for name in one.of_kinds(INT) if self._draw.percent(70)][:2]
        if not columns:
            return None
        named = {name: self._name("r") for name in columns}
        texts = [f"{column} AS {name}" for column, name in named.items()]
        return texts, dict.fromkeys(named.values(), REAL), self._draw.one_of((200, 1_000, 5_000))

    def _resample_every(self, one: _Typed) -> _Typed | None:
        drawn = self._resampled(one)
        if drawn is None:
            return None
        texts, columns, within_us = drawn
        keys = [name for name in one.of_kinds(*_KEY_KINDS) if self._draw.percent(50)][:1]
        stream = one.stream.key_by(*keys) if keys else one.stream
        parts = self._draw.one_of((1, 2, 3))
        made = stream.resample(
            *texts,
            within=f"{within_us} microseconds",
            every=f"{within_us // parts} microseconds",
            name=self._name("every"),
        )
        first = {"time": TIME} | {key: one.columns[key] for key in keys}
        return _Typed(made, first | columns, one.rows_max * (2 * parts + 2))

    def _resample_at(self, one: _Typed, other: _Typed) -> _Typed | None:
        drawn = self._resampled(one)
        if drawn is None:
            return None
        texts, columns, within_us = drawn
        pairs = self._keys(one, other) if self._draw.percent(70) else []
        if pairs is None:
            return None
        made = one.stream.resample(
            *texts,
            within=f"{within_us} microseconds",
            at=other.stream,
            on=pairs,
            name=self._name("at"),
        )
        return _Typed(made, other.columns | columns, other.rows_max)

    def _union(self, one: _Typed, other: _Typed) -> _Typed | None:
        return self._united(one, other, order="time")

    def _united(self, one: _Typed, other: _Typed, order: str) -> _Typed:
        """Two streams brought to the same columns."""
        wanted = [self._draw.one_of(_KEY_KINDS) for _ in range(self._draw.number(1, 2))]
        names = [self._name("u") for _ in wanted]
        sides = []
        for side in (one, other):
            source = side.expressions(self._draw)
            chosen = {n: source.of_kind(k, 1) for n, k in zip(names, wanted, strict=True)}
            sides.append(self._projected(side, chosen))
        stream = sides[0].stream.union(sides[1].stream, order=order)
        partitions = 0
        if order == "time" and all(side.partitions for side in sides):
            partitions = _instances(stream, sides[0])
        return _Typed(stream, sides[0].columns, one.rows_max + other.rows_max, partitions)

    def _keys(self, one: _Typed, other: _Typed) -> list[tuple[str, str]] | None:
        pairs = [(a, b) for a in one.of_kinds(*_KEY_KINDS) for b in other.of_kinds(one.columns[a])]
        if not pairs:
            return None
        chosen = [self._draw.one_of(pairs)]
        if len(pairs) > 1 and self._draw.percent(40):
            chosen.append(self._draw.one_of(pairs))
        return chosen

    def _fields(self, one: _Typed, other: _Typed) -> tuple[list[str], dict[str, str]]:
        texts: list[str] = []
        columns: dict[str, str] = {}
        for side, typed in (("left", one), ("right", other)):
            for name, kind in typed.columns.items():
                if self._draw.percent(60) or not columns:
                    given = self._name("j")
                    texts.append(f"{side}.{name} AS {given}")
                    columns[given] = kind
        return texts, columns

    def _window_join(self, one: _Typed, other: _Typed) -> _Typed | None:
        pairs = self._keys(one, other)
        if pairs is None or one.rows_max * other.rows_max > self._pairs_max:
            return None
        size, _ = self._windows()
        texts, columns = self._fields(one, other)
        how, emit = self._draw.one_of((("inner", "final"), ("left", "final"), ("inner", "changes")))
        stream = one.stream.window(tumbling(size)).join(
            other.stream, on=pairs, select=texts, how=how, emit=emit, name=self._name("wjoin")
        )
        columns = {"window_start": TIME, "window_end": TIME} | columns
        return _Typed(stream, columns, one.rows_max * other.rows_max)

    def _join(self, one: _Typed, other: _Typed) -> _Typed | None:
        pairs = self._keys(one, other)
        if pairs is None or one.rows_max * other.rows_max > self._pairs_max:
            return None
        if self._apart.percent(_WITHIN_PERCENT):
            return self._interval_join(one, other)
        texts, columns = self._fields(one, other)
        stream = one.stream.join(other.stream, on=pairs, select=texts, name=self._name("join"))
        return _Typed(stream, columns, one.rows_max * other.rows_max)

    def _interval_join(self, one: _Typed, other: _Typed) -> _Typed | None:
        """Drawn apart, so that seeds without it draw what they did before."""
        draw = self._apart
        pairs = [(a, b) for a in one.of_kinds(*_KEY_KINDS) for b in other.of_kinds(one.columns[a])]
        if not pairs or one.rows_max * other.rows_max > self._pairs_max:
            return None
        how = draw.one_of(_HOWS)
        columns: dict[str, str] = {}
        texts: list[str] = []
        for side, typed in (("left", one), ("right", other)):
            for name, kind in typed.columns.items():
                if side == "left" or how != "semi":  # First matches depend on the order.
                    columns[f"{side[0]}_{name}"] = kind
                    texts.append(f"{side}.{name} AS {side[0]}_{name}")
        ends = sorted(draw.number(-20_000, 20_000) for _ in range(2))
        span = f"{ends[0]} microseconds", f"{ends[1]} microseconds"
        stream = one.stream.join(
            other.stream,
            on=[draw.one_of(pairs)],
            select=texts,
            how=how,
            within=span,
            name=f"near{len(self._flow.steps)}",
        )
        return _Typed(stream, columns, one.rows_max * (other.rows_max + 1) + other.rows_max)


def _instances(stream: Stream, of: _Typed) -> int:
    """In how many instances the rows are behind an operator without state; zero: as before."""
    is_there = stream.step.unit == of.stream.step.unit
    return of.partitions if is_there else min(1, of.partitions)


def _column(name: str) -> Meaning:
    def value(row: Values) -> object:
        return row[name]

    return value
