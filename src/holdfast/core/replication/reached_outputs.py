"""Outputs that some input streams alone reach, while others of a node are missing. [DPC §4.2]

Theory of operation. Such an output is stable as long as its own streams are there (reach.py). Its
streams may be out of step among each other, or its newest tuple may wait for its own stream's next
boundary. What is tentative of it then waits for a correction, and that must not wait for streams
that have no part in it: they may be silent for ever. Therefore

- a tentative pass goes no further at a time than the streams of an output have promised together
  that is stable so far (`stage`). What they have promised comes out as stable, and only what is
  behind that as tentative;
- when the streams of a tentative output have all promised more, it *waits* for a correction, as
  the node does when all of its streams have. The node goes back to its cut, be it that nothing more
  is stable of the whole, and on again in stages.

Each going back needs new promises by all streams of one of the outputs, so none is for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


class ReachedOutputs:
    """The outputs of one node. Volatile: all fields."""

    def __init__(self, reaching: Sequence[Sequence[int]] = ()) -> None:
        """All of them are stable.

        Args:
            reaching: Of each, the input streams that reach it.
        """
        self._reaching = [tuple(streams) for streams in reaching]
        self._left_us: list[int | None] = [None] * len(self._reaching)
        # Of tentative ones, what their streams had promised by then.

    def stage(self, stable_us: Sequence[int], from_us: int, boundary_us: int) -> int:
        """How far a tentative pass goes in one.

        Args:
            stable_us: Per stream, what it has promised as stable.
            from_us: How far the passes before it have gone.
            boundary_us: How far it is to go.
        """
        for streams, left_us in zip(self._reaching, self._left_us, strict=True):
            if left_us is None and from_us < (promised_us := _promised_us(streams, stable_us)):
                boundary_us = min(boundary_us, promised_us)
        return boundary_us

    def touched(self, touched: Collection[int], stable_us: Sequence[int]) -> None:
        """A tentative pass went without these streams, or with what is tentative of them."""
        for number, streams in enumerate(self._reaching):
            if self._left_us[number] is None and any(stream in touched for stream in streams):
                self._left_us[number] = _promised_us(streams, stable_us)

    def waits(self, stable_us: Sequence[int]) -> bool:
        """Whether more could be put out of one as stable, if the node went back."""
        return any(
            left_us is not None and _promised_us(streams, stable_us) > left_us
            for streams, left_us in zip(self._reaching, self._left_us, strict=True)
        )

    def went_back(self) -> None:
        """Nothing is tentative any more."""
        self._left_us = [None] * len(self._reaching)


def _promised_us(streams: Sequence[int], stable_us: Sequence[int]) -> int:
    """What these have promised together."""
    return min(stable_us[stream] for stream in streams)
