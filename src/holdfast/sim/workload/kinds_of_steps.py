"""Which operators a random dataflow is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.sim.draw import Draw

_KINDS: Final = (
    *("filter", "select", "aggregate", "aggregate", "union", "window_join", "join"),
    *("sort", "resample_every", "resample_at", "arbitrary", "arbitrary"),
    *("branches", "branches", "diamond"),
)
CHAIN: Final = "chain"
APART: Final = "apart"
JOINS: Final = "joins"
BY_CLOCK: Final = ("clock", "timeout")
ONLY: Final = (
    *("arbitrary", "branches", "diamond", "aggregate", "window_join", "interval_join"),
    *(CHAIN, APART, JOINS, *BY_CLOCK),
)
"""Of one kind: arbitrary operators alone, several branches of streams merged in order of
time, two ways from one stream that meet again, windows alone, joins within windows, joins within a
span of time, state behind state in one unit, a way of one stream alone through what merges it, a
chain of units of which most join, windows of the clock, or those with a timeout, and what merges
their results.
"""
_OF_SEVERAL: Final = {
    CHAIN: (
        *("aggregate", "aggregate", "aggregate", "filter", "select", "window_join", "join"),
        *("sort", "resample_every"),
    ),
    JOINS: (
        *("window_join", "window_join", "join", "interval_join", "interval_join"),
        *("union", "aggregate"),
    ),
    APART: ("union", "union", "window_join", "join", "aggregate", "filter"),
}
TINY: Final = ("diamond", *BY_CLOCK)
"""Of these, queues may hold but a few tuples: who has none left to send may hold up all others."""


def kind_of_step(draw: Draw, only: str | None) -> str:
    """The kind of the next operator, or of several at once; `only`: one of `ONLY`, None: any."""
    kind = only or draw.one_of(_KINDS)
    return draw.one_of(_OF_SEVERAL[kind]) if kind in _OF_SEVERAL else kind
