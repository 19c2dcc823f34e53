"""Uncoordinated checkpoints: every node cuts when it wants to. [CheckMate §III-B]

Nothing is said to anybody. So a checkpoint may be useless, and recovery has to find a line; the
messages of all channels are kept. What triggers a cut, a timer with jitter or the close of windows,
is its node's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.errors import RemoteProtocolError
from holdfast.core.model.ids import NO_ID

if TYPE_CHECKING:
    from holdfast.core.model.ids import CheckpointId
    from holdfast.core.model.notes import StreamNote


class Uncoordinated:
    """A `CutRule`. Volatile: whether a cut is wanted."""

    def __init__(self, inputs: int) -> None:
        """Begin at the node's first point."""
        self._no_limits = (NO_ID,) * inputs
        self._is_asked = False

    def asked(self, round_: int = NO_ROUND) -> None:
        """See `CutRule`."""
        self._is_asked = True

    def over(self, round_: int) -> None:
        """See `CutRule`; there are no rounds."""

    def noted(self, stream: int, before_id: int, note: StreamNote) -> None:
        """See `CutRule`. Raises `RemoteProtocolError`: nobody says anything here."""
        raise RemoteProtocolError(f"{type(note).__name__} where nobody says anything")

    def dropped(self, stream: int, from_id: int) -> None:
        """See `CutRule`; there are no notes."""

    def is_due(self, stands_at: tuple[int, ...]) -> bool:
        """See `CutRule`."""
        return self._is_asked

    def begin_pass(self, stands_at: tuple[int, ...]) -> None:
        """See `CutRule`."""

    def limits(self) -> tuple[int, ...]:
        """See `CutRule`."""
        return self._no_limits

    def cut(self, checkpoint: CheckpointId, stands_at: tuple[int, ...]) -> StreamNote | None:
        """See `CutRule`."""
        self._is_asked = False
        return None

    def round(self) -> int:
        """See `CutRule`."""
        return NO_ROUND

    def before_output(self, output: int) -> StreamNote | None:
        """See `CutRule`."""
        return None

    def state(self) -> tuple[int, ...]:
        """See `CutRule`; nothing."""
        return ()

    def restore(self, state: tuple[int, ...]) -> None:
        """See `CutRule`."""
        self._is_asked = False
