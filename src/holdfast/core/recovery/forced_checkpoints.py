"""How many checkpoints others force, where streams go in a circle. [CheckMate §III-C]

Where n instances all send to each other all the time, a checkpoint that one of them wants to take
forces all others to take one too, as soon as they hear of it: a *wave* goes through the circle. Who
wants to take one before it has heard joins the wave. So a wave begins when the one before has come
everywhere, which takes `wave_ms`, and the next instance has its period over: period / n later. Each
instance takes one checkpoint in each wave, and wants one in each period.

It is the worst case: instances that send less, or to fewer others, hear of fewer waves. On circles
of 5, 10 and 20 HMNR forced 3.5, 6.0 and 8.7 for each that was wanted, in simulated passes of 250 ms
(docs/reports/checkmate.md); this says 3.0, 5.8 and 9.3.
"""

from __future__ import annotations


def forced_per_basic(circle: int, period_ms: float, wave_ms: float) -> float:
    """Forced checkpoints for each that an instance wants to take.

    Args:
        circle: Instances on the circle, itself counted; 1: it is on none.
        period_ms: From one that it wants to the next.
        wave_ms: From one instance's checkpoint until those behind have heard of it.
    """
    if circle <= 1:
        return 0.0
    return max(0.0, circle / (1 + circle * wave_ms / period_ms) - 1)
