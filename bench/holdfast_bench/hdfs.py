"""HDFS as log and checkpoint store: a data node killed while a checkpoint is being written."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Checkpointed
from holdfast.api.windows import tumbling
from holdfast.nexmark.generator import generate
from holdfast.shell.storage.logs import open_reader
from holdfast.shell.stores.webhdfs import WebHdfsStore
from holdfast_bench.feed import CONFIG, Feed
from holdfast_bench.reporter import machine_of, table, write_page
from holdfast_bench.running import BenchFailed
from holdfast_bench.spine import machine
from holdfast_chaos.hdfs_cluster import VERSION, HdfsCluster, hdfs_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

_INTRODUCTION: Final = """\
# HDFS: a data node killed while a checkpoint is being written

`holdfast bench hdfs` made this page.

"""
FULL: Final = 20
QUICK: Final = 2
_WINDOW_US: Final = 10_000_000
_TIMEOUT_S: Final = 300.0
_INTERVAL: Final = "300 milliseconds"
_OPTIONS: Final = {
    "spark.holdfast.keepAliveMisses": "20",
    "spark.holdfast.launchTimeoutMs": "120000",
}
_NODE: Final = "counts[0]"


def run(runs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """So many runs on one cluster; a data node that was killed is started again after each.

    Raises:
        HdfsUnavailable: The machine has no HDFS and no Maven.
    """
    from holdfast.driver.session import session

    results: list[dict[str, Any]] = []
    began_s = time.monotonic()
    spark = session("holdfast-hdfs")
    try:
        with (
            tempfile.TemporaryDirectory(prefix="holdfast-hdfs-") as folder,
            hdfs_cluster(Path(folder)) as cluster,
        ):
            for number in range(runs):
                results.append(one(spark, cluster, number))
                say(f"run {number + 1}: {results[-1]}")
                cluster.start_data_node(number % 2)
                cluster.wait_for_all()
    finally:
        spark.stop()
    return {
        "machine": machine(),
        "hdfs": VERSION,
        "seconds": round(time.monotonic() - began_s, 1),
        "runs": results,
    }


def one(spark: SparkSession, cluster: HdfsCluster, number: int) -> dict[str, Any]:
    """One query: a data node is killed during a checkpoint, then the node that counts.

    Raises:
        BenchFailed: Something that must happen did not within five minutes.
    """
    place = f"{cluster.url}/run-{number}"
    store = WebHdfsStore(place, {})
    with tempfile.TemporaryDirectory(prefix="holdfast-hdfs-bids-") as bids:
        feed = Feed(os.path.join(bids, "bids"))
        query = _flow(feed).start(
            spark,
            checkpointLocation=place,
            protection=Checkpointed(interval=_INTERVAL),
            options=_OPTIONS,
        )
        try:
            _wait(query, lambda: _stored(query) >= 2, "two checkpoints")
            _wait(query, lambda: _is_writing(store), "a checkpoint being written", every_s=0.005)
            cluster.kill_data_node(number % 2)
            killed_s, before = time.monotonic(), _stored(query)
            _wait(query, lambda: _stored(query) > before, "a checkpoint after the kill")
            stored_ms = round((time.monotonic() - killed_s) * 1e3)
            os.kill(query.pid(_NODE), signal.SIGKILL)
            _wait(query, lambda: bool(query.recoveries), "recovery from what is left")
            feed.end()
            query.awaitTermination(_TIMEOUT_S)
        finally:
            feed.end()
            query.stop()
        lost, doubled, rows = compare(f"{place}/streams/counts/0", feed.events)
        return {
            "lost": lost,
            "doubled": doubled,
            "output_tuples": rows,
            "input_tuples": feed.events,
            "checkpoints": _stored(query),
            "checkpoints_failed": sum(c["failure"] is not None for c in query.checkpoints),
            "next_checkpoint_ms": stored_ms,
            "recovered_ms": query.recoveries[0]["recovered_ms"],
            "node_failures": len(query.failures),
        }


def _flow(feed: Feed) -> Dataflow:
    flow = Dataflow("on-hdfs")
    bids = flow.source_log(feed.path, name="bids", unit="bids")
    counted = bids.key_by("bidder").window(tumbling("10 seconds"))
    counted.aggregate("count(*) AS bids", name="counts").sink("counts")
    return flow


def _stored(query: Query) -> int:
    return sum(c["failure"] is None for c in query.checkpoints)


def _is_writing(store: WebHdfsStore) -> bool:
    """Whether some part of a checkpoint has a draft's name now."""
    return any(name.startswith(".") for name in store.drafts("checkpoint"))


def _wait(query: Query, is_so: Callable[[], bool], what: str, every_s: float = 0.02) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not is_so():
        error = query.exception()
        if error is not None:
            raise error
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"{what} did not come within {_TIMEOUT_S:.0f} s")
        time.sleep(every_s)  # Leaves the cores to what is waited for.


def compare(log: str, events: int) -> tuple[int, int, int]:
    """How many rows of a log are missing and too many, and how many it holds.

    What must be there is counted anew from the generator, without Spark and without the query.
    """
    bids = generate("bid", 0, events, CONFIG)
    times = bids.column("date_time").cast("int64").to_numpy()
    bidders = bids.column("bidder").to_numpy()
    wanted = Counter(zip(times // _WINDOW_US, bidders, strict=True))
    expected = Counter(
        (int(bidder), int(window) * _WINDOW_US, count) for (window, bidder), count in wanted.items()
    )
    found: Counter[tuple[int, int, int]] = Counter()
    reader = open_reader(log)
    with contextlib.closing(reader):
        while batches := reader.poll():
            for logged in batches:
                columns = [
                    logged.batch.column("bidder").to_pylist(),
                    logged.batch.column("window_start").cast("int64").to_pylist(),
                    logged.batch.column("bids").to_pylist(),
                ]
                found.update(zip(*columns, strict=True))
    return (expected - found).total(), (found - expected).total(), found.total()


def is_wrong(results: dict[str, Any]) -> bool:
    """Whether anything was lost or doubled."""
    return any(run["lost"] or run["doubled"] for run in results["runs"])


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write `hdfs.json` and `hdfs.md` into `folder`; the page's path."""
    return write_page("hdfs", results, render(results), folder)


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    given = machine_of(results)
    runs = results["runs"]
    middle = statistics.median(run["next_checkpoint_ms"] for run in runs)
    columns = list(runs[0])
    return "".join(
        [
            _INTRODUCTION,
            f"Machine: {given}. HDFS {results['hdfs']}: a name node and two data nodes on it, two "
            f"copies of each block; {results['seconds']:.0f} s in all.\n\n",
            f"{len(runs)} runs: **{sum(r['lost'] for r in runs)} lost, "
            f"{sum(r['doubled'] for r in runs)} doubled**. Logs, journal and checkpoints (every "
            f"{_INTERVAL}) lie on HDFS. When a part of a checkpoint was being written, one data "
            "node was killed with SIGKILL; after the next checkpoint had been stored (median "
            f"{middle:.0f} ms later) the node that counts was killed too, and its replacement "
            "loaded what was left. The output was compared with one counted from the generated "
            "input without Spark.\n\n",
            table(
                ("run", *(name.replace("_", " ") for name in columns)),
                [(number, *run.values()) for number, run in enumerate(runs, 1)],
            ),
        ]
    )
