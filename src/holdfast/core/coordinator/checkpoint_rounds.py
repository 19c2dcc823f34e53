"""Rounds of coordinated checkpoints: one at a time in a region. [CheckMate §III-A]

Theory of operation. A round begins by a word to nodes of the region (all of them, or with aligned
cuts those that read nothing from it; markers tell the others), and is complete when the points of
all members for it are durable: not when they have cut, nor when the last one has written. A round
that cannot become complete is aborted, and everybody told, so that a marker of it does nothing any
more and no input waits for it:

- a member was lost, or could not store its checkpoint;
- the region recovers: nothing begins before that is over.

Rounds do not overlap. Those that did would lose what is in flight: a sender that cuts for the next
round stores what lies behind its receiver's cut of *that* round, and of an earlier one whose
checkpoint is not there yet nobody would hold it.

A round begins as soon as the region has recovered, and the next ones come soon after each other:
what was put out since waits for them (recovery/first_periods.py).

Round numbers count up over all lives of the coordinator, so that nobody takes the round of a later
one for one that it has cut for: a life begins with a number beyond all that earlier ones may have
given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.errors import InvariantViolation
from holdfast.core.machine import Effect
from holdfast.core.recovery.first_periods import FirstPeriods

if TYPE_CHECKING:
    from holdfast.core.model.ids import NodeId

_ROUNDS_OF_A_LIFE = 1 << 32


@dataclass(frozen=True, slots=True)
class BeginRound(Effect):
    """Tell a node to cut for a round."""

    node: NodeId
    round: int


@dataclass(frozen=True, slots=True)
class AbortRound(Effect):
    """Tell a node that a round, and whatever came before it, is over."""

    node: NodeId
    round: int


@dataclass(frozen=True, slots=True)
class ReportRound(Effect):
    """A round is complete.

    Attributes:
        round: Its number.
        began_ms: When it began.
        durable_ms: Per member how long after that its point was durable.
        round_ms: How long it took: the greatest of these.
    """

    round: int
    began_ms: int
    durable_ms: dict[NodeId, int]
    round_ms: int


def first_round(epoch: int) -> int:
    """The first round of a life of the coordinator; epochs count from 1 on."""
    return epoch * _ROUNDS_OF_A_LIFE + 1


class CheckpointRounds:
    """The rounds of one region in one life of the coordinator. Volatile: all fields.

    Attributes:
        aborted: How many rounds came to nothing.
        complete: The newest complete round; 0: none.
    """

    def __init__(
        self,
        members: tuple[NodeId, ...],
        told: tuple[NodeId, ...],
        *,
        interval_ms: int,
        first: int,
        is_paused: bool = False,
    ) -> None:
        """Begin without a round.

        Args:
            members: All whose points make a round.
            told: Those of them who are told that one begins.
            interval_ms: From the beginning of one round to that of the next, at least, but soon
                after a recovery.
            first: The number of the first round; see `first_round`.
            is_paused: Whether none begins before `resume`.
        """
        self._members = members
        self._told_members = told
        self._interval_ms = interval_ms
        self._periods = FirstPeriods(interval_ms)
        self._next = first
        self._began_ms: int | None = None  # None: no round is under way
        self._durable_ms: dict[NodeId, int] = {}  # of the present round
        self._due_ms = 0
        self._is_paused = is_paused
        self.aborted = 0
        self.complete = 0

    @property
    def present(self) -> int:
        """The round under way; 0: none."""
        return 0 if self._began_ms is None else self._next - 1

    def due_ms(self) -> int | None:
        """When the next round may begin; None: not before something else happens."""
        return None if self._is_paused or self._began_ms is not None else self._due_ms

    def begin(self, now_ms: int, *, is_wanted: bool = False) -> list[Effect]:
        """Begin a round, if none is under way and it is time, or a full gate wants it now."""
        due_ms = self.due_ms()
        if due_ms is None or (now_ms < due_ms and not is_wanted):
            return []
        self._began_ms = now_ms
        self._due_ms = now_ms + self._periods.take(self._interval_ms)
        self._durable_ms = {}
        self._next += 1
        return [BeginRound(node, self._next - 1) for node in self._told_members]

    def stored(self, node: NodeId, round_: int, now_ms: int) -> list[Effect]:
        """A member's point for a round is durable. One of a round that is over changes nothing."""
        if self._began_ms is None or round_ != self.present or node in self._durable_ms:
            return []
        if node not in self._members:
            raise InvariantViolation(f"{node} is no member of the region of round {round_}")
        self._durable_ms[node] = now_ms - self._began_ms
        if len(self._durable_ms) < len(self._members):
            return []
        began_ms, self._began_ms = self._began_ms, None
        self.complete = round_
        return [ReportRound(round_, began_ms, self._durable_ms, now_ms - began_ms)]

    def abort(self) -> list[Effect]:
        """The round under way, if any, cannot become complete."""
        if self._began_ms is None:
            return []
        round_ = self.present
        self._began_ms = None
        self.aborted += 1
        return [AbortRound(node, round_) for node in self._members]

    def pause(self) -> list[Effect]:
        """The region recovers: no round goes on or begins."""
        self._is_paused = True
        return self.abort()

    def resume(self) -> None:
        """The region has recovered, and all its members are at work: words reach them."""
        if self._is_paused:
            self._is_paused = False
            self._due_ms = 0
            self._periods.recovered()

    @property
    def over(self) -> int:
        """The newest round that does nothing any more: what a node is told that starts now."""
        return self._next - 1 if self._began_ms is None else self._next - 2
