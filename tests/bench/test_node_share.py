"""A node's share for metrics and view: what the clock adds does not count; the target is one."""

from typing import Any

from holdfast_bench.node_share import TARGET, shares
from holdfast_bench.view import SEEN_TARGET_MS, is_met, render

BEFORE = {"reporting": 0, "measuring": 0, "calls": 0, "empty": 0, "at_ns": 0}
AFTER = {
    "reporting": 1_000_000,
    "measuring": 2_300_000,
    "calls": 1_000,
    "empty": 300_000,
    "at_ns": 10**9,
}


def test_shares_are_of_the_time_between_without_what_the_clock_adds() -> None:
    found = shares(BEFORE, AFTER)
    assert found["reporting_share"] == 0.001
    assert found["measuring_share"] == 0.002
    assert found["share"] == 0.003
    assert found["calls_per_s"] == 1_000


def results(share: float) -> dict[str, Any]:
    node = {**shares(BEFORE, AFTER), "share": share}
    place = {"place": "flow", "updates_per_s": 10.0, "share": 0.1}
    machine = {"cores": 2}
    return {
        "machine": machine,
        "units": 9,
        "update_kb": 1,
        "painted_ms": 9,
        "places": [place],
        "node": node,
        "kills": [{"failure_seen_ms": seen_ms, "recovery_seen_ms": 700} for seen_ms in (300, 500)],
    }


def test_a_node_that_spends_more_misses_the_target() -> None:
    assert is_met(results(TARGET / 2))
    assert not is_met(results(TARGET))
    assert "0.00150" in render(results(TARGET / 2))


def test_a_kill_that_is_seen_too_late_misses_the_target() -> None:
    found = results(TARGET / 2)
    assert "| failed | 400 | 500 |" in render(found)
    found["kills"][1]["failure_seen_ms"] = SEEN_TARGET_MS
    assert not is_met(found)
