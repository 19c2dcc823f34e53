"""Costs fitted to the real runs with few instances, and tried on those that were left out.

- **Throughput.** The processor time of a tuple is taken for a part of its own and one for each
  instance that tuples may go to (frames, switches between processes): a + b n, through the runs of
  a query under a protocol with 1 and 2 instances. With them goes the share of the processors that
  was used. On `cores` processors that foretells n instances on this machine, and with a processor
  for each instance a cluster.
- **Times.** How long checkpoints take to be durable, failures to be detected and replacements to
  work, is as in the runs of `TIMED` with 1 and 2 instances. How they add up is simulated
  (timing.py).

A prediction of a run that was fitted to says nothing; all others are tests, and their errors are
printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast_bench.checkmate.dataflows import PROTOCOLS
from holdfast_bench.checkmate.timing import UNIONS, Foretold, Setting, Times, foretell
from holdfast_bench.running import median

Results = dict[str, Any]
FITTED: Final = (1, 2)
"""Instances of the runs that costs are fitted to."""
TIMED: Final = "q12"
"""The query whose runs give times."""
CLUSTER: Final = (5, 10, 20, 50, 100)
_INTERVAL_MS: Final = 5_000
_JITTER_PART: Final = 5
_SECONDS, _FAILS_AT_S = 60.0, 18.0


@dataclass(frozen=True, slots=True)
class Tried:
    """A prediction beside what was measured.

    Attributes:
        what: Which figure.
        query: Of which query.
        workers: With how many instances of each unit.
        protocol: Under which protocol.
        foretold: What the fit says.
        measured: What was measured.
        is_fitted: Whether the fit has seen it.
    """

    what: str
    query: str
    workers: int
    protocol: str
    foretold: float
    measured: float
    is_fitted: bool

    @property
    def error(self) -> float:
        """By how much too high, as a share of what was measured."""
        return self.foretold / self.measured - 1 if self.measured else 0.0


# -- throughput -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TupleCost:
    """Of a query under a protocol.

    Attributes:
        own_us: Processor time of a tuple by itself.
        instance_us: More for each instance of a unit.
        busy: Which share of the processors was used.
    """

    own_us: float
    instance_us: float
    busy: float

    def rate(self, workers: int, cores: float) -> float:
        """Tuples per second."""
        return cores * self.busy * 1e6 / (self.own_us + self.instance_us * workers)


def tuple_cost(throughput: Results, query: str, protocol: str) -> TupleCost | None:
    """Fitted to the runs with `FITTED` instances; None: they have not all been measured."""
    by_workers = throughput.get(query, {})
    points = [by_workers.get(str(workers)) for workers in FITTED]
    if None in points:
        return None
    used = [_processor_us(point, protocol) for point in points]
    (first_us, second_us), (few, more) = [us for us, _ in used], FITTED
    instance_us = max(0.0, (second_us - first_us) / (more - few))
    busy = sum(share for _, share in used) / len(used)
    return TupleCost(first_us - instance_us * few, instance_us, busy)


def _processor_us(point: Results, protocol: str) -> tuple[float, float]:
    """Of a tuple, and the share of the processors that was used; medians over the runs."""
    runs, tuples = point["runs"][protocol], point["tuples"]
    cores = point["machine"]["cores"]
    cpu_us = median(run["cpu_s"] * 1e6 / tuples for run in runs)
    return cpu_us, median(run["cpu_s"] / (cores * run["seconds"]) for run in runs)


def throughput_tried(throughput: Results) -> Iterator[Tried]:
    """Rates on this machine: foretold beside measured."""
    for query, by_workers in throughput.items():
        for workers, point in sorted(by_workers.items(), key=lambda item: int(item[0])):
            for protocol in PROTOCOLS:
                cost = tuple_cost(throughput, query, protocol)
                if cost is None:
                    continue
                n, cores = int(workers), point["machine"]["cores"]
                measured = float(point["tuples_per_s"][protocol])
                foretold = cost.rate(n, cores)
                yield Tried("tuples/s", query, n, protocol, foretold, measured, n in FITTED)


# -- times ----------------------------------------------------------------------------------------


def times_of(failure: Results, protocol: str) -> Times | None:
    """Fitted to the runs of `TIMED`; None: none of them has been measured."""
    points = [failure.get(TIMED, {}).get(str(workers)) for workers in FITTED]
    runs = [point["protocols"][protocol] for point in points if point is not None]
    if not runs:
        return None
    durable = [ms for run in runs for ms in run.get("durable_all_ms") or [run["durable_ms"]]]
    return Times(
        tuple(float(ms) for ms in durable),
        _hop_ms(points),
        median(run["recovery"]["detected_ms"] for run in runs),
        median(run["recovery"]["restarted_ms"] + run["recovery"]["replayed_ms"] for run in runs),
    )


def _hop_ms(points: list[Results | None]) -> float:
    """By how much an aligned round takes longer than one that is not."""
    runs = [point["protocols"] for point in points if point is not None]
    both = [(run["COOR"], run["COOR unaligned"]) for run in runs]
    more = [aligned["durable_ms"] - other["durable_ms"] for aligned, other in both]
    return max(1.0, median(more))


def foretold_times(
    failure: Results, query: str, workers: int, protocol: str, interval_ms: int = _INTERVAL_MS
) -> Foretold | None:
    """With so many instances; None: nothing has been measured to go by."""
    times = times_of(failure, protocol)
    if times is None:
        return None
    jitter_ms = interval_ms // _JITTER_PART
    place = (interval_ms, jitter_ms, _SECONDS, _FAILS_AT_S)
    return foretell(Setting(query, workers, protocol, *place), times)


def times_tried(failure: Results) -> Iterator[Tried]:
    """Times of runs with a failure: foretold beside measured."""
    for query, by_workers in failure.items():
        for workers, point in sorted(by_workers.items(), key=lambda item: int(item[0])):
            for protocol, run in point["protocols"].items():
                found = foretold_times(failure, query, int(workers), protocol, _interval_ms(run))
                if found is None or query not in UNIONS:
                    continue
                is_fitted = query == TIMED and int(workers) in FITTED
                about = (query, int(workers), protocol)
                measured = run["recovery"]["recovered_ms"]
                if measured:
                    recovered = found.recovered_ms
                    yield Tried("recovered, ms", *about, recovered, measured, is_fitted)
                waits = steady_p50(run)
                if waits:
                    yield Tried("delay (p50), ms", *about, found.delay_ms, waits, is_fitted)


def _interval_ms(run: Results) -> int:
    sizes: dict[str, int] = run.get("sizes", {})
    return sizes.get("interval_ms", _INTERVAL_MS)


def steady_p50(run: Results) -> float | None:
    """The median latency of the seconds before the failure; None: there were no results."""
    before = sorted(s["p50"] for s in run["seconds"][3:15] if s["results"])
    return before[len(before) // 2] if before else None


def largest_error(tried: list[Tried]) -> float | None:
    """Of what was left out; None: nothing was."""
    return max((abs(each.error) for each in tried if not each.is_fitted), default=None)
