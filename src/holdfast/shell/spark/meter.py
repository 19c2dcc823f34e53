"""What a node's shell measures for the adviser: rates, sizes, costs, how fast the state changes.

Rates and costs are those of the last minute, idle times before and after the work left out; sizes
are averages over the same time, for a failure may come at any moment. What is replayed in silence
after a failure does not count.

Measuring costs those who are measured: a node at work takes a thousand steps a second. So steps add
to plain numbers, and little more is looked at than one pass in eight, and one reading of a source
with each sign of life.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from holdfast.core.coordinator.reports import MeasurementsReported
from holdfast.core.haunit import events

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.haunit.node import Node
    from holdfast.core.haunit.node_figures import NodeStatistics
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.state.change_sample import ChangeSample

_SAMPLES: Final = 120
_SAMPLE_INTERVAL_MS: Final = 2_000
_MEASURED_INTERVAL_MS: Final = 450
"""A little less than the half second after which a node reports by itself."""
_SPAN_WANTED: Final = 4
_SIZED_EVERY: Final = 32
_MEASURED: Final = frozenset({events.Proceed, events.BatchReceived, events.SourceRead})
_MEASURED_OFTEN: Final = _MEASURED - {events.SourceRead}
_ALL_LOOKED_AT: Final = 64
_LOOKED_AT_EVERY: Final = 8
_LONG_US: Final = 1_000
"""So long a pass is always looked at: it comes seldom, and replays are made of such."""
_PASSES_KEPT: Final = 31
_PASSES_WANTED: Final = 5


@dataclass(frozen=True, slots=True)
class _Counted:
    """Counters and sizes at one time."""

    at_ms: int = 0
    input_tuples: int = 0
    output_tuples: int = 0
    busy_us: int = 0
    state_bytes: int = 0
    state_tuples: int = 0
    replay_tuples: int = 0


@dataclass(slots=True)
class _Sizes:
    """Tuples that were looked at, and their bytes: Arrow takes its time to add these up."""

    batches: int = 0
    tuples: int = 0
    bytes: int = 0

    def add(self, batch: TupleBatch) -> None:
        """Look at one in so many."""
        if self.batches % _SIZED_EVERY == 0:
            self.tuples += batch.count
            self.bytes += batch.batch.nbytes
        self.batches += 1

    def look_at(self, batches: Iterable[TupleBatch]) -> None:
        """Look at these, chosen already."""
        for batch in batches:
            self.tuples += batch.count
            self.bytes += batch.batch.nbytes
            self.batches += _SIZED_EVERY

    @property
    def mean(self) -> float:
        return round(self.bytes / self.tuples, 1) if self.tuples else 0.0


class _PassCosts:
    """What passes take by their size: so much each, and so much more per tuple.

    At a low rate passes are small, and what a pass costs by itself hides what a tuple costs. A
    replay runs in large passes. Kept are the last passes of every power of two.
    """

    def __init__(self) -> None:
        self._passes: dict[int, deque[tuple[int, int]]] = {}

    def add(self, tuples: int, took_us: int) -> None:
        """A pass has taken so long."""
        size = tuples.bit_length()
        passes = self._passes.get(size)
        if passes is None:
            passes = self._passes[size] = deque(maxlen=_PASSES_KEPT)
        passes.append((tuples, took_us))

    def per_tuple_us(self, pass_tuples: int) -> float:
        """In passes of so many tuples; 0 if there was none. By medians: some passes are slow."""
        usual = [
            (median(n for n, _ in passes), median(us for _, us in passes))
            for _, passes in sorted(self._passes.items())
            if len(passes) >= _PASSES_WANTED
        ]
        if not usual:
            return 0.0
        (few, few_us), (many, many_us) = usual[0], usual[-1]
        if few == many or many_us <= few_us:
            return many_us / many
        each_us = (many_us - few_us) / (many - few)
        return each_us + max(0.0, few_us - few * each_us) / pass_tuples


class Meter:
    """The measurements of one incarnation of a node.

    Attributes:
        measured_now: Classes of stimuli that are to be shown to the meter now.
    """

    def __init__(self) -> None:
        """Nothing measured yet."""
        self.measured_now: frozenset[type] = _MEASURED
        self._busy_us = 0
        self._passes = 0
        self._costs = _PassCosts()
        self._receiving_us = 0
        self._received_tuples = 0
        self._seen_tuples = 0
        self._inputs = _Sizes()
        self._outputs = _Sizes()
        self._counted: deque[_Counted] = deque(maxlen=_SAMPLES)
        self._last: MeasurementsReported | None = None
        self._measured_ms = 0
        self._sample: ChangeSample | None = None
        self._sampled_ms = 0
        self._samples = 0
        self._changes: deque[tuple[int, int]] = deque(maxlen=_SAMPLES)  # ms, bytes

    @property
    def has_received(self) -> bool:
        """Whether any input has come."""
        return self._inputs.batches > 0

    def decoded(self, took_us: int) -> None:
        """A frame was taken in and decoded."""
        self._receiving_us += took_us

    def stepped(self, node: Node, stimulus: Stimulus, effects: list[Effect], took_us: int) -> None:
        """The machine has taken a stimulus of a class that is measured now."""
        if type(stimulus) is events.Proceed:
            self._busy_us += took_us
            seen = node.input_tuples
            tuples, self._seen_tuples = seen - self._seen_tuples, seen
            self._passes += 1
            is_usual = self._passes > _ALL_LOOKED_AT and took_us < _LONG_US
            if is_usual and self._passes % _LOOKED_AT_EVERY:
                return
            if tuples:
                self._costs.add(tuples, took_us)
            for effect in effects:
                if isinstance(effect, (events.SendBatch, events.WriteSink)):
                    self._outputs.add(effect.batch)
        elif type(stimulus) is events.BatchReceived:
            self._receiving_us += took_us
            self._received_tuples += stimulus.batch.count
            self._inputs.add(stimulus.batch)
        elif type(stimulus) is events.SourceRead:
            self._inputs.look_at(stimulus.batches)
            if stimulus.batches:
                self.measured_now = _MEASURED_OFTEN

    def look_at_changes(self, now_ms: int) -> None:
        """See how much of the state has changed since it was sampled; then measure a reading."""
        self.measured_now = _MEASURED
        if self._sample is not None:
            self._changes.append((now_ms - self._sampled_ms, self._sample.changed_bytes()))
            self._sample = None

    def replay_cost_us(self, pass_tuples: int) -> float:
        """What a tuple costs that is replayed in passes of so many; 0: nobody knows."""
        receive_us = self._receiving_us / max(1, self._received_tuples)
        return receive_us + self._costs.per_tuple_us(pass_tuples)

    def measured(
        self, node: Node, statistics: NodeStatistics, now_ms: int, *, is_last: bool = False
    ) -> MeasurementsReported:
        """All measurements now, for the node's statistics; may begin a sample of the state.

        They take longer than the rest of a report, and nobody wants them more often than twice a
        second: until then they are the former ones, but in a node's last report.
        """
        is_soon = now_ms - self._measured_ms < _MEASURED_INTERVAL_MS
        if self._last is not None and is_soon and not is_last:
            return self._last
        self._measured_ms = now_ms
        self._last = self._measure(node, statistics, now_ms)
        return self._last

    def _measure(self, node: Node, statistics: NodeStatistics, now_ms: int) -> MeasurementsReported:
        if not statistics.is_silent:
            needs = node.needs()
            counted = _Counted(
                now_ms,
                statistics.input_tuples,
                statistics.output_tuples,
                self._busy_us,
                statistics.state_bytes,
                needs.state_tuples,
                needs.replay_tuples,
            )
            self._counted.append(counted)
            self._sample_if_due(node, now_ms)
        span = self._working_span()
        # What is kept for a replay comes in the batches in which it came before.
        replay_us = self.replay_cost_us(node.plan.limits.pass_tuples)
        first, last = span[0], span[-1]
        seconds = max(1, last.at_ms - first.at_ms) / 1000
        tuples = last.input_tuples - first.input_tuples
        changed_ms = sum(ms for ms, _ in self._changes)
        changed_bytes = sum(changed for _, changed in self._changes)
        return MeasurementsReported(
            input_tuples_per_s=round(tuples / seconds, 2),
            output_tuples_per_s=round((last.output_tuples - first.output_tuples) / seconds, 2),
            input_tuple_bytes=self._inputs.mean,
            output_tuple_bytes=self._outputs.mean,
            tuple_cost_us=round((last.busy_us - first.busy_us) / tuples, 3) if tuples else 0.0,
            replay_cost_us=round(replay_us, 4),
            changed_bytes_per_s=round(1000 * changed_bytes / max(1, changed_ms), 1),
            mean_state_bytes=round(fmean(c.state_bytes for c in span)),
            mean_state_tuples=round(fmean(c.state_tuples for c in span), 1),
            mean_replay_tuples=round(fmean(c.replay_tuples for c in span), 1),
        )

    def _sample_if_due(self, node: Node, now_ms: int) -> None:
        if self._samples and now_ms - self._sampled_ms < _SAMPLE_INTERVAL_MS:
            return
        self._sample = node.sample_changes(self._samples)
        self._sampled_ms = now_ms
        self._samples += 1

    def _working_span(self) -> list[_Counted]:
        """What was counted from before the first to after the last tuple of the last minute.

        A node that comes up first works off what has waited for it; that is left out.
        """
        counted = list(self._counted) or [_Counted()]
        moved = [i for i in range(1, len(counted)) if _has_worked(counted[i - 1], counted[i])]
        if not moved:
            return counted[-1:]
        span = counted[moved[0] - 1 : moved[-1] + 1]
        usual = median(_rate(before, after) for before, after in pairwise(span))
        while len(span) > _SPAN_WANTED and _rate(span[0], span[1]) > 2 * usual:
            del span[0]
        return span


def _rate(before: _Counted, after: _Counted) -> float:
    return (after.input_tuples - before.input_tuples) / max(1, after.at_ms - before.at_ms)


def _has_worked(before: _Counted, after: _Counted) -> bool:
    return after.input_tuples > before.input_tuples
