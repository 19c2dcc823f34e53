"""Deliberate bugs of checkpoints; see mutants.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants import Mutant

from holdfast.core.checkpoint.loading import PageRun
from holdfast.core.haunit.chkpt_mngr import ChkptMngr
from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.ha_input import HAInput
from holdfast.core.haunit.ha_output import HAOutput
from holdfast.core.haunit.outputs.edge import OutputEdge
from holdfast.core.haunit.outputs.kept_output import KeptOutput
from holdfast.core.haunit.restoration import CheckpointRestoration
from holdfast.core.replication.sunion import SUnion
from holdfast.core.state.kernels import CLEAN, DIRTY, FROZEN
from holdfast.core.state.page_manager import PageManager


def _lose_a_dirty_mark(original: Any) -> Any:
    def checkpoint(self: PageManager, also: Any = None) -> Any:
        stored = getattr(self, "pages_once_clean", None)
        if stored is not None:
            self.marks[stored[self.marks[stored] == DIRTY][:1]] = CLEAN
        snapshot = original(self, also)
        self.pages_once_clean = snapshot.pages[~snapshot.is_changed]  # type: ignore[attr-defined]
        return snapshot

    return checkpoint


def _write_to_frozen_pages(original: Any) -> Any:
    def checkpoint(self: PageManager, also: Any = None) -> Any:
        snapshot = original(self, also)
        self.marks[self.marks == FROZEN] = DIRTY
        return snapshot

    return checkpoint


def _take_what_was_given_up_for_stored(original: Any) -> Any:
    def cancel(self: PageManager, snapshot: Any) -> None:
        original(self, snapshot)
        self.marks[self.marks == DIRTY] = CLEAN

    return cancel


def _acknowledge_what_the_newest_needs(_: Any) -> Any:
    def on_stored(self: Durability, stored: Any, now_ms: int) -> list[Any]:
        if self.points.stored(stored.sequence):
            self.unit.inputs.let_go(self.points.retained[0])
            return self.retained()
        return []

    return on_stored


def _delete_bases(original: Any) -> Any:
    def collect(self: ChkptMngr, retained: Any, on_their_way: Any) -> list[Any]:
        bare = tuple(
            replace(p, checkpoint=p.checkpoint and replace(p.checkpoint, bases=()))
            for p in retained
        )
        self._base = self._base and replace(self._base, files=())
        return original(self, bare, ())

    return collect


def _delete_the_older_one(original: Any) -> Any:
    def collect(self: ChkptMngr, retained: Any, on_their_way: Any) -> list[Any]:
        return original(self, retained[:1], on_their_way)

    return collect


def _forget_what_is_on_its_way(original: Any) -> Any:
    def collect(self: ChkptMngr, retained: Any, on_their_way: Any) -> list[Any]:
        return original(self, retained, ())

    return collect


def _leave_outputs_out(_: Any) -> Any:
    return lambda self, stored, segments_max: ((), ())


def _leave_spilled_outputs_out(original: Any) -> Any:
    def to_be_stored(self: KeptOutput, stored: Any, segments_max: int) -> Any:
        kept, wanted = original(self, stored, segments_max)
        later = tuple(
            replace(w, from_id=w.batches[0].first_id if w.batches else w.to_id) for w in wanted
        )
        return kept, later

    return to_be_stored


def _process_again_what_was_released(_: Any) -> Any:
    return lambda self, boundary_us, processed_before: None


def _drop_what_was_held(original: Any) -> Any:
    def resume(self: SUnion, boundary_us: int, processed_before: Any) -> None:
        original(self, boundary_us, processed_before)
        self._released_before = 1 << 62
        released_before = boundary_us
        held = self._hold

        def hold(stream: int, *arguments: Any) -> None:
            self._released_before = released_before
            held(stream, *arguments)

        self._hold = hold  # type: ignore[method-assign]

    return resume


def _trust_every_page(_: Any) -> Any:
    return lambda self: True


def _resume_one_too_late(original: Any) -> Any:
    def init(
        self: HAInput, plan: Any, incarnation: Any, point: Any, *rest: Any, **named: Any
    ) -> None:
        if point.checkpoint is not None:
            later = {stream: needed + 1 for stream, needed in point.needed_from.items()}
            point = replace(point, needed_from=later)
        original(self, plan, incarnation, point, *rest, **named)

    return init


def _begin_anew(original: Any) -> Any:
    def step(self: CheckpointRestoration, stimulus: Any, now_ms: int) -> Any:
        self._candidates[1:] = [replace(c, checkpoint=None) for c in self._candidates[1:]]
        return original(self, stimulus, now_ms)

    return step


def _store_before_sinks_are_synced(original: Any) -> Any:
    def let_go(self: HAOutput, point: Any) -> bool:
        return point.checkpoint is not None or original(self, point)

    return let_go


def _number_outputs_from_zero(original: Any) -> Any:
    def restore(self: OutputEdge, batches: Any) -> None:
        original(self, batches[:-1])

    return restore


CHECKPOINT_MUTANTS: dict[str, Mutant] = {
    "loses a dirty mark": Mutant(PageManager, "checkpoint", _lose_a_dirty_mark),
    "writes to frozen pages": Mutant(PageManager, "checkpoint", _write_to_frozen_pages),
    "takes what was given up for stored": Mutant(
        PageManager, "cancel", _take_what_was_given_up_for_stored
    ),
    "acknowledges what only the newest needs": Mutant(
        Durability, "on_restart_point_stored", _acknowledge_what_the_newest_needs
    ),
    "deletes files of unchanged pages": Mutant(ChkptMngr, "collect", _delete_bases),
    "deletes the older checkpoint": Mutant(ChkptMngr, "collect", _delete_the_older_one),
    "deletes what a point on its way needs": Mutant(
        ChkptMngr, "collect", _forget_what_is_on_its_way, ("slow-disk",)
    ),
    "leaves outputs out": Mutant(KeptOutput, "to_be_stored", _leave_outputs_out),
    "leaves spilled outputs out": Mutant(KeptOutput, "to_be_stored", _leave_spilled_outputs_out),
    "loses the last outputs": Mutant(OutputEdge, "restore", _number_outputs_from_zero),
    "processes again what was released": Mutant(SUnion, "resume", _process_again_what_was_released),
    "drops what was held": Mutant(SUnion, "resume", _drop_what_was_held),
    "trusts every page": Mutant(
        PageRun, "is_whole", _trust_every_page, ("store-rot", "kill"), approach="checkpoints"
    ),
    "resumes one tuple too late": Mutant(HAInput, "__init__", _resume_one_too_late),
    "begins anew instead of falling back": Mutant(
        CheckpointRestoration,
        "step",
        _begin_anew,
        ("store-rot", "lost-object", "kill", "driver-crash"),
    ),
    "stores before sinks are synced": Mutant(HAOutput, "let_go", _store_before_sinks_are_synced),
}
