"""Simulators with worlds of their own, beside the one of whole query networks.

Each runs other cores than a network's: who records an ingest log, who reads a topic, logs of parts,
lines of checkpoints, the chunk store, elastic restarts. A campaign runs one of them for every seed,
in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol

from holdfast.sim.chunks import simulate_chunks
from holdfast.sim.lines.world import simulate_lines
from holdfast.sim.log_races import race
from holdfast.sim.recording import simulate_recording
from holdfast.sim.rescaling import simulate_rescaling
from holdfast.sim.scheduler import Trace
from holdfast.sim.topics import simulate_topics


class Ended(Protocol):
    """How a run of any of them ended.

    Attributes:
        invariant: The one that does not hold; None: all hold.
        violation: What was seen.
    """

    @property
    def invariant(self) -> str | None: ...  # noqa: D102
    @property
    def violation(self) -> str: ...  # noqa: D102


BESIDE: Final[dict[str, Callable[[int, Trace | None], Ended]]] = {
    "recording": simulate_recording,
    "topics": simulate_topics,
    "logs": race,
    "lines": simulate_lines,
    "chunks": simulate_chunks,
    "rescaling": simulate_rescaling,
}
"""By what they simulate."""
IN_STEPS: Final = ("logs", "lines")
"""Those that have no virtual time: who acts next is drawn, step by step."""


def world_of(seed: int) -> str:
    """The one whose turn it is."""
    names = list(BESIDE)
    return names[seed % len(names)]


def figures_of(ended: Ended) -> dict[str, Any]:
    """What an outcome of a run can tell of it; faults by kind, of worlds that count them."""
    return {
        "invariant": ended.invariant,
        "violation": ended.violation,
        "rows": getattr(ended, "rows", 0),
        "digest": getattr(ended, "digest", ""),
        "faults": Counter(getattr(ended, "faults", ())),
    }
