"""A node's share of a core for metrics and the view together, while it works and somebody looks.

The node's own calls are timed by the clock of its thread: those that report to the driver, from
which metrics and the view come, and those that measure for these reports. A source brings the clock
into the node's process; what the clock itself takes there is measured beside each call, and does
not count. Meanwhile a browser's connection to the view is open, and metrics are scraped every
second, as Prometheus does.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.protections import UpstreamBackup
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast.shell.spark.meter import Meter
from holdfast.shell.spark.node_reports import NodeReports
from holdfast.view.metrics import serve_metrics
from holdfast_bench.running import wait_until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.api.dataflow import Dataflow
    from holdfast.api.streams import Stream
    from holdfast.driver.query import Query
    from holdfast.shell.sources.base import SourceReader, SourceSpec

TARGET: Final = 0.003
RATE: Final = 10_000
_REPORTING: Final = (NodeReports, "_report_statistics")
_MEASURING: Final = ((Meter, "stepped"), (Meter, "decoded"), (Meter, "look_at_changes"))
_SETTLE_S: Final = 4.0
_TIMEOUT_S: Final = 120.0
_SCRAPE_S: Final = 1.0
_totals: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class TimedSource:
    """A source for `Dataflow.source_generator`; nodes that read it time what they say.

    Attributes:
        source: Whose events.
        path: Where a node keeps what it has timed.
    """

    source: NexmarkSource
    path: str

    @property
    def schema(self) -> pa.Schema:
        """The attributes."""
        return self.source.schema

    def spec(self, partition: int, partitions: int) -> SourceSpec:
        """One partition, for a node."""
        return _TimedSpec(self.source.spec(partition, partitions), self.path)

    def to_dataframe(self, spark: SparkSession) -> DataFrame:
        """The same events as a DataFrame."""
        return self.source.to_dataframe(spark)


@dataclass(frozen=True, slots=True)
class _TimedSpec:
    inner: SourceSpec
    path: str

    def open(self) -> SourceReader:
        """In the node's process."""
        time_calls(self.path)
        return self.inner.open()


def time_calls(path: str) -> None:
    """From now on keep at `path` what these calls have taken, in nanoseconds, anew each report."""
    if _totals:
        return  # A reader is opened again.
    _totals.update(reporting=0, measuring=0, calls=0, empty=0)
    for owner, name in _MEASURING:
        _time(owner, name, "measuring")
    _time(*_REPORTING, "reporting", lambda: _keep(path))


def _time(owner: type, name: str, kind: str, then: Callable[[], None] | None = None) -> None:
    inner = getattr(owner, name)

    def timed(*given: Any, **named: Any) -> Any:
        asked_ns = time.thread_time_ns()
        began_ns = time.thread_time_ns()
        found = inner(*given, **named)
        _totals[kind] += time.thread_time_ns() - began_ns
        if kind == "measuring":
            _totals["calls"] += 1
            _totals["empty"] += began_ns - asked_ns
        if then is not None:
            then()
        return found

    setattr(owner, name, timed)


def _keep(path: str) -> None:
    draft = f"{path}.draft"
    Path(draft).write_text(json.dumps({**_totals, "at_ns": time.monotonic_ns()}))
    os.replace(draft, path)


def measure(seconds: float, then: Callable[[Query, str], None]) -> dict[str, Any]:
    """Shares of a core of a node that reads, counts in windows and writes its results.

    Returns:
        `rate` in tuples per second; `reporting` and `measuring` as shares of a core, and their sum
        as `share`; `calls_per_s`: how often it measures.

    Args:
        seconds: For how long it is watched.
        then: Gets the query, which still runs, and the address of its view.
    """
    from holdfast.driver.session import session

    spark = session("holdfast-bench-view", slots=4)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        path = os.path.join(folder, "timed")
        bids = NexmarkSource("bid", 1 << 40, NexmarkConfig(), RATE, now_us())

        def source(flow: Dataflow, kind: str) -> Stream:
            return flow.source_generator(TimedSource(bids, path), name="bids", unit="counts")

        flow = build("q12", source, emit="changes")
        query = flow.start(spark, checkpointLocation=folder + "/q", protection=UpstreamBackup())
        try:
            wait_until(query, lambda: os.path.exists(path), "a report", _TIMEOUT_S)
            url = query.view(port=0).url
            with _looked_at(url):
                time.sleep(_SETTLE_S)  # What starting costs does not count.
                before = json.loads(Path(path).read_text())
                time.sleep(seconds)  # The time that is measured.
                after = json.loads(Path(path).read_text())
            then(query, url)
        finally:
            query.stop()
    return shares(before, after)


def shares(before: dict[str, int], after: dict[str, int]) -> dict[str, Any]:
    """Of what was kept at two times."""
    spent = {name: after[name] - before[name] for name in before}
    elapsed_ns = spent["at_ns"]
    reporting = spent["reporting"] / elapsed_ns
    measuring = max(0, spent["measuring"] - spent["empty"]) / elapsed_ns
    return {
        "rate": RATE,
        "reporting_share": round(reporting, 5),
        "measuring_share": round(measuring, 5),
        "share": round(reporting + measuring, 5),
        "calls_per_s": round(1e9 * spent["calls"] / elapsed_ns),
    }


@contextlib.contextmanager
def _looked_at(url: str) -> Iterator[None]:
    """The view is watched and metrics are scraped, within."""
    is_over = threading.Event()
    metrics = serve_metrics(port=0)

    def watch() -> None:
        with urllib.request.urlopen(f"{url}events", timeout=_TIMEOUT_S) as events:
            while not is_over.is_set():
                events.readline()

    def scrape() -> None:
        while not is_over.wait(_SCRAPE_S):
            with urllib.request.urlopen(metrics.url, timeout=_TIMEOUT_S) as found:
                found.read()

    threads = [threading.Thread(target=one, daemon=True) for one in (watch, scrape)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join(_SCRAPE_S + 1)
        metrics.stop()
