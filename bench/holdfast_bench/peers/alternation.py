"""Systems in turn, time after time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from holdfast_bench.peers.peer import Peer
from holdfast_bench.running import BenchFailed
from holdfast_bench.throughput import Say

Runs = dict[str, list[dict[str, Any]]]


def alternate(
    what: str,
    repeats: int,
    peers: Iterable[Peer],
    run: Callable[[Peer, int], dict[str, Any]],
    say: Say,
) -> tuple[Runs, dict[str, str]]:
    """Run every system, so many times in turn; one that fails does not run again.

    Args:
        what: Is measured, for people.
        repeats: How many.
        peers: Who.
        run: Makes the run of a system, counted from 0; `BenchFailed` says why not.
        say: Told of every run.

    Returns:
        The runs of each system in order, and why some failed.
    """
    peers, runs, failures = tuple(peers), Runs(), dict[str, str]()
    for number in range(repeats):
        for peer in peers:
            if peer.name in failures:
                continue
            say(f"{what}, {number + 1} of {repeats}: {peer.title}")
            try:
                found = run(peer, number)
                runs.setdefault(peer.name, []).append(found)
                say(f"  {found}")
            except BenchFailed as failed:
                failures[peer.name] = str(failed)
                say(f"  {failed}")
    return runs, failures


def median_run(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run with the median p99, the higher one of two; with `runs`, all of them in order."""
    return sorted(runs, key=lambda run: run["p99_ms"])[len(runs) // 2] | {"runs": runs}


def summary(latencies_ms: np.ndarray) -> dict[str, Any]:
    """Percentiles of a run's latencies, of which there are some."""
    p50, p99, most = np.percentile(latencies_ms, (50, 99, 100))
    return {
        "p50_ms": round(float(p50), 1),
        "p99_ms": round(float(p99), 1),
        "max_ms": round(float(most), 1),
        "results": len(latencies_ms),
    }
