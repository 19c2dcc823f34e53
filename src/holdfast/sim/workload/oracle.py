"""What a dataflow means, in plain Python: a second opinion that shares no code with the operators.

It evaluates steps over rows in memory, as the batch twin does in Spark SQL, with which it is itself
compared (tests/spark/test_oracle_equals_spark.py). Expressions are looked up by their SQL text:
whoever builds a workload writes each expression twice, as SQL and as a Python function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.api.dataflow import Dataflow, Step

Values = dict[str, Any]
Meaning = Callable[[Values], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimedRow:
    """A row: its tuple time in microseconds, and its values by column."""

    time_us: int
    values: Values


class Oracle:
    """Evaluates a dataflow's sinks."""

    def __init__(self, inputs: dict[str, list[TimedRow]], meanings: dict[str, Meaning]) -> None:
        """`inputs`: the on-time rows per source; `meanings`: per SQL text what it computes."""
        self._inputs = inputs
        self._meanings = meanings
        self._known: dict[str, list[TimedRow]] = {}

    def expected(self, flow: Dataflow) -> dict[str, Counter[tuple[Any, ...]]]:
        """Per sink its rows, copies counted."""
        return {
            sink: Counter(
                tuple(row.values[name] for name in step.schema.names) for row in self.rows(step)
            )
            for sink, step in flow.sinks.items()
        }

    def rows(self, step: Step) -> list[TimedRow]:
        """What a step puts out, in no particular order."""
        if step.name not in self._known:
            inputs = [self.rows(source) for source in step.inputs]
            self._known[step.name] = getattr(self, f"_{step.kind}")(step, *inputs)
        return self._known[step.name]

    def _meaning(self, sql: str) -> Meaning:
        """What was given for the text; a column's name means its value."""
        return self._meanings.get(sql) or (lambda row: row[sql])

    def _source(self, step: Step) -> list[TimedRow]:
        return self._inputs[step.name]

    def _filter(self, step: Step, rows: list[TimedRow]) -> list[TimedRow]:
        condition = self._meaning(step.settings["expression"].sql)
        return [row for row in rows if condition(row.values) is True]

    def _select(self, step: Step, rows: list[TimedRow]) -> list[TimedRow]:
        columns = [(e.name, self._meaning(e.sql)) for e in step.settings["expressions"]]
        return [
            TimedRow(row.time_us, {name: of(row.values) for name, of in columns}) for row in rows
        ]

    def _union(self, _: Step, *inputs: list[TimedRow]) -> list[TimedRow]:
        return [row for rows in inputs for row in rows]

    def _aggregate(self, step: Step, rows: list[TimedRow]) -> list[TimedRow]:
        settings = step.settings
        size_us, slide_us = settings["windows"].size_us, settings["windows"].slide_us
        keys, aggregates = settings["keys"], settings["aggregates"]
        is_running = settings["emit"] == "changes"
        groups: dict[tuple[Any, ...], list[TimedRow]] = {}
        for row in rows:
            newest_us = row.time_us // slide_us * slide_us
            for start_us in range(newest_us, newest_us - size_us, -slide_us):
                group = (start_us, *(row.values[key] for key in keys))
                groups.setdefault(group, []).append(row)
        results: list[TimedRow] = []
        for (start_us, *key), members in groups.items():
            prefixes: Iterable[int] = range(1, len(members) + 1) if is_running else (len(members),)
            for count in prefixes:
                values = _window(start_us, size_us) | dict(zip(keys, key, strict=True))
                for aggregate in aggregates:
                    of = aggregate.expression and self._meaning(aggregate.expression.sql)
                    values[aggregate.name] = _aggregated(aggregate.function, of, members[:count])
                results.append(TimedRow(start_us + size_us - 1, values))
        return results

    def _window_join(
        self, step: Step, left: list[TimedRow], right: list[TimedRow]
    ) -> list[TimedRow]:
        settings = step.settings
        size_us = settings["windows"].size_us
        index: dict[tuple[Any, ...], list[TimedRow]] = {}
        for row in right:
            key = _join_key(row, settings["right_keys"])
            if key is not None:
                index.setdefault((row.time_us // size_us, *key), []).append(row)
        results: list[TimedRow] = []
        for row in left:
            key = _join_key(row, settings["left_keys"])
            window = row.time_us // size_us
            matches = [] if key is None else index.get((window, *key), [])
            if not matches and settings["how"] == "left":
                matches = [TimedRow(0, dict.fromkeys(step.inputs[1].schema.names))]
            for other in matches:
                values = _window(window * size_us, size_us)
                values |= _picked(settings["fields"], row, other)
                results.append(TimedRow(window * size_us + size_us - 1, values))
        return results

    def _join(self, step: Step, left: list[TimedRow], right: list[TimedRow]) -> list[TimedRow]:
        settings = step.settings
        index: dict[tuple[Any, ...], list[TimedRow]] = {}
        for row in right:
            key = _join_key(row, settings["right_keys"])
            if key is not None:
                index.setdefault(key, []).append(row)
        return [
            TimedRow(max(row.time_us, other.time_us), _picked(settings["fields"], row, other))
            for row in left
            if (key := _join_key(row, settings["left_keys"])) is not None
            for other in index.get(key, [])
        ]


def _window(start_us: int, size_us: int) -> Values:
    start = _EPOCH + timedelta(microseconds=start_us)
    return {"window_start": start, "window_end": start + timedelta(microseconds=size_us)}


def _join_key(row: TimedRow, columns: Iterable[str]) -> tuple[Any, ...] | None:
    """A null key equals nothing."""
    key = tuple(row.values[column] for column in columns)
    return None if None in key else key


def _picked(fields: list[tuple[str, str, str]], left: TimedRow, right: TimedRow) -> Values:
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
    if function == "sum":
        return sum(values)
    if function == "avg":
        return sum(values) / len(values)
    return min(values) if function == "min" else max(values)
