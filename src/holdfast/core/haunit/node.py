"""A node: one running instance of an HA unit. [HA §4.3, §5.2, §6; SGuard §3]

Theory of operation. A node works in rounds. Between rounds stimuli fill its input queues and move
the positions of its output queues; `Proceed` runs one round:

1. Take what may be processed. With one input stream that is whatever has arrived, in id order. With
   several it is what SUnion releases: everything older than the slowest stream's boundary, in one
   order that depends on the tuples alone.
2. Run the operators in topological order on the rows and the boundary.
3. Number the outputs and append them to the output queues, or write them to the sinks.

Precise recovery rests on three facts. The input order is a function of the tuples (1). Operators
are functions of the ordered input, however it is cut into rounds. Ids are consecutive. So a node
that starts at a restart point (recovery/restart_point.py) and processes the same tuples again gives
its outputs the ids they had before, and whoever has them drops them by id.

Every `ack_interval_ms` (the paper's M), or at a low rate every few of them:
- level-0 position and credit go upstream, for every input stream;
- a restart point is noted. Once all receivers' level-1 positions have reached its `next_ids` it is
  safe and goes to the coordinator;
- sinks are made durable: for a restart point, a sink's level-1 position is what is on disk.
When the coordinator has stored a point (`RestartPointStored`, never before), its `needed_from`
becomes the level-1 position told upstream, and upstream trims.

A node whose plan has checkpoints notes restart points only with them, every `interval_ms`; they
hold its state and the outputs still needed, so that they wait for no receiver (chkpt_mngr.py).

An instance may have a second replica (active standby, [HA §4.2]): a secondary is a node that starts
at the instance's newest restart point, processes the same input and puts nothing out. It keeps its
output until the primary, every `ack_interval_ms`, tells it that nobody needs it any more. Promoted,
it goes on as another incarnation: it subscribes anew, and its receivers subscribe to it. Rounds
make the same tuples wherever they run, so that nothing needs to be compared. Where they do not and
need not, a secondary decides for itself (`NodePlan.diverges`): it lets go of the rounds whose input
its primary does not need any more, and promoted, numbers what is left from where receivers are.

Invariants: restart points and level-1 positions never move back; a tuple that a stored restart
point needs is never trimmed upstream; ids of an output stream have no gap and no repeat; frames of
an earlier incarnation, or meant for one, change nothing.

Departures from [HA]: the paper maps *level-0* positions through cause() to level-1 ones, which
survives one failure at a time. Here level-1 positions are mapped, so a tuple is kept until nothing
derived from it is needed by anyone: any number of nodes may fail at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.haunit.chkpt_mngr import ChkptMngr
from holdfast.core.haunit.delta_sender import DeltaSender
from holdfast.core.haunit.events import (
    AckReceived,
    AskToWrite,
    BatchReceived,
    BoundaryReceived,
    CheckpointFailed,
    CheckpointWritten,
    DeltaAckReceived,
    DeltaReceived,
    LeaveWriters,
    NotesReceived,
    PageRunReceived,
    PagesCopied,
    PeerIncarnationLearned,
    PositionsReceived,
    Proceed,
    Promoted,
    ReadRounds,
    ReportCaughtUp,
    ReportFinished,
    ReportPromoted,
    RestartPointStored,
    RoundsRead,
    SinkSynced,
    SourceRead,
    SourceStirred,
    SpillRead,
    StoreRestartPoint,
    SubscribeReceived,
    TrimRounds,
    WriteAdmitted,
)
from holdfast.core.haunit.ha_input import HAInput, Input
from holdfast.core.haunit.ha_output import HAOutput
from holdfast.core.haunit.operator_network import OperatorNetwork, Produced
from holdfast.core.haunit.plan import (
    ACK_INTERVALS_MAX,
    Assignment,
    NodePlan,
    Standby,
)
from holdfast.core.haunit.replica_link import ReplicaLink
from holdfast.core.haunit.restart_points import RestartPoints
from holdfast.core.haunit.restoration import RestoredState
from holdfast.core.haunit.rounds import Round, Rounds, RoundStart
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.model.ids import END_US, NO_ID, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch
from holdfast.core.operators.base import Rows
from holdfast.core.recovery.guarantee import Guarantee, StreamRebased
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.sunion import SUnion
from holdfast.core.state.change_sample import ChangeSample
from holdfast.core.state.page_manager import PageManager

_ROUNDS_POLL_MS = 5
"""How often a secondary looks for rounds that the primary has logged."""
_ROUND_SIZES = 8
"""Powers of two between the sizes of rounds that are usual in one node, at most."""
_IDLE_ACKS_BEFORE_REST = 2 * ACK_INTERVALS_MAX
"""Without a round for so many M, the node looks only every `ACK_INTERVALS_MAX` M what is to be said
of its state, and says it every `ACK_INTERVALS_MAX`th time."""


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


class Node:
    """The machine of one incarnation of a node. See the module's theory of operation.

    Durable: nothing here; the coordinator stores restart points, producers retain tuples, sinks
    and sources are logs. Volatile: all fields.
    """

    def __init__(
        self,
        plan: NodePlan,
        assignment: Assignment,
        now_ms: int,
        restored: RestoredState | None = None,
    ) -> None:
        """Bring up an incarnation at its restart point; call `start` for the first effects.

        Args:
            plan: Its part of the dataflow.
            assignment: What the coordinator says.
            now_ms: The time.
            restored: What a `Restoration` has found, if the restart point has a checkpoint or one
                behind it; its point counts then.
        """
        self.plan = plan
        self.incarnation = assignment.incarnation
        limits = plan.limits
        point = assignment.restart_point or RestartPoint()
        lost_from = point.needed_from
        if not plan.is_replayed:
            point = RestartPoint(point.sequence)
        pages = PageManager(limits.page_bytes, limits.state_bytes)
        outputs: dict[StreamId, tuple[TupleBatch, ...]] = {}
        newest = point.sequence
        if restored is not None:
            point, pages, outputs = restored.point, restored.pages, restored.outputs
            newest = restored.newest_sequence
        self._point = point  # where the incarnation begins
        self.is_secondary = is_secondary = assignment.is_secondary
        is_at_cut = restored is not None and restored.is_at_cut
        self._inputs = HAInput(
            plan,
            self.incarnation,
            point,
            now_ms,
            is_secondary=is_secondary,
            is_at_cut=is_at_cut,
            lost_from=lost_from,
        )
        self._network = OperatorNetwork(plan, pages)
        self._outputs = HAOutput(
            plan,
            self.incarnation,
            point,
            assignment.sink_next_ids,
            outputs,
            is_secondary=is_secondary,
            is_rebased=self._is_rebased(),
            has_own_time=self._network.has_own_time,
        )
        self._replica = ReplicaLink(plan)
        self._rounds: Rounds | None = None
        if self._network.is_arbitrary or plan.merges_by_arrival:
            is_rerun = plan.keeps_rounds and plan.checkpoints is None
            self._rounds = Rounds(
                self._round_of(point),
                assignment.rounds,
                replayed_from=self._round_of(point.oldest()) if is_rerun else None,
            )
            self._inputs.make_room(self._rounds.decided_before)
        self._chkpt_mngr: ChkptMngr | None = None
        self._deltas = DeltaSender(plan, pages)
        kept = 1
        if plan.checkpoints is not None:
            kept = plan.checkpoints.kept
            self._chkpt_mngr = ChkptMngr(plan, plan.checkpoints, self.incarnation, pages, restored)
        self._points = RestartPoints(newest, kept, point.candidates())
        self._is_dirty = False  # a round ran since the last restart point was noted
        # No cut before that of the former primary is noted: its point is durable already.
        self._note_after: RestartPoint | None = None
        if is_at_cut and plan.checkpoints is None:
            self._note_after = assignment.restart_point
        self._is_silent = (
            restored is None
            and assignment.restart_point is not None
            and plan.guarantee is Guarantee.PRECISE  # Else what comes twice does no harm.
        )
        if self._is_silent and self._rounds is None:
            self._network.pass_over(point.boundary_us)
        if is_at_cut:
            self._network.resume(point.boundary_us)
            self._promise(self._network.promises())
        self._is_finished = False
        self._input_tuples = 0
        self._acked_tuples = 0  # of those, when positions went out last
        self._acks_waited = 0  # M since
        self._idle_acks = 0  # M since a round
        self._replayed_tuples = 0

    def _round_of(self, point: RestartPoint) -> RoundStart:
        """The round that a restart point begins with."""
        starts = tuple(point.needed_from.get(spec.stream, 0) for spec in self.plan.inputs)
        return RoundStart(point.needed_from.get(self.plan.round_stream, 0), starts)

    def _is_rebased(self) -> bool:
        """Whether receivers may have what this incarnation cannot put out again as it was."""
        is_first = self.incarnation <= 1  # Nobody has put anything out.
        return self.plan.guarantee is not Guarantee.PRECISE and not (is_first or self.is_secondary)

    # -- the machine ------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """The first effects of an incarnation: its timers and source reads."""
        limits = self.plan.limits
        effects: list[Effect] = [
            SetTimer("ack", now_ms + limits.ack_interval_ms),
            SetTimer("keep-alive", now_ms + limits.keep_alive_ms),
        ]
        if self.plan.checkpoints is not None:
            effects.append(SetTimer("checkpoint", now_ms + self.plan.checkpoints.interval_ms))
        if self.plan.standby is Standby.PASSIVE:
            effects.append(SetTimer("delta", now_ms + self.plan.delta_interval_ms))
        if not self._is_silent:
            effects.append(ReportCaughtUp(0))
        self._leave_silence_if_due(effects)
        self._inputs.read_sources(now_ms, effects)
        self._ask_to_wake(now_ms, effects)
        self._read_rounds(effects)
        return effects

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus. Raises `InvariantViolation` or an operator's own error."""
        effects: list[Effect] = []
        _HANDLERS[type(stimulus)](self, stimulus, now_ms, effects)
        return effects

    @property
    def has_work(self) -> bool:
        """Whether `Proceed` would process something now. Cost: O(outputs) when there is input."""
        if self._rounds is not None:
            return self._has_round(self._rounds) and self._outputs.has_room()
        # A silent round stops at the cut; the boundary beyond it is left for the next round.
        is_behind = not self._is_silent and self._is_behind
        return (self._inputs.has_fresh or is_behind) and self._outputs.has_room()

    @property
    def _is_behind(self) -> bool:
        """Whether all input streams have passed a boundary that no round has acted on.

        A recorded round acts on the boundary of then; tuples that are sent again may bring a later
        one with them, and be the last.
        """
        return self._inputs.slowest_us > self._network.boundary_us

    def _has_round(self, rounds: Rounds) -> bool:
        """Whether there is a recorded round whose input is there, or none and something to do."""
        if rounds.recorded is not None:
            return self._inputs.has_received(rounds.recorded.processed_before)
        decides = not self.is_secondary or self.plan.diverges
        return decides and (self._inputs.has_fresh or self._network.is_woken or self._is_behind)

    def _on_batch_received(self, got: BatchReceived, now_ms: int, effects: list[Effect]) -> None:
        self._inputs.receive(got, now_ms, effects)

    def _on_notes_received(self, got: NotesReceived, now_ms: int, effects: list[Effect]) -> None:
        self._inputs.receive_notes(got, now_ms, effects)

    def _on_boundary_received(
        self, got: BoundaryReceived, now_ms: int, effects: list[Effect]
    ) -> None:
        self._inputs.promise(got, now_ms, effects)
        if self._inputs.take_rebased():
            self._follow_rebased(effects)

    def _follow_rebased(self, effects: list[Effect]) -> None:
        """A producer cannot say again what came before: take what comes instead.

        A node that has put out, before it failed, more than it has since cannot go on with the ids
        from then: its output is rebased too.

        Raises:
            StreamRebased: It has put out some of that again, and not all.
        """
        if not self._is_silent and not self._outputs.is_behind:
            return
        if self._outputs.tuples and self._rounds is None:  # Recorded rounds gave the same ids.
            raise StreamRebased("a producer's stream is another one, and the output not at its end")
        self._outputs.rebase()
        if self._rounds is not None:
            skipped = self._rounds.skip_recorded()
            self._inputs.make_room(self._rounds.decided_before)
            if self.plan.loses_input:
                self._run_without_input(skipped, effects)
        if self._is_silent:
            self._is_silent = False
            effects.append(ReportCaughtUp(self._replayed_tuples))

    def _run_without_input(self, skipped: tuple[Round, ...], effects: list[Effect]) -> None:
        """Close what the clock of these rounds closed: it has been put out, and must not be again.

        Only for input that does not come again: what comes under other ids might be lost by it. The
        boundary that these rounds have acted on is promised, as there may be no later one: the end.
        What is older, and another stream brings again, has been put out.
        """
        ports: list[Rows | None] = [None] * self.plan.port_count
        low = np.full(len(self.plan.inputs), NO_ID, dtype=np.int64)
        was_silent, self._is_silent = self._is_silent, True
        for decided in skipped:
            self._network.decide(decided.clock_us, decided.seed)
            self._process(ports, low, decided.boundary_us, effects)
        self._is_silent = was_silent
        self._promise(self._network.promises())

    def _on_source_read(self, got: SourceRead, now_ms: int, effects: list[Effect]) -> None:
        self._inputs.source_read(got, now_ms, effects)
        if not (got.batches and self.has_work):  # Else what has come goes first.
            self._inputs.read_sources(now_ms, effects)

    def _on_source_stirred(self, got: SourceStirred, now_ms: int, effects: list[Effect]) -> None:
        self._inputs.source_stirred(got, now_ms, effects)

    def _on_peer_incarnation_learned(
        self, learned: PeerIncarnationLearned, now_ms: int, effects: list[Effect]
    ) -> None:
        if learned.node == self.plan.node:
            is_other_secondary = self._replica.learn(learned)
            if self.is_secondary:
                self._replica.subscribe(now_ms, effects)
            elif is_other_secondary:
                self._deltas.stop()
            return
        self._inputs.learn(learned.node, learned.incarnation, now_ms, effects)
        self._outputs.learn(learned.node, learned.incarnation, learned.secondary)

    def _on_subscribe_received(
        self, got: SubscribeReceived, now_ms: int, effects: list[Effect]
    ) -> None:
        if got.stream == self.plan.replica_stream:
            if self._replica.is_from_secondary(got, self.incarnation):
                self._replica_subscribed(got, now_ms, effects)
        elif self._outputs.subscribe(got, effects):
            self._ask_to_store(now_ms, effects)
            self._outputs.flush_stream(got.stream, effects)

    def _on_ack_received(self, got: AckReceived, now_ms: int, effects: list[Effect]) -> None:
        if self._outputs.acknowledge(got, effects):
            self._ask_to_store(now_ms, effects)
            self._outputs.flush_stream(got.stream, effects)

    def _replica_subscribed(
        self, got: SubscribeReceived, now_ms: int, effects: list[Effect]
    ) -> None:
        if self.plan.standby is Standby.PASSIVE:
            self._deltas.begin(got.sender)
            self._send_delta(now_ms, effects)
        else:
            self._replica.subscribed()

    def _send_delta(self, now_ms: int, effects: list[Effect]) -> None:
        """Begin to send what has changed, unless the last delta is still on its way."""
        may_cut = not self._is_silent and self._outputs.are_placed
        if may_cut and self._deltas.is_wanted(now_ms):
            cut = self._cut(is_state_kept=True)
            self._deltas.prepare(cut, self._outputs, now_ms, effects)

    def _on_delta_ack_received(
        self, got: DeltaAckReceived, now_ms: int, effects: list[Effect]
    ) -> None:
        if self._replica.is_from_secondary(got, self.incarnation):
            self._deltas.acknowledged(
                got.sequence,
                got.pages,
                is_applied=got.is_applied,
                now_ms=now_ms,
                effects=effects,
            )

    def _on_state_received(
        self, got: PageRunReceived | DeltaReceived, now_ms: int, effects: list[Effect]
    ) -> None:
        """Meant for the passive secondary that this node was before it was promoted."""
        del got, now_ms, effects
        self._replica.refused_frames += 1

    def _on_positions_received(
        self, got: PositionsReceived, now_ms: int, effects: list[Effect]
    ) -> None:
        is_expected = self.is_secondary and got.receiver == self.incarnation
        told = self.plan.inputs if self.plan.diverges else self.plan.output_streams()
        is_expected = is_expected and len(got.positions) == len(told)
        if not (is_expected and self._replica.heard(got.sender, now_ms)):
            self._replica.refused_frames += 1
            return
        self._outputs.follow(got.positions, effects)

    def _on_promoted(self, promoted: Promoted, now_ms: int, effects: list[Effect]) -> None:
        """The primary is gone, or hands over: go on in its place."""
        if not self.is_secondary:
            return
        self.is_secondary = False
        self.incarnation = promoted.incarnation
        effects.append(ReportPromoted())  # First: what follows is said as the new incarnation.
        point = promoted.restart_point or RestartPoint()
        self._points = RestartPoints(point.sequence, 1, point.candidates())
        self._inputs.let_go(point)
        self._inputs.promote(promoted.incarnation, now_ms, effects)
        self._outputs.promote(promoted.incarnation, promoted.sink_next_ids, effects)
        if self._rounds is not None:
            self._rounds.add(promoted.rounds)
            self._inputs.make_room(self._rounds.decided_before)
        self._ask_to_wake(now_ms, effects)
        self._replica = ReplicaLink(self.plan)
        self._note_after = promoted.restart_point
        self._is_dirty = True
        self._finish_if_due(effects)

    def _on_spill_read(self, got: SpillRead, now_ms: int, effects: list[Effect]) -> None:
        self._outputs.spill_read(got, effects)

    # -- one round --------------------------------------------------------------------------

    def _on_proceed(self, proceed: Proceed, now_ms: int, effects: list[Effect]) -> None:
        if not self.has_work:
            return
        if self._idle_acks > _IDLE_ACKS_BEFORE_REST:
            effects.append(SetTimer("ack", now_ms + self.plan.limits.ack_interval_ms))
        self._idle_acks = 0
        taken = self._inputs.fresh
        if self._rounds is not None:
            has_processed = self._arbitrary_round(self._rounds, proceed, effects)
        elif self._inputs.sunion is None:
            has_processed = self._round_in_id_order(effects)
        else:
            has_processed = self._round_in_merged_order(self._inputs.sunion, effects)
        self._inputs.grant(self._inputs.all() if has_processed else taken, effects)
        if has_processed:
            self._outputs.flush(effects)
        self._inputs.read_sources(now_ms, effects)
        self._ask_to_wake(now_ms, effects)
        self._finish_if_due(effects)

    def _arbitrary_round(self, rounds: Rounds, proceed: Proceed, effects: list[Effect]) -> bool:
        """Run the next recorded round, or decide on a new one; whether something was done."""
        before = self._inputs.processed_before
        decided = rounds.recorded
        if decided is not None:
            taken = self._inputs.take_before(decided.processed_before)
        else:
            taken = self._inputs.take_arrived()
            after, boundary_us = self._inputs.processed_before, self._inputs.slowest_us
            if after == before and not self._network.has_news(boundary_us):
                return False
            boundary_us = max(boundary_us, self._network.boundary_us)
            decided = rounds.decide(proceed.clock_us, proceed.seed, boundary_us, after)
        low = np.array(
            [batches[0].first_id if batches else NO_ID for batches in taken], dtype=np.int64
        )
        self._network.decide(decided.clock_us, decided.seed)
        rounds.begun(decided)
        self._outputs.begin_round(decided, effects)
        self._process(self._ports_of(taken), low, decided.boundary_us, effects)
        self._outputs.end_round(decided.processed_before, effects)
        self._leave_silence_if_due(effects)
        return True

    def _ports_of(self, taken: list[list[TupleBatch]]) -> list[Rows | None]:
        """Batches per input stream as rows per port, stream after stream."""
        ports: list[Rows | None] = [None] * self.plan.port_count
        position = 0
        for spec, batches in zip(self.plan.inputs, taken, strict=True):
            if not batches:
                continue
            rows = _rows(batches)
            rows.order = rows.order + position
            rows.batch_starts = None
            position += len(rows.time_us)
            before = ports[spec.port]
            ports[spec.port] = rows if before is None else _one_after_the_other(before, rows)
        return ports

    def _ask_to_wake(self, now_ms: int, effects: list[Effect]) -> None:
        """Set the timer for the first arbitrary operator that wants a round without input."""
        wake_us = self._network.wake_us()
        if wake_us is not None and self._rounds is not None:
            wait_us = max(0, wake_us - self._rounds.clock_us)
            effects.append(SetTimer("wake", now_ms - (-wait_us // 1000)))

    def _read_rounds(self, effects: list[Effect]) -> None:
        """A secondary follows the primary's rounds."""
        if self.is_secondary and self.plan.keeps_rounds and self._rounds is not None:
            effects.append(ReadRounds(self._rounds.known_before))

    def _on_rounds_read(self, got: RoundsRead, now_ms: int, effects: list[Effect]) -> None:
        if not self.is_secondary or self._rounds is None:
            return
        self._rounds.add(got.rounds)
        self._inputs.make_room(self._rounds.decided_before)
        effects.append(SetTimer("rounds", now_ms + _ROUNDS_POLL_MS))

    def _round_in_id_order(self, effects: list[Effect]) -> bool:
        """Take what has come on the only stream."""
        (source,) = self._inputs.all()
        batches = source.queue.take(self.plan.limits.round_tuples)
        boundary_us = source.queue.taken_boundary_us
        if self._is_silent:
            cut = self._point.processed_before.get(source.spec.stream, 0)
            batches = self._keep_before(source, batches, cut)
            boundary_us = min(boundary_us, self._point.boundary_us)
        ports: list[Rows | None] = [None] * self.plan.port_count
        low = np.full(1, NO_ID, dtype=np.int64)
        if batches:
            low[0] = batches[0].first_id
            ports[0] = _rows(batches)
        self._process(ports, low, boundary_us, effects)
        self._leave_silence_if_due(effects, batches[-1].next_id if batches else None)
        self._inputs.taken_from(source)
        return True

    def _keep_before(self, source: Input, batches: list[TupleBatch], cut: int) -> list[TupleBatch]:
        """Only the tuples before `cut`; the rest goes back to the queue."""
        kept: list[TupleBatch] = []
        rest: list[TupleBatch] = []
        for batch in batches:
            if batch.next_id <= cut:
                kept.append(batch)
            elif batch.first_id >= cut:
                rest.append(batch)
            else:
                kept.append(batch.before(cut))
                rest.append(batch.starting_at(cut))
        for batch in reversed(rest):
            source.queue.put_back(batch)
        return kept

    def _round_in_merged_order(self, sunion: SUnion, effects: list[Effect]) -> bool:
        """Take what has come; whether all streams have passed a time and something was done."""
        self._inputs.merge_fresh(sunion)
        boundary_us = self._inputs.slowest_us
        if self._is_silent:
            boundary_us = min(boundary_us, self._point.boundary_us)
        if boundary_us <= self._network.boundary_us and boundary_us != END_US:
            return False
        release = sunion.release(boundary_us)
        ports = [
            None
            if port is None
            else Rows(_without_time(port.batch), port.time_us, port.order, port.created_us)
            for port in release.ports
        ]
        self._process(ports, release.low, boundary_us, effects)
        self._leave_silence_if_due(effects)
        return True

    def _process(
        self,
        ports: list[Rows | None],
        low: np.ndarray,
        boundary_us: int,
        effects: list[Effect],
    ) -> None:
        """Run the operators on a round's input, and put out what they give."""
        count = sum(len(rows.time_us) for rows in ports if rows is not None)
        self._input_tuples += count
        if self._is_silent:
            self._replayed_tuples += count
        produced = self._network.process(ports, low, boundary_us, is_silent=self._is_silent)
        if produced is None:
            return
        self._is_dirty = True
        for spec, pieces, before_us in produced:
            self._outputs.put_out(spec, pieces, before_us, effects)
        self._promise(produced)

    def _promise(self, produced: list[Produced]) -> None:
        """Pass the operators' promises on to the outputs."""
        for spec, _, before_us in produced:
            self._outputs.promise(spec, before_us)

    def _leave_silence_if_due(self, effects: list[Effect], processed_to: int | None = None) -> None:
        """End the silent replay once everything before the cut has been processed."""
        if not self._is_silent:
            return
        cut_us = self._point.boundary_us
        if self._rounds is not None:
            if self._rounds.next_number < self._point.next_ids.get(self.plan.round_stream, 0):
                return
            # A round that brought nothing but a boundary is not needed again, and is not run again.
            self._network.resume(cut_us)
        elif self._inputs.sunion is None:
            (source,) = self._inputs.all()
            done = processed_to if processed_to is not None else source.queue.next_id
            if source.queue.pending_tuples and processed_to is None:
                done = 0
            if done < self._point.processed_before.get(source.spec.stream, 0):
                return
            ports: list[Rows | None] = [None] * self.plan.port_count
            self._process(ports, np.full(1, NO_ID, dtype=np.int64), cut_us, effects)
        elif self._network.boundary_us < cut_us:
            return
        self._is_silent = False
        self._inputs.has_before(cut_us)
        self._promise(self._network.promises())
        effects.append(ReportCaughtUp(self._replayed_tuples))

    # -- timers -----------------------------------------------------------------------------

    def _on_timer_fired(self, timer: TimerFired, now_ms: int, effects: list[Effect]) -> None:
        if timer.name == "ack":
            self._on_ack_timer(now_ms, effects)
        elif timer.name == "keep-alive":
            self._on_keep_alive_timer(now_ms, effects)
        elif timer.name == "checkpoint":
            self._on_checkpoint_timer(now_ms, effects)
        elif timer.name == "delta":
            effects.append(SetTimer("delta", now_ms + self.plan.delta_interval_ms))
            self._send_delta(now_ms, effects)
        elif timer.name == "wake":
            self._network.is_woken = True
        elif timer.name == "rounds":
            self._read_rounds(effects)
        else:
            self._inputs.read_timer_fired(now_ms, effects)

    def _on_ack_timer(self, now_ms: int, effects: list[Effect]) -> None:
        self._idle_acks += 1
        rests = self._idle_acks > _IDLE_ACKS_BEFORE_REST
        intervals = ACK_INTERVALS_MAX if rests else 1
        effects.append(SetTimer("ack", now_ms + intervals * self.plan.limits.ack_interval_ms))
        is_due = self._idle_acks % ACK_INTERVALS_MAX == 0 if rests else self._is_ack_due()
        if self._chkpt_mngr is not None:
            self._chkpt_mngr.give_up_if_cancelled(now_ms, effects)
        elif is_due and self._may_note():
            self._is_dirty = False
            self._points.note(self._cut())
        elif is_due and self.is_secondary and self._rounds is not None:
            self._rounds.needed_from(
                self._network.oldest_needed()
            )  # It notes no points; it forgets, too.
        self._outputs.sync_sinks(effects)
        self._ask_to_store(now_ms, effects)
        if is_due:
            self._inputs.acknowledge_all(effects)
            self._replica.tell(self._positions(), effects)
        self._finish_if_due(effects)

    def _is_ack_due(self) -> bool:
        """Whether enough is new: else positions cost more than the few tuples they save."""
        self._acks_waited += 1
        new_tuples = self._input_tuples - self._acked_tuples
        if new_tuples < self.plan.limits.ack_tuples and self._acks_waited < ACK_INTERVALS_MAX:
            return False
        self._acks_waited, self._acked_tuples = 0, self._input_tuples
        return True

    def _positions(self) -> tuple[tuple[int, int], ...]:
        """What the secondary has to know; where it numbers otherwise, what input is needed."""
        if self.plan.diverges:
            return tuple((needed, needed) for needed in self._inputs.needed_from.values())
        return self._outputs.positions()

    def _on_keep_alive_timer(self, now_ms: int, effects: list[Effect]) -> None:
        effects.append(SetTimer("keep-alive", now_ms + self.plan.limits.keep_alive_ms))
        self._repeat_reports(now_ms, effects)
        self._outputs.keep_alive(effects)
        self._inputs.subscribe_to_silent(now_ms, effects)
        if self.is_secondary:
            self._replica.subscribe_if_silent(now_ms, effects)

    def _repeat_reports(self, now_ms: int, effects: list[Effect]) -> None:
        """Words to the coordinator can be lost with their connection: say again what counts."""
        if self._is_finished:
            effects.append(ReportFinished())
        point = self._points.ask_again(now_ms, self.plan.limits.resubscribe_ms)
        if point is not None:
            effects.append(StoreRestartPoint(point))

    # -- restart points -----------------------------------------------------------------------

    def _may_note(self) -> bool:
        """Whether a restart point would say anything new."""
        if self.is_secondary or not (self.plan.is_protected and self._outputs.are_placed):
            return False
        if self._note_after is not None and self._has_passed(self._note_after):
            self._note_after = None
        return self._is_dirty and not self._is_silent and self._note_after is None

    def _has_passed(self, point: RestartPoint) -> bool:
        """Whether the node's present cut is at or behind that of a point of another replica."""
        if self._network.boundary_us < point.boundary_us:
            return False
        return self._inputs.sunion is not None or all(
            source.queue.next_id - source.queue.pending_tuples
            >= point.processed_before.get(source.spec.stream, 0)
            for source in self._inputs.all()
        )

    def _cut(self, *, is_state_kept: bool = False) -> RestartPoint:
        """The node's present cut.

        Args:
            is_state_kept: Whether a copy of the state goes with it: then operators need no tuple
                again.
        """
        low = np.full(len(self.plan.inputs), NO_ID, dtype=np.int64)
        if not is_state_kept:
            low = self._network.oldest_needed()
        if self._inputs.sunion is not None:
            low = np.minimum(low, self._inputs.sunion.oldest_held())
        needed_from: dict[str, int] = {}
        processed: dict[str, int] = {}
        for source in self._inputs.all():
            stream = source.spec.stream
            next_id = source.queue.next_id - source.queue.pending_tuples
            needed_from[stream] = max(min(int(low[source.number]), next_id), source.needed_from)
            processed[stream] = next_id
        if self.plan.keeps_rounds and self._rounds is not None:
            begins = RoundStart(self._rounds.next_number, self._rounds.starts)
            if not is_state_kept:
                begins = self._rounds.needed_from(low)
            needed_from = {
                s.stream: start for s, start in zip(self.plan.inputs, begins.starts, strict=True)
            }
            needed_from[self.plan.round_stream] = begins.number
        return RestartPoint(
            self._points.next_sequence(),
            needed_from,
            processed,
            self._network.boundary_us,
            self._outputs.next_ids,
            rebased=self._inputs.rebased,
        )

    # -- checkpoints ------------------------------------------------------------------------

    def _on_checkpoint_timer(self, now_ms: int, effects: list[Effect]) -> None:
        """Take a checkpoint, unless the last one is still being written."""
        if self._chkpt_mngr is None or self.plan.checkpoints is None:
            return
        effects.append(SetTimer("checkpoint", now_ms + self.plan.checkpoints.interval_ms))
        if not self._may_note() or self._chkpt_mngr.is_writing:
            return
        if self.plan.checkpoints.asks_first:
            effects.append(AskToWrite())  # Each time anew: the word or its answer may be lost.
        else:
            self._prepare_checkpoint(self._chkpt_mngr, now_ms, effects)

    def _prepare_checkpoint(
        self, chkpt_mngr: ChkptMngr, now_ms: int, effects: list[Effect]
    ) -> None:
        self._is_dirty = False
        chkpt_mngr.prepare(self._cut(is_state_kept=True), self._outputs, now_ms, effects)

    def _on_write_admitted(self, _: WriteAdmitted, now_ms: int, effects: list[Effect]) -> None:
        """The turn has come: the checkpoint is of the state now. [SGuard §5]"""
        if self._chkpt_mngr is None or self._chkpt_mngr.is_writing:
            return  # Said again.
        if self._may_note():
            self._prepare_checkpoint(self._chkpt_mngr, now_ms, effects)
        else:
            effects.append(LeaveWriters())

    def _on_pages_copied(self, copied: PagesCopied, now_ms: int, effects: list[Effect]) -> None:
        del now_ms, effects
        if self._chkpt_mngr is not None:
            self._chkpt_mngr.pages_copied(copied)

    def _on_checkpoint_written(
        self, written: CheckpointWritten, now_ms: int, effects: list[Effect]
    ) -> None:
        if self._chkpt_mngr is None:
            return
        point = self._chkpt_mngr.written(written.stored, now_ms, effects)
        if point is not None:
            self._points.note(point)
            self._ask_to_store(now_ms, effects)

    def _on_checkpoint_failed(
        self, failed: CheckpointFailed, now_ms: int, effects: list[Effect]
    ) -> None:
        if self._chkpt_mngr is not None:
            self._chkpt_mngr.failed(failed, now_ms, effects)
            self._is_dirty = True

    def _ask_to_store(self, now_ms: int, effects: list[Effect]) -> None:
        """Send the newest safe restart point to the coordinator."""
        point = self._points.ask(self._outputs.let_go, now_ms)
        if point is not None:
            effects.append(StoreRestartPoint(point))

    def _on_restart_point_stored(
        self, stored: RestartPointStored, now_ms: int, effects: list[Effect]
    ) -> None:
        """Level-1 positions may move now, and not before: a replacement will start here."""
        if not self._points.stored(stored.sequence):
            return
        oldest = self._points.retained[-1]
        self._inputs.let_go(oldest)
        if self.plan.keeps_rounds:
            needed_from = oldest.needed_from.get(self.plan.round_stream, 0)
            effects.append(TrimRounds(max(0, needed_from - 1)))  # The clock goes on from there.
        if self._chkpt_mngr is not None:
            points = self._points
            self._chkpt_mngr.collect(points.retained, points.on_their_way(), effects)

    def _on_sink_synced(self, synced: SinkSynced, now_ms: int, effects: list[Effect]) -> None:
        self._outputs.sink_synced(synced, effects)
        self._ask_to_store(now_ms, effects)
        self._finish_if_due(effects)

    # -- the end ----------------------------------------------------------------------------

    def _finish_if_due(self, effects: list[Effect]) -> None:
        if self.is_secondary or self._is_finished or self._is_silent:
            return
        if self._network.boundary_us != END_US:
            return
        if self._inputs.are_ended and self._outputs.end_sinks(effects):
            self._is_finished = True
            effects.append(ReportFinished())

    # -- looking ----------------------------------------------------------------------------

    def known_peers(self) -> dict[NodeId, Incarnation]:
        """The incarnation of every neighbour that this node has been told of."""
        known = {
            source.spec.producer: source.producer
            for source in self._inputs.all()
            if source.spec.producer is not None and source.producer is not None
        }
        return known | self._outputs.receivers() | self._replica.known_primary()

    def known_secondaries(self) -> dict[NodeId, Incarnation]:
        """The secondary of every receiver, and of this node, as far as this node has been told."""
        return self._outputs.secondaries() | self._replica.known_secondary()

    def may_follow(self, sink_next_ids: dict[StreamId, int]) -> bool:
        """Whether a secondary can take over from logs that end there.

        It cannot if the round log has lost, with its machine, a round that the secondary has run.
        """
        logged = sink_next_ids.get(self.plan.round_stream)
        return self._rounds is None or logged is None or self._rounds.next_number <= logged

    @property
    def has_joined(self) -> bool:
        """Whether this is a secondary that all producers serve, so that it can keep up."""
        return self.is_secondary and self._inputs.are_served

    def peer_incarnation(
        self, stream: StreamId, *, is_secondary: bool = False
    ) -> Incarnation | None:
        """The incarnation that this node knows at the other end of a stream; None: of nobody.

        Args:
            stream: An input or output stream, or the replica stream.
            is_secondary: Whether it is the secondary that receives an output stream.
        """
        if stream == self.plan.replica_stream:
            return self._replica.other(is_secondary=is_secondary)
        if self._inputs.has(stream):
            return self._inputs.producer(stream)
        if is_secondary:
            return self._outputs.secondary(stream)
        return self._outputs.receiver(stream)

    @property
    def input_tuples(self) -> int:
        """Tuples processed, replayed ones included."""
        return self._input_tuples

    def source_boundaries(self) -> dict[StreamId, int]:
        """Per source that the node reads, what it has promised."""
        return {
            source.spec.stream: source.queue.boundary_us
            for source in self._inputs.all()
            if source.spec.producer is None
        }

    def positions(self) -> dict[str, dict[StreamId, int]]:
        """Per input stream the id before which all was processed, per output stream the next id."""
        processed = self._inputs.processed_before
        streams = (spec.stream for spec in self.plan.inputs)
        return {
            "processed": dict(zip(streams, processed, strict=True)),
            "next_ids": {StreamId(s): i for s, i in self._outputs.next_ids.items()},
        }

    def needs(self) -> NodeNeeds:
        """How far back it goes now. Cost: O(operators + input streams)."""
        low = self._network.oldest_needed()
        state = replay = 0
        for source in self._inputs.all():
            processed = source.queue.next_id - source.queue.pending_tuples
            state += max(0, processed - int(low[source.number]))
            replay += max(0, processed - source.needed_from)
        return NodeNeeds(state, replay)

    def sample_changes(self, number: int) -> ChangeSample:
        """A sample of its state, to see a little later how much of it has changed."""
        return self._network.sample_changes(number)

    def replicated(self) -> tuple[PageManager, dict[StreamId, list[TupleBatch]]]:
        """What a passive secondary has a copy of: pages, and output tuples in memory."""
        queues = self._outputs.queues()
        return self._network.pages, {q.stream: q.held_from(q.trimmed_before) for q in queues}

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when queues, operators or restart points make no sense."""
        self._inputs.check_invariants()
        self._network.check_invariants()
        self._outputs.check_invariants()
        self._points.check_invariants(self._inputs.needed_from)

    def statistics(self) -> NodeStatistics:
        """Counters now."""
        queues = self._outputs.queues()
        counters = [queue.statistics() for queue in queues]
        inputs = list(self._inputs.all())
        sunion = self._inputs.sunion
        pages = self._network.pages.statistics()
        return NodeStatistics(
            input_tuples=self._input_tuples,
            output_tuples=self._outputs.tuples,
            replayed_tuples=self._replayed_tuples,
            duplicates_dropped=sum(i.queue.duplicates_dropped for i in inputs),
            refused_frames=self._inputs.refused_frames
            + self._outputs.refused_frames
            + self._replica.refused_frames,
            pending_tuples=sum(i.queue.pending_tuples for i in inputs),
            held_tuples=0 if sunion is None else sum(sunion.held_tuples),
            unsent_tuples=sum(queue.unsent_tuples for queue in queues),
            retained_tuples=sum(c.retained_tuples for c in counters),
            retained_bytes=sum(c.retained_bytes for c in counters),
            spilled_tuples=sum(c.spilled_tuples for c in counters),
            state_bytes=pages.pages_used * pages.page_bytes,
            held_bytes=pages.pages_held * pages.page_bytes,
            boundary_us=self._network.boundary_us,
            is_silent=self._is_silent,
            is_finished=self._is_finished,
        )


_HANDLERS: dict[type[Stimulus], Callable[[Node, Any, int, list[Effect]], None]] = {
    BatchReceived: Node._on_batch_received,
    NotesReceived: Node._on_notes_received,
    BoundaryReceived: Node._on_boundary_received,
    SubscribeReceived: Node._on_subscribe_received,
    PositionsReceived: Node._on_positions_received,
    RoundsRead: Node._on_rounds_read,
    DeltaAckReceived: Node._on_delta_ack_received,
    PageRunReceived: Node._on_state_received,
    DeltaReceived: Node._on_state_received,
    Promoted: Node._on_promoted,
    AckReceived: Node._on_ack_received,
    PeerIncarnationLearned: Node._on_peer_incarnation_learned,
    SourceRead: Node._on_source_read,
    SourceStirred: Node._on_source_stirred,
    SinkSynced: Node._on_sink_synced,
    SpillRead: Node._on_spill_read,
    RestartPointStored: Node._on_restart_point_stored,
    WriteAdmitted: Node._on_write_admitted,
    PagesCopied: Node._on_pages_copied,
    CheckpointWritten: Node._on_checkpoint_written,
    CheckpointFailed: Node._on_checkpoint_failed,
    TimerFired: Node._on_timer_fired,
    Proceed: Node._on_proceed,
}


def _rows(batches: list[TupleBatch]) -> Rows:
    """The rows of consecutive batches as one round's input, in id order."""
    batch = batches[0].batch if len(batches) == 1 else pa.concat_batches([b.batch for b in batches])
    time_us = batch.column(batch.num_columns - 1).to_numpy()
    created = [b.created_us for b in batches if b.created_us]
    return Rows(
        _without_time(batch),
        time_us,
        _positions(len(time_us)),
        min(created, default=0),
        np.array([b.first_id - batches[0].first_id for b in batches], dtype=np.int64),
    )


def _positions(count: int) -> np.ndarray:
    """int64 (count,), 0, 1, and so on; read-only, as it is made once for many rounds."""
    return _numbers(1 << count.bit_length())[:count]


@lru_cache(maxsize=_ROUND_SIZES)
def _numbers(count: int) -> np.ndarray:
    numbers = np.arange(count, dtype=np.int64)
    numbers.flags.writeable = False
    return numbers


def _one_after_the_other(first: Rows, second: Rows) -> Rows:
    """The rows of two streams on one port, the second stream's behind the first's."""
    created = [r.created_us for r in (first, second) if r.created_us]
    return Rows(
        pa.concat_batches([first.batch, second.batch]),
        np.concatenate([first.time_us, second.time_us]),
        np.concatenate([first.order, second.order]),
        min(created, default=0),
    )


def _without_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(range(batch.num_columns - 1))
