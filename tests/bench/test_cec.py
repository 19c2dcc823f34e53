"""The benchmark of eventual checkpoints, in small."""

from dataclasses import asdict, replace
from pathlib import Path

from holdfast.api.protections import CHECKPOINT_FOLDER
from holdfast_bench import cec, cec_page, cec_spark, cec_targets


def test_the_page_says_what_footprints_cost_and_how_soon_a_node_is_back(tmp_path: Path) -> None:
    sizes = replace(
        cec.QUICK, seconds=0.05, keys=500, shares=(0.5,), windows=(300,), objectives_ms=(1, 60_000)
    )
    results = cec.run(sizes, lambda text: None, only=("share", "objective"))
    slow, fast = results["share"]
    assert (slow["kind"], fast["kind"]) == (cec.SLOW, cec.FAST)
    for point in results["share"] + results["objective"]:
        assert 0 < point["extent_bytes"] <= 2 * point["written_bytes"]
        assert point["recovery_ms"] > 0
    kinds = [(point["kind"], point["windows"]) for point in results["objective"]]
    assert kinds == [(kind, 300) for kind in (cec.SLOW, cec.SLOW, cec.MIXED, cec.MIXED)]
    assert results["objective"][1]["shortfall"] == ""
    page = cec_page.write(results, tmp_path).read_text()
    assert "## Share" in page
    assert "## Beside others" not in page
    assert (tmp_path / "cec-share.png").stat().st_size > 1000
    assert cec_page.former(tmp_path)["sizes"]["keys"] == 500
    assert slow["written_per_changed"] > 0.3, "keys and counts take some bytes"
    assert "written_per_changed" not in fast
    assert slow["longest_on_core_ms"] > 0
    assert 0 < slow["pass_ratio"] < 20


def test_what_a_protection_has_stored_is_found(tmp_path: Path) -> None:
    for name in ("footprints", CHECKPOINT_FOLDER, "spill"):
        (tmp_path / name / "counts[0]").mkdir(parents=True)
        (tmp_path / name / "counts[0]" / "some").write_text(name)
    found = {path.read_text() for path in cec_spark._stored(tmp_path)}
    assert found == {"footprints", CHECKPOINT_FOLDER}


def test_kills_are_joined_with_those_of_before() -> None:
    def kill(windows: int, met: int) -> dict[str, int]:
        return {"windows": windows, "objective_ms": 100, "met": met}

    former = {"kills": [kill(10, 1), kill(20, 2)], "share": [1], "experiments": {"share": {}}}
    former["objective"] = [{"kind": "slow", "windows": 1, "objective_ms": 100}]
    now = {"kills": [kill(20, 3)], "experiments": {"kills": {}}}
    now["objective"] = [{"kind": "mixed", "windows": 1, "objective_ms": 100}]
    whole = cec_page.joined(former, now)
    assert whole["kills"] == [kill(10, 1), kill(20, 3)]
    assert whole["share"] == [1]
    assert [point["kind"] for point in whole["objective"]] == ["mixed", "slow"]
    assert list(whole["experiments"]) == ["share", "kills"]


def test_what_was_measured_beside_others_and_with_kills_is_on_the_page() -> None:
    times = dict.fromkeys(
        ("detected_ms", "restarted_ms", "replayed_ms", "recovered_ms", "p99_ms"), 7.5
    )
    beside = {"protection": "Checkpointed", "stored_bytes": 9, "longest_standstill_ms": 3.25}
    kills = {"windows": 10, "objective_ms": 100, "kills": 5, "met": 4, "said_before": 1}
    results = {
        "sizes": asdict(cec.QUICK),
        "beside": [beside | times],
        "kills": [kills | times | {"predicted_ms": 88.5}],
        "experiments": {},
    }
    page = cec_page.render(results)
    assert "3.25" in page.partition("## Beside others")[2]
    assert "88.5" in page.partition("## Kills")[2]


def test_what_misses_its_target_has_beside_it_what_limits_it() -> None:
    slow = {
        "kind": "slow",
        "share": 0.02,
        "throughput": 0.9,
        "pass_ratio": 1.07,
        "mark_share": 0.01,
        "check_share": 0.02,
        "longest_check_ms": 4.5,
        "longest_on_core_ms": 0.6,
        "p99_check_ms": 0.9,
        "p99_on_core_ms": 0.5,
        "written_per_changed": 1.1,
    }
    late = {
        "kind": "slow",
        "windows": 10,
        "objective_ms": 100,
        "is_met": False,
        "shortfall": "",
        "recovery_ms": 130,
        "read_ms": 30,
        "adopt_ms": 40,
        "replay_ms": 60,
        "predicted_ms": 90,
    }
    at = {"rate": 100_000, "state_mb": 169.2}
    others = [
        {"protection": "EventualCheckpoints", "p99_ms": 10.0, "p50_ms": 2.0} | at,
        {"protection": "UpstreamBackup", "p99_ms": 10.0, "p50_ms": 2.0} | at,
    ]
    kills = {
        "windows": 10,
        "objective_ms": 100,
        "kills": 20,
        "met": 15,
        "said_before": 4,
        "restarted_ms": 50,
        "replayed_ms": 70,
        "predicted_ms": 80,
    }
    found = cec_targets.targets(
        {"share": [slow], "objective": [late], "results": others, "kills": [kills]}
    )
    limits = {each.measured: each.limit for each in found}
    assert "1.07 times" in limits["90.0%"]
    assert "0.6 ms of it on a core" in limits["4.5 ms"]
    assert limits["1.1"] == limits["1.00"] == ""
    assert any("100,000 tuples/s and 169 MB" in each.figure for each in found)
    assert "taking over 40, replaying 60; 90 ms were foretold" in limits["0 of 1"]
    assert limits["15 of 20, 4 of the others foretold"] == ""


def test_two_that_work_in_turn_do_a_part_each_until_both_are_done() -> None:
    done: list[str] = []

    def work(name: str, parts: int) -> cec.Parts:
        for _ in range(parts):
            done.append(name)
            yield
        return {"parts": parts}

    assert cec.alternately(work("a", 3), work("b", 1)) == [{"parts": 3}, {"parts": 1}]
    assert done == ["a", "b", "a", "a"]
