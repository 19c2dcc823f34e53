"""From topic to topic: what is measured, what is said of it, and that it runs at all."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from holdfast.bench.peers import report, topics
from holdfast.bench.peers.peer import PEERS
from holdfast.bench.peers.topics import TopicsSizes
from holdfast.bench.running import BenchFailed
from holdfast.chaos.kafka_broker import KafkaBroker, NoBroker

SIZES = TopicsSizes(("q12",), 1_000, 3, 2.0, 1.0)
EXPERIMENTS = {"topics": {"size": "quick", "sizes": {"topics": asdict(SIZES)}, "seconds": 1.0}}


def found(p99_ms: float) -> dict[str, Any]:
    run = {"tuples_per_s": 1_000, "p50_ms": 1.0, "p99_ms": p99_ms, "max_ms": 99.0, "results": 5}
    return run | {"latest_release_ms": 0.1}


def test_systems_alternate_and_one_that_fails_does_not_run_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []

    def run(system: Any, *_: Any) -> dict[str, Any]:
        order.append(system.name)
        if system.name == "spark":
            raise BenchFailed("no result")
        return found(float(len(order)))

    monkeypatch.setattr(topics, "_run", run)
    measured = topics._measure("q12", None, "", SIZES, lambda _: None)  # type: ignore[arg-type]
    ours = ["holdfast", "holdfast-soon", "holdfast-at-least-once"]
    assert order[:6] == [*ours, "spark", "spark-realtime", "holdfast"]
    assert order.count("spark") == 1
    assert measured["failures"] == {"spark": "no result"}
    assert measured["systems"]["holdfast"]["p99_ms"] == 6.0, "the middle one of 1, 6 and 10"


def test_the_page_compares_with_real_time_mode() -> None:
    systems = {
        "holdfast": 30.0,
        "holdfast-soon": 10.0,
        "holdfast-at-least-once": 5.0,
        "spark": 900.0,
        "spark-realtime": 20.0,
    }
    measured = {name: found(p99) | {"runs": []} for name, p99 in systems.items()}
    about = {"requirements": (), "quirks": (), "refuses": {}, "absent": ""}
    results = {
        "machine": {},
        "experiments": EXPERIMENTS,
        "peers": {peer.name: about | {"title": peer.title} for peer in PEERS},
        "topics": {"q12": {"systems": measured, "failures": {}}},
    }
    page = report.render(results)
    assert "| q12 | Holdfast, commit_interval=None | 1,000 | 1.0 | 10.0 |" in page
    assert "| q12 | Structured Streaming, real-time mode | 1,000 | 1.0 | 20.0 |" in page
    what = "p99 of q12 from topic to topic"
    whose = "that of the best peer, Structured Streaming, real-time mode, to Holdfast's"
    assert f"| {what}, at least once, as the peers, {whose} | > 1 | 4 | met |" in page
    assert (
        f"| {what}, exactly once, unlike the peers, {whose} | > 1 | 0.667 | **not met** |" in page
    )


def test_without_a_broker_the_page_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fetched(*_: Any) -> Path:
        raise NoBroker("no mvn")

    monkeypatch.setattr(topics, "fetched", fetched)
    measured = topics.measure(SIZES, tmp_path, lambda _: None)
    assert measured == {"q12": {"systems": {}, "failures": {"holdfast": "no mvn"}}}
    page = report.render(
        {"machine": {}, "experiments": EXPERIMENTS, "peers": {}, "topics": measured}
    )
    assert "- Holdfast, q12: no mvn" in page


@pytest.mark.slow
@pytest.mark.parametrize(("query", "number"), [("q1", 1), ("q12", 1), ("q12", 2)])
def test_every_bid_from_a_topic_has_a_result_in_another(
    query: str, number: int, kafka: KafkaBroker
) -> None:
    course = topics._Course(kafka, query, f"{query}-{number}", SIZES)
    run = topics._run(topics.SYSTEMS[number], "", course)
    assert run["results"] == pytest.approx(SIZES.rate * SIZES.seconds, rel=0.05)
    assert 0 < run["p50_ms"] <= run["p99_ms"] <= run["max_ms"]
