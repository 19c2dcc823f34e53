"""How patient the coordinator is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CoordinatorLimits:
    """Settings of failure detection and recovery.

    Attributes:
        keep_alive_ms: Period of keep-alives (HA: 100 ms).
        misses: Missed keep-alives after which a node is taken for dead (HA: 3).
        launch_timeout_ms: How long a launched task may take to say hello.
        launches_max: So many launches of a primary in a row without a hello fail the query.
        failures_max: So many failures of one node within the window fail the query.
        failure_window_ms: The window.
        writers_max: So many nodes may write a checkpoint at once; 0: as many as want to.
    """

    keep_alive_ms: int = 100
    misses: int = 3
    launch_timeout_ms: int = 30_000
    launches_max: int = 3
    failures_max: int = 10
    failure_window_ms: int = 10_000
    writers_max: int = 0

    @property
    def silence_ms(self) -> int:
        """So long a silence is nothing."""
        return self.keep_alive_ms * self.misses
