"""Holdfast under the same contract: ingest log to stream log, upstream backup, precise recovery."""

from __future__ import annotations

import time
from pathlib import Path

from contract import Job, read, say

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import UpstreamBackup
from holdfast.api.streams import Stream
from holdfast.driver.query import Query
from holdfast.driver.session import session
from holdfast.nexmark.queries import build
from holdfast_bench.inputs import LogInput, first_read_s
from holdfast_bench.throughput import last_written_s

VICTIMS = ("join", "counts", "ingest")
"""Which unit's node is killed: the first of these that the query has, as it holds the state."""


def start(job: Job, inputs: dict[str, str], location: str, marks: Path) -> Query:
    """Begin the query over these inputs."""
    marks.mkdir(parents=True, exist_ok=True)

    def source(flow: Dataflow, kind: str) -> Stream:
        unit = "ingest" if len(inputs) == 1 else f"{kind}s"
        log = LogInput(inputs[kind], str(marks))
        return flow.source_generator(log, name=f"{kind}s", unit=unit, partitions=1)

    emit = "changes" if job.query == "q8" else "final"  # A match comes when it is found.
    return build(job.query, source, emit=emit).start(
        spark, checkpointLocation=location, protection=UpstreamBackup(), parallelism=1
    )


def tell_victims(query: Query) -> None:
    """Name the process to be killed whenever it is another one, until the query has ended."""
    victim = next(n for v in VICTIMS for n in query.nodes if n.startswith(f"{v}["))
    told = 0
    while query.isActive:
        pid = query.nodes[victim]
        if pid and pid != told:
            say(victims=[pid])
            told = pid
        time.sleep(0.02)  # Nothing tells of a new process.


def main(job: Job) -> None:
    """Warm up, then run."""
    scratch = Path(job.scratch)
    if job.warm_up:
        warm = start(job, job.warm_up, f"{job.scratch}/warm-up", scratch / "warm-up-marks")
        warm.awaitTermination()
        warm.stop()
    say(started=time.time())
    query = start(job, job.inputs, job.output, scratch / "marks")
    tell_victims(query)
    query.awaitTermination()
    query.stop()
    say(seconds=last_written_s(job.output, job.query) - first_read_s(str(scratch / "marks")))


if __name__ == "__main__":
    spark = session("holdfast-bench-peers")
    spark.sparkContext.setLogLevel("OFF")
    try:
        main(read())
    finally:
        spark.stop()
