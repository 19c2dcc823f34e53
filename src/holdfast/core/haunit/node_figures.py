"""A node's counters, for people, meters and tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.model.ids import BEGINNING_US, TimeUs

if TYPE_CHECKING:
    from holdfast.core.haunit.ha_unit import HAUnit


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """A node's counters since its incarnation started; of a passive secondary those that it has.

    Attributes:
        input_tuples: Tuples processed, replayed ones included.
        output_tuples: New tuples put out.
        replayed_tuples: Tuples processed in silence.
        duplicates_dropped: Tuples that arrived more than once.
        refused_frames: Frames of, or meant for, another incarnation.
        pending_tuples: Tuples in input queues.
        held_tuples: Tuples in SUnion.
        unsent_tuples: Tuples in output queues that wait for credit or a subscriber.
        retained_tuples: Tuples in output queues in memory.
        retained_bytes: Their size.
        spilled_tuples: Tuples in spill logs.
        state_bytes: Size of the operators' pages.
        held_bytes: The same with the clones for a checkpoint; bounded by `stateBytesMax`.
        boundary_us: The boundary reached.
        is_silent: Whether it is still replaying.
        is_finished: Whether all inputs have ended and all outputs are safe.
    """

    input_tuples: int = 0
    output_tuples: int = 0
    replayed_tuples: int = 0
    duplicates_dropped: int = 0
    refused_frames: int = 0
    pending_tuples: int = 0
    held_tuples: int = 0
    unsent_tuples: int = 0
    retained_tuples: int = 0
    retained_bytes: int = 0
    spilled_tuples: int = 0
    state_bytes: int = 0
    held_bytes: int = 0
    boundary_us: TimeUs = BEGINNING_US
    is_silent: bool = False
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class NodeNeeds:
    """How far back a node goes.

    Attributes:
        state_tuples: Input tuples from the oldest that the operators' state goes back to, over all
            input streams. [HA Table 3: |state|]
        replay_tuples: Input tuples from the oldest that its newest stored restart point needs:
            what a replacement would begin with now. [HA Table 3: Q]
    """

    state_tuples: int
    replay_tuples: int


def statistics_of(unit: HAUnit, *, refused_frames: int, is_finished: bool) -> NodeStatistics:
    """A node's counters now.

    Args:
        unit: Its unit.
        refused_frames: Those that neither its inputs nor its outputs have counted.
        is_finished: Whether all inputs have ended and all outputs are safe.
    """
    queues = unit.outputs.queues()
    counters = [queue.statistics() for queue in queues]
    inputs = list(unit.inputs.all())
    pages = unit.network.pages.statistics()
    return NodeStatistics(
        input_tuples=unit.input_tuples,
        output_tuples=unit.outputs.tuples,
        replayed_tuples=unit.replay.tuples,
        duplicates_dropped=sum(i.queue.duplicates_dropped for i in inputs),
        refused_frames=unit.inputs.refused_frames + unit.outputs.refused_frames + refused_frames,
        pending_tuples=sum(i.queue.pending_tuples for i in inputs),
        held_tuples=unit.order.held_tuples,
        unsent_tuples=sum(max(0, queue.unsent_tuples) for queue in queues),  # < 0: it is behind.
        retained_tuples=sum(c.retained_tuples for c in counters),
        retained_bytes=sum(c.retained_bytes for c in counters),
        spilled_tuples=sum(c.spilled_tuples for c in counters),
        state_bytes=pages.pages_used * pages.page_bytes,
        held_bytes=pages.pages_held * pages.page_bytes,
        boundary_us=unit.network.boundary_us,
        is_silent=unit.replay.is_silent,
        is_finished=is_finished,
    )


def needs_of(unit: HAUnit) -> NodeNeeds:
    """How far back it goes now. Cost: O(operators + input streams)."""
    low = unit.network.oldest_needed()
    state = replay = 0
    for stream in unit.inputs.all():
        processed = stream.processed_before
        state += max(0, processed - int(low[stream.number]))
        replay += max(0, processed - stream.needed_from)
    return NodeNeeds(state, replay)
