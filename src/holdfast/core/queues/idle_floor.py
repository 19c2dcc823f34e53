"""What an instance of a source may promise that has nothing to read: what the others have promised.

A topic is read by several instances, each with partitions and a log of its own. An *idle partition*
has been read to its end. An instance with idle ones alone has no time of its own to go by, and
would hold up every window behind the source for ever. So instances tell the coordinator how far
they have come, and it tells the idle ones a *floor*: the least boundary of those that are not idle,
or, if all are idle, where the furthest is. That is the rule for the partitions of one instance,
over all of them.

1. The idle instance writes the promise into its own log, as it does with every boundary. 2. A
record that comes to one of its partitions later, and is older, is late, and counted. 3. Whoever
takes over finds the promise in the log, and judges the same; so does whoever replays it.

A floor is at no time later than what an instance that is not idle has made durable, or, if all are
idle, than what one of them has read. An instance of which nobody knows anything holds all up: it
may be on its way to its first record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.model.ids import BEGINNING_US, END_US, TimeUs


@dataclass(frozen=True, slots=True)
class Reached:
    """How far an instance of a source has come.

    Attributes:
        boundary_us: What its log promises, durably.
        furthest_us: Where its furthest partition is; `BEGINNING_US`: none has had a record.
        is_idle: Whether it has partitions to read, and all of those are idle.
    """

    boundary_us: TimeUs
    furthest_us: TimeUs
    is_idle: bool


def idle_floor_us(instances: Sequence[Reached | None]) -> int:
    """What the idle ones may promise; `BEGINNING_US`: nothing.

    Args:
        instances: All of the source; None: nothing is known of one.
    """
    known = [one for one in instances if one is not None]
    if len(known) < len(instances):
        return BEGINNING_US
    busy = [one.boundary_us for one in known if not one.is_idle and one.boundary_us != END_US]
    return min(busy) if busy else max((one.furthest_us for one in known), default=BEGINNING_US)
