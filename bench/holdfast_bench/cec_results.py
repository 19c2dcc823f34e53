"""How soon results come, at a high rate and with a large state, with eventual checkpoints.

Every second tuple is of a window that stays open, in which each of many groups has one already. The
others are of windows of ten milliseconds. These close all the time, with a result per key. So a
node has a large state, and results by which one sees whether anything has held it up.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import (
    Checkpointed,
    EventualCheckpoints,
    Protection,
    UpstreamBackup,
)
from holdfast.api.windows import tumbling
from holdfast.shell.sources.base import SourceReader
from holdfast.shell.storage.paths import stream_path
from holdfast_bench.cec_spark import SLOTS
from holdfast_bench.running import median, node_statistic
from holdfast_bench.sguard.end_to_end import GroupReader, GroupSource, figures, follow
from holdfast_bench.sguard.states import RECORD_BYTES
from holdfast_bench.spine import bench_session

if TYPE_CHECKING:
    from holdfast_bench.cec import Sizes

RATE: Final = 100_000
PROTECTIONS: Final[dict[str, Protection]] = {
    "UpstreamBackup": UpstreamBackup(),
    "EventualCheckpoints": EventualCheckpoints(share=0.02, recovery="1 second"),
    "Checkpointed": Checkpointed(interval="5 seconds"),
}
_KEYS: Final = 16
"""Of windows that close."""
_WINDOW: Final = "10 milliseconds"
_STANDING_US: Final = 4_000_000_000_000_000
"""In the window at this time groups stay: no boundary comes so far."""
_FILL_S: Final = 15.0
_WARM_UP_S: Final = 3.0
_MB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class MixedSource(GroupSource):
    """Groups of a window that stays, and tuples of windows that close; one partition.

    The steady rate begins at `origin_us`; that is the beginning of the tuples' own time, too.
    """

    def open(self) -> SourceReader:
        """A reader."""
        return _MixedReader(self)


class _MixedReader(GroupReader):
    """Every second tuple stays; the others are dated as they are due."""

    def _reached_us(self, ids: np.ndarray) -> np.ndarray:
        """Steady in their own time; before that all at its beginning."""
        behind = np.maximum(0, ids - self._source.groups)
        times: np.ndarray = behind * 1_000_000 // self._source.rate
        return times

    def _tuples(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        stays = (ids < self._source.groups) | (ids % 2 == 1)
        keys, times = super()._tuples(ids)
        return np.where(stays, keys, ids // 2 % _KEYS), np.where(stays, _STANDING_US, times)


def results(sizes: Sizes, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Percentiles under each protection, in turn: the medians of the runs."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in PROTECTIONS}
    with bench_session("cec", SLOTS) as spark:
        for _ in range(sizes.result_runs):
            for name, protection in PROTECTIONS.items():
                run = _run(spark, protection, sizes)
                runs[name].append(run)
                say(f"{name}: p99 {run['p99_ms']:g} ms, {run['state_mb']:g} MB of state")
    return [
        {
            "protection": name,
            "rate": RATE,
            "runs": len(each),
            **{part: round(median(run[part] for run in each), 3) for part in each[0]},
        }
        for name, each in runs.items()
    ]


def _run(spark: Any, protection: Protection, sizes: Sizes) -> dict[str, Any]:
    groups = sizes.state_mb * _MB // RECORD_BYTES
    origin_us = int((time.time() + _FILL_S) * 1e6)
    flow = Dataflow("mixed")
    source = MixedSource(groups, RATE, sizes.result_s, origin_us)
    tuples = flow.source_generator(source, name="tuples", unit="ingest")
    made = tuples.key_by("key").window(tumbling(_WINDOW))
    made.aggregate("count(*) AS n", "min(value) AS low", "max(value) AS high", name="state").sink(
        "results"
    )
    state_bytes = [0]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as location:
        query = flow.start(spark, checkpointLocation=location, protection={"state": protection})

        def look() -> None:
            state_bytes.append(node_statistic(query, "state[0]", "state_bytes"))

        try:
            path = stream_path(location, "results", 0)
            seen = follow(query, path, 0, _FILL_S + sizes.result_s + 60, look)
        finally:
            query.stop()
    begin_s = origin_us / 1e6  # In the end the window that stays closes, too.
    is_steady = (seen[:, 0] > begin_s + _WARM_UP_S) & (seen[:, 0] < begin_s + sizes.result_s - 0.1)
    return figures(seen[is_steady]) | {"state_mb": round(max(state_bytes) / _MB, 1)}
