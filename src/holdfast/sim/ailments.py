"""What machines, disks, sources and the checkpoint store suffer from for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.sim.driver import DRIVER

if TYPE_CHECKING:
    from holdfast.core.model.ids import StreamId
    from holdfast.sim.scheduler import Scheduler


class Ailments:
    """Who suffers from what, until when."""

    def __init__(self, scheduler: Scheduler) -> None:
        """All are well."""
        self._scheduler = scheduler
        self._slow: dict[tuple[str, int], tuple[int, int]] = {}  # (what, machine): (until, factor)
        self._silent: dict[tuple[str, StreamId], int] = {}  # (kind of fault, source): until when
        self._ends_from_us = 0  # no source says before this that it has ended
        self._slots_from_us = 0  # no task slot is free before this

    def slow_down(self, what: str, machine: int, until_us: int, factor: int) -> None:
        """A machine has a fault of the kinds `slow-node`, `slow-disk` and `full-disk`."""
        self._slow[(what, machine)] = (until_us, factor)

    def take_store_away(self, until_us: int) -> None:
        """The checkpoint store answers nobody."""
        self._slow[("store-outage", DRIVER)] = (until_us, 2)

    def silence(self, kind: str, stream: StreamId, until_us: int) -> None:
        """A source gives nothing; or, of kind `no-boundaries`, promises nothing."""
        self._silent[(kind, stream)] = until_us

    def take_slots(self, until_us: int) -> None:
        """Another query has all task slots that were free."""
        self._slots_from_us = until_us

    def slots_in_us(self) -> int:
        """In how many µs there are task slots again; 0: now."""
        return max(0, self._slots_from_us - self._scheduler.now_us)

    def hold_ends(self, until_us: int) -> None:
        """No source says that it has ended."""
        self._ends_from_us = max(self._ends_from_us, until_us)

    @property
    def are_ends_held(self) -> bool:
        """Whether no source says now that it has ended."""
        return self._scheduler.now_us < self._ends_from_us

    def empty_disks(self) -> None:
        """A user makes room on disks that take nothing."""
        for what, machine in list(self._slow):
            if what == "full-disk":
                del self._slow[(what, machine)]

    def _factor(self, what: str, machine: int) -> int:
        until_us, factor = self._slow.get((what, machine), (0, 1))
        return factor if self._scheduler.now_us < until_us else 1

    def slowness(self, machine: int) -> int:
        """By which factor a machine computes slower now."""
        return self._factor("slow-node", machine)

    def disk_slowness(self, machine: int) -> int:
        """By which factor a machine's disk is slower now."""
        return self._factor("slow-disk", machine)

    def is_disk_full(self, machine: int) -> bool:
        """Whether a machine's disk takes nothing now."""
        return self._factor("full-disk", machine) != 1

    def is_silent(self, stream: StreamId, kind: str = "silence") -> bool:
        """Whether a source gives nothing now; or, of kind `no-boundaries`, promises nothing."""
        return self._scheduler.now_us < self._silent.get((kind, stream), 0)

    def is_store_away(self) -> bool:
        """Whether the checkpoint store answers nobody now."""
        return self._factor("store-outage", DRIVER) != 1
