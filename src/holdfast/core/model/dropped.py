"""Which input tuples the correction of a failure goes without. [DPC §6 "buffer management"]

A unit that goes on without missing input keeps the stable tuples that come meanwhile, for the
correction. At a bound it reads no more of them (`buffer="block"`), or it keeps no more
(`buffer="drop"`): then they count as tentative alone. The stable output is, from there on, that of
the input without them.

That must hold whoever makes it. 1. A node drops 90 to 120 of a stream, corrects, and puts out
stable results. 2. It is killed. 3. Its replacement is sent 90 to 120 once more. So a restart point
says what is dropped before the node goes back to its cut, and whoever begins there leaves the same
tuples out. A node that is killed before that has dropped nothing: producers have it all.

Ranges of ids are half-open, in rising order.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Of ids, from the first of each to before the second."""
NONE: Final[Ranges] = ()


def with_range(ranges: Ranges, first: int, end: int) -> Ranges:
    """Ranges and one behind them; raises `ValueError` if it is not behind them, or empty."""
    if end <= first or (ranges and first < ranges[-1][1]):
        raise ValueError(f"[{first}, {end}) does not follow {ranges}")
    if ranges and ranges[-1][1] == first:
        return (*ranges[:-1], (ranges[-1][0], end))
    return (*ranges, (first, end))


def joined(old: Mapping[str, Ranges], new: Mapping[str, Ranges]) -> dict[str, Ranges]:
    """Per stream the ranges of both, as they are; raises `ValueError` unless new ones follow."""
    found = dict(old)
    for stream, ranges in new.items():
        found[stream] = (*found.get(stream, NONE), *ranges)
        require_followed(found[stream])
    return found


def still_needed(ranges: Ranges, needed_from: int) -> Ranges:
    """Those that tuples from an id on can fall into."""
    return tuple(each for each in ranges if each[1] > needed_from)


def count(ranges: Ranges) -> int:
    """How many ids they hold."""
    return sum(end - first for first, end in ranges)


def left_of(ranges: Ranges, first_id: int, tuples: int) -> Iterator[tuple[int, int]]:
    """The positions, half-open, of what is not dropped among tuples that begin with an id."""
    at, end = first_id, first_id + tuples
    for dropped_first, dropped_end in ranges:
        if dropped_end <= at:
            continue
        if dropped_first >= end:
            break
        if dropped_first > at:
            yield at - first_id, dropped_first - first_id
        at = min(dropped_end, end)
    if at < end:
        yield at - first_id, end - first_id


def require_followed(ranges: Ranges) -> None:
    """Raise `ValueError` unless they rise and none is empty."""
    is_empty = any(first >= end for first, end in ranges)
    is_out_of_order = any(a[1] > b[0] for a, b in pairwise(ranges))
    if is_empty or is_out_of_order or (ranges and ranges[0][0] < 0):
        raise ValueError(f"{ranges} are no rising ranges of ids")
