"""One process's connections to data nodes, opened when needed and closed when idle.

What was sent to a data node that is gone waits in its socket; closing the socket drops it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import zmq

    from holdfast.shell.transport.channels import Channels

_IDLE_S: Final = 20.0


class Lines:
    """Sockets by endpoint. For one thread at a time."""

    def __init__(self, channels: Channels, identity: bytes) -> None:
        """Connect to nobody yet; `identity` is unique among those who use the same endpoints."""
        self._channels = channels
        self._identity = identity
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self._used_s: dict[str, float] = {}

    def to(self, endpoint: str) -> zmq.Socket[bytes]:
        """The connection to an endpoint."""
        socket = self._sockets.get(endpoint)
        if socket is None:
            socket = self._sockets[endpoint] = self._channels.client(self._identity, endpoint)
        self._used_s[endpoint] = time.monotonic()
        return socket

    def sockets(self) -> list[zmq.Socket[bytes]]:
        """All connections."""
        return list(self._sockets.values())

    def close_idle(self, keep: zmq.Socket[bytes]) -> None:
        """Close connections not used for a while, but one."""
        now_s = time.monotonic()
        for endpoint, used_s in list(self._used_s.items()):
            if now_s - used_s > _IDLE_S and self._sockets[endpoint] is not keep:
                self._sockets.pop(endpoint).close(linger=0)
                del self._used_s[endpoint]

    def close(self) -> None:
        """Close all; what was not sent is dropped."""
        for socket in self._sockets.values():
            socket.close(linger=0)
        self._sockets.clear()
        self._used_s.clear()
