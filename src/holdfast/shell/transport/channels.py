"""Sockets with CURVE and an enforced ZAP domain: a peer without this run's keys is refused.

CURVE alone admits any key pair; only a ZAP handler with a list of known keys authenticates. The
domain is enforced, so that a socket whose handler died refuses everybody.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator

_DOMAIN = b"holdfast"
_HANDSHAKE_MS = 5_000
MAX_FRAME_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The CURVE keys of one run. They travel inside Spark's task closures and nowhere else."""

    server_public: bytes
    server_secret: bytes = field(repr=False)
    client_public: bytes
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


class Channels:
    """One process's ZeroMQ context with its authenticator."""

    def __init__(self, keys: RunKeys) -> None:
        """Start the authenticator; call `close` at the end."""
        self._keys = keys
        self.context = zmq.Context()
        self._authenticator = ThreadAuthenticator(self.context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(
            _DOMAIN.decode(), credentials_provider=_KnownKeys(keys.client_public)
        )

    def server(self) -> zmq.Socket[bytes]:
        """A ROUTER that answers this run's clients only. Credit bounds what it queues."""
        socket = self.context.socket(zmq.ROUTER)
        socket.curve_server = True
        socket.curve_publickey = self._keys.server_public
        socket.curve_secretkey = self._keys.server_secret
        socket.zap_domain = _DOMAIN
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        _configure(socket)
        return socket

    def client(self, identity: bytes, endpoint: str) -> zmq.Socket[bytes]:
        """A DEALER connected to a server of this run."""
        socket = self.context.socket(zmq.DEALER)
        socket.curve_serverkey = self._keys.server_public
        socket.curve_publickey = self._keys.client_public
        socket.curve_secretkey = self._keys.client_secret
        socket.setsockopt(zmq.IDENTITY, identity)
        _configure(socket)
        socket.connect(endpoint)
        return socket

    def close(self) -> None:
        """Close everything at once; unsent frames are dropped."""
        self._authenticator.stop()
        self.context.destroy(linger=0)


def _configure(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    socket.setsockopt(zmq.RECONNECT_IVL, 10)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 100)
