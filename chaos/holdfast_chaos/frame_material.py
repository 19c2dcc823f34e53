"""Genuine frames for the sockets of a running query, as their peers would send them at this moment.

Whoever is to be attacked must get something worth attacking with: the right epoch, incarnations and
streams. What a peer says would end streams, move acknowledgements, replace nodes or delete
checkpoints, if it were taken from a connection that is not that peer's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from holdfast.core.chunks import messages as m
from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.reports import GapReported
from holdfast.core.haunit import events
from holdfast.core.model.ids import END_US, Incarnation, NodeId, StreamId
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.wire import chunk_words, frames, node_words
from holdfast_chaos.attacks import Target, draw_bytes

if TYPE_CHECKING:
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.wire.messages import NodeMessage
    from holdfast.driver.query import Query
    from holdfast.shell.spark.launch import Cluster
    from holdfast.sim.draw import Draw

_FAR = 1 << 40


class Material(Protocol):
    """Frames for one socket."""

    def identity(self, draw: Draw) -> bytes:
        """Of a new connection; never that of a genuine one."""
        ...

    def genuine(self, draw: Draw) -> list[bytes]:
        """What a peer would send now."""
        ...

    def made_up(self, draw: Draw) -> list[bytes]:
        """Well formed, with other ids."""
        ...


def targets_of(query: Query) -> list[Target]:
    """All sockets of a query whose nodes are up: coordinator, nodes, chunk master, data nodes."""
    cluster = query._cluster
    keys = cluster._keys
    targets = [Target("coordinator", cluster._reached_at, keys, _Words(cluster))]
    for plan in cluster._spec.plans:
        endpoint = cluster.instance(plan.node).primary.endpoint
        targets.append(Target(plan.node, endpoint, keys, _Frames(cluster, plan)))
    chunks = query._running.chunks
    if chunks is None or chunks.spec is None:
        return targets
    machine = chunks._service._machine
    spec = chunks.spec
    targets.append(Target("chunk master", spec.master, spec.keys, _StoreWords(machine)))
    for record in machine.directory.live():
        target = Target(record.name, record.endpoint, spec.keys, _Pieces(record.incarnation))
        targets.append(target)
    return targets


class _Words:
    """What nodes say to the coordinator, by connections that are not theirs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def identity(self, draw: Draw) -> bytes:
        """Some look like a task of a node, of the present launch, in another process."""
        if draw.percent(30):
            return b"bad-" + os.urandom(6).hex().encode()
        node = draw.one_of(self._cluster._spec.plans).node
        launch = self._cluster.instance(node).primary.launch
        return f"{node}|{launch}|{1 << 30}|{draw.number(1, 1 << 60)}".encode()

    def genuine(self, draw: Draw) -> list[bytes]:
        node = draw.one_of(self._cluster._spec.plans).node
        return [node_words.encode(draw.one_of(self._words_of(node)))]

    def _words_of(self, node: NodeId) -> list[node_words.FromNode]:
        """All kinds that would change something, as the node's primary would say them."""
        instance = self._cluster.instance(node)
        primary, pid = instance.primary, self._cluster.history.reports[node].pid
        own, task = primary.incarnation, primary.task or f"{node}|{primary.launch}|{pid}|1"
        found: list[node_words.FromNode] = [
            c.NodeFinished(node, own),
            c.NodeFailed(node, own, "made up", is_fatal=True),
            c.NodePromoted(node, own),
            c.NodeCaughtUp(node, own, 7),
            c.KeepAliveReceived(node, own, {}, has_joined=True),
            GapReported(node, own, StreamId("x"), 1, 2),
            c.HelloReceived(node, primary.launch, task, primary.endpoint, "elsewhere"),
        ]
        point = self._cluster.registry.newest(node)
        if point is not None:
            found.append(c.RestartPointReceived(node, own, point))
        return found

    def made_up(self, draw: Draw) -> list[bytes]:
        node = draw.one_of(self._cluster._spec.plans).node
        word = draw.one_of(self._words_of(node))
        if isinstance(word, c.HelloReceived):
            word = replace(word, launch=word.launch + draw.number(1, 3))
        else:
            own = (node, word.incarnation)
            short: list[node_words.FromNode] = [c.WriteWanted(*own), c.WriteEnded(*own)]
            word = draw.one_of([*short, c.FirstOutput(*own), c.NodeFinished(*own)])
        return [node_words.encode(word)]


class _Frames:
    """What neighbours say to a node; all of it comes by a receiver's kind of connection."""

    def __init__(self, cluster: Cluster, plan: NodePlan) -> None:
        self._cluster = cluster
        self._plan = plan

    def identity(self, draw: Draw) -> bytes:
        """Of a node that exists, or of nobody; never of a receiver of this one."""
        names = [plan.node for plan in self._cluster._spec.plans]
        others = [n for n in names if n not in (*self._plan.receivers(), self._plan.node)]
        name = draw.one_of(others) if others and draw.percent(50) else "bad"
        return f"{name}|{draw.number(1, 9)}|{os.urandom(6).hex()}".encode()

    def _ends(self, peer: NodeId | None, own: Incarnation) -> tuple[Incarnation, Incarnation]:
        node = self._plan.node if peer is None else peer
        return self._cluster.instance(node).primary.incarnation, own

    def _messages(self, draw: Draw) -> NodeMessage:
        plan, own = self._plan, self._cluster.instance(self._plan.node).primary.incarnation
        makers: list[Callable[[], NodeMessage]] = []
        for spec in plan.outputs:
            for stream, receiver in zip(spec.streams, spec.receivers, strict=False):
                makers += [
                    _up(stream, self._ends(receiver, own), is_ack=True),
                    _up(stream, self._ends(receiver, own), is_ack=False),
                ]
        for source in plan.inputs:
            ends = self._ends(source.producer, own)
            makers += _down(source.stream, ends, with_time(source.schema))
        position = events.PositionsReceived(plan.replica_stream, own, own, ((5, 5),))
        makers.append(lambda: position)
        return draw.one_of(makers)()

    def _encoded(self, message: NodeMessage) -> list[bytes]:
        epoch = self._cluster._machine.epoch
        return [bytes(memoryview(part)) for part in frames.encode(message, epoch)]

    def genuine(self, draw: Draw) -> list[bytes]:
        return self._encoded(self._messages(draw))

    def made_up(self, draw: Draw) -> list[bytes]:
        message = self._messages(draw)
        incarnations = (Incarnation(draw.number(1, 5)), Incarnation(draw.number(1, 5)))
        message = replace(message, sender=incarnations[0], receiver=incarnations[1])
        if isinstance(message, events.AckReceived):
            far = draw.number(0, _FAR)
            message = replace(message, received_before=far, needed_from=far, credit_until=_FAR)
        elif isinstance(message, events.BatchReceived):
            moved = replace(message.batch, first_id=draw.number(0, _FAR))
            message = replace(message, batch=moved)
        return self._encoded(message)


def _up(
    stream: StreamId, ends: tuple[Incarnation, Incarnation], *, is_ack: bool
) -> Callable[[], NodeMessage]:
    if is_ack:
        return lambda: events.AckReceived(stream, *ends, 1_000, 1_000, 2_000)
    return lambda: events.SubscribeReceived(stream, *ends, 0, 0, 1_000)


def _down(
    stream: StreamId, ends: tuple[Incarnation, Incarnation], schema: pa.Schema
) -> list[Callable[[], NodeMessage]]:
    rows = pa.RecordBatch.from_arrays(
        [pa.nulls(3, field.type) for field in schema],
        schema=pa.schema([field.with_nullable(True) for field in schema]),
    )
    batch = TupleBatch(0, rows, 0, 0)
    return [
        lambda: events.BatchReceived(stream, *ends, batch),
        lambda: events.BoundaryReceived(stream, *ends, 0, END_US),
    ]


class _StoreWords:
    """What data nodes and clients say to the chunk master."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine

    def identity(self, draw: Draw) -> bytes:
        if draw.percent(50):
            return b"bad-" + os.urandom(6).hex().encode()
        return f"data-0|1|{1 << 30}|{draw.number(1, 1 << 60)}".encode()

    def genuine(self, draw: Draw) -> list[bytes]:
        record = draw.one_of(list(self._machine.directory.live()))
        names = list(self._machine.directory.objects) or ["a-1/1.manifest"]
        me = (record.name, record.incarnation)
        stored = m.StoredChunk(m.chunk_id(1, draw.number(1, 9)), 9, 9)
        words: Sequence[m.Message] = (
            m.DataNodeAlive(record.name, record.task, record.incarnation),
            m.InventoryReported(*me, record.sequence + 1, (), ()),
            m.ChunkStored(*me, record.sequence + 1, stored),
            m.ChunksDeleted(*me, record.sequence + 1, (stored.chunk,)),
            m.ObjectDeleteRequested("0" * 24, 1, draw.one_of(names)),
            m.UploadAborted("0" * 24, "0" * 24),
        )
        return chunk_words.encode(draw.one_of(words))

    def made_up(self, draw: Draw) -> list[bytes]:
        frame = self.genuine(draw)
        values = json.loads(frame[0])
        return [json.dumps([values[0], *values[1:-1], values[-1], draw.number(0, 9)]).encode()]


class _Pieces:
    """What clients say to a data node. A whole piece is anybody's to send: none of these is."""

    def __init__(self, incarnation: int) -> None:
        self._incarnation = incarnation

    def identity(self, draw: Draw) -> bytes:
        return f"bad-{draw.number(1, 1 << 60)}".encode()

    def _piece(self, draw: Draw) -> list[bytes]:
        data = draw_bytes(draw, draw.number(1, 3_000))
        chunk = m.chunk_id(1, draw.number(1, 50))
        number = draw.number(1, 1 << 40)
        return chunk_words.encode(m.Piece(chunk, number, self._incarnation, 0, 1, (), data))

    def genuine(self, draw: Draw) -> list[bytes]:
        """A piece whose checksum is of other data; and, after that, what bits and cuts do to it."""
        header, chain, data = self._piece(draw)
        return [header, chain, data[:-1] + bytes([data[-1] ^ 1])]

    def made_up(self, draw: Draw) -> list[bytes]:
        """A word for the master."""
        return chunk_words.encode(m.UploadAborted("0" * 24, str(draw.number(0, _FAR))))
