"""Metrics: each name is documented, scrapes say what a query shows, rules name what exists."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.driver.progress import consistency_block, recovery_block
from holdfast.errors import OptionError
from holdfast.view import metrics
from holdfast.view.metrics import FAMILIES, QueryCollector, serve_metrics

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "holdfast.json"
RECOVERY = {
    "node": "counts[0]",
    "detected_ms": 100,
    "restarted_ms": 50,
    "replayed_ms": 20,
    "recovered_ms": 200,
    "caught_up_ms": None,
}


def query() -> Any:
    unit = {
        "instances": 2,
        "numInputRows": 70,
        "numOutputRows": 7,
        "tupleCostUs": 0.5,
        "backlog": {"sourceRows": None, "pendingRows": 3, "heldRows": 2, "unsentRows": 1},
        "keptRows": 11,
        "stateBytes": 8192,
        "sentBytes": {"tuples": 1000, "acks": 10, "standby": 0, "restartPoints": 5},
        "checkpoint": {
            "failed": 1,
            "standstillMs": 0.2,
            "durationMs": 250,
            "writtenBytes": 4096,
            "ageMs": 3000,
        },
        "consistency": consistency_block([]),
        "line": {"ageMs": 1500},
        "round": None,
        "extent": {"bytes": 4096, "predictedRecoveryMs": 80.0},
    }
    progress = {
        "numInputRows": 100,
        "numOutputRows": 7,
        "lateRows": 0,
        "refusedFrames": 0,
        "refusedHandshakes": 2,
        "latencyMs": {"p50": 2.5, "p99": 8.0, "max": None},
        "eventTime": {"watermark": "2023-11-14T22:13:20.000Z"},
        "heldUp": [{"source": "bids", "forMs": 2500}],
        "sources": [{"description": "bids", "numInputRows": 100, "backlogRows": 40}],
        "units": {"counts": unit},
        "failures": [{}],
        "recoveries": [{}],
        "gaps": [],
        "damagedCheckpoints": [],
        "recovery": recovery_block([RECOVERY]),
    }
    replicas = [{"state": "running"}, {"state": "launching"}]
    status = {"nodes": {"counts[0]": {"replicas": replicas}}}
    return SimpleNamespace(
        name="bids", id="an id", runId="a run", lastProgress=progress, status=status
    )


@pytest.fixture
def samples() -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry()
    registry.register(QueryCollector(lambda: [query()]))
    text = generate_latest(registry).decode()
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_says_in_base_units_what_a_query_shows(
    samples: dict[tuple[str, ...], float],
) -> None:
    expected = {
        ("holdfast_query_info", "an id", "bids", "a run"): 1,
        ("holdfast_input_rows_total", "bids"): 100,
        ("holdfast_latency_seconds", "0.99", "bids"): 0.008,
        ("holdfast_event_time_seconds", "bids"): 1_700_000_000,
        ("holdfast_held_up_seconds", "bids", "bids"): 2.5,
        ("holdfast_last_recovery_seconds", "detection", "bids"): 0.1,
        ("holdfast_nodes", "bids", "launching"): 1,
        ("holdfast_nodes", "bids", "lost"): 0,
        ("holdfast_source_backlog_rows", "bids", "bids"): 40,
        ("holdfast_unit_tuple_cost_seconds", "bids", "counts"): 5e-7,
        ("holdfast_unit_checkpoint_age_seconds", "bids", "counts"): 3,
        ("holdfast_unit_consistency", "bids", "stable", "counts"): 1,
        ("holdfast_unit_line_age_seconds", "bids", "counts"): 1.5,
        ("holdfast_unit_extent_bytes", "bids", "counts"): 4096,
        ("holdfast_unit_predicted_recovery_seconds", "bids", "counts"): 0.08,
    }
    found = {(name, *sorted(labels)): value for (name, *labels), value in samples.items()}
    for (name, *labels), value in expected.items():
        assert found[(name, *sorted(labels))] == pytest.approx(value)


def test_a_value_that_there_is_not_is_left_out(samples: dict[tuple[str, ...], float]) -> None:
    shown = [key for key in samples if key[0] == "holdfast_unit_backlog_rows"]
    assert {"pending", "held", "unsent"} == {
        label for key in shown for label in key[1:] if label not in ("bids", "counts")
    }
    assert not any(
        key[0] == "holdfast_last_recovery_seconds" and "catch_up" in key for key in samples
    )
    assert not any(key[0] == "holdfast_unit_tentative_rows_total" for key in samples)
    assert not any(key[0] == "holdfast_unit_round_seconds" for key in samples)


def test_names_say_their_unit() -> None:
    for family in FAMILIES:
        name = family.full_name
        assert re.fullmatch(r"holdfast_[a-z_]+", name)
        assert family.help
        bare = name.removesuffix("_total")
        counts = ("_rows", "_seconds", "_bytes", "_frames", "_handshakes", "_checkpoints")
        assert bare.endswith(counts) or bare.removeprefix("holdfast_") in {
            *("query_info", "failures", "recoveries", "gaps", "nodes", "unit_instances"),
            "unit_consistency",
        }


def test_the_page_has_every_metric_and_no_other() -> None:
    rows = re.findall(r"^\| `(holdfast_\w+)` \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    documented = {name: (set(re.findall(r"`(\w+)`", labels)), text) for name, labels, text in rows}
    assert documented == {f.full_name: (set(f.labels), f.help) for f in FAMILIES}


def names_in(text: str) -> set[str]:
    return set(re.findall(r"holdfast_[a-z_]+", text))


def expressions() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    found = set().union(*map(names_in, expressions()))
    assert found <= {family.full_name for family in FAMILIES}
    assert len(found) > 20


def test_every_alert_stands_in_the_page() -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    documented = re.findall(r"^\| `(Holdfast\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert documented == [rule["alert"] for rule in rules]


def test_a_scrape_over_http_and_a_port_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve_metrics(0)
    try:
        assert server.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(server.url) as answer:
            assert b"# TYPE holdfast_input_rows_total counter" in answer.read()
        port = int(server.url.split(":")[2].split("/")[0])
        with pytest.raises(OptionError, match=f"127.0.0.1:{port}"):
            serve_metrics(port)
    finally:
        server.stop()


def test_reports_are_made_once_for_scrapes_that_come_together() -> None:
    made: list[int] = []

    def queries() -> list[Any]:
        made.append(1)
        return [query()]

    collector = QueryCollector(queries)
    assert list(collector.collect())
    assert list(collector.collect())
    assert len(made) == 1
    assert metrics.LOOPBACK == "127.0.0.1"
