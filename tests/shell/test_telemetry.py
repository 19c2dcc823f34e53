"""Latencies as a histogram."""

from __future__ import annotations

import random

from holdfast.shell.telemetry import LatencyHistogram


def test_no_quantile_exceeds_the_maximum() -> None:
    chance = random.Random(7)
    for _ in range(200):
        histogram = LatencyHistogram()
        for _ in range(chance.randint(1, 20)):
            histogram.add(chance.randint(0, 1_000_000), chance.randint(1, 50))
        said = histogram.summary()
        assert None not in said.values()
        assert said["p50"] <= said["p99"] <= said["max"]  # type: ignore[operator]


def test_a_quantile_is_within_a_bucket_of_the_latency() -> None:
    histogram = LatencyHistogram()
    for latency_us in range(1_000, 101_000, 1_000):
        histogram.add(latency_us, 1)
    assert 50.0 <= (histogram.quantile_ms(0.5) or 0) <= 50.0 * 1.05
    assert 99.0 <= (histogram.quantile_ms(0.99) or 0) <= 99.0 * 1.05


def test_without_tuples_there_is_no_quantile() -> None:
    assert LatencyHistogram().summary() == {"p50": None, "p99": None, "max": None}
