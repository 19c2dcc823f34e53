"""What strangers, and peers gone bad, send to the sockets of a running query.

A *stranger* has no key, a wrong one, or that of another run; each attempt is one connection, and
must show as one refused handshake. A *peer gone bad* has this run's key and a connection of its
own; each of its frames must show as one refused frame. Neither may have any other effect.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from holdfast.shell.transport.channels import RunKeys
from holdfast.sim.draw import Draw

if TYPE_CHECKING:
    from holdfast_chaos.frame_material import Material

_GREETING: Final = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01%b" + b"\0" * 32
_READY: Final = b"\x04\x26\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
_TURNED_AWAY: Final = (
    zmq.EVENT_DISCONNECTED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)
_BATCH: Final = 40
"""Strangers that come at the same time."""
_FRAMES_PER_CONNECTION: Final = 500
_ATTEMPT_S: Final = 3.0
_GENUINE_S: Final = 120.0
_SEND_S: Final = 30.0

STRANGERS: Final = {
    "garbage": "random bytes, no greeting",
    "cut": "a greeting of CURVE, and a handshake that is cut short",
    "length": "a greeting, and a frame that says it has up to 2⁶³ bytes",
    "plain": "a whole handshake without a key, then a frame",
    "replayed": "the recorded bytes of a genuine session, once more",
    "no list": "the right server key, and a key pair nobody knows",
    "other run": "both keys of another run",
    "half open": "connects and says nothing",
    "slow": "a greeting, one byte at a time",
}
PEERS: Final = {
    "noise": "random parts",
    "flipped": "a genuine frame with a bit or two flipped",
    "cut frame": "a genuine frame cut short, with a part missing, or parts in another order",
    "replayed frame": "a genuine frame as it is, from a connection that is not its sender's",
    "made up": "a well-formed frame with other ids, in any order",
}


@dataclass(frozen=True, slots=True)
class Target:
    """One socket of a running query.

    Attributes:
        name: As in `Query.refused`.
        endpoint: Where it listens.
        keys: Those that it takes.
        material: Genuine frames for it.
    """

    name: str
    endpoint: str
    keys: RunKeys = field(repr=False)
    material: Material = field(repr=False)


@dataclass(slots=True)
class Sent:
    """What was sent: by target, strangers' attempts and bad peers' frames; and by kind."""

    handshakes: Counter[str] = field(default_factory=Counter)
    frames: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """All attempts and frames."""
        return self.handshakes.total() + self.frames.total()


class Attacker:
    """Attacks targets; everything it draws comes from a seed."""

    def __init__(self, targets: list[Target], seed: int) -> None:
        """Prepare; `close` ends what is still held open."""
        self._targets = targets
        self._draw = Draw(f"{seed}/attacks")
        self._recorded = {target.name: record_session(target) for target in targets}
        self._held: list[threading.Thread] = []
        self.sent = Sent()

    # -- strangers --------------------------------------------------------------------------

    def strangers(self, target: Target, kind: str, count: int) -> None:
        """So many attempts of a kind, one connection each."""
        if kind in ("half open", "slow"):
            self._hold(target, kind, count)
        elif kind in ("no list", "other run"):
            left = count
            while left:
                left -= self._knock(target, kind, min(_BATCH, left))
        else:
            for _ in range(count):
                _say(target.endpoint, self._speech(target, kind))
        self.sent.handshakes[target.name] += count
        self.sent.kinds[kind] += count

    def _speech(self, target: Target, kind: str) -> bytes:
        draw = self._draw
        curve = _GREETING % b"CURVE".ljust(20, b"\0")
        if kind == "garbage":
            return b"\x00" + draw_bytes(draw, draw.number(0, 2_000))
        if kind == "plain":
            word = draw_bytes(draw, draw.number(1, 200))
            return _GREETING % b"NULL".ljust(20, b"\0") + _READY + b"\0" + bytes([len(word)]) + word
        if kind == "length":
            size = struct.pack(">Q", draw.one_of((1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1)))
            return curve + draw.one_of((b"\x06", b"\x02", b"\x03")) + size + draw_bytes(draw, 500)
        if kind == "replayed":
            return self._recorded[target.name]
        whole = curve + b"\x04\xc8\x05HELLO\x01\0" + draw_bytes(draw, 192)
        return whole[: draw.number(1, len(whole))]

    def _knock(self, target: Target, kind: str, count: int) -> int:
        """Clients of libzmq itself, which do the handshake properly, with wrong keys.

        Returns:
            How many came to have a connection: a busy server's queue may be full.
        """
        context = zmq.Context()
        connected = 0
        try:
            waiting = {_stranger(context, target, kind) for _ in range(count)}
            deadline_s = time.monotonic() + _ATTEMPT_S
            while waiting and time.monotonic() < deadline_s:
                for channel, monitor in list(waiting):
                    while monitor.poll(1):
                        event = parse_monitor_message(monitor.recv_multipart())["event"]
                        connected += event == zmq.EVENT_CONNECTED
                        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                            raise AssertionError(f"{target.name} let a stranger in")
                        if event in _TURNED_AWAY:
                            waiting.discard((channel, monitor))
        finally:
            context.destroy(linger=0)
        return connected

    def _hold(self, target: Target, kind: str, count: int) -> None:
        """Connections that stay, in a thread of their own, until the server closes them."""
        greeting = b"" if kind == "half open" else _GREETING % b"CURVE".ljust(20, b"\0")

        def hold() -> None:
            connections = [_connect(target.endpoint) for _ in range(count)]
            for byte in greeting:
                for connection in connections:
                    with contextlib.suppress(OSError):
                        connection.send(bytes([byte]))
                time.sleep(0.2)  # One byte at a time is the attack.
            for connection in connections:
                _wait_for_end(connection)

        thread = threading.Thread(target=hold, name="held", daemon=True)
        thread.start()
        self._held.append(thread)

    # -- peers gone bad ---------------------------------------------------------------------

    def peers(self, target: Target, kind: str, count: int) -> None:
        """So many frames of a kind, by connections with this run's key."""
        for begin in range(0, count, _FRAMES_PER_CONNECTION):
            self._speak(target, kind, min(_FRAMES_PER_CONNECTION, count - begin))
        self.sent.frames[target.name] += count
        self.sent.kinds[kind] += count

    def _speak(self, target: Target, kind: str, count: int) -> None:
        frames = [self._frame(target, kind) for _ in range(count)]
        context = zmq.Context()
        try:
            channel = peer(context, target, target.material.identity(self._draw))
            channel.setsockopt(zmq.SNDTIMEO, int(_SEND_S * 1e3))
            for frame in frames:
                channel.send_multipart(frame)
        finally:
            context.destroy(linger=int(_SEND_S * 1e3))

    def _frame(self, target: Target, kind: str) -> list[bytes]:
        draw = self._draw
        if kind == "noise":
            return [draw_bytes(draw, draw.number(0, 400)) for _ in range(draw.number(1, 4))]
        if kind == "made up":
            return target.material.made_up(draw)
        frame = target.material.genuine(draw)
        if kind == "flipped":
            return flipped(frame, draw)
        return cut(frame, draw) if kind == "cut frame" else frame

    def close(self) -> None:
        """Wait for the connections that were held."""
        for thread in self._held:
            thread.join()


def flipped(frame: list[bytes], draw: Draw) -> list[bytes]:
    """One or two bits are others."""
    parts = [bytearray(part) for part in frame]
    filled = [part for part in parts if part]
    places: dict[tuple[int, int], None] = {}
    for _ in range(draw.number(1, 2)):
        number = draw.number(0, len(filled) - 1)
        places[(number, draw.number(0, len(filled[number]) * 8 - 1))] = None
    for number, bit in places:
        filled[number][bit // 8] ^= 1 << bit % 8
    return [bytes(part) for part in parts]


def cut(frame: list[bytes], draw: Draw) -> list[bytes]:
    """A part is shorter, missing, doubled, or in another place."""
    how = draw.number(0, 3) if len(frame) > 1 else draw.one_of((0, 2))
    number = draw.number(0, len(frame) - 1)
    if how == 0:
        long = max(range(len(frame)), key=lambda i: len(frame[i]))
        return [
            *frame[:long],
            frame[long][: draw.number(0, len(frame[long]) - 1)],
            *frame[long + 1 :],
        ]
    if how == 1:
        return [*frame[:number], *frame[number + 1 :]]
    if how == 2:
        return [*frame, frame[number]]
    return frame[1:] + frame[:1]


def draw_bytes(draw: Draw, count: int) -> bytes:
    """Random bytes."""
    return bytes(draw.number(0, 255) for _ in range(count)) if count < 64 else _many(draw, count)


def _many(draw: Draw, count: int) -> bytes:
    block = bytes(draw.number(0, 255) for _ in range(48))
    return (block * (count // len(block) + 1))[:count]


# -- connections ----------------------------------------------------------------------------


def peer(
    context: zmq.Context[zmq.Socket[bytes]], target: Target, identity: bytes
) -> zmq.Socket[bytes]:
    """A client with the run's keys."""
    return _client(context, target.endpoint, target.keys, identity)


def _client(
    context: zmq.Context[zmq.Socket[bytes]], endpoint: str, keys: RunKeys, identity: bytes
) -> zmq.Socket[bytes]:
    channel = context.socket(zmq.DEALER)
    channel.curve_serverkey = keys.server_public
    channel.curve_publickey = keys.client_public
    channel.curve_secretkey = keys.client_secret
    channel.setsockopt(zmq.IDENTITY, identity)
    channel.setsockopt(zmq.RECONNECT_IVL, -1)
    channel.connect(endpoint)
    return channel


def _stranger(
    context: zmq.Context[zmq.Socket[bytes]], target: Target, kind: str
) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
    """A client with wrong keys that is connecting, and its monitor."""
    other = RunKeys.generate()
    server = other.server_public if kind == "other run" else target.keys.server_public
    channel = context.socket(zmq.DEALER)
    channel.curve_serverkey = server
    channel.curve_publickey = other.client_public
    channel.curve_secretkey = other.client_secret
    channel.setsockopt(zmq.RECONNECT_IVL, -1)
    channel.setsockopt(zmq.LINGER, 0)
    monitor = channel.get_monitor_socket()
    channel.connect(target.endpoint)
    return channel, monitor


def _connect(endpoint: str) -> socket.socket:
    kind, _, address = endpoint.partition("://")
    if kind == "ipc":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        return connection
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def _say(endpoint: str, speech: bytes) -> None:
    """Connect, say it, hang up."""
    with _connect(endpoint) as connection, contextlib.suppress(OSError):
        connection.sendall(speech)


def _wait_for_end(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        connection.settimeout(20)
        while connection.recv(1 << 12):
            pass


def record_session(target: Target) -> bytes:
    """What a genuine client says from its greeting to the end of its handshake.

    The client comes by a relay that writes down what passes.
    """
    folder = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"hf-relay-{os.urandom(6).hex()}")
    said = bytearray()
    context = zmq.Context()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(folder)
        listener.listen(1)
        relay = threading.Thread(target=_relay, args=(listener, target.endpoint, said), daemon=True)
        relay.start()
        try:
            channel = _client(context, f"ipc://{folder}", target.keys, b"genuine")
            monitor = channel.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
            if not monitor.poll(int(_GENUINE_S * 1e3)):
                raise AssertionError(f"{target.name} did not let this run's key in")
        finally:
            context.destroy(linger=0)
            relay.join(_ATTEMPT_S)
            Path(folder).unlink()
    return bytes(said)


def _relay(listener: socket.socket, endpoint: str, said: bytearray) -> None:
    here, _ = listener.accept()
    with here, _connect(endpoint) as there:

        def back() -> None:
            with contextlib.suppress(OSError):
                while data := there.recv(1 << 12):
                    here.sendall(data)

        thread = threading.Thread(target=back, daemon=True)
        thread.start()
        with contextlib.suppress(OSError):
            while data := here.recv(1 << 12):
                said += data
                there.sendall(data)
        there.shutdown(socket.SHUT_RDWR)
        thread.join(_ATTEMPT_S)


def shares(total: int, parts: Iterator[str] | list[str]) -> dict[str, int]:
    """A total in nearly equal whole parts."""
    names = list(parts)
    each, rest = divmod(total, len(names))
    return {name: each + (place < rest) for place, name in enumerate(names)}


def wait_until(is_so: Callable[[], bool], timeout_s: float) -> bool:
    """Look until it is so; whether it came to be."""
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)  # Counts come with the nodes' reports.
    return True
