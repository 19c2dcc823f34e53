"""The flights' dataflow: departures joined with the weather, delays per carrier and day."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling

AIRPORTS = ("ewr", "jfk", "lga")
WEATHER = "weather"

Source = Callable[[Dataflow, str], Stream]


def build(source: Source) -> Dataflow:
    """Three airports united, joined with the hour's weather, delays per carrier and day.

    Args:
        source: Makes the stream of an airport's departures or of the weather, by name.
    """
    flow = Dataflow("flights")
    airports = [source(flow, airport) for airport in AIRPORTS]
    observed = source(flow, WEATHER)
    conditions = (
        airports[0]
        .union(*airports[1:])
        .window(tumbling("1 hour"))
        .join(
            observed,
            on="origin",
            select=[
                "left.carrier",
                "left.origin",
                "left.dep_delay",
                "right.wind_speed",
                "right.precip",
                "right.visib",
            ],
            how="left",
            name="conditions",
        )
    )
    conditions.sink("conditions")
    delays = (
        conditions.filter("dep_delay IS NOT NULL")
        .key_by("carrier")
        .window(tumbling("1 day"))
        .aggregate(
            "count(*) AS departures",
            "avg(dep_delay) AS mean_delay",
            "max(dep_delay) AS max_delay",
            "avg(CASE WHEN dep_delay > 15 THEN 1.0D ELSE 0.0D END) AS share_late",
            name="delays",
        )
    )
    delays.sink("delays")
    return flow
