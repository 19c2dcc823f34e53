"""How a writer opens a log: it finds the end, and begins there; see log_owners.py.

A log that ends too early is not begun: its files may come back, and then they must count.

The same steps for both kinds of logs. Each request is one look at, or one change of, what others
change meanwhile; whoever performs it answers. Between two of them anything may happen: zombies
write, others open the log, parts are merged.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.wire.log_owners import Owner, Owners, succeeded


class OpenedLater(Exception):
    """An incarnation that is not earlier has begun to write the log."""

    def __init__(self, incarnation: int) -> None:
        """Which one."""
        super().__init__(incarnation)
        self.incarnation = incarnation


class EndsEarly(Exception):
    """The log lacks what its writer relies on; nothing has been changed."""

    def __init__(self, end: int, wanted: int) -> None:
        """The ids [end, wanted) are missing."""
        super().__init__(end, wanted)
        self.end, self.wanted = end, wanted


class SinkLacksTuples(RuntimeError):
    """A log ends before what was durable there when the restart point was stored."""

    def __init__(self, place: str, end: int, wanted: int) -> None:
        """Name the log, the ids [end, wanted) that it lacks, and the cure."""
        super().__init__(
            f"{place}: tuples {end} to {wanted - 1} are missing; a file there is gone or damaged. "
            "Restore it from a copy, or begin again in a new checkpointLocation"
        )


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ends: the next id, the boundary, and whether nothing follows."""

    next_id: int
    boundary_us: int = BEGINNING_US
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class LookAtOwners:
    """Who has begun to write the log; answered by `OwnersSeen`."""


@dataclass(frozen=True, slots=True)
class OwnersSeen:
    """The newest incarnation that has begun, or is about to; and who owns what."""

    newest: int
    owners: Owners


@dataclass(frozen=True, slots=True)
class FindEnd:
    """Where an owner's tuples end; answered by a `LogEnd`, or None where nothing says it.

    What is found has to be durable when this is answered.
    """

    owner: Owner


@dataclass(frozen=True, slots=True)
class BeginAt:
    """Begin to write at the end, naming the owners; answered by None."""

    end: LogEnd
    owners: Owners


OpenRequest = LookAtOwners | FindEnd | BeginAt
OpenAnswer = OwnersSeen | LogEnd | None
Opening = Generator[OpenRequest, OpenAnswer, BeginAt]


def open_log(incarnation: Incarnation, first_id: int, wanted: int = 0) -> Opening:
    """Take over a log; gives where its writer has begun.

    Args:
        incarnation: Of the writer.
        first_id: Of the first tuple, if the log is empty.
        wanted: The id before which the log must not end.

    Raises:
        EndsEarly: It does.
        OpenedLater: This incarnation, or a later one, has begun to write it.
    """
    seen = yield LookAtOwners()
    assert isinstance(seen, OwnersSeen)
    if seen.newest >= incarnation:
        raise OpenedLater(seen.newest)
    end = LogEnd(first_id)
    for owner in reversed(seen.owners):
        found = yield FindEnd(owner)
        if isinstance(found, LogEnd):
            end = found
            break
    if end.next_id < wanted:
        raise EndsEarly(end.next_id, wanted)
    begin = BeginAt(end, succeeded(seen.owners, incarnation, end.next_id))
    yield begin
    return begin
