"""BCS: checkpoints have indices, and nobody processes what was sent with a later one. [Briatico]

Every cut raises a node's index. Tuples are sent behind a note of it; a receiver that is behind cuts
first and takes over the index. Checkpoints of the same index, or where a node has left that out the
next one, then make a consistent line, so that none is useless. It costs one number per cut and
edge, and more forced checkpoints than HMNR. [CheckMate §III-C]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.checkpoint.cut_rule import NO_ROUND, WaitingNotes
from holdfast.core.errors import RemoteProtocolError
from holdfast.core.model.notes import CheckpointIndex

if TYPE_CHECKING:
    from holdfast.core.checkpoint.scope import Scope
    from holdfast.core.model.ids import CheckpointId
    from holdfast.core.model.notes import StreamNote


class BCS:
    """A `CutRule`. Durable: the index. Volatile: the rest.

    Attributes:
        forced: Cuts that no trigger wanted.
    """

    def __init__(self, scope: Scope) -> None:
        """Begin at the node's first point, which has index 1."""
        self._scope = scope
        self._index = 1
        self._is_asked = False
        self._waiting: tuple[WaitingNotes[int], ...] = tuple(WaitingNotes() for _ in scope.inputs)
        self._index_told = [0] * len(scope.outputs)  # per output the index that was said last
        self.forced = 0

    def asked(self, round_: int = NO_ROUND) -> None:
        """See `CutRule`."""
        self._is_asked = True

    def over(self, round_: int) -> None:
        """See `CutRule`; there are no rounds."""

    def noted(self, stream: int, before_id: int, note: StreamNote) -> None:
        """See `CutRule`. Raises `RemoteProtocolError` for notes of other rules."""
        if not isinstance(note, CheckpointIndex):
            raise RemoteProtocolError(f"{type(note).__name__} where only indices are expected")
        if self._scope.inputs[stream] >= 0:
            self._waiting[stream].add(before_id, note.index)

    def dropped(self, stream: int, from_id: int) -> None:
        """See `CutRule`."""
        self._waiting[stream].drop_from(from_id)

    def is_due(self, stands_at: tuple[int, ...]) -> bool:
        """See `CutRule`."""
        return self._is_asked or self._wanted(stands_at) > self._index

    def _wanted(self, stands_at: tuple[int, ...]) -> int:
        """The index that the notes at which the node stands ask for; 0: there are none."""
        here = (w.at(place) for w, place in zip(self._waiting, stands_at, strict=True))
        return max((index for index in here if index is not None), default=0)

    def begin_pass(self, stands_at: tuple[int, ...]) -> None:
        """See `CutRule`."""
        for waiting, place in zip(self._waiting, stands_at, strict=True):
            waiting.take(place)

    def limits(self) -> tuple[int, ...]:
        """See `CutRule`."""
        return tuple(waiting.limit() for waiting in self._waiting)

    def cut(self, checkpoint: CheckpointId, stands_at: tuple[int, ...]) -> StreamNote | None:
        """See `CutRule`."""
        self.forced += not self._is_asked
        self._is_asked = False
        self._index = max(self._index + 1, self._wanted(stands_at))
        return None

    def round(self) -> int:
        """See `CutRule`."""
        return NO_ROUND

    def before_output(self, output: int) -> StreamNote | None:
        """See `CutRule`."""
        if self._scope.outputs[output] < 0 or self._index_told[output] == self._index:
            return None
        self._index_told[output] = self._index
        return CheckpointIndex(self._index)

    def state(self) -> tuple[int, ...]:
        """See `CutRule`."""
        return (self._index,)

    def restore(self, state: tuple[int, ...]) -> None:
        """See `CutRule`."""
        (self._index,) = state
        self._is_asked = False
        self._index_told = [0] * len(self._index_told)
        for waiting in self._waiting:
            waiting.clear()
