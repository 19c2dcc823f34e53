"""Deliberate bugs of checkpoints taken with others: each must be found by its simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from holdfast.core.checkpoint.aligned import Aligned
from holdfast.core.checkpoint.bcs import BCS
from holdfast.core.checkpoint.hmnr import HMNR
from holdfast.core.checkpoint.unaligned import Unaligned
from holdfast.core.coordinator import region
from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.core.coordinator.checkpoint_rounds import CheckpointRounds, ReportRound
from holdfast.core.coordinator.rollback import Rollback
from holdfast.core.model.ids import NO_ID, NOBODY
from holdfast.core.recovery import recovery_plan, repeating
from holdfast.core.recovery.checkpoint_graph import Channel
from holdfast.sim.lines.line_node import LineNode
from holdfast.sim.lines.world import LinesWorld


@dataclass(frozen=True, slots=True)
class LineMutant:
    """A bug: what replaces an attribute of a class or module.

    Attributes:
        owner: Who has it.
        name: What is replaced.
        bug: Makes the replacement from the original.
        protocols: Under which it shows.
        invariants: One of these must be what is violated.
    """

    owner: Any
    name: str
    bug: Callable[[Any], Any]
    protocols: tuple[str, ...]
    invariants: tuple[str, ...]

    @contextmanager
    def switched_in(self) -> Iterator[None]:
        """The bug is there within the block."""
        with patch.object(self.owner, self.name, self.bug(getattr(self.owner, self.name))):
            yield


def _one_more(original: Any) -> Any:
    return lambda self: tuple(min(limit + 1, NO_ID) for limit in original(self))


def _nothing(_: Any) -> Any:
    return lambda *_: None


def _accept_late_markers(_: Any) -> Any:
    def done(self: Any) -> int:
        return int(self._cut)

    return done


def _complete_before_the_last(original: Any) -> Any:
    def stored(self: Any, node: Any, round_: int, now_ms: int) -> Any:
        members, self._members = self._members, self._members[:-1]
        try:
            return original(self, node, round_, now_ms) if node in self._members else []
        finally:
            self._members = members

    return stored


def _open_when_cut(original: Any) -> Any:
    def cut(self: Any, written: int) -> None:
        original(self, written)
        self.gate = len(self.sent[self.spec.sink])

    return cut


def _judge_node_by_node(_: Any) -> Any:
    return lambda units: frozenset(n for n, u in units.items() if u.is_precise and u.is_determined)


def _newest_of_each(_: Any) -> Any:
    return lambda graph: {node: places[-1] for node, places in graph.places.items()}


def _orphans_alone(_: Any) -> Any:
    return lambda *_: False


def _everything_counts(original: Any) -> Any:
    def add(self: Any, noted: Any) -> None:
        self._known(noted.node).went_back = NOBODY
        original(self, noted)

    return add


def _keep_what_is_void(_: Any) -> Any:
    def begin(self: Any, life: Any) -> None:
        known = self._known(life.node)
        known.newest = max(known.newest, life.incarnation)

    return begin


def _go_on_after_the_answer(_: Any) -> Any:
    def halt(self: Any, node: Any, attempt: int) -> None:
        place = node.place()
        self.words_up.append(("halted", node.spec.name, node.incarnation, attempt, place))

    return halt


def _floor_at_received(_: Any) -> Any:
    return staticmethod(lambda said: said.processed + 3)


def _overlap(original: Any) -> Any:
    class Overlapping(original):  # type: ignore[misc]
        """The next round begins when it is time, and earlier ones may still become complete."""

        def begin(self, now_ms: int, *, is_wanted: bool = False) -> Any:
            if self.present:
                self._earlier = getattr(self, "_earlier", {})
                self._earlier[self.present] = (self._began_ms, self._durable_ms)
                self._began_ms = None
            return super().begin(now_ms, is_wanted=is_wanted)

        def stored(self, node: Any, round_: int, now_ms: int) -> Any:
            if round_ == self.present or round_ not in getattr(self, "_earlier", {}):
                return super().stored(node, round_, now_ms)
            began_ms, durable_ms = self._earlier[round_]
            durable_ms[node] = now_ms
            if len(durable_ms) < len(self._members):
                return []
            return [ReportRound(round_, began_ms, durable_ms, 0)]

    return Overlapping


def _one_out_of_scope(original: Any) -> Any:
    def noted(self: Any, stream: int, before_id: int, note: Any) -> None:
        if self._scope.inputs[stream] != self._scope.members - 1:
            original(self, stream, before_id, note)

    return noted


def _keep_the_line_moving(_: Any) -> Any:
    return property(lambda self: True)


def _begin_without_all(_: Any) -> Any:
    return property(lambda self: self.state.value == "working")


ALL = ("aligned", "unaligned", "unc", "bcs", "hmnr", "lazy-fi")
ROUNDS = ("aligned", "unaligned")
LINE = ("I-LINE", "I-GATE", "I-CHANNEL", "I-ID", "I-ROUND", "I-SELF")

LINE_MUTANTS = {
    "take one tuple past a marker": LineMutant(
        Aligned, "limits", _one_more, ("aligned",), ("I-ALIGN", "I-ROUND")
    ),
    "take one tuple past an index": LineMutant(BCS, "limits", _one_more, ("bcs",), ("I-CIC",)),
    "accept a late marker": LineMutant(
        Aligned, "_done", _accept_late_markers, ("aligned",), ("I-CTRL", "I-CHANNEL")
    ),
    "accept a late marker, unaligned": LineMutant(
        Unaligned, "_done", _accept_late_markers, ("unaligned",), ("I-CTRL", "I-LIVE")
    ),
    "complete before the last is durable": LineMutant(
        CheckpointRounds, "stored", _complete_before_the_last, ROUNDS, ("I-ROUND",)
    ),
    "overlap rounds": LineMutant(
        region,
        "CheckpointRounds",
        _overlap,
        ("unaligned",),
        ("I-ROUND", "I-CHANNEL", "I-LIVE"),
    ),
    "begin a round while a member comes up": LineMutant(
        Rollback, "is_at_work", _begin_without_all, ROUNDS, ("I-LIVE",)
    ),
    "open the gate at the cut": LineMutant(LineNode, "cut", _open_when_cut, ALL, ("I-GATE",)),
    "judge node by node who repeats": LineMutant(
        repeating, "repeating", _judge_node_by_node, ALL, ("I-LINE", "I-GATE", "I-ROUND")
    ),
    "keep pending input over a rollback": LineMutant(LineNode, "drop_void", _nothing, ALL, LINE),
    "keep what an earlier receiver said": LineMutant(
        LineNode, "forget", _nothing, ("unaligned",), ("I-CHANNEL", "I-LIVE")
    ),
    "go on after the answer": LineMutant(LinesWorld, "halt", _go_on_after_the_answer, ALL, LINE),
    "take the newest of each as the line": LineMutant(
        recovery_plan, "recovery_line", _newest_of_each, ALL, LINE
    ),
    "follow orphan edges alone": LineMutant(Channel, "is_missing", _orphans_alone, ROUNDS, LINE),
    "count a void point": LineMutant(CheckpointRegistry, "_add", _everything_counts, ALL, LINE),
    "keep what a decision makes void": LineMutant(
        CheckpointRegistry, "_begin", _keep_what_is_void, ALL, LINE
    ),
    "let the line move under a plan": LineMutant(
        Rollback, "may_move_line", _keep_the_line_moving, ALL, LINE
    ),
    "floor at what was received": LineMutant(
        LineNode, "floor", _floor_at_received, ("unaligned",), ("I-CHANNEL", "I-LINE")
    ),
    "HMNR without C1": LineMutant(
        HMNR, "_may_be_passed", lambda _: lambda *_: False, ("hmnr", "lazy-fi"), ("I-CIC",)
    ),
    "HMNR without C2": LineMutant(
        HMNR, "_closes_a_cycle", lambda _: lambda *_: False, ("hmnr", "lazy-fi"), ("I-CIC",)
    ),
    "leave a member out of scope": LineMutant(
        HMNR, "noted", _one_out_of_scope, ("hmnr", "lazy-fi"), ("I-CIC",)
    ),
}
