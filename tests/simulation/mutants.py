"""Deliberate bugs: each must be found by the simulator, or the simulator is blind to its kind.

A mutant replaces one method of a core, or of the simulated shell where a shell would have the bug.
They live here and nowhere else: the product has no switch for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from holdfast.core.coordinator import coordinator as coordinator_module
from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.haunit import events
from holdfast.core.haunit import life as life_module
from holdfast.core.haunit import node as node_module
from holdfast.core.haunit.arrivals import Arrivals
from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.durability.checkpointed import Checkpointed
from holdfast.core.haunit.durability.lines import Lines
from holdfast.core.haunit.ha_input import HAInput
from holdfast.core.haunit.ha_output import HAOutput
from holdfast.core.haunit.input_order import IdOrder
from holdfast.core.haunit.operator_network import OperatorNetwork
from holdfast.core.haunit.outputs.former_promises import FormerPromises
from holdfast.core.haunit.restart_points import RestartPoints
from holdfast.core.model.ids import BEGINNING_US, END_US, Incarnation
from holdfast.core.operators import partial_aggregate
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.incremental_join import IncrementalJoin
from holdfast.core.operators.processing_time import ProcessingTimeAggregate
from holdfast.core.operators.running_join import RunningJoin
from holdfast.core.operators.sampler import Sampler
from holdfast.core.operators.windowed_join import WindowedJoin
from holdfast.core.operators.windows import WindowedOperator
from holdfast.core.queues.input_queue import InputQueue
from holdfast.core.queues.output_queue import Cursor
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.sunion import SUnion
from holdfast.core.wire import journal_volumes
from holdfast.planning import nodes as planning
from holdfast.sim import process as process_module
from holdfast.sim import world as world_module
from holdfast.sim.disk import SimulatedLog
from holdfast.sim.faults import KINDS, SILENCES
from holdfast.sim.part_log import SimulatedPartLog
from holdfast.sim.process_channels import ProcessChannels
from holdfast.sim.process_sinks import ProcessSinks
from holdfast.sim.seeds import Run

_LOST_FRAMES = ("break", "cut", "isolate")
_TWO_DRIVERS = ("driver-overlap", "kill")


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug.

    Attributes:
        owner: The class or module that has it.
        method: What is replaced.
        bug: Makes the replacement from the original.
        kinds: The faults to look with, where few others could show it.
        approach: How units are protected, where no other way could show it.
        dataflow: What runs, where few other dataflows could show it.
        guarantee: The weakest that units have, where no other could show it.
    """

    owner: Any
    method: str
    bug: Callable[[Any], Any]
    kinds: tuple[str, ...] = tuple(kind for kind in KINDS if kind not in SILENCES)
    approach: str | None = None
    dataflow: str = "mixed"
    guarantee: str | None = None

    def run(self, seed: int) -> Run:
        """What to look for it in."""
        return Run(
            seed, self.kinds, self.dataflow, approach=self.approach, guarantee=self.guarantee
        )

    @contextmanager
    def switched_in(self) -> Iterator[None]:
        """The bug is there within the block."""
        original = getattr(self.owner, self.method)
        mutated = self.bug(original)
        with ExitStack() as stack:
            stack.enter_context(patch.object(self.owner, self.method, mutated))
            for table in (
                node_module._HANDLERS,
                life_module._HANDLERS,
                Durability.HANDLERS,
                Checkpointed.HANDLERS,
                Lines.HANDLERS,
                coordinator_module._HANDLERS,
                process_module._PERFORMERS,
            ):
                replaced = {key: mutated for key, f in table.items() if f is original}
                stack.enter_context(patch.dict(table, replaced))
            yield


def _heed_boundaries_only_at_the_end(original: Any) -> Any:
    """One that comes without a tuple is taken for nothing, until the stream has ended."""

    def promise(self: InputQueue, next_id: int, boundary_us: int, next_note: int = 0) -> bool:
        heeded = boundary_us if boundary_us == END_US else BEGINNING_US
        return bool(original(self, next_id, heeded, next_note))

    return promise


def _trim_one_too_far(original: Any) -> Any:
    def acknowledge(self: Cursor, received_before: int, needed_from: int) -> None:
        if needed_from > self.needed_from:
            needed_from = min(needed_from + 1, self._queue.next_id)
        original(self, received_before, needed_from)

    return acknowledge


def _trim_what_was_received(original: Any) -> Any:
    def acknowledge(self: Cursor, received_before: int, needed_from: int) -> None:
        original(self, received_before, max(needed_from, received_before))

    return acknowledge


def _keep_duplicates(_: Any) -> Any:
    def receive(self: InputQueue, batch: Any, notes_before: int = 0, notes: Any = ()) -> bool:
        if batch.first_id > self.next_id:
            return False
        self._batches.append(batch)
        self.pending_tuples += batch.count
        self.next_id = max(self.next_id, batch.next_id)
        self.boundary_us = max(self.boundary_us, batch.boundary_us)
        return True

    return receive


def _accept_gaps(original: Any) -> Any:
    def receive(self: InputQueue, batch: Any, *notes: Any) -> bool:
        self.next_id = max(self.next_id, batch.first_id)
        accepted: bool = original(self, batch, *notes)
        return accepted

    return receive


def _ignore_the_last_id_of_keep_alives(_: Any) -> Any:
    def promise(self: InputQueue, next_id: int, boundary_us: int, next_note: int = 0) -> bool:
        self.boundary_us = max(self.boundary_us, boundary_us)
        return True

    return promise


def _ack_before_durable(original: Any) -> Any:
    def ask_to_store(self: Durability, now_ms: int) -> list[Any]:
        effects = original(self, now_ms)
        for point in self.points._asked:
            self.unit.inputs.let_go(point)
        return effects

    return ask_to_store


def _make_parts_of_passes(_: Any) -> Any:
    return lambda rows: []


def _every_point_is_safe(_: Any) -> Any:
    return lambda self, point: True


def _need_only_what_comes(original: Any) -> Any:
    def note(self: RestartPoints, point: RestartPoint) -> None:
        original(self, replace(point, needed_from=dict(point.processed_before)))

    return note


def _accept_an_old_sender(_: Any) -> Any:
    def accepted(self: HAInput, stream: Any, sender: Any, receiver: Any, now_ms: int) -> Any:
        found = self._senders.get(stream)
        if found is not None:
            found[1].heard_ms = now_ms
        return found

    return accepted


def _accept_an_old_receiver(_: Any) -> Any:
    def accepted(self: HAOutput, got: Any) -> Any:
        edge = self._edges.get(got.stream)
        if edge is None:
            return None
        link = next(iter(edge.others.values()), None) if got.is_secondary else edge.primary
        if link is None:
            return None
        link.receiver = link.receiver or got.sender
        return edge, link

    return accepted


def _forget_the_slowest_boundary(_: Any) -> Any:
    return lambda self: max(stream.queue.taken_boundary_us for stream in self.streams)


def _merge_in_order_of_arrival(original: Any) -> Any:
    def merge(pieces: Any, port_count: int, low: Any) -> Any:
        release = original(pieces, port_count, low)
        for port in release.ports:
            if port is not None and len(port.time_us) > 1:
                turned = np.arange(len(port.time_us))[::-1]
                port.batch = port.batch.take(pa.array(turned))
                port.time_us = port.time_us[turned]
        return release

    return merge


def _write_sinks_again(original: Any) -> Any:
    def open_output(self: HAOutput, spec: Any, point: RestartPoint, sink_next_ids: Any) -> None:
        original(self, spec, point, sink_next_ids)
        for sink in self._sinks.values():
            sink.next_id = max(sink.next_id, sink.written_before)

    return open_output


def _speak_while_replaying(original: Any) -> Any:
    def process(self: OperatorNetwork, *arguments: Any, is_silent: bool) -> Any:
        del is_silent
        return original(self, *arguments, is_silent=False)

    return process


def _promise_more_while_replaying(original: Any) -> Any:
    def process(self: OperatorNetwork, *arguments: Any, is_silent: bool) -> Any:
        produced = original(self, *arguments, is_silent=is_silent)
        if is_silent:
            promised = [min(made.boundary_us + 5_000, END_US) for made in produced]
            pairs = zip(produced, promised, strict=True)
            produced = [made._replace(boundary_us=before_us) for made, before_us in pairs]
        return produced

    return process


def _promise_at_once_what_was_promised(original: Any) -> Any:
    """Before all that came before it has been put out again."""

    def subscribed(self: FormerPromises, got: Any) -> Any:
        return original(self, replace(got, from_id=-1, had_before=-1))

    return subscribed


def _replay_one_too_few(original: Any) -> Any:
    return lambda self, cut: tuple(max(0, before - 1) for before in original(self, cut))


def _ignore_credit(original: Any) -> Any:
    def take_sendable(self: Cursor) -> Any:
        self._credit_until = max(self._credit_until, self._queue.next_id)
        return original(self)

    return take_sendable


def _promise_before_sending(_: Any) -> Any:
    def take_boundary(self: Cursor) -> int | None:
        boundary_us = self._queue.boundary_us
        if not self.is_subscribed or boundary_us <= self._boundary_sent_us:
            return None
        self._boundary_sent_us = boundary_us
        return boundary_us

    return take_boundary


def _assign_before_the_journal(original: Any) -> Any:
    def on_hello(self: coordinator_module.Coordinator, hello: Any, now_ms: int) -> Any:
        *others, write = original(self, hello, now_ms)
        assigned = self._decisions._asked.pop(write.request_id).then(now_ms)
        return [*others, *assigned, write]

    return on_hello


def _reuse_incarnations(original: Any) -> Any:
    def on_hello(self: coordinator_module.Coordinator, hello: Any, now_ms: int) -> Any:
        node = self._instances[hello.node]
        if node.newest > 1:
            node.newest = Incarnation(node.newest - 1)
        return original(self, hello, now_ms)

    return on_hello


def _read_before_it_claims(original: Any) -> Any:
    def takeover(numbers: Any) -> Any:
        claim, read, *rest = original(numbers)
        return read, claim, *rest

    return takeover


def _start_from_the_oldest_point(original: Any) -> Any:
    def add(self: CheckpointRegistry, noted: Any) -> None:
        if not self.points(noted.node):
            original(self, noted)

    return add


def _skip_what_was_spilled(original: Any) -> Any:
    def missing_for_send(self: Cursor) -> Any:
        if original(self) is not None:
            self.next_to_send = self._queue.memory_first
        return None

    return missing_for_send


def _sync_says_too_much(original: Any) -> Any:
    def sync(self: ProcessSinks, effect: Any) -> None:
        log, process = self._world.sinks[effect.stream], self._process
        process.take(events.SinkSynced(effect.stream, log.next_id(process.incarnation)))

    return sync


def _believe_what_was_not_synced(original: Any) -> Any:
    def open_log(self: SimulatedLog, *arguments: Any, **options: Any) -> int:
        kept = [(segment.file.synced_bytes, segment.synced_before) for segment in self._segments]
        first_id = original(self, *arguments, **options)
        for segment, (synced_bytes, synced_before) in zip(self._segments, kept, strict=False):
            segment.file.synced_bytes, segment.synced_before = synced_bytes, synced_before
        return first_id

    return open_log


def _hash_by_incarnation(original: Any) -> Any:
    def put_out(self: HAOutput, spec: Any, *arguments: Any) -> Any:
        turn = self._incarnation % max(1, len(spec.streams))
        streams = (*spec.streams[turn:], *spec.streams[:turn])
        return original(self, replace(spec, streams=streams), *arguments)

    return put_out


def _count_one_key_wrong(original: Any) -> Any:
    def process(self: WindowAggregate, inputs: Any, low: Any, boundary_us: int) -> Any:
        rows = inputs[0]
        if rows is not None and len(rows.time_us) > 7:
            keep = np.arange(len(rows.time_us)) != 5
            inputs = [
                replace(
                    rows,
                    batch=rows.batch.filter(pa.array(keep)),
                    time_us=rows.time_us[keep],
                    order=rows.order[keep],
                )
            ]
        return original(self, inputs, low, boundary_us)

    return process


def _join_misses_a_row(original: Any) -> Any:
    def process(self: Any, inputs: Any, low: Any, boundary_us: int) -> Any:
        output = original(self, inputs, low, boundary_us)
        rows = output.rows
        if rows is None or len(rows.time_us) < 2:
            return output
        fewer = replace(
            rows, batch=rows.batch.slice(1), time_us=rows.time_us[1:], order=rows.order[1:]
        )
        return replace(output, pieces=(fewer,))

    return process


def _pass_over_an_open_window(original: Any) -> Any:
    return lambda self, closed_us: original(self, closed_us + self._spec.slide_us)


def _never_subscribe_again(original: Any) -> Any:
    def subscribe(self: HAInput, stream: Any, sender: Any, now_ms: int) -> list[Any]:
        if sender.subscribed_ms < 0:
            return original(self, stream, sender, now_ms)
        return []

    return subscribe


def _tear_a_frame_and_take_it(original: Any) -> Any:
    def decoded(self: ProcessChannels, stimulus: Any, epoch: int, *, is_torn: bool) -> Any:
        if is_torn and isinstance(stimulus, events.BatchReceived):
            half = np.arange(stimulus.batch.count) // 2  # The rest is whatever was there before.
            rows = stimulus.batch.batch.take(pa.array(half))
            return replace(stimulus, batch=replace(stimulus.batch, batch=rows))
        return original(self, stimulus, epoch, is_torn=is_torn)

    return decoded


def _window_boundary_too_early(original: Any) -> Any:
    def release(self: SUnion, boundary_us: int) -> Any:
        later = boundary_us + 100 if BEGINNING_US < boundary_us < (1 << 60) else boundary_us
        return original(self, later)

    return release


def _store_again_with_more(original: Any) -> Any:
    def store(self: SimulatedPartLog, incarnation: Any, pick: Any = None) -> None:
        self._writers[incarnation].sent = None
        original(self, incarnation, pick)

    return store


def _forget_what_came_while_storing(original: Any) -> Any:
    def stored(self: SimulatedPartLog, incarnation: Any) -> None:
        original(self, incarnation)
        writer = self._writers[incarnation]
        writer.waiting.clear()
        writer.stored_before = writer.next_id

    return stored


def _sample_a_row_twice(original: Any) -> Any:
    def process(self: Sampler, inputs: Any, low: Any, boundary_us: int) -> Any:
        output = original(self, inputs, low, boundary_us)
        if output.rows is None:
            return output
        rows, twice = output.rows, np.append(0, np.arange(len(output.rows.time_us)))
        doubled = replace(
            rows,
            batch=rows.batch.take(pa.array(twice)),
            time_us=rows.time_us[twice],
            order=rows.order[twice],
        )
        return replace(output, pieces=(doubled,))

    return process


def _leave_a_row_out(original: Any) -> Any:
    def process(self: Any, inputs: Any, low: Any, boundary_us: int) -> Any:
        (rows,) = inputs
        if rows is not None and len(rows.time_us) > 1:
            inputs = [
                replace(
                    rows, batch=rows.batch.slice(1), time_us=rows.time_us[1:], order=rows.order[1:]
                )
            ]
        return original(self, inputs, low, boundary_us)

    return process


def _write_sinks_a_moment_later(original: Any) -> Any:
    def put_out(self: HAOutput, spec: Any, rows: Any, boundary_us: int) -> list[Any]:
        moved = replace(rows, time_us=rows.time_us + 1) if spec.is_sink else rows
        return original(self, spec, moved, boundary_us)

    return put_out


def _write_sinks_in_order_of_time(original: Any) -> Any:
    def put_out(self: HAOutput, spec: Any, rows: Any, boundary_us: int) -> list[Any]:
        if spec.is_sink:
            by_time = np.argsort(rows.time_us, kind="stable")
            batch = rows.batch.take(pa.array(by_time))
            rows = replace(rows, batch=batch, time_us=rows.time_us[by_time])
        return original(self, spec, rows, boundary_us)

    return put_out


def _merge_as_it_comes(original: Any) -> Any:
    def node(self: Any, *arguments: Any) -> Any:
        plan = original(self, *arguments)
        return replace(plan, merges_by_arrival=len(plan.inputs) > 1)

    return node


def _sleep_without_windows(original: Any) -> Any:
    def wake_us(self: ProcessingTimeAggregate) -> int | None:
        return original(self) if self._directory.states() else None

    return wake_us


def _wait_for_nobody(_: Any) -> Any:
    return lambda inputs, origins: inputs


def _grant_nothing_for_what_is_held(_: Any) -> Any:
    return lambda self, stream: self.held_tuples[stream.number]


MUTANTS: dict[str, Mutant] = {
    "grants the slowest nothing for what is held": Mutant(
        Arrivals, "held_of", _grant_nothing_for_what_is_held, kinds=(), dataflow="timeout"
    ),
    "samples a row twice": Mutant(Sampler, "process", _sample_a_row_twice, kinds=()),
    "leaves a row out of windows of the clock": Mutant(
        ProcessingTimeAggregate, "process", _leave_a_row_out, kinds=()
    ),
    "writes sinks a moment later": Mutant(HAOutput, "_put_out", _write_sinks_a_moment_later),
    "writes sinks in order of time": Mutant(
        HAOutput, "_put_out", _write_sinks_in_order_of_time, kinds=()
    ),
    "merges in order of time as it comes": Mutant(
        planning.Planner, "node", _merge_as_it_comes, kinds=(), dataflow="branches"
    ),
    "lets the clock stand still without windows": Mutant(
        ProcessingTimeAggregate, "wake_us", _sleep_without_windows, kinds=(), dataflow="clock"
    ),
    "lets a diamond's ways wait for each other": Mutant(
        planning, "_with_waiting", _wait_for_nobody, kinds=(), dataflow="diamond"
    ),
    "trims one too far": Mutant(Cursor, "acknowledge", _trim_one_too_far),
    "trims at level 0": Mutant(Cursor, "acknowledge", _trim_what_was_received),
    "keeps duplicates": Mutant(InputQueue, "receive", _keep_duplicates),
    "accepts gaps": Mutant(InputQueue, "receive", _accept_gaps, _LOST_FRAMES),
    "ignores the last id of keep-alives": Mutant(
        InputQueue, "promise", _ignore_the_last_id_of_keep_alives
    ),
    "heeds boundaries without tuples only at the end": Mutant(
        InputQueue, "promise", _heed_boundaries_only_at_the_end, ()
    ),
    "makes parts of passes": Mutant(
        partial_aggregate, "_ends", _make_parts_of_passes, dataflow="q12"
    ),
    "acknowledges before durable": Mutant(Durability, "ask_to_store", _ack_before_durable),
    "takes every restart point for safe": Mutant(HAOutput, "let_go", _every_point_is_safe),
    "needs only what comes": Mutant(RestartPoints, "note", _need_only_what_comes),
    "accepts an old sender": Mutant(HAInput, "_accepted", _accept_an_old_sender),
    "accepts an old receiver": Mutant(HAOutput, "_accepted", _accept_an_old_receiver),
    "forgets the slowest boundary": Mutant(
        Arrivals, "_slowest_boundary_us", _forget_the_slowest_boundary
    ),
    "releases too early": Mutant(SUnion, "release", _window_boundary_too_early),
    "writes sinks again": Mutant(HAOutput, "_open", _write_sinks_again),
    "speaks while it replays": Mutant(OperatorNetwork, "process", _speak_while_replaying),
    "promises more while it replays": Mutant(
        OperatorNetwork, "process", _promise_more_while_replaying
    ),
    "promises at once what was promised": Mutant(
        FormerPromises, "subscribed", _promise_at_once_what_was_promised
    ),
    "replays one too few": Mutant(IdOrder, "_ids_of", _replay_one_too_few),
    "never subscribes again": Mutant(HAInput, "_subscribe", _never_subscribe_again),
    "ignores credit": Mutant(Cursor, "take_sendable", _ignore_credit),
    "promises before it sends": Mutant(Cursor, "take_boundary", _promise_before_sending),
    "skips what was spilled": Mutant(Cursor, "missing_for_send", _skip_what_was_spilled),
    "partitions by incarnation": Mutant(HAOutput, "put_out", _hash_by_incarnation),
    "reuses incarnations": Mutant(
        coordinator_module.Coordinator, "_on_hello_received", _reuse_incarnations
    ),
    "assigns before the journal": Mutant(
        coordinator_module.Coordinator, "_on_hello_received", _assign_before_the_journal
    ),
    "takes its journal for the newest for ever": Mutant(
        journal_volumes, "is_newest", lambda _: lambda number, numbers: True, _TWO_DRIVERS
    ),
    "reads the journal before it claims it": Mutant(
        world_module, "takeover", _read_before_it_claims, _TWO_DRIVERS
    ),
    "starts from the oldest point": Mutant(
        CheckpointRegistry, "_add", _start_from_the_oldest_point
    ),
    "calls synced what is not": Mutant(ProcessSinks, "sync", _sync_says_too_much),
    "believes unsynced logs": Mutant(SimulatedLog, "open", _believe_what_was_not_synced),
    "stores a part again with more in it": Mutant(
        SimulatedPartLog, "store", _store_again_with_more
    ),
    "forgets what came while it stored": Mutant(
        SimulatedPartLog, "stored", _forget_what_came_while_storing
    ),
    "takes half a frame": Mutant(
        ProcessChannels, "_decoded", _tear_a_frame_and_take_it, _LOST_FRAMES
    ),
    "aggregates one row too few": Mutant(WindowAggregate, "process", _count_one_key_wrong),
    "joins one row too few": Mutant(IncrementalJoin, "process", _join_misses_a_row),
    "joins one row of a window too few": Mutant(WindowedJoin, "process", _join_misses_a_row),
    "passes over an open window": Mutant(WindowedOperator, "pass_over", _pass_over_an_open_window),
    "misses one row of a running join": Mutant(RunningJoin, "process", _join_misses_a_row),
}
