"""Holdfast from a user's own Parquet files into Parquet files, each row within 50 ms."""

from __future__ import annotations

import time
from collections.abc import Callable

from contract import Job, read, say

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import UpstreamBackup
from holdfast.api.streams import Stream
from holdfast.driver.session import session

EVERY = "50 milliseconds"


def into_files(rows: Stream, folder: str) -> None:
    """The sink."""
    rows.sink_files(folder, name="q1", every=EVERY)


def run(job: Job, sink: Callable[[Stream, str], None], location: str) -> None:
    """Q1 until killed.

    Args:
        job: What to do.
        sink: Puts rows out into a folder.
        location: The checkpoint location.
    """
    spark = session("holdfast-bench-peers")
    spark.sparkContext.setLogLevel("OFF")
    flow = Dataflow("q1")
    bids = flow.source_files(job.inputs["bid"], time="date_time", name="bids", unit="query")
    euros = bids.select("auction", "bidder", "price * 0.908 AS price", "date_time")
    sink(euros, job.output)
    say(started=time.time())
    query = flow.start(spark, checkpointLocation=location, protection=UpstreamBackup())
    query.awaitTermination()


if __name__ == "__main__":
    told = read()
    run(told, into_files, told.state)
