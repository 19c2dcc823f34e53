"""Sockets with CURVE and an enforced ZAP domain: a peer without this run's keys is refused.

CURVE alone admits any key pair; only a ZAP handler with a list of known keys authenticates. The
domain is enforced, so that a socket whose handler died refuses everybody. Who is refused is
counted: every connection that was accepted and has not proved its key, whatever it sent.
"""

from __future__ import annotations

import hmac
import logging
import threading
from dataclasses import dataclass, field
from itertools import count

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils.monitor import parse_monitor_message

_DOMAIN = b"holdfast"
_HANDSHAKE_MS = 5_000
_WAITING_MAX = 1_000
"""Frames of one connection that a server holds; what comes after them waits at the sender."""
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_MONITOR_STOPPED
_BACKLOG = 1_000
_LOOK_MS = 2_000
MAX_FRAME_BYTES = 256 << 20
"""Of a frame from a server that has proved its key."""

_SILENT = logging.Logger("holdfast.keys", logging.CRITICAL + 1)
"""ZAP's handler would log keys, if only public ones and when told to be verbose."""


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The CURVE keys of one run. They travel inside Spark's task closures and nowhere else."""

    server_public: bytes = field(repr=False)
    server_secret: bytes = field(repr=False)
    client_public: bytes = field(repr=False)
    client_secret: bytes = field(repr=False)

    @staticmethod
    def generate() -> RunKeys:
        """Fresh keys."""
        server_public, server_secret = zmq.curve_keypair()
        client_public, client_secret = zmq.curve_keypair()
        return RunKeys(server_public, server_secret, client_public, client_secret)


class _KnownKeys:
    """Admits the clients of this run, nobody else."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def callback(self, domain: str, key: bytes) -> bool:
        return hmac.compare_digest(key, self._public)


class _Doorkeeper:
    """Counts who comes to a server, and who is let in; a thread of its own."""

    _numbers = count()

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], server: zmq.Socket[bytes]) -> None:
        self.accepted = 0
        self.admitted = 0
        self._is_over = False
        self._server = server
        address = f"inproc://holdfast-door-{next(self._numbers)}"
        server.monitor(address, _EVENTS)
        self._events = context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.RCVHWM, 0)  # Else a flood would hold up the server itself.
        self._events.connect(address)
        self._thread = threading.Thread(target=self._run, name="doorkeeper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over:
            if not self._events.poll(_LOOK_MS):
                continue
            event = parse_monitor_message(self._events.recv_multipart())["event"]
            self.accepted += event == zmq.EVENT_ACCEPTED
            self.admitted += event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        self._events.close(linger=0)

    def close(self) -> None:
        self._is_over = True
        self._server.disable_monitor()  # Says so to the thread, which looks at once.
        self._thread.join()


class Channels:
    """One process's ZeroMQ context with its authenticator."""

    def __init__(self, keys: RunKeys) -> None:
        """Start the authenticator; call `close` at the end."""
        self._keys = keys
        self.context = zmq.Context()
        self._doors: list[_Doorkeeper] = []
        self._authenticator = ThreadAuthenticator(self.context, log=_SILENT)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(
            _DOMAIN.decode(), credentials_provider=_KnownKeys(keys.client_public)
        )

    def server(self, frame_bytes_max: int) -> zmq.Socket[bytes]:
        """A ROUTER that answers this run's clients only.

        Args:
            frame_bytes_max: Longer frames close their connection. Memory for a frame is taken by
                the length that a peer states, before it has proved its key: so this is small.
        """
        socket = self.context.socket(zmq.ROUTER)
        socket.curve_server = True
        socket.curve_publickey = self._keys.server_public
        socket.curve_secretkey = self._keys.server_secret
        socket.zap_domain = _DOMAIN
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        socket.setsockopt(zmq.BACKLOG, _BACKLOG)
        _configure(socket, frame_bytes_max)
        socket.setsockopt(zmq.RCVHWM, _WAITING_MAX)
        self._doors.append(_Doorkeeper(self.context, socket))
        return socket

    def client(self, identity: bytes, endpoint: str) -> zmq.Socket[bytes]:
        """A DEALER connected to a server of this run. Credit bounds what it queues."""
        socket = self.context.socket(zmq.DEALER)
        socket.curve_serverkey = self._keys.server_public
        socket.curve_publickey = self._keys.client_public
        socket.curve_secretkey = self._keys.client_secret
        socket.setsockopt(zmq.IDENTITY, identity)
        _configure(socket, MAX_FRAME_BYTES)
        socket.connect(endpoint)
        return socket

    @property
    def refused_handshakes(self) -> int:
        """Connections to this process's servers that have not proved this run's key.

        Those that are still at it are among them, for `_HANDSHAKE_MS` at most.
        """
        return sum(max(0, door.accepted - door.admitted) for door in self._doors)

    def close(self) -> None:
        """Close everything at once; unsent frames are dropped."""
        for door in self._doors:
            door.close()
        self._authenticator.stop()
        self.context.destroy(linger=0)


def _configure(socket: zmq.Socket[bytes], frame_bytes_max: int) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes_max)
    socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, 60)
    socket.setsockopt(zmq.RECONNECT_IVL, 10)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 100)
