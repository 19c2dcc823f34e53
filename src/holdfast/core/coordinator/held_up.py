"""Which sources hold up event time, so that windows behind them stay open.

Where streams are merged by time, the slowest one decides. A source that says nothing more, or a
partition of a topic without records, thus holds up everything behind it. That may be right, if the
source will go on; somebody has to know of it all the same. So whatever has stood still for
`PATIENCE_MS` while others that it is merged with are further is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.model.ids import END_US, NodeId, StreamId

if TYPE_CHECKING:
    from holdfast.core.coordinator.reports import SourceReported
    from holdfast.core.haunit.plan import NodePlan

PATIENCE_MS: Final = 2_000


@dataclass(frozen=True, slots=True)
class SourcePromise:
    """What a source has promised, as far as the driver knows.

    Attributes:
        boundary_us: Nothing older follows.
        since_ms: Since when it has promised no more.
        is_idle: Whether it follows others as long as it has nothing to read.
        is_held_up: Whether a part of it is behind another one.
        slowest: The part that holds it back, for people; empty: nobody knows.
    """

    boundary_us: int
    since_ms: int
    is_idle: bool = False
    is_held_up: bool = False
    slowest: str = ""


@dataclass(frozen=True, slots=True)
class HeldUp:
    """One source stream that holds up event time.

    Attributes:
        stream: Its name, e.g. `bids[1]`.
        boundary_us: Where it stands; `BEGINNING_US`: it has promised nothing yet.
        for_ms: For how long.
        slowest: As in `SourcePromise`.
    """

    stream: StreamId
    boundary_us: int
    for_ms: int
    slowest: str


def promises_of(
    sources: Mapping[StreamId, SourceReported],
    former: Mapping[StreamId, SourcePromise],
    now_ms: int,
) -> dict[StreamId, SourcePromise]:
    """What a node's sources have promised, and since when.

    Args:
        sources: As the node has just said.
        former: What was known before; as long as a source promises the same, since then.
        now_ms: The time.
    """
    promises: dict[StreamId, SourcePromise] = {}
    for stream, said in sources.items():
        if said.boundary_us is None:
            continue
        known = former.get(stream)
        is_same = known is not None and known.boundary_us == said.boundary_us
        promises[stream] = SourcePromise(
            said.boundary_us,
            known.since_ms if known is not None and is_same else now_ms,
            said.is_idle,
            said.is_held_up,
            said.slowest,
        )
    return promises


def meetings(plans: Iterable[NodePlan]) -> tuple[frozenset[StreamId], ...]:
    """The source streams that are merged with one another, per node that merges any."""
    by_node = {plan.node: plan for plan in plans}
    known: dict[NodeId, frozenset[StreamId]] = {}

    def sources(node: NodeId) -> frozenset[StreamId]:
        if node not in known:
            found: set[StreamId] = set()
            for spec in by_node[node].inputs:
                if spec.is_feedback:
                    continue  # It is made of the others.
                found |= {spec.stream} if spec.producer is None else sources(spec.producer)
            known[node] = frozenset(found)
        return known[node]

    met = [sources(plan.node) for plan in by_node.values() if len(plan.inputs) > 1]
    return tuple(dict.fromkeys(found for found in met if len(found) > 1))


def held_up(
    met: Iterable[frozenset[StreamId]], promises: Mapping[StreamId, SourcePromise], now_ms: int
) -> list[HeldUp]:
    """What holds up event time now, in the order of `promises`.

    Args:
        met: As `meetings` gives it.
        promises: Of the sources that the driver has heard of.
        now_ms: The time.
    """
    holders = {stream for stream, said in promises.items() if said.is_held_up}
    for streams in met:
        reached = {s: promises[s] for s in streams if s in promises}
        slowest_us = min((said.boundary_us for said in reached.values()), default=END_US)
        slowest = {s: said for s, said in reached.items() if said.boundary_us == slowest_us}
        if len(slowest) == len(reached):
            continue
        awake = {s for s, said in slowest.items() if not said.is_idle}
        holders |= awake or set(slowest)
    return [
        HeldUp(stream, said.boundary_us, now_ms - said.since_ms, said.slowest)
        for stream, said in promises.items()
        if stream in holders
        and said.boundary_us != END_US
        and now_ms - said.since_ms >= PATIENCE_MS
    ]
