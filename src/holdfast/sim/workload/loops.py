"""Dataflows with a loop: what is reached by links, which come and go. [CheckMate §VI]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.sim.draw import Draw
from holdfast.sim.workload.base import Recording, Workload, cut_up, evenly, placed
from holdfast.sim.workload.oracle import TimedRow
from holdfast.sim.workload.protections import CUTS, random_limits, random_protection

if TYPE_CHECKING:
    from holdfast.api.streams import Stream
    from holdfast.sim.workload.oracle import Meaning

_NODES: Final = 12
_COLUMNS: Final = ["node", "hops + 1L AS hops", "of_link * of_reach AS change"]


def looped_workload(
    seed: int,
    tuples_max: int | None = None,
    approach: str | None = None,
    parallelism: int | None = None,
    guarantee: str | None = "precise",
) -> Workload:
    """The dataflow of a seed.

    Args:
        seed: Draws everything.
        tuples_max: Most tuples per source partition.
        approach: One of `CUTS`, for all units; None: it is drawn.
        parallelism: Instances of units; None: that is drawn.
        guarantee: One of `GUARANTEES`, the weakest that units have; None: it is drawn.
    """
    draw = Draw(f"{seed}/loop")
    hops_max = draw.number(1, 4)
    flow = Dataflow("looped")
    links = _source(flow, "links", ("source", "target", "change"), draw, tuples_max, 40)
    starts = _source(flow, "starts", ("node", "hops", "change"), draw, tuples_max, 8)
    reach = starts.loop("reach")
    found = links.join(
        reach,
        on=[("source", "node")],
        select=[
            "left.target AS node",
            "right.hops AS hops",
            "left.change AS of_link",
            "right.change AS of_reach",
        ],
        name="found",
    )
    body = found.unit("body") if draw.percent(50) else found
    paths = body.filter(f"hops < {hops_max}").unit("back").select(*_COLUMNS)
    reach.close(paths)
    paths.sink("reached")
    if draw.percent(50):
        windows = paths.key_by("node").window(tumbling("5000 microseconds"))
        windows.aggregate("sum(change) AS n", name="counted").sink("counted")
    meanings: dict[str, Meaning] = {
        f"hops < {hops_max}": lambda row: row["hops"] < hops_max,
        "hops + 1L": lambda row: row["hops"] + 1,
        "of_link * of_reach": lambda row: row["of_link"] * row["of_reach"],
        "change": lambda row: row["change"],
    }
    limits, protection = random_protection(
        random_limits(draw, may_be_tiny=True),
        f"{seed}/protection",
        approach or draw.one_of(tuple(CUTS)),
        guarantee,
    )
    drawn = draw.one_of((1, 1, 2, 3))
    return placed(flow, meanings, parallelism or drawn, limits, protection)


def _source(
    flow: Dataflow,
    name: str,
    columns: tuple[str, ...],
    draw: Draw,
    tuples_max: int | None,
    count_max: int,
) -> Stream:
    """Rows with times in order, in records that arrive evenly."""
    rows: list[TimedRow] = []
    time_us = 0
    for _ in range(draw.number(1, count_max)):
        time_us += draw.number(0, 2_000)
        rows.append(TimedRow(time_us, {column: _value(column, draw) for column in columns}))
    rows = rows[:tuples_max]
    records = cut_up(rows, 10, draw)
    schema = pa.schema([(column, pa.int64()) for column in columns])
    recording = Recording(schema, 0, (records,), (evenly(records),))
    return flow.source_generator(recording, name=name)


def _value(column: str, draw: Draw) -> Any:
    if column == "hops":
        return 0
    return draw.one_of((1, 1, 1, -1)) if column == "change" else draw.number(1, _NODES)
