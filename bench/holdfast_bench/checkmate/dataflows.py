"""What is measured: the paper's queries over inputs that are taken as they come. [CheckMate §V]

The paper's testbed takes tuples in the order of their arrival. So each kind of event comes from two
sources here, which a `union(order="arrival")` merges: what follows does not repeat, and all of it
recovers together. Merged by time instead, the same queries repeat, and every unit recovers alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import (
    CommunicationInduced,
    Coordinated,
    Protection,
    Uncoordinated,
    Unprotected,
)
from holdfast.api.streams import Stream
from holdfast.nexmark.generator import HOT_FOR_EVER, HOT_SPAN, NexmarkConfig
from holdfast.nexmark.queries import KINDS, build
from holdfast.nexmark.source import NexmarkSource
from holdfast_bench.inputs import LogInput, Recording, record

QUERIES: Final = ("q1", "q3", "q8", "q12")
PROTOCOLS: Final = ("unprotected", "COOR", "COOR unaligned", "UNC", "CIC")
VICTIMS: Final = {"q1": "union[0]", "q3": "join[0]", "q8": "join[0]", "q12": "counts[0]"}
"""Who is killed: the node with the query's state, or, without one, its only one."""
_HALVES: Final = (1, 2)
"""Seeds of the two sources of each kind."""
_SHARES: Final = {"person": 1, "auction": 3, "bid": 1}
_START_S: Final = 4.0


def protection_of(protocol: str, interval_ms: int) -> Protection:
    """As the paper sets it: jitter of a fifth of the interval, clocks between all instances."""
    interval, jitter = f"{interval_ms} milliseconds", f"{interval_ms // 5} milliseconds"
    return {
        "unprotected": Unprotected(),
        "COOR": Coordinated(interval=interval),
        "COOR unaligned": Coordinated(interval=interval, aligned=False),
        "UNC": Uncoordinated(interval=interval, jitter=jitter),
        "CIC": CommunicationInduced(interval=interval, jitter=jitter, scope="all"),
    }[protocol]


def _merged(query: str, source: Callable[[Dataflow, str, int], Stream], order: str) -> Dataflow:
    def both(flow: Dataflow, kind: str) -> Stream:
        first, second = (source(flow, kind, half) for half in _HALVES)
        return first.union(second, order=order)

    return build(query, both, emit="changes")


def shares_of(query: str, total: float) -> dict[str, float]:
    """Of so many tuples how many each source of each kind has."""
    kinds = KINDS[query]
    whole = sum(_SHARES[kind] for kind in kinds) * len(_HALVES)
    return {kind: total * _SHARES[kind] / whole for kind in kinds}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A query over logs on disk, as fast as it can.

    Attributes:
        query: Its name.
        logs: Per kind a log for each half.
    """

    query: str
    logs: dict[str, tuple[Recording, ...]]

    @staticmethod
    def write(query: str, tuples: int, folder: Path, hot_ratio: float = 0.0) -> Recorded:
        """Record so many tuples in all."""
        logs = {}
        for kind, count in shares_of(query, tuples).items():
            halves = []
            for half in _HALVES:
                place = folder / str(half)
                place.mkdir(exist_ok=True)
                config = NexmarkConfig(seed=half, hot_ratio=hot_ratio)
                halves.append(record(kind, int(count), config, place))
            logs[kind] = tuple(halves)
        return Recorded(query, logs)

    @property
    def tuples(self) -> int:
        """In all logs."""
        return sum(each.count for halves in self.logs.values() for each in halves)

    def flow(self, marks: str, partitions: int, order: str = "arrival") -> Dataflow:
        """The dataflow; each log notes in a folder when it was first read."""

        def source(flow: Dataflow, kind: str, half: int) -> Stream:
            log = LogInput(self.logs[kind][half - 1].log, f"{marks}/{half}")
            Path(log.marks).mkdir(exist_ok=True)
            name = f"{kind}s-{half}"
            return flow.source_generator(log, name=name, unit=name, partitions=partitions)

        return _merged(self.query, source, order)


@dataclass(frozen=True, slots=True)
class Paced:
    """A query over events that come at a rate.

    Attributes:
        query: Its name.
        rate: Tuples per second, of all kinds.
        seconds: For how long.
        hot_ratio: Share of events that refer to a hot item.
        is_hot_fixed: Whether that is the same one for ever, as in the paper; else it changes.
    """

    query: str
    rate: float
    seconds: float
    hot_ratio: float = 0.0
    is_hot_fixed: bool = False

    def flow(self, partitions: int, order: str = "arrival") -> tuple[Dataflow, float]:
        """The dataflow, and when its first event comes, in seconds since the epoch."""
        origin_s = time.time() + _START_S
        shares = shares_of(self.query, self.rate)
        per_group = {"person": 1, "auction": 3, "bid": 46}
        kind, rate = next(iter(shares.items()))
        events_per_second = max(1, int(rate * 50 / per_group[kind]))

        def source(flow: Dataflow, kind: str, half: int) -> Stream:
            config = NexmarkConfig(
                seed=half,
                events_per_second=events_per_second,
                hot_ratio=self.hot_ratio,
                hot_span=HOT_FOR_EVER if self.is_hot_fixed else HOT_SPAN,
            )
            count, rate = int(shares[kind] * self.seconds), shares[kind]
            events = NexmarkSource(kind, count, config, rate, int(origin_s * 1e6))
            name = f"{kind}s-{half}"
            return flow.source_generator(events, name=name, unit=name, partitions=partitions)

        return _merged(self.query, source, order), origin_s
