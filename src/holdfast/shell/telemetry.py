"""What shells measure: latencies as a histogram that can be merged and shipped."""

from __future__ import annotations

import math

_BASE = math.log(1.05)


class LatencyHistogram:
    """Counts latencies in buckets 5 % apart, from 1 microsecond on."""

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        """Start from counts per bucket, as `counts` of another histogram gives them."""
        self.counts: dict[int, int] = dict(counts or {})
        self.max_us = 0

    def add(self, latency_us: int, count: int) -> None:
        """`count` tuples took `latency_us` microseconds."""
        bucket = int(math.log(max(1, latency_us)) / _BASE)
        self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.max_us = max(self.max_us, latency_us)

    def merge(self, counts: dict[int, int], max_us: int) -> None:
        """Add another histogram's counts."""
        for bucket, count in counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.max_us = max(self.max_us, max_us)

    def since(self, former: LatencyHistogram) -> LatencyHistogram:
        """What has come in after a former state; its maximum is that of a bucket."""
        more = {b: n - former.counts.get(b, 0) for b, n in self.counts.items()}
        found = LatencyHistogram({bucket: count for bucket, count in more.items() if count > 0})
        found.max_us = max((edge for edge, _ in found.upper_edges()), default=0)
        return found

    def quantile_ms(self, q: float) -> float | None:
        """The latency in ms that a share `q` of the tuples did not exceed; None without tuples.

        A bucket stands for its upper edge, but none for more than the greatest latency.
        """
        total = sum(self.counts.values())
        seen = 0
        for edge_us, count in self.upper_edges():
            seen += count
            if seen >= q * total:
                return round(min(edge_us, self.max_us) / 1000, 3)
        return None

    def upper_edges(self) -> list[tuple[int, int]]:
        """Every bucket with tuples, ascending: its upper edge in microseconds, and how many."""
        return [(round(math.exp((b + 1) * _BASE)), n) for b, n in sorted(self.counts.items())]

    def summary(self) -> dict[str, float | None]:
        """p50, p99 and max in milliseconds."""
        return {
            "p50": self.quantile_ms(0.5),
            "p99": self.quantile_ms(0.99),
            "max": round(self.max_us / 1000, 3) if self.counts else None,
        }
