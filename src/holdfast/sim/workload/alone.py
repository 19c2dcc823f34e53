"""Draws a way of one stream alone through a unit that merges it with others.

Missing input of the others does not reach it: it is to stay stable all the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.api.operators import is_arbitrary
from holdfast.api.windows import sliding, tumbling
from holdfast.sim.workload.expressions import Expressions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.api.steps import Step
    from holdfast.api.streams import Stream
    from holdfast.sim.draw import Draw
    from holdfast.sim.workload.expressions import Expression

_ALONE_PERCENT: Final = 30
"""Of dataflows that have such a unit."""
_COUNTED_PERCENT: Final = 80
_WINDOWS: Final = (
    tumbling("200 microseconds"),
    tumbling("5000 microseconds"),
    tumbling("100 milliseconds"),
    sliding("5000 microseconds", "1000 microseconds"),
)


def way_alone(
    steps: Sequence[Step],
    streams: Sequence[tuple[Stream, dict[str, str]]],
    is_apt: Callable[[str], bool],
    draw: Draw,
    *,
    is_wanted: bool = False,
) -> tuple[Stream, Expression, Stream] | None:
    """Rows that a unit which merges reads, filtered there, with the condition; and what comes of
    them at the end of their way through the unit. None: none are drawn.

    They come from a unit that it reads anyhow: a way around several others would wait for these.

    Args:
        steps: Of the dataflow.
        streams: Some of them, with the kinds of their columns.
        is_apt: Whether a unit has one instance and does not wait for missing input for long.
        draw: Of its own, so that the rest of the dataflow stays what it is.
        is_wanted: Whether there is a way wherever there can be one, mostly with windows on it.
    """
    arbitrary = {step.unit for step in steps if is_arbitrary(step.operation)}
    merging = [s for s in steps if len(s.inputs) > 1 and s.unit not in arbitrary and is_apt(s.unit)]
    if not merging or not (is_wanted or draw.percent(_ALONE_PERCENT)):
        return None
    unit = draw.one_of(merging).unit
    read = {one.unit for step in steps if step.unit == unit for one in step.inputs} - {unit}
    ways = [way for way in streams if way[0].step.unit in read]
    if not ways:
        return None
    stream, columns = draw.one_of(ways)
    condition = Expressions(draw, columns).condition()
    filtered = stream.unit(unit).filter(condition.sql)
    return filtered, condition, _counted(filtered, draw) if is_wanted else filtered


def _counted(way: Stream, draw: Draw) -> Stream:
    """Its rows per window, in the same unit, or itself."""
    if not draw.percent(_COUNTED_PERCENT):
        return way
    way = way.unit(way.step.unit)
    return way.window(draw.one_of(_WINDOWS)).aggregate("count(*) AS n", name="counted")
