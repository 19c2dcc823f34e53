"""Finds a chain of servers for a chunk: copy by copy, the nearest that may hold it. [SGuard §5]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.core.peace.messages import CopyConstraint, PeaceSettings
from holdfast.core.peace.network_model import ServerName
from holdfast.core.peace.residual_network import Chance, NetworkGraph, ResidualNetwork

_TRIES: Final = 32  # for the first chunk on an empty network, before it counts as unplaceable


@dataclass(frozen=True, slots=True)
class Chain:
    """The servers that hold a chunk, and the edges it takes to them."""

    servers: tuple[ServerName, ...]
    edges: tuple[int, ...]


class ChunkPlacer:
    """Places chunks in a network that stays as it is. What it found out is volatile."""

    def __init__(self, graph: NetworkGraph, settings: PeaceSettings, random: Chance) -> None:
        """Know nothing yet of what fits."""
        self._graph = graph
        self._settings = settings
        self._random = random
        self._trials: dict[tuple[ServerName, int], tuple[Chain, ...]] = {}  # by writer and copies

    def trial(self, writer: ServerName, copies: int) -> tuple[Chain, ...]:
        """Chains that fit an empty network together, as many as were found; none: unplaceable.

        Cost: one search per copy of each, the first time since the network changed.
        """
        known = self._trials.get((writer, copies))
        if known is not None:
            return known
        empty = ResidualNetwork(self._graph)
        chains: list[Chain] = []
        for _ in range(_TRIES):
            while len(chains) < self._settings.chunks_max:
                chain = self.place(empty, writer, copies)
                if chain is None:
                    break
                chains.append(chain)
            if chains:
                break
        self._trials[writer, copies] = tuple(chains)
        return self._trials[writer, copies]

    def place(self, residual: ResidualNetwork, writer: ServerName, copies: int) -> Chain | None:
        """Take a chain for one chunk, copy by copy, or nothing. [Algorithm 1, lines 7 to 28]"""
        graph = residual.graph
        if copies == 0:
            path = residual.shortest_path([graph.send[writer]], (graph.store,), self._random)
            if path is not None:
                residual.take(path)
            return None if path is None else Chain((), path)
        servers: tuple[ServerName, ...] = ()
        edges: tuple[int, ...] = ()
        for _ in range(copies):
            sources = [graph.send[servers[-1] if servers else writer]]
            if not servers and self._settings.can_writer_hold_copy:
                sources.append(graph.down[writer])  # A copy of its own only loads its disk.
            targets = self._allowed(graph, writer, servers)
            path = residual.shortest_path(
                sources, targets, self._random, is_passed_on=len(servers) < copies - 1
            )
            if path is None:
                residual.give_back(edges)
                return None
            residual.take(path)
            edges += path
            servers += (targets[graph.edges[path[-1]].head],)
        return Chain(servers, edges)

    def _allowed(
        self, graph: NetworkGraph, writer: ServerName, chain: Sequence[ServerName]
    ) -> dict[int, ServerName]:
        """Servers, by receive vertex, that the constraint of the chain's next copy allows."""
        constraints = self._settings.constraints
        if len(chain) >= len(constraints):
            return self.candidates(graph, writer, chain)
        constraint = constraints[len(chain)]
        own_rack = graph.servers[writer].rack
        previous_rack = graph.servers[chain[-1]].rack if chain else own_rack
        candidates = self.candidates(graph, writer, chain)
        met = {
            vertex: name
            for vertex, name in candidates.items()
            if _is_met(constraint, graph.servers[name].rack, own_rack, previous_rack)
        }
        return met or candidates

    def candidates(
        self, graph: NetworkGraph, writer: ServerName, chain: Sequence[ServerName]
    ) -> dict[int, ServerName]:
        """Servers, by receive vertex, that store chunks and are not in the chain yet."""
        return {
            graph.receive[name]: name
            for name, server in graph.servers.items()
            if server.capacities.receive > 0
            and name not in chain
            and (name != writer or self._settings.can_writer_hold_copy)
        }


def _is_met(constraint: CopyConstraint, rack: str, own_rack: str, previous_rack: str) -> bool:
    if constraint is CopyConstraint.SAME_RACK_AS_WRITER:
        return rack == own_rack
    if constraint is CopyConstraint.SAME_RACK_AS_PREVIOUS:
        return rack == previous_rack
    if constraint is CopyConstraint.OTHER_RACK_THAN_PREVIOUS:
        return rack != previous_rack
    return True
