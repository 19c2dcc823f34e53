"""Latencies of peers: in turn, several times, of which the run with the median p99 counts."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast_bench.peers import latency
from holdfast_bench.peers import page as peers_page
from holdfast_bench.peers.latency import LatencySizes
from holdfast_bench.peers.peer import HOLDFAST, PEERS, Peer
from holdfast_bench.running import BenchFailed

SPARK = next(peer for peer in PEERS if peer.name == "spark")
SIZES = LatencySizes(("q3",), (0.1, 0.5), 3, 1.0, 0.0, 0)
MAXIMA = {"q3": {"systems": {name: {"tuples_per_s": 1_000} for name in ("holdfast", "spark")}}}
INSTALLED = SimpleNamespace(python=lambda peer: Path("/nowhere"))


class Runs:
    """In place of the real ones: gives p99s in turn, and fails where there is none."""

    def __init__(self, p99_ms: dict[str, list[float]]) -> None:
        self.p99_ms, self.order = p99_ms, list[str]()

    def __call__(self, peer: Peer, _: Path, __: str, rate: float, ___: Any) -> dict[str, Any]:
        self.order.append(peer.name)
        if not self.p99_ms[peer.name]:
            raise BenchFailed("no result")
        run = {"tuples_per_s": rate, "p99_ms": self.p99_ms[peer.name].pop(0)}
        return run | {"p50_ms": 1.0, "max_ms": 9.0, "results": 5}


def measured(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> dict[str, Any]:
    monkeypatch.setattr(latency, "run_at", runs)
    return latency.measure((HOLDFAST, SPARK), INSTALLED, SIZES, MAXIMA, lambda text: None)  # type: ignore[arg-type]


def test_systems_alternate_and_the_median_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs({"holdfast": [1.0, 9.0, 2.0, 3.0], "spark": [10.0, 20.0, 90.0, 40.0]})
    found = measured(monkeypatch, runs)["q3"]
    assert runs.order == ["holdfast", "spark"] * 4, "once at a tenth, three times at half"
    ours, theirs = found["systems"]["holdfast"], found["systems"]["spark"]
    assert (ours["10%"]["p99_ms"], theirs["10%"]["p99_ms"]) == (1.0, 10.0)
    assert (ours["50%"]["p99_ms"], theirs["50%"]["p99_ms"]) == (3.0, 40.0)
    assert [run["p99_ms"] for run in ours["50%"]["runs"]] == [9.0, 2.0, 3.0]
    assert all(0 <= run["stolen"] <= 1 for run in theirs["50%"]["runs"])


def test_who_fails_once_does_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs({"holdfast": [1.0, 2.0, 3.0, 4.0], "spark": [10.0, 20.0]})
    found = measured(monkeypatch, runs)["q3"]
    assert found["failures"] == {"spark at 50%": "no result"}
    assert runs.order.count("spark") == 3
    assert [run["p99_ms"] for run in found["systems"]["spark"]["50%"]["runs"]] == [20.0]


def test_the_page_shows_every_run_and_what_was_stolen(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs({"holdfast": [1.0, 9.0, 2.0, 3.0], "spark": [10.0, 20.0, 90.0, 40.0]})
    results = {
        "machine": {"cores": 2},
        "experiments": {},
        "peers": {
            p.name: {
                "title": p.title,
                "requirements": (),
                "quirks": (),
                "refuses": {},
                "absent": "",
            }
            for p in (HOLDFAST, SPARK)
        },
        "latency": measured(monkeypatch, runs),
    }
    for system in results["latency"]["q3"]["systems"].values():
        for run in system["50%"]["runs"]:
            run["stolen"] = 0.12
    page = peers_page.PAGE.render(results)
    assert "| 9 (12%), 2 (12%), 3 (12%) |" in page
    goal = "p99 of q3 at half of the maximum, Structured Streaming's to Holdfast's"
    assert f"| {goal} | ≥ 10 | 13.3 | met |" in page
