"""How the units of a run are protected, and the bounds and periods of its nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from holdfast.core.haunit.plan import (
    CheckpointPlan,
    Cuts,
    DelayPlan,
    FootprintPlan,
    NodeLimits,
    NodePlan,
    Standby,
    UnitProtection,
)
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.sim.draw import Draw

TINY_MAX: Final = 4
"""Most tuples of a tiny queue."""
Protections = Callable[[str], UnitProtection]
"""Of a unit, by its name."""

APPROACHES: Final = (
    "upstream backup",
    "checkpoints",
    "eventual checkpoints",
    "active standby",
    "passive standby",
)
REPLICATED: Final = "replicated"
REPLICAS: Final = "replicated, side by side"
UNDO: Final = "replicated, undo/redo"
"""The same as replicated, where all states are made again from input; it is not drawn."""
SURVIVES_ONE: Final = "passive standby, one failure"
"""Producers forget what the secondary holds; it is not drawn. Faults come one at a time."""
GO_ON: Final = (REPLICATED, UNDO, REPLICAS)
"""The approaches whose units go on without missing input."""
UNCOORDINATED: Final = "uncoordinated"
_AFTER_WINDOWS_PERCENT: Final = 30
"""Of runs, in which uncoordinated checkpoints wait until windows have closed."""
_TWO_LINES_PERCENT: Final = 40
"""Of runs can go back to two lines, so that a damaged checkpoint is passed over."""
ALIGNED: Final = "coordinated, aligned"
UNALIGNED: Final = "coordinated, unaligned"
HMNR: Final = "communication-induced, hmnr"
BCS: Final = "communication-induced, bcs"
LAZY_FI: Final = "communication-induced, lazy-fi"
CUTS: Final = {
    UNCOORDINATED: Cuts.UNCOORDINATED,
    ALIGNED: Cuts.ALIGNED,
    UNALIGNED: Cuts.UNALIGNED,
    HMNR: Cuts.HMNR,
    BCS: Cuts.BCS,
    LAZY_FI: Cuts.LAZY_FI,
}
"""How units cut that do not repeat, by approach."""
ALL_GO_BACK: Final = {f"{approach}, all go back": approach for approach in CUTS}
"""The same, where survivors go back too; none is drawn."""
EVENTUAL: Final = "eventual checkpoints"
BESIDE_EVENTUAL: Final = {
    f"{EVENTUAL} beside {other}": other
    for other in (*APPROACHES, REPLICATED, *CUTS)
    if other != EVENTUAL
}
"""Each unit has one of these two; none is drawn."""
MIXED: Final = "mixed"
"""Each unit has an approach of its own."""
_OTHERS_PERCENT: Final = 30
"""Of runs have units of `_OTHERS`, one for all or one for each."""
_REPLICAS_PERCENT: Final = 8
"""Of runs have replicas of all units that may have them."""
_OTHERS: Final = (*CUTS, *CUTS, REPLICATED, MIXED, MIXED, MIXED)
_ALL: Final = (*APPROACHES, REPLICATED, REPLICATED, REPLICATED, *CUTS)
_REPEATING_RUNS_PERCENT: Final = 25
"""Of runs with units that recover together have some whose results wait for no line."""
_REPEATING_UNITS_PERCENT: Final = 70
_REGION_APPROACH_PERCENT: Final = 60
"""Of the units of a mixed run cut as one drawn for the run does, so that regions are larger."""
GUARANTEES: Final = tuple(guarantee.value for guarantee in Guarantee)
"""The weakest that units of a run have, strongest first."""
_WEAKER_PERCENT: Final = 30
_ROLLBACK: Final = ("upstream backup", "active standby", "passive standby")
"""The approaches that can give less than precise recovery, and keep something."""
_DELAYED_PERCENT: Final = 40
"""Of dataflows have units that do not wait for missing input for long, and then most are."""
_DELAYED_UNITS_PERCENT: Final = 75
_SMALL_QUEUES_PERCENT: Final = 40
"""Of runs with replicas, so that one that takes no more is soon felt."""
_UNDO_PERCENT: Final = 40
"""Of such units make their state again from input, as long as it goes back to little."""
_CHAINS_PERCENT: Final = 20
"""Of runs with such units have some that wait by themselves, as in the paper, or suspend."""
_ALONE_PERCENT: Final = 70
_SUSPEND_PERCENT: Final = 15
_STANDBY: Final = {
    "active standby": Standby.ACTIVE,
    "passive standby": Standby.PASSIVE,
    SURVIVES_ONE: Standby.PASSIVE,
}


def random_limits(draw: Draw, *, may_be_tiny: bool = False) -> NodeLimits:
    """Bounds and periods of nodes; queues even for few tuples where that is what may go wrong."""
    is_tiny = may_be_tiny and draw.percent(50)
    return NodeLimits(
        input_queue_tuples=draw.number(1, TINY_MAX) if is_tiny else draw.steep(16, 512),
        output_queue_tuples=draw.number(1, TINY_MAX) if is_tiny else draw.steep(8, 512),
        output_queue_bytes=draw.steep(200, 20_000),
        pass_tuples=draw.steep(1, 256),
        ack_interval_ms=draw.steep(2, 100),
        keep_alive_ms=draw.number(20, 100),
        resubscribe_ms=draw.number(100, 400),
    )


class _Approaches:
    """The approach of each unit of a run: one for all, or one for each."""

    def __init__(self, name: str, approach: str) -> None:
        """`approach` for all units, or `MIXED` for any of `APPROACHES`."""
        self._name = name
        self._approach = approach
        self._cut: str | None = None  # how most units cut; None: none of `_ALL` is drawn

    def draw_others(self) -> None:
        """Now and then units recover together, or are replicated.

        Replicas have a draw of their own: a secondary could not choose among them, so that they are
        for all units or for none.
        """
        if Draw(f"{self._name}/side by side").percent(_REPLICAS_PERCENT):
            self._approach = REPLICAS
            return
        others = Draw(f"{self._name}/others")
        if others.percent(_OTHERS_PERCENT):
            self._approach = others.one_of(_OTHERS)
            self._cut = others.one_of(tuple(CUTS))

    @property
    def are_precise(self) -> bool:
        """Whether no unit may have a weaker guarantee."""
        is_beside = BESIDE_EVENTUAL.get(self._approach) in CUTS
        return (
            is_beside or self._approach in (*CUTS, REPLICAS, SURVIVES_ONE) or self._cut is not None
        )

    @property
    def are_side_by_side(self) -> bool:
        """Whether units have replicas."""
        return self._approach == REPLICAS

    def of(self, unit: str) -> str:
        """A unit's."""
        if self._approach in BESIDE_EVENTUAL:
            two = EVENTUAL, BESIDE_EVENTUAL[self._approach]
            return Draw(f"{self._name}/{unit}").one_of(two)
        if self._approach != MIXED:
            return self._approach
        own = Draw(f"{self._name}/{unit}")
        if self._cut is None:
            return own.one_of(APPROACHES)
        chosen = own.one_of(_ALL)
        return self._cut if own.percent(_REGION_APPROACH_PERCENT) else chosen


def random_protection(
    limits: NodeLimits, name: str, approach: str | None = None, guarantee: str | None = None
) -> tuple[NodeLimits, Protections]:
    """One approach for all units, or one for each; checkpoints are of small pages, at any rate.

    Three of ten runs whose guarantee is not given have units that recover together, or that are
    replicated.

    In some runs some units have a weaker guarantee than precise recovery; in others, some of the
    units that are replayed do not wait for missing input for long.

    Args:
        limits: Bounds and periods of nodes.
        name: Of the draw.
        approach: The one for all units; None: it is drawn too.
        guarantee: One of `GUARANTEES`, the weakest that units have; None: it is drawn too.
    """
    all_go_back = approach in ALL_GO_BACK
    approach = None if approach is None else ALL_GO_BACK.get(approach, approach)
    draw = Draw(name)
    drawn = draw.one_of((*APPROACHES, MIXED))
    approaches = _Approaches(name, approach or drawn)
    if approach is None and guarantee in (None, Guarantee.PRECISE.value):
        approaches.draw_others()
    limits = _other_limits(name, limits, are_side_by_side=approaches.are_side_by_side)
    limits = replace(limits, page_bytes=draw.one_of((2048, 2048, 8192)))
    plan = _random_checkpoints(draw)
    interval_ms = draw.steep(10, 160)
    limits = replace(limits, page_run_bytes=draw.one_of((1, 1, 1 << 18)))  # A page, or all of them.
    weaker = _weaker_guarantees(f"{name}/guarantee", guarantee)
    if approaches.are_precise:
        weaker = ()  # Who recovers together reads nothing that may come under other ids.

    def of_unit(unit: str) -> UnitProtection:
        chosen = approaches.of(unit)
        given = _given_together(name, unit, chosen, guarantee)
        if weaker and Draw(f"{name}/{unit}/guarantee").percent(60):
            given = Draw(f"{name}/{unit}/weaker").one_of(weaker)
        if given is Guarantee.GAP:
            return UnitProtection(guarantee=given)
        if given is Guarantee.ROLLBACK and chosen not in (*_ROLLBACK, *CUTS):
            given = Guarantee.PRECISE
        return UnitProtection(
            checkpoints=_checkpoints(name, chosen, plan),
            standby=_STANDBY.get(chosen, Standby.NONE),
            survives_one=chosen == SURVIVES_ONE,
            delta_interval_ms=interval_ms,
            footprints=_random_footprints(f"{name}/{unit}/footprints", chosen),
            guarantee=given,
            delays=None if weaker else _random_delays(name, unit, chosen),
            cuts=CUTS.get(chosen),
            is_scope_whole=True,
            all_go_back=all_go_back,
            lines_kept=2 if Draw(f"{name}/lines").percent(_TWO_LINES_PERCENT) else 1,
        )

    return limits, of_unit


def _given_together(name: str, unit: str, approach: str, guarantee: str | None) -> Guarantee:
    """Now and then results of a unit that recovers with others wait for no line."""
    if approach not in CUTS or guarantee not in (None, Guarantee.ROLLBACK.value):
        return Guarantee.PRECISE
    is_run = guarantee is not None or Draw(f"{name}/repeats").percent(_REPEATING_RUNS_PERCENT)
    is_unit = Draw(f"{name}/{unit}/repeats").percent(_REPEATING_UNITS_PERCENT)
    return Guarantee.ROLLBACK if is_run and is_unit else Guarantee.PRECISE


def _other_limits(name: str, limits: NodeLimits, *, are_side_by_side: bool) -> NodeLimits:
    """Those with draws of their own: of acknowledgements; now and then small queues of replicas."""
    limits = replace(limits, ack_tuples=Draw(f"{name}/acks").one_of((0, 64, 256)))
    limits = replace(limits, gate_queues=Draw(f"{name}/gates").one_of((1, 1, 1, 4)))
    draw = Draw(f"{name}/side by side/queues")
    if not are_side_by_side or not draw.percent(_SMALL_QUEUES_PERCENT):
        return limits
    sizes = draw.number(8, 64), draw.number(4, 32)
    return replace(limits, input_queue_tuples=sizes[0], output_queue_tuples=sizes[1])


def _random_footprints(name: str, approach: str) -> FootprintPlan | None:
    """How large an extent may become: next to nothing, so that windows are written, or anything."""
    if approach != EVENTUAL:
        return None
    draw = Draw(name)
    recovery_us = draw.one_of((None, None, draw.steep(10, 10_000)))
    return FootprintPlan(1.0, draw.one_of((0, draw.steep(100, 100_000), 1 << 40)), recovery_us)


def _random_checkpoints(draw: Draw) -> CheckpointPlan:
    return CheckpointPlan(
        interval_ms=draw.steep(10, 200),
        kept=draw.number(2, 3),
        workers=draw.number(1, 3),
        asks_first=draw.percent(25),
    )


def _checkpoints(name: str, approach: str, plan: CheckpointPlan) -> CheckpointPlan | None:
    """Those of a unit, if it has such."""
    if approach == UNCOORDINATED:
        waits = Draw(f"{name}/windows").percent(_AFTER_WINDOWS_PERCENT)
        return replace(plan, waits_for_windows=waits)
    return plan if approach == "checkpoints" or approach in CUTS else None


def _weaker_guarantees(name: str, weakest: str | None) -> tuple[Guarantee, ...]:
    """Those that units of a run may have beside precise recovery."""
    if weakest is not None:
        return tuple({Guarantee(weakest)} - {Guarantee.PRECISE})
    draw = Draw(name)
    if not draw.percent(_WEAKER_PERCENT):
        return ()
    rollback, gap = Guarantee.ROLLBACK, Guarantee.GAP
    return draw.one_of(((rollback,), (gap,), (rollback, gap)))


def _random_delays(name: str, unit: str, approach: str) -> DelayPlan | None:
    """How long a unit waits for missing input; drawn for what is replayed alone.

    Replicas are drawn for all units of a run or for none: a secondary could not choose among them.
    """
    draw = Draw(f"{name}/{unit}/delays")
    is_drawn = (
        approach == "upstream backup"
        and Draw(f"{name}/delays").percent(_DELAYED_PERCENT)
        and draw.percent(_DELAYED_UNITS_PERCENT)
    )
    if not is_drawn and approach not in GO_ON:
        return None
    modes = DuringFailure.PROCESS, DuringFailure.DELAY
    waits = draw.steep(5, 300), draw.one_of(modes), draw.number(0, 60)
    undo = Draw(f"{name}/{unit}/undo")
    undo_tuples = undo.steep(1, 2_000) if undo.percent(_UNDO_PERCENT) else 0
    if approach == UNDO:
        undo_tuples = undo.steep(4, 400)  # So few that some are given up.
    plan = DelayPlan(*waits, undo_tuples=undo_tuples)
    if Draw(f"{name}/chain").percent(_CHAINS_PERCENT):
        chain = Draw(f"{name}/{unit}/chain")
        plan = replace(plan, waits_alone=chain.percent(_ALONE_PERCENT))
        if chain.percent(_SUSPEND_PERCENT):
            plan = replace(plan, during_failure=DuringFailure.SUSPEND)
    if approach != REPLICAS:
        return plan
    beside = Draw(f"{name}/{unit}/replicas")
    replicas, then = beside.one_of((1, 2, 2, 3)), beside.one_of((None, *DuringFailure))
    return replace(plan, replicas=replicas, during_stabilization=then)


_CUT_NAMES: Final = {cuts: name for name, cuts in CUTS.items()}


def approach_of(plan: NodePlan) -> str:
    """The approach that protects a node, by its name here; weaker guarantees say so."""
    if plan.guarantee is Guarantee.GAP:
        return "amnesia"
    if plan.cuts is not None:
        name = _CUT_NAMES[plan.cuts]
    elif plan.delays is not None:
        name = REPLICAS if plan.replicas else REPLICATED
    elif plan.standby is not Standby.NONE:
        name = "active standby" if plan.standby is Standby.ACTIVE else "passive standby"
        name = SURVIVES_ONE if plan.survives_one else name
    elif plan.footprints is not None:
        name = "eventual checkpoints"
    else:
        name = "upstream backup" if plan.checkpoints is None else "checkpoints"
    return f"{name}, rollback" if plan.guarantee is Guarantee.ROLLBACK else name
