"""The report says what was measured, and says so when a target was missed."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast_bench.recovery import catch_up_of, said_of_catch_up
from holdfast_bench.spine_page import PAGE
from holdfast_bench.targets import judge

pytest.importorskip("matplotlib")


def runs(seconds: float) -> list[dict[str, Any]]:
    return [{"seconds": seconds, "cpu_s": {"counts[0]": 0.5}}]


@pytest.fixture
def results() -> dict[str, Any]:
    """As `spine.run` gives them, with a slow recovery and a slow Q12."""
    kill = {
        "state_bytes": 10_500_000,
        "first_output_ms": 700.0,
        "detected_ms": 300,
        "restarted_ms": 200,
        "replayed_ms": 100,
        "recovered_ms": 690,
        "replayed_tuples": 200_000,
        "caught_up_ms": 2_000,
    }
    of_recovery = {
        "keys": 200_000,
        "tuples_per_s": 10_000.0,
        "kills": [kill],
        "first_output_ms": {"median": 700.0, "max": 700.0},
        "reported_median_ms": {"recovered_ms": 690},
        "catch_up": catch_up_of([kill]),
        "state_bytes_min": 10_500_000,
        "is_identical": True,
        "runs": [{}],
    }
    half = of_recovery | {"tuples_per_s": 400_000.0, "most_tuples_per_s": 800_000}
    emit = {"p50_ms": 2.0, "p99_ms": 9.0, "max_ms": 12.0, "runs": [{"histogram": [[1000, 5]]}]}
    measured = {
        "throughput": {
            "q12": {
                "tuples": 1000,
                "tuples_per_s": {"holdfast": 1e7, "triggers": 1e6, "at_once": 2e6},
                "tuples_per_s_with_start": {"holdfast": 5e6, "triggers": 1e6, "at_once": 2e6},
                "ratio": {"triggers": 10.0, "at_once": 5.0},
                "ratio_with_start": {"triggers": 5.0, "at_once": 2.5},
                "cpu_s": {"holdfast": 0.5, "triggers": 2.0, "at_once": 1.0},
                "is_identical": True,
                "runs": {"holdfast": runs(0.1), "triggers": runs(1.0), "at_once": runs(0.5)},
            }
        },
        "latency": {"tuples_per_s": 10_000, "seconds": 5, "emit": {"changes": emit}},
        "recovery": of_recovery | {"at_half": half},
        "protection": {
            "q12": {
                "tuples": 1000,
                "tuples_per_s": {"upstream_backup": 9.7e6, "none": 1e7},
                "ratio": 0.97,
                "runs": {"upstream_backup": runs(0.1), "none": runs(0.1)},
            }
        },
        "start": {"runs_s": [3.0, 0.5], "median_s": 1.75, "max_s": 3.0},
    }
    targets = [
        {name: getattr(target, name) for name in target.__slots__} for target in judge(measured)
    ]
    return {
        "machine": {"cores": 2},
        "experiments": {"throughput": {"size": "quick", "seconds": 60.0}},
        "targets": targets,
    } | measured


def test_a_missed_target_is_called_missed_and_a_kept_one_met(results: dict[str, Any]) -> None:
    page = PAGE.render(results)
    assert "| recovery, median | ≤ 500 ms | 700 ms | **not met** |" in page
    assert "| start to first output, slowest | ≤ 5 s | 3 s | met |" in page
    assert "| throughput of q12, protected to unprotected | ≥ 0.95 × | 0.97 × | met |" in page


def test_wrong_output_misses_its_target(results: dict[str, Any]) -> None:
    recovery = results["recovery"] | {"is_identical": False}
    right = [t.is_met for t in judge({"recovery": recovery}) if t.is_correctness]
    assert right == [False, True]


def test_catch_up_is_set_beside_the_first_output_at_half_of_the_most(
    results: dict[str, Any],
) -> None:
    page = PAGE.render(results)
    assert "| 400,000 | 1 | 690 | 2,000 | 2.90 | yes |" in page
    assert "until results are as prompt as before, to the first one | ≤ 2 × | 2.9 × |" in page
    del results["recovery"]["at_half"]
    assert "Catch-up" not in PAGE.render(results)


def test_who_is_not_back_is_no_time_but_a_count() -> None:
    kills = [{"recovered_ms": 100, "caught_up_ms": ms} for ms in (150, 350, None)]
    found = catch_up_of(kills)
    assert found == {"median_ms": 250, "max_ms": 350, "ratio": 2.5, "back": 2, "of": 3}
    assert said_of_catch_up(found) == ("250 (2 of 3)", "2.50")
    assert said_of_catch_up(catch_up_of(kills[2:])) == ("not back", "–")


def test_only_what_was_measured_is_on_the_page(results: dict[str, Any]) -> None:
    del results["latency"]
    assert "## Latency" not in PAGE.render(results)


def test_the_page_the_results_and_every_plot_are_written(
    results: dict[str, Any], tmp_path: Path
) -> None:
    page = PAGE.write(results, tmp_path)
    assert json.loads((tmp_path / "spine.json").read_text()) == results
    for name in ("throughput", "latency", "recovery"):
        assert f"spine-{name}.png" in page.read_text()
        assert (tmp_path / f"spine-{name}.png").read_bytes().startswith(b"\x89PNG")


def test_an_experiment_that_did_not_end_is_named(results: dict[str, Any]) -> None:
    del results["latency"]
    results["failed"] = {"latency": "the windows did not come within 60 s"}
    page = PAGE.render(results)
    assert "**Not measured**: latency; the windows did not come within 60 s" in page
    assert "## Recovery" in page
