"""Holdfast from a user's own Parquet files into Parquet files, until all input is read."""

from __future__ import annotations

import time

from contract import Job, read, say

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import UpstreamBackup
from holdfast.api.streams import Stream
from holdfast.driver.files_sink import files_sink
from holdfast.driver.session import session
from holdfast.nexmark.queries import build

EVERY = "250 milliseconds"


def run(job: Job, inputs: dict[str, str], output: str, location: str) -> None:
    """A query from files into files, to its end."""

    def source(flow: Dataflow, kind: str) -> Stream:
        unit = "ingest" if len(inputs) == 1 else f"{kind}s"
        return flow.source_files(
            inputs[kind], time="date_time", name=f"{kind}s", unit=unit, ends=True
        )

    emit = "changes" if job.query == "q8" else "final"  # A match comes when it is found.
    flow = build(job.query, source, emit=emit)
    flow.outside_sinks[job.query] = files_sink(
        output,
        schema=flow.sinks[job.query].schema,
        format="parquet",
        partition_by=(),
        every=EVERY,
    )
    query = flow.start(
        spark, checkpointLocation=location, protection=UpstreamBackup(), parallelism=1
    )
    query.awaitTermination()


def main(job: Job) -> None:
    """Warm up, then run."""
    if job.warm_up:
        warm = f"{job.scratch}/warm-up"
        run(job, job.warm_up, f"{warm}/output", f"{warm}/location")
    say(started=time.time())
    run(job, job.inputs, job.output, job.state)


if __name__ == "__main__":
    spark = session("holdfast-bench-peers")
    spark.sparkContext.setLogLevel("OFF")
    try:
        main(read())
    finally:
        spark.stop()
