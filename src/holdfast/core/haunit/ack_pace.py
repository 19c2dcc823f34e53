"""How often a node says how far it is. [HA §5.2.1]

Every M (`ack_interval_ms`) its positions may be told. With few new tuples they wait, for
`ACK_INTERVALS_MAX` M at most: else they would cost more than the tuples that they save.

    AT_WORK --no pass for `_IDLE_BEFORE_REST` M--> AT_REST --a pass--> AT_WORK

At rest a node looks only every `ACK_INTERVALS_MAX` M, and tells every such time, as nothing is new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit.plan import ACK_INTERVALS_MAX
from holdfast.core.machine import SetTimer

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodeLimits
    from holdfast.core.machine import Effect

_IDLE_BEFORE_REST = 2 * ACK_INTERVALS_MAX


class AckPace:
    """One incarnation's. Volatile: all fields."""

    def __init__(self, limits: NodeLimits) -> None:
        """Nothing has been told."""
        self._limits = limits
        self._told_tuples = 0  # processed when positions were told last
        self._waited = 0  # M since
        self._idle = 0  # M since a pass

    @property
    def is_at_rest(self) -> bool:
        """Whether there has been no pass for long."""
        return self._idle > _IDLE_BEFORE_REST

    def timer(self, now_ms: int) -> SetTimer:
        """The timer for the end of the interval that begins now."""
        intervals = ACK_INTERVALS_MAX if self.is_at_rest else 1
        return SetTimer("ack", now_ms + intervals * self._limits.ack_interval_ms)

    def passed(self, now_ms: int) -> list[Effect]:
        """There is a pass to run: at rest, the timer is set anew."""
        was_at_rest, self._idle = self.is_at_rest, 0
        return [self.timer(now_ms)] if was_at_rest else []

    def fired(self, input_tuples: int) -> bool:
        """The timer has run out; whether positions are to be told now.

        Args:
            input_tuples: Tuples processed so far.
        """
        self._idle += 1
        if self.is_at_rest:
            return self._idle % ACK_INTERVALS_MAX == 0
        self._waited += 1
        new_tuples = input_tuples - self._told_tuples
        if new_tuples < self._limits.ack_tuples and self._waited < ACK_INTERVALS_MAX:
            return False
        self._waited, self._told_tuples = 0, input_tuples
        return True
