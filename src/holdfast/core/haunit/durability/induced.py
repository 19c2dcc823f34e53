"""Checkpoints that what others say may force, so that none is useless. [CheckMate §III-C]

Theory of operation. A node cuts by its own timer, as in `Lines`, and where its cut rule
(core/checkpoint/cut_rule.py) says that tuples must not be processed before a cut. The rule hears of
each note as soon as the node stands at it, and gives the note that must stand before tuples put out
within the region. Recovery, the gate and what may be forgotten are those of `Lines`.

One checkpoint is written at a time. So a cut may be due that cannot be taken yet: the input waits
at its note, which counts as one that has not come. A checkpoint that is taken for another reason
meanwhile has the note sent again, should the node go back to it.

In the scope of the rule are the strongly connected component of the node, or its whole region. A
node that is alone in its scope says nothing, and nothing forces it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from holdfast.core.checkpoint.bcs import BCS
from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.checkpoint.hmnr import HMNR
from holdfast.core.checkpoint.lazy_fi import LazyFI
from holdfast.core.checkpoint.scope import Scope, scope_of
from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit.durability.lines import Lines
from holdfast.core.haunit.events import CheckpointFailed, CheckpointWritten
from holdfast.core.haunit.plan import Cuts
from holdfast.core.haunit.told import GoOnTold
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.model.ids import CheckpointId, NodeId

if TYPE_CHECKING:
    from holdfast.core.checkpoint.cut_rule import CutRule
    from holdfast.core.haunit.arrivals import InputStream
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.model.ids import StreamId
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.recovery.restart_point import RestartPoint

_RULES: Final[dict[Cuts, Callable[[Scope], CutRule]]] = {
    Cuts.HMNR: HMNR,
    Cuts.BCS: BCS,
    Cuts.LAZY_FI: LazyFI,
}
_NOBODY: Final = NodeId("")


def induced_rule_of(plan: NodePlan) -> CutRule:
    """When a node of this plan has to cut. Raises `LocalProtocolError`: nothing may force it."""
    if plan.cuts not in _RULES:
        raise LocalProtocolError(f"{plan.node} is forced to no checkpoints by its plan")
    senders = tuple(spec.producer or _NOBODY for spec in plan.inputs)
    receivers = tuple(r for spec in plan.outputs if not spec.is_gated for r in spec.receivers)
    return _RULES[plan.cuts](scope_of(plan.node, plan.scope, senders, receivers))


class Induced(Lines):
    """See the module. Volatile: all fields; the rule's state is in checkpoints."""

    def __init__(self, unit: HAUnit, begins: Beginning, restored: RestoredState | None) -> None:
        """Protect a unit that begins there; `restored` as it was given to `begin`."""
        super().__init__(unit, begins, restored)
        self._incarnation = begins.incarnation
        self._rule = induced_rule_of(unit.plan)
        if begins.point.clocks:
            self._rule.restore(begins.point.clocks)
        self._outputs = {s: number for number, s in enumerate(unit.plan.changing_streams())}
        self._waiting: dict[StreamId, int] = {}  # numbers of notes that wait for a cut
        self._is_wanted = False  # whether the cut that is being taken is the timer's
        unit.outputs.before_tuples = self._before_tuples

    def _before_tuples(self, stream: StreamId) -> None:
        number = self._outputs.get(stream)
        note = None if number is None else self._rule.before_output(number)
        if note is not None:
            self.unit.outputs.put_note(note, (stream,))

    # -- cuts ---------------------------------------------------------------------------------

    def noted(
        self, stream: InputStream, note: PlacedNote, now_ms: int, effects: list[Effect]
    ) -> None:
        """An input stands at what its sender knew."""
        self._waiting.setdefault(stream.spec.stream, note.number)
        self._rule.noted(stream.number, note.before_id, note.note)
        self._heed(now_ms, effects)

    def _cut_if_due(self, now_ms: int, effects: list[Effect]) -> None:
        """The timer, or a full gate, wants a cut."""
        if self._halted is None and self.may_note() and not self._chkpt_mngr.is_writing:
            self._rule.asked(NO_ROUND)
            self._is_wanted = True
            self._heed(now_ms, effects)
            self._is_wanted = False

    def _heed(self, now_ms: int, effects: list[Effect]) -> None:
        """Cut if that is due, and take in what has been said; what forces a cut waits for it."""
        arrivals = self.unit.inputs.arrivals
        stands_at = arrivals.processed_before
        may_cut = self._halted is None and self.unit.may_cut and not self._chkpt_mngr.is_writing
        if may_cut and self._rule.is_due(stands_at):
            self._prepare(now_ms, effects)
        if not self._rule.is_due(stands_at):
            self._rule.begin_pass(stands_at)
            self._waiting = {}
        if arrivals.hold_back(self._rule.limits()):
            self.unit.inputs.grant(arrivals.streams, effects)

    def cut(self, *, is_state_kept: bool) -> RestartPoint:
        """The present cut, with what the rule goes on from there."""
        point = super().cut(is_state_kept=is_state_kept)
        checkpoint = CheckpointId(point.sequence, self._incarnation)
        self._rule.cut(checkpoint, self.unit.inputs.arrivals.processed_before)
        return replace(
            point,
            clocks=self._rule.state(),
            next_notes=point.next_notes | self._waiting,
            is_forced=not self._is_wanted,
        )

    def on_checkpoint_written(
        self, written: CheckpointWritten, now_ms: int, effects: list[Effect]
    ) -> None:
        """See `Checkpointed`; a forced one may have had to wait for it."""
        super().on_checkpoint_written(written, now_ms, effects)
        self._heed(now_ms, effects)

    def on_checkpoint_failed(
        self, failed: CheckpointFailed, now_ms: int, effects: list[Effect]
    ) -> None:
        """See `Checkpointed`; a forced one may have had to wait for it."""
        super().on_checkpoint_failed(failed, now_ms, effects)
        self._heed(now_ms, effects)

    def acknowledging(self, now_ms: int, effects: list[Effect], *, is_due: bool) -> None:
        """See `Lines`; a checkpoint may have been given up."""
        super().acknowledging(now_ms, effects, is_due=is_due)
        self._heed(now_ms, effects)

    # -- recoveries of the region -----------------------------------------------------------------

    def on_go_on_told(self, told: GoOnTold, now_ms: int, effects: list[Effect]) -> None:
        """See `Lines`; what will be said otherwise is forgotten."""
        was_halted = self._halted
        super().on_go_on_told(told, now_ms, effects)
        if was_halted is None or self._halted is not None:
            return
        for stream in self.unit.inputs.all():
            resumed = told.resumed.get(stream.spec.stream)
            if resumed is not None:
                self._rule.dropped(stream.number, resumed.next_id)
                if stream.processed_before >= resumed.next_id:
                    self._waiting.pop(stream.spec.stream, None)
        self._heed(now_ms, effects)

    HANDLERS: ClassVar[Mapping[type[Stimulus], Callable[[Any, Any, int, list[Effect]], None]]] = {
        **Lines.HANDLERS,
        CheckpointWritten: on_checkpoint_written,
        CheckpointFailed: on_checkpoint_failed,
        GoOnTold: on_go_on_told,
    }
    TIMERS: ClassVar[Mapping[str, Callable[[Any, int, list[Effect]], None]]] = Lines.TIMERS
