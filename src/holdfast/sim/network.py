"""The network: ordered links with latency, bandwidth and faults, per direction.

A link is a connection from one process to another. What is sent on it arrives in order, or, when
the connection breaks, not at all: like ZeroMQ, a broken link reconnects silently and loses what was
in flight, the frame in transfer arriving torn or not at all. Cuts act on pairs of machines, in one
direction; they drop what is sent, or hold it back until they heal, as TCP does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.sim.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One end of a link.

    Attributes:
        name: Of the process, unique.
        machine: Number of the machine that it runs on.
    """

    name: str
    machine: int


@dataclass(frozen=True, slots=True)
class NetworkProfile:
    """How good the network is.

    Attributes:
        local_us: Longest latency within a machine.
        remote_us: Longest latency between machines.
        bytes_per_us: Bandwidth of a link.
    """

    local_us: int = 200
    remote_us: int = 2_000
    bytes_per_us: int = 1_000


@dataclass(slots=True)
class _Cut:
    """From machine `source` to machine `target` (None: any) until a time."""

    source: int | None
    target: int | None
    until_us: int
    holds: bool

    def matches(self, sender: Endpoint, receiver: Endpoint) -> bool:
        if sender.machine == receiver.machine:
            return False
        return (self.source is None or self.source == sender.machine) and (
            self.target is None or self.target == receiver.machine
        )


@dataclass(slots=True)
class _Link:
    """The state of a link.

    Attributes:
        last_us: Time of the last arrival.
        broken_us: What was sent until then is lost.
        held_until_us: Nothing arrives before.
    """

    last_us: int = 0
    broken_us: int = -1
    held_until_us: int = 0


class Network:
    """All links between processes."""

    def __init__(self, scheduler: Scheduler, profile: NetworkProfile) -> None:
        """An unharmed network."""
        self._scheduler = scheduler
        self._profile = profile
        self._links: dict[tuple[str, str], _Link] = {}
        self._cuts: list[_Cut] = []
        self._slow_until_us: dict[int, tuple[int, int]] = {}  # machine: (time, factor)
        self._lossy_until_us: dict[str, tuple[int, int]] = {}  # process: (time, one in so many)
        self.torn = 0

    def send(
        self,
        sender: Endpoint,
        receiver: Endpoint,
        size_bytes: int,
        deliver: Callable[[bool], None],
    ) -> None:
        """Call `deliver(is_torn)` when the frame arrives, unless it is lost."""
        scheduler = self._scheduler
        link = self._links.setdefault((sender.name, receiver.name), _Link())
        now_us = scheduler.now_us
        delay_us = self._latency_us(sender, receiver) + size_bytes // self._profile.bytes_per_us
        if self._is_lost(sender) or self._is_lost(receiver):
            return
        held_until_us = link.held_until_us
        for cut in self._present_cuts():
            if cut.matches(sender, receiver):
                if not cut.holds:
                    return
                held_until_us = max(held_until_us, cut.until_us)
        at_us = max(link.last_us + 1, max(now_us, held_until_us) + delay_us)
        before_us, link.last_us = link.last_us, at_us

        def arrive() -> None:
            if now_us > link.broken_us:
                deliver(False)
                return
            if before_us < link.broken_us:  # It was being transferred.
                self.torn += 1
                deliver(True)

        scheduler.after(at_us - now_us, arrive)

    def _is_lost(self, end: Endpoint) -> bool:
        until_us, one_in = self._lossy_until_us.get(end.name, (0, 1))
        if self._scheduler.now_us >= until_us:
            return False
        return self._scheduler.uniform(f"net/lost/{end.name}", 1, one_in) == 1

    def _latency_us(self, sender: Endpoint, receiver: Endpoint) -> int:
        profile = self._profile
        if sender.machine == receiver.machine:
            return self._scheduler.uniform(f"net/{sender.name}", 10, profile.local_us)
        latency_us = self._scheduler.uniform(f"net/{sender.name}", 50, profile.remote_us)
        slowest = 1
        for machine in (sender.machine, receiver.machine):
            until_us, factor = self._slow_until_us.get(machine, (0, 1))
            if self._scheduler.now_us < until_us:
                slowest = max(slowest, factor)
        return latency_us * slowest

    def _present_cuts(self) -> list[_Cut]:
        if self._cuts:
            self._cuts = [c for c in self._cuts if c.until_us > self._scheduler.now_us]
        return self._cuts

    # -- faults -------------------------------------------------------------------------------

    def break_links(self, process: str, until_us: int) -> None:
        """A process's connections break: lost is what is in flight and what is sent until a time,
        when they are there again."""
        for (sender, receiver), link in self._links.items():
            if process in (sender, receiver):
                link.broken_us = until_us

    def cut(self, source: int | None, target: int | None, until_us: int, *, holds: bool) -> None:
        """Cut machine `source` from `target` (None: from all), and lose what is in flight."""
        self._cuts.append(_Cut(source, target, until_us, holds))

    def lose(self, process: str, one_in: int, until_us: int) -> None:
        """A process's connections break and are there again at once: single frames are lost."""
        self._lossy_until_us[process] = (until_us, one_in)

    def hold_back(self, senders: Iterable[str], receiver: str, until_us: int) -> None:
        """What some processes send to one arrives later: it falls behind."""
        for sender in senders:
            self._links.setdefault((sender, receiver), _Link()).held_until_us = until_us

    def slow_down(self, machine: int, factor: int, until_us: int) -> None:
        """All links of a machine to others are slower by a factor."""
        self._slow_until_us[machine] = (until_us, factor)
