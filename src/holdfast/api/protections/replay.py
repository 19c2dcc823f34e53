"""Upstream backup and amnesia: a replacement replays what producers kept, or nothing. [HA §4.3]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.api.protections.base import Protection, require_guarantee
from holdfast.core.haunit.plan import UnitProtection
from holdfast.core.recovery.guarantee import Guarantee

if TYPE_CHECKING:
    from holdfast.api.graph import Graph


@dataclass(frozen=True, slots=True)
class UpstreamBackup(Protection):
    """Nothing is copied: producers keep tuples, a replacement replays them. [HA §4.3]

    Survives any number of simultaneous failures, the driver's included. An incremental join never
    lets go of its input; what its producers keep for it then goes to the spill log for ever.

    Attributes:
        guarantee: `precise`; or `rollback`: nothing is lost, but after a failure results may come
            twice, or, of windows that were being put together, in parts. The replacement then
            puts out from the first tuple on that it replays, and arbitrary units need no log.
    """

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `UnsupportedError`."""
        require_guarantee(self, Guarantee.PRECISE, Guarantee.ROLLBACK)

    def of_unit(self) -> UnitProtection:
        """Replayed, precisely or not."""
        return UnitProtection(guarantee=Guarantee(self.guarantee))


@dataclass(frozen=True, slots=True)
class Amnesia(Protection):
    """Nothing is kept: a replacement starts empty, on the newest input. [HA §4]

    Costs nothing as long as nothing fails. What a failed node had received and not put out is lost,
    with its state; `query.lastProgress["gaps"]` says which input tuples were missed. Results come
    twice only if a unit that it reads from, or one behind it, or the driver fails at the same time;
    that is not counted.
    """

    guarantee: str = Guarantee.GAP.value

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `UnsupportedError`."""
        require_guarantee(self, Guarantee.GAP)

    def of_unit(self) -> UnitProtection:
        """Restarted empty."""
        return UnitProtection(guarantee=Guarantee.GAP)


@dataclass(frozen=True, slots=True)
class Unprotected(Protection):
    """Nothing is kept; a failed node fails the query. Only to measure what protection costs."""

    guarantee: str = Guarantee.GAP.value

    def of_unit(self) -> UnitProtection:
        """Nothing is kept."""
        return UnitProtection(is_protected=False)
