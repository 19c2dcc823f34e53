"""A node's sockets: its own, those to its producers, and the one to the coordinator."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import zmq

from holdfast.core.haunit import events
from holdfast.core.haunit.life_events import Connect, Disconnect
from holdfast.core.model.shown_rows import newest_of
from holdfast.core.model.tuples import with_time
from holdfast.core.wire import frames, messages
from holdfast.core.wire.connection_rights import ConnectionRights
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.node_words import FromNode, decode_from_coordinator, encode
from holdfast.shell.transport.addresses import machine_of, own_address
from holdfast.shell.transport.channels import Channels
from holdfast.shell.transport.socket_folder import SocketFolder

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from holdfast.core.haunit.life import NodeLife
    from holdfast.core.machine import Stimulus
    from holdfast.core.model.ids import Incarnation, NodeId, StreamId
    from holdfast.core.model.shown_rows import Shown
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.shell.spark.meter import Meter
    from holdfast.shell.spark.task_spec import TaskSpec
    from holdfast.shell.spark.traffic import Traffic

_DRAIN_FRAMES = 64
_RECEIVERS_KNOWN = 4
"""Incarnations of a stream's receiver of which it is known where they are."""


class NodeChannels:
    """Sends what the node says, and decodes what it is told.

    Attributes:
        poller: What the loop waits for; others register their descriptors, too.
        endpoint: Where this node listens.
        host: The machine that it says it is on.
        coordinator_heard_s: When the coordinator last said something.
        refused_frames: No frames or words, or by a connection that may not say so.
    """

    def __init__(
        self, spec: TaskSpec, life: NodeLife, task_id: str, meter: Meter, traffic: Traffic
    ) -> None:
        """Open the node's own socket and connect to the coordinator."""
        self._spec = spec
        self._life = life
        self._meter = meter
        self._traffic = traffic
        self._folder = SocketFolder() if spec.is_local else None
        self._channels = Channels(spec.keys)
        self._server = self._channels.server(frames.UP_BYTES_MAX)
        self.host = socket.gethostname()
        self.endpoint = self._bind()
        self._coordinator = self.to_coordinator(task_id.encode())
        self.poller = zmq.Poller()
        self.poller.register(self._server, zmq.POLLIN)
        self.poller.register(self._coordinator, zmq.POLLIN)
        self._producers: dict[NodeId, zmq.Socket[bytes]] = {}
        self._rights = ConnectionRights(spec.plan)
        # Of each incarnation of an output stream's receiver that has subscribed: a zombie that
        # subscribes again must not draw away what is meant for its successor.
        self._identity_of: dict[tuple[StreamId, Incarnation], bytes] = {}
        self._edge_streams = spec.plan.edge_streams()
        self._schemas: dict[StreamId, pa.Schema] = {
            **{stream: with_time(of) for stream, of in spec.plan.input_schemas().items()},
            **output_schemas(spec),
        }
        self.coordinator_heard_s = time.monotonic()
        self.refused_frames = 0
        self._newest: dict[StreamId, TupleBatch] = {}  # sent, for those who want to look

    def _bind(self) -> str:
        if self._folder is not None:
            endpoint = f"ipc://{self._folder.path}/node"
            self._server.bind(endpoint)
            return endpoint
        address = own_address(self._spec.coordinator)
        self.host = machine_of(address)
        return f"tcp://{address}:{self._spec.ports.bind(self._server, address)}"

    def to_coordinator(self, identity: bytes) -> zmq.Socket[bytes]:
        """Another connection to the coordinator; of the thread that asks for it."""
        return self._channels.client(identity, self._spec.coordinator)

    @property
    def refused_handshakes(self) -> int:
        """Connections by others than members of this run."""
        return self._channels.refused_handshakes

    # -- what comes -------------------------------------------------------------------------

    def drain(self, channel: zmq.Socket[bytes]) -> Iterator[Stimulus]:
        """Some of what has come on a channel, decoded."""
        for _ in range(_DRAIN_FRAMES):
            try:
                parts = channel.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if channel is self._coordinator:
                stimulus: Stimulus | None = self._word(parts)
            elif channel is self._server:
                stimulus = self._frame(parts[1:], parts[0].bytes)
            else:
                peers = (peer for peer, there in self._producers.items() if there is channel)
                stimulus = self._frame(parts, None, next(peers, None))
            if stimulus is None:
                self.refused_frames += 1
            else:
                yield stimulus

    def _word(self, parts: list[zmq.Frame]) -> Stimulus | None:
        word = decode_from_coordinator([part.bytes for part in parts])
        if isinstance(word, CorruptFrame):
            return None
        self.coordinator_heard_s = time.monotonic()
        return word

    def _frame(
        self, parts: list[zmq.Frame], identity: bytes | None, producer: NodeId | None = None
    ) -> Stimulus | None:
        """`identity`: of a receiver's connection; or else `producer`: whose it is."""
        began_ns = time.monotonic_ns()
        message = frames.decode([part.buffer for part in parts], self._schemas, self._life.epoch)
        self._meter.decoded((time.monotonic_ns() - began_ns) // 1000)
        if isinstance(message, CorruptFrame):
            return None
        if identity is None:
            if producer is None or self._rights.from_producer(producer, message) is None:
                return message
            return None
        if self._rights.from_receiver(identity, message) is not None:
            return None
        if isinstance(message, events.SubscribeReceived):
            self._remember_receiver(message.stream, message.sender, identity)
        self._traffic.answered(message, parts)
        return message

    def _remember_receiver(self, stream: StreamId, sender: Incarnation, identity: bytes) -> None:
        """A receiver may have two replicas, and each of them a zombie."""
        self._identity_of.pop((stream, sender), None)
        self._identity_of[(stream, sender)] = identity
        known = [key for key in self._identity_of if key[0] == stream]
        for former in known[:-_RECEIVERS_KNOWN]:
            del self._identity_of[former]

    # -- what goes --------------------------------------------------------------------------

    def say(self, word: FromNode) -> int:
        """A word to the coordinator; returns its size in bytes."""
        text = encode(word)
        self._coordinator.send(text)
        return len(text)

    def send_down(self, effect: messages.Down) -> None:
        """To the receiver's replica that has subscribed as this incarnation, if it has."""
        if type(effect) is events.SendBatch:
            self._newest[effect.stream] = effect.batch
        identity = self._identity_of.get((effect.stream, effect.receiver))
        if identity is None:
            return
        message = messages.message_of(effect, self._life.incarnation)
        parts = frames.encode(message, self._life.epoch, self._edge_streams)
        self._server.send_multipart([identity, *parts], copy=len(parts) == 1)
        secondary = self._life.told_secondary(self._rights.receiver_of[effect.stream])
        self._traffic.sent(effect, parts, to_secondary=secondary == effect.receiver)

    def newest_rows(self) -> list[Shown]:
        """The rows that were sent last to each receiver."""
        receiver_of = self._rights.receiver_of
        sent = [(receiver_of[stream], batch) for stream, batch in self._newest.items()]
        return [row for to, batch in sent for row in newest_of(batch, to)]

    def send_up(self, effect: messages.Up) -> None:
        """To the producer's primary, if there is a channel to it."""
        channel = self._producers.get(self._rights.producer_of[effect.stream])
        if channel is not None:
            message = messages.message_of(effect, self._life.incarnation)
            channel.send_multipart(frames.encode(message, self._life.epoch))

    # -- channels ---------------------------------------------------------------------------

    def connect(self, effect: Connect) -> None:
        """Open a channel to a producer, or to the primary of this node itself."""
        self._close(effect.peer)
        identity = f"{self._spec.plan.node}|{self._life.incarnation}|{effect.incarnation}"
        channel = self._channels.client(identity.encode(), effect.endpoint)
        self._producers[effect.peer] = channel
        self.poller.register(channel, zmq.POLLIN)

    def disconnect(self, effect: Disconnect) -> None:
        """Close the channel to a peer, if there is one."""
        self._close(effect.peer)

    def _close(self, peer: NodeId) -> None:
        former = self._producers.pop(peer, None)
        if former is not None:
            self.poller.unregister(former)
            former.close(linger=0)

    def close(self) -> None:
        """Close all sockets."""
        self._channels.close()
        if self._folder is not None:
            self._folder.close()


def output_schemas(spec: TaskSpec) -> dict[StreamId, pa.Schema]:
    """Of all output streams, in the order of the plan."""
    return {s: with_time(output.schema) for output in spec.plan.outputs for s in output.streams}
