"""A real Prometheus, if there is one: it scrapes, and evaluates all rules and the dashboard."""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server
from test_metrics import DASHBOARD, RULES, query

from holdfast.view.metrics import FAMILIES, QueryCollector
from holdfast_chaos.ports import Server, free_port, wait_until

ROOT = Path(__file__).parents[2]
SETTINGS = ROOT / "deploy" / "prometheus" / "prometheus.yml"
GIVEN_TO = {"$__rate_interval": "1m", "$query": ".*"}
"""What Grafana puts into a dashboard's queries."""
PROMTOOL = shutil.which("promtool")
PROMETHEUS = shutil.which("prometheus")

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None,
    reason="no Prometheus; on Debian: apt-get install -y --no-install-recommends prometheus",
)


def promtool(*arguments: str | Path, folder: Path) -> str:
    done = subprocess.run(
        [str(PROMTOOL), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_settings_rules_and_what_a_scrape_says(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path / RULES.name)
    shutil.copy(SETTINGS, tmp_path / SETTINGS.name)
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    said = promtool("check", "config", SETTINGS.name, folder=tmp_path)
    assert f"{len(rules)} rules found" in said


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    found = {"query": "bids", **labels}
    inner = ",".join(f'{key}="{value}"' for key, value in found.items())
    return {"series": f"{name}{{{inner}}}", "values": values}


TROUBLE = {
    "HoldfastNodeMissing": [series("holdfast_nodes", "1x40", state="lost")],
    "HoldfastFailsOften": [series("holdfast_failures_total", "0+2x40")],
    "HoldfastStandsStill": [
        series("holdfast_input_rows_total", "9x40"),
        series("holdfast_source_backlog_rows", "5x40", source="bids"),
    ],
    "HoldfastFallsBehind": [series("holdfast_source_backlog_rows", "200000+900x40", source="bids")],
    "HoldfastEventTimeHeldUp": [series("holdfast_held_up_seconds", "61x40", source="bids")],
    "HoldfastTentative": [
        series("holdfast_unit_consistency", "1x40", unit="sums", state="up_failure")
    ],
    "HoldfastCheckpointsFail": [
        series("holdfast_unit_recent_failed_checkpoints", "3x40", unit="sums")
    ],
    "HoldfastCheckpointOld": [
        series("holdfast_unit_checkpoint_age_seconds", "301x40", unit="sums")
    ],
    "HoldfastStrangers": [series("holdfast_refused_handshakes_total", "0+5x40")],
    "HoldfastDown": [],
}
"""For each alert the series by which it must come; the last one comes when nobody says anything."""
HEALTHY = [
    series("holdfast_query_info", "1x40", id="i", run_id="r"),
    series("holdfast_nodes", "0x40", state="lost"),
    series("holdfast_nodes", "2x40", state="running"),
    series("holdfast_failures_total", "1x40"),
    series("holdfast_input_rows_total", "0+900x40"),
    series("holdfast_source_backlog_rows", "5x40", source="bids"),
    series("holdfast_held_up_seconds", "1x40", source="bids"),
    series("holdfast_unit_consistency", "0x40", unit="sums", state="up_failure"),
    series("holdfast_unit_recent_failed_checkpoints", "0x40", unit="sums"),
    series("holdfast_unit_checkpoint_age_seconds", "9x40", unit="sums"),
    series("holdfast_refused_handshakes_total", "1x40"),
]


def test_each_alert_comes_by_its_trouble_and_none_without(tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert TROUBLE.keys() == {rule["alert"] for rule in rules}
    asked = [f"count(ALERTS{{alertname='{name}',alertstate='firing'}})" for name in TROUBLE]
    cases = [
        {
            "interval": "30s",
            "input_series": TROUBLE[name],
            "promql_expr_test": [
                {"expr": expr, "eval_time": "15m", "exp_samples": [{"labels": "{}", "value": 1}]}
            ],
        }
        for name, expr in zip(TROUBLE, asked, strict=True)
    ]
    healthy = {
        "interval": "30s",
        "input_series": HEALTHY,
        "promql_expr_test": [{"expr": "ALERTS", "eval_time": "15m", "exp_samples": []}],
    }
    shutil.copy(RULES, tmp_path / RULES.name)
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [RULES.name], "tests": [*cases, healthy]}))
    assert "SUCCESS" in promtool("test", "rules", path.name, folder=tmp_path)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Prometheus with the settings of deploy/, scraping a query; its URL."""
    registry = CollectorRegistry()
    registry.register(QueryCollector(lambda: [query()]))
    metrics, thread = start_http_server(0, "127.0.0.1", registry)
    settings = SETTINGS.read_text()
    target = f"127.0.0.1:{metrics.server_address[1]}"
    assert "127.0.0.1:9464" in settings
    settings = settings.replace("127.0.0.1:9464", target).replace(": 5s", ": 2s")
    (tmp_path / "prometheus.yml").write_text(settings)
    shutil.copy(RULES, tmp_path / RULES.name)
    at = ""

    def launch() -> subprocess.Popen[bytes]:
        nonlocal at
        at = f"127.0.0.1:{free_port()}"
        command = [str(PROMETHEUS), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        with (tmp_path / "log").open("ab") as log:
            return subprocess.Popen(
                [*command, f"--web.listen-address={at}"],
                cwd=tmp_path,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ["PATH"]},
            )

    running = Server("Prometheus", tmp_path / "log", launch)
    try:
        wait_until(lambda: bool(ask(f"http://{at}", "status/buildinfo")), [running], "it", 300)
        yield f"http://{at}"
    finally:
        running.kill()
        metrics.shutdown()
        metrics.server_close()
        thread.join()


def ask(server: str, path: str, **arguments: str) -> Any:
    url = f"{server}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
    with urllib.request.urlopen(url, timeout=120) as answer:
        said = json.load(answer)
    assert said["status"] == "success", said
    return said["data"]


def until(holds: Any) -> None:
    deadline = time.monotonic() + 300
    while True:
        try:
            if holds():
                return
        except OSError:
            pass  # It does not listen yet.
        assert time.monotonic() < deadline
        time.sleep(0.05)


def panels() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def filled(text: str) -> str:
    """A query of a panel, as Grafana asks it."""
    return re.sub(r"\$\w+", lambda name: GIVEN_TO[name[0]], text)


def test_a_real_prometheus_scrapes_and_evaluates_rules_and_dashboard(server: str) -> None:
    until(lambda: ask(server, "query", query="holdfast_input_rows_total")["result"])
    until(lambda: [t["health"] for t in ask(server, "targets")["activeTargets"]] == ["up"])
    known = set(ask(server, "label/__name__/values"))
    said = {f.full_name for f in FAMILIES}
    assert {name for name in known if name.startswith("holdfast_")} <= said
    types = {name: kinds[0]["type"] for name, kinds in ask(server, "metadata").items()}
    assert types["holdfast_input_rows"] == "counter"  # As OpenMetrics has it.
    (group,) = ask(server, "rules")["groups"]
    until(lambda: all(r["health"] == "ok" for r in ask(server, "rules")["groups"][0]["rules"]))
    assert len(group["rules"]) == len(TROUBLE)
    until(lambda: ask(server, "query", query="count_over_time(up[1m]) > 3")["result"])
    empty = [text for text in panels() if not ask(server, "query", query=filled(text))["result"]]
    assert all("tentative" in text for text in empty), empty  # The query has none.
