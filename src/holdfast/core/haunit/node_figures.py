"""A node's counters, for people, meters and tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.core.haunit.ha_unit import HAUnit


@dataclass(frozen=True, slots=True)
class NodeStatistics:
    """A node's counters since its incarnation started.

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

    input_tuples: int
    output_tuples: int
    replayed_tuples: int
    duplicates_dropped: int
    refused_frames: int
    pending_tuples: int
    held_tuples: int
    unsent_tuples: int
    retained_tuples: int
    retained_bytes: int
    spilled_tuples: int
    state_bytes: int
    held_bytes: int
    boundary_us: int
    is_silent: bool
    is_finished: bool


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
        unsent_tuples=sum(queue.unsent_tuples for queue in queues),
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
