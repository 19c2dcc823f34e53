"""What a secondary that numbers otherwise keeps, pass by pass. [HA Table 2: divergent recovery]

Its ids say nothing about its primary's. But what passes have made of nothing but input that the
primary needs no more has reached whoever needs it, by way of the primary.

Invariant: passes stand in the order in which they were run, and none whose output was let go.
"""

from __future__ import annotations

from collections import deque

from holdfast.core.errors import InvariantViolation


class KeptPasses:
    """The passes whose output is kept. Volatile: all fields."""

    def __init__(self, next_ids: dict[str, int]) -> None:
        """Nothing has been put out beyond these ids, per output stream."""
        self._kept: deque[tuple[tuple[int, ...], dict[str, int]]] = deque()
        self._let_go_before = next_ids

    def note(self, processed_before: tuple[int, ...], next_ids: dict[str, int]) -> None:
        """A pass has taken all input from before these ids, and put out up to those."""
        self._kept.append((processed_before, next_ids))

    def let_go(self, needed_from: tuple[int, ...]) -> dict[str, int]:
        """Forget the passes that took nothing but input from before what is needed.

        Args:
            needed_from: Per input stream, in the order of the plan, what the primary may need.

        Returns:
            Per output stream the id up to which nothing has to be kept.
        """
        kept = self._kept
        while kept and all(b <= n for b, n in zip(kept[0][0], needed_from, strict=True)):
            self._let_go_before = kept.popleft()[1]
        return self._let_go_before

    def forget(self) -> None:
        """It is the primary now, and goes by its receivers."""
        self._kept.clear()

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when a pass stands before an earlier one.

        The two newest are compared: the others were, when they were the newest.
        """
        kept = self._kept
        if not kept:
            return
        if _moves_back(self._let_go_before, kept[0][1]):
            raise InvariantViolation("a pass is kept whose output was let go")
        if len(kept) == 1:
            return
        (taken, put_out), (later, further) = kept[-2], kept[-1]
        if any(b > a for b, a in zip(taken, later, strict=True)) or _moves_back(put_out, further):
            raise InvariantViolation(f"a pass up to {later} is kept behind one up to {taken}")


def _moves_back(before: dict[str, int], after: dict[str, int]) -> bool:
    return any(after[stream] < next_id for stream, next_id in before.items())
