"""From topic to topic of Kafka: where Spark's real-time mode can run."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import holdfast.nexmark.generator as nexmark
from holdfast.bench.disturbance import counted
from holdfast.bench.peers.jobs.contract import Job
from holdfast.bench.peers.peer import HOLDFAST, HOLDFAST_REPEATS, HOLDFAST_SOON, Peer, named
from holdfast.bench.peers.process import JobRun
from holdfast.bench.peers.rounds import alternate, median_run, summary
from holdfast.bench.running import BenchFailed
from holdfast.bench.throughput import Say
from holdfast.chaos.kafka_broker import KafkaBroker, NoBroker, fetched, kafka_broker
from holdfast.shell.kafka.client import library

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
_TICK_S: Final = 0.001
_TIMEOUT_S: Final = 120.0
_DRAIN_S: Final = 3.0

SYSTEMS: Final = (
    replace(HOLDFAST, job="holdfast_topics_job.py"),
    replace(HOLDFAST_SOON, job="holdfast_topics_soon_job.py"),
    replace(HOLDFAST_REPEATS, job="holdfast_topics_at_least_once_job.py"),
    replace(named("spark"), job="spark_topics_job.py"),
    replace(named("spark-realtime"), job="spark_topics_realtime_job.py"),
)


@dataclass(frozen=True, slots=True)
class TopicsSizes:
    """How much, and how long.

    Attributes:
        queries: `q1`, and `q12` with a running count for every bid.
        rate: Bids per second.
        rounds: How often all run; the run with the median p99 counts.
        seconds: Length of the part that counts.
        skipped_s: What goes before it, from the first result on.
    """

    queries: tuple[str, ...]
    rate: int
    rounds: int
    seconds: float
    skipped_s: float


def measure(sizes: TopicsSizes, cache: Path, say: Say) -> dict[str, Any]:
    """Per query and system: percentiles in milliseconds, or why there can be no broker.

    Args:
        sizes: How much.
        cache: Folder for the broker's jars and Spark's connector.
        say: Told of every run.
    """
    try:
        connector = ",".join(str(jar) for jar in fetched(cache, "connector", CONNECTOR).iterdir())
        with kafka_broker(cache) as broker:
            return {
                query: _measure(query, broker, connector, sizes, say) for query in sizes.queries
            }
    except NoBroker as missing:
        say(str(missing))
        failures = {HOLDFAST.name: str(missing)}
        return {query: {"systems": {}, "failures": failures} for query in sizes.queries}


def _measure(
    query: str, broker: KafkaBroker, connector: str, sizes: TopicsSizes, say: Say
) -> dict[str, Any]:
    def once(system: Peer, number: int) -> dict[str, Any]:
        course = _Course(broker, query, f"{query}-{system.name}-{number}", sizes)
        return counted(partial(_run, system, connector, course))

    what = f"{query} from topic to topic"
    runs, failures = alternate(what, sizes.rounds, SYSTEMS, once, say)
    systems = {name: median_run(found) for name, found in runs.items()}
    return {"systems": systems, "failures": failures}


@dataclass(frozen=True, slots=True)
class _Course:
    broker: KafkaBroker
    query: str
    name: str
    sizes: TopicsSizes


def _run(system: Peer, connector: str, course: _Course) -> dict[str, Any]:
    source, sink = f"{course.name}-bids", f"{course.name}-results"
    for topic in (source, sink):
        course.broker.create_topic(topic, 1)
    sizes, servers = course.sizes, course.broker.servers
    what = f"{system.title}, {course.query} from topic to topic"
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as name:
        job = Job(
            course.query,
            {"bid": source},
            output=sink,
            state=f"{name}/state",
            follows=True,
            warm_up=None,
            files_at_once=0,
            scratch=f"{name}/scratch",
            servers=servers,
            jars=connector,
        )
        with (
            _Bidding(servers, source, sizes.rate) as bidding,
            _Listening(servers, sink) as listening,
            JobRun(Path(sys.executable), system.job, job, Path(name, "run")) as run,
        ):
            _until(lambda: listening.first_s > 0, run, what, "the first result")
            begin_s = listening.first_s + sizes.skipped_s
            end_s = begin_s + sizes.seconds
            _until(lambda: time.time() > end_s + _DRAIN_S, run, what, "the end")
        made_s, latencies_ms = listening.latencies_ms()
    counts = (made_s >= begin_s) & (made_s < end_s)
    if not counts.any():
        raise BenchFailed(f"{what}: no result while it was measured")
    return summary(latencies_ms[counts]) | {
        "tuples_per_s": sizes.rate,
        "latest_release_ms": round(bidding.latest_s * 1000, 1),
    }


def _until(is_so: Callable[[], bool], run: JobRun, what: str, waiting_for: str) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not is_so():
        run.require(what)
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"{what}: waited in vain for {waiting_for}: {run.last_words()}")
        time.sleep(0.05)  # Nothing that is measured waits for it.


class _Bidding:
    """Puts bids into a topic at a rate, each with the time at which it was made."""

    def __init__(self, servers: str, topic: str, rate: int) -> None:
        self.latest_s = 0.0  # how far it ever was behind
        self._topic, self._rate = topic, rate
        self._producer = library().Producer(
            {"bootstrap.servers": servers, "linger.ms": 0, "log_level": 0}
        )
        bids = nexmark.generate("bid", 0, 1 << 16, nexmark.NexmarkConfig())
        columns = (bids[name].to_pylist() for name in ("auction", "bidder", "price"))
        self._texts = [
            f'{{"auction":{auction},"bidder":{bidder},"price":{price},"made_us":'
            for auction, bidder, price in zip(*columns, strict=True)
        ]
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._go, name="bidding", daemon=True)

    def _go(self) -> None:
        began_s, sent = time.time(), 0
        while not self._is_closing.wait(_TICK_S):
            now_s = time.time()
            due = int((now_s - began_s) * self._rate)
            self.latest_s = max(self.latest_s, (due - sent) / self._rate - _TICK_S)
            made = f"{int(now_s * 1e6)}}}"
            for number in range(sent, due):
                self._producer.produce(self._topic, self._texts[number % len(self._texts)] + made)
            sent = due
            self._producer.poll(0)

    def __enter__(self) -> _Bidding:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        self._thread.join()
        self._producer.flush(_DRAIN_S)


class _Listening:
    """Takes results as a reader of committed records sees them, and looks into them later."""

    def __init__(self, servers: str, topic: str) -> None:
        self.first_s = 0.0  # when the first result came; 0 before
        self._taken: list[tuple[float, list[Any]]] = []
        kafka = library()
        self._consumer = kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": topic,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        self._consumer.assign([kafka.TopicPartition(topic, 0, 0)])
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._go, name="listening", daemon=True)

    def _go(self) -> None:
        while not self._is_closing.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            # What has come with it waits already.
            rest = self._consumer.consume(10_000, timeout=0)
            now_s = time.time()
            self.first_s = self.first_s or now_s
            self._taken.append((now_s, [message.value(), *(each.value() for each in rest)]))

    def latencies_ms(self) -> tuple[np.ndarray, np.ndarray]:
        """Per result when the newest bid was made that it depends on, and how long it took."""
        made_s, seen_s = [], []
        for at_s, values in self._taken:
            made_s += [json.loads(value)["made_us"] / 1e6 for value in values]
            seen_s += [at_s] * len(values)
        made = np.array(made_s)
        return made, (np.array(seen_s) - made) * 1000

    def __enter__(self) -> _Listening:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        self._thread.join()
        self._consumer.close()
