"""Deliberate bugs in how nodes that do not repeat recover together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants import Mutant

from holdfast.core.coordinator import regions as coordinator
from holdfast.core.coordinator.region import Region
from holdfast.core.haunit import ha_output
from holdfast.core.haunit.durability.coordinated import Coordinated
from holdfast.core.haunit.durability.lines import LinePoints, Lines
from holdfast.core.haunit.ha_input import HAInput
from holdfast.core.haunit.life_events import Fail
from holdfast.core.haunit.outputs.line_gate import LineGate
from holdfast.core.haunit.plan import NodePlan
from holdfast.core.haunit.restoration import (
    CheckpointRestoration,
    CheckpointsLost,
    LineRestoration,
    ReportDamage,
)
from holdfast.core.recovery.checkpoint_graph import Channel
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.sim.workload.protections import UNCOORDINATED

_DEADLY = ("kill", "pause", "machine-crash")


def _let_sinks_out_at_once(original: Any) -> Any:
    """What a recovery could still change is in the sink's log."""

    def acknowledging(self: Lines, now_ms: int, *, is_due: bool) -> list[Any]:
        effects: list[Any] = []
        for sink in self._gate.sinks.values():
            effects += sink.let_out(sink.next_id)
        return effects + original(self, now_ms, is_due=is_due)

    return acknowledging


def _keep_pending_input(original: Any) -> Any:
    """What a member that goes back had sent counts as what it will send."""

    def drop_from(self: HAInput, name: Any, tuple_id: int, incarnation: Any, acted_us: int) -> None:
        del tuple_id, acted_us
        self._streams[name].main.incarnation = None
        self._streams[name].not_before = incarnation

    del original
    return drop_from


def _newest_of_each(original: Any) -> Any:
    """No place forbids another: everybody goes back to the newest checkpoint."""
    del original
    return lambda self, sender, receiver: False


def _trim_at_the_newest(original: Any) -> Any:
    def stored(self: Lines, word: Any, now_ms: int) -> list[Any]:
        effects = original(self, word, now_ms)
        self.unit.inputs.let_go(self.points.retained[0])
        return effects

    return stored


def _leave_sinks_out_of_checkpoints(original: Any) -> Any:
    del original
    return lambda self, stored_before: []


def _fall_back_alone(original: Any) -> Any:
    """Of a damaged checkpoint the one before is loaded, as if its node recovered alone."""
    del original
    return CheckpointRestoration._fall_back


def _end_with_the_first(original: Any) -> Any:
    """A damaged checkpoint ends the query, though others make a line."""
    del original

    def fall_back(self: LineRestoration, reason: str) -> list[Any]:
        ref = self._candidates[0].checkpoint
        lost = CheckpointsLost(f"no checkpoint can be read: {reason}")
        return [] if ref is None else [ReportDamage(ref.checkpoint, reason), Fail(lost)]

    return fall_back


def _keep_one_line(original: Any) -> Any:
    """Where two lines are to be kept there is one."""
    del original
    return lambda members: 1


def _line_of_the_newest(original: Any) -> Any:
    """The line is wherever the newest points are."""

    def oldest_line(self: Region) -> Any:
        return {node: places[-1] for node, places in self.places().items()}

    del original
    return oldest_line


def _say_and_go_on(original: Any) -> Any:
    """A member says where it stands, and does not stand there."""
    del original
    return property(lambda self: False)


def _forget_boundaries(original: Any) -> Any:
    """What was acted on, and is promised no more, forbids no place."""
    del original

    def is_orphaned(self: Channel, sender: Any, receiver: Any) -> bool:
        processed = receiver.processed_before.get(self.stream, 0)
        return bool(processed > sender.next_ids.get(self.stream, 0))

    return is_orphaned


def _claim_to_hold_what_is_not_stored(original: Any) -> Any:
    """A checkpoint of an aligned round names tuples that it has left out."""

    def cut(self: Coordinated, *, is_state_kept: bool) -> RestartPoint:
        point: RestartPoint = original(self, is_state_kept=is_state_kept)
        none = dict.fromkeys(self.unit.plan.streams_empty_at_cuts(), 0)
        return replace(point, held_from=point.held_from | none)

    return cut


def _number_as_if_the_same_came_again(original: Any) -> Any:
    """A result that another one has had the id of counts as written."""
    del original
    return lambda plan, next_id, in_log: next_id


def _ask_at_once(original: Any) -> Any:
    """A point counts before sinks hold the results from before it."""

    def ask(self: LinePoints, is_safe: Any, now_ms: int) -> RestartPoint | None:
        del is_safe
        point: RestartPoint | None = original(self, lambda _: True, now_ms)
        return point

    return ask


def _rebase_within(original: Any) -> Any:
    """Streams of a region begin anew, as those of units that recover alone would."""
    del original
    return property(lambda self: self.guarantee is not Guarantee.PRECISE)


def _mutant(
    owner: Any,
    method: str,
    bug: Any,
    kinds: tuple[str, ...] = _DEADLY,
    guarantee: str = "precise",
) -> Mutant:
    return Mutant(owner, method, bug, kinds, UNCOORDINATED, "arbitrary", guarantee)


REGION_MUTANTS = {
    "lets sinks out at once": _mutant(Lines, "acknowledging", _let_sinks_out_at_once),
    "keeps pending input over a rollback": _mutant(
        HAInput, "drop_from", _keep_pending_input, ("kill", "stall")
    ),
    "goes back to the newest of each": _mutant(Channel, "is_orphaned", _newest_of_each),
    "trims at the newest point of a region": _mutant(
        Lines, "on_restart_point_stored", _trim_at_the_newest
    ),
    "leaves what sinks lack out of checkpoints": _mutant(
        LineGate, "wanted", _leave_sinks_out_of_checkpoints
    ),
    "falls back alone": _mutant(
        LineRestoration, "_fall_back", _fall_back_alone, ("store-rot", "lost-object", "kill")
    ),
    "ends with the first damaged checkpoint": _mutant(
        LineRestoration, "_fall_back", _end_with_the_first, ("line-rot", "kill")
    ),
    "keeps one line of two": _mutant(coordinator, "_lines_kept", _keep_one_line, ()),
    "plans without halting": _mutant(Lines, "is_halted", _say_and_go_on),
    "forgets boundaries in the line": _mutant(Channel, "is_orphaned", _forget_boundaries),
    "moves the line to the newest points": _mutant(Region, "_oldest_line", _line_of_the_newest),
    "claims to hold what an aligned round leaves out": Mutant(
        Coordinated,
        "cut",
        _claim_to_hold_what_is_not_stored,
        kinds=_DEADLY,
        approach="coordinated, aligned",
        dataflow="arbitrary",
        guarantee="precise",
    ),
    "numbers results as if the same came again": _mutant(
        ha_output, "_numbered_from", _number_as_if_the_same_came_again, guarantee="rollback"
    ),
    "counts a point before sinks have its results": _mutant(
        LinePoints, "ask", _ask_at_once, guarantee="rollback"
    ),
    "rebases within a region": _mutant(NodePlan, "rebases", _rebase_within, guarantee="rollback"),
}
