"""What is bounded.

I-MEM    an input holds no more than its bound, and what a record that must be whole, the last to
         come, has beyond it; what recorded passes are to take comes on top, which an incarnation
         before had taken within that bound; a sender sends no more than it was granted; a node
         with a full output queue stops working, unless it has not put out yet what an incarnation
         before, or another replica, has sent on some stream: others may wait for that.
         [architecture §4]
I-BND    a boundary holds: no tuple that is sent after it is older. [DPC §3.1]
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from holdfast.core.haunit import events
from holdfast.core.haunit.passes import passes_of
from holdfast.core.model.ids import BEGINNING_US, NodeId, StreamId
from holdfast.sim.checkers.base import Checker, Violation
from holdfast.sim.workload.promises import shared_streams, touched_nodes

if TYPE_CHECKING:
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.machine import Effect, Stimulus
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_EVERY = 8


class Bounds(Checker):
    """See the module."""

    looks_at = MappingProxyType(
        {
            "stepping": (events.Proceed,),
            "stepped": (events.Proceed,),
            "performing": (
                events.WriteSink,
                events.SendAck,
                events.SendSubscribe,
                events.SendBatch,
                events.SendBoundary,
            ),
        }
    )

    def __init__(self) -> None:
        """Nothing granted, nothing promised."""
        self._granted: dict[tuple[StreamId, int], int] = {}  # by the receiver's incarnation
        self._promised: dict[tuple[StreamId, int], tuple[int, int]] = {}  # (from, none older)
        self._touched: frozenset[NodeId] = frozenset()
        self._unsent_before = 0
        self._is_behind = False  # what an incarnation before has sent; before the present pass
        self._sent: dict[StreamId, int] = {}  # by any incarnation of any replica, up to this id
        self._shared: dict[StreamId, StreamId] = {}  # by the stream of a further replica
        self._turn = 0
        self._beyond: dict[StreamId, int] = {}  # what a whole record may have beyond the bound
        self._decided: dict[NodeId, tuple[int, ...]] = {}  # per input, what logged passes took

    def begin(self, world: World) -> None:
        """Look how long the records are, and whose tuples are the same whoever sends them."""
        self._touched = touched_nodes(world.plans.values())
        self._shared = shared_streams(world.plans.values())
        self._beyond = {
            stream: max((batch.count for batch in source.batches), default=1) - 1
            for stream, source in world.sources.items()
            if source.is_in_records
        }

    def stepping(self, process: Process, stimulus: Stimulus) -> None:
        """Note how much is unsent before a pass."""
        if isinstance(stimulus, events.Proceed) and process.machine is not None:
            self._turn += 1
            if self._turn % _EVERY == 0:
                self._unsent_before = process.machine.statistics().unsent_tuples
                next_ids = process.machine.positions()["next_ids"].items()
                self._is_behind = any(
                    next_id < self._sent.get(self._shared.get(stream, stream), 0)
                    for stream, next_id in next_ids
                )

    def stepped(self, process: Process, stimulus: Stimulus, effects: list[Effect]) -> None:
        """I-MEM of queues, now and then."""
        machine = process.machine
        if machine is None or not isinstance(stimulus, events.Proceed) or self._turn % _EVERY:
            return
        plan, now = machine.plan, machine.statistics()
        beyond = sum(self._beyond.get(spec.stream, 0) for spec in plan.inputs)
        processed = machine.positions()["processed"].values()
        for taken, before in zip(self._decided.get(plan.node, processed), processed, strict=True):
            beyond += max(0, taken - before)
        limit = plan.limits.input_queue_tuples * len(plan.inputs) + beyond
        if plan.delays is not None and plan.delays.drops:
            limit *= 2  # Beside what waits, as much is kept for a correction.
        if now.pending_tuples > limit:
            raise Violation("I-MEM", f"{plan.node} holds {now.pending_tuples} tuples of {limit}")
        if any(spec.is_feedback for spec in plan.outputs):
            return  # Whoever sends back never waits: what is not sent is spilled.
        if any(spec.replica for spec in plan.outputs):
            return  # The same of what one replica does not take, as long as another one takes.
        if self._is_behind:
            return  # The same until it has put out again what others may wait for.
        outputs = sum(len(o.streams) for o in plan.outputs if not o.is_sink)
        room = plan.limits.output_queue_tuples * outputs
        if self._unsent_before > room and now.unsent_tuples > self._unsent_before:
            raise Violation("I-MEM", f"{plan.node} works on with {self._unsent_before} unsent")

    def performing(self, process: Process, effect: Effect) -> None:
        """I-MEM of credit; I-BND."""
        if isinstance(effect, events.WriteSink):
            if effect.stream == process.plan.pass_stream:
                self._note_decided(process.node, passes_of((effect.batch,))[-1])
        elif isinstance(effect, events.SendAck | events.SendSubscribe):
            key = (effect.stream, process.incarnation)
            self._granted[key] = max(self._granted.get(key, 0), effect.credit_until)
        elif isinstance(effect, events.SendBatch | events.SendBoundary) and effect.run is not None:
            return  # Of what is tentative nothing holds but that it is undone.
        elif isinstance(effect, events.SendBatch):
            granted = self._granted.get((effect.stream, effect.receiver), 0)
            if effect.batch.next_id > granted:
                raise Violation(
                    "I-MEM",
                    f"{process.endpoint.name} sends {effect.stream} up to "
                    f"{effect.batch.next_id}, granted were {granted}",
                )
            stream = self._shared.get(effect.stream, effect.stream)
            self._sent[stream] = max(self._sent.get(stream, 0), effect.batch.next_id)
            sender = self._sender(process, effect.stream)
            self._check_times(sender, effect.batch)
            self._promise(sender, effect.batch.next_id, effect.batch.boundary_us)
        elif isinstance(effect, events.SendBoundary):
            sender = self._sender(process, effect.stream)
            self._promise(sender, effect.sent_before, effect.boundary_us)

    def _note_decided(self, node: NodeId, pass_: Pass) -> None:
        taken = pass_.processed_before
        known = self._decided.get(node, taken)
        self._decided[node] = tuple(map(max, known, taken))

    def _sender(self, process: Process, stream: StreamId) -> tuple[StreamId, int]:
        """Where tuples are the same whoever sends them, a promise binds all incarnations."""
        changes = process.node in self._touched or stream in process.plan.changing_streams()
        return stream, process.incarnation if changes else 0

    def _check_times(self, key: tuple[StreamId, int], batch: TupleBatch) -> None:
        before, boundary_us = self._promised.get(key, (0, BEGINNING_US))
        if batch.next_id <= before:
            return
        if int(batch.starting_at(before).time_us.min()) < boundary_us:
            raise Violation(
                "I-BND", f"{key[0]}: a tuple from {batch.first_id} on is older than promised"
            )

    def _promise(self, key: tuple[StreamId, int], sent_before: int, boundary_us: int) -> None:
        if boundary_us > self._promised.get(key, (0, BEGINNING_US))[1]:
            self._promised[key] = (sent_before, boundary_us)
