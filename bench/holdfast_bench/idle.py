"""What a dataflow costs that has nothing, or next to nothing, to do."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import UpstreamBackup
from holdfast.api.streams import Stream
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast_bench.running import cpu_s_of, jvm_cpu_s, memory_bytes, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CPU_SHARE_MAX: Final = 0.01
MEMORY_BYTES_MAX: Final = 150_000_000
_SETTLE_S: Final = 3.0
_TIMEOUT_S: Final = 60.0
_NEVER_US: Final = 3_600_000_000


@dataclass(frozen=True, slots=True)
class IdleSizes:
    """How long.

    Attributes:
        seconds: Of each load.
        rates: Tuples per second; 0 is idle.
    """

    seconds: float
    rates: tuple[int, ...]


def measure(spark: SparkSession, sizes: IdleSizes) -> list[dict[str, Any]]:
    """Per load and process: share of a core, and memory in bytes, shared and own."""
    return [_run(spark, rate, sizes.seconds) for rate in sizes.rates]


def _run(spark: SparkSession, rate: int, seconds: float) -> dict[str, Any]:
    # An idle source has one tuple, an hour from now.
    origin_us = now_us() + (0 if rate else _NEVER_US)
    bids = NexmarkSource("bid", 1 << 40, NexmarkConfig(), rate or 1, origin_us)

    def source(flow: Dataflow, kind: str) -> Stream:
        return flow.source_generator(bids, name="bids", unit="ingest")

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        flow = build("q12", source, emit="changes")
        query = flow.start(spark, checkpointLocation=folder, protection=UpstreamBackup())
        try:
            wait_until(query, lambda: all(query.nodes.values()), "idle: the nodes", _TIMEOUT_S)
            time.sleep(_SETTLE_S)  # What starting costs does not count.
            nodes = {node: query.pid(node) for node in query.nodes}
            before, began_s = _cpu_s(spark, nodes), time.monotonic()
            time.sleep(seconds)  # The time that is measured.
            after, elapsed_s = _cpu_s(spark, nodes), time.monotonic() - began_s
            memory = {node: memory_bytes(pid) for node, pid in nodes.items()}
        finally:
            query.stop()
    shares = {name: round((after[name] - before[name]) / elapsed_s, 4) for name in before}
    return {"rate": rate, "cpu_share": shares, "memory": memory}


def _cpu_s(spark: SparkSession, nodes: dict[str, int]) -> dict[str, float]:
    found = {node: cpu_s_of(pid) or 0.0 for node, pid in nodes.items()}
    return found | {"driver": time.process_time(), "jvm": jvm_cpu_s(spark)}
