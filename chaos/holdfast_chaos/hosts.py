"""Hosts on one machine: network namespaces on a bridge, or addresses of the loopback device.

A host here is an address of its own, a disk of its own (a folder) and, in a namespace, a cable that
can be pulled out. Process ids and the file system are the machine's, so that whoever tests can
send a signal anywhere and read every log.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from typing import Final, Protocol

_PREFIX: Final = "hf"
_NETWORK: Final = "198.18"  # set aside for measuring network devices, RFC 2544
_DEVICES: Final = re.compile(rf"\b{_PREFIX}(\d+)[bvn]\d*\b")


class Hosts(Protocol):
    """A driver's host, number 0, and those of workers, from 1 on."""

    can_cut: bool

    def address(self, number: int) -> str:
        """The address of a host."""
        ...

    def command(self, number: int, command: list[str]) -> list[str]:
        """A command as it is run on a host."""
        ...

    def cut(self, number: int) -> None:
        """Cut a worker's host off from all others."""
        ...

    def heal(self, number: int) -> None:
        """Connect it again."""
        ...

    def close(self) -> None:
        """Take everything away; what runs there must have ended."""
        ...


class NamespaceHosts:
    """A network namespace for each worker, joined by a bridge; the driver is at the bridge itself.

    Needs root and `ip`. What a killed process of this kind has left behind is taken away first.
    """

    can_cut = True

    def __init__(self, workers: int) -> None:
        """Make them. Raises `OSError` where that is not possible."""
        _sweep()
        self._workers = workers
        self._pid = os.getpid()
        self._subnet = _free_subnet()
        try:
            self._make()
        except OSError:
            self.close()
            raise

    def _make(self) -> None:
        bridge = f"{_PREFIX}{self._pid}b"
        _ip(f"link add {bridge} type bridge")
        _ip(f"addr add {self.address(0)}/24 dev {bridge}")
        _ip(f"link set {bridge} up")
        for number in range(1, self._workers + 1):
            name, cable = self._namespace(number), self._cable(number)
            _ip(f"netns add {name}")
            _ip(f"link add {cable} type veth peer name eth0 netns {name}")
            _ip(f"link set {cable} master {bridge} up")
            _ip(f"-n {name} addr add {self.address(number)}/24 dev eth0")
            _ip(f"-n {name} link set eth0 up")
            _ip(f"-n {name} link set lo up")

    def _namespace(self, number: int) -> str:
        return f"{_PREFIX}{self._pid}n{number}"

    def _cable(self, number: int) -> str:
        return f"{_PREFIX}{self._pid}v{number}"

    def address(self, number: int) -> str:
        """The driver's ends in 1, those of workers follow from 11 on."""
        return f"{self._subnet}.{1 if number == 0 else 10 + number}"

    def command(self, number: int, command: list[str]) -> list[str]:
        """In the host's namespace; `ip` replaces itself by the command, so the process id stays."""
        return (
            command if number == 0 else ["ip", "netns", "exec", self._namespace(number), *command]
        )

    def cut(self, number: int) -> None:
        """Out of the switch: what is sent vanishes, and neither end is told."""
        _ip(f"link set {self._cable(number)} nomaster")

    def heal(self, number: int) -> None:
        """Into the switch again."""
        _ip(f"link set {self._cable(number)} master {_PREFIX}{self._pid}b")

    def close(self) -> None:
        """Namespaces take their cables with them."""
        _remove(str(self._pid))


class LoopbackHosts:
    """An address of the loopback device for each host. No host can be cut off."""

    can_cut = False

    def address(self, number: int) -> str:
        """All of 127.0.0.0/8 is this machine."""
        return f"127.0.0.{1 if number == 0 else 10 + number}"

    def command(self, number: int, command: list[str]) -> list[str]:
        """As it is."""
        del number
        return command

    def cut(self, number: int) -> None:
        """Not possible. Raises `OSError`."""
        raise OSError(f"host {number} has no network of its own: that needs root and iproute2")

    def heal(self, number: int) -> None:
        """Nothing is cut off."""

    def close(self) -> None:
        """Nothing was made."""


def make_hosts(workers: int) -> Hosts:
    """Hosts with a network of their own where the machine permits, else on loopback."""
    try:
        return NamespaceHosts(workers)
    except OSError:
        return LoopbackHosts()


def _ip(arguments: str) -> str:
    """Run `ip`. Raises `OSError` with what it said."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise OSError("network namespaces need root and iproute2")
    done = subprocess.run(["ip", *arguments.split()], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {arguments}: {done.stderr.strip()}")
    return done.stdout


def _free_subnet() -> str:
    """One that no device has an address in."""
    taken = _ip("-o addr")
    for number in range(256):
        subnet = f"{_NETWORK}.{number}"
        if f" {subnet}." not in taken:
            return subnet
    raise OSError(f"all networks below {_NETWORK} are in use")


def _sweep() -> None:
    """Take away what processes have left that are gone."""
    for pid in {match[1] for match in _DEVICES.finditer(_ip("-o link") + _ip("netns"))}:
        if not os.path.exists(f"/proc/{pid}"):
            _remove(pid)


def _remove(pid: str) -> None:
    """Delete all namespaces, and then the devices, of a process."""
    for listed, delete in (("netns", "netns del"), ("-o link", "link del")):
        with contextlib.suppress(OSError):
            found = _DEVICES.finditer(_ip(listed))
            for name in sorted({match[0] for match in found if match[1] == pid}):
                with contextlib.suppress(OSError):
                    _ip(f"{delete} {name}")
