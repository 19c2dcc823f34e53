"""Whose tuples count in a log with several writers, one after another.

Theory of operation. A log is written by one incarnation at a time, and by others that do not know
yet that they have been replaced. Whoever opens it finds its end, and begins: a segment in a folder,
a mark in a store that cannot append. In what it begins with stand the *owners* of the log as it
found it, and itself as the last: this incarnation's tuples count from this id on, up to the next
one's first. Of all that have begun the newest incarnation says who owns what; what others say, and
whoever is not named, does not count, whenever it comes.

So nothing that a successor has found is hidden by somebody who is late:

1. 3 finds that the log ends before 10, and stands still. 2. 1, a zombie, writes up to 15.
3. 4 finds that, and begins at 15: 1 up to 15, then 4. 4. 3 begins at 10. Nobody reads it.

By the rule of the logs of before, which did not name their owners, a later incarnation held from
its first id on: 3 would own 10 to 15, of which it has none. Those logs are read by that rule, up to
the incarnation that was the first to name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from holdfast.core.model.ids import NO_ID, Incarnation

Place = tuple[Incarnation, int]
"""Where a writer began a segment, or put a mark: its incarnation, and the first id."""

OWNERS_MAX: Final = 1 << 20
"""As many may be named; those without a tuple are not."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose tuples count for the ids [first_id, superseded_from)."""

    incarnation: Incarnation
    first_id: int
    superseded_from: int


Owners = tuple[Owner, ...]
"""In order of ids; each begins where the one before ends."""

SOLE: Final = (Owner(Incarnation(1), 0, NO_ID),)
"""Of a log under a unique name that only one writer ever opens."""


def owners_of(places: Iterable[Place], said: Callable[[Place], Owners | None]) -> Owners:
    """Who owns what, by all that has been begun.

    Args:
        places: Where writers have begun.
        said: The owners that stand where a writer began; None: it has not begun yet, as far as can
            be seen. Empty: it does not name them, as in logs of before. Asked of the newest first.
    """
    known = sorted(places, key=lambda place: (-place[0], place[1]))
    for place in known:
        owners = said(place)
        if owners is None:
            continue
        return owners or by_incarnation(p for p in known if p[0] <= place[0])
    return ()


def by_incarnation(places: Iterable[Place]) -> Owners:
    """By the rule of logs that do not name owners: a later incarnation holds from its first id."""
    owners: list[Owner] = []
    superseded_from = NO_ID
    for incarnation, first_id in sorted(places, reverse=True):
        if first_id >= superseded_from:
            continue
        if owners and owners[-1].incarnation == incarnation:
            owners[-1] = replace(owners[-1], first_id=first_id)
        else:
            owners.append(Owner(incarnation, first_id, superseded_from))
        superseded_from = first_id
    return tuple(reversed(owners))


def succeeded(owners: Owners, incarnation: Incarnation, first_id: int) -> Owners:
    """The owners once an incarnation has begun at an id. Those without a tuple are left out."""
    before = [
        replace(owner, superseded_from=min(owner.superseded_from, first_id))
        for owner in owners
        if owner.first_id < first_id
    ]
    return (*before, Owner(incarnation, first_id, NO_ID))


def chained(pairs: Iterable[Place]) -> Owners:
    """Owners from their incarnations and first ids."""
    found = list(pairs)
    following = [*(first_id for _, first_id in found[1:]), NO_ID]
    return tuple(
        Owner(incarnation, first_id, end)
        for (incarnation, first_id), end in zip(found, following, strict=False)
    )


def owner_of(owners: Sequence[Owner], tuple_id: int) -> Owner | None:
    """Whose tuple counts; None before the first and when nobody has opened the log."""
    return next((o for o in owners if o.first_id <= tuple_id < o.superseded_from), None)


def live_segments(places: Iterable[Place], owners: Owners) -> dict[Place, int]:
    """Which segments of a folder count, in order of ids, and from which id on no more."""
    firsts: dict[Incarnation, list[int]] = {}
    for incarnation, first_id in sorted(places):
        firsts.setdefault(incarnation, []).append(first_id)
    live: dict[Place, int] = {}
    for owner in owners:
        own = [f for f in firsts.get(owner.incarnation, []) if f < owner.superseded_from]
        # All segments of an owner may have been trimmed: then there is nothing between the ends.
        for first_id, end in pairwise([*own, owner.superseded_from]):
            live[(owner.incarnation, first_id)] = end
    return live


def read_in_vain(read: Sequence[Place], before: int, owners: Owners) -> int | None:
    """The first tuple that was read of a writer that does not own it; None: all were owned.

    Args:
        read: Of which incarnation tuples were read, each from an id on; in order of ids.
        before: Exclusive bound of the ids that were read.
        owners: The log's.
    """
    ends = [first_id for _, first_id in read[1:]]
    for (incarnation, first_id), end in zip(read, [*ends, before], strict=True) if read else ():
        at = first_id
        while at < min(end, before):
            owner = owner_of(owners, at)
            if owner is None or owner.incarnation != incarnation:
                return at
            at = owner.superseded_from
    return None
