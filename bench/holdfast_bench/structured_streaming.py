"""The baseline: the same queries on Structured Streaming, in a process and a JVM of its own.

State is in RocksDB with changelog checkpoints, there is one shuffle partition per core, the
trigger is `availableNow`; parquet in, parquet out. The JVM stays up for the whole benchmark, and
every query is run once before it is measured. The process answers one JSON line per request; see
`_serve`.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from holdfast_bench.running import BenchFailed, jvm_cpu_s

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_MASTER = "local[2]"
_ANSWER = "@"
_START_TIMEOUT_S = 60.0


class Baseline:
    """The driver's side: starts the process, asks, waits with a limit."""

    def __init__(self) -> None:
        """Start the process; it comes up while the caller does other things."""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in `close`.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "holdfast_bench.structured_streaming"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, name="baseline", daemon=True).start()
        self._is_up = False

    def _listen(self) -> None:
        for line in _stream(self._process.stdout):
            if line.startswith(_ANSWER):
                self._answers.put(line.removeprefix(_ANSWER))
        self._answers.put(None)

    def run(
        self,
        query: str,
        inputs: dict[str, str],
        *,
        files_per_trigger: int | None = None,
        timeout_s: float,
    ) -> dict[str, Any]:
        """Run a query over folders of parquet files, one per kind of event.

        Args:
            query: `q1`, `q3`, `q8` or `q12`.
            inputs: The folder of each kind.
            files_per_trigger: Files of each folder per micro-batch; None takes all at once.
            timeout_s: Limit.

        Returns:
            `seconds` of all micro-batches, `seconds_with_start` from `start()` to the end,
            `output_tuples`, `batches`, and `cpu_s` of the JVM.

        Raises:
            BenchFailed: It failed, or did not answer within `timeout_s`.
        """
        request = {"ask": "run", "query": query, "inputs": inputs}
        return self._ask({**request, "files_per_trigger": files_per_trigger}, timeout_s)

    def digest(self, query: str, inputs: dict[str, str], *, timeout_s: float) -> dict[str, str]:
        """`digest` of what Spark SQL, in batch, gives for the query."""
        return self._ask({"ask": "digest", "query": query, "inputs": inputs}, timeout_s)

    def write(self, query: str, inputs: dict[str, str], folder: str, *, timeout_s: float) -> None:
        """Write what Spark SQL, in batch, gives for the query into a folder, as parquet."""
        request = {"ask": "write", "query": query, "inputs": inputs, "folder": folder}
        self._ask(request, timeout_s)

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        what = f"Structured Streaming, {request['query']}"
        if not self._is_up:
            self._answer("Structured Streaming, start", _START_TIMEOUT_S)
            self._is_up = True
        pipe = _stream(self._process.stdin)
        pipe.write(json.dumps(request) + "\n")
        pipe.flush()
        return self._answer(what, timeout_s)

    def _answer(self, what: str, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self.close()
            raise BenchFailed(f"{what}: no answer within {timeout_s:.0f} s") from None
        if line is None:
            code = self._process.wait()
            self._errors.seek(0)
            raise BenchFailed(
                f"{what}: its process ended with {code}: {self._errors.read()[-2000:]}"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchFailed(f"{what}: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def __enter__(self) -> Baseline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _stream(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


# -- the process --------------------------------------------------------------------------------


def build(query: str, frames: dict[str, DataFrame]) -> DataFrame:
    """A query of nexmark/queries.py in Spark's own words, over streams or over tables."""
    from pyspark.sql import functions as F

    if query == "q1":
        return frames["bid"].selectExpr("auction", "bidder", "price * 0.908 AS price", "date_time")
    if query == "q12":
        bids = frames["bid"].withWatermark("date_time", "0 seconds")
        counts = bids.groupBy(F.window("date_time", "10 seconds").alias("w"), "bidder")
        counted = counts.agg(F.count("*").alias("bids"))
        return counted.selectExpr(
            "w.start AS window_start", "w.end AS window_end", "bidder", "bids"
        )
    persons, auctions = frames["person"], frames["auction"]
    if query == "q3":
        persons = persons.where("state IN ('OR', 'ID', 'CA')")
        auctions = auctions.where("category = 10")
        joined = auctions.alias("a").join(persons.alias("p"), F.expr("a.seller = p.id"))
        return joined.selectExpr("p.name", "p.city", "p.state", "a.id")
    placed_persons = _placed(persons).selectExpr("w", "id", "name").alias("p")
    placed_auctions = _placed(auctions).selectExpr("w", "seller", "id AS auction").alias("a")
    joined = placed_persons.join(placed_auctions, F.expr("p.id = a.seller AND p.w = a.w"))
    return joined.selectExpr(
        "p.w.start AS window_start", "p.w.end AS window_end", "p.id", "p.name", "a.auction"
    )


def _placed(frame: DataFrame) -> DataFrame:
    """With the tumbling window of each row, and a watermark so that its state can go."""
    from pyspark.sql import functions as F

    timed = frame.withWatermark("date_time", "0 seconds")
    return timed.withColumn("w", F.window("date_time", "10 seconds"))


def digest(frame: DataFrame) -> str:
    """Row count and sum of row hashes: equal for equal multisets of rows of equal types."""
    row = frame.selectExpr(
        "count(*) AS n", "sum(CAST(xxhash64(*) AS DECIMAL(38, 0))) AS hashes"
    ).first()
    assert row is not None
    return f"{row['n']}:{row['hashes']}"


def stream_of(spark: SparkSession, path: str, files_per_trigger: int | None) -> DataFrame:
    """A folder of parquet files, at least one of them there, as a stream."""
    reader = spark.readStream.schema(spark.read.parquet(path).schema)
    if files_per_trigger is not None:
        reader = reader.option("maxFilesPerTrigger", str(files_per_trigger))
    return reader.parquet(path)


def _run(
    spark: SparkSession, query: str, inputs: dict[str, str], files_per_trigger: int | None
) -> dict[str, Any]:
    frames = {kind: stream_of(spark, path, files_per_trigger) for kind, path in inputs.items()}
    with tempfile.TemporaryDirectory(prefix="holdfast-baseline-") as folder:
        writer = build(query, frames).writeStream.format("parquet").outputMode("append")
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
        started_s, cpu_s = time.monotonic(), jvm_cpu_s(spark)
        running = writer.trigger(availableNow=True).start(f"{folder}/output")
        running.awaitTermination()
        seconds_with_start = time.monotonic() - started_s
        cpu_s = jvm_cpu_s(spark) - cpu_s
        batches = [p for p in running.recentProgress if "addBatch" in p["durationMs"]]
        return {
            "seconds": sum(p["durationMs"]["triggerExecution"] for p in batches) / 1000,
            "seconds_with_start": round(seconds_with_start, 3),
            "output_tuples": spark.read.parquet(f"{folder}/output").count(),
            "batches": len(batches),
            "cpu_s": {"jvm": round(cpu_s, 3)},
        }


def _serve(spark: SparkSession) -> None:
    """Answer requests until the caller is gone."""
    _say({"up": True})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["ask"] == "run":
                per_trigger = request["files_per_trigger"]
                answer = _run(spark, request["query"], request["inputs"], per_trigger)
            else:
                frames = {k: spark.read.parquet(path) for k, path in request["inputs"].items()}
                answer = _result(build(request["query"], frames), request.get("folder"))
        except Exception as error:  # The caller decides what a failure means.
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        _say(answer)


def _result(frame: DataFrame, folder: str | None) -> dict[str, Any]:
    """The digest of a table, or the table itself in a folder."""
    if folder is None:
        return {"digest": digest(frame)}
    frame.write.parquet(folder)
    return {"folder": folder}


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(_ANSWER + json.dumps(answer) + "\n")
    sys.stdout.flush()


def spark_session(warehouse: str, more: dict[str, str] | None = None) -> SparkSession:
    """A session with the baseline's settings, and some more."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("holdfast-baseline").master(_MASTER)
    for key, value in (SETTINGS | (more or {})).items():
        builder = builder.config(key, value)
    return builder.config("spark.sql.warehouse.dir", warehouse).getOrCreate()


def main() -> None:
    """Start Spark and serve."""
    with tempfile.TemporaryDirectory(prefix="holdfast-baseline-") as folder:
        _serve(spark_session(str(Path(folder) / "warehouse")))


if __name__ == "__main__":
    main()
