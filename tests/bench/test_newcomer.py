"""A newcomer's path counts only if a node was killed, came back, and it did not take too long."""

from typing import Any

import pytest

from holdfast.cli.views import what_failed
from holdfast_bench.newcomer import COMMANDS, COMMANDS_MAX, TARGET_S, is_met, render

BACK = what_failed([{"node": "counts[0]", "recovered_ms": 180, "replayed_tuples": 2_000}])


def results(**changed: Any) -> dict[str, Any]:
    steps = [{"command": command, "took_s": 1.0, "said": BACK} for command in COMMANDS]
    return {"machine": {"cores": 2}, "wheel_kb": 1, "steps": steps, "took_s": 3.0, **changed}


def test_a_node_that_came_back_in_time_is_what_a_newcomer_sees() -> None:
    assert len(COMMANDS) <= COMMANDS_MAX
    assert is_met(results())
    assert "counts[0] back after 180 ms" in render(results())


@pytest.mark.parametrize(
    "changed",
    [
        {"took_s": TARGET_S + 1},
        {"steps": [{"command": "x", "took_s": 1.0, "said": what_failed([])}]},
        {"steps": results()["steps"] * 2},
    ],
)
def test_what_took_too_long_or_showed_no_recovery_does_not_count(changed: dict[str, Any]) -> None:
    assert not is_met(results(**changed))
