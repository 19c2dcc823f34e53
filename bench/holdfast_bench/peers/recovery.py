"""From kill -9 to the first new correct output, under a supervisor that starts it again at once."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from holdfast_bench.peers import rows
from holdfast_bench.peers.following import Following
from holdfast_bench.peers.paced import TICK_S, Staged, stage
from holdfast_bench.peers.peer import HOLDFAST, HOLDFAST_WHOLE, Peer
from holdfast_bench.peers.process import JobRun, kill
from holdfast_bench.peers.race import Installed, maxima_of
from holdfast_bench.running import BenchFailed, median
from holdfast_bench.structured_streaming import Baseline
from holdfast_bench.throughput import Say

QUERY: Final = "q3"
"""Its state grows for ever, and every result comes with the event that completes it."""

_BEHIND_CHUNKS = 100
_WHOLE_S = 30.0
_BASELINE_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class RecoverySizes:
    """How often.

    Attributes:
        kills: Per run, one run per system.
        rate: Tuples per second, the same for all.
        settle_s: Between keeping up and the next kill.
        seconds: Of input, at most.
    """

    kills: int
    rate: float
    settle_s: float
    seconds: float


def measure(
    peers: tuple[Peer, ...],
    installed: Installed,
    sizes: RecoverySizes,
    throughput: dict[str, Any],
    say: Say,
) -> dict[str, Any]:
    """Per system: milliseconds of every kill, and whether the output is right after all of them.

    Who could not keep up with the input, by its throughput in the race if that is known, is left
    out.
    """
    maxima = maxima_of(throughput, QUERY)
    systems: dict[str, Any] = {}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-peers-") as folder:
        expected = _expected(sizes, Path(folder))
        for peer in [p for q in peers for p in ((q, HOLDFAST_WHOLE) if q is HOLDFAST else (q,))]:
            say(f"{sizes.kills} kills: {peer.title}")
            try:
                if why := peer.why_not(QUERY):
                    raise BenchFailed(why)
                if (most := maxima.get(peer.name, sizes.rate)) < sizes.rate:
                    raise BenchFailed(f"its maximum is {most:,} tuples/s")
                where = Path(folder) / peer.name
                python = installed.python(HOLDFAST if peer is HOLDFAST_WHOLE else peer)
                systems[peer.name] = _run(peer, python, sizes, expected, where)
                say(f"  {systems[peer.name]}")
            except BenchFailed as failed:
                failures[peer.name] = str(failed)
                say(f"  {failed}")
    return {QUERY: {"tuples_per_s": sizes.rate, "systems": systems, "failures": failures}}


def _expected(sizes: RecoverySizes, folder: Path) -> pa.Table:
    """What Spark SQL gives over all the input there is."""
    staged = stage(QUERY, "parquet", sizes.rate, sizes.seconds, folder / "all", is_final=False)
    while staged.released < staged.chunks:
        staged.release()
    with Baseline() as baseline:
        where = str(folder / "expected")
        baseline.write(QUERY, staged.inputs, where, timeout_s=_BASELINE_TIMEOUT_S)
    return rows.expected_rows(where, QUERY, staged.closed_us)


def _run(
    peer: Peer, python: Path, sizes: RecoverySizes, expected: pa.Table, folder: Path
) -> dict[str, Any]:
    staged = stage(QUERY, peer.input, sizes.rate, sizes.seconds, folder / "events", is_final=False)
    following = Following(peer, python, staged, folder / "run", None)
    right = set(_pairs(expected))
    seen: set[tuple[Any, ...]] = set()
    run = following.start()
    try:
        following.begin(run)
        times_ms = []
        for _ in range(sizes.kills):
            _keep_up(following, run, sizes.settle_s)
            seen.update(_pairs(rows.everything(following.output(), QUERY)))
            killed_s = time.time()
            _kill(following, run)
            for table in following.follower.poll():  # Visible before, but not yet looked at.
                seen.update(_pairs(table))
            if not peer.restarts_itself:
                run = following.start()
            times_ms.append(_until_new(following, run, right, seen, killed_s))
        _keep_up(following, run, sizes.settle_s)
        following.feeder.stop()
        found = _whole(following, run, staged, expected)
    finally:
        following.feeder.stop()
        run.end()
    return {
        "median_ms": median(times_ms),
        "max_ms": max(times_ms),
        "times_ms": times_ms,
        "output": asdict(found),
        "is_identical": found.is_identical,
    }


def _kill(following: Following, run: JobRun) -> None:
    """SIGKILL, to the node that the script names or to all there is."""
    if following.peer.restarts_itself:
        kill(run.says["victims"])
    else:
        run.end()


def _until_new(
    following: Following,
    run: JobRun,
    right: set[tuple[Any, ...]],
    seen: set[tuple[Any, ...]],
    killed_s: float,
) -> float:
    """Milliseconds from the kill until a right row shows that nobody had seen before."""
    looked_at = len(following.follower.seen)
    found_s = 0.0

    def has_new() -> bool:
        nonlocal looked_at, found_s
        for table, at_s in following.follower.seen[looked_at:]:
            looked_at += 1
            if not found_s and any(pair in right and pair not in seen for pair in _pairs(table)):
                found_s = at_s
        return found_s > 0

    following.wait(run, has_new, "a new result after a kill")
    return round((found_s - killed_s) * 1000, 1)


def _keep_up(following: Following, run: JobRun, settle_s: float) -> None:
    """Wait until the output is at most five seconds behind the input, and a while longer."""
    staged, follower = following.staged, following.follower
    following.wait(
        run,
        lambda: follower.newest_chunk >= staged.released - _BEHIND_CHUNKS,
        "keeping up with the input",
    )
    settled_s = time.monotonic() + settle_s
    following.wait(run, lambda: time.monotonic() > settled_s, "settling")
    if not following.feeder.is_running:
        raise BenchFailed(
            f"{following.what}: its {staged.chunks * TICK_S:.0f} s of input were over"
        )


def _whole(
    following: Following, run: JobRun, staged: Staged, expected: pa.Table
) -> rows.Difference:
    """How the output differs from what it must be, once it does not or does not change."""
    staged.end()
    # A result is due when all it depends on has been released.
    due = expected.filter(pa.array(staged.cause_us(expected) <= staged.closed_us))
    give_up_s = time.monotonic() + _WHOLE_S
    while True:
        found = rows.everything(following.output(), QUERY)
        lost = rows.difference(found, due).lost
        result = rows.Difference(due.num_rows, lost, rows.difference(found, expected).surplus)
        if result.lost == 0 or time.monotonic() > give_up_s:
            return result
        following.wait(run, _passed(1.0), "the rest")


def _passed(seconds: float) -> Callable[[], bool]:
    """Whether so much time has gone by since now."""
    until_s = time.monotonic() + seconds
    return lambda: time.monotonic() > until_s


def _pairs(table: pa.Table) -> zip[tuple[Any, ...]]:
    """The rows."""
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
