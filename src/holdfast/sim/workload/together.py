"""Dataflows whose units recover together: streams as they come, and what is counted of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.sim.draw import Draw
from holdfast.sim.workload.base import Recording, Workload, cut_up, evenly, placed
from holdfast.sim.workload.oracle import TimedRow
from holdfast.sim.workload.protections import random_limits, random_protection

if TYPE_CHECKING:
    from holdfast.api.streams import Stream
    from holdfast.sim.workload.oracle import Meaning

_KEYS: Final = 12
_ROWS_MAX: Final = 200
_SPREAD_PERCENT: Final = 40


def merged_workload(seed: int, approach: str, instances: int, guarantee: str) -> Workload:
    """The dataflow of a seed: `union` takes its sources as they come, `counts` reads it by key.

    Args:
        seed: Draws rows, bounds and periods, and whether `spread` reads `counts` by another key.
        approach: One of `CUTS`, for all units.
        instances: Of the units that are keyed.
        guarantee: The weakest that units have.
    """
    draw = Draw(f"{seed}/merged")
    flow = Dataflow("merged")
    sources = [_source(flow, f"source-{i}", draw) for i in range(draw.number(2, 3))]
    both = sources[0].union(*sources[1:], order="arrival")
    both.sink("merged")
    windows = both.filter("v > 2").key_by("k").window(tumbling("20 milliseconds"))
    counts = windows.aggregate("count(*) AS n", "sum(v) AS total", name="counts")
    counts.sink("counts")
    if draw.percent(_SPREAD_PERCENT):
        windows = counts.key_by("n").window(tumbling("40 milliseconds"))
        windows.aggregate("max(total) AS most", name="spread").sink("spread")
    meanings: dict[str, Meaning] = {"v > 2": lambda row: row["v"] > 2, "v": lambda row: row["v"]}
    meanings["total"] = lambda row: row["total"]
    limits, protection = random_protection(
        random_limits(draw), f"{seed}/protection", approach, guarantee
    )
    return placed(flow, meanings, instances, limits, protection)


def _source(flow: Dataflow, name: str, draw: Draw) -> Stream:
    """Rows with times in order, in records that arrive evenly."""
    rows: list[TimedRow] = []
    time_us = 0
    for _ in range(draw.number(1, _ROWS_MAX)):
        time_us += draw.number(0, 2_000)
        rows.append(TimedRow(time_us, {"k": draw.number(1, _KEYS), "v": draw.number(0, 9)}))
    records = cut_up(rows, 10, draw)
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    return flow.source_generator(Recording(schema, 0, (records,), (evenly(records),)), name=name)
