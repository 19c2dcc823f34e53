"""Holdfast from topic to topic: upstream backup, precise recovery, a transaction per 50 ms."""

from __future__ import annotations

import time
from typing import Any

from contract import BID_COLUMNS, Job, read, say

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import UpstreamBackup
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.driver.session import session


def build(query: str, bids: Stream) -> Stream:
    """Q1 record by record, or Q12 with a running count for every bid."""
    if query == "q1":
        return bids.select("auction", "bidder", "price * 0.908 AS price", "made_us")
    windows = bids.key_by("bidder").window(tumbling("10 seconds"))
    return windows.aggregate(
        "count(*) AS bids", "max(made_us) AS made_us", name="counts", emit="changes"
    )


def run(job: Job, **settings: Any) -> None:
    """Run until killed, with settings of the sink."""
    spark = session("holdfast-bench-peers")
    spark.sparkContext.setLogLevel("OFF")
    flow = Dataflow(job.query)
    # One unit: the query has no more than one core can do.
    bids = flow.source_kafka(
        servers=job.servers, topic=job.inputs["bid"], name="bids", schema=BID_COLUMNS, unit="query"
    )
    results = build(job.query, bids.unit("query"))
    results.sink_kafka("results", servers=job.servers, topic=job.output, **settings)
    say(started=time.time())
    protection = UpstreamBackup()
    query = flow.start(spark, checkpointLocation=job.state, protection=protection)
    query.awaitTermination()


if __name__ == "__main__":
    run(read())
