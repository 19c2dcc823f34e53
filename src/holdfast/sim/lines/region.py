"""The dataflows that are drawn: nodes, the channels between them, sources and sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.checkpoint.aligned import Aligned
from holdfast.core.checkpoint.bcs import BCS
from holdfast.core.checkpoint.cut_rule import CutRule
from holdfast.core.checkpoint.hmnr import HMNR
from holdfast.core.checkpoint.lazy_fi import LazyFI
from holdfast.core.checkpoint.scope import Scope, components, scope_of
from holdfast.core.checkpoint.unaligned import Unaligned
from holdfast.core.checkpoint.uncoordinated import Uncoordinated
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.recovery import repeating as natures
from holdfast.core.recovery.checkpoint_graph import Channel

if TYPE_CHECKING:
    from random import Random

PROTOCOLS: Final = ("aligned", "unaligned", "unc", "bcs", "hmnr", "lazy-fi")
_INDUCED: Final[dict[str, Callable[[Scope], CutRule]]] = {
    "bcs": BCS,
    "hmnr": HMNR,
    "lazy-fi": LazyFI,
}


@dataclass(frozen=True, slots=True)
class LineSpec:
    """A node.

    Attributes:
        name: Its name.
        is_determined: What it puts out depends on its one input alone.
        repeats: See core/recovery/repeating.py.
        repeating: All nodes that do.
        inputs: Its streams; the source's, if it reads one, comes first.
        has_source: Whether it does.
        outputs: To other nodes.
        sink: The stream of its results.
        senders: Per input who sends; the source: nobody.
        receivers: Per output who receives.
        waits_for: Per input whether aligned cuts wait for markers on it.
        keeps: Per output whether aligned cuts store what is in flight on it.
        members: Who takes part in what communication induces.
    """

    name: NodeId
    is_determined: bool
    repeats: bool
    repeating: frozenset[str]
    inputs: tuple[StreamId, ...]
    has_source: bool
    outputs: tuple[StreamId, ...]
    sink: StreamId
    senders: tuple[NodeId, ...]
    receivers: tuple[NodeId, ...]
    waits_for: tuple[bool, ...]
    keeps: tuple[bool, ...]
    members: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class LinesPlan:
    """What is drawn.

    Attributes:
        protocol: One of `PROTOCOLS`.
        specs: The nodes by name.
        channels: All streams between them.
        kept: How many lines recovery may go back to.
        is_whole: Everybody goes back after a failure.
    """

    protocol: str
    specs: dict[NodeId, LineSpec]
    channels: tuple[Channel, ...]
    kept: int
    is_whole: bool

    @property
    def is_coordinated(self) -> bool:
        """Whether there are rounds."""
        return self.protocol in ("aligned", "unaligned")


def rule_of(protocol: str, spec: LineSpec) -> CutRule:
    """A new cut rule for a node."""
    if protocol == "aligned":
        return Aligned(spec.waits_for)
    if protocol == "unaligned":
        return Unaligned(len(spec.inputs))
    if protocol == "unc":
        return Uncoordinated(len(spec.inputs))
    return _INDUCED[protocol](scope_of(spec.name, spec.members, spec.senders, spec.receivers))


def draw_region(rng: Random, protocol: str, *, is_scoped: bool = True) -> LinesPlan:
    """A dataflow of two to five nodes, often with cycles."""
    count = rng.randint(2, 5)
    names = [NodeId(f"n{i}") for i in range(count)]
    edges = _edges(rng, count)
    backward = {(a, b) for a, b in edges if a >= b}
    sourced = {b: not any(e[1] == b for e in edges) or rng.random() < 0.2 for b in range(count)}
    determined = {
        b: sum(e[1] == b for e in edges) + sourced[b] == 1 and rng.random() < 0.6
        for b in range(count)
    }
    repeats = natures.repeating(
        {
            names[b]: natures.UnitNature(
                True,
                determined[b],
                tuple(natures.Reading(names[a]) for a, c in edges if c == b),
            )
            for b in range(count)
        }
    )
    named = tuple((names[a], names[b]) for a, b in edges)
    scopes = components(named) if is_scoped else {}
    specs = {}
    for b in range(count):
        ins = [(names[a], names[b]) for a, c in edges if c == b]
        outs = [(names[b], names[c]) for a, c in edges if a == b]
        source = (StreamId(f"src>{names[b]}"),) if sourced[b] else ()
        specs[names[b]] = LineSpec(
            names[b],
            determined[b],
            names[b] in repeats,
            repeats,
            (*source, *(_stream(*e) for e in ins)),
            sourced[b],
            tuple(_stream(*e) for e in outs),
            StreamId(f"{names[b]}>sink"),
            (*(NodeId("") for _ in source), *(e[0] for e in ins)),
            tuple(e[1] for e in outs),
            (*(False for _ in source), *((names.index(e[0]), b) not in backward for e in ins)),
            tuple((b, names.index(e[1])) in backward for e in outs),
            scopes.get(names[b], (names[b],)) if is_scoped else tuple(names),
        )
    channels = tuple(Channel(_stream(a, b), a, b, a in repeats) for a, b in named)
    return LinesPlan(protocol, specs, channels, rng.choice((1, 1, 2)), rng.random() < 0.2)


def _edges(rng: Random, count: int) -> list[tuple[int, int]]:
    p = rng.choice((0.3, 0.5, 0.7))
    has_cycles = rng.random() < 0.6
    edges = [
        (a, b)
        for a in range(count)
        for b in range(count)
        if a != b and (a < b or has_cycles) and rng.random() < (p if a < b else p / 2)
    ]
    return edges or [(0, 1)]


def _stream(sender: NodeId, receiver: NodeId) -> StreamId:
    return StreamId(f"{sender}>{receiver}")
