"""Structured Streaming as shipped: parquet to parquet, RocksDB with changelog checkpoints.

Documentation: state in RocksDB with changelog checkpointing, one shuffle partition per core, the
trigger as fast as possible.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from contract import read, say

from holdfast_bench import structured_streaming as native

AS_FAST_AS_POSSIBLE = {"processingTime": "0 seconds"}


def run(
    build: Any = native.build, trigger: dict[str, str] | None = None, output_mode: str = "append"
) -> None:
    """Warm up, then run.

    Args:
        build: Makes the query of its name and its streams.
        trigger: For input that goes on.
        output_mode: As Spark names them.
    """
    job = read()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = native.spark_session(f"{job.scratch}/warehouse")

    def start(inputs: dict[str, str], output: str, state: str, *, follows: bool) -> Any:
        per_trigger = None if follows else job.files_at_once
        frames = {k: native.stream_of(spark, path, per_trigger) for k, path in inputs.items()}
        writer = build(job.query, frames).writeStream.format("parquet").outputMode(output_mode)
        wanted: dict[str, Any] = {"availableNow": True}
        if follows or trigger is not None:
            wanted = dict(trigger or AS_FAST_AS_POSSIBLE)
        return writer.option("checkpointLocation", state).trigger(**wanted).start(output)

    if job.warm_up:
        warm = f"{job.scratch}/warm-up"
        start(job.warm_up, f"{warm}/output", f"{warm}/state", follows=False).awaitTermination()
    say(started=time.time())
    query = start(job.inputs, job.output, job.state, follows=job.follows)
    query.awaitTermination()
    batches = [p["durationMs"] for p in query.recentProgress if "addBatch" in p["durationMs"]]
    say(seconds=sum(batch["triggerExecution"] for batch in batches) / 1000)


if __name__ == "__main__":
    run()
