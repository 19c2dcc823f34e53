"""Which units repeat. *To repeat*: a replacement puts out the same tuples under the same ids.

A unit repeats if it is precise, if what it puts out depends on its input alone (its operators are
deterministic and take input by id or by time) or on passes that it logs, **and if all that it reads
comes from sources, from units that repeat, or from behind a gate**. Whoever reads from one that
does not repeat may be given other tuples under the ids that it has read.

In a loop that asks of itself. The largest set of which all this holds is right: suppose that all
repeat, and strike out whoever cannot, until nobody is struck out any more. (The least set would say
of every loop that nobody in it repeats.)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """What a unit reads.

    Attributes:
        sender: A unit; what is not among the units counts as a source, and so do units that
            promise less than precise recovery.
        is_gated: Whether the sender lets go only of what it will never go back behind.
    """

    sender: str
    is_gated: bool = False


@dataclass(frozen=True, slots=True)
class UnitNature:
    """What of a unit decides whether it repeats.

    Attributes:
        is_precise: Whether its guarantee is precise recovery.
        is_determined: Whether its output depends on its input, or on passes that it logs, alone.
        reads: All that it reads.
    """

    is_precise: bool
    is_determined: bool
    reads: tuple[Reading, ...]


def repeating(units: dict[str, UnitNature]) -> frozenset[str]:
    """The units that repeat: the largest set of which the module's rule holds.

    Cost: O(units × readings).
    """
    kept = {name for name, unit in units.items() if unit.is_precise and unit.is_determined}
    precise = {name for name, unit in units.items() if unit.is_precise}
    while True:
        struck = {name for name in kept if _reads_what_changes(units[name], precise - kept)}
        if not struck:
            return frozenset(kept)
        kept -= struck


def _reads_what_changes(unit: UnitNature, changing: set[str]) -> bool:
    return any(reading.sender in changing and not reading.is_gated for reading in unit.reads)
