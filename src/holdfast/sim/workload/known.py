"""The dataflows that everybody knows: the NexMark queries and the flights."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.flights import dataflow as flights
from holdfast.flights import sample
from holdfast.nexmark import generator as nexmark
from holdfast.nexmark.queries import KINDS, build
from holdfast.sim.draw import Draw
from holdfast.sim.workload.base import Recording, Workload, cut_up, evenly, placed
from holdfast.sim.workload.oracle import TimedRow
from holdfast.sim.workload.protections import random_limits, random_protection

if TYPE_CHECKING:
    from holdfast.api.dataflow import Dataflow
    from holdfast.api.streams import Stream
    from holdfast.sim.workload.oracle import Meaning

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EVENTS: Final = {"person": 20, "auction": 60, "bid": 200}
_EVENTS_PER_SECOND: Final = {"q1": 50, "q3": 50, "q8": 20, "q12": 20}
_MEANINGS: Final[dict[str, Meaning]] = {
    "price * 0.908": lambda row: row["price"] * Decimal("0.908"),
    "state IN ('OR', 'ID', 'CA')": lambda row: row["state"] in ("OR", "ID", "CA"),
    "category = 10": lambda row: row["category"] == 10,
    "dep_delay IS NOT NULL": lambda row: row["dep_delay"] is not None,
    "CASE WHEN dep_delay > 15 THEN 1.0D ELSE 0.0D END": (
        lambda row: 1.0 if row["dep_delay"] > 15 else 0.0
    ),
}
KNOWN: Final = (*KINDS, "flights")


def known_workload(
    name: str,
    seed: int,
    tuples_max: int | None = None,
    approach: str | None = None,
    guarantee: str | None = None,
    *,
    parallelism: int | None = None,
) -> Workload:
    """One of `KNOWN` with limits and parallelism drawn by the seed, if that is not given."""
    draw = Draw(f"{seed}/workload")
    drawn = draw.one_of((1, 1, 2, 3, 4))
    partitions = draw.one_of((1, 1, 2)) if name != "flights" else 1
    is_recorded = Draw(f"{seed}/records").percent(70)

    def source(flow: Dataflow, stream: str) -> Stream:
        rows, schema = _flight_rows(stream) if name == "flights" else _events(name, stream, seed)
        recording = _recorded(rows, schema, partitions, tuples_max, draw)
        recording = replace(recording, is_recorded=is_recorded)
        unit = "departures" if stream in flights.AIRPORTS else None
        return flow.source_generator(recording, name=stream, unit=unit, partitions=partitions)

    emit = Draw(f"{seed}/emit").one_of(("final", "changes"))
    flow = flights.build(source) if name == "flights" else build(name, source, emit=emit)
    limits, protection = random_protection(
        random_limits(draw), f"{seed}/protection", approach, guarantee
    )
    return placed(flow, _MEANINGS, parallelism or drawn, limits, protection)


def _events(query: str, kind: str, seed: int) -> tuple[list[TimedRow], pa.Schema]:
    config = nexmark.NexmarkConfig(
        seed=seed + 1, events_per_second=_EVENTS_PER_SECOND[query], hot_ratio=0.3
    )
    rows = nexmark.generate(kind, 0, _EVENTS[kind], config).to_pylist()
    return [TimedRow(_micros(row["date_time"]), row) for row in rows], nexmark.schema_of(kind)


def _flight_rows(stream: str) -> tuple[list[TimedRow], pa.Schema]:
    number = pa.float64()
    if stream == flights.WEATHER:
        schema = pa.schema(
            [("origin", pa.string())]
            + [(name, number) for name in ("wind_speed", "precip", "visib")]
        )
        observed = sample.observations()
        return [TimedRow(_micros(o.hour), _fields(o, schema)) for o in observed], schema
    schema = pa.schema([("origin", pa.string()), ("carrier", pa.string()), ("dep_delay", number)])
    departures = [d for d in sample.departures() if d.origin == stream.upper()]
    return [TimedRow(_micros(d.scheduled), _fields(d, schema)) for d in departures], schema


def _fields(record: object, schema: pa.Schema) -> dict[str, Any]:
    return {name: getattr(record, name) for name in schema.names}


def _micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def _recorded(
    rows: list[TimedRow],
    schema: pa.Schema,
    partitions: int,
    tuples_max: int | None,
    draw: Draw,
) -> Recording:
    """Dealt out to the partitions, in records of random size that arrive evenly."""
    dealt = []
    for partition in range(partitions):
        mine = rows[partition::partitions][:tuples_max]
        dealt.append(cut_up(mine, 20, draw))
    return Recording(schema, 0, tuple(dealt), tuple(map(evenly, dealt)))
