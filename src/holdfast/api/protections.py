"""Protections: what a failure may cost. [HA §3.1, §4]

More approaches of the paper follow; each is a class here, chosen per dataflow.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.api.errors import UnsupportedError

if TYPE_CHECKING:
    from holdfast.api.dataflow import Dataflow


class Guarantee(enum.Enum):
    """What holds for the output before and after a failure, taken together. [HA §3.1]"""

    PRECISE = "precise"
    ROLLBACK = "rollback"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Protection:
    """The base of all protections."""

    guarantee: str = Guarantee.PRECISE.value

    def check(self, flow: Dataflow) -> None:
        """Refuse what this protection cannot give. Raises `UnsupportedError`."""


@dataclass(frozen=True, slots=True)
class UpstreamBackup(Protection):
    """Nothing is copied: producers keep tuples, a replacement replays them. [HA §4.3]

    Survives any number of simultaneous failures, the driver's included. An incremental join never
    lets go of its input; what its producers keep for it then goes to the spill log for ever.
    """

    def check(self, flow: Dataflow) -> None:
        """Only precise recovery, which every operator here allows."""
        if self.guarantee != Guarantee.PRECISE.value:
            raise UnsupportedError(
                f"UpstreamBackup(guarantee={self.guarantee!r}); only 'precise', which costs "
                "nothing more here"
            )


@dataclass(frozen=True, slots=True)
class Unprotected(Protection):
    """Nothing is kept; a failed node fails the query. Only to measure what protection costs."""

    guarantee: str = Guarantee.GAP.value


def parse_protection(name: str, guarantee: str) -> Protection:
    """A protection by its command-line name. Raises `UnsupportedError` for unknown ones."""
    if name == "upstream-backup":
        return UpstreamBackup(guarantee)
    if name == "none":
        return Unprotected()
    raise UnsupportedError(f"protection {name!r}; there are 'upstream-backup' and 'none'")
