"""The links of a simulated process to those of other nodes: frames, and who is at the other end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.haunit import events
from holdfast.core.model.tuples import with_time
from holdfast.core.wire import frames, messages
from holdfast.core.wire.frames import CorruptFrame

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.haunit.life_events import Connect, Disconnect
    from holdfast.core.model.ids import Incarnation, NodeId, StreamId
    from holdfast.sim.network import Endpoint
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_FRAME_BYTES = 64
_NOTE_BYTES = 16


class ProcessChannels:
    """Sends the frames of one process, and takes those that come for it.

    Attributes:
        peers: The processes of producers, and of this node's primary.
    """

    def __init__(self, process: Process, world: World) -> None:
        """Nobody is connected."""
        self._process = process
        self._world = world
        self._scheduler = world.scheduler
        self.peers: dict[NodeId, Endpoint] = {}
        self._subscriber: dict[tuple[StreamId, Incarnation], Endpoint] = {}
        plan = process.plan
        self._producer_of = plan.producer_of()
        self._producer_of[plan.replica_stream] = process.node
        self._schemas: dict[StreamId, pa.Schema] = {
            stream: with_time(schema) for stream, schema in plan.input_schemas().items()
        }
        self._output_schemas: dict[StreamId, pa.Schema] = {
            stream: with_time(o.schema) for o in plan.outputs for stream in o.streams
        }

    def connect(self, effect: Connect) -> None:
        """A peer is reached through this process from now on."""
        self.peers[effect.peer] = self._world.processes[effect.endpoint].endpoint

    def disconnect(self, effect: Disconnect) -> None:
        """A peer is not reached any more."""
        self.peers.pop(effect.peer, None)

    def send(self, effect: messages.Down) -> None:
        """To a receiver."""
        size = _FRAME_BYTES
        if isinstance(effect, events.SendBatch):
            size += effect.batch.nbytes + _NOTE_BYTES * len(effect.notes)
        elif isinstance(effect, events.SendNotes):
            size += _NOTE_BYTES * len(effect.notes)
        elif isinstance(effect, events.SendPageRun):
            size += effect.run.nbytes
        elif isinstance(effect, events.SendDelta):
            size += sum(batch.nbytes for _, batch in effect.delta.batches)
        message = messages.message_of(effect, self._process.incarnation)
        self._send_down(effect.stream, effect.receiver, message, size)

    def answer(self, effect: messages.Up) -> None:
        """To who sends a stream."""
        self._send_up(effect.stream, messages.message_of(effect, self._process.incarnation))

    def _send_down(
        self, stream: StreamId, receiver: Incarnation, stimulus: messages.NodeMessage, size: int
    ) -> None:
        """To the process of that incarnation which subscribed, if it is still connected to us."""
        target = self._subscriber.get((stream, receiver))
        if target is None:
            return
        own = self._process.endpoint
        if self._world.processes[target.name].channels.peers.get(self._process.node) == own:
            self._transmit(target, stimulus, size)

    def _send_up(self, stream: StreamId, stimulus: messages.NodeMessage) -> None:
        channel = self.peers.get(self._producer_of[stream])
        if channel is not None:
            self._transmit(channel, stimulus, _FRAME_BYTES)

    def _transmit(self, target: Endpoint, stimulus: messages.NodeMessage, size_bytes: int) -> None:
        receiver = self._world.processes.get(target.name)
        if receiver is None:
            return
        epoch, sender = self._process.core.epoch, self._process.endpoint
        self._world.strikes.remember_frame(receiver.node, epoch, stimulus)

        def deliver(is_torn: bool) -> None:
            receiver.channels.receive(stimulus, epoch, sender, is_torn=is_torn)

        self._world.network.send(sender, target, size_bytes, deliver)

    def receive(
        self, stimulus: messages.NodeMessage, epoch: int, sender: Endpoint, *, is_torn: bool
    ) -> None:
        """A frame arrives; what `frames.decode` refuses has no effect."""
        if self._process.is_dead or not self._process.incarnation:
            return
        if is_torn or self._world.uses_codec:
            decoded = self._decoded(stimulus, epoch, is_torn=is_torn)
            if isinstance(decoded, CorruptFrame):
                self._world.count("corrupt frame refused")
                return
            stimulus = decoded
        elif epoch != self._process.core.epoch:
            return
        if isinstance(stimulus, events.SubscribeReceived):
            self._subscriber[(stimulus.stream, stimulus.sender)] = sender
        self._process.take(stimulus)

    def _decoded(
        self, stimulus: messages.NodeMessage, epoch: int, *, is_torn: bool
    ) -> messages.NodeMessage | CorruptFrame:
        streams = self._process.plan.edge_streams()
        parts = [bytes(memoryview(part)) for part in frames.encode(stimulus, epoch, streams)]
        if is_torn:
            last = parts[-1]
            parts[-1] = last[: self._scheduler.uniform("net/torn", 0, len(last) - 1)]
        return frames.decode(parts, self._schemas | self._output_schemas, self._process.core.epoch)
