"""Eventual checkpoints on Spark tasks: a node that counts is killed again and again. [CEC §IV]"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import (
    CHECKPOINT_FOLDER,
    Checkpointed,
    EventualCheckpoints,
    Protection,
    UpstreamBackup,
)
from holdfast.api.windows import counting
from holdfast.core.model.ids import NodeId
from holdfast_bench.preloaded import PreloadedBids
from holdfast_bench.running import (
    finish,
    median,
    node_statistic,
    recoveries_of,
    wait_until,
    write_whole,
)
from holdfast_bench.spine import bench_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query
    from holdfast_bench.cec import Sizes

Say = Callable[[str], None]
_VICTIM: Final = NodeId("counts[0]")
_SETTLE_S: Final = 2.0
SLOTS: Final = 4
_END_AHEAD_S: Final = 2.0
_TIMEOUT_S: Final = 120.0
_MB: Final = 1 << 20

PROTECTIONS: Final[dict[str, Protection]] = {
    "EventualCheckpoints": EventualCheckpoints(recovery="250 milliseconds"),
    "Checkpointed": Checkpointed(interval="5 seconds"),
    "UpstreamBackup": UpstreamBackup(),
}


def beside(sizes: Sizes, say: Say) -> list[dict[str, Any]]:
    """The same dataflow under each protection."""
    points: list[dict[str, Any]] = []
    with bench_session("cec", SLOTS) as spark:
        for name, protection in PROTECTIONS.items():
            points.append({"protection": name, **_killed(spark, sizes, protection)})
            said = points[-1]
            say(f"{name}: recovered in {said['recovered_ms']:g} ms, {said['stored_bytes']:,} bytes")
    return points


def kills(sizes: Sizes, say: Say) -> list[dict[str, Any]]:
    """With each objective and size of the state: how often it was met, or said to be missed."""
    points: list[dict[str, Any]] = []
    with bench_session("cec", SLOTS) as spark:
        for keys in sizes.kill_keys:
            for objective_ms in sizes.objectives_ms:
                protection = EventualCheckpoints(recovery=f"{objective_ms} milliseconds")
                found = _killed(spark, replace(sizes, spark_keys=keys), protection)
                kills = found.pop("each")
                late = [e for e in kills if e["restarted_ms"] + e["replayed_ms"] > objective_ms]
                met, told = len(kills) - len(late), sum(bool(each["shortfall"]) for each in late)
                points.append(
                    {
                        "windows": keys,
                        "objective_ms": objective_ms,
                        "kills": len(kills),
                        "met": met,
                        "said_before": told,
                        "state_mb": round(median(e["state_bytes"] for e in kills) / _MB, 1),
                        "predicted_ms": median(each["predicted_ms"] for each in kills),
                        **found,
                    }
                )
                say(f"{keys:,} keys, {objective_ms} ms: met {met} of {len(kills)}, {told} foretold")
    return points


def _killed(spark: SparkSession, sizes: Sizes, protection: Protection) -> dict[str, Any]:
    """The node that counts is killed again and again; medians of what the query reports."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        origin_us = int((time.time() + 2) * 1e6)
        source = PreloadedBids(sizes.spark_keys, sizes.rate, origin_us, str(Path(folder) / "end"))
        flow = Dataflow("cec")
        bids = flow.source_generator(source, name="bids", unit="ingest")
        counted = bids.key_by("bidder").window(counting(3, 1))
        counted.aggregate("count(*) AS bids", name="counts").sink("counts")
        query = flow.start(
            spark,
            checkpointLocation=f"{folder}/run",
            protection={"counts": protection},
            options={"spark.holdfast.failuresMax": "1000"},
        )
        said: list[dict[str, Any]] = []
        try:
            for number in range(sizes.kills):
                said.append(_kill(query, sizes, number))
            total = source.due()[0] + int(_END_AHEAD_S * sizes.rate)
            write_whole(source.end_path, str(total))
            finish(query, "cec", _TIMEOUT_S)
            stored = sum(f.stat().st_size for f in _stored(Path(folder) / "run"))
        finally:
            query.stop()
        parts = ("detected_ms", "restarted_ms", "replayed_ms", "recovered_ms")
        recoveries = recoveries_of(query, _VICTIM)
        medians = {p: median(r[p] for r in recoveries) for p in parts}
        standstills = [c["prepared_us"] / 1000 for c in query.checkpoints if not c["failure"]]
        return {
            "tuples": total,
            "stored_bytes": stored,
            "longest_standstill_ms": max(standstills, default=0.0),
            "p99_ms": median(each["p99_ms"] for each in said),
            "each": said,
            **medians,
        }


def _kill(query: Query, sizes: Sizes, number: int) -> dict[str, Any]:
    """Once the node has its state, and until it is back; what the query had said before."""
    settled_s = time.monotonic() + _SETTLE_S

    def is_ready() -> bool:
        is_running = query.status["nodes"][_VICTIM]["state"] == "running"
        has_state = (
            node_statistic(query, _VICTIM, "state_bytes") > 16 * sizes.spark_keys
            and node_statistic(query, _VICTIM, "input_tuples") > sizes.spark_keys
        )
        return time.monotonic() > settled_s and is_running and has_state

    wait_until(query, is_ready, f"cec: state before kill {number + 1}", _TIMEOUT_S)
    unit = query.lastProgress["units"]["counts"]
    extent = unit["extent"] or {"predictedRecoveryMs": 0.0, "shortfall": None}
    state_bytes = node_statistic(query, _VICTIM, "state_bytes")
    os.kill(query.pid(_VICTIM), signal.SIGKILL)
    what = f"cec: recovery {number + 1}"
    wait_until(query, lambda: len(recoveries_of(query, _VICTIM)) > number, what, _TIMEOUT_S)
    return {
        "p99_ms": unit["latencyMs"]["p99"] or 0.0,
        "predicted_ms": extent["predictedRecoveryMs"],
        "shortfall": extent["shortfall"],
        "state_bytes": state_bytes,
        "restarted_ms": recoveries_of(query, _VICTIM)[number]["restarted_ms"],
        "replayed_ms": recoveries_of(query, _VICTIM)[number]["replayed_ms"],
    }


def _stored(run: Path) -> list[Path]:
    """Files that the protection of the node has left."""
    folders = (run / "footprints", run / CHECKPOINT_FOLDER)
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]
