"""The log of progress reports: a row per unit and report, which `format("holdfast")` reads.

It is an ordinary stream log below the checkpoint location, so that it can be followed while the
query runs and read after it. The coordinator's epoch, which no two drivers share, is its
incarnation.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from holdfast.core.model.tuples import TupleType, with_time
from holdfast.shell.storage.logs import open_writer
from holdfast.shell.storage.paths import metrics_path

if TYPE_CHECKING:
    from collections.abc import Mapping

METRICS_SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("run_id", pa.string()),
        ("unit", pa.string()),
        ("instances", pa.int32()),
        ("input_rows", pa.int64()),
        ("output_rows", pa.int64()),
        ("input_rows_per_s", pa.float64()),
        ("output_rows_per_s", pa.float64()),
        ("latency_p50_ms", pa.float64()),
        ("latency_p99_ms", pa.float64()),
        ("source_backlog_rows", pa.int64()),
        ("pending_rows", pa.int64()),
        ("held_rows", pa.int64()),
        ("unsent_rows", pa.int64()),
        ("kept_rows", pa.int64()),
        ("state_bytes", pa.int64()),
        ("checkpoints", pa.int64()),
        ("checkpoint_standstill_ms", pa.float64()),
        ("checkpoint_ms", pa.float64()),
        ("checkpoint_bytes", pa.int64()),
        ("recoveries", pa.int64()),
        ("detection_ms", pa.float64()),
        ("restart_ms", pa.float64()),
        ("replay_ms", pa.float64()),
        ("catch_up_ms", pa.float64()),
    ]
)


_SEGMENT_BYTES: Final = 1 << 20
"""So that what is old can be removed in small parts."""


def metrics_place(location: str) -> str:
    """Where the log lies."""
    return f"{metrics_path(location)}/0"


class MetricsLog:
    """Writes the reports of one run."""

    def __init__(self, location: str, epoch: int) -> None:
        """Go on behind what earlier runs have written. Raises `StorageError`."""
        self._schema = with_time(METRICS_SCHEMA)
        self._writer = open_writer(
            metrics_place(location), self._schema, "metrics", epoch, segment_bytes=_SEGMENT_BYTES
        )

    def append(self, progress: Mapping[str, Any]) -> None:
        """One row per unit."""
        now_us = int(time.time() * 1e6)
        rows = [_row(unit, said, progress["runId"], now_us) for unit, said in _units(progress)]
        timed = [{**row, self._schema.names[-1]: now_us} for row in rows]
        batch = pa.RecordBatch.from_pylist(timed, schema=self._schema)
        self._writer.append(TupleType.STABLE, self._writer.next_id, batch, now_us, now_us)
        self._writer.publish()

    def close(self) -> None:
        """Write no more."""
        self._writer.close()


def _units(progress: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return list(progress["units"].items())


def _row(unit: str, said: Mapping[str, Any], run_id: str, now_us: int) -> dict[str, Any]:
    backlog, checkpoint, recovery = said["backlog"], said["checkpoint"], said["recovery"]
    return {
        "at": now_us,
        "run_id": run_id,
        "unit": unit,
        "instances": said["instances"],
        "input_rows": said["numInputRows"],
        "output_rows": said["numOutputRows"],
        "input_rows_per_s": said["inputRowsPerSecond"],
        "output_rows_per_s": said["outputRowsPerSecond"],
        "latency_p50_ms": said["latencyMs"]["p50"],
        "latency_p99_ms": said["latencyMs"]["p99"],
        "source_backlog_rows": backlog["sourceRows"],
        "pending_rows": backlog["pendingRows"],
        "held_rows": backlog["heldRows"],
        "unsent_rows": backlog["unsentRows"],
        "kept_rows": said["keptRows"],
        "state_bytes": said["stateBytes"],
        "checkpoints": checkpoint["count"],
        "checkpoint_standstill_ms": checkpoint["standstillMs"],
        "checkpoint_ms": checkpoint["durationMs"],
        "checkpoint_bytes": checkpoint["writtenBytes"],
        "recoveries": recovery["count"],
        "detection_ms": recovery["detectionMs"],
        "restart_ms": recovery["restartMs"],
        "replay_ms": recovery["replayMs"],
        "catch_up_ms": recovery["catchUpMs"],
    }
