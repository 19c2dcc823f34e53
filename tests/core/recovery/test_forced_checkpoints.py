"""How many checkpoints HMNR forces on a circle; beside the rules: tests/bench/test_checkmate.py."""

from __future__ import annotations

from holdfast.core.recovery.forced_checkpoints import forced_per_basic


def test_nobody_is_forced_off_a_circle() -> None:
    assert forced_per_basic(1, 5_000, 10) == 0
    assert forced_per_basic(10, 5_000, 0) == 9, "all others, if they hear at once"
