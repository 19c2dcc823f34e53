"""Servers of tests and benchmarks: on free ports, launched again if they end while coming up."""

from __future__ import annotations

import itertools
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from holdfast.errors import HoldfastError

_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_BY_IANA: Final = "49152 65535"
_LOWEST: Final = 10_000  # Well-known services and most databases listen below.
_LAUNCHES_MAX: Final = 4
_POLL_S: Final = 0.05
_LINES_SHOWN: Final = 20


class ServerFailed(HoldfastError):
    """A server ended each time it was launched, or did not come up in time."""


def candidates(ephemeral: str) -> range:
    """The ports that no outgoing connection takes, as the kernel says its range for these."""
    first, last = map(int, ephemeral.split())
    below, above = range(_LOWEST, first), range(last + 1, 1 << 16)
    widest = below if len(below) >= len(above) else above
    return widest or range(_LOWEST, 1 << 16)


def _in_turn() -> Iterable[int]:
    """All candidates again and again, from one by chance on: no process gives one twice in a row.

    Other processes begin elsewhere.
    """
    text = _EPHEMERAL.read_text() if _EPHEMERAL.exists() else _EPHEMERAL_BY_IANA
    ports = candidates(text)
    begin = random.randrange(len(ports))
    return itertools.cycle([*ports[begin:], *ports[:begin]])


_NEXT: Final = iter(_in_turn())


def free_port(address: str = "127.0.0.1") -> int:
    """A port of an address at which nobody listens.

    No outgoing connection takes it before it is bound. Another process may: a `Server` is launched
    again then.
    """
    for port in _NEXT:
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return port
    raise AssertionError("a cycle has no end")


class Server:
    """A process that needs ports of its own, and is launched again if it ends while coming up.

    Attributes:
        process: Its present life.
    """

    def __init__(self, name: str, log: Path, launch: Callable[[], subprocess.Popen[bytes]]) -> None:
        """Launch it.

        Args:
            name: What people call it.
            log: What it says; its end stands in errors.
            launch: Starts the process, each time on new free ports where it can.
        """
        self._name = name
        self._log = log
        self._launch = launch
        self._launches_left = _LAUNCHES_MAX - 1
        self.process = launch()

    def relaunch_if_ended(self) -> bool:
        """Whether it had ended and was launched again.

        Raises:
            ServerFailed: That was the last try, or it had come up already.
        """
        status = self.process.poll()
        if status is None:
            return False
        if self._launches_left == 0:
            raise ServerFailed(f"the {self._name} has ended with {status}; {self.last_words()}")
        self._launches_left -= 1
        self.process = self._launch()
        return True

    def has_come_up(self) -> None:
        """From now on its end is a failure."""
        self._launches_left = 0

    def last_words(self) -> str:
        """The end of its log."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join([f"{self._log} ends:", *lines[-_LINES_SHOWN:]])

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        self.process.wait()


def wait_until(
    is_up: Callable[[], bool], servers: Iterable[Server], what: str, timeout_s: float
) -> None:
    """Wait until something holds and all these servers run; who has ended is launched again.

    Args:
        is_up: May raise `OSError` or `ValueError` while nobody answers properly.
        servers: Who is needed for it.
        what: Of which people would say that it comes up.
        timeout_s: As long at most.

    Raises:
        ServerFailed: One of them ends each time it is launched, or time is up.
    """
    watched = [*servers]
    deadline_s = time.monotonic() + timeout_s
    while True:
        holds = _holds(is_up)  # Perhaps by the word of somebody else, whose port ours wanted.
        if not any(server.relaunch_if_ended() for server in watched) and holds:
            for server in watched:
                server.has_come_up()
            return
        if time.monotonic() > deadline_s:
            said = "\n".join(server.last_words() for server in watched)
            raise ServerFailed(f"{what} did not come up within {timeout_s:.0f} s; {said}")
        time.sleep(_POLL_S)


def _holds(is_up: Callable[[], bool]) -> bool:
    try:
        return is_up()
    except (OSError, ValueError):
        return False


def accepts(port: int, address: str = "127.0.0.1") -> bool:
    """Whether somebody listens at a port."""
    try:
        socket.create_connection((address, port), 10).close()
    except OSError:
        return False
    return True
