"""When a node that cuts with others takes its checkpoints: what every rule offers. [CheckMate §III]

Theory of operation. A cut lies between two passes of a node. A rule decides when one is due, which
tuples may not be processed before it, and what receivers are told of it. It knows no state, no
queue and no store; inputs and outputs are numbered as in the node's plan. Its node goes on like
this:

1. Before a pass it asks `is_due`, of the place where it stands. If so it cuts, puts the note that
   `cut` gives before the next tuple of every output in scope, and asks again.
2. `begin_pass`: the notes that the node stands at are taken in.
3. The pass takes of each input what lies before its `limits`.
4. `before_output` gives, for each output that the pass sends tuples on, the note that must stand
   before them.

A cut means: nothing from the id in `limits` on has been processed. Frames still arrive, notes among
them, ahead of what is processed; so notes wait here until the node stands at them.

A node that is merged by time stands, for its rule, where its input has been handed to the merge;
its checkpoint holds what the merge holds.

| rule | due | says |
| --- | --- | --- |
| aligned | all inputs that bring markers stand at the round's | a marker at the cut |
| unaligned | the round is known | a marker at the cut |
| uncoordinated | its own trigger | nothing |
| bcs | trigger, or an index beyond its own | the index, before tuples |
| hmnr, lazy-fi | trigger, or clocks that would close a Z-cycle | clocks, before tuples |

Of a node that starts anew from a checkpoint, notes are sent again; rounds that are over must do
nothing then, so it is told the newest round that was begun by `over`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from holdfast.core.model.ids import NO_ID

if TYPE_CHECKING:
    from holdfast.core.model.ids import CheckpointId
    from holdfast.core.model.notes import StreamNote

N = TypeVar("N")

NO_ROUND: Final = 0
"""The round of a checkpoint that belongs to none; rounds count from 1 on."""


class CutRule(Protocol):
    """See the module. Each method costs O(inputs), those of clocks O(inputs × members)."""

    def asked(self, round_: int) -> None:
        """A cut is wanted: by the coordinator for a round, or by a trigger (`NO_ROUND`)."""
        ...

    def over(self, round_: int) -> None:
        """The rounds up to this one are complete or aborted; their notes do nothing any more."""
        ...

    def noted(self, stream: int, before_id: int, note: StreamNote) -> None:
        """A note of an input arrived; those of one stream in the order of their places."""
        ...

    def dropped(self, stream: int, from_id: int) -> None:
        """What arrived of an input from this id on was forgotten; notes come again."""
        ...

    def is_due(self, stands_at: tuple[int, ...]) -> bool:
        """Whether to cut here, before anything else is processed.

        Args:
            stands_at: Per input the id up to which tuples have been processed.
        """
        ...

    def begin_pass(self, stands_at: tuple[int, ...]) -> None:
        """A pass begins here, and no cut is due."""
        ...

    def limits(self) -> tuple[int, ...]:
        """Per input the id from which on nothing may be processed in this pass; `NO_ID`: none."""
        ...

    def cut(self, checkpoint: CheckpointId, stands_at: tuple[int, ...]) -> StreamNote | None:
        """The node cuts here.

        Returns:
            What stands there on all outputs in scope, whether tuples follow or not.
        """
        ...

    def round(self) -> int:
        """Which round the newest cut belongs to; `NO_ROUND`: to none."""
        ...

    def before_output(self, output: int) -> StreamNote | None:
        """Tuples are about to be sent; what stands before them; None: nothing new."""
        ...

    def state(self) -> tuple[int, ...]:
        """What a checkpoint at this moment must hold of the rule."""
        ...

    def restore(self, state: tuple[int, ...]) -> None:
        """Go on as at the checkpoint with this state; what waits of notes is forgotten."""
        ...


class WaitingNotes(Generic[N]):
    """The notes of one input that its node has not come to yet, in order of their places."""

    def __init__(self) -> None:
        """None waits."""
        self._waiting: deque[tuple[int, N]] = deque()

    def add(self, before_id: int, note: N) -> None:
        """One more; its place is not before that of an earlier one."""
        self._waiting.append((before_id, note))

    def first(self) -> tuple[int, N] | None:
        """The place and the note that comes first."""
        return self._waiting[0] if self._waiting else None

    def limit(self) -> int:
        """The place of the first; `NO_ID` if there is none."""
        return self._waiting[0][0] if self._waiting else NO_ID

    def drop_first(self) -> None:
        """The first one is done with."""
        self._waiting.popleft()

    def at(self, stands_at: int) -> N | None:
        """The last note that stands at this place or before, if it is waiting."""
        found: N | None = None
        for before_id, note in self._waiting:
            if before_id > stands_at:
                break
            found = note
        return found

    def take(self, stands_at: int) -> N | None:
        """The same, which waits no more, nor do those before it."""
        found: N | None = None
        while self._waiting and self._waiting[0][0] <= stands_at:
            found = self._waiting.popleft()[1]
        return found

    def drop_from(self, from_id: int) -> None:
        """Those that stand at this place or behind it are forgotten."""
        while self._waiting and self._waiting[-1][0] >= from_id:
            self._waiting.pop()

    def clear(self) -> None:
        """All are forgotten."""
        self._waiting.clear()
