"""`holdfast bench peers`: the experiments, their sizes, and what is aimed at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from holdfast_bench.peers import latency, race, recovery, topics
from holdfast_bench.peers.latency import LatencySizes
from holdfast_bench.peers.peer import (
    FROM_FILES,
    HOLDFAST,
    PEERS,
    QUERIES,
    Peer,
)
from holdfast_bench.peers.race import Installed, RaceSizes
from holdfast_bench.peers.recovery import RecoverySizes
from holdfast_bench.peers.topics import TopicsSizes
from holdfast_bench.spine import machine, use_cores
from holdfast_bench.throughput import Say


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long the experiments take.

    Attributes:
        name: For the report.
        files: Of the race from files into files.
        throughput: Of the race from log to log.
        latency: At shares of each one's maximum.
        recovery: Kills.
        topics: From topic to topic of Kafka.
    """

    name: str
    files: RaceSizes
    throughput: RaceSizes
    latency: LatencySizes
    recovery: RecoverySizes
    topics: TopicsSizes

    def of(self, queries: tuple[str, ...]) -> Sizes:
        """The same for some queries; recovery has its own."""
        return replace(
            self,
            files=_of(self.files, FULL.files, queries),
            throughput=_of(self.throughput, FULL.throughput, queries),
            latency=replace(self.latency, queries=_both(FULL.latency.queries, queries)),
            topics=replace(self.topics, queries=_both(FULL.topics.queries, queries)),
        )

    def parts(self, experiment: str) -> Iterator[Sizes]:
        """The same query by query, as far as the experiment has several."""
        queries = {
            "files": tuple(self.files.tuples),
            "throughput": tuple(self.throughput.tuples),
            "latency": self.latency.queries,
            "recovery": (),
            "topics": self.topics.queries,
        }
        for query in queries[experiment]:
            yield self.of((query,))
        if experiment == "recovery":
            yield self

    def with_repeats(self, repeats: int) -> Sizes:
        """The same with so many runs of the race, and of latencies at half of the maximum."""
        return replace(
            self,
            files=replace(self.files, repeats=repeats),
            throughput=replace(self.throughput, repeats=repeats),
            latency=replace(self.latency, repeats=repeats),
            topics=replace(self.topics, repeats=repeats),
        )


def _of(sizes: RaceSizes, full: RaceSizes, queries: tuple[str, ...]) -> RaceSizes:
    """A race of some queries, those that it has not in full."""
    tuples = {query: full.tuples[query] for query in queries}
    return replace(
        sizes, tuples=tuples | {q: sizes.tuples[q] for q in queries if q in sizes.tuples}
    )


def _both(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(query for query in some if query in others)


FULL: Final = Sizes(
    "full",
    RaceSizes(
        {"q1": 50_000_000, "q3": 6_000_000, "q8": 1_200_000, "q12": 60_000_000},
        2,
        600.0,
        is_with_start=True,
    ),
    RaceSizes({"q1": 10_000_000, "q3": 1_000_000, "q8": 1_000_000, "q12": 10_000_000}, 3, 600.0),
    LatencySizes(("q1", "q3", "q8", "q12"), (0.1, 0.5, 0.8), 3, 20.0, 5.0, 1_000_000),
    RecoverySizes(5, 10_000.0, 3.0, 240.0),
    TopicsSizes(("q1", "q12"), 500_000, 10_000, 3, 10.0, 15.0),
)
QUICK: Final = Sizes(
    "quick",
    RaceSizes({"q12": 300_000}, 1, 600.0, is_with_start=True),
    RaceSizes({"q12": 300_000, "q3": 150_000}, 1, 600.0),
    LatencySizes(("q3",), (0.5,), 1, 5.0, 3.0, 100_000),
    RecoverySizes(1, 5_000.0, 2.0, 90.0),
    TopicsSizes(("q12",), 50_000, 5_000, 1, 5.0, 3.0),
)

__all__ = ["EXPERIMENTS", "FULL", "NAMES", "QUERIES", "QUICK", "run"]
EXPERIMENTS: Final = ("files", "throughput", "latency", "recovery", "topics")
NAMES: Final = tuple(peer.name for peer in PEERS if peer is not HOLDFAST)


def run(
    sizes: Sizes,
    say: Say,
    *,
    only: tuple[str, ...] = EXPERIMENTS,
    names: tuple[str, ...] = NAMES,
    cache: Path,
    keep: Callable[[dict[str, Any]], None] = lambda results: None,
    others: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Run experiments on Holdfast and some peers.

    Args:
        sizes: How much.
        say: Told what is going on.
        only: Which experiments.
        names: Which peers.
        cache: Folder of the peers' environments, of Kafka's broker and Spark's connector to it,
            made where they are missing.
        others: Results of an earlier run; latency and recovery take each one's maximum from there
            if throughput is not measured again.
        keep: Given the results so far after every experiment and query.

    Returns:
        `machine`, `experiments` (how each was run), `peers` and one entry per experiment, fit for
        JSON.
    """
    use_cores()
    others = others or {}
    peers = tuple(peer for peer in PEERS if peer is HOLDFAST or peer.name in names)
    results: dict[str, Any] = {"machine": machine(), "experiments": {}}
    # From topic to topic all run in the package's own environment.
    installed = Installed(peers if set(only) - {"topics"} else (), cache, say)
    results["peers"] = {peer.name: _described(peer, installed) for peer in peers}
    for name in EXPERIMENTS:
        if name in only:
            began_s = time.monotonic()
            results[name] = {}
            for part in sizes.parts(name):
                known = others | results
                results[name] |= _run_one(name, peers, installed, part, known, cache, say)
                seconds = round(time.monotonic() - began_s, 1)
                results["experiments"][name] = {
                    "size": sizes.name,
                    "sizes": asdict(sizes),
                    "seconds": seconds,
                    "commit": results["machine"].get("commit", ""),
                }
                keep(results)
    return results


def _run_one(
    name: str,
    peers: tuple[Peer, ...],
    installed: Installed,
    sizes: Sizes,
    known: dict[str, Any],
    cache: Path,
    say: Say,
) -> dict[str, Any]:
    if name == "topics":
        return topics.measure(sizes.topics, cache, say)
    if name == "files":
        names = [peer.name for peer in peers]
        racing = tuple(peer for peer in FROM_FILES if peer.name in names)
        return race.compare(racing, installed, sizes.files, say)
    if name == "throughput":
        return race.compare(peers, installed, sizes.throughput, say)
    maxima = known.get("throughput", {})
    if name == "latency":
        return latency.measure(peers, installed, sizes.latency, maxima, say)
    return recovery.measure(peers, installed, sizes.recovery, maxima, say)


def _described(peer: Peer, installed: Installed) -> dict[str, Any]:
    return {
        "title": peer.title,
        "requirements": peer.requirements,
        "quirks": peer.quirks,
        "refuses": peer.refuses,
        "absent": installed.absent.get(peer.name, ""),
    }
