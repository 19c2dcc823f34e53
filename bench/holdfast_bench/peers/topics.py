"""From topic to topic of Kafka: where Spark's real-time mode can run."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import holdfast.nexmark.generator as nexmark
from holdfast.shell.kafka.client import library
from holdfast_bench.disturbance import counted
from holdfast_bench.peers.alternation import alternate, median_run, summary
from holdfast_bench.peers.jobs.contract import Job
from holdfast_bench.peers.peer import HOLDFAST, HOLDFAST_REPEATS, HOLDFAST_SOON, Peer, named
from holdfast_bench.peers.process import JobRun
from holdfast_bench.running import BenchFailed
from holdfast_bench.throughput import Say
from holdfast_chaos.kafka_broker import KafkaBroker, NoBroker, fetched, kafka_broker

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
HALF: Final = "50%"
"""The label of what is measured at half of each one's maximum."""
_TICK_S: Final = 0.001
_TIMEOUT_S: Final = 300.0
_DRAIN_S: Final = 3.0
_QUIET_S: Final = 3.0
_UP_RATE: Final = 1_000
_BURST_STEP: Final = 4_096

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
        bids: At once, for the maximum.
        rate: Bids per second that all get.
        repeats: How often all run at each rate; the run with the median p99 counts.
        seconds: Length of the part that counts.
        skipped_s: What goes before it, from the first result on, at the same rate; and before the
            bursts, at a low one.
    """

    queries: tuple[str, ...]
    bids: int
    rate: int
    repeats: int
    seconds: float
    skipped_s: float


def measure(sizes: TopicsSizes, cache: Path, say: Say) -> dict[str, Any]:
    """Per query the maximum of every system, and percentiles of it at rates; or why there are none.

    Args:
        sizes: How much.
        cache: Folder for the broker's jars and Spark's connector.
        say: Told of every run.

    Returns:
        For each query `maxima`, by system; `systems`, by system and rate, which is `50%` of its own
        maximum or one for all, as in `10,000/s`; `failures`.
    """
    try:
        connector = ",".join(str(jar) for jar in fetched(cache, "connector", CONNECTOR).iterdir())
        with kafka_broker(cache) as broker:
            return {
                query: _measure(_Course(broker, connector, query, sizes), say)
                for query in sizes.queries
            }
    except NoBroker as missing:
        say(str(missing))
        failures = {HOLDFAST.name: str(missing)}
        return {
            query: {"maxima": {}, "systems": {}, "failures": failures} for query in sizes.queries
        }


@dataclass(frozen=True, slots=True)
class _Course:
    """What all runs of a query have in common."""

    broker: KafkaBroker
    connector: str
    query: str
    sizes: TopicsSizes


def _measure(course: _Course, say: Say) -> dict[str, Any]:
    def burst(system: Peer, number: int) -> dict[str, Any]:
        return counted(partial(_maximum, system, course, f"burst-{number}"))

    def at_rates(rates: dict[str, int], name: str) -> Callable[[Peer, int], dict[str, Any]]:
        def once(system: Peer, number: int) -> dict[str, Any]:
            rate = rates[system.name]
            return counted(partial(_latencies, system, course, f"{name}-{number}", rate))

        return once

    where, sizes = f"{course.query} from topic to topic", course.sizes
    runs, failures = alternate(f"{where}, a burst", 1, SYSTEMS, burst, say)
    maxima = {name: found[0] for name, found in runs.items()}
    able = [system for system in SYSTEMS if system.name in maxima]
    systems: dict[str, dict[str, Any]] = {name: {} for name in maxima}
    halves = {name: round(found["tuples_per_s"] / 2) for name, found in maxima.items()}
    for label, once in (
        (f"{sizes.rate:,}/s", at_rates(dict.fromkeys(maxima, sizes.rate), "same")),
        (HALF, at_rates(halves, "half")),
    ):
        runs, failed = alternate(f"{where}, {label}", sizes.repeats, able, once, say)
        failures |= {f"{name} {label}": why for name, why in failed.items()}
        for name, found in runs.items():
            systems[name][label] = median_run(found)
    return {"maxima": maxima, "systems": systems, "failures": failures}


def _latencies(system: Peer, course: _Course, name: str, rate: int) -> dict[str, Any]:
    """Percentiles at a rate."""
    sizes, servers = course.sizes, course.broker.servers
    what = f"{system.title}, {course.query} from topic to topic"
    with (
        _running(system, course, name) as (run, source, listening),
        _Bidding(servers, source) as bidding,
    ):
        _until(lambda: listening.first_s > 0, run, what, "the first result")
        bidding.rate = rate
        begin_s = time.time() + sizes.skipped_s
        end_s = begin_s + sizes.seconds
        _until(lambda: time.time() > end_s + _DRAIN_S, run, what, "the end")
    made_s, latencies_ms = listening.latencies_ms()
    counts = (made_s >= begin_s) & (made_s < end_s)
    if not counts.any():
        raise BenchFailed(f"{what}: no result while it was measured")
    return summary(latencies_ms[counts]) | {
        "tuples_per_s": rate,
        "latest_release_ms": round(bidding.latest_s * 1000, 1),
    }


def _maximum(system: Peer, course: _Course, name: str) -> dict[str, Any]:
    """Bids per second of a burst, behind another one that does not count."""
    sizes, servers = course.sizes, course.broker.servers
    what = f"{system.title}, {course.query} from topic to topic, a burst"
    with _running(system, course, name) as (run, source, listening):
        with _Bidding(servers, source):
            _until(lambda: listening.first_s > 0, run, what, "the first result")
            time.sleep(sizes.skipped_s)  # Engines compile what they run.
        bidding = _Bidding(servers, source)
        for _ in range(2):
            began_s, last_us = bidding.burst(sizes.bids)
            # Results of the last bids are there, and nothing follows.
            _until(partial(listening.is_behind, last_us), run, what, "the last result")
            seconds = listening.last_s - began_s
    return {"tuples_per_s": round(sizes.bids / seconds), "seconds": round(seconds, 6)}


@contextmanager
def _running(system: Peer, course: _Course, name: str) -> Iterator[tuple[JobRun, str, _Listening]]:
    """The job from a new topic to another, and who listens to that; with the first one's name."""
    source, sink = (f"{course.query}-{system.name}-{name}-{what}" for what in ("bids", "results"))
    for topic in (source, sink):
        course.broker.create_topic(topic, 1)
    servers = course.broker.servers
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as folder:
        job = Job(
            course.query,
            {"bid": source},
            output=sink,
            state=f"{folder}/state",
            follows=True,
            warm_up=None,
            files_at_once=0,
            scratch=f"{folder}/scratch",
            servers=servers,
            jars=course.connector,
        )
        with (
            _Listening(servers, sink) as listening,
            JobRun(Path(sys.executable), system.job, job, Path(folder, "run")) as run,
        ):
            yield run, source, listening


def _until(is_so: Callable[[], bool], run: JobRun, what: str, waiting_for: str) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not is_so():
        run.require(what)
        if time.monotonic() > deadline_s:
            raise BenchFailed(f"{what}: waited in vain for {waiting_for}: {run.last_words()}")
        time.sleep(0.05)  # Nothing that is measured waits for it.


class _Bidding:
    """Puts bids into a topic at a rate, each with the time at which it was made."""

    def __init__(self, servers: str, topic: str) -> None:
        """Begin with a few, until the job is up, unless asked for a burst only."""
        self.rate = _UP_RATE
        self.latest_s = 0.0  # how far it ever was behind at this rate
        self._topic = topic
        self._producer = library().Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 0,
                "queue.buffering.max.messages": 1 << 22,
                "log_level": 0,
            }
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
        began_s, rate, sent = time.time(), self.rate, 0
        while not self._is_closing.wait(_TICK_S):
            now_s = time.time()
            if rate != self.rate:
                began_s, rate, sent = now_s, self.rate, 0
                self.latest_s = 0.0
            due = int((now_s - began_s) * rate)
            self.latest_s = max(self.latest_s, (due - sent) / rate - _TICK_S)
            self._put(sent, due, int(now_s * 1e6))
            sent = due
            self._producer.poll(0)

    def _put(self, first: int, behind: int, made_us: int) -> None:
        made = f"{made_us}}}"
        for number in range(first, behind):
            self._producer.produce(self._topic, self._texts[number % len(self._texts)] + made)

    def burst(self, count: int) -> tuple[float, int]:
        """Put so many bids at once; when it began, and when the last ones were made, in us."""
        began_s = time.time()
        for first in range(0, count, _BURST_STEP):
            made_us = time.time_ns() // 1000
            self._put(first, min(count, first + _BURST_STEP), made_us)
            self._producer.poll(0)
        self._producer.flush()
        return began_s, made_us

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
        self.last_s = 0.0  # when the newest came
        self._looked_at = 0  # of what was taken
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
            self.last_s = now_s
            self._taken.append((now_s, [message.value(), *(each.value() for each in rest)]))

    def is_behind(self, made_us: int) -> bool:
        """Whether a result that depends on bids of then is there, and no more have come lately."""
        if time.time() - self.last_s < _QUIET_S:
            return False
        taken = self._taken[self._looked_at :]
        self._looked_at += len(taken)
        return any(
            json.loads(value)["made_us"] >= made_us for _, values in taken for value in values
        )

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
