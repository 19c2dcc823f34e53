"""What sinks hold where units before them have rollback or gap recovery. [HA §3.1]

Precise recovery promises the output of a run without failures. What a weaker guarantee leaves of it
depends on the operators: a filter passes on what was lost or comes again, a window counts it. Two
things are promised of a sink: which of the rows of a run without failures it holds (`Held`), and
what may stand beside them (`Extra`). Both only become weaker on the way from a source to a sink.

A row is *settled* if all the input it is made of arrived after the last failure: whatever a failure
may cost or repeat, it is older.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.api.steps import (
    Distinct,
    IntervalJoin,
    Loop,
    Process,
    Resample,
    RunningAggregate,
    WindowAggregate,
    WindowJoin,
)
from holdfast.core.model.ids import NodeId, StreamId
from holdfast.core.recovery.guarantee import Guarantee

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.api.graph import Graph
    from holdfast.api.steps import Step
    from holdfast.core.haunit.plan import NodePlan


class Held(enum.IntEnum):
    """Which rows of a run without failures are there, weakest last."""

    ALL = 0
    SETTLED = 1
    UNKNOWN = 2


class Extra(enum.IntEnum):
    """What else may be there, weakest last."""

    NOTHING = 0
    COPIES = 1
    """Rows of a run without failures once more, none of them settled."""
    PARTS = 2
    """Results of the same windows and keys, of a part of their rows."""
    ANYTHING = 3
    """What operators make of parts."""


@dataclass(frozen=True, slots=True)
class Level:
    """What is promised of a stream."""

    held: Held = Held.ALL
    extra: Extra = Extra.NOTHING


_EXACT: Final = Level()


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised of a sink that has units with weaker guarantees before it.

    Attributes:
        level: Of its rows.
        given: Of what its `Conserved` step puts out; of other sinks as `level`.
        guarantees: The weaker guarantees before it.
        nodes: It, and all nodes before it.
        touched: Those of them whose failure may be seen.
        may_repeat: Whether copies may come although no unit has rollback recovery, if several
            nodes fail.
        groups: Positions of the columns that name the window and key of a part.
        counts: Positions of the columns that count the rows of a part.
    """

    level: Level
    given: Level
    guarantees: frozenset[Guarantee]
    nodes: frozenset[NodeId]
    touched: frozenset[NodeId]
    may_repeat: bool
    groups: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()


def touched_nodes(plans: Iterable[NodePlan]) -> frozenset[NodeId]:
    """The nodes whose streams may begin anew with other tuples, or that are behind such a node."""
    by_node = {plan.node: plan for plan in plans}
    weaker = {node for node, plan in by_node.items() if plan.rebases}
    return frozenset(node for node in by_node if weaker & _before(node, by_node))


def repeated_streams(plans: Iterable[NodePlan]) -> frozenset[StreamId]:
    """The sinks of nodes that recover together, whose results wait for no line."""
    outputs = (spec for plan in plans if plan.repeats_results for spec in plan.outputs)
    return frozenset(s for spec in outputs if spec.is_sink for s in spec.streams)


def shared_streams(plans: Iterable[NodePlan]) -> dict[StreamId, StreamId]:
    """Per stream of a further replica of a producer that of the first one, which has the same."""
    inputs = (spec for plan in plans for spec in plan.inputs)
    return {other.stream: spec.stream for spec in inputs for other in spec.alternates}


def skipping_streams(plans: Iterable[NodePlan]) -> frozenset[StreamId]:
    """The streams whose receivers begin with the newest after a failure: nothing is kept for it."""
    gaps = (plan for plan in plans if plan.guarantee is Guarantee.GAP)
    return frozenset(spec.stream for plan in gaps for spec in plan.inputs)


def promises_of(
    flow: Graph, plans: Iterable[NodePlan], conserved: dict[str, Step]
) -> dict[str, Promise]:
    """What is promised of each sink that is not precise.

    Args:
        flow: As it is written.
        plans: As it is placed.
        conserved: Of sinks that chance decides the step whose rows they stand for.
    """
    nodes = {plan.node: plan for plan in plans}
    touched = touched_nodes(nodes.values())
    levels = _Levels({p.unit: p.guarantee for p in nodes.values() if p.rebases})
    promises: dict[str, Promise] = {}
    for sink, step in flow.sinks.items():
        writers = [node for node, plan in nodes.items() if sink in _sinks(plan)]
        before = frozenset[NodeId]().union(*(_before(node, nodes) for node in writers))
        if not before & touched:
            if repeating := frozenset(node for node in writers if nodes[node].repeats_results):
                promises[sink] = _repeated(before, repeating)
            continue
        groups, counts = _parts(step)
        level = levels.of(step)
        promises[sink] = Promise(
            level,
            levels.of(conserved[sink]) if sink in conserved else level,
            frozenset(nodes[node].guarantee for node in before if nodes[node].rebases),
            before,
            before & touched,
            any(nodes[node].may_repeat_after_gap for node in before),
            groups,
            counts,
        )
    return promises


def _repeated(before: frozenset[NodeId], writers: frozenset[NodeId]) -> Promise:
    """Of a sink whose writers put out again what they had since their line. [CheckMate §II-A]

    Every state stands for each tuple once, so that whole results come again, and no parts.
    """
    level, rollback = Level(Held.ALL, Extra.COPIES), frozenset({Guarantee.ROLLBACK})
    return Promise(level, level, rollback, before, writers, may_repeat=False)


def _sinks(plan: NodePlan) -> set[str]:
    return {s.rpartition("[")[0] for o in plan.outputs if o.is_sink for s in o.streams}


def _before(node: NodeId, plans: dict[NodeId, NodePlan]) -> frozenset[NodeId]:
    """The node and all nodes before it."""
    found: set[NodeId] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += plans[one].producers()
    return frozenset(found)


def _parts(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions of the columns that name a window and its key, and of those that count its rows."""
    made = step.operation
    if not isinstance(made, WindowAggregate):
        return (), ()
    names = step.schema.names
    named = ("window_start", "window_end", *made.keys)
    counting = [each.name for each in made.aggregates if each.expression is None]
    groups = tuple(names.index(name) for name in named if name in names)
    return groups, tuple(map(names.index, counting))


class _Levels:
    """What is promised of the streams of a dataflow, by the guarantees of its units."""

    def __init__(self, guarantees: dict[str, Guarantee]) -> None:
        """Of units that have a weaker one than precise recovery."""
        self._guarantees = guarantees

    def of(self, step: Step) -> Level:
        """Cost: O(steps before it) per path; dataflows are small."""
        inputs = [self.of(source) for source in step.inputs]
        held = max((level.held for level in inputs), default=Held.ALL)
        extra = max((level.extra for level in inputs), default=Extra.NOTHING)
        if isinstance(step.operation, Loop):
            return Level(held, extra)  # Units of a loop recover precisely.
        guarantee = self._guarantees.get(step.unit, Guarantee.PRECISE)
        own = _made_of(step, Level(held, extra), guarantee)
        if guarantee is Guarantee.GAP:
            return Level(max(own.held, Held.SETTLED), own.extra)
        if guarantee is Guarantee.ROLLBACK:
            return Level(own.held, max(own.extra, Extra.COPIES))
        return own


def _made_of(step: Step, given: Level, guarantee: Guarantee) -> Level:
    """What a step makes of its input, which a unit with a weaker guarantee may have a part of."""
    is_whole = given == _EXACT
    if is_whole and guarantee is Guarantee.PRECISE:
        return _EXACT
    extra = Extra.ANYTHING if given.extra is Extra.PARTS else given.extra
    if not _folds(step):
        return Level(given.held, extra)
    if is_whole and guarantee is Guarantee.ROLLBACK:  # Windows that are open are replayed whole.
        return Level(Held.ALL, Extra.PARTS if _has_parts(step) else Extra.ANYTHING)
    if given.extra > Extra.COPIES or _needs_order(step):
        return Level(Held.UNKNOWN, Extra.ANYTHING)
    is_part = given.extra is Extra.NOTHING and _has_parts(step)
    return Level(Held.SETTLED, Extra.PARTS if is_part else Extra.ANYTHING)


def _folds(step: Step) -> bool:
    """Whether rows that are lost or come again change others; else they are missing or copied."""
    match step.operation:
        case WindowJoin(how=how):
            return how == "left"
        case IntervalJoin(how=how):
            return how != "inner"
        case operation:
            folding = WindowAggregate | RunningAggregate | Resample | Distinct | Process
            return isinstance(operation, folding)


def _has_parts(step: Step) -> bool:
    """Whether a row says of which window and key it is."""
    return isinstance(step.operation, WindowAggregate) and not _needs_order(step)


def _needs_order(step: Step) -> bool:
    """Whether a row depends on which others have come before."""
    made = step.operation
    if not isinstance(made, WindowAggregate):
        return isinstance(made, Distinct | RunningAggregate | Process)
    return not made.windows.is_plain or made.emit == "changes"
