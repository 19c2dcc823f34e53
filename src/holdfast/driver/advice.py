"""The adviser: what each approach would cost a dataflow, and which is enough for its objectives.

The figures of every HA unit are measured while it runs (measurements.py), and put into the formulas
of core/recovery/cost_model.py. What was not measured, because nothing failed or nothing was
checkpointed, is assumed; the advice says which is which.

Every option is tried by the planner, as `start` would: what the dataflow refuses is not advised.

What the receivers of a unit still need keeps its restart points back. Where the unit is protected
by upstream backup now, that is measured; elsewhere it follows from the state of the units behind.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from holdfast.api import protections
from holdfast.api.protections import Checkpointed, Protection, Protections
from holdfast.core.operators.base import OperatorClass
from holdfast.core.recovery.cost_model import (
    GUARANTEES,
    Approach,
    Guarantee,
    Prediction,
    Surroundings,
    UnitFigures,
    Variant,
    predict,
)
from holdfast.driver.measurements import Measurements, UnitMeasurement
from holdfast.errors import AdviceError, HoldfastError
from holdfast.planning.units import units_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.api.graph import Graph

_STRENGTH: Final[dict[str, int]] = {"gap": 0, "rollback": 1, "precise": 2}
_WITH_SECONDARY: Final = (Approach.PASSIVE_STANDBY, Approach.ACTIVE_STANDBY)
_OF_STATE: Final = (Approach.CHECKPOINTED, Approach.EVENTUAL_CHECKPOINTS)
"""Those that units without state do not need."""
_WITH_OTHERS: Final = (
    Approach.COORDINATED,
    Approach.UNCOORDINATED,
    Approach.COMMUNICATION_INDUCED,
)
"""Those of units that recover together; a unit that repeats has no use for them."""
_BY_CHECKPOINTS: Final = (Approach.CHECKPOINTED, *_WITH_OTHERS)
"""Whose restart point is a checkpoint."""

CHECKPOINT_INTERVAL_MS: Final = 10_000.0
TOGETHER_INTERVAL_MS: Final = 5_000.0
TOGETHER_JITTER_MS: Final = 1_000.0
PASSIVE_INTERVAL_MS: Final = 50.0
REPLACEMENT_MS: Final = 250.0
REDIRECT_MS: Final = 10.0
SYNC_MS: Final = 5.0
STORE_BYTES_PER_MS: Final = 200_000.0
ONE_HOST: Final = (0.1, 1_000_000.0)
"""Delay in ms and bytes per ms between processes of one host."""
SEVERAL_HOSTS: Final = (0.5, 125_000.0)
"""The same between hosts: 1 Gbit/s."""
NEGLIGIBLE_BYTES_PER_S: Final = 10_000.0
"""Below, an overhead is no reason against an approach, whatever share of a thin input it is."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """What a dataflow shall do.

    Attributes:
        recovery_ms: From a failure until the state is there again, on average; None: any.
        delay_ms: Added to a result's latency while nothing fails, on average; None: any.
        overhead_percent: Bytes sent or stored for protection, of the bytes of a unit's input; None:
            any.
        guarantee: `precise`, `rollback` or `gap`: the least that will do. [HA §3.1]
    """

    recovery_ms: float | None = None
    delay_ms: float | None = None
    overhead_percent: float | None = None
    guarantee: str = "precise"

    def __post_init__(self) -> None:
        """Raise `AdviceError` for objectives that nothing can meet, or that do not exist."""
        if self.guarantee not in _STRENGTH:
            raise AdviceError(f"guarantee={self.guarantee!r}; there are {', '.join(_STRENGTH)}")
        for name in ("recovery_ms", "delay_ms", "overhead_percent"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise AdviceError(f"{name}={value}; it is a number from 0 on, or None")


@dataclass(frozen=True, slots=True)
class Option:
    """One approach for one unit.

    Attributes:
        approach: Name of its protection.
        guarantee: What it would give.
        recovery_ms: From a failure until the state is there again, detection included; of units
            that recover together until new results leave.
        parts_ms: Of it: detection, restart, redirect, load, replay, and until the line has passed.
        replayed_tuples: Processed again for that.
        lost_tuples: Whose effects would be missing.
        delay_ms: Added to a result's latency while nothing fails.
        overhead_bytes_per_s: Sent or stored for protection, by all instances.
        overhead_percent: Of the bytes of the input.
        processing_percent: Of the processing of the tuples themselves.
        slots: Task slots beyond those of the instances.
        misses: Which objectives it does not meet; empty: it meets all.
        interval_ms: Its period, where the unit has it with another one than its own default.
        refused: Why the dataflow refuses it; empty: it does not.
        settings: What else the unit would have it with, as one would write it.
    """

    approach: str
    guarantee: str
    recovery_ms: float
    parts_ms: dict[str, float]
    replayed_tuples: float
    lost_tuples: float
    delay_ms: float
    overhead_bytes_per_s: float
    overhead_percent: float
    processing_percent: float
    slots: int
    misses: tuple[str, ...]
    interval_ms: float | None = None
    refused: str = ""
    settings: str = ""

    @property
    def is_enough(self) -> bool:
        """Whether it meets all objectives."""
        return not self.misses

    @property
    def protection(self) -> str:
        """The protection as one would write it."""
        return _written(Approach(self.approach), self.guarantee, self.interval_ms, self.settings)


@dataclass(frozen=True, slots=True)
class UnitAdvice:
    """All approaches for one unit, the cheapest that is enough first named.

    Attributes:
        measured: What the unit is like.
        options: All approaches that give the guarantee, or a stronger one.
        choice: The cheapest that meets the objectives and that the dataflow takes; None: none does.
        reason: In words.
    """

    measured: UnitMeasurement
    options: tuple[Option, ...]
    choice: Option | None
    reason: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What to protect a dataflow with.

    Attributes:
        name: Of the dataflow.
        objectives: What was asked for.
        units: One by one.
        assumptions: Every figure that is not a unit's own, and whether it was measured.
        is_planned: Whether the planner has tried every option; else `start` may refuse what is
            advised.
    """

    name: str
    objectives: Objectives
    units: tuple[UnitAdvice, ...]
    assumptions: dict[str, str]
    is_planned: bool

    @property
    def protection(self) -> dict[str, str | None]:
        """Per unit the choice as one would write it; None: nothing meets the objectives."""
        return {
            u.measured.unit: None if u.choice is None else u.choice.protection for u in self.units
        }

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "name": self.name,
            "objectives": asdict(self.objectives),
            "assumptions": self.assumptions,
            "is_planned": self.is_planned,
            "protection": self.protection,
            "units": [asdict(unit) for unit in self.units],
        }


def advise(measured: Measurements, objectives: Objectives) -> Advice:
    """Predict every approach for every unit, and choose.

    Raises:
        AdviceError: No unit has had any input.
    """
    if not any(unit.input_tuples_per_s for unit in measured.units):
        raise AdviceError(
            f"{measured.name}: no unit has had input while it was measured; let it run for some "
            "seconds under its usual load"
        )
    around = _surroundings(measured)
    behind = _Behind(measured, around)
    refused = measured.refused or {}
    units = tuple(
        _advise_unit(
            unit,
            _figures(unit, behind.below_tuples(unit)),
            around,
            objectives,
            refused.get(unit.unit, {}),
            measured.checkpoint_settings,
        )
        for unit in measured.units
    )
    is_planned = measured.refused is not None
    return Advice(measured.name, objectives, units, _assumptions(measured, around), is_planned)


def refusals(
    flow: Graph, running: Protections, place: Callable[[Protections], object]
) -> dict[str, dict[str, str]]:
    """What `start` would refuse, and why: per unit, by the protection without its settings.

    Each approach is tried for all units at once. Only if that is refused, it is tried for one unit
    after the other, beside what the others run with.

    Args:
        flow: The dataflow.
        running: What it runs with. The settings of it are kept, where a unit has that protection;
            checkpoints of all units go to the store that there is.
        place: Plans the dataflow with other protections, and raises what `start` would.

    Cost: a plan for each approach and guarantee; where one is refused, one for each unit more.
    """
    units = list(units_of(flow))
    now = {unit: running.of(unit) for unit in units}
    refused: dict[str, dict[str, str]] = {unit: {} for unit in units}

    def reason(given: Mapping[str, Protection]) -> str:
        """Why it is refused; empty: it is not."""
        whole = Protections(given)
        try:
            whole.check(flow)
            place(whole)
        except HoldfastError as error:
            return str(error)
        return ""

    for approach, guarantee in ((a, g) for a in Approach for g in GUARANTEES[a]):
        tried = {unit: _tried(approach, guarantee, unit, running) for unit in units}
        of_all = reason(tried)
        if not of_all:
            continue
        alone = {unit: reason({**now, unit: tried[unit]}) for unit in units}
        for unit in units:
            if why := alone[unit] if any(alone.values()) else of_all:
                refused[unit][_written(approach, guarantee)] = why
    return refused


def _tried(approach: Approach, guarantee: Guarantee, unit: str, running: Protections) -> Protection:
    """A protection as a unit would be given it."""
    kind: type[Protection] = getattr(protections, approach.value)
    own: Protection | None = running.of(unit)
    if not isinstance(own, kind):
        own = running.checkpointed if kind is Checkpointed else None
    return replace(own or kind(), guarantee=guarantee)


# -- from measurements to figures -----------------------------------------------------------


def _surroundings(measured: Measurements) -> Surroundings:
    delay_ms, bytes_per_ms = ONE_HOST if measured.hosts == 1 else SEVERAL_HOSTS
    return Surroundings(
        interval_ms=measured.ack_interval_ms,
        checkpoint_interval_ms=measured.checkpoint_interval_ms or CHECKPOINT_INTERVAL_MS,
        detection_ms=measured.detection_ms,
        redirect_ms=REDIRECT_MS,
        replacement_ms=_or(measured.replacement_ms, REPLACEMENT_MS),
        network_delay_ms=delay_ms,
        network_bytes_per_ms=bytes_per_ms,
        sync_ms=SYNC_MS,
        store_bytes_per_ms=measured.store_bytes_per_ms or STORE_BYTES_PER_MS,
    )


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _assumptions(measured: Measurements, around: Surroundings) -> dict[str, str]:
    """Every figure around the units in words."""

    def said(value: float, unit: str, is_measured: bool) -> str:
        return f"{value:,.4g} {unit}, {'measured' if is_measured else 'assumed'}"

    has_failed = measured.replacement_ms is not None
    has_written = measured.store_bytes_per_ms is not None
    detection = "measured" if has_failed else "by the keep-alive settings"
    interval = "set" if measured.checkpoint_interval_ms is not None else "assumed"
    mb_per_s = around.network_bytes_per_ms / 1000
    return {
        "acknowledgements": f"every {around.interval_ms:g} ms, set",
        "checkpoints": f"every {around.checkpoint_interval_ms:g} ms, {interval}",
        "detection": f"{around.detection_ms:.0f} ms, {detection}",
        "replacement": said(around.replacement_ms, "ms", has_failed),
        "redirection": said(around.redirect_ms, "ms", False),
        "network": f"{around.network_delay_ms:g} ms, {mb_per_s:,.0f} MB/s, assumed for "
        f"{measured.hosts} host{'s' if measured.hosts > 1 else ''}",
        "sync": said(around.sync_ms, "ms", False),
        "checkpoint store": said(around.store_bytes_per_ms / 1000, "MB/s", has_written),
    }


class _Behind:
    """How far back the receivers of a unit keep its restart points."""

    def __init__(self, measured: Measurements, around: Surroundings) -> None:
        self._around = around
        self._kept = measured.checkpoints_kept
        units = {unit.unit: unit for unit in measured.units}
        self._kept_back_ms: dict[str, float] = {}
        for unit in reversed(measured.units):
            # Whoever only reads what comes back in a loop has its tuples from a checkpoint.
            known = [units[name] for name in unit.receivers if name in self._kept_back_ms]
            self._kept_back_ms[unit.unit] = self._kept_back(known)

    def below_tuples(self, unit: UnitMeasurement) -> float:
        """Input tuples that the unit's restart point goes back to because of its receivers."""
        if unit.protection == Approach.UPSTREAM_BACKUP.value:
            own_ms = self._around.interval_ms / 2 + self._around.sync_ms
            own = unit.state_tuples + unit.input_tuples_per_s * own_ms / 1000
            return max(0.0, unit.replay_tuples - own)
        return unit.input_tuples_per_s * self._kept_back_ms[unit.unit] / 1000

    def _kept_back(self, receivers: list[UnitMeasurement]) -> float:
        """By the slowest, in ms; the unit's own points lie one M apart, so half of one more."""
        if not receivers:
            return 0.0
        return self._around.interval_ms / 2 + max(self._needs_ms(unit) for unit in receivers)

    def _needs_ms(self, unit: UnitMeasurement) -> float:
        """How old the tuples are that a receiver says it may need, when its word arrives.

        It notes a point, has it stored, and tells the next time that it acknowledges: an M later.
        """
        around = self._around
        told_ms = around.interval_ms + around.network_delay_ms
        if unit.protection in (approach.value for approach in _BY_CHECKPOINTS):
            return told_ms + around.checkpoint_interval_ms * (self._kept - 0.5)
        state_ms = 1000 * _ratio(unit.state_tuples, unit.input_tuples_per_s)
        return told_ms + state_ms + self._kept_back_ms[unit.unit]


def _ratio(value: float, by: float) -> float:
    return value / by if by else 0.0


def _figures(unit: UnitMeasurement, below_tuples: float) -> UnitFigures:
    operator_class = OperatorClass[unit.operator_class.upper()]
    return UnitFigures(
        input_tuples_per_s=unit.input_tuples_per_s,
        output_tuples_per_s=unit.output_tuples_per_s,
        tuple_bytes=unit.input_tuple_bytes,
        output_tuple_bytes=unit.output_tuple_bytes,
        tuple_cost_us=unit.tuple_cost_us,
        replay_cost_us=unit.replay_cost_us or unit.tuple_cost_us,
        state_tuples=unit.state_tuples,
        state_bytes=unit.state_bytes,
        changed_bytes_per_s=unit.changed_bytes_per_s,
        below_tuples=below_tuples,
        input_streams=unit.input_streams,
        output_streams=unit.output_streams,
        stateful_operators=unit.stateful_operators,
        operators=unit.operators,
        paths=unit.input_streams * unit.output_streams,
        contributing_streams=unit.input_streams,
        is_deterministic=operator_class <= OperatorClass.DETERMINISTIC,
        is_convergent_capable=operator_class <= OperatorClass.CONVERGENT_CAPABLE,
        together=unit.together,
    )


# -- choosing -------------------------------------------------------------------------------


def _advise_unit(
    unit: UnitMeasurement,
    figures: UnitFigures,
    around: Surroundings,
    objectives: Objectives,
    refused: Mapping[str, str],
    checkpoint_settings: str,
) -> UnitAdvice:
    def option(approach: Approach, guarantee: Guarantee, *, is_aligned: bool = True) -> Option:
        own = around
        settings = checkpoint_settings if approach is Approach.CHECKPOINTED else ""
        if approach is Approach.PASSIVE_STANDBY:
            own = replace(around, interval_ms=unit.delta_interval_ms)
        elif approach in _WITH_OTHERS:
            own = _together(approach, unit, around, is_aligned=is_aligned)
            settings = "" if is_aligned else "aligned=False"
        elif approach is Approach.EVENTUAL_CHECKPOINTS and objectives.recovery_ms is not None:
            left_ms = objectives.recovery_ms - around.detection_ms - around.replacement_ms
            own = replace(around, extent_ms=max(1.0, left_ms // 1))
            named_ms = max(1.0, (objectives.recovery_ms - around.detection_ms) // 1)
            settings = f'recovery="{named_ms:.0f} milliseconds"'
        found = predict(approach, guarantee, figures, own, Variant.HOLDFAST)
        made = _option(found, unit)
        return replace(
            made,
            interval_ms=_own_interval_ms(approach, own),
            settings=settings,
            refused=refused.get(_written(approach, guarantee), ""),
            misses=_misses(made, objectives),
        )

    options = [
        option(approach, guarantee)
        for approach in Approach
        for guarantee in _wanted(approach, objectives.guarantee, figures)
        if approach not in _OF_STATE or unit.stateful_operators
    ]
    if any(o.approach == Approach.COORDINATED.value for o in options):
        options.append(option(Approach.COORDINATED, "precise", is_aligned=False))
    enough = sorted((o for o in options if o.is_enough), key=_price)
    choice = next((option for option in enough if not option.refused), None)
    return UnitAdvice(unit, tuple(options), choice, _reason(options, choice))


def _together(
    approach: Approach, unit: UnitMeasurement, around: Surroundings, *, is_aligned: bool
) -> Surroundings:
    """With the settings that a unit has such a protection with, or the protection's own."""
    interval_ms = TOGETHER_INTERVAL_MS
    if unit.protection in (kind.value for kind in _WITH_OTHERS):
        interval_ms = around.checkpoint_interval_ms
    jitter_ms = 0.0 if approach is Approach.COORDINATED else TOGETHER_JITTER_MS
    if approach.value == unit.protection:
        jitter_ms = unit.jitter_ms
    return replace(
        around, checkpoint_interval_ms=interval_ms, is_aligned=is_aligned, jitter_ms=jitter_ms
    )


def _wanted(approach: Approach, least: str, unit: UnitFigures) -> tuple[Guarantee, ...]:
    """What there is: where precise recovery costs nothing more, nothing less is offered."""
    if approach in _WITH_OTHERS and not unit.together.members:
        return ()
    if approach is Approach.UNCOORDINATED and unit.together.circle > 1:
        return ()  # Every checkpoint may be useless there, and results wait for ever.
    offered: tuple[Guarantee, ...] = GUARANTEES[approach]
    is_free = unit.is_deterministic or approach is Approach.ACTIVE_STANDBY
    if is_free and "precise" in offered:
        offered = ("precise",)
    return tuple(g for g in offered if _STRENGTH[g] >= _STRENGTH[least])


def _option(found: Prediction, unit: UnitMeasurement) -> Option:
    failure, run_time = found.failure, found.run_time
    return Option(
        approach=found.approach.value,
        guarantee=found.guarantee,
        recovery_ms=round(failure.outage_ms, 1),
        parts_ms={
            "detection": round(failure.detection_ms, 1),
            "restart": round(failure.restart_ms, 1),
            "redirect": round(failure.redirect_ms, 1),
            "load": round(failure.load_ms, 1),
            "replay": round(failure.replay_ms, 1),
            "line": round(failure.line_ms, 1),
        },
        replayed_tuples=round(failure.replayed_tuples),
        lost_tuples=round(failure.lost_tuples),
        delay_ms=round(run_time.delay_ms, 1),
        overhead_bytes_per_s=round(run_time.bandwidth_bytes_per_s * unit.instances),
        overhead_percent=round(run_time.bandwidth_percent, 2),
        processing_percent=round(run_time.processing_percent, 2),
        slots=unit.instances if found.approach in _WITH_SECONDARY else 0,
        misses=(),
    )


def _misses(option: Option, objectives: Objectives) -> tuple[str, ...]:
    """Which objectives it does not meet, by name."""
    missed = [
        name
        for name in ("recovery_ms", "delay_ms", "overhead_percent")
        if (bound := getattr(objectives, name)) is not None
        and cast(float, getattr(option, name)) > bound
    ]
    if option.overhead_bytes_per_s <= NEGLIGIBLE_BYTES_PER_S and "overhead_percent" in missed:
        missed.remove("overhead_percent")
    return tuple(missed)


def _price(option: Option) -> tuple[float, ...]:
    """Slots first, for they cost most; then bytes and processing; then the stronger guarantee."""
    bytes_per_s = max(option.overhead_bytes_per_s, NEGLIGIBLE_BYTES_PER_S)
    strength = _STRENGTH[option.guarantee]
    return (option.slots, bytes_per_s, -strength, option.recovery_ms, option.processing_percent)


def _own_interval_ms(approach: Approach, around: Surroundings) -> float | None:
    """The period that was predicted with, if the protection has one and another default."""
    if approach is Approach.PASSIVE_STANDBY and around.interval_ms != PASSIVE_INTERVAL_MS:
        return around.interval_ms
    if approach in _BY_CHECKPOINTS:
        default_ms = TOGETHER_INTERVAL_MS if approach in _WITH_OTHERS else CHECKPOINT_INTERVAL_MS
        interval_ms = around.checkpoint_interval_ms
        return interval_ms if interval_ms != default_ms else None
    return None


def _written(
    approach: Approach, guarantee: str, interval_ms: float | None = None, others: str = ""
) -> str:
    settings: list[str] = []
    if interval_ms is not None:
        settings.append(f'interval="{interval_ms:g} milliseconds"')
    if others:
        settings.append(others)
    if guarantee != GUARANTEES[approach][-1]:
        settings.append(f'guarantee="{guarantee}"')
    return f"{approach.value}({', '.join(settings)})"


def _reason(options: list[Option], choice: Option | None) -> str:
    """Why this one, or why none."""
    refused = sorted(
        {o.protection: o.refused for o in options if o.is_enough and o.refused}.items()
    )
    reasons = "; ".join(f"{name} is refused: {reason}" for name, reason in refused)
    if choice is not None:
        cheapest = f"the cheapest of {sum(o.is_enough for o in options)} that meet the objectives"
        return f"{cheapest}; {reasons}" if reasons else cheapest
    if reasons:
        return f"nothing else would do, but {reasons}"
    if not options:
        return "no approach gives this guarantee"
    nearest = min(options, key=lambda o: (len(o.misses), o.recovery_ms))
    return (
        f"none meets all objectives; {nearest.protection} comes nearest and misses "
        f"{' and '.join(_in_words(nearest, name) for name in nearest.misses)}"
    )


def _in_words(option: Option, name: str) -> str:
    what, _, unit = name.partition("_")
    sign = {"ms": " ms", "percent": " %"}[unit]
    return f"{what} with {getattr(option, name):,g}{sign}"
