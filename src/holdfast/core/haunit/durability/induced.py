"""Checkpoints that what others say may force, so that none is useless. [CheckMate §III-C]

Theory of operation. A node cuts by its own timer, as in `Lines`, and where its cut rule
(core/checkpoint/cut_rule.py) says that tuples must not be processed before a cut. The rule hears of
each note as soon as the node stands at it, and gives the note that must stand before tuples put out
within the region. Recovery, the gate and what may be forgotten are those of `Ruled`.

One checkpoint is written at a time. So a cut may be due that cannot be taken yet: the input waits
at its note, which counts as one that has not come. A checkpoint that is taken for another reason
meanwhile has the note sent again, should the node go back to it.

In the scope of the rule are the strongly connected component of the node, or its whole region. A
node that is alone in its scope says nothing, and nothing forces it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.core.checkpoint.bcs import BCS
from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.checkpoint.hmnr import HMNR
from holdfast.core.checkpoint.lazy_fi import LazyFI
from holdfast.core.checkpoint.scope import Scope, scope_of
from holdfast.core.errors import LocalProtocolError
from holdfast.core.haunit.durability.ruled import Ruled
from holdfast.core.haunit.plan import Cuts
from holdfast.core.model.ids import NodeId

if TYPE_CHECKING:
    from holdfast.core.checkpoint.cut_rule import CutRule
    from holdfast.core.haunit.arrivals import InputStream
    from holdfast.core.haunit.beginning import Beginning
    from holdfast.core.haunit.ha_unit import HAUnit
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.haunit.restoration import RestoredState
    from holdfast.core.machine import Effect
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


class Induced(Ruled):
    """See the module. Volatile: all fields; the rule's state is in checkpoints."""

    def __init__(self, unit: HAUnit, begins: Beginning, restored: RestoredState | None) -> None:
        """Protect a unit that begins there; `restored` as it was given to `begin`."""
        super().__init__(unit, begins, restored, induced_rule_of(unit.plan))
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

    def noted(self, stream: InputStream, note: PlacedNote, now_ms: int) -> list[Effect]:
        """An input stands at what its sender knew."""
        self._waiting.setdefault(stream.spec.stream, note.number)
        self._rule.noted(stream.number, note.before_id, note.note)
        return self._heed(now_ms)

    def _cut_if_due(self, now_ms: int) -> list[Effect]:
        """The timer, or a full gate, wants a cut."""
        if self._halted is None and self.may_note() and not self._chkpt_mngr.is_writing:
            self._rule.asked(NO_ROUND)
            self._is_wanted = True
            effects = self._heed(now_ms)
            self._is_wanted = False
            return effects
        return []

    def _resumed(self, now_ms: int) -> list[Effect]:
        """See `Lines`; what forces a cut may have been dropped, and holds nothing back then."""
        return [*super()._resumed(now_ms), *self._heed(now_ms)]

    def _heed(self, now_ms: int) -> list[Effect]:
        """Cut if that is due, and take in what has been said; what forces a cut waits for it."""
        effects: list[Effect] = []
        if self._is_cut_due():
            effects += self._prepare(now_ms)
        stands_at = self.unit.inputs.arrivals.processed_before
        if not self._rule.is_due(stands_at):
            self._rule.begin_pass(stands_at)
            self._waiting = {}
        return effects + self._hold_back()

    def cut(self, *, is_state_kept: bool) -> RestartPoint:
        """The present cut, with what the rule goes on from there."""
        point = super().cut(is_state_kept=is_state_kept)
        self._cut_by_rule(point)
        return replace(
            point,
            clocks=self._rule.state(),
            next_notes=point.next_notes | self._waiting,
            is_forced=not self._is_wanted,
        )

    def _forget(self, stream: InputStream, from_id: int) -> None:
        """A note that waited for a cut may be among it."""
        super()._forget(stream, from_id)
        if stream.processed_before >= from_id:
            self._waiting.pop(stream.spec.stream, None)
