"""Dataflows whose results change: counts, counts of counts, and joins of them, as changelogs.

What the changes of a sink come to is told in plain Python, from the rows of the sources alone.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.steps import Stateful
from holdfast.sim.draw import Draw
from holdfast.sim.workload.base import Recording, Workload, cut_up, evenly, placed
from holdfast.sim.workload.oracle import ARBITRARY_SINK, Table, TimedRow
from holdfast.sim.workload.protections import random_limits, random_protection

_INPUT: Final = pa.schema([("k", pa.string()), ("v", pa.int64()), ("t", pa.string())])
_KEYS: Final = (("a",), ("a", "b", "c"), ("a", "b", "", None, "ädä", "a long key of its own"))
_HOWS: Final = ("inner", "left", "right", "full")
_COUNTS: Final = ("count(*) AS n", "sum(v) AS s", "max(t) AS t")


def changing_workload(
    seed: int, tuples_max: int | None = None, approach: str | None = None
) -> Workload:
    """The dataflow of a seed; its units recover precisely.

    Args:
        seed: Draws everything.
        tuples_max: Most tuples per source partition.
        approach: One of `APPROACHES`, for all units; None: it is drawn.
    """
    draw = Draw(f"{seed}/changing")
    flow = Dataflow("changing")
    partitions = draw.one_of((1, 1, 2))
    recorded = {
        name: _recording(draw, count, rows_max, tuples_max)
        for name, count, rows_max in (("rows", partitions, 60), ("marks", 1, 12))
    }
    rows = flow.source_generator(recorded["rows"], name="rows", partitions=partitions)
    marks = flow.source_generator(recorded["marks"], name="marks")
    counts = rows.key_by("k").aggregate(*_COUNTS, emit="changelog", name="counts")
    table = _counted(recorded["rows"].on_time())
    tables: dict[str, Table] = {}

    def sink(of: Any, name: str, wanted: Table, *, has_order: bool = False) -> None:
        name = name if has_order else f"{ARBITRARY_SINK}-{name}"
        of.sink(name)
        tables[name] = wanted

    sink(counts, "counts", table, has_order=partitions == 1)
    if draw.percent(60):
        spread = counts.key_by("n").aggregate(
            "count(*) AS keys", "sum(s) AS s", emit="changelog", name="spread"
        )
        sink(spread, "spread", _spread(table))
    if draw.percent(60):
        how = draw.one_of(_HOWS)
        columns = ["left.k", "left.n", "right.v AS mark"]
        joined = counts.join(
            marks, on="k", select=columns, how=how, emit="changelog", name="joined"
        )
        sink(joined, "joined", _joined(table, recorded["marks"].on_time(), how))
    limits, protection = random_protection(
        random_limits(draw, may_be_tiny=True), f"{seed}/protection", approach, "precise"
    )
    keyed = dict.fromkeys(s.unit for s in flow.steps if isinstance(s.operation, Stateful))
    parallelism = {unit: draw.one_of((1, 1, 2, 3)) for unit in keyed}
    return placed(flow, {}, parallelism, limits, protection, tables=tables)


def _counted(rows: list[TimedRow]) -> Table:
    """Of each key the results of `_COUNTS`."""
    by_key: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        by_key.setdefault(row.values["k"], []).append(row.values)
    return Counter(
        (
            k,
            len(mine),
            _sum(row["v"] for row in mine),
            max((row["t"].encode(), row["t"]) for row in mine)[1],
        )
        for k, mine in by_key.items()
    )


def _sum(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _spread(counts: Table) -> Table:
    """How many keys have a count, and the sum of their sums."""
    by_count: dict[int, list[int | None]] = {}
    for _, n, s, _ in counts:
        by_count.setdefault(n, []).append(s)
    return Counter((n, len(sums), _sum(sums)) for n, sums in by_count.items())


def _joined(counts: Table, marks: list[TimedRow], how: str) -> Table:
    """By nested loops; null is no match of null."""
    found: Table = Counter()
    matched: set[int] = set()
    for k, n, *_ in counts:
        mine = [i for i, mark in enumerate(marks) if k is not None and mark.values["k"] == k]
        found.update((k, n, marks[i].values["v"]) for i in mine)
        matched.update(mine)
        if not mine and how in ("left", "full"):
            found[k, n, None] += 1
    if how in ("right", "full"):
        alone = (mark for i, mark in enumerate(marks) if i not in matched)
        found.update((None, None, mark.values["v"]) for mark in alone)
    return found


def _recording(draw: Draw, partitions: int, rows_max: int, tuples_max: int | None) -> Recording:
    """Rows in order of time, in records that arrive evenly."""
    keys = draw.one_of(_KEYS)
    dealt: list[tuple[tuple[TimedRow, ...], ...]] = []
    for _ in range(partitions):
        rows: list[TimedRow] = []
        time_us = 0
        for _ in range(draw.number(1, rows_max)):
            time_us += draw.number(0, 2_000)
            v = None if draw.percent(10) else draw.number(-9, 9)
            values = {"k": draw.one_of(keys), "v": v, "t": draw.one_of(("", "x", "y", "ädä"))}
            rows.append(TimedRow(time_us, values))
        dealt.append(cut_up(rows[:tuples_max], 12, draw))
    arrivals = tuple(map(evenly, dealt))
    return Recording(_INPUT, 0, tuple(dealt), arrivals, is_recorded=draw.percent(70))
