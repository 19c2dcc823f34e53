"""From topic to topic: what is measured, what is said of it, and that it runs at all."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from holdfast_bench.peers import page as peers_page
from holdfast_bench.peers import topics
from holdfast_bench.peers.peer import PEERS
from holdfast_bench.peers.topics import TopicsSizes
from holdfast_bench.running import BenchFailed
from holdfast_chaos.kafka_broker import KafkaBroker, NoBroker

SIZES = TopicsSizes(("q12",), 2_000, 1_000, 3, 2.0, 1.0)
EXPERIMENTS = {"topics": {"size": "quick", "sizes": {"topics": asdict(SIZES)}, "seconds": 1.0}}


def found(p99_ms: float) -> dict[str, Any]:
    run = {"tuples_per_s": 1_000, "p50_ms": 1.0, "p99_ms": p99_ms, "max_ms": 99.0, "results": 5}
    return run | {"latest_release_ms": 0.1}


def test_systems_alternate_and_one_that_fails_does_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    rates: list[int] = []

    def maximum(system: Any, *_: Any) -> dict[str, Any]:
        if system.name == "holdfast-soon":
            raise BenchFailed("no last result")
        return {"tuples_per_s": 5_000, "seconds": 0.4}

    def latencies(system: Any, _: Any, name: str, rate: int) -> dict[str, Any]:
        order.append(system.name)
        rates.append(rate)
        if system.name == "spark" and name.startswith("same"):
            raise BenchFailed("no result")
        return found(float(len(order)))

    monkeypatch.setattr(topics, "_maximum", maximum)
    monkeypatch.setattr(topics, "_latencies", latencies)
    course = topics._Course(None, "", "q12", SIZES)  # type: ignore[arg-type]
    measured = topics._measure(course, lambda _: None)
    first = ["holdfast", "holdfast-at-least-once", "spark", "spark-realtime"]
    assert order[:5] == [*first, "holdfast"]
    assert rates == [1_000] * 10 + [2_500] * 12
    failures = {"holdfast-soon": "no last result", "spark 1,000/s": "no result"}
    assert measured["failures"] == failures
    runs = measured["systems"]["holdfast"]
    assert runs["1,000/s"]["p99_ms"] == 5.0, "the middle one of 1, 5 and 8"
    assert runs["50%"]["p99_ms"] == 15.0, "the middle one of 11, 15 and 19"


def test_the_page_compares_with_real_time_mode() -> None:
    systems = {
        "holdfast": 30.0,
        "holdfast-soon": 10.0,
        "holdfast-at-least-once": 5.0,
        "spark": 900.0,
        "spark-realtime": 20.0,
    }
    measured = {
        name: {
            "1,000/s": found(p99) | {"runs": []},
            "50%": found(p99 / 2) | {"runs": [], "tuples_per_s": 2_500},
        }
        for name, p99 in systems.items()
    }
    maxima = {name: {"tuples_per_s": 5_000, "seconds": 0.4} for name in systems}
    about = {"requirements": (), "quirks": (), "refuses": {}, "absent": ""}
    results = {
        "machine": {},
        "experiments": EXPERIMENTS,
        "peers": {peer.name: about | {"title": peer.title} for peer in PEERS},
        "topics": {"q12": {"maxima": maxima, "systems": measured, "failures": {}}},
    }
    page = peers_page.PAGE.render(results)
    assert "| q12 | Holdfast, commit_interval=None | 5,000 | 0.40 |" in page
    assert "| q12 | 1,000/s | Holdfast, commit_interval=None | 1,000 | 1.0 | 10.0 |" in page
    assert "| q12 | 50% | Structured Streaming, real-time mode | 2,500 | 1.0 | 10.0 |" in page
    what = "p99 of q12 from topic to topic at"
    whose = "that of the best peer, Structured Streaming, real-time mode, to Holdfast's"
    assert f"| {what} 1,000/s, at least once, as the peers, {whose} | > 1 | 4 | met |" in page
    half = "half of the maximum, exactly once, unlike the peers"
    assert f"| {what} {half}, {whose} | > 1 | 0.667 | **not met** |" in page


def test_without_a_broker_the_page_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fetched(*_: Any) -> Path:
        raise NoBroker("no mvn")

    monkeypatch.setattr(topics, "fetched", fetched)
    measured = topics.measure(SIZES, tmp_path, lambda _: None)
    assert measured == {"q12": {"maxima": {}, "systems": {}, "failures": {"holdfast": "no mvn"}}}
    page = peers_page.PAGE.render(
        {"machine": {}, "experiments": EXPERIMENTS, "peers": {}, "topics": measured}
    )
    assert "- Holdfast, q12: no mvn" in page


@pytest.mark.slow
def test_every_bid_from_a_topic_has_a_result_in_another(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_UP_RATE", 50)  # Whoever comes up late has not much to make up.
    monkeypatch.setattr(topics, "_DRAIN_S", 20.0)  # However late results are, they count.
    query, system = "q12", topics.SYSTEMS[2]
    course = topics._Course(kafka, "", query, SIZES)
    run = topics._latencies(system, course, "latencies", SIZES.rate)
    wanted = SIZES.rate * SIZES.seconds
    caught_up = SIZES.rate * run["latest_release_ms"] / 1000  # On a machine that was late before.
    assert 0.95 * wanted - caught_up <= run["results"] <= 1.05 * wanted + caught_up
    assert 0 < run["p50_ms"] <= run["p99_ms"] <= run["max_ms"]


@pytest.mark.slow
def test_a_burst_is_over_with_the_last_result(
    kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_UP_RATE", 50)
    course = topics._Course(kafka, "", "q1", SIZES)
    run = topics._maximum(topics.SYSTEMS[2], course, "burst")
    assert run["tuples_per_s"] == pytest.approx(SIZES.bids / run["seconds"], rel=0.01)
