"""Topic to topic while the broker is killed and restarted: what is lost, doubled, and how long.

Every run has topics and a checkpoint location of its own. Bids go into a topic of three partitions
at a steady rate; two instances read it, counts per bidder and ten seconds go to another topic. In
the middle the broker gets SIGKILL and is started again. What the other topic holds, as a reader of
committed records sees it, is compared with counts made of what was produced, copies counted.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.driver.session import session
from holdfast.shell.kafka.client import library
from holdfast_bench.reporter import write_page
from holdfast_chaos.kafka_broker import VERSION, KafkaBroker, kafka_broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = "id BIGINT, bidder BIGINT, at TIMESTAMP"
_PARTITIONS = 3
_RATE = 4_000
_PER_SECOND = 100
"""Bids per second of event time."""
_WINDOW = 10
_PATIENCE_S = 180.0
_OPTIONS = {"spark.holdfast.launchTimeoutMs": "120000"}

Say = Callable[[str], None]
Counts = Counter[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        name: For the report.
        runs: Restarts of the broker, one a run.
        bids: Records of a run.
    """

    name: str
    runs: int
    bids: int


FULL = Size("full", 20, 24_000)
QUICK = Size("quick", 2, 12_000)


def run(size: Size, say: Say, *, cache: Path) -> dict[str, Any]:
    """Measure. Raises `NoBroker` if a broker cannot be had.

    Args:
        size: How much.
        say: Told of every run.
        cache: Folder for the broker's jars.
    """
    spark = session("holdfast-bench-kafka")
    results = []
    try:
        with kafka_broker(cache) as broker:
            for number in range(size.runs):
                results.append(_one(spark, broker, number, size.bids))
                say(f"run {number + 1} of {size.runs}: {json.dumps(results[-1])}")
    finally:
        spark.stop()
    return {
        "size": size.name,
        "bids": size.bids,
        "kafka": VERSION,
        "library": library().__version__,
        "runs": results,
    }


def _one(spark: SparkSession, broker: KafkaBroker, number: int, bids: int) -> dict[str, Any]:
    """One run with one restart."""
    chance = random.Random(number)
    source, sink = f"bids-{number}", f"counts-{number}"
    broker.create_topic(source, _PARTITIONS)
    broker.create_topic(sink, 2)
    flow = _flow(broker.servers, source, sink, bids)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as location:
        query = flow.start(spark, checkpointLocation=location, options=_OPTIONS)
        try:
            first = range(bids // 3)
            _produce(broker.servers, source, first)
            _wait(lambda: query.lastProgress["numOutputRows"] > 0 or query.exception() is not None)
            rest = range(len(first), bids)
            producing = threading.Thread(target=_produce, args=(broker.servers, source, rest))
            producing.start()
            # What is reported of the output is half a second old at most: some is left to come.
            due = chance.uniform(0.3, 0.75) * _wanted(bids).total()
            _wait(lambda: query.lastProgress["numOutputRows"] >= due)
            written_before_kill = query.lastProgress["numOutputRows"]
            killed_s = time.monotonic()
            broker.kill()
            broker.start()
            up_s = time.monotonic()
            producing.join()
            has_ended = query.awaitTermination(_PATIENCE_S)
            ended_s = time.monotonic()
            status = {} if has_ended else query.status
            failures = [f"{f['node']}: {f['reason']}" for f in query.failures]
        finally:
            query.stop()
    found, wanted = _found(broker.servers, sink), _wanted(bids)
    return {
        "expected": wanted.total(),
        "lost": (wanted - found).total(),
        "doubled": (found - wanted).total(),
        "ended": has_ended,
        "down_s": round(up_s - killed_s, 2),
        "done_after_up_s": round(ended_s - up_s, 2),
        "results_before_kill": written_before_kill,
        "nodes_replaced": failures,
        **({"status": str(status)} if status else {}),
    }


def _flow(servers: str, source: str, sink: str, bids: int) -> Dataflow:
    flow = Dataflow(source)
    read = flow.source_kafka(
        servers=servers,
        topic=source,
        name="bids",
        schema=_SCHEMA,
        time="at",
        end={p: len(range(p, bids, _PARTITIONS)) for p in range(_PARTITIONS)},
        partitions=2,
    )
    windows = read.key_by("bidder").window(tumbling(f"{_WINDOW} seconds"))
    counts = windows.aggregate("count(*) AS n", name="counts")
    counts.sink_kafka("counts", servers=servers, topic=sink, key="bidder")
    return flow


def _wait(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not is_so() and time.monotonic() < deadline_s:
        time.sleep(0.01)  # Leaves the cores to what is waited for.


def _clock(second: int) -> str:
    return f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def _produce(servers: str, topic: str, bids: range) -> None:
    """Write bids at `_RATE` a second, each once whatever happens to the broker."""
    settings = {
        "bootstrap.servers": servers,
        "enable.idempotence": True,
        "reconnect.backoff.max.ms": 500,  # Or it would be what the runs wait for.
        "log_level": 0,
    }
    producer = library().Producer(settings)
    began_s = time.monotonic()
    for n in bids:
        at = f"{_clock(n // _PER_SECOND)}.{n % _PER_SECOND:02d}Z"
        value = json.dumps({"id": n, "bidder": n % 7, "at": at})
        producer.produce(topic, value, partition=n % _PARTITIONS)
        if n % 100 == 0:
            due_s = began_s + (n - bids.start) / _RATE
            time.sleep(max(0.0, due_s - time.monotonic()))  # The rate.
            producer.poll(0)
    producer.flush(_PATIENCE_S)


def _wanted(bids: int) -> Counts:
    windows = Counter((_clock(n // _PER_SECOND // _WINDOW * _WINDOW), n % 7) for n in range(bids))
    return Counter((f"{start}.000000Z", bidder, n) for (start, bidder), n in windows.items())


def _found(servers: str, topic: str) -> Counts:
    """What a reader of committed records sees."""
    kafka = library()
    settings = {
        "bootstrap.servers": servers,
        "group.id": "bench",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = kafka.Consumer(settings)
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([kafka.TopicPartition(topic, p, 0) for p in partitions])
    found: Counts = Counter()
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is not None:
            ended.add(message.partition())
            continue
        row = json.loads(message.value())
        found[(row["window_start"], row["bidder"], row["n"])] += 1
    consumer.close()
    return found


def has_wrong_output(results: dict[str, Any]) -> bool:
    """Whether a run lost or doubled anything, or did not end."""
    return any(r["lost"] or r["doubled"] or not r["ended"] for r in results["runs"])


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write kafka.md and kafka.json into a folder; the page's path."""
    return write_page("kafka", results, render(results), folder)


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    runs = results["runs"]
    lost, doubled = (sum(r[what] for r in runs) for what in ("lost", "doubled"))
    ended = sum(r["ended"] for r in runs)
    down = sorted(r["down_s"] for r in runs)
    after = sorted(r["done_after_up_s"] for r in runs)
    lines = [
        "# Kafka broker killed and restarted",
        "",
        f"`holdfast bench kafka`, size {results['size']}: Kafka {results['kafka']} (one KRaft "
        f"node), confluent-kafka {results['library']}. Each run: {results['bids']} bids in three "
        f"partitions, a third at once and the others at {_RATE} a second, read by two instances, "
        f"counted per bidder and {_WINDOW} seconds, written to another topic by transactions. The "
        "broker gets SIGKILL at a random moment of the latter and is started again. The output is "
        "what a reader of committed records sees, compared with counts of what was produced.",
        "",
        "| | target | measured |",
        "|---|---|---|",
        f"| runs with a restart | 20 | {len(runs)} |",
        f"| runs that ended by themselves | all | {ended} |",
        f"| results lost | 0 | {lost} |",
        f"| results doubled | 0 | {doubled} |",
        "",
        f"The broker was away for {median(down):.1f} s (median; {down[0]:.1f} to {down[-1]:.1f}), "
        f"and all output was there {median(after):.1f} s after it was back "
        f"({after[0]:.1f} to {after[-1]:.1f}), the rest of the bids included. The times are those "
        "of a machine of two cores that had other work; they say nothing of a broker of one's own.",
        "",
        "| run | results | of them before the kill | lost | doubled | away, s | done after, s | "
        "nodes replaced |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [_line(i, r) for i, r in enumerate(runs, 1)]
    return "\n".join(lines) + "\n"


def _line(number: int, run: dict[str, Any]) -> str:
    ended = "" if run["ended"] else " (not ended)"
    return (
        f"| {number} | {run['expected']} | {run['results_before_kill']} | {run['lost']} | "
        f"{run['doubled']} | {run['down_s']} | {run['done_after_up_s']}{ended} | "
        f"{len(run['nodes_replaced'])} |"
    )
