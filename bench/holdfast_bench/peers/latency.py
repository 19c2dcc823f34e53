"""Latency of every system at shares of its own maximum."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast_bench.disturbance import counted
from holdfast_bench.peers.alternation import alternate, median_run, summary
from holdfast_bench.peers.events import recorded
from holdfast_bench.peers.following import PRIMED_S, Following
from holdfast_bench.peers.paced import TICK_S, stage
from holdfast_bench.peers.peer import Peer
from holdfast_bench.peers.race import Installed, maxima_of
from holdfast_bench.running import BenchFailed
from holdfast_bench.throughput import Say

AIMED_AT: Final = 0.5
"""The share whose latencies are compared: its runs are repeated."""
_DRAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class LatencySizes:
    """How long.

    Attributes:
        queries: Which.
        shares: Of each system's own maximum.
        repeats: How often all run at the share `AIMED_AT`; the run with the median p99 counts.
        seconds: Length of the part that counts.
        skipped_s: What goes before it.
        warm_up_tuples: Read before by engines that compile while they run.
    """

    queries: tuple[str, ...]
    shares: tuple[float, ...]
    repeats: int
    seconds: float
    skipped_s: float
    warm_up_tuples: int


def measure(
    peers: tuple[Peer, ...],
    installed: Installed,
    sizes: LatencySizes,
    throughput: dict[str, Any],
    say: Say,
) -> dict[str, Any]:
    """Per query, system and share: percentiles in milliseconds.

    Args:
        peers: Who.
        installed: Their environments.
        sizes: How long.
        throughput: Results of the race: where each one's maximum comes from.
        say: Told of every run.
    """
    return {
        query: _measure(query, peers, installed, sizes, maxima_of(throughput, query), say)
        for query in sizes.queries
    }


def _measure(
    query: str,
    peers: tuple[Peer, ...],
    installed: Installed,
    sizes: LatencySizes,
    maxima: Mapping[str, float],
    say: Say,
) -> dict[str, Any]:
    systems: dict[str, dict[str, Any]] = {}
    failures: dict[str, str] = {}
    for share in sizes.shares:

        def once(peer: Peer, _: int, share: float = share) -> dict[str, Any]:
            if why := peer.why_not(query):
                raise BenchFailed(why)
            if peer.name not in maxima:
                raise BenchFailed("its maximum was not measured")
            rate = maxima[peer.name] * share
            return counted(partial(run_at, peer, installed.python(peer), query, rate, sizes))

        repeats = sizes.repeats if share == AIMED_AT else 1
        runs, failed = alternate(f"{query} at {share:.0%}", repeats, peers, once, say)
        for name, found in runs.items():
            systems.setdefault(name, {})[f"{share:.0%}"] = median_run(found)
        failures |= {f"{name} at {share:.0%}": why for name, why in failed.items()}
    return {"systems": systems, "failures": failures}


def run_at(
    peer: Peer, python: Path, query: str, rate: float, sizes: LatencySizes
) -> dict[str, Any]:
    """One run at so many tuples per second: percentiles in milliseconds.

    Raises:
        BenchFailed: The script has failed, or nothing came.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as name:
        folder = Path(name)
        seconds = sizes.seconds + sizes.skipped_s
        is_final = peer.is_final(query)
        in_all_s = PRIMED_S[is_final] + seconds
        staged = stage(query, peer.input, rate, in_all_s, folder / "events", is_final=is_final)
        warm_up = None
        if peer.needs_warm_up:
            events = recorded(query, sizes.warm_up_tuples, folder / "warm-up")
            warm_up = events.folders[peer.input]
        os.sync()  # What was staged is not on its way to the disk while it is read.
        following = Following(peer, python, staged, folder / "run", warm_up)
        first_chunk = following.first_chunk + int(sizes.skipped_s / TICK_S)
        with following.start() as run:
            following.begin(run)
            end_s = time.monotonic() + seconds
            following.wait(run, lambda: time.monotonic() > end_s, "the end", glances=True)
            following.feeder.stop()
            drained_s = time.monotonic() + _DRAIN_S
            last = "the last results"
            following.wait(run, lambda: time.monotonic() > drained_s, last, glances=True)
        found_ms = following.follower.latencies_s(first_chunk) * 1000
    if not len(found_ms):
        raise BenchFailed(f"{following.what}: no result while it was measured")
    return summary(found_ms) | {
        "tuples_per_s": round(staged.rate),
        "latest_release_ms": round(following.feeder.latest_s * 1000, 1),
    }
