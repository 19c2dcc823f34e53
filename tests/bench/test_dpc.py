"""The benchmark of missing input, in small."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from holdfast.core.model.ids import END_US
from holdfast_bench import dpc
from holdfast_bench.dpc_page import PAGE
from holdfast_bench.dpc_targets import targets
from holdfast_bench.silenced import Silenced


def test_both_ways_of_reconciliation_are_timed_and_drawn(tmp_path: Path) -> None:
    sizes = replace(dpc.QUICK, state=(100, 1_000), redo=(20_000,), state_bytes=1 << 20)
    results = dpc.run(sizes, lambda text: None, only=("redo", "standstill", "overhead"))
    ways = [(point["reconcile"], point["state"]) for point in results["redo"]]
    both = ["checkpoint/redo", "undo/redo"]
    assert ways == [(way, state) for state in (100, 1_000) for way in both]
    assert all(0 < point["back_ms"] < point["redo_ms"] for point in results["redo"])
    usual = [p["throughput"] for p in results["overhead"] if p["protection"] == "UpstreamBackup"]
    assert usual == [1.0, 1.0], "of short windows, and of one that stays open"
    page = PAGE.write(results, tmp_path).read_text()
    assert "## Checkpoint/redo and undo/redo" in page
    assert "### Table 1" in page
    assert "## A chain" not in page
    assert (tmp_path / "dpc-redo.png").stat().st_size > 1000
    assert PAGE.former(tmp_path)["measured"]["redo"]["size"] == "quick"


def test_all_that_was_seen_from_outside_is_on_the_page(tmp_path: Path) -> None:
    seen = {
        "delay_new_ms": 91.5,
        "p50_ms": 3.25,
        "mean_ms": 3.5,
        "tentative": 1_234,
        "stable": 9,
        "waited_ms": 90,
        "stabilization_ms": 4,
        "is_identical": True,
    }
    results = {
        "machine": {"cores": 2},
        "sizes": asdict(dpc.QUICK),
        "bound": [{"x_ms": 100, "silent_s": 0.3, **seen}],
        "waits": [{"mode": "delay", "wait_ms": 500, **seen}],
        "modes": [{"combination": "process & delay", "silent_s": 2.0, **seen}],
        "chain": [{"combination": "process & process", "chain": "each", "nodes": 4, **seen}],
        "interval": [{"interval_ms": 10, "runs": 3, "spread_ms": 0.5, **seen, "mean_ms": 4.0}],
        "cost": [{"protection": "Replicated", **seen}],
        "crash": [
            {"keep_alive_ms": 30, "pause_ms": n, "tentative": 0, "is_identical": True}
            for n in (3.0, 1.0, 2.0)
        ],
        "runs": [
            {
                "seed": seed,
                "protection": {"replicas": 2, "reconcile": "undo/redo"},
                "struck": ["kill", "silence"],
                "failures": 1,
                "tentative": 5 * seed,
                "dropped": 0,
                "violations": ["I-LIVE: stands"] * seed,
                "commit": "0123abc",
            }
            for seed in (0, 1)
        ],
    }
    page = PAGE.write(results, tmp_path).read_text()
    assert "| 100 | 0.3 | 91.5 | 90 | 1,234 | 4 | True |" in page
    assert "| process & process | each | 4 | 91.5 |" in page
    assert "| 30 | 3 | 2.0 | 1.0 | 3.0 | 0 | True |" in page
    assert "| 2 | 2 | 0 | 2 | 2 | 1 | 0 | 1 |" in page
    assert "| 1 | I-LIVE: stands |" in page
    assert (tmp_path / "dpc-modes.png").stat().st_size > 1000


def test_a_target_that_is_missed_says_what_limits_it() -> None:
    bound = {"x_ms": 100, "p50_ms": 3.0, "is_identical": True}
    chain = {"combination": "process & process", "stabilization_ms": 7, "is_identical": False}
    redo = {"reconcile": "undo/redo", "state": 500, "tuples": 300_000, "back_ms": 1.0}
    found = targets(
        {
            "bound": [
                {**bound, "silent_s": 0.3, "delay_new_ms": 111, "waited_ms": 110, "tentative": 5},
                {**bound, "silent_s": 0.045, "delay_new_ms": 9, "waited_ms": 8, "tentative": 1},
            ],
            "crash": [{"keep_alive_ms": 100, "pause_ms": 101, "tentative": 2}],
            "standstill": [{"state_bytes": 1 << 29, "hold_ms": 0.5, "first_ms": 2.5}],
            "redo": [{**redo, "redo_ms": 301.0, "share_of_usual": 0.7}],
            "chain": [
                {**chain, "chain": "once", "nodes": 2, "tentative": 11},
                {**chain, "chain": "each", "nodes": 2, "tentative": 10},
            ],
            "overhead": [
                {"window": 1, "protection": "UpstreamBackup", "tuples_per_s": 16_384_000},
                {"window": 1, "protection": "undo/redo", "throughput": 0.8},
            ],
            "cost": [
                {"protection": "UpstreamBackup", "p50_ms": 3.0, "is_identical": True},
                {"protection": "Replicated", "p50_ms": 9.0, "is_identical": True},
            ],
        }
    )
    assert [each.figure for each in found if not each.limit] == [
        "greatest delay, X = 100 ms, as the query reports"
    ]
    assert [each.measured for each in found if each.limit] == [
        "111 ms",
        "1 in 1 failures",
        "4 of 6",
        "101 ms",
        "2",
        "2.50 ms",
        "0 of 1 do",
        "at most 301 ms",
        "11",
        "80.0%",
        "6.0 ms more",
    ]
    assert "250 µs for each 16,384 tuples, which take 1000 µs" in found[-2].limit


def test_targets_that_are_met_name_no_limit() -> None:
    met = {"x_ms": 300, "silent_s": 0.9, "delay_new_ms": 280, "waited_ms": 270, "p50_ms": 1.0}
    assert [each.limit for each in targets({"bound": [met]})] == ["", ""]


def test_a_silenced_source_stands_still_and_gives_all_when_it_is_back(tmp_path: Path) -> None:
    source = Silenced("a", 1_000, 10, 5_000_000, str(tmp_path))
    assert source.due(4_000_000) == (0, 4_000_000)
    assert source.due(6_000_500) == (1_001, 6_000_000)
    source.silence(5_500_000, 6_500_000)
    assert source.due(6_000_500) == (500, 5_500_000)
    assert source.due(6_500_000) == (1_500, 6_500_000)
    source.end(7_000_000)
    assert source.due(9_000_000) == (2_000, END_US)


def test_a_point_measured_before_a_column_existed_leaves_its_cell_empty() -> None:
    results = {"machine": {"cores": 2}, "overhead": [{"protection": "Replicated"}]}
    assert "| Replicated |" in PAGE.render(results)


def test_seeds_that_ran_before_stay_in_the_report() -> None:
    former = {"runs": [{"seed": 3, "tentative": 1}, {"seed": 10, "tentative": 1}]}
    new = [{"seed": 4, "tentative": 2}, {"seed": 3, "tentative": 2}]
    found = dpc.merged(former, {"runs": new, "measured": {}})
    assert [(p["seed"], p["tentative"]) for p in found["runs"]] == [(3, 2), (4, 2), (10, 1)]


def test_points_of_other_combinations_and_lengths_stay_in_the_report() -> None:
    def point(combination: str, silent_s: float, delay_ms: int) -> dict[str, object]:
        return {"combination": combination, "silent_s": silent_s, "delay_new_ms": delay_ms}

    former = {"modes": [point("delay & delay", 2.0, 1), point("process & delay", 2.0, 2)]}
    new = [point("process & delay", 3.0, 3), point("process & delay", 2.0, 4)]
    found = dpc.merged(former, {"modes": new, "measured": {}})
    said = [(p["combination"], p["silent_s"], p["delay_new_ms"]) for p in found["modes"]]
    assert said == [
        ("process & delay", 2.0, 4),
        ("process & delay", 3.0, 3),
        ("delay & delay", 2.0, 1),
    ]


def test_chains_of_both_schemes_stand_side_by_side_and_those_of_before_waited_once() -> None:
    def point(nodes: int, delay_ms: int, **chain: str) -> dict[str, object]:
        return {
            "combination": "delay & delay", "nodes": nodes, "delay_new_ms": delay_ms, **chain
        }  # fmt: skip

    former = {"chain": [point(1, 1), point(2, 2)]}
    new = [point(2, 3, chain="once"), point(1, 4, chain="each")]
    found = dpc.merged(former, {"chain": new, "measured": {}})
    said = [(p["chain"], p["nodes"], p["delay_new_ms"]) for p in found["chain"]]
    assert said == [("once", 1, 1), ("once", 2, 3), ("each", 1, 4)]
