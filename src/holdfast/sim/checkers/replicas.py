"""What the replicas of an instance, and its incarnations, have in common.

I-KEEP   a queue drops no tuple that a secondary, or who was one, has not received. [HA §5.3]
I-COPY   a passive secondary that has applied a delta has the very pages and output tuples that its
         primary had at the delta's cut. [HA §5.1]
I-PASS  a secondary runs no pass that has not been logged; the clock in a pass log never moves
         back; a pass whose record does not count, because a later incarnation has missed it, is
         never taken for durable. [HA §6]
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.passes import Pass, passes_of
from holdfast.core.haunit.plan import Standby
from holdfast.core.model.ids import Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import between
from holdfast.sim.checkers.base import Checker, Violation

if TYPE_CHECKING:
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.state.page_manager import PageManager
    from holdfast.sim.disk import SimulatedLog
    from holdfast.sim.part_log import SimulatedPartLog
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_DELTAS_KEPT = 4


class Kept(Checker):
    """I-KEEP."""

    looks_at = MappingProxyType(
        {
            "performing": (events.SendAck, events.SendSubscribe, events.TrimSpill),
        }
    )

    def __init__(self) -> None:
        """Nobody has received anything."""
        self._received: dict[StreamId, dict[str, tuple[Process, int]]] = {}  # by process

    def performing(self, process: Process, effect: Effect) -> None:
        """Note what secondaries say that they have, and compare trims with it."""
        if isinstance(effect, events.SendAck):
            self._note(process, effect, effect.received_before)
        elif isinstance(effect, events.SendSubscribe):
            self._note(process, effect, effect.from_id)
        elif isinstance(effect, events.TrimSpill):
            self._check(process, effect)

    def _note(
        self, process: Process, effect: events.SendAck | events.SendSubscribe, before: int
    ) -> None:
        name = process.endpoint.name
        if effect.stream == process.plan.replica_stream:
            return
        if effect.is_secondary or name in self._received.get(effect.stream, {}):
            self._received.setdefault(effect.stream, {})[name] = (process, before)

    def _check(self, trimming: Process, trim: events.TrimSpill) -> None:
        """A secondary gets its tuples from processes that the same driver has brought up.

        While lives of the driver overlap, those of the newer one trim what they alone need. A
        secondary of the former one still counts there, but is never promoted: the journal is
        claimed.
        """
        for name, (process, before) in list(self._received.get(trim.stream, {}).items()):
            if process.is_dead or process.life.is_over:
                del self._received[trim.stream][name]
            elif process.life is trimming.life and before < trim.before and process.is_current:
                raise Violation(
                    "I-KEEP",
                    f"{trim.stream} is trimmed before {trim.before}; {name} has received only "
                    f"what comes before {before}",
                )


@dataclass(frozen=True, slots=True)
class _Copy:
    """Pages by set, and output tuples in memory by stream."""

    pages: dict[int, np.ndarray]
    outputs: dict[StreamId, list[TupleBatch]]


class Copies(Checker):
    """I-COPY."""

    looks_at = MappingProxyType(
        {
            "followed": (events.DeltaReceived,),
        }
    )

    def __init__(self) -> None:
        """Nothing has been sent."""
        self._sent: dict[tuple[NodeId, Incarnation], dict[int, _Copy | None]] = {}

    def begin(self, world: World) -> None:
        """Look whether somebody sends copies."""
        sends = any(plan.standby is Standby.PASSIVE for plan in world.plans.values())
        self.idle = () if sends else ("stepped",)

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """A delta is under way from the step on in which its cut is made."""
        del stimulus, effects
        if process.plan.standby is not Standby.PASSIVE or process.machine is None:
            return
        sequence = process.machine.delta_under_way
        sent = self._sent.setdefault((process.node, process.incarnation), {})
        if sequence and sequence not in sent:
            pages, outputs = process.machine.replicated()
            sent[sequence] = _Copy(_pages(pages), outputs)
            sent.pop(sequence - _DELTAS_KEPT, None)

    def followed(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """Compare what the secondary has once it has applied a delta."""
        if not isinstance(stimulus, events.DeltaReceived) or process.standby is None:
            return
        if not any(isinstance(e, events.SendDeltaAck) and e.is_applied for e in effects):
            return  # Refused.
        image, delta = process.standby.image, stimulus.delta
        place = f"{process.endpoint.name} after delta {delta.sequence}"
        sent = self._sent.get((process.node, stimulus.sender), {})
        had = sent.get(delta.sequence)
        if had is None and delta.sequence < min(sent, default=0):
            return  # To a zombie that wakes up: nobody else is so far behind.
        if had is None:
            raise Violation("I-COPY", f"{place}, which has been applied before")
        ends = zip(image.outputs, delta.outputs, strict=True)
        held = {s: list(between(image.outputs[s], *span)) for s, span in ends}
        _compare(place, had, _Copy(_pages(image.pages), held))
        sent[delta.sequence] = None


def _pages(pages: PageManager) -> dict[int, np.ndarray]:
    rows = pages.arena.reshape(-1, pages.page_words)
    return {int(name): rows[pages.pages_of(name)] for name in sorted(pages.page_counts())}


def _compare(place: str, had: _Copy, has: _Copy) -> None:
    if had.pages.keys() != has.pages.keys():
        raise Violation("I-COPY", f"{place} has page sets {list(has.pages)}, not {list(had.pages)}")
    for name, pages in had.pages.items():
        if not np.array_equal(pages, has.pages[name]):
            raise Violation("I-COPY", f"{place} has another page set {name}")
    for stream, tuples in had.outputs.items():
        if not _is_end_of(tuples, has.outputs[stream]):
            raise Violation("I-COPY", f"{place} has other tuples of {stream}")


def _is_end_of(tuples: list[TupleBatch], whole: list[TupleBatch]) -> bool:
    """Whether they are the last ones; what comes before them the primary has spilled."""
    if not tuples:
        return True
    end = between(whole, tuples[0].first_id, tuples[-1].next_id)
    if not end or (end[0].first_id, end[-1].next_id) != (tuples[0].first_id, whole[-1].next_id):
        return False
    tables = [pa.Table.from_batches([b.batch for b in side]) for side in (tuples, end)]
    return bool(tables[0].equals(tables[1]))


class LoggedPasses(Checker):
    """I-PASS."""

    looks_at = MappingProxyType(
        {
            "performing": (events.WriteSink,),
            "stepping": (events.SinkSynced,),
            "stepped": (events.Proceed,),
        }
    )

    def __init__(self) -> None:
        """Nothing has been logged."""
        self._logged: dict[StreamId, dict[int, list[Pass]]] = {}
        self._own: dict[str, dict[int, Pass]] = {}  # by process, not yet durable
        self._logs: dict[StreamId, SimulatedLog | SimulatedPartLog] = {}

    def begin(self, world: World) -> None:
        """Remember the logs."""
        self._logs = world.sinks

    def performing(self, process: Process, effect: Effect) -> None:
        """Note what is logged, and look at the clock."""
        stream = process.plan.pass_stream
        if not isinstance(effect, events.WriteSink) or effect.stream != stream:
            return
        logged = self._logged.setdefault(stream, {})
        for pass_ in passes_of((effect.batch,)):
            before = logged.get(pass_.number - 1)
            if before and all(r.clock_us > pass_.clock_us for r in before):
                raise Violation("I-PASS", f"{stream}: the clock of {pass_.number} is behind")
            logged.setdefault(pass_.number, []).append(pass_)
            self._own.setdefault(process.endpoint.name, {})[pass_.number] = pass_

    def stepping(self, process: Process, stimulus: Stimulus) -> None:
        """What is said to be durable has to be what counts."""
        stream = process.plan.pass_stream
        if not isinstance(stimulus, events.SinkSynced) or stimulus.stream != stream:
            return
        own = self._own.get(process.endpoint.name, {})
        durable = {n: own.pop(n) for n in list(own) if n < stimulus.durable_before}
        if not durable or self._logs[stream].is_newest(process.incarnation):
            return
        counting = {r.number: r for r in passes_of(tuple(self._logs[stream].read()))}
        for number, pass_ in durable.items():
            if counting.get(number) != pass_:
                raise Violation(
                    "I-PASS", f"{process.endpoint.name} takes pass {number} for durable"
                )

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """A secondary follows."""
        del effects
        machine, stream = process.machine, process.plan.pass_stream
        if not isinstance(stimulus, events.Proceed) or stream not in self._logs:
            return
        if not isinstance(machine, Node) or not machine.is_secondary:
            return
        if not machine.may_follow({stream: 1 + max(self._logged.get(stream, {}), default=-1)}):
            raise Violation("I-PASS", f"{process.endpoint.name} decides on a pass of its own")
