"""Standbys: a second replica of every instance takes over. [HA §4.1, §4.2]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.api.protections.base import Protection, interval_ms_of, require_guarantee
from holdfast.api.protections.replay import UpstreamBackup
from holdfast.core.haunit.plan import Standby, UnitProtection
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import UnsupportedError

if TYPE_CHECKING:
    from holdfast.api.graph import Graph


SURVIVES: Final = ("any failures", "one failure")


@dataclass(frozen=True, slots=True)
class ActiveStandby(Protection):
    """A second replica of every instance processes the same input at the same time. [HA §4.2]

    It keeps its output until it is known that nobody needs it, and takes over within milliseconds
    once the first replica is found to have failed; that one comes back as the second. Costs a task
    slot and the network's load for every instance once more. Beneath it lies upstream backup: if
    both replicas fail at the same time, or the driver does, the instance is rebuilt by replay.

    Attributes:
        strict: Both replicas never share a machine: with a single one, `start` refuses, and while
            there is only one left, the second replica waits. Otherwise they share it for so long,
            and `status` says so.
        guarantee: `precise`; or `rollback`: arbitrary units need no log, each replica decides for
            itself, and what was put out shortly before a takeover may come again otherwise; all
            others are given precise recovery, for ids tell what comes twice; the query's `status`
            says so. [HA Table 2, §6]
    """

    strict: bool = False

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `UnsupportedError`."""
        require_guarantee(self, Guarantee.PRECISE, Guarantee.ROLLBACK)

    def describe(self) -> str:
        """What is on disk is upstream backup's."""
        return UpstreamBackup.__name__

    def of_unit(self) -> UnitProtection:
        """Two replicas."""
        return UnitProtection(
            standby=Standby.ACTIVE,
            is_strict=self.strict,
            guarantee=Guarantee(self.guarantee),
        )


@dataclass(frozen=True, slots=True)
class PassiveStandby(Protection):
    """A second replica of every instance keeps a copy of its state. [HA §4.1]

    The first one sends what has changed; when it is found to have failed, the second one goes on
    from the last cut, and the failed one comes back as the second. Costs a task slot and the
    memory of the state for every instance once more, and the differences on the network. Beneath
    it lies upstream backup: if both replicas fail at the same time, or the driver does, or as long
    as output waits in a spill log, the instance is rebuilt by replay.

    Attributes:
        interval: Period of the differences, as `tumbling` takes it; what a takeover may have to
            replay.
        strict: As for `ActiveStandby`.
        guarantee: `precise`; or `rollback`: arbitrary units need no log, and what they do after a
            failure may differ from what they had done since the last cut; all others are given
            precise recovery, for ids tell what comes twice; the query's `status` says so. [HA
            Table 2, §6]
        survives: `any failures`: producers keep what a replay needs. `one failure`: they forget
            what the secondary holds; if both replicas are lost, or the driver, or the query is
            stopped, the state is gone. Arbitrary units keep what a replay needs. [HA §5.2]
    """

    interval: str = "50 milliseconds"
    strict: bool = False
    survives: str = "any failures"

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `UnsupportedError`, or `OptionError`."""
        require_guarantee(self, Guarantee.PRECISE, Guarantee.ROLLBACK)
        if self.survives not in SURVIVES:
            said = ", ".join(map(repr, SURVIVES))
            raise UnsupportedError(f"survives={self.survives!r}: it is one of {said}")
        if self.survives == "one failure" and self.guarantee != Guarantee.PRECISE.value:
            raise UnsupportedError("survives='one failure' goes with guarantee='precise'")
        self.of_unit()

    def describe(self) -> str:
        """What is on disk is upstream backup's."""
        return UpstreamBackup.__name__

    def of_unit(self) -> UnitProtection:
        """Two replicas, of which one waits."""
        interval_ms = interval_ms_of(self, self.interval)
        return UnitProtection(
            standby=Standby.PASSIVE,
            delta_interval_ms=interval_ms,
            is_strict=self.strict,
            guarantee=Guarantee(self.guarantee),
            survives_one=self.survives == "one failure",
        )
