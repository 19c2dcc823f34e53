"""What protection costs and what a failure costs, by formula. [HA Table 3, Table 4, §4 to §6]

One function per approach, from the figures of one HA unit to what it would cost there. Two variants
of a formula exist only where Holdfast departs from the paper:

| approach | the paper | Holdfast |
|---|---|---|
| all | the recovery node waits, with the queries in place | a replacement task has to come up |
| amnesia | recovery time 0: nothing is recreated | until the replacement takes input; restart
    points are stored, so that it is known what was lost |
| upstream backup, Q | `state + M λ + 2 d λ` | the silent replay starts at the newest stored restart
    point: own state, plus what the receivers below may still need, plus storing |
| upstream backup, precise | watermarks of `k` ids travel with every tuple | ids count up without
    gaps: none travel; the coordinator stores restart points instead |
| upstream backup, precise, deterministic unit | determinants | none: windows lie at absolute times,
    inputs are merged by tuple time |
| active standby, precise | receivers are asked for r | the promotion is journalled |
| determinants | logged at the secondary: two network delays | written to a durable log: one sync |
| replay | each tuple is sent, then processed | sent and processed side by side |

Passive standby has one formula but for determinants: there the *difference* is whatever
`changed_bytes_per_s` counts, tuples in the paper, pages cloned on their first write here.
Checkpointed is Holdfast's alone [SGuard §3]; so is the formula of EventualCheckpoints [CEC §III],
and so are those of units that recover together [CheckMate §III].

Times are averages over the moment of failure. `CostOfFailure.recovery_ms` is the paper's recovery
time: from detection until the state before the failure is reached again [HA §4]; `outage_ms` also
counts detection, and is what a user waits. Neither counts working off what has queued meanwhile.

How many ids a message carries is not in the paper's formulas (its c and C); its Table 6 fits these,
to within 0.1 % of the bandwidth: upstream backup 2 per input stream and interval (level 0, level
1), active standby 3 (also to the secondary), passive standby 2 and 2 per input stream, and 1 per
operator with state. (Its §7.1 counts one for upstream backup.)
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from holdfast.core.recovery.first_periods import first_line_ms
from holdfast.core.recovery.forced_checkpoints import forced_per_basic

Guarantee = Literal["precise", "rollback", "gap"]

_MARK_BYTES: Final = 384
_ACK_LEVELS: Final = 2
_ACTIVE_IDS: Final = 3
_PASSIVE_IDS: Final = 2
_RESTART_POINT_IDS: Final = 3
"""Per input stream two positions, per output stream one; sequence number and boundary as one."""
_REWRITTEN: Final = 1.5
"""Most bytes that a checkpoint writes per changed byte (core/checkpoint/page_image.py)."""


class Approach(enum.Enum):
    """The approaches, by the names of their protections."""

    AMNESIA = "Amnesia"
    PASSIVE_STANDBY = "PassiveStandby"
    UPSTREAM_BACKUP = "UpstreamBackup"
    ACTIVE_STANDBY = "ActiveStandby"
    CHECKPOINTED = "Checkpointed"
    EVENTUAL_CHECKPOINTS = "EventualCheckpoints"
    COORDINATED = "Coordinated"
    UNCOORDINATED = "Uncoordinated"
    COMMUNICATION_INDUCED = "CommunicationInduced"


class Variant(enum.Enum):
    """Whose protocol is meant where the two differ."""

    PAPER = "paper"
    HOLDFAST = "holdfast"


@dataclass(frozen=True, slots=True)
class Together:
    """How an instance recovers with others that take checkpoints with it. [CheckMate §III]

    Attributes:
        members: How many instances do; 0: it recovers alone, as its output repeats.
        depth: Units among them that its input has passed through, itself counted.
        width: Most instances of one of those units.
        circle: Instances on a circle with it, itself counted; 1: it is on none.
    """

    members: int = 0
    depth: int = 1
    width: int = 1
    circle: int = 1


@dataclass(frozen=True, slots=True)
class UnitFigures:
    """One HA unit, as assumed or measured; the paper's symbol in brackets.

    Attributes:
        input_tuples_per_s: Over all its input streams [λ].
        output_tuples_per_s: Over all its output streams [λ_out].
        tuple_bytes: Of an input tuple.
        output_tuple_bytes: Of an output tuple.
        tuple_cost_us: Processing time per input tuple, all operators together [p].
        replay_cost_us: The same in a replay, if larger batches make it less; None: the same.
        rebuild_share: What a tuple of the lost state costs in a replay from empty, as a share of
            that. Sliding windows open one after another then: 0.5. [HA Table 7]
        state_tuples: Input tuples that the state goes back to, over all streams [|state|].
        state_bytes: The state's size.
        changed_bytes_per_s: What changes in the state; more than `state_bytes` between two copies
            never counts, so that the longer the interval the less has to be copied.
        below_tuples: Input tuples that the receivers' state and outputs go back to, beyond what
            this unit has put out and they have processed; only Holdfast's replay counts them.
        input_streams: How many there are.
        output_streams: How many there are.
        stateful_operators: Operators with state.
        operators: All operators [nb_ops].
        paths: Ways from an input to an output stream [nb_paths].
        contributing_streams: Input streams that contribute to an output tuple [k].
        is_deterministic: The unit's class is not arbitrary. [HA §3.2]
        is_convergent_capable: Nor does its output depend on where it began.
        determinant_bytes_per_tuple: What is logged per input tuple if it is arbitrary.
        together: How it recovers with others under checkpoints taken with others.
    """

    input_tuples_per_s: float
    output_tuples_per_s: float
    tuple_bytes: float = 50.0
    output_tuple_bytes: float = 50.0
    tuple_cost_us: float = 10.0
    replay_cost_us: float | None = None
    rebuild_share: float = 1.0
    state_tuples: float = 0.0
    state_bytes: float = 0.0
    changed_bytes_per_s: float = 0.0
    below_tuples: float = 0.0
    input_streams: int = 1
    output_streams: int = 1
    stateful_operators: int = 0
    operators: int = 1
    paths: int = 1
    contributing_streams: int = 1
    is_deterministic: bool = True
    is_convergent_capable: bool = True
    determinant_bytes_per_tuple: float = 8.0
    together: Together = field(default_factory=lambda: Together())

    @property
    def input_bytes_per_s(self) -> float:
        """What overheads are a percentage of."""
        return self.input_tuples_per_s * self.tuple_bytes


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The network, the settings and the mechanisms around a unit; defaults are HA's Table 5.

    Attributes:
        interval_ms: Period of acknowledgements and of state differences [M].
        checkpoint_interval_ms: Period of checkpoints.
        detection_ms: From a failure until it is known [D].
        redirect_ms: Until the inputs are redirected [r].
        replacement_ms: Until a replacement task is up, where none waits.
        network_delay_ms: One way [d].
        network_bytes_per_ms: Bandwidth of a link.
        id_bytes: Size of a tuple id.
        sync_ms: Until what was handed to a durable log is in it.
        store_bytes_per_ms: Speed of the checkpoint store.
        indicator_cost_us: To keep or map the indicators of one operator, or one path, once.
        footprint_share: Of a node's time, for footprints.
        footprint_mark_ms: Of it, for the record before a restart point.
        footprint_bytes_per_ms: How fast windows are written in that time, and read back.
        footprint_replay: How many times as long a tuple takes in a replay as elsewhere.
        extent_ms: What reading and replaying an extent shall take at most; None: its size counts.
        extent_tuples: How many tuples it may have then.
        is_aligned: Whether a round waits until all inputs have come to it.
        jitter_ms: By how much longer the period of checkpoints is at most, by one's own timer.
    """

    interval_ms: float = 50.0
    checkpoint_interval_ms: float = 10_000.0
    detection_ms: float = 250.0
    redirect_ms: float = 40.0
    replacement_ms: float = 0.0
    network_delay_ms: float = 5.0
    network_bytes_per_ms: float = 2_000.0
    id_bytes: float = 8.0
    sync_ms: float = 0.0
    store_bytes_per_ms: float = 500_000.0
    indicator_cost_us: float = 1.0
    footprint_share: float = 0.05 / 1.5
    footprint_mark_ms: float = 0.4
    footprint_bytes_per_ms: float = 100_000.0
    footprint_replay: float = 1.5
    extent_ms: float | None = None
    extent_tuples: float = 500_000.0
    is_aligned: bool = True
    jitter_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class CostOfFailure:
    """What one failure costs.

    Attributes:
        detection_ms: Until it is known.
        restart_ms: From there until a replacement is up; 0 where a secondary waits.
        redirect_ms: From there until the first tuple is there [K], or the secondary's output.
        load_ms: From there until a checkpoint is loaded.
        replay_ms: From there until the state before the failure is reached.
        line_ms: From there until the first new result leaves: of units that recover together, when
            a line lies behind the recovery.
        replayed_tuples: Input tuples processed for that [Q].
        redundant_tuples: Output tuples that come again [Δ]; with precise recovery nobody sees them.
        lost_tuples: Input tuples whose effects are lost [Δ of amnesia].
    """

    detection_ms: float
    restart_ms: float = 0.0
    redirect_ms: float = 0.0
    load_ms: float = 0.0
    replay_ms: float = 0.0
    line_ms: float = 0.0
    replayed_tuples: float = 0.0
    redundant_tuples: float = 0.0
    lost_tuples: float = 0.0

    @property
    def recovery_ms(self) -> float:
        """From the detection on: the paper's recovery time."""
        until_there_ms = self.restart_ms + self.redirect_ms + self.load_ms + self.replay_ms
        return until_there_ms + self.line_ms

    @property
    def outage_ms(self) -> float:
        """From the failure on."""
        return self.detection_ms + self.recovery_ms


@dataclass(frozen=True, slots=True)
class RunTimeCost:
    """What protection costs while nothing fails.

    Attributes:
        delay_ms: Added to the time from a tuple to its result, on average.
        bandwidth_bytes_per_s: Sent or stored beyond the tuples themselves.
        bandwidth_percent: The same, of the bytes of the input.
        processing_percent: Of the processing of the tuples themselves.
    """

    delay_ms: float
    bandwidth_bytes_per_s: float
    bandwidth_percent: float
    processing_percent: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What an approach costs a unit at a guarantee."""

    approach: Approach
    guarantee: Guarantee
    failure: CostOfFailure
    run_time: RunTimeCost


def predict(
    approach: Approach,
    guarantee: Guarantee,
    unit: UnitFigures,
    around: Surroundings,
    variant: Variant = Variant.PAPER,
) -> Prediction:
    """What an approach would cost.

    Raises:
        ValueError: The approach cannot give the guarantee: amnesia gives gap recovery, and the
            others nothing less than rollback.
    """
    if guarantee not in GUARANTEES[approach]:
        raise ValueError(f"{approach.value} does not give {guarantee} recovery")
    failure, run_time = _FORMULAS[approach](guarantee, unit, around, variant)
    return Prediction(approach, guarantee, failure, run_time)


GUARANTEES: Final[dict[Approach, tuple[Guarantee, ...]]] = {
    Approach.AMNESIA: ("gap",),
    Approach.PASSIVE_STANDBY: ("rollback", "precise"),
    Approach.UPSTREAM_BACKUP: ("rollback", "precise"),
    Approach.ACTIVE_STANDBY: ("rollback", "precise"),
    Approach.CHECKPOINTED: ("precise",),
    Approach.EVENTUAL_CHECKPOINTS: ("precise",),
    Approach.COORDINATED: ("precise",),
    Approach.UNCOORDINATED: ("precise",),
    Approach.COMMUNICATION_INDUCED: ("precise",),
}
"""What each approach can give. [HA §4 to §6; SGuard §3; CEC §II;
CheckMate §II]"""

_Costs = tuple[CostOfFailure, RunTimeCost]


def amnesia(
    guarantee: Guarantee, unit: UnitFigures, around: Surroundings, variant: Variant
) -> _Costs:
    """Start empty on the newest input. [HA §4]

    Lost is the state, and what arrives until the inputs are redirected.
    """
    del guarantee
    restart_ms = _replacement_ms(around, variant)
    first_input_ms = restart_ms + around.redirect_ms
    lost = unit.state_tuples + _arriving(unit, around.detection_ms + first_input_ms)
    if variant is Variant.PAPER:
        failure = CostOfFailure(around.detection_ms, lost_tuples=lost)
        return failure, RunTimeCost(0.0, 0.0, 0.0, 0.0)
    failure = CostOfFailure(around.detection_ms, restart_ms, around.redirect_ms, lost_tuples=lost)
    bytes_per_s = _restart_points_bytes_per_s(unit, around)
    percent = _percent_of_input(unit, bytes_per_s)
    return failure, RunTimeCost(0.0, bytes_per_s, percent, _indicators_percent(unit, around, 1))


def passive_standby(
    guarantee: Guarantee, unit: UnitFigures, around: Surroundings, variant: Variant
) -> _Costs:
    """A secondary gets the difference of the state every M. [HA §5.1, §6]

    Precise recovery of an arbitrary unit holds output back until a difference covers it: half an
    interval, the way there and the way back. In Holdfast determinants are logged instead.
    """
    interval_ms = around.interval_ms
    message_bytes = _difference_bytes(unit, interval_ms)
    ids = _PASSIVE_IDS + _PASSIVE_IDS * unit.input_streams + unit.stateful_operators
    message_bytes += _outputs_bytes(unit, interval_ms) + ids * around.id_bytes
    replayed = _arriving(unit, interval_ms / 2)
    failure = CostOfFailure(
        around.detection_ms,
        redirect_ms=_first_input_ms(around),
        replay_ms=_replay_ms(unit, around, variant, replayed),
        replayed_tuples=replayed,
        redundant_tuples=unit.output_tuples_per_s * interval_ms / 1000,
    )
    delay_ms = 0.0
    if guarantee == "precise" and not unit.is_deterministic:
        transfer_ms = message_bytes / around.network_bytes_per_ms
        delay_ms = interval_ms / 2 + transfer_ms + 2 * around.network_delay_ms
    bytes_per_s = message_bytes / interval_ms * 1000
    if delay_ms and variant is Variant.HOLDFAST:
        delay_ms = _determinant_delay_ms(around, variant)
        bytes_per_s += _determinant_bytes_per_s(unit)
    percent = _percent_of_input(unit, bytes_per_s)
    # Composing and applying messages is in proportion to their bytes: f2 of Table 3.
    return failure, RunTimeCost(delay_ms, bytes_per_s, percent, percent)


def upstream_backup(
    guarantee: Guarantee, unit: UnitFigures, around: Surroundings, variant: Variant
) -> _Costs:
    """Upstream keeps the tuples; a replacement begins empty and processes them again. [HA §5.2, §6]

    Q is what the state goes back to, one interval, and two network delays. In Holdfast it is what
    the newest stored restart point goes back to: half an interval until one is noted, storing it,
    and all that receivers may still need.
    """
    interval_ms = around.interval_ms
    is_ours = variant is Variant.HOLDFAST
    if is_ours:
        lag_ms = interval_ms / 2 + around.sync_ms
        beyond = _arriving(unit, lag_ms) + unit.below_tuples
    else:
        beyond = _arriving(unit, interval_ms + 2 * around.network_delay_ms)
    failure = CostOfFailure(
        around.detection_ms,
        restart_ms=_replacement_ms(around, variant),
        redirect_ms=_first_input_ms(around),
        replay_ms=_replay_ms(unit, around, variant, beyond, from_empty=True),
        replayed_tuples=unit.state_tuples + beyond,
        redundant_tuples=max(0.0, _selectivity(unit) * beyond),
    )
    ids = _ACK_LEVELS * unit.input_streams
    bytes_per_s = ids * around.id_bytes / interval_ms * 1000
    if is_ours:
        bytes_per_s += _restart_points_bytes_per_s(unit, around)
    delay_ms, indicators = 0.0, 1
    if guarantee == "precise":
        is_replayable = unit.is_deterministic if is_ours else unit.is_convergent_capable
        if not is_replayable:
            delay_ms = _determinant_delay_ms(around, variant)
            bytes_per_s += _determinant_bytes_per_s(unit)
        elif not is_ours:
            bytes_per_s += (
                unit.contributing_streams * around.id_bytes * unit.input_tuples_per_s
            )  # f(k) size(id) / size(tuple) of Table 4, of the bandwidth for tuples.
        indicators = 2
    percent = _percent_of_input(unit, bytes_per_s)
    return failure, RunTimeCost(
        delay_ms, bytes_per_s, percent, _indicators_percent(unit, around, indicators)
    )


def active_standby(
    guarantee: Guarantee, unit: UnitFigures, around: Surroundings, variant: Variant
) -> _Costs:
    """A secondary processes the same input and keeps its output back. [HA §5.3, §6]

    It has to send what is left of it: half an interval and two network delays, as fast as the link
    carries it. Precise recovery first asks the receivers what they have, which takes r. In Holdfast
    nobody is asked; the coordinator journals the promotion first.
    """
    interval_ms, precise = around.interval_ms, guarantee == "precise"
    is_ours = variant is Variant.HOLDFAST
    redundant = _leaving(unit, interval_ms / 2 + 2 * around.network_delay_ms)
    failure = CostOfFailure(
        around.detection_ms,
        redirect_ms=around.sync_ms if is_ours else around.redirect_ms if precise else 0.0,
        replay_ms=redundant * unit.output_tuple_bytes / around.network_bytes_per_ms,
        redundant_tuples=redundant,
    )
    ids = _ACTIVE_IDS * unit.input_streams
    bytes_per_s = unit.input_bytes_per_s + ids * around.id_bytes / interval_ms * 1000
    processing = 100.0 + _indicators_percent(unit, around, 2)
    delay_ms = 0.0
    if precise and not unit.is_deterministic:
        delay_ms = _determinant_delay_ms(around, variant)
        bytes_per_s += _determinant_bytes_per_s(unit)
    percent = _percent_of_input(unit, bytes_per_s)
    return failure, RunTimeCost(delay_ms, bytes_per_s, percent, processing)


def checkpointed(
    guarantee: Guarantee, unit: UnitFigures, around: Surroundings, variant: Variant
) -> _Costs:
    """Pages that have changed go to a store; a replacement loads all, and goes on. [SGuard §3]

    The input since the last checkpoint comes again: half an interval, and the time to write one.
    """
    del guarantee, variant
    interval_ms, store = around.checkpoint_interval_ms, around.store_bytes_per_ms
    written = _REWRITTEN * _difference_bytes(unit, interval_ms)
    outputs = _outputs_bytes(unit, around.interval_ms)  # Only what receivers have not let go of.
    write_ms = (written + outputs) / store + around.sync_ms
    replayed = _arriving(unit, interval_ms / 2 + write_ms)
    failure = CostOfFailure(
        around.detection_ms,
        restart_ms=around.replacement_ms,
        redirect_ms=_first_input_ms(around),
        load_ms=unit.state_bytes / store,
        replay_ms=_replay_ms(unit, around, Variant.HOLDFAST, replayed),
        replayed_tuples=replayed,
        redundant_tuples=_selectivity(unit) * replayed,
    )
    acks = _ACK_LEVELS * unit.input_streams * around.id_bytes / around.interval_ms * 1000
    bytes_per_s = acks + (written + outputs) / interval_ms * 1000
    percent = _percent_of_input(unit, bytes_per_s)
    return failure, RunTimeCost(0.0, bytes_per_s, percent, _indicators_percent(unit, around, 1))


def eventual_checkpoints(
    guarantee: Guarantee, unit: UnitFigures, around: Surroundings, variant: Variant
) -> _Costs:
    """Windows go into a log one by one; a replacement reads them, and replays from T. [CEC §III]

    Windows are written from half of the bound on: so many tuples come until T moves, or more, if
    writing all of the state once takes longer. Windows that close before are not written.
    """
    del guarantee
    each_us = around.footprint_replay * (unit.replay_cost_us or unit.tuple_cost_us)
    unit = replace(unit, replay_cost_us=each_us)
    speed = around.footprint_bytes_per_ms
    load_ms = unit.state_bytes / speed
    allowed = around.extent_tuples / 2
    if around.extent_ms is not None:
        allowed = max(0.0, around.extent_ms / 2 - load_ms) * 1000 / each_us
    mark_ms, half = around.footprint_mark_ms, around.footprint_share / 2
    apart_ms = min(max(around.interval_ms, mark_ms / half), 2_000.0)  # Restart points.
    since = max(allowed, _arriving(unit, load_ms / (2 * half - min(mark_ms / apart_ms, half))))
    is_written = since < unit.state_tuples
    lag_ms = apart_ms / 2 + around.sync_ms
    beyond = _arriving(unit, lag_ms) + unit.below_tuples
    replayed = min(since, unit.state_tuples) + beyond
    failure = CostOfFailure(
        around.detection_ms,
        restart_ms=around.replacement_ms,
        redirect_ms=_first_input_ms(around),
        load_ms=load_ms if is_written else 0.0,
        replay_ms=_replay_ms(unit, around, variant, replayed),
        replayed_tuples=replayed,
        redundant_tuples=max(0.0, _selectivity(unit) * beyond),
    )
    bytes_per_s, written_per_s = _ACK_LEVELS * unit.input_streams * around.id_bytes, 0.0
    bytes_per_s = 1000 * (bytes_per_s / around.interval_ms + _MARK_BYTES / apart_ms)
    if is_written and unit.input_tuples_per_s:
        written_per_s = unit.input_tuples_per_s / max(since, 1.0)
    bytes_per_s += written_per_s * unit.state_bytes + _restart_points_bytes_per_s(unit, around)
    processing = 150 * (written_per_s * load_ms / 1000 + mark_ms / apart_ms)
    processing += _indicators_percent(unit, around, 2)
    percent = _percent_of_input(unit, bytes_per_s)
    return failure, RunTimeCost(0.0, bytes_per_s, percent, processing)


def coordinated(
    guarantee: Guarantee, unit: UnitFigures, around: Surroundings, variant: Variant
) -> _Costs:
    """All instances cut for one round; results wait until it is complete. [CheckMate §III-A]

    Without alignment it is complete later, as what is in flight is stored, too; with it a marker
    passes through all units first.
    """
    hops = unit.together.depth if around.is_aligned else 1
    round_ms = hops * around.network_delay_ms
    lag_ms = around.checkpoint_interval_ms / 2 + round_ms
    return _with_others(guarantee, unit, around, variant, lag_ms, round_ms)


def uncoordinated(
    guarantee: Guarantee, unit: UnitFigures, around: Surroundings, variant: Variant
) -> _Costs:
    """Everyone cuts when it wants to; the line goes back by orphan edges. [CheckMate §III-B]

    A checkpoint of a unit is behind the newest ones of all instances before it, the oldest of which
    is T n/(n+1) old on average. It holds where nothing goes in a circle: there a line may not move.
    """
    line_ms = first_line_ms(unit.together.depth, around.checkpoint_interval_ms)
    return _with_others(guarantee, unit, around, variant, _line_lag_ms(unit, around), line_ms)


def communication_induced(
    guarantee: Guarantee, unit: UnitFigures, around: Surroundings, variant: Variant
) -> _Costs:
    """As uncoordinated, but others force cuts where streams go in a circle. [CheckMate §III-C]"""
    period_ms = around.checkpoint_interval_ms + around.jitter_ms / 2
    wave_ms = around.network_delay_ms + PASS_MS
    interval_ms = period_ms / (1 + forced_per_basic(unit.together.circle, period_ms, wave_ms))
    often = replace(around, checkpoint_interval_ms=interval_ms, jitter_ms=0.0)
    line_ms = first_line_ms(unit.together.depth, around.checkpoint_interval_ms)
    return _with_others(guarantee, unit, often, variant, _line_lag_ms(unit, often), line_ms)


PASS_MS: Final = 10.0
"""Assumed of a node under load: from one pass to the next, before which it hears of others."""


def _line_lag_ms(unit: UnitFigures, around: Surroundings) -> float:
    period_ms = around.checkpoint_interval_ms + around.jitter_ms / 2
    oldest = unit.together.width / (unit.together.width + 1)
    return period_ms / 2 + (unit.together.depth - 1) * period_ms * oldest


def _with_others(
    guarantee: Guarantee,
    unit: UnitFigures,
    around: Surroundings,
    variant: Variant,
    lag_ms: float,
    line_ms: float,
) -> _Costs:
    """Checkpoints, of which those that go together are `lag_ms` old when they are complete.

    Results wait for that; after a failure so much input comes again, and results leave `line_ms`
    later, when that is durable. Nobody logs anything, but what was sent is stored, each tuple once.
    Who survives halts first, and the plan is journalled.
    """
    failure, run_time = checkpointed(guarantee, unit, around, variant)
    store, interval_ms = around.store_bytes_per_ms, around.checkpoint_interval_ms
    sent_per_s = unit.output_tuples_per_s * unit.output_tuple_bytes
    written = _REWRITTEN * _difference_bytes(unit, interval_ms) + sent_per_s * interval_ms / 1000
    age_ms = lag_ms + written / store + around.sync_ms
    replayed = _arriving(unit, age_ms)
    channel_bytes = sent_per_s * age_ms / 1000
    bytes_per_s = run_time.bandwidth_bytes_per_s + sent_per_s
    failure = replace(
        failure,
        redirect_ms=failure.redirect_ms + 2 * around.network_delay_ms + around.sync_ms,
        load_ms=(unit.state_bytes + channel_bytes) / store,
        replay_ms=_replay_ms(unit, around, Variant.HOLDFAST, replayed),
        line_ms=line_ms + 2 * around.sync_ms,
        replayed_tuples=replayed,
        redundant_tuples=0.0,
    )
    percent = _percent_of_input(unit, bytes_per_s)
    return failure, replace(
        run_time, delay_ms=age_ms, bandwidth_bytes_per_s=bytes_per_s, bandwidth_percent=percent
    )


_FORMULAS: Final = {
    Approach.AMNESIA: amnesia,
    Approach.PASSIVE_STANDBY: passive_standby,
    Approach.UPSTREAM_BACKUP: upstream_backup,
    Approach.ACTIVE_STANDBY: active_standby,
    Approach.CHECKPOINTED: checkpointed,
    Approach.EVENTUAL_CHECKPOINTS: eventual_checkpoints,
    Approach.COORDINATED: coordinated,
    Approach.UNCOORDINATED: uncoordinated,
    Approach.COMMUNICATION_INDUCED: communication_induced,
}


# -- what the formulas share ----------------------------------------------------------------


def _arriving(unit: UnitFigures, span_ms: float) -> float:
    return unit.input_tuples_per_s * span_ms / 1000


def _leaving(unit: UnitFigures, span_ms: float) -> float:
    return unit.output_tuples_per_s * span_ms / 1000


def _selectivity(unit: UnitFigures) -> float:
    if unit.input_tuples_per_s == 0:
        return 0.0
    return unit.output_tuples_per_s / unit.input_tuples_per_s


def _replacement_ms(around: Surroundings, variant: Variant) -> float:
    return around.replacement_ms if variant is Variant.HOLDFAST else 0.0


def _first_input_ms(around: Surroundings) -> float:
    """K: the inputs are redirected, and the first tuple travels."""
    return around.redirect_ms + around.network_delay_ms


def _replay_ms(
    unit: UnitFigures,
    around: Surroundings,
    variant: Variant,
    beyond: float,
    *,
    from_empty: bool = False,
) -> float:
    """To process `beyond` tuples again, after those of the state if it is rebuilt from empty.

    In the paper's simulator a tuple is sent and then processed: 25 and 75 tuples at 10 µs take
    0.88 and 2.62 ms in its Table 6, which is 35 µs each, 25 of them for the network.
    """
    send_us = unit.tuple_bytes / around.network_bytes_per_ms * 1000

    def each_us(cost_us: float) -> float:
        return max(send_us, cost_us) if variant is Variant.HOLDFAST else send_us + cost_us

    cost_us = unit.tuple_cost_us if unit.replay_cost_us is None else unit.replay_cost_us
    took_us = beyond * each_us(cost_us)
    if from_empty:
        took_us += unit.state_tuples * each_us(cost_us * unit.rebuild_share)
    return took_us / 1000


def _difference_bytes(unit: UnitFigures, interval_ms: float) -> float:
    """What of the state differs after an interval; the knee of [HA Figure 6]."""
    return min(unit.changed_bytes_per_s * interval_ms / 1000, unit.state_bytes)


def _outputs_bytes(unit: UnitFigures, span_ms: float) -> float:
    return _leaving(unit, span_ms) * unit.output_tuple_bytes


def _percent_of_input(unit: UnitFigures, bytes_per_s: float) -> float:
    return 100 * bytes_per_s / unit.input_bytes_per_s if unit.input_bytes_per_s else 0.0


def _indicators_percent(unit: UnitFigures, around: Surroundings, sets: int) -> float:
    """f4 of Table 3: proportional to 1/M, operators and paths; of the processing of tuples."""
    per_s = sets * (unit.operators + unit.paths) * 1000 / around.interval_ms
    processing = unit.input_tuples_per_s * unit.tuple_cost_us
    return 100 * per_s * around.indicator_cost_us / processing if processing else 0.0


def _determinant_delay_ms(around: Surroundings, variant: Variant) -> float:
    """Output waits until the determinants behind it are safe. [HA §6]

    The paper sends them with its queue-trimming messages, or as often; a secondary has them one
    network delay later, and says so. Here they are synced as soon as the last sync is over.
    """
    if variant is Variant.HOLDFAST:
        return 1.5 * around.sync_ms
    return around.interval_ms / 2 + 2 * around.network_delay_ms


def _restart_points_bytes_per_s(unit: UnitFigures, around: Surroundings) -> float:
    """One goes to the coordinator's journal every M."""
    ids = _RESTART_POINT_IDS * unit.input_streams
    return ids * around.id_bytes / around.interval_ms * 1000


def _determinant_bytes_per_s(unit: UnitFigures) -> float:
    return unit.input_tuples_per_s * unit.determinant_bytes_per_tuple
