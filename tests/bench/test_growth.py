"""The page of growth says what was measured, and what an idle node costs beside its goal."""

from pathlib import Path
from typing import Any

import pytest

from holdfast_bench import growth


def results(*, share: float, memory: int) -> dict[str, Any]:
    """As `growth.run` gives them: one load, one point of two experiments."""
    load = {
        "rate": 0,
        "cpu_share": {"counts[0]": share, "driver": 0.5, "jvm": 0.5},
        "memory": {"counts[0]": {"pss": memory, "rss": 2 * memory}},
    }
    point = {"tuples_per_s": 5_000_000, "p50_ms": 1.5, "p99_ms": 4.0, "stolen": 0.07}
    return {
        "machine": {"cores": 2},
        "size": "quick",
        "seconds": 3.0,
        "idle": [load],
        "keys": [{"at": 1_000, **point, "state_bytes": 52_000}],
        "rate": [{"at": 100, "p50_ms": 1.0, "p99_ms": 2.0}, {"at": "maximum", **point}],
    }


def test_an_idle_node_within_its_goals_meets_them() -> None:
    page = growth.render(results(share=0.004, memory=90_000_000))
    assert "| CPU of an idle node | ≤ 1% of a core | 0.40% | met |" in page
    assert "| memory of a node before state | ≤ 150 MB | 90 MB | met |" in page


def test_an_idle_node_beyond_its_goals_misses_them() -> None:
    page = growth.render(results(share=0.02, memory=200_000_000))
    assert page.count("**not met**") == 2


def test_points_without_a_rate_or_a_latency_have_empty_cells() -> None:
    page = growth.render(results(share=0.004, memory=90_000_000))
    assert "| 100 |  | 1.0 | 2.0 |  |  |" in page
    assert "| 1,000 | 5,000,000 | 1.5 | 4.0 | 0.1 | 7% |" in page


def test_the_report_keeps_the_experiments_that_were_not_repeated(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    growth.write(results(share=0.004, memory=90_000_000), tmp_path)
    assert growth.former(tmp_path)["keys"][0]["state_bytes"] == 52_000
    assert (tmp_path / "growth-keys.png").exists()


def test_an_experiment_that_is_repeated_alone_names_its_own_machine() -> None:
    before = results(share=0.004, memory=90_000_000)
    assert growth.combined({}, before) == before
    now = {"machine": {"commit": "abc", "load_before": 7.5}, "size": "full", "seconds": 9.0}
    third = {"stream_s": 7_200, "run_s": 300, "disk_bytes": 2e6, "files": 50}
    third |= {"node_bytes": 2e8, "driver": 3e8}
    now["day"] = [third | {"at": at} for at in (1, 2, 3)]
    found = growth.combined(before, now)
    assert (found["machine"], found["size"]) == (before["machine"], "quick")
    page = growth.render(found)
    assert "3 s in all. Measured another time: day: commit abc, load_before 7.5." in page
    assert "2.00 hours of the stream in 300 s" in page
