"""Checkpoints of a node that cuts in rounds with its region. [CheckMate §III-A]

Theory of operation. The coordinator begins a round and tells all members; when a node cuts for it
is said by its cut rule (core/checkpoint/cut_rule.py), which hears of the round here: from the
coordinator, and from markers. At its cut a node puts a marker on every stream within the region.
Recovery, the gate and what may be forgotten are those of `Ruled`: the points of a complete round
are a line.

    IDLE --told of a round, or a marker has come--> BEGUN --the rule's cut--> WRITING --> IDLE
         BEGUN --told that it is over--> IDLE

- An input whose next tuple may not be taken before the cut is stopped there. What it has sent
  before may wait in the input order for the time of a stream that is stopped: that must use up no
  credit then (`Arrivals.held_of`), or the markers behind it would never come.
- A full gate stops its node, but not while a round is under way that the node has not cut for: the
  marker lies behind input that it would never take, and the gate opens when the round is complete.
  Without a round it asks for one, and so does a node whose input has ended.
- A replacement may begin before its predecessor's cut for a round that has come to nothing, while
  neighbours send that round's markers again. A second cut for it would fit none of the others. So
  a node knows from its assignment which rounds are over: a word about it may be lost, or come
  before the node has its state.
- A checkpoint that came to nothing makes its round one that cannot become complete. That is said
  again until the round is known to be over; words can be lost.
- A node cuts for a round though nothing has changed: the round waits for it. Its marker replaces
  the one before where no tuple stands between them: once a round has begun, earlier ones are over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.core.checkpoint.aligned import Aligned, round_of
from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.checkpoint.unaligned import Unaligned
from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.durability.ruled import Ruled
from holdfast.core.haunit.events import ReportRoundFailed, WantRound
from holdfast.core.haunit.plan import Cuts
from holdfast.core.haunit.told import RoundTold
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.notes import CheckpointMarker

if TYPE_CHECKING:
    from holdfast.core.checkpoint.cut_rule import CutRule
    from holdfast.core.haunit.arrivals import InputStream
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.recovery.restart_point import RestartPoint


def rule_of(plan: NodePlan) -> CutRule:
    """When a node of this plan cuts."""
    if plan.cuts is Cuts.UNALIGNED:
        return Unaligned(len(plan.inputs))
    return Aligned(tuple(s.is_from_region and not s.is_feedback for s in plan.inputs))


class Coordinated(Ruled):
    """See the module. Volatile: all fields."""

    def __init__(self, unit: HAUnit, begins: Beginning, restored: RestoredState | None) -> None:
        """Protect a unit that begins there; `restored` as it was given to `begin`."""
        super().__init__(unit, begins, restored, rule_of(unit.plan))
        self._rule.restore((begins.point.round,))
        self._rule.over(begins.rounds_over)
        self._begun = NO_ROUND  # the newest one that it has heard of
        self._over = begins.rounds_over  # the newest one that it was told is over
        self._writing = NO_ROUND  # the one whose checkpoint is being written
        self._failed = NO_ROUND  # the last one whose checkpoint came to nothing

    def start(self, now_ms: int) -> list[Effect]:
        """It cuts when it is told to; what the line has passed may leave."""
        del now_ms
        return self._gate.start()

    # -- rounds -------------------------------------------------------------------------------

    def on_round_told(self, told: RoundTold, now_ms: int) -> list[Effect]:
        """Said again, it changes nothing; a halted node hears it once it has gone on."""
        if self._halted is not None:
            return []
        before, self._over = self._over, max(self._over, told.over)
        if before < self._rule.round() <= told.over and self._is_aborted(told):
            self._come_to_nothing(now_ms)
        self._rule.over(told.over)
        self._hear_of(told.begun)
        return self._cut_if_due(now_ms)

    def _is_aborted(self, told: RoundTold) -> bool:
        """Whether the round of the last cut came to nothing, and not by this node's checkpoint.

        Once a later one is under way, that one counts. With two lines kept a complete one may be
        taken for aborted: a round more is asked for then at most, if results wait.
        """
        is_complete = self.points.retained[-1].round >= self._rule.round()
        return not (is_complete or told.begun or self._failed == self._rule.round())

    def _hear_of(self, round_: int) -> None:
        if round_ > self._begun:
            self._begun = round_
            self._rule.asked(round_)

    def notes_arrived(self, now_ms: int) -> list[Effect]:
        """A marker says that its round has begun, wherever it stands."""
        if self._halted is not None:
            return []
        for stream in self.unit.inputs.all():
            if stream.spec.is_from_region:
                for note in stream.queue.notes.waiting():
                    if isinstance(note.note, CheckpointMarker):  # Others are for the unit.
                        self._hear_of(note.note.round)
        return self._cut_if_due(now_ms)

    def noted(self, stream: InputStream, note: PlacedNote, now_ms: int) -> list[Effect]:
        """An input stands at a marker."""
        self._hear_of(round_of(note.note))
        self._rule.noted(stream.number, note.before_id, note.note)
        return self._cut_if_due(now_ms)

    def _cut_if_due(self, now_ms: int) -> list[Effect]:
        """Cut if the rule says so, and hold back what must wait until it does."""
        effects: list[Effect] = []
        if self._is_cut_due():
            effects += self._prepare(now_ms)
            effects += self.unit.outputs.flush()
        self._gate.is_awaited = self._begun > max(self._rule.round(), self._over)
        return effects + self._hold_back()

    def cut(self, *, is_state_kept: bool) -> RestartPoint:
        """The present cut as a point of the round; a marker stands at it on all streams within."""
        point = super().cut(is_state_kept=is_state_kept)
        marker = self._cut_by_rule(point)
        if marker is not None:
            within = self.unit.plan.changing_streams()
            self.unit.outputs.put_note(marker, within, replaces=True)
        self._writing = self._rule.round()
        empty = {s: point.next_ids[s] for s in self.unit.plan.streams_empty_at_cuts()}
        return replace(point, round=self._rule.round(), held_from=point.held_from | empty)

    def _gate_filled(self, now_ms: int) -> list[Effect]:
        """What waits leaves when a round is complete, this node's cut for it or not."""
        return self._want_cut(now_ms)

    def _want_cut(self, now_ms: int) -> list[Effect]:
        """Ask for a round, unless one is under way, nothing waits for it, or it could not cut."""
        del now_ms
        if self._halted is not None:
            return []
        if self._gate.is_holding and self._begun <= max(self._rule.round(), self._over):
            return [WantRound()]
        return []

    # -- checkpoints that come to nothing ---------------------------------------------------------

    def _heed(self, now_ms: int) -> list[Effect]:
        """Say which checkpoint came to nothing, if one did, and cut for the next if that is due."""
        if self._chkpt_mngr.is_writing:
            return []
        if any(point.round == self._writing for point in self.points.on_their_way()):
            self._writing = NO_ROUND
        effects: list[Effect] = []
        if self._writing != NO_ROUND:
            self._failed, self._writing = self._writing, NO_ROUND
            effects.append(ReportRoundFailed(self._failed))
        return effects + self._cut_if_due(now_ms)

    def ask_again(self, now_ms: int) -> list[Effect]:
        """Words can be lost with their connection."""
        effects = super().ask_again(now_ms)
        if self._failed > self._over:
            effects.append(ReportRoundFailed(self._failed))
        return effects

    def _resumed(self, now_ms: int) -> list[Effect]:
        """Markers that wait may be of a round that it has not heard of."""
        return self.notes_arrived(now_ms)

    HANDLERS: ClassVar[Mapping[type[Stimulus], Callable[[Any, Any, int], list[Effect]]]] = {
        **Ruled.HANDLERS,
        RoundTold: on_round_told,
    }
    TIMERS: ClassVar[Mapping[str, Callable[[Any, int], list[Effect]]]] = Durability.TIMERS
