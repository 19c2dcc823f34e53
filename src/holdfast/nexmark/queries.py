"""NexMark queries 1, 3, 8 and 12 as dataflows. [CheckMate §V]"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.errors import UnsupportedError

WINDOW = "10 seconds"
KINDS: dict[str, tuple[str, ...]] = {
    "q1": ("bid",),
    "q3": ("person", "auction"),
    "q8": ("person", "auction"),
    "q12": ("bid",),
}

Source = Callable[[Dataflow, str], Stream]


def build(query: str, source: Source, *, emit: str = "final") -> Dataflow:
    """A query over the streams that `source(flow, kind)` gives; its sink is named after it.

    Args:
        query: `q1`, `q3`, `q8` or `q12`.
        source: Makes the stream of a kind of event.
        emit: For q8 and q12: `final` results when a window has closed, or `changes` for matches
            and running counts as events come.
    """
    flow = Dataflow(query)
    if query not in KINDS:
        raise UnsupportedError(f"query {query!r}; there are {', '.join(KINDS)}")
    streams = {kind: source(flow, kind) for kind in KINDS[query]}
    if query == "q1":
        euros = streams["bid"].select("auction", "bidder", "price * 0.908 AS price", "date_time")
        euros.sink("q1")
    elif query == "q12":
        bids = streams["bid"].key_by("bidder").window(tumbling(WINDOW))
        bids.aggregate("count(*) AS bids", name="counts", emit=emit).sink("q12")
    elif query == "q3":
        persons = streams["person"].filter("state IN ('OR', 'ID', 'CA')")
        auctions = streams["auction"].filter("category = 10")
        joined = auctions.join(
            persons,
            on=[("seller", "id")],
            select=["right.name", "right.city", "right.state", "left.id"],
            name="join",
        )
        joined.sink("q3")
    else:
        persons = streams["person"].select("id", "name")
        auctions = streams["auction"].select("seller", "id AS auction")
        joined = persons.window(tumbling(WINDOW)).join(
            auctions,
            on=[("id", "seller")],
            select=["left.id", "left.name", "right.auction"],
            name="join",
            emit=emit,
        )
        joined.sink("q8")
    return flow
