"""The network as a graph, and what is left of it in a timestep. [SGuard §5]

Theory of operation. A `NetworkGraph` is a `NetworkModel` as the directed graph of the paper's
Figure 5, with numbered edges:

    send_i --1--> up_i --0--> switch_u --0--> down_j --1--> receive_j
                                 switch_u --1--> switch_v
                  up_i --0--> store_in --1--> store

A physical connection costs 1, a connection inside a switch 0. An edge's capacity stands for
whatever is scarce there, disk or network: the edge into `receive_j` usually for the disk of j. The
last line is for writes to an outside store, which places data itself: only what leaves the writer
and what the store takes is counted.

A `ResidualNetwork` is a graph during one timestep: it knows what is left of every capacity.

Invariant: 0 <= left <= capacity.

Departures from the paper: an augmented path leaves no reverse edges, since a chain that has been
handed to a writer is not rerouted. Of the nearest servers the one with the most room is taken; only
among equals chance decides. The store is ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.errors import InvariantViolation
from holdfast.core.peace.network_model import NetworkModel, Server, ServerName


class Chance(Protocol):
    """What a core needs of a seeded `random.Random`, which no core imports."""

    def shuffle(self, elements: list[int], /) -> None:
        """Put the elements into a random order, in place."""
        ...


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed edge between two numbered vertices.

    Attributes:
        tail: Vertex it leaves.
        head: Vertex it enters.
        capacity: Chunks per timestep.
        cost: 1 for a physical connection, 0 inside a machine.
    """

    tail: int
    head: int
    capacity: int
    cost: int


class NetworkGraph:
    """The graph of a model; immutable once built. [SGuard Figure 5]"""

    def __init__(self, model: NetworkModel) -> None:
        """Number the vertices and the edges, in the order of the model."""
        self.edges: list[Edge] = []
        self.outgoing: list[list[int]] = []  # numbers of the edges that leave each vertex
        self.servers = {server.name: server for server in model.servers}
        self.send: dict[ServerName, int] = {}  # vertices by server
        self.down: dict[ServerName, int] = {}
        self.receive: dict[ServerName, int] = {}
        self.receivers: dict[int, ServerName] = {}  # servers by receive vertex
        self.edges_of: dict[ServerName, list[int]] = {}
        switches = {switch: self._vertex() for switch in model.switches}
        store_in, self.store = self._vertex(), self._vertex()
        self._edge(store_in, self.store, model.store_capacity, 1)
        for server in model.servers:
            self._add_server(server, switches[server.switch], store_in)
        for link in model.links:
            self._edge(switches[link.one], switches[link.other], link.capacity, 1)
            self._edge(switches[link.other], switches[link.one], link.back_capacity, 1)

    def _add_server(self, server: Server, switch: int, store_in: int) -> None:
        send, up, down, receive = (self._vertex() for _ in range(4))
        carries = server.capacities
        self.edges_of[server.name] = [
            self._edge(send, up, carries.send, 1),
            self._edge(up, switch, carries.up, 0),
            self._edge(up, store_in, carries.up, 0),
            self._edge(switch, down, carries.down, 0),
            self._edge(down, receive, carries.receive, 1),
        ]
        self.send[server.name] = send
        self.down[server.name] = down
        self.receive[server.name] = receive
        self.receivers[receive] = server.name

    def _vertex(self) -> int:
        self.outgoing.append([])
        return len(self.outgoing) - 1

    def _edge(self, tail: int, head: int, capacity: int, cost: int) -> int:
        self.edges.append(Edge(tail, head, capacity, cost))
        self.outgoing[tail].append(len(self.edges) - 1)
        return len(self.edges) - 1


class ResidualNetwork:
    """What is left of a graph's capacities in one timestep. Volatile."""

    def __init__(self, graph: NetworkGraph) -> None:
        """All capacities are free."""
        self.graph = graph
        self.left = [edge.capacity for edge in graph.edges]  # by edge; never negative
        self.carried = 0  # edges taken and not given back, each as often as it was taken

    def shortest_path(
        self,
        sources: Sequence[int],
        targets: Container[int],
        random: Chance,
        *,
        is_passed_on: bool = False,
    ) -> tuple[int, ...] | None:
        """Find a path of least cost with room for a chunk, to where it disturbs least.

        Of the targets at least cost the one with the most room is taken; among equals, chance
        decides: the next hops out of a vertex are tried in random order.

        Args:
            sources: Vertices to begin at.
            targets: Vertices to end at; no source is one.
            random: The chance.
            is_passed_on: Whether the target is to send the chunk to another server.

        Returns:
            The numbers of its edges, or None. Nothing is taken yet.

        Cost: O(vertices + edges), as every edge costs 0 or 1. [SGuard Algorithm 1, line 16]
        """
        edges, left = self.graph.edges, self.left
        distances = dict.fromkeys(sources, 0)
        entered_by: dict[int, int] = {}
        settled: dict[int, None] = {}
        nearest: list[int] = []
        waiting = deque(sources)
        while waiting:
            vertex = waiting.popleft()
            if vertex in settled:
                continue
            if nearest and distances[vertex] > distances[nearest[0]]:
                break
            settled[vertex] = None
            if vertex in targets:
                nearest.append(vertex)
                continue
            hops = [hop for hop in self.graph.outgoing[vertex] if left[hop] > 0]
            random.shuffle(hops)
            for hop in hops:
                edge = edges[hop]
                distance = distances[vertex] + edge.cost
                if edge.head not in distances or distance < distances[edge.head]:
                    distances[edge.head] = distance
                    entered_by[edge.head] = hop
                    if edge.cost == 0:
                        waiting.appendleft(edge.head)
                    else:
                        waiting.append(edge.head)
        if not nearest:
            return None
        roomiest = max(nearest, key=lambda v: self._room_at(v, entered_by[v], is_passed_on))
        return self._path_to(roomiest, entered_by)

    def _room_at(self, target: int, entered_by: int, is_passed_on: bool) -> tuple[bool, int, int]:
        """How fit a server is to take a chunk; more is better.

        A chunk to be passed on needs a server that can still send. A last copy is best put where
        little can be sent any more: that leaves the others to pass on the next chunks.
        """
        server = self.graph.receivers.get(target)
        if server is None:
            return False, 0, 0  # The store.
        can_receive = self.left[entered_by]
        can_send = self.left[self.graph.edges_of[server][0]]
        if is_passed_on:
            return can_send > 0, can_receive, can_send
        return False, can_receive, -can_send

    def _path_to(self, target: int, entered_by: dict[int, int]) -> tuple[int, ...]:
        path: list[int] = []
        vertex = target
        while vertex in entered_by:
            path.append(entered_by[vertex])
            vertex = self.graph.edges[path[-1]].tail
        return tuple(reversed(path))

    def take(self, path: Sequence[int]) -> None:
        """One chunk more goes along these edges."""
        for number in path:
            self.left[number] -= 1
            if self.left[number] < 0:
                raise InvariantViolation(f"edge {number} carries more than its capacity")
        self.carried += len(path)

    def give_back(self, path: Sequence[int]) -> None:
        """One chunk less goes along these edges."""
        for number in path:
            self.left[number] += 1
            if self.left[number] > self.graph.edges[number].capacity:
                raise InvariantViolation(f"edge {number} was given back more than was taken")
        self.carried -= len(path)

    def close(self, server: ServerName) -> None:
        """Nothing more goes to or from a server. Nothing that it carries may be given back."""
        for number in self.graph.edges_of.get(server, ()):
            self.left[number] = 0
