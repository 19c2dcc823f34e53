"""Which steps depend on the order in which the rows of a batch DataFrame come."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import AnyWindow, counting, sessions, sliding, tumbling
from holdfast.driver.scans import needs_order

SCHEMA = pa.schema([("v", pa.int64()), ("w", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
HOUR = tumbling("1 hour")
Made = Callable[[Stream], Stream]


def windows(over: AnyWindow, aggregate: str = "count(*) AS n", emit: str = "final") -> Made:
    return lambda rows: rows.key_by("v").window(over).aggregate(aggregate, emit=emit)


BY_ORDER: dict[str, Made] = {
    "the first of each key": lambda rows: rows.distinct("v"),
    "the first for a while": lambda rows: rows.distinct("v", within="10 minutes"),
    "windows from the first": windows(tumbling("1 hour", alignment="first")),
    "windows with a timeout": windows(tumbling("1 hour", timeout="1 second")),
    "windows of so many": windows(counting(3)),
    "all changes": windows(HOUR, emit="changes"),
    "the first of a window": windows(HOUR, "first(w) AS f"),
    "any of a window": windows(HOUR, "any_value(w) AS f"),
    "the one with the least": windows(HOUR, "min_by(w, v) AS f"),
    "the ones with most": windows(HOUR, "max_by(w, v) AS f"),
    "all so far": lambda rows: rows.key_by("v").aggregate("count(*) AS n", emit="changes"),
    "sorted": lambda rows: rows.sort(slack=1),
    "a sample": lambda rows: rows.sample(0.5),
}
WITHOUT: dict[str, Made] = {
    "rows": lambda rows: rows.filter("v > 1").select("v", "w"),
    "the first of each time": lambda rows: rows.distinct("v", same_time=True),
    "sessions": windows(sessions("1 hour")),
    "sums": windows(sliding("1 hour", "1 minute"), "sum(w) AS s"),
    "both sides": lambda rows: rows.filter("v > 1").union(rows),
}


@pytest.mark.parametrize("name", [*BY_ORDER, *WITHOUT])
def test_steps_that_depend_on_the_order_of_rows_are_known(name: str, tmp_path: Path) -> None:
    flow = Dataflow("flow")
    rows = flow.source_files(str(tmp_path), schema=SCHEMA, time="at")
    (BY_ORDER | WITHOUT)[name](rows)
    assert bool(needs_order(flow)) == (name in BY_ORDER)
