"""Runs one node inside a Spark task: collects stimuli, steps its life, performs its effects.

It decides nothing that a peer could observe; see core/haunit/life.py and node.py for that. The
performers stand beside it: node_channels, node_sinks, node_sources, node_spills, node_checkpoints
and node_reports. It ends itself when its parent dies, when the coordinator has not answered for the
lease, or when told that a later incarnation has replaced it.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import os
import random
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import zmq

from holdfast.core.haunit import events, told
from holdfast.core.haunit import life_events as life
from holdfast.core.haunit.extent_restoration import ExtentRead, ReadExtent
from holdfast.core.haunit.life import RECOVERABLE, NodeLife
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.restoration import LoadCheckpoint, ReportDamage, ReportPointDamaged
from holdfast.core.machine import Effect, SetTimer, Stimulus
from holdfast.core.recovery.guarantee import RolledBack
from holdfast.shell.processes import begin_session, die_with_parent, keep_freed_memory
from holdfast.shell.spark.background import Background
from holdfast.shell.spark.bring_up import BringUp
from holdfast.shell.spark.meter import Meter
from holdfast.shell.spark.node_channels import NodeChannels
from holdfast.shell.spark.node_checkpoints import NodeCheckpoints
from holdfast.shell.spark.node_reports import NodeReports
from holdfast.shell.spark.node_sinks import NodeSinks
from holdfast.shell.spark.node_sources import NodeSources
from holdfast.shell.spark.node_spills import NodeSpills
from holdfast.shell.spark.supervisor import RunAgain, supervise
from holdfast.shell.spark.task_spec import TaskSpec
from holdfast.shell.spark.timers import Timers, now_ms
from holdfast.shell.spark.traffic import Traffic
from holdfast.shell.storage.encoded_records import BYTES_MAX, EncodedRecords
from holdfast.shell.storage.errors import LogSuperseded, SpillLost
from holdfast.shell.storage.places import is_remote
from holdfast.shell.storage.rights import is_forbidden, storage_error
from holdfast.shell.stores.base import StoreUnavailable
from holdfast.shell.transport.waker import Waker

_WAIT_MAX_MS = 100
_RECOVERABLE = (*RECOVERABLE, LogSuperseded, SpillLost, StoreUnavailable, zmq.ZMQError)
"""What a replacement may not meet again."""

Performer = Callable[[Any], object]


_NAMED_BY_PLANS: Final = (
    "holdfast.api.expressions",
    "holdfast.api.operators",
    "holdfast.shell.stores.checked_reading",
)
"""Of what is in a plan when it arrives Python imports these by name; the shell uses none of it."""


class NodeEnded(Exception):
    """The node must stop: told so, fenced, or without a lease."""


def warm_up() -> None:
    """Import what a node needs, by which its kernels are compiled; called before forking.

    Arrow imports pandas, if it is there, at its first conversion: better now than in a node.
    """
    for module in _NAMED_BY_PLANS:
        importlib.import_module(module)
    with contextlib.suppress(ImportError):  # For logs there; others are small.
        importlib.import_module("s3fs")
    pa.array([1.5, None]).to_numpy(zero_copy_only=False)
    pa.array([datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)]).to_pylist()


def run_node(spec: TaskSpec) -> Iterator[str]:
    """The body of a node's Spark task. Ends when told; raises when it must die."""
    die_with_parent()
    supervise(lambda former, came_up: _run_process(spec, former, came_up))
    yield spec.plan.node


def _run_process(spec: TaskSpec, former: str, came_up: Callable[[], None]) -> None:
    born_ns = time.monotonic_ns()
    begin_session(spec.niceness)  # Spark's own session has many threads.
    keep_freed_memory()
    task = NodeTask(spec, former, came_up, born_ns)
    try:
        task.run()
    finally:
        task.close()


class NodeTask:
    """The shell around one `NodeLife`."""

    def __init__(
        self, spec: TaskSpec, former: str, came_up: Callable[[], None], born_ns: int
    ) -> None:
        """Open the node's own socket and connect to the coordinator.

        Args:
            spec: What to run.
            former: What ended the process that ran it before; empty: there was none.
            came_up: Called when there is an assignment.
            born_ns: When the process began, by the monotonic clock.
        """
        self._spec = spec
        self._came_up = came_up
        self._life = NodeLife(spec.plan)
        self._pending: deque[Stimulus] = deque()
        self._answers: deque[Stimulus | Exception] = deque()  # of other threads
        self._timers = Timers()
        self._waker = Waker()
        self._meter, traffic = Meter(), Traffic()
        self._background = Background(spec.plan, self._meter, born_ns)
        task_id = f"{spec.plan.node}|{spec.launch}|{os.getpid()}|{time.time_ns()}"
        self._channels = NodeChannels(spec, self._life, task_id, self._meter, traffic)
        self._channels.poller.register(self._waker, zmq.POLLIN)
        self._bring_up = BringUp(spec.plan.node, self._waker.wake)
        tell, answer, bring_up = self._pending.append, self._answer, self._bring_up
        self._sources = NodeSources(spec, self._channels.poller, tell, bring_up)
        has_logs = any(not is_remote(place) for place in spec.sink_paths.values())
        encoded = EncodedRecords(BYTES_MAX if has_logs else 0)
        has_read = self._background.recovery.has_read
        self._sinks = NodeSinks(spec, tell, answer, bring_up, has_read, encoded)
        self._spills = NodeSpills(spec, self._life, tell)
        self._reports = NodeReports(
            spec,
            self._life,
            self._channels,
            self._sinks,
            self._sources,
            self._meter,
            traffic,
            task_id=task_id,
            former=former,
            store_trouble=lambda: self._checkpoints.trouble,
            bring_up=bring_up,
        )
        read_spill = self._spills.read_range
        self._checkpoints = NodeCheckpoints(
            spec, self._reports, tell, answer, bring_up, read_spill, encoded
        )
        self._performers = self._all_performers()
        self._listeners = self._all_listeners()
        self._parent = os.getppid()
        self._asked_ns = born_ns  # when it said hello

    def _answer(self, answer: Stimulus | Exception) -> None:
        """What another thread has done, or failed to do: the loop is to look at once."""
        self._answers.append(answer)
        self._waker.wake()

    # -- the loop ---------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until told to stop."""
        self._reports.start()
        self._asked_ns = time.monotonic_ns()
        try:
            while True:
                self._turn()
        except NodeEnded:
            return
        except RunAgain:
            raise
        except Exception as error:
            self._report_error(error)
            raise
        finally:
            self._sinks.end_threads()
            self._reports.end()

    def _turn(self) -> None:
        """Collect a bounded number of stimuli, step, perform; then one pass."""
        self._reports.loop.turned()
        self._collect()
        self._check_lease()
        self._bring_up.go_on()
        while self._answers:
            answered = self._answers.popleft()
            if isinstance(answered, Exception):
                raise answered
            self._pending.append(answered)
        at_ms = now_ms()
        self._pending.extend(self._timers.fired(at_ms))
        if self._life.has_work:
            clock_us, seed = time.time_ns() // 1000, random.getrandbits(64)
            self._pending.append(events.Proceed(clock_us, seed))
        for _ in range(len(self._pending)):
            self._step(self._pending.popleft(), at_ms)
        if isinstance(self._life.machine, Node) and (check := self._background.due()):
            self._background.done(self._step(check, at_ms))
        self._reports.report(at_ms)

    def _collect(self) -> None:
        """Wait, if there is nothing to do, and take what has come."""
        is_busy = self._background.is_eager or bool(self._pending)
        has_work = is_busy or self._life.has_work
        for channel, _ in self._channels.poller.poll(0 if has_work else self._until_next_ms()):
            if channel == self._waker.fileno():
                self._waker.clear()
            elif self._sources.has(channel):
                self._sources.stirs(channel)
            else:
                for stimulus in self._channels.drain(channel):
                    self._listeners.get(type(stimulus), self._pending.append)(stimulus)

    def _until_next_ms(self) -> int:
        due_ms = self._timers.next_ms(self._reports.due_ms)
        return max(0, min(_WAIT_MAX_MS, due_ms - now_ms()))

    def _step(self, stimulus: Stimulus, at_ms: int) -> list[Effect]:
        """Step the life, measure it, and perform what it asks for: these effects."""
        began_ns = time.monotonic_ns()
        if type(stimulus) is ExtentRead:
            self._reports.takes_over()
        effects = self._life.step(stimulus, at_ms)
        took_us = (time.monotonic_ns() - began_ns) // 1000
        machine = self._life.machine
        if type(stimulus) in self._meter.measured_now and isinstance(machine, Node):
            self._meter.stepped(machine, stimulus, effects, took_us)
        self._checkpoints.note_standstill(effects, took_us)
        for effect in effects:
            self._performers[type(effect)](effect)
        if type(stimulus) in self._background.watched:
            self._background.stepped(effects, time.monotonic_ns() - began_ns)
        return effects

    # -- the end ----------------------------------------------------------------------------

    def _check_lease(self) -> None:
        if time.monotonic() - self._channels.coordinator_heard_s > self._spec.lease_s:
            raise NodeEnded("no word from the coordinator for the lease")
        if os.getppid() != self._parent:
            raise NodeEnded("the parent process is gone")

    def _stop(self, _: told.StopReceived) -> None:
        self._reports.report(now_ms(), is_last=True)
        raise NodeEnded("told to stop")

    def _end_fenced(self, _: told.Fenced) -> None:
        raise NodeEnded("a later incarnation has taken over")

    def _die_of(self, effect: life.Fail) -> None:
        if isinstance(effect.error, RolledBack):
            raise RunAgain(str(effect.error))
        raise effect.error

    def _report_error(self, error: Exception) -> None:
        if isinstance(error, OSError) and is_forbidden(error):
            error = storage_error(error, self._spec.spill_path)
        self._reports.failed(error, is_fatal=not isinstance(error, _RECOVERABLE))

    def close(self) -> None:
        """Release everything; the process may serve another task afterwards."""
        for room in (self._checkpoints, self._sources, self._sinks, self._spills, self._channels):
            room.close()
        self._waker.close()

    # -- who does what ----------------------------------------------------------------------

    def _begin(self, _: life.BeginIncarnation) -> None:
        self._background.recovery.leave_out(time.monotonic_ns() - self._asked_ns)
        self._came_up()
        self._reports.refresh()

    def _catch_up(self, effect: events.ReportCaughtUp) -> None:
        self._background.recovery.has_replayed(effect.replayed_tuples)
        self._reports.caught_up(effect)

    def _all_listeners(self) -> dict[type[Stimulus], Performer]:
        """Who takes the coordinator's words that are for the process; others are for its life."""
        return {
            told.FloorTold: self._sources.tell_floor,
            told.LeaseRenewed: lambda _: None,  # Every word renews it.
            told.Fenced: self._end_fenced,
            told.StopReceived: self._stop,
            told.FiguresWanted: self._reports.show_figures,
            told.RowsWanted: self._reports.show_rows,
            told.KillReceived: lambda _: os.kill(os.getpid(), signal.SIGKILL),
        }

    def _all_performers(self) -> dict[type[Effect], Performer]:
        channels, sinks, reports = self._channels, self._sinks, self._reports
        return {
            life.BeginIncarnation: self._begin,
            life.Connect: channels.connect,
            life.Disconnect: channels.disconnect,
            life.OpenSinks: sinks.open,
            life.OpenSources: self._sources.open,
            life.ReadRecordedPasses: sinks.read_recorded,
            life.OpenStore: self._checkpoints.open,
            life.Fail: self._die_of,
            LoadCheckpoint: self._checkpoints.load,
            ReadExtent: sinks.read_extent,
            ReportDamage: self._checkpoints.report_damage,
            ReportPointDamaged: reports.point_damaged,
            SetTimer: self._timers.set,
            events.SendBatch: channels.send_down,
            events.SendBoundary: channels.send_down,
            events.SendNotes: channels.send_down,
            events.SendPositions: channels.send_down,
            events.SendPageRun: channels.send_down,
            events.SendDelta: channels.send_down,
            events.SendDeltaAck: channels.send_up,
            events.SendSubscribe: channels.send_up,
            events.SendAck: channels.send_up,
            events.ReadSource: self._sources.read,
            events.WriteSink: sinks.write,
            events.HastenSink: sinks.hasten,
            events.EndSink: sinks.end,
            events.SyncSink: sinks.sync,
            events.ReadPasses: sinks.read_passes,
            events.TrimPasses: sinks.trim_passes,
            events.TrimFootprints: sinks.trim_footprints,
            events.FootprintsTaken: lambda _: None,  # `Background` sees it.
            events.SpillBatches: self._spills.write,
            events.ReadSpill: self._spills.read,
            events.TrimSpill: self._spills.trim,
            events.StoreRestartPoint: reports.store_point,
            events.ReportCaughtUp: self._catch_up,
            events.ReportGap: reports.gap,
            events.ReportPromoted: reports.promoted,
            events.ReportFirstOutput: reports.first_output,
            events.ReportFinished: reports.finished,
            events.ReportHalted: reports.halted,
            events.WantRound: reports.want_round,
            events.ReportRoundFailed: reports.round_failed,
            events.AskToWrite: reports.ask_to_write,
            events.AskForTurn: reports.ask_for_turn,
            events.LeaveTurn: reports.leave_turn,
            events.LeaveWriters: reports.leave_writers,
            events.WriteCheckpoint: self._checkpoints.write,
            events.CancelCheckpoint: self._checkpoints.cancel,
            events.ForgetCheckpoints: self._checkpoints.forget,
            events.ReportCheckpoint: self._checkpoints.report,
        }
