"""Checkpoints of a node that does not repeat, and recovers with its region. [CheckMate §III-B]

Theory of operation. Such a node takes its input as it comes and logs nothing, so that a replacement
may put out other tuples. It takes checkpoints when it wants to, as `Checkpointed` does, and also if
its operators have no state: the line can pass only what has a point. Three things are otherwise:

- **What may be forgotten** follows the *line*, not the newest point: recovery may go back to any
  point since then. So all of these are retained, and level-1 positions are those of the oldest.
- **What may leave** the region follows the line too (outputs/line_gate.py). A point does not wait
  until sinks have what was put out before it: the checkpoint has that. With the guarantee
  `rollback` results do not wait: then a point does, and a replacement numbers its results from
  where the log of the sink ends. What was put out since the line may come again, and otherwise.
- **When another member is lost** the coordinator halts the region. A halted node takes in frames,
  but processes and cuts nothing, and learns of no new incarnation: it would ask for tuples that it
  may have to forget. Told to go on, it drops what members that go back will send otherwise, and
  refuses what their earlier incarnations still send. Told to go back, it ends, and its replacement
  begins at the point that the coordinator has chosen.

    AT WORK --halt--> HALTED --go on--> AT WORK
                      HALTED --roll back--> the end of this incarnation

Where it stands is said again until it is told what to do; words can be lost.

With two lines kept a node cuts though nothing has changed, until the oldest line stands at what it
is now. Else a node without input would have one point of that, and no two lines could share none.

After a recovery survivors cut when they go on, and all begin with short periods
(recovery/first_periods.py). When all input has ended a node cuts at once: the last results wait for
nothing that could still come. What a cut that comes to nothing has covered is not covered: another
one follows after a short period, and after longer and longer ones if those come to nothing, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from holdfast.core.haunit.durability.base import NO_PASS
from holdfast.core.haunit.durability.checkpointed import Checkpointed
from holdfast.core.haunit.events import (
    CheckpointFailed,
    PeerIncarnationLearned,
    ReportHalted,
    RestartPointStored,
    WantRound,
)
from holdfast.core.haunit.restart_points import RestartPoints
from holdfast.core.haunit.told import CutTold, GoOnTold, HaltTold, LineTold, RollBackTold
from holdfast.core.machine import Effect, SetTimer, Stimulus
from holdfast.core.model.stable_hash import stable_hash
from holdfast.core.recovery.checkpoint_graph import BEGINNING
from holdfast.core.recovery.first_periods import FirstPeriods
from holdfast.core.recovery.guarantee import RolledBack

if TYPE_CHECKING:
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.model.ids import Incarnation, NodeId
    from holdfast.core.recovery.restart_point import RestartPoint


class LinePoints(RestartPoints):
    """Points of which all since the line are retained. Volatile: all fields."""

    def ask(self, is_safe: Callable[[RestartPoint], bool], now_ms: int) -> RestartPoint | None:
        """The oldest one that has become safe; the others follow, as a line may need each."""
        if not (self._noted and is_safe(self._noted[0])):
            return None
        self._asked.append(self._noted.popleft())
        self._asked_ms = now_ms
        return self._asked[-1]

    def stored(self, sequence: int) -> bool:
        """The points up to this one are durable; whether any of them was not known to be."""
        found: list[RestartPoint] = []
        while self._asked and self._asked[0].sequence <= sequence:
            found.insert(0, self._asked.popleft())
        self.retained = (*found, *self.retained)
        return bool(found)

    def line_moved(self, sequence: int) -> bool:
        """Recovery goes back behind this point no more; whether that is new."""
        self.stored(sequence)
        before = self.retained
        self.retained = tuple(p for p in before if p.sequence >= sequence)
        return len(self.retained) < len(before)


class Lines(Checkpointed):
    """See the module. Volatile: all fields."""

    points: LinePoints
    GIVES_WAY = False  # Others cut by its cut.

    def __init__(self, unit: HAUnit, begins: Beginning, restored: RestoredState | None) -> None:
        """Protect a unit that begins there; `restored` as it was given to `begin`."""
        super().__init__(unit, begins, restored)
        self.points = LinePoints(begins.newest_sequence, 1, begins.point.candidates())
        self._gate = unit.outputs.hold_for_line(begins.point)
        self._began_before = begins.point.processed_before
        """What waits for its time when a node cuts comes again, and counts as taken all along."""
        self._has_others_before = any(spec.is_from_region for spec in unit.plan.inputs)
        self._halted: int | None = None  # the attempt that it was halted for
        self._went_on = 0  # the last attempt that it went on after
        self._learned: dict[NodeId, PeerIncarnationLearned] = {}  # while it is halted
        self._cuts = 0
        self._alike_pass = unit.passes  # the last cut was behind it
        self._alike_since = begins.point.sequence  # the first point that was
        self._alike = 1  # points that were
        if any(unit.outputs.next_ids[s] > i for s, i in begins.point.next_ids.items()):
            self._alike_pass = NO_PASS  # Sinks hold more than its point says.
            self.note_again()
        self._again_from_ms = 0  # no cut is asked for before for what one has not covered
        self._pauses = FirstPeriods(self._checkpoints.interval_ms)  # between such cuts
        self._pauses.recovered()
        self._periods = FirstPeriods(self._checkpoints.interval_ms)
        if begins.incarnation > 1:
            self._periods.recovered()

    # -- cuts -------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Set the timer of checkpoints; what the line has passed may leave."""
        return [*self._set_timer(now_ms), *self._gate.start()]

    def _set_timer(self, now_ms: int) -> list[Effect]:
        """Nodes do not cut at once: each period is longer by another part of the jitter."""
        self._cuts += 1
        chance = int(stable_hash([pa.array([f"{self.unit.plan.node} {self._cuts}"])])[0])
        usual_ms = self._checkpoints.interval_ms + chance % (self._checkpoints.jitter_ms + 1)
        return [SetTimer("checkpoint", now_ms + self._periods.take(usual_ms))]

    def acknowledging(self, now_ms: int, *, is_due: bool) -> list[Effect]:
        """A full gate asks for a cut before its time, and so does the end of all input."""
        effects = super().acknowledging(now_ms, is_due=is_due)
        if self._gate.wants_cut:
            effects += self._gate_filled(now_ms)
        elif self.unit.has_ended and (self._has_changed or self._lacks_points(now_ms)):
            effects += self._want_cut(now_ms)
        return effects

    def _gate_filled(self, now_ms: int) -> list[Effect]:
        """Cut for what no cut covers yet; and, if nothing more came, until lines can share it.

        The line waits for those before the node, too: the coordinator asks them.
        """
        effects: list[Effect] = [WantRound()] if self._has_others_before else []
        if self._lacks_points(now_ms) or self._gate.has_filled_since_cut:
            effects += self._want_cut(now_ms)
        return effects

    def on_cut_told(self, told: CutTold, now_ms: int) -> list[Effect]:
        """The line waits for this node's cut; a cut of what has not changed would not move it."""
        del told
        return self._cut_if_due(now_ms)

    @property
    def _has_changed(self) -> bool:
        """Whether it is not what it was at its last cut."""
        return self.unit.passes != self._alike_pass

    def _lacks_points(self, now_ms: int) -> bool:
        """Whether lines that share no point would have too few of what it is now."""
        if self._has_changed or self._alike >= self._checkpoints.kept:
            return False
        return now_ms >= self._again_from_ms

    def _come_to_nothing(self, now_ms: int) -> None:
        """There will be no line at the last cut."""
        self._alike = max(0, self._alike - 1)
        self._again_from_ms = now_ms + self._pauses.take(self._checkpoints.interval_ms)

    def on_checkpoint_failed(self, failed: CheckpointFailed, now_ms: int) -> list[Effect]:
        """See `Checkpointed`; the next one may be asked for."""
        was_writing = self._chkpt_mngr.is_writing
        effects = super().on_checkpoint_failed(failed, now_ms)
        if was_writing and not self._chkpt_mngr.is_writing:
            self._come_to_nothing(now_ms)
        return effects

    def _want_cut(self, now_ms: int) -> list[Effect]:
        """What waits should not wait for the interval to be over."""
        return self._cut_if_due(now_ms)

    def may_note(self) -> bool:
        """See `Durability`, and the module for two lines."""
        if self._checkpoints.kept > 1 and not self._has_changed and self._has_one_line():
            self.note_again()
        return super().may_note()

    def _has_one_line(self) -> bool:
        """Whether two lines at what it is now would share its point.

        A node that went back to the oldest line has one point of that, as has one whose state was
        divided: should it have no input, no line could move any more, and no gate would open.
        """
        oldest = self.points.retained[-1].sequence
        if oldest < self._alike_since:
            return True
        return oldest > BEGINNING and len(self.points.retained) < self._checkpoints.kept

    def _cut_if_due(self, now_ms: int) -> list[Effect]:
        if self._halted is None and self.may_note() and not self._chkpt_mngr.is_writing:
            return self._prepare(now_ms)
        return []

    def cut(self, *, is_state_kept: bool) -> RestartPoint:
        """The present cut as a point that will be noted, with all that a line has to know."""
        point = self._completed(super().cut(is_state_kept=is_state_kept))
        if self._has_changed:
            self._alike_pass, self._alike_since = self.unit.passes, point.sequence
            self._alike = 0
        self._alike += 1
        self._gate.cut(point.sequence)
        return point

    def _completed(self, point: RestartPoint) -> RestartPoint:
        outputs, taken = self.unit.outputs, point.processed_before
        held_from = {q.stream: q.trimmed_before for q in outputs.queues()}
        return replace(
            point,
            processed_before={s: max(i, self._began_before.get(s, 0)) for s, i in taken.items()},
            held_from=held_from | self._gate.held_from(),
            promised={q.stream: q.boundary_us for q in outputs.queues()},
        )

    # -- the line ---------------------------------------------------------------------------

    def on_restart_point_stored(self, stored: RestartPointStored, now_ms: int) -> list[Effect]:
        """It is retained; nothing may be forgotten before the line has passed it."""
        del now_ms
        self.points.stored(stored.sequence)
        return []

    def on_line_told(self, told: LineTold, now_ms: int) -> list[Effect]:
        """Recovery goes back behind this point no more."""
        if not self.points.line_moved(told.sequence):
            return []
        self._again_from_ms = 0
        self._pauses.recovered()
        oldest = self.points.retained[-1]
        self.unit.inputs.let_go(oldest)
        return [*self.retained(), *self._gate.open_to(told.sequence), *self.ask_to_store(now_ms)]

    # -- recoveries of the region -----------------------------------------------------------

    @property
    def is_halted(self) -> bool:
        """Whether nothing may be processed now."""
        return self._halted is not None

    def on_halt_told(self, told: HaltTold, now_ms: int) -> list[Effect]:
        """Say where it stands, and stay there."""
        del now_ms
        if told.attempt > self._went_on:
            self._halted = max(told.attempt, self._halted or 0)
            return self._say_where()
        return []

    def _say_where(self) -> list[Effect]:
        if self._halted is not None:
            place = self._completed(self.unit.cut(0, is_state_kept=True))
            return [ReportHalted(self._halted, self._went_on, place)]
        return []

    def ask_again(self, now_ms: int) -> list[Effect]:
        """Words can be lost with their connection."""
        return [*super().ask_again(now_ms), *self._say_where()]

    def defers(self, learned: PeerIncarnationLearned) -> bool:
        """Whether a neighbour's incarnation is for later, when it is known what is void."""
        if self._halted is not None:
            self._learned[learned.node] = learned
        return self._halted is not None

    def deferred_peers(self) -> dict[NodeId, Incarnation]:
        """See `Durability`."""
        return {node: learned.incarnation for node, learned in self._learned.items()}

    def on_go_on_told(self, told: GoOnTold, now_ms: int) -> list[Effect]:
        """Drop what members that go back will send otherwise, and go on."""
        if told.attempt != self._halted:
            return []
        return [*self._go_on(told, now_ms), *self._resumed(now_ms)]

    def _go_on(self, told: GoOnTold, now_ms: int) -> list[Effect]:
        self._halted, self._went_on = None, told.attempt
        inputs, acted_us = self.unit.inputs, self.unit.network.boundary_us
        for stream, resumed in told.resumed.items():
            inputs.drop_from(stream, resumed.next_id, resumed.incarnation, acted_us)
        learned, self._learned = self._learned, {}
        effects: list[Effect] = []
        for each in learned.values():
            effects += inputs.learn(each.node, each.incarnation, now_ms)
            self.unit.outputs.receivers.learn(each.node, each.incarnation, each.secondary)
        return effects + inputs.read_sources(now_ms)

    def _resumed(self, now_ms: int) -> list[Effect]:
        """It goes on after a halt, and what is void has been dropped."""
        self._periods.recovered()
        return [*self._set_timer(now_ms), *self._cut_if_due(now_ms)]

    def on_roll_back_told(self, told: RollBackTold, now_ms: int) -> list[Effect]:
        """Its replacement goes on from an earlier point. Raises `RolledBack`."""
        del now_ms
        if told.attempt == self._halted:
            raise RolledBack(f"{self.unit.plan.node} goes back to an earlier checkpoint")
        return []

    HANDLERS: ClassVar[Mapping[type[Stimulus], Callable[[Any, Any, int], list[Effect]]]] = {
        **Checkpointed.HANDLERS,
        CheckpointFailed: on_checkpoint_failed,
        RestartPointStored: on_restart_point_stored,
        CutTold: on_cut_told,
        LineTold: on_line_told,
        HaltTold: on_halt_told,
        GoOnTold: on_go_on_told,
        RollBackTold: on_roll_back_told,
    }
    TIMERS: ClassVar[Mapping[str, Callable[[Any, int], list[Effect]]]] = Checkpointed.TIMERS
