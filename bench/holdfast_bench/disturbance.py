"""What others of the host took of this machine's cores while something was measured.

A virtual machine shares its cores: what its host gives to others is neither used here nor idle.
Linux counts it as `steal` [proc(5)]. Where it is much, a figure tells of the neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

STOLEN_MAX: Final = 0.1
"""A run that lost more of its cores' time is measured again."""
TRIES: Final = 3
_STAT: Final = Path("/proc/stat")


class Stolen:
    """From its making on: the share of the time wanted of the cores that others got."""

    def __init__(self) -> None:
        """Begin to count."""
        self._used, self._stolen = _ticks()

    @property
    def share(self) -> float:
        """From 0 to 1; 0 where there is no /proc or no time was wanted."""
        used, stolen = _ticks()
        wanted = used - self._used + stolen - self._stolen
        return round((stolen - self._stolen) / wanted, 3) if wanted else 0.0


def _ticks() -> tuple[int, int]:
    """Time of all cores that was used here, and that others took."""
    try:
        fields = [int(field) for field in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 0
    user, nice, system, _idle, _waiting, irq, softirq, stolen = fields
    return user + nice + system + irq + softirq, stolen


def counted(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A measurement with `stolen`, the share that others took meanwhile."""
    stolen = Stolen()
    return measure() | {"stolen": stolen.share}


def undisturbed(measure: Callable[[], dict[str, Any]], tries: int = TRIES) -> dict[str, Any]:
    """Measure until others took no more than `STOLEN_MAX`; the least disturbed of some tries.

    Which run counts is decided by `stolen` alone, and never by what was measured.
    """
    found: list[dict[str, Any]] = []
    while len(found) < tries and not any(run["stolen"] <= STOLEN_MAX for run in found):
        found.append(counted(measure))
    return min(found, key=lambda run: run["stolen"])
