"""Which volume of the coordinator's journal counts, and how a driver takes over from another.

Theory of operation. A journal is a row of numbered volumes, one per epoch and sometimes more. The
newest one counts; it begins with what those before it had come to, so that they may go. A driver
that begins

1. claims the number above all that are there, exclusively: of two, one gets it;
2. reads what earlier volumes say, only now;
3. fills its volume with what that comes to;
4. deletes the earlier ones.

A write counts once its volume is found to be the newest after the write is durable. So a write of a
driver that has been replaced either was durable before the claim, and then is read, or is refused,
although it may have gone into a file, and even into one that has been deleted. Without the first
step before the second there is a gap: 1. B reads. 2. A writes, and finds nobody newer. 3. B
claims. Without the look after the write a driver that has been replaced would give out incarnations
that its successor gives out, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClaimVolume:
    """Create a volume, exclusively; it says nothing yet."""

    number: int


@dataclass(frozen=True, slots=True)
class ReadVolumes:
    """Read all but the claimed one, ascending. One that is gone is in a later one: look again."""


@dataclass(frozen=True, slots=True)
class FillVolume:
    """Write what was read into the volume that was claimed, durably; it counts if it is newest."""

    number: int


@dataclass(frozen=True, slots=True)
class DeleteVolumes:
    """Their content is in a later one."""

    numbers: tuple[int, ...]


TakeoverStep = ClaimVolume | ReadVolumes | FillVolume | DeleteVolumes


def takeover(numbers: Sequence[int]) -> tuple[TakeoverStep, ...]:
    """What a driver that begins does, one after another.

    Args:
        numbers: Of the volumes that are there, ascending.
    """
    former = tuple(numbers)
    own = max(former, default=0) + 1
    return ClaimVolume(own), ReadVolumes(), FillVolume(own), DeleteVolumes(former)


def is_newest(number: int, numbers: Iterable[int]) -> bool:
    """Whether a volume counts, by the numbers of those that are there after a write."""
    return max(numbers, default=0) == number
