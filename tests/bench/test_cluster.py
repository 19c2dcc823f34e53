"""The page of `holdfast bench cluster`: what was tried, what was met, what was wrong."""

from pathlib import Path
from typing import Any

from holdfast_bench import cluster

MACHINE = {"cores": 2}


def a_run(protection: str, first_output_ms: float | None, **more: Any) -> dict[str, Any]:
    return {
        "run": {"protection": protection},
        "first_output_ms": first_output_ms,
        "held": ["data node data-1", "primary of counts[0]"],
        "is_identical": True,
        "lost": 0,
        "doubled": 0,
        "violations": [],
        **more,
    }


def results(*runs: dict[str, Any]) -> dict[str, Any]:
    return {"network": "NamespaceHosts", "executor": {"machine": MACHINE, "runs": list(runs)}}


def test_the_target_is_judged_by_the_median() -> None:
    met = cluster.render(results(a_run("embedded", 900.0), a_run("embedded", 9_000.0)))
    assert "4,950 ms (at most 2,000 ms: **not met**)" in met
    runs = [a_run("embedded", ms) for ms in (900.0, 1_000.0, 9_000.0)]
    assert "1,000 ms (at most 2,000 ms: met)" in cluster.render(results(*runs))
    assert "3 times a node, its sink and a data node" in cluster.render(results(*runs))


def test_a_killed_driver_has_a_target_of_its_own_with_and_without_another_in_standby() -> None:
    found = results(a_run("embedded", 900.0))
    for fault, first_output_ms in (("driver", 12_000.0), ("standby", 1_500.0)):
        runs = [a_run("upstream", first_output_ms)]
        found[fault] = {"machine": MACHINE, "runs": runs}
    page = cluster.render(found)
    assert "12,000 ms (at most 10,000 ms: **not met**)" in page
    assert "1,500 ms (at most 3,000 ms: met)" in page


def test_how_long_a_fault_was_felt_stands_beside_the_first_output() -> None:
    felt = [{"node": "counts[0]", "recovered_ms": 400, "caught_up_ms": ms} for ms in (600, None)]
    page = cluster.render(results(a_run("embedded", 900.0, recoveries=felt)))
    assert "| 900 | 900 | 900 | 600 | 1.50 |" in page
    assert "| 900 | 900 | 900 | – | – |" in cluster.render(results(a_run("embedded", 900.0)))


def test_what_was_wrong_is_on_the_page_and_in_the_exit_code() -> None:
    wrong = a_run("active", None, is_identical=False, lost=3, violations=["I-PRECISE: 3 lost"])
    found = results(a_run("embedded", 900.0), wrong)
    assert cluster.has_violations(found)
    assert "- executor, active: I-PRECISE: 3 lost" in cluster.render(found)
    assert not cluster.has_violations(results(a_run("embedded", 900.0)))


def test_a_program_with_another_output_is_a_violation() -> None:
    submitted = {"q12": {"is_identical": False, "error": "it did not end"}}
    found = results() | {"programs": {"machine": MACHINE, "submitted": submitted}}
    assert cluster.has_violations(found)
    assert "**it did not end**" in cluster.render(found)


def test_a_report_is_read_back(tmp_path: Path) -> None:
    assert cluster.former(tmp_path) == {}
    found = results(a_run("embedded", 900.0))
    page = cluster.write(found, tmp_path)
    assert page.read_text() == cluster.render(found)
    assert cluster.former(tmp_path) == found
