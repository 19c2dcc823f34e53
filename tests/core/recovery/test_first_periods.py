"""After a recovery checkpoints come often, and then as usual."""

from __future__ import annotations

import pytest

from holdfast.core.recovery.first_periods import EARLY_MS, EARLY_PART, FirstPeriods


@pytest.mark.parametrize("usual_ms", [10, 500, 5_000])
def test_periods_double_until_they_are_as_usual(usual_ms: int) -> None:
    periods = FirstPeriods(usual_ms)
    assert periods.take(usual_ms) == usual_ms
    periods.recovered()
    taken = [periods.take(usual_ms) for _ in range(12)]
    first = max(EARLY_MS, usual_ms // EARLY_PART)
    doubled = [first << number for number in range(12)]
    assert taken == [each if each < usual_ms else usual_ms for each in doubled]
    assert sum(each < usual_ms for each in taken) <= 8
