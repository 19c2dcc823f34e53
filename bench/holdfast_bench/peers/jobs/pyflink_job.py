"""PyFlink, Table API and SQL: files to files on a local cluster of one process.

As it comes, from and into CSV; `pyflink_parquet_job.py` gives it the jars for Parquet.
Documentation: window functions (TVF) for windows, the RocksDB state backend with incremental
checkpoints, exactly-once checkpoints to a file system, the file sink whose parts become visible
with a checkpoint.
"""

from __future__ import annotations

import glob
import os
import time
from dataclasses import dataclass
from typing import Any

from contract import Job, read, say
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

WINDOWS = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '10' SECOND))"
COLUMNS = {
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, date_time {time}",
    "person": "id BIGINT, name STRING, email STRING, city STRING, state STRING, date_time {time}",
    "auction": "id BIGINT, item_name STRING, initial_bid BIGINT, reserve BIGINT, seller BIGINT, "
    "category BIGINT, expires {time}, date_time {time}",
}
SINKS = {
    "q1": "auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), date_time {time}",
    "q3": "name STRING, city STRING, state STRING, id BIGINT",
    "q8": "window_start {time}, window_end {time}, id BIGINT, name STRING, auction BIGINT",
    "q12": "window_start {time}, window_end {time}, bidder BIGINT, bids BIGINT",
}
QUERIES = {
    "q1": "SELECT auction, bidder, price * 0.908, date_time FROM bid",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE p.state IN ('OR', 'ID', 'CA') AND a.category = 10",
    "q8": "SELECT {start}, {end}, w.id, w.name, a.auction FROM "
    f"(SELECT id, name, window_start, window_end FROM {WINDOWS.format('person')}) w JOIN "
    f"(SELECT seller, id AS auction, window_start, window_end FROM {WINDOWS.format('auction')}) a "
    "ON w.id = a.seller AND w.window_start = a.window_start AND w.window_end = a.window_end",
    "q12": "SELECT {start}, {end}, bidder, bids FROM (SELECT window_start, window_end, bidder, "
    f"COUNT(*) AS bids FROM {WINDOWS.format('bid')} GROUP BY window_start, window_end, bidder) w",
}
WATERMARK = "WATERMARK FOR ts AS ts - INTERVAL '1' {}"


@dataclass(frozen=True)
class Format:
    """What files are.

    Attributes:
        options: Of a table.
        time: The type of a column that says when.
        event_time: The column `ts`, of `date_time`.
        result_time: A column that says when, as results have it.
    """

    options: str
    time: str
    event_time: str
    result_time: str


CSV = Format(
    "'format' = 'csv'",
    "BIGINT",
    "ts AS TO_TIMESTAMP_LTZ(date_time / 1000, 3)",
    "CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {}) AS BIGINT) * 1000000",
)
PARQUET = Format(
    "'format' = 'parquet', 'parquet.utc-timezone' = 'true', "
    "'parquet.write.int64.timestamp' = 'true'",
    "TIMESTAMP(6)",
    "ts AS CAST(date_time AS TIMESTAMP(3))",
    "CAST({} AS TIMESTAMP(6))",
)
_PATIENCE = {True: "SECOND", False: "HOUR"}
"""For stragglers: the readers of a folder take its files in no order."""

_CHECKPOINT_MS = {True: 200, False: 1_000}
"""Followed, results become visible with a checkpoint, so it comes often."""


def settings(job: Job) -> dict[str, str]:
    """What the documentation of checkpoints, state backends and event time advises."""
    found = {
        "parallelism.default": "2",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": f"{_CHECKPOINT_MS[job.follows]} ms",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{job.state}",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "state.backend.type": "rocksdb",
        "table.exec.source.idle-timeout": "1 s",
        "rest.bind-address": "127.0.0.1",
        "rest.address": "127.0.0.1",
        "rest.bind-port": "0",
    }
    if job.jars:
        found["pipeline.jars"] = ";".join(f"file://{jar}" for jar in job.jars.split(","))
    complete = glob.glob(f"{job.state}/*/chk-*/_metadata")
    if complete:
        found["execution.state-recovery.path"] = os.path.dirname(
            max(complete, key=os.path.getmtime)
        )
    return found


def start(
    query: str,
    inputs: dict[str, str],
    output: str,
    options: dict[str, str],
    *,
    follows: bool,
    files: Format,
) -> Any:
    """Submit the job."""
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string(key, value)
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance()
        .in_streaming_mode()
        .with_configuration(configuration)
        .build()
    )
    monitor = "'source.monitor-interval' = '50 ms'," if follows else ""
    timed = f"{files.event_time}, {WATERMARK.format(_PATIENCE[follows])}"
    for kind, folder in inputs.items():
        tables.execute_sql(
            f"CREATE TABLE {kind} ({COLUMNS[kind].format(time=files.time)}, {timed}) WITH "
            f"('connector' = 'filesystem', {monitor} 'path' = 'file://{folder}', {files.options})"
        )
    tables.execute_sql(
        f"CREATE TABLE sink ({SINKS[query].format(time=files.time)}) WITH "
        f"('connector' = 'filesystem', 'path' = 'file://{output}', {files.options})"
    )
    result_time = files.result_time.format
    times = {name: result_time(f"w.window_{name}") for name in ("start", "end")}
    return tables.execute_sql(f"INSERT INTO sink {QUERIES[query].format(**times)}")


def main(files: Format = CSV) -> None:
    """Warm up, then run."""
    job = read()
    if job.warm_up:
        options = settings(job)
        options["execution.checkpointing.dir"] = f"file://{job.scratch}/warm-up"
        output = f"{job.scratch}/warm-up-output"
        start(job.query, job.warm_up, output, options, follows=False, files=files).wait()
    say(started=time.time())
    result = start(
        job.query, job.inputs, job.output, settings(job), follows=job.follows, files=files
    )
    result.wait()
    done = result.get_job_client().get_job_execution_result().result()
    say(seconds=done.get_net_runtime() / 1000)


if __name__ == "__main__":
    main()
