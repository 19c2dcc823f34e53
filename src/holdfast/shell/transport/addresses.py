"""Under which address a process is reached, and what its host is called.

Only IPv4: no socket of a run listens at an IPv6 address.
"""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from typing import Final, Protocol

import zmq

HOST_VARIABLE: Final = "HOLDFAST_HOST"
"""In an executor's environment: the name of its machine, where that is not its address: in pods."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where sockets may listen.

    Attributes:
        low: The least port.
        high: One above the greatest.
    """

    low: int = 49_152
    high: int = 65_536

    def bind(self, server: zmq.Socket[bytes], address: str) -> int:
        """Listen at a free port of these; which it is. Raises `zmq.ZMQError` if there is none."""
        place = f"tcp://{address}"
        with contextlib.suppress(zmq.ZMQBindError):  # After a hundred attempts by chance.
            return server.bind_to_random_port(place, min_port=self.low, max_port=self.high)
        for port in range(self.low, self.high):
            with contextlib.suppress(zmq.ZMQError):
                server.bind(f"{place}:{port}")
                return port
        raise zmq.ZMQBindError(f"no port of {address} from {self.low} to {self.high - 1} is free")


class Settings(Protocol):
    """What is asked of a `SparkConf`."""

    def get(self, key: str, default: str) -> str:
        """A setting."""
        ...


def driver_addresses(conf: Settings) -> tuple[str, str]:
    """Where the driver listens, and where others reach it: as Spark's own sockets."""
    host = conf.get("spark.driver.host", "") or socket.gethostname()
    reached = socket.gethostbyname(host)
    return conf.get("spark.driver.bindAddress", "") or reached, reached


def own_address(towards: str) -> str:
    """This process's address, for the others of its run.

    Args:
        towards: The endpoint of the driver. From the address by which the way there begins, the
            driver's host is reached, and so are the other executors. What Spark has been told
            (`SPARK_LOCAL_IP`) goes before. A host's own name often leads to loopback only.
    """
    told = os.environ.get("SPARK_LOCAL_IP", "")
    if told:
        return socket.gethostbyname(told)
    host, _, port = towards.removeprefix("tcp://").rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))  # Sends nothing; it only chooses the way.
        address: str = probe.getsockname()[0]
    return address


def machine_of(address: str) -> str:
    """What the machine of a process at this address is called: two on one fail together."""
    return os.environ.get(HOST_VARIABLE, "") or address
