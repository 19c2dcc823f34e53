"""Frames and strangers against a running query: all refused, all counted, its output as without."""

from __future__ import annotations

import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.dataflow import Dataflow
from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.protections import Checkpointed
from holdfast.api.windows import tumbling
from holdfast_bench.feed import RATE, Feed
from holdfast_bench.reporter import machine_of, table, write_page
from holdfast_bench.running import BenchFailed
from holdfast_bench.spine import machine
from holdfast_chaos.attacks import PEERS, STRANGERS, Attacker, Target, shares, wait_until
from holdfast_chaos.frame_material import targets_of

if TYPE_CHECKING:
    from holdfast.driver.query import Query

_INTRODUCTION: Final = """\
# Strangers and bad frames against a running query

`holdfast bench security` made this page. What is refused and why stands in
[security.md](../security.md).

"""
_COUNTED_S: Final = 240.0
_SETTLED_S: Final = 5.0
_END_S: Final = 300.0
_OPTIONS: Final = {"spark.holdfast.keepAliveMisses": "100"}
_SLOW: Final = ("half open", "slow")
_SAMPLE_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much.

    Attributes:
        name: For people.
        strangers: Connections without this run's key.
        held: Of them, half-open and slow ones.
        frames: Frames from connections with this run's key.
    """

    name: str
    strangers: int
    held: int
    frames: int


FULL: Final = Sizes("full", 20_000, 1_400, 80_500)
QUICK: Final = Sizes("quick", 1_400, 140, 5_600)


def run(sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    """Start the query, attack all of its sockets, and look at what it put out.

    Raises:
        BenchFailed: The query ended before the attack did.
    """
    from holdfast.driver.session import session

    spark = session("holdfast-security")
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-security-") as location:
            feed = Feed(os.path.join(location, "bids"))
            query = _flow(feed).start(
                spark,
                checkpointLocation=os.path.join(location, "query"),
                protection=Checkpointed(interval="500 milliseconds", store=EmbeddedStore()),
                options=_OPTIONS,
            )
            try:
                attacked = attack(query, sizes, say)
                feed.end()
                say("waiting for the query's end")
                query.awaitTermination(_END_S)
                found = query.verify()
                attacked["failures"] = query.failures
                checkpoints = [c for c in query.checkpoints if c["failure"] is None]
                attacked["checkpoints"] = len(checkpoints)
                attacked["output_tuples"] = found.actual
                attacked["is_identical"] = found.is_identical
            finally:
                feed.end()
                query.stop()
    finally:
        spark.stop()
    return {"machine": machine(), "size": sizes.name, **attacked}


def _flow(feed: Feed) -> Dataflow:
    flow = Dataflow("attacked")
    bids = flow.source_log(feed.path, name="bids", unit="bids")
    counted = bids.key_by("bidder").window(tumbling("10 seconds"))
    counted.aggregate("count(*) AS bids", name="counts").sink("counts")
    return flow


def attack(query: Query, sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    """All kinds against all sockets; what was sent, what was counted, and the memory it took.

    Raises:
        BenchFailed: The query ended before the attack did.
    """
    if not wait_until(lambda: bool(query.checkpoints) or not query.isActive, _COUNTED_S):
        raise BenchFailed("no checkpoint came")
    targets = targets_of(query)
    # Genuine connections that are still at their handshake are among the refused ones.
    wait_until(lambda: not any(of["handshakes"] for of in query.refused().values()), _SETTLED_S)
    before = query.refused()
    memory = _Memory(query)
    attacker = Attacker(targets, seed=1)
    began_s = time.monotonic()
    for target in targets:
        say(f"attacking {target.name}")
        _attack(attacker, target, sizes, len(targets))
        if not query.isActive:
            raise BenchFailed(f"the query ended: {query.exception()}")
    attacker.close()
    seconds = time.monotonic() - began_s
    wait_until(lambda: not _missing(query, attacker, before), _COUNTED_S)
    was_active = query.isActive
    counted = _counted(query.refused(), before)
    if not was_active:
        raise BenchFailed("the query ended before everything was counted")
    return {
        "seconds": round(seconds, 1),
        "sent": attacker.sent.total,
        "kinds": dict(attacker.sent.kinds),
        "targets": {
            target.name: {
                "strangers": attacker.sent.handshakes[target.name],
                "strangers_counted": counted[target.name]["handshakes"],
                "frames": attacker.sent.frames[target.name],
                "frames_counted": counted[target.name]["frames"],
            }
            for target in targets
        },
        "memory_mb": memory.close(),
    }


def _attack(attacker: Attacker, target: Target, sizes: Sizes, targets: int) -> None:
    held = shares(sizes.held // targets, list(_SLOW))
    swift = [kind for kind in STRANGERS if kind not in _SLOW]
    strangers = shares((sizes.strangers - sizes.held) // targets, swift)
    for kind, count in {**held, **strangers}.items():
        attacker.strangers(target, kind, count)
    for kind, count in shares(-(-sizes.frames // targets), list(PEERS)).items():
        attacker.peers(target, kind, count)


def _counted(
    now: dict[str, dict[str, int]], before: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    return {
        name: {kind: counts[kind] - before.get(name, {}).get(kind, 0) for kind in counts}
        for name, counts in now.items()
    }


def _missing(query: Query, attacker: Attacker, before: dict[str, dict[str, int]]) -> int:
    """How much of what was sent has not been counted yet."""
    counted = _counted(query.refused(), before)
    sent = attacker.sent
    frames = sum(max(0, n - counted[name]["frames"]) for name, n in sent.frames.items())
    return frames + sum(
        max(0, n - counted[name]["handshakes"]) for name, n in sent.handshakes.items()
    )


class _Memory:
    """Resident memory of every process of a query, looked at in a thread of its own."""

    def __init__(self, query: Query) -> None:
        pids = {**query.nodes, **query.status["dataNodes"], "driver": os.getpid()}
        self._pids = pids
        self._first = {name: _resident_mb(pid) for name, pid in pids.items()}
        self._peak = dict(self._first)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._is_over.wait(_SAMPLE_S):
            for name, pid in self._pids.items():
                self._peak[name] = max(self._peak[name], _resident_mb(pid))

    def close(self) -> dict[str, dict[str, float]]:
        """Before, and at most meanwhile, MB."""
        self._is_over.set()
        self._thread.join()
        return {
            name: {"before": self._first[name], "peak": self._peak[name]} for name in self._pids
        }


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return round(pages * resource.getpagesize() / 1e6, 1)


def has_effects(results: dict[str, Any]) -> bool:
    """Whether anything of it had an effect, or was not counted."""
    is_counted = all(
        (t["strangers"], t["frames"]) == (t["strangers_counted"], t["frames_counted"])
        for t in results["targets"].values()
    )
    return not (is_counted and results["is_identical"] and not results["failures"])


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write `security.json` and `security.md` into `folder`; the page's path."""
    return write_page("security", results, render(results), folder)


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    given = machine_of(results)
    kinds = [
        (kind, "connection" if kind in STRANGERS else "frame", results["kinds"].get(kind, 0), what)
        for kind, what in {**STRANGERS, **PEERS}.items()
    ]
    targets = [(name, *(f"{t[key]:,}" for key in t)) for name, t in results["targets"].items()]
    memory = [(name, m["before"], m["peak"]) for name, m in results["memory_mb"].items()]
    verdict = "identical" if results["is_identical"] else "**not identical**"
    return "".join(
        [
            _INTRODUCTION,
            f"Machine: {given}. Size: {results['size']}.\n\n",
            f"{results['sent']:,} attempts in {results['seconds']:.0f} s on every socket of a "
            f"running query (NexMark Q12 at {RATE:,.0f} tuples/s, checkpoints on an embedded "
            f"store). Failures of nodes meanwhile: {len(results['failures'])}. Its "
            f"{results['output_tuples']:,} output tuples, compared with the batch twin: "
            f"{verdict}. Checkpoints stored: {results['checkpoints']}.\n\n",
            table(("what", "is one", "sent", "it is"), kinds),
            "\nCounted where it arrived:\n\n",
            table(
                ("socket", "strangers", "refused handshakes", "bad frames", "refused frames"),
                targets,
            ),
            "\nResident memory, MB. The driver holds the attacker too:\n\n",
            table(("process", "before", "peak"), memory),
        ]
    )
