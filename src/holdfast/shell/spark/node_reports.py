"""What a node's process says to the coordinator: hello, that it lives, what it has done.

What it has done it says twice a second, and at once when the coordinator asks: to make a report
takes a node's time, and mostly nobody waits for it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.core.coordinator import events as c
from holdfast.core.coordinator import reports
from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.model.shown_rows import ROWS_OF_NODE_MAX, table_of
from holdfast.core.model.users_code import USERS_CODE
from holdfast.core.wire.node_words import KEEP_ALIVE_SUFFIX, FromNode, encode
from holdfast.shell.spark.loop_watch import LoopWatch
from holdfast.shell.spark.timers import now_ms, together

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.haunit import told
    from holdfast.core.haunit.life import NodeLife
    from holdfast.core.haunit.restoration import ReportPointDamaged
    from holdfast.core.haunit.standby_replica import StandbyReplica
    from holdfast.shell.spark.bring_up import BringUp
    from holdfast.shell.spark.meter import Meter
    from holdfast.shell.spark.node_channels import NodeChannels
    from holdfast.shell.spark.node_sinks import NodeSinks
    from holdfast.shell.spark.node_sources import NodeSources
    from holdfast.shell.spark.task_spec import TaskSpec
    from holdfast.shell.spark.traffic import Traffic

_STATISTICS_INTERVAL_S = 0.5
_REASON_MAX = 4000
_LONG_PASS_S = 10.0


def _consistency_of(node: Node, at_ms: int) -> reports.ConsistencyReported | None:
    """What the driver's progress shows of a node that may go on without missing input."""
    consistency = node.consistency
    if consistency is None:
        return None
    tentative, undone = node.tentative_rows
    return reports.ConsistencyReported(
        consistency.state,
        max(0, at_ms - consistency.since_ms),
        tuple(node.missing),
        tentative,
        undone,
        consistency.delay_max_ms,
        consistency.stabilization_ms,
        node.dropped_tuples,
        consistency.correction_delay_max_ms,
    )


class NodeReports:
    """Speaks for one process.

    Attributes:
        due_ms: When it says next by itself that it lives.
        loop: Whether the node's loop is at work. Nothing is known of it before `start`.
    """

    def __init__(
        self,
        spec: TaskSpec,
        life: NodeLife,
        channels: NodeChannels,
        sinks: NodeSinks,
        sources: NodeSources,
        meter: Meter,
        traffic: Traffic,
        *,
        task_id: str,
        former: str,
        store_trouble: Callable[[], str],
        bring_up: BringUp,
    ) -> None:
        """Silent.

        Args:
            spec: Whose process it is.
            life: What there is to say.
            channels: By which it is said.
            sinks: They know how late results are.
            sources: They know how far they are.
            meter: Has measured the machine.
            traffic: Has counted bytes.
            task_id: The process's name.
            former: What ended the process that ran the node before; empty: there was none.
            store_trouble: What the store waits for.
            bring_up: Knows what the process does before it works.
        """
        self._spec = spec
        self._life = life
        self._channels = channels
        self._sinks = sinks
        self._sources = sources
        self._meter = meter
        self._traffic = traffic
        self._task_id = task_id
        self._former = former
        self._store_trouble = store_trouble
        self._bring_up = bring_up
        self.due_ms = 0
        self._statistics_due_s = 0.0
        self._is_asked = False
        self._has_machine = False
        self.loop: LoopWatch
        self._alive: c.KeepAliveReceived | None = None  # what the keep-alive thread says
        self._is_closing = False
        self._thread = threading.Thread(target=self._keep_alive, name="keep-alive", daemon=True)

    def start(self) -> None:
        """From now on a thread says that the node lives, once there is something to say.

        The thread that calls is the loop's.
        """
        self.loop = LoopWatch(self._spec.stall_s)
        self._thread.start()

    def end(self) -> None:
        """It falls silent."""
        self._is_closing = True
        self._thread.join()

    def tell(self, kind: Callable[..., FromNode], *said: Any, **more: Any) -> int:
        """A word of this class, as this incarnation; its size in bytes."""
        node, incarnation = self._spec.plan.node, self._life.incarnation
        return self._channels.say(kind(node, incarnation, *said, **more))

    # -- again and again --------------------------------------------------------------------

    def report(self, at_ms: int, *, is_last: bool = False) -> None:
        """Say hello until there is an assignment, then what lives; now and then the statistics."""
        machine = self._life.machine
        if machine is None:
            if not is_last:
                self._say_hello_or_live(at_ms)
            return
        if not self._has_machine:
            self._has_machine, self.due_ms = True, 0
        is_due = at_ms >= self.due_ms or is_last
        if is_due:
            self._say_live(machine, at_ms)
        is_stale = is_due and time.monotonic() >= self._statistics_due_s
        if self._is_asked or is_stale or is_last:
            self._report_statistics(at_ms, is_last=is_last)

    def _say_live(self, machine: Node | StandbyReplica, at_ms: int) -> None:
        self.due_ms = together(at_ms + self._spec.plan.limits.keep_alive_ms, at_ms)
        self._meter.look_at_changes(at_ms)
        self.refresh()
        if machine.is_secondary:
            self._sinks.follow()
        self._sinks.sync_stale()

    def _say_hello_or_live(self, at_ms: int) -> None:
        if at_ms < self.due_ms:
            return
        self.due_ms = at_ms + self._spec.plan.limits.keep_alive_ms
        if self._life.incarnation:  # Opening logs elsewhere may take a while.
            self.refresh()
        else:  # The word, or the answer, may have been lost.
            names = (self._spec.plan.node, self._spec.launch, self._task_id)
            endpoint, host = self._channels.endpoint, self._channels.host
            self._channels.say(c.HelloReceived(*names, endpoint, host, self._former))

    def takes_over(self) -> None:
        """The loop turns again when the node has its windows, however many; until then it lives."""
        self.loop.takes_over()
        self.refresh(f"{self._spec.plan.node} comes up: its windows are being taken over")

    def refresh(self, doing: str = "") -> None:
        """What the thread says from now on, and that the node does something, for people."""
        life = self._life
        store = self._store_trouble()
        restoring = store and f"{self._spec.plan.node} is being restored: {store}"
        opening = self._sinks.waits.trouble or self._bring_up.trouble
        machine = life.machine
        copying = None if machine is None else machine.trouble
        waits = (*self._sources.odd(), opening, restoring, copying, doing)
        self._alive = c.KeepAliveReceived(
            self._spec.plan.node,
            life.incarnation,
            life.known_peers(),
            life.known_secondaries(),
            life.has_joined,
            self._sources.reached(),
            tuple(text for text in waits if text),
        )

    def _keep_alive(self) -> None:
        """A thread of its own, so that a long pass is not taken for death.

        It falls silent when the loop is stuck: then the node is as good as dead. A stopped process
        stops this thread too.
        """
        channel = self._channels.to_coordinator(self._task_id.encode() + KEEP_ALIVE_SUFFIX)
        interval_s = self._spec.plan.limits.keep_alive_ms / 1000
        while not self._is_closing:
            is_stuck, word = self.loop.is_stuck(), self._word_now()
            if word is not None and not is_stuck:
                channel.send(word)
            time.sleep(interval_s - time.monotonic() % interval_s)  # When the loop wakes up, too.
        channel.close(linger=0)

    def _word_now(self) -> bytes | None:
        """That the node lives; and, as soon as people may wonder, that one pass takes so long."""
        pass_s, alive = self.loop.pass_s(), self._alive
        if alive is None:
            return None
        if pass_s >= _LONG_PASS_S:
            long = f"{alive.node} has been at one pass for {pass_s:.0f} s"
            function = USERS_CODE.running
            long += f"; it is in {function}" if function else ""
            alive = replace(alive, waits=(*alive.waits, long))
        return encode(alive)

    def _report_statistics(self, at_ms: int, *, is_last: bool) -> None:
        machine = self._life.machine
        if machine is None:
            return
        self._statistics_due_s = time.monotonic() + _STATISTICS_INTERVAL_S
        self._is_asked = False
        figures = reports.NodeFigures(machine.statistics())
        positions = {}
        if isinstance(machine, Node):
            figures = reports.NodeFigures(
                figures.counted,
                self._meter.measured(machine, figures.counted, at_ms, is_last=is_last),
                self._traffic.reported(),
                _consistency_of(machine, at_ms),
                machine.extent,
            )
            positions = machine.positions()
        refused = {
            "frames": self._channels.refused_frames,
            "handshakes": self._channels.refused_handshakes,
        }
        self.tell(
            reports.StatisticsReported,
            figures=figures,
            latency=self._sinks.latency.counts,
            latency_max_us=self._sinks.latency.max_us,
            late_rows=self._sources.late_rows,
            refused=refused,
            sources=self._sources.reported(machine),
            **positions,
        )

    # -- what has happened ------------------------------------------------------------------

    def store_point(self, effect: events.StoreRestartPoint) -> None:
        """A restart point is to be stored."""
        self._traffic.point_bytes += self.tell(c.RestartPointReceived, effect.point)

    def ask_for_turn(self, effect: events.AskForTurn) -> None:
        """To correct; asked again until it is given."""
        self.tell(c.TurnWanted, effect.asking)

    def leave_turn(self, _: events.LeaveTurn) -> None:
        """The correction is over."""
        self.tell(c.TurnLeft)

    def ask_to_write(self, _: events.AskToWrite) -> None:
        """It wants a turn among those that write checkpoints."""
        self.tell(c.WriteWanted)

    def leave_writers(self, _: events.LeaveWriters) -> None:
        """It has had its turn."""
        self.tell(c.WriteEnded)

    def promoted(self, _: events.ReportPromoted) -> None:
        """It is the primary from now on."""
        self.refresh()
        self.tell(c.NodePromoted)

    def gap(self, effect: events.ReportGap) -> None:
        """It has missed tuples."""
        self.tell(reports.GapReported, effect.stream, effect.from_id, effect.to_id)

    def show_figures(self, _: told.FiguresWanted) -> None:
        """Somebody waits: at the end of this turn, as what it reads in one it takes in the next."""
        self._is_asked = True

    def show_rows(self, asked: told.RowsWanted) -> None:
        """Somebody looks."""
        columns, rows = table_of(self._channels.newest_rows()[:ROWS_OF_NODE_MAX])
        self.tell(reports.RowsReported, asked.ticket, columns, rows)

    def caught_up(self, effect: events.ReportCaughtUp) -> None:
        """The silent replay is over."""
        self.tell(c.NodeCaughtUp, effect.replayed_tuples)

    def first_output(self, _: events.ReportFirstOutput) -> None:
        """Something new has left the node."""
        self.tell(c.FirstOutput)

    def halted(self, effect: events.ReportHalted) -> None:
        """It processes nothing, and says where it stands."""
        self.tell(c.NodeHalted, effect.attempt, effect.went_on, effect.place)

    def want_round(self, _: events.WantRound) -> None:
        """It has no more room for what waits for a round."""
        self.tell(c.RoundWanted)

    def round_failed(self, effect: events.ReportRoundFailed) -> None:
        """Its checkpoint for a round came to nothing."""
        self.tell(c.RoundFailed, effect.round)

    def point_damaged(self, effect: ReportPointDamaged) -> None:
        """The checkpoint that it was to begin from cannot be read."""
        self.tell(c.PointDamaged, effect.sequence, effect.reason[:_REASON_MAX])

    def finished(self, _: events.ReportFinished) -> None:
        """Whoever hears of the end knows all that was done."""
        self.report(now_ms(), is_last=True)
        self.tell(c.NodeFinished)

    def failed(self, error: Exception, *, is_fatal: bool) -> None:
        """What was wrong; it waits for a moment, so that the word leaves before sockets close."""
        reason = f"{type(error).__name__}: {error}"
        self.tell(c.NodeFailed, reason[:_REASON_MAX], is_fatal)
        time.sleep(0.05)
