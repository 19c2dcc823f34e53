"""How an incarnation gets the state that it starts from.

A plan chooses its restoration by a table (restorations.py). A restoration asks by effects for what
it needs, takes the answers, and ends with `BeginFrom` or `Fail`. Plans without one begin empty, and
replay in silence, if they replay at all.

Theory of operation, of checkpoints [SGuard §4.4]. The assignment names the restart points that the
node can start from, newest first. The newest is loaded; should any part of it be missing or
damaged, the fact is reported and the next older one is loaded. The last may be the very beginning,
which needs nothing. When none is left the query fails: state that nobody can vouch for is never
used. A node that recovers with others loads only what their plan names. If that is damaged the
coordinator is told, and makes another plan.

Invariants: the newest restart point is tried first, and none twice; all files that a candidate
refers to are known to be in the store, so that they are deleted when nothing needs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Protocol

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.life_events import Fail
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    from holdfast.core.checkpoint.page_image import PageImage
    from holdfast.core.haunit.prepared import OutputSegment
    from holdfast.core.model.ids import CheckpointId, StreamId
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.extent import Extent
    from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint


class CheckpointsLost(RuntimeError):
    """No checkpoint of the node can be read."""


class LineDamaged(RuntimeError):
    """A checkpoint that goes together with others' cannot be read; the next one begins earlier."""


class StoreAway(RuntimeError):
    """The store does not answer; the next incarnation asks it again."""


class MirrorLost(RuntimeError):
    """The state was at a node's two replicas alone, and neither is left."""


def mirror_lost(node: str) -> str:
    """What to say of a node whose state was at its two replicas alone."""
    return (
        f"{node} survives one failure at a time, and both of its replicas are gone, with its "
        "state. Begin in a new checkpointLocation, perhaps with survives='any failures'"
    )


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """What a checkpoint holds.

    Attributes:
        pages: All pages.
        image: Where they are stored.
        segments: Where the output tuples are stored.
        outputs: The output tuples per stream, up to the cut.
        notes: The notes among them, and behind them.
    """

    pages: PageManager
    image: PageImage
    segments: tuple[OutputSegment, ...]
    outputs: dict[StreamId, tuple[TupleBatch, ...]]
    notes: dict[StreamId, tuple[PlacedNote, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestoredState:
    """From what a node goes on.

    Attributes:
        point: The restart point, with those that remain behind it.
        newest_sequence: The newest number that a point of the node has.
        pages: All pages of the operators.
        image: Where they are stored; None at the very beginning.
        segments: Where the output tuples are stored.
        outputs: The output tuples per stream.
        found: All checkpoints of the node that may have files in the store.
        is_at_cut: Whether the state is that of the point's cut, not that of the very beginning.
        notes: The notes among the output tuples, and behind them.
        extent: The eventual checkpoint of the point's cut, whose windows are not in pages yet.
    """

    point: RestartPoint
    newest_sequence: int
    pages: PageManager
    image: PageImage | None
    segments: tuple[OutputSegment, ...]
    outputs: dict[StreamId, tuple[TupleBatch, ...]]
    found: tuple[CheckpointId, ...]
    is_at_cut: bool = True
    notes: dict[StreamId, tuple[PlacedNote, ...]] = field(default_factory=dict)
    extent: Extent | None = None

    @staticmethod
    def of_image(
        cut: RestartPoint,
        point: RestartPoint,
        pages: PageManager,
        outputs: dict[StreamId, tuple[TupleBatch, ...]],
        notes: dict[StreamId, tuple[PlacedNote, ...]],
    ) -> RestoredState:
        """The state that a passive secondary holds, with the durable point behind it. [HA §4.1]"""
        newest = max(cut.sequence, point.sequence)
        behind = replace(cut, older=point.candidates())
        return RestoredState(behind, newest, pages, None, (), outputs, (), notes=notes)


# -- stimuli --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointLoaded(Stimulus):
    """The answer to `LoadCheckpoint`: every part is there and has its checksum."""

    loaded: LoadedCheckpoint


@dataclass(frozen=True, slots=True)
class CheckpointUnreadable(Stimulus):
    """The answer to `LoadCheckpoint`: a part is missing or damaged."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreFailed(Stimulus):
    """The answer to `LoadCheckpoint`: the store does not answer, which says nothing of damage."""

    reason: str


@dataclass(frozen=True, slots=True)
class LoadingFailed(Stimulus):
    """The answer to `LoadCheckpoint`: neither the store nor the checkpoint is to blame."""

    error: Exception


# -- effects --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadCheckpoint(Effect):
    """Load a checkpoint from the store."""

    ref: CheckpointRef


@dataclass(frozen=True, slots=True)
class ReportDamage(Effect):
    """A checkpoint cannot be used; an older one is tried."""

    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class ReportPointDamaged(Effect):
    """No member of the region may go back to this point of the node any more."""

    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class BeginFrom(Effect):
    """Make the node over this state."""

    state: RestoredState


class Restoration(Protocol):
    """The machine that brings one incarnation to its state."""

    @property
    def answers(self) -> frozenset[type[Stimulus]]:
        """The stimuli that are answers to its effects."""
        ...

    def start(self) -> list[Effect]:
        """The first effects."""
        ...

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take an answer; one that was not asked for changes nothing."""
        ...

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when what it asks for cannot be there."""
        ...


class CheckpointRestoration:
    """Loads the newest checkpoint that is whole. Volatile: all fields."""

    answers: ClassVar[frozenset[type[Stimulus]]] = frozenset(
        {CheckpointLoaded, CheckpointUnreadable, StoreFailed, LoadingFailed}
    )

    def __init__(
        self,
        point: RestartPoint,
        page_bytes: int,
        state_bytes_max: int,
        found: tuple[CheckpointId, ...],
    ) -> None:
        """Start from the best of the point's candidates.

        Args:
            point: As the assignment has it.
            page_bytes: Size of pages, for the very beginning.
            state_bytes_max: Bound of the state.
            found: The checkpoints of the node whose files are in the store.
        """
        self._candidates = list(point.candidates())
        self._newest_sequence = point.sequence
        self._page_bytes = page_bytes
        self._state_bytes_max = state_bytes_max
        named = (c for p in self._candidates if p.checkpoint for c in p.checkpoint.parts())
        self._found = tuple(dict.fromkeys((*found, *named)))
        self._reasons: list[str] = []

    def start(self) -> list[Effect]:
        """Load the first candidate; fail if there is none left."""
        if not self._candidates:
            return [Fail(CheckpointsLost(_none_left(self._reasons)))]
        ref = self._candidates[0].checkpoint
        if ref is not None:
            return [LoadCheckpoint(ref)]
        pages = PageManager(self._page_bytes, self._state_bytes_max)
        return [BeginFrom(self._state(pages, None, (), {}))]

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take an answer. What is neither damage nor absence, e.g. too large a state, fails it."""
        del now_ms
        if isinstance(stimulus, CheckpointLoaded):
            loaded = stimulus.loaded
            state = self._state(loaded.pages, loaded.image, loaded.segments, loaded.outputs)
            return [BeginFrom(replace(state, notes=loaded.notes))]
        if isinstance(stimulus, CheckpointUnreadable):
            return self._fall_back(stimulus.reason)
        if isinstance(stimulus, StoreFailed):
            return [Fail(StoreAway(stimulus.reason))]
        if isinstance(stimulus, LoadingFailed):
            return [Fail(stimulus.error)]
        return []

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when candidates are out of order, or a file may be deleted."""
        sequences = [point.sequence for point in self._candidates]
        if any(later >= earlier for earlier, later in pairwise(sequences)):
            raise InvariantViolation(f"restart points {sequences} are not newest first")
        if sequences and sequences[0] > self._newest_sequence:
            raise InvariantViolation(f"a point {sequences[0]} beyond {self._newest_sequence}")
        for point in self._candidates:
            if point.checkpoint and not set(self._found).issuperset(point.checkpoint.parts()):
                raise InvariantViolation(f"nobody keeps the files of {point.checkpoint}")

    def _fall_back(self, reason: str) -> list[Effect]:
        ref = self._candidates.pop(0).checkpoint
        if ref is None:
            return []
        self._reasons.append(reason)
        return [ReportDamage(ref.checkpoint, reason), *self.start()]

    def _state(
        self,
        pages: PageManager,
        image: PageImage | None,
        segments: tuple[OutputSegment, ...],
        outputs: dict[StreamId, tuple[TupleBatch, ...]],
    ) -> RestoredState:
        chosen, *older = self._candidates
        point = replace(chosen, older=tuple(older))
        return RestoredState(
            point,
            self._newest_sequence,
            pages,
            image,
            segments,
            outputs,
            self._found,
            is_at_cut=image is not None,
        )


class LineRestoration(CheckpointRestoration):
    """Loads the checkpoint that the plan of a region names, and no other: others go with that one.

    If it is damaged that is said, and this incarnation ends: the next plan does without it.
    Volatile: all fields.
    """

    def _fall_back(self, reason: str) -> list[Effect]:
        chosen = self._candidates[0]
        if chosen.checkpoint is None:
            return []
        return [
            ReportDamage(chosen.checkpoint.checkpoint, reason),
            ReportPointDamaged(chosen.sequence, reason),
            Fail(LineDamaged(reason)),
        ]


def _none_left(reasons: list[str]) -> str:
    return (
        f"no checkpoint can be read: {'; '.join(reasons)}. "
        "Restore the files from a copy, or begin in a new checkpointLocation"
    )
