"""Eventual checkpoints of large states, and of many windows: kills by size, windows and objective.

Each cell is a query of its own on Spark tasks (cec_states.py). Once its state is there, and each
window has been written once, the node that has it is killed again and again. In the end all results
are compared with what arithmetic says.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import EventualCheckpoints
from holdfast.api.windows import tumbling
from holdfast.core.model.ids import NodeId
from holdfast.errors import HoldfastError
from holdfast.shell.storage.paths import stream_path
from holdfast.shell.storage.stream_log import StreamLogReader
from holdfast_bench.cec_spark import SLOTS
from holdfast_bench.cec_states import WORD, Expected, StateSource
from holdfast_bench.running import (
    BenchFailed,
    finish,
    median,
    node_statistic,
    peak_memory_bytes,
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
VICTIM: Final = NodeId("state[0]")
RATE: Final = 5_000
"""Tuples per second."""
_MB: Final = 1 << 20
_BYTES_LEAST: Final = 96
"""No window takes less."""
_FILL_MB_PER_S: Final = 20
_START_S: Final = 5.0
_SETTLE_S: Final = 2.0
_ROUND_S: Final = 180.0
"""By then each window is to have been written once; if not, kills come before."""
_TIMEOUT_S: Final = 600.0
_END_AHEAD_S: Final = 2.0
_OPTIONS: Final = {"spark.holdfast.failuresMax": "1000", "spark.holdfast.keepAliveMisses": "10"}
"""A node on a busy machine is not taken for dead; `unplanned` says if one was."""


class Cell(NamedTuple):
    """One of the matrix.

    Attributes:
        state_mb: Of all windows together, about.
        windows: That stay open.
        objective_ms: For the recovery.
    """

    state_mb: int
    windows: int
    objective_ms: int


def cells_of(sizes: Sizes) -> list[Cell]:
    """All, but those in which windows would be smaller than any is."""
    return [
        Cell(state_mb, windows, objective_ms)
        for state_mb in sizes.states_mb
        for windows in sizes.state_windows
        for objective_ms in sizes.objectives_ms
        if state_mb * _MB >= windows * _BYTES_LEAST
    ]


def matrix(sizes: Sizes, say: Say) -> list[dict[str, Any]]:
    """A point of each cell; of one that fails, why."""
    points: list[dict[str, Any]] = []
    with bench_session("cec", SLOTS) as spark:
        for cell in cells_of(sizes):
            text = f"{cell.state_mb} MB, {cell.windows:,} windows, {cell.objective_ms} ms"
            try:
                point = cell._asdict() | _measured(spark, cell, sizes.matrix_kills, say)
            except HoldfastError as error:  # The other cells are worth having.
                point = cell._asdict() | {"failed": str(error).splitlines()[0]}
            points.append(point)
            say(f"{text}: {said_of(point)}")
    return points


def said_of(point: dict[str, Any]) -> str:
    """A cell in a few words."""
    if "failed" in point:
        return f"failed: {point['failed']}"
    return (
        f"met {point['met']} of {point['kills']}, {point['said_before']} of the others foretold; "
        f"median {point['recovery_ms']:g} ms, results {point['results']}"
    )


def _measured(spark: SparkSession, cell: Cell, kills: int, say: Say) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        origin_us = int((time.time() + _START_S + cell.state_mb / _FILL_MB_PER_S) * 1e6)
        state_bytes, end_path = cell.state_mb * _MB, str(Path(folder) / "end")
        source = StateSource(cell.windows, state_bytes, RATE, origin_us, end_path)
        query = _flow(source).start(
            spark,
            checkpointLocation=f"{folder}/run",
            protection={"state": EventualCheckpoints(recovery=f"{cell.objective_ms} milliseconds")},
            options=_OPTIONS,
        )
        try:
            lap_s = _settled(query, source)
            advised = _advised(query, cell)
            each = [_kill(query, source, number, say) for number in range(kills)]
            total = source.due()[0] + int(_END_AHEAD_S * RATE)
            write_whole(source.end_path, str(total))
            finish(query, "cec", _TIMEOUT_S)
            stored = sum(f.stat().st_size for f in Path(folder, "run", "footprints").rglob("*.seg"))
        finally:
            query.stop()
        difference = Expected(source, total).difference(_results(f"{folder}/run"))
    return {
        "lap_s": lap_s,
        "stored_mb": round(stored / _MB, 1),
        "advised": advised,
        "unplanned": len(query.failures) - kills,
        "results": "right" if difference is None else difference,
        "each": each,
        **summary(each, cell.objective_ms),
    }


def summary(each: list[dict[str, Any]], objective_ms: float) -> dict[str, Any]:
    """What the kills of a cell come to."""
    took = sorted(kill["recovery_ms"] for kill in each)
    late = [kill for kill in each if kill["recovery_ms"] > objective_ms]
    words = [kill["shortfall"] for kill in each if kill["shortfall"]]
    return {
        "kills": len(each),
        "met": len(each) - len(late),
        "said_before": sum(bool(kill["shortfall"]) for kill in late),
        "recovery_ms": median(took),
        "p95_ms": took[min(len(took) - 1, len(took) * 95 // 100)],
        "predicted_ms": median(kill["predicted_ms"] for kill in each),
        "reached_mb": round(median(kill["state_bytes"] for kill in each) / _MB, 1),
        "memory_mb": round(max(kill["memory_bytes"] for kill in each) / _MB),
        "extent_mb": round(median(kill["extent_bytes"] for kill in each) / _MB, 1),
        "shortfall": words[-1] if words else "",
    }


def _flow(source: StateSource) -> Dataflow:
    flow = Dataflow("states")
    tuples = flow.source_generator(source, name="tuples", unit="ingest")
    windows = tuples.key_by("key").window(tumbling("100 milliseconds"))
    aggregates = ["count(*) AS n", "sum(value) AS total"]
    texts = ["0 AS pieces", "0 AS chars", "0 AS first", "0 AS last"]
    if source.text_bytes:
        aggregates.append("collect_list(text) AS texts")
        texts = ["size(texts) AS pieces", "length(array_join(texts, '')) AS chars"]
        for name, at in (("first", "0"), ("last", "size(texts) - 1")):
            texts.append(f"CAST(substring(get(texts, {at}), 1, {WORD}) AS BIGINT) AS {name}")
    made = windows.aggregate(*aggregates, name="state")
    made.select("window_start", "key", "n", "total", *texts).sink("results")
    return flow


def _is_running(query: Query) -> bool:
    return bool(query.status["nodes"][VICTIM]["state"] == "running")


def _settled(query: Query, source: StateSource) -> float | None:
    """Until the state is there, and then until each window has been written behind the fill.

    Returns:
        How long that took, seconds; None: too long, or it was not due.
    """

    def is_filled() -> bool:
        return _is_running(query) and node_statistic(query, VICTIM, "input_tuples") > source.filled

    wait_until(query, is_filled, "cec: the state", _TIMEOUT_S, every_s=0.1)
    began_s = time.monotonic()

    def is_written() -> bool:
        extent = query.lastProgress["units"]["state"]["extent"]
        since = node_statistic(query, VICTIM, "input_tuples") - source.filled
        return extent is not None and 0 < extent["tuples"] < since

    try:
        wait_until(query, is_written, "cec: all windows written", _ROUND_S, every_s=0.1)
    except BenchFailed:
        return None
    return round(time.monotonic() - began_s, 1)


def _advised(query: Query, cell: Cell) -> str:
    """What the adviser says of eventual checkpoints with this objective."""
    advice = query.advise(recovery_ms=float(cell.objective_ms))
    (unit,) = (unit for unit in advice.units if unit.measured.unit == "state")
    options = [o for o in unit.options if o.approach == "EventualCheckpoints"]
    if not options:
        return "not shown"
    option = options[0]
    return f"{option.recovery_ms:.0f} ms, {'enough' if option.is_enough else 'not enough'}"


def _kill(query: Query, source: StateSource, number: int, say: Say) -> dict[str, Any]:
    """Once the node has its state, and until it is back; what the query had said before."""
    settled_s, wanted = time.monotonic() + _SETTLE_S, 0.8 * source.state_bytes

    def is_ready() -> bool:
        if time.monotonic() < settled_s or not _is_running(query):
            return False
        return node_statistic(query, VICTIM, "state_bytes") > wanted

    what = f"cec: state before kill {number + 1}"
    wait_until(query, is_ready, what, _TIMEOUT_S, every_s=0.01)
    extent = query.lastProgress["units"]["state"]["extent"]
    state_bytes, pid = node_statistic(query, VICTIM, "state_bytes"), query.pid(VICTIM)
    memory_bytes = peak_memory_bytes(pid)
    before, what = len(recoveries_of(query, VICTIM)), f"cec: recovery {number + 1}"
    os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        return len(recoveries_of(query, VICTIM)) > before

    wait_until(query, is_back, what, _TIMEOUT_S, every_s=0.01)
    found = recoveries_of(query, VICTIM)[before]
    kill = {
        "predicted_ms": extent["predictedRecoveryMs"],
        "shortfall": extent["shortfall"],
        "extent_bytes": extent["bytes"],
        "extent_tuples": extent["tuples"],
        "footprints": extent["footprints"],
        "state_bytes": state_bytes,
        "memory_bytes": memory_bytes,
        "recovery_ms": found["restarted_ms"] + found["replayed_ms"],
        "detected_ms": found["detected_ms"],
        "restarted_ms": found["restarted_ms"],
    }
    say(f"kill {number + 1}: {kill}")
    return kill


def _results(location: str) -> pa.Table:
    reader = StreamLogReader(stream_path(location, "results", 0))
    batches: list[pa.RecordBatch] = []
    while not reader.ended:
        batches += [logged.batch for logged in reader.poll()]
    return pa.Table.from_batches(batches)
