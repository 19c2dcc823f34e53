"""HA's experiments by simulation: what they measure, and what the report says of it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast_bench.ha import experiments
from holdfast_bench.ha import page as ha_page
from holdfast_bench.ha.experiments import (
    APPROACHES,
    EXPERIMENTS,
    Point,
    configurations,
    measure,
    once,
)
from holdfast_bench.ha.paper import PRINTED, PaperQuery

FILTER, UNION = PaperQuery("filter"), PaperQuery("union")
QUERIES = (*dict.fromkeys(point.query for name in EXPERIMENTS for point in configurations(name)),)
measured, run = cache(measure), cache(once)  # The same configuration serves several tests.
K_MS = 45.0  # 40 ms until inputs are redirected, and 5 for the first tuple.


@pytest.fixture(autouse=True)
def runs_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed of a configuration runs once, whoever averages it."""
    monkeypatch.setattr(experiments, "once", run)


def test_a_run_is_the_same_every_time() -> None:
    assert once(FILTER, "UpstreamBackup", 50, 7) == once(FILTER, "UpstreamBackup", 50, 7)
    assert once(FILTER, "UpstreamBackup", 50, 7) != once(FILTER, "UpstreamBackup", 50, 8)


@pytest.mark.parametrize("turn", range(len(APPROACHES)), ids=APPROACHES)
def test_every_query_of_the_experiments_can_be_placed(turn: int) -> None:
    """By each approach one of every operator; the others, which differ in sizes, by one of them."""
    of_each_operator = {query.operator: query for query in QUERIES}.values()
    for query in dict.fromkeys((*of_each_operator, *QUERIES[turn :: len(APPROACHES)])):
        plan, _, _ = experiments._prepared(query, list(APPROACHES)[turn], 50)
        assert len(plan.nodes) >= 3


def test_keep_alives_alone_give_the_failure_away() -> None:
    for seed in (1, 2, 3):
        assert 200 <= run(FILTER, "UpstreamBackup", 50, seed).detection_ms <= 340


def test_a_replacement_has_its_first_tuple_after_r_and_d() -> None:
    for seed in (1, 2, 3):
        assert K_MS < run(FILTER, "UpstreamBackup", 50, seed).recovery_ms < K_MS + 8


def test_tuples_are_counted_as_the_paper_counts_them() -> None:
    filtered = run(FILTER, "UpstreamBackup", 50, 1)
    assert filtered.traffic.tuples == pytest.approx(filtered.seconds * 1_000 * 50, rel=0.01)
    assert filtered.traffic.acks == pytest.approx(filtered.seconds * 20 * 16, rel=0.06)


def test_upstream_backup_acknowledges_every_stream_for_itself() -> None:
    filtered, united = (measured("x", query, "UpstreamBackup", 50, 1) for query in (FILTER, UNION))
    assert filtered.overhead_percent == pytest.approx(0.64, abs=0.04)
    assert united.overhead_percent == pytest.approx(1.28, abs=0.08)


def test_a_state_takes_longer_to_rebuild_the_larger_it_is() -> None:
    times = [
        run(PaperQuery(window_ms=window), "UpstreamBackup", 50, 1).recovery_ms
        for window in (100, 200)
    ]
    assert times[1] > times[0] + 20


def test_a_replay_as_in_the_paper_opens_windows_one_by_one_and_sends_before_it_processes() -> None:
    query = PaperQuery(window_ms=300)
    ours = run(query, "UpstreamBackup", 50, 1)
    theirs = run(query, "UpstreamBackup", 50, 1, is_as_in_paper=True)
    replayed = 300 + 2 * 50 + 10
    saved_ms = ours.recovery_ms - theirs.recovery_ms
    assert saved_ms == pytest.approx(300 * 0.3 / 2 - replayed * 0.025, rel=0.1)


def test_amnesia_loses_the_state_and_what_comes_until_inputs_are_redirected() -> None:
    point = measured("table6", PaperQuery(), "Amnesia", 50, 1)
    formula = ha_page._beside(point)["paper_lost_tuples"]
    assert formula is not None
    assert formula <= point.lost_tuples < formula + 150
    page = ha_page.PAGE.render(_results(point))
    assert "## Amnesia" in page
    assert "## Table 6" not in page


def test_an_active_standby_is_there_as_soon_as_it_is_told() -> None:
    point = measured("x", PaperQuery(), "ActiveStandby", 50, 1)
    assert point.recovery_ms < 8
    assert 100 < point.overhead_percent < 103


def test_a_passive_secondary_replays_what_came_since_the_last_difference() -> None:
    point = measured("x", FILTER, "PassiveStandby", 50, 1)
    assert K_MS < point.recovery_ms < K_MS + 5
    state = measured("x", PaperQuery(window_ms=200), "PassiveStandby", 50, 1)
    assert state.recovery_ms < K_MS + 20


def test_a_checkpoint_spares_rebuilding_the_state() -> None:
    rebuilt, loaded = (
        run(PaperQuery(window_ms=200), approach, 50, 1).recovery_ms
        for approach in ("UpstreamBackup", "Checkpointed")
    )
    assert loaded < rebuilt - 20


def test_every_cell_that_the_paper_prints_is_measured() -> None:
    planned = {(name, wanted.query) for name in EXPERIMENTS for wanted in configurations(name)}
    assert {(cell.table, cell.query) for cell in PRINTED} <= planned


def test_the_report_has_the_papers_values_beside_ours(tmp_path: Path) -> None:
    size = ha_page.Size("test", 1, (), (), 0)
    results = ha_page.run(size, lambda _: None, only=("table6",), approaches=("UpstreamBackup",))
    page = ha_page.PAGE.write(results, tmp_path).read_text()
    assert "47.6" in page  # Printed for the filter.
    alone, fitted = page.split("fitted to the paper's figures")
    assert "- 3 of 3 recovery times.\n" in alone
    assert "- 3 of 3 overheads.\n" in alone
    assert "- 3 of 3 recovery times.\n" in fitted
    assert "overheads;" not in fitted, "nothing of them is fitted"
    assert "## Figure 6" not in page
    assert json.loads((tmp_path / "ha.json").read_text())["points"] == results["points"]


def _results(point: Point) -> dict[str, Any]:
    points = [point.to_json() | ha_page._beside(point)]
    return {"size": "test", "runs": 1, "machine": {}, "seconds": 0.0, "points": points}


def test_a_figure_is_drawn(tmp_path: Path) -> None:
    point = Point(
        "figure6", "UpstreamBackup", "aggregate", 100, 10, 1, 50, 1, 70, 1, 65, 250, 0.6, 2
    )
    ha_page.PAGE.write(_results(point), tmp_path)
    assert (tmp_path / "ha-figure6.png").read_bytes().startswith(b"\x89PNG")
    assert not (tmp_path / "ha-figure7.png").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--only", "table9"), "table8"), (("--approach", "Hope"), next(iter(APPROACHES)))],
)
def test_an_unknown_name_is_refused_with_those_there_are(
    arguments: tuple[str, ...], named: str
) -> None:
    done = CliRunner().invoke(app, ["bench", "ha", *arguments])
    assert done.exit_code == 2
    assert named in done.output
