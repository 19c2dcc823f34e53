"""When a replica may correct: not while that would leave nobody with fresh results. [DPC §3.3]

Theory of operation. A node that corrects puts out nothing new. If it has replicas, one of them goes
on meanwhile, so all but one may correct at a time. A node whose input is there asks the coordinator
for a turn and stays in up_failure, tentative and fresh, until it has one (core/coordinator/turns.py
gives them). It asks again with every keep-alive, as words can be lost, and says when it is done.

    IDLE --its input is there--> WANTED --granted--> HELD --corrected--> IDLE

A node without replicas, or whose new input is to wait (`suspend`), needs no turn.
"""

from __future__ import annotations

import enum


class TurnState(enum.Enum):
    """Where a node is with its turn."""

    IDLE = "idle"
    WANTED = "wanted"
    HELD = "held"


class Turn:
    """The turn of one node. Volatile: all fields; the coordinator forgets who is gone."""

    def __init__(self, *, is_needed: bool) -> None:
        """Nothing is to be corrected."""
        self.is_needed = is_needed
        """Whether the node may have to wait for one."""
        self.state = TurnState.IDLE
        self.asking = 0
        """How often it has begun to want one: what is said of an earlier time does not count."""

    def is_mine(self) -> bool:
        """Whether the node may correct now; it wants to."""
        if not self.is_needed:
            return True
        if self.state is TurnState.IDLE:
            self.state = TurnState.WANTED
            self.asking += 1
        return self.state is TurnState.HELD

    @property
    def is_waiting(self) -> bool:
        """Whether the node has to go on as it is until it has a turn."""
        return self.state is TurnState.WANTED

    @property
    def is_held(self) -> bool:
        """Whether it may correct now."""
        return self.state is TurnState.HELD

    def granted(self, asking: int) -> bool:
        """It has a turn; False: it wants none any more, and has to say so.

        1. A node asks again, corrects, and says that it has. 2. Another one has a turn. 3. The node
        wants to correct again. 4. The answer to its question of before comes: both would correct.

        Args:
            asking: The time for which the turn is; nothing, if that is over and it wants another.
        """
        if self.state is TurnState.IDLE:
            return False
        if asking == self.asking:
            self.state = TurnState.HELD
        return True

    def over(self) -> bool:
        """The correction is over, or not due any more; whether somebody has to be told."""
        was_idle, self.state = self.state is TurnState.IDLE, TurnState.IDLE
        return not was_idle
