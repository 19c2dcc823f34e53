"""What the network can carry per timestep: servers, switches, and the edges between. [SGuard §5]

Theory of operation. A `NetworkModel` is what an administrator states, or `of_racks` assumes: which
server stands in which rack, on which switch, and how many chunks every part carries per timestep.
A `NetworkGraph` is the same as the directed graph of the paper's Figure 5, with numbered edges:

    send_i --1--> up_i --0--> switch_u --0--> down_j --1--> receive_j
                                 switch_u --1--> switch_v
                  up_i --0--> store_in --1--> store

A physical connection costs 1, a connection inside a switch 0. An edge's capacity stands for
whatever is scarce there, disk or network: the edge into `receive_j` usually for the disk of j. The
last line is for writes to an outside store, which places data itself: only what leaves the writer
and what the store takes is counted.

A `ResidualNetwork` is a graph during one timestep: it knows what is left of every capacity.

Invariants: names are unique; every switch reaches every other one; 0 <= left <= capacity.

Departures from the paper: an augmented path leaves no reverse edges, since a chain that has been
handed to a writer is not rerouted. The store is ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Final, NewType, Protocol

from holdfast.core.errors import InvariantViolation, LocalProtocolError

ServerName = NewType("ServerName", str)
"""A machine that writes chunks, stores them, or both."""

LINK_CAPACITY: Final = 4
"""Gigabit carries 105 MB/s, and two streams into one disk run at 22.5 MB/s each [Table 8]."""

_CAPACITY_MAX: Final = 1_000_000
_NETWORK_KEYS: Final = (
    "servers",
    "switches",
    "links",
    "server_default",
    "link_default",
    "store",
)
_SERVER_CAPACITIES: Final = ("send", "up", "down", "receive")


class Chance(Protocol):
    """What a core needs of a seeded `random.Random`, which no core imports."""

    def shuffle(self, elements: list[int], /) -> None:
        """Put the elements into a random order, in place."""
        ...


@dataclass(frozen=True, slots=True)
class ServerCapacities:
    """Chunks per timestep on the four edges of a server; the defaults are the paper's (§6.2).

    Attributes:
        send: From the server towards its switch: its own chunks and those it passes on.
        up: Inside the switch, from the server's port.
        down: Inside the switch, to the server's port.
        receive: From the switch into the server and onto its disk; 0: it stores nothing.
    """

    send: int = 2
    up: int = 2
    down: int = 2
    receive: int = 2


@dataclass(frozen=True, slots=True)
class Server:
    """One server: its name, its rack (what fails together), its switch, its capacities."""

    name: ServerName
    rack: str
    switch: str
    capacities: ServerCapacities = ServerCapacities()


@dataclass(frozen=True, slots=True)
class Link:
    """A cable between two switches.

    Attributes:
        one: A switch.
        other: Another switch.
        capacity: Chunks per timestep from `one` to `other`.
        back_capacity: Chunks per timestep from `other` to `one`.
    """

    one: str
    other: str
    capacity: int
    back_capacity: int


@dataclass(frozen=True, slots=True)
class NetworkModel:
    """A checked description of a network; immutable.

    Attributes:
        servers: In the order given.
        switches: Names, in the order given.
        links: Between switches; at most one per pair.
        store_capacity: Chunks per timestep that an outside store takes; 0: there is none.
        server_default: Capacities of a server that joins later.
        link_default: Capacity of the links of a rack that joins later.
    """

    servers: tuple[Server, ...]
    switches: tuple[str, ...]
    links: tuple[Link, ...]
    store_capacity: int = 0
    server_default: ServerCapacities = ServerCapacities()
    link_default: int = LINK_CAPACITY

    def __post_init__(self) -> None:
        """Refuse what makes no sense; the `LocalProtocolError` names the entry."""
        _check_server_capacities("server_default", self.server_default)
        _check_capacity("link_default", self.link_default)
        _check_capacity("store", self.store_capacity)
        _check_names("server", [server.name for server in self.servers])
        _check_names("switch", list(self.switches))
        for server in self.servers:
            _check_server(server, self.switches)
        for link in self.links:
            _check_link(link, self.switches)
        pairs = [" and ".join(sorted((link.one, link.other))) for link in self.links]
        _check_names("link between", pairs)
        self._check_connected()

    def _check_connected(self) -> None:
        for is_back in (False, True):
            reached = self._reached_from(self.switches[0], is_back) if self.switches else {}
            for switch in self.switches:
                if switch not in reached:
                    way = "to" if is_back else "from"
                    raise LocalProtocolError(
                        f"switch {switch} has no way {way} switch {self.switches[0]}; add a link "
                        "with a capacity above 0"
                    )

    def _reached_from(self, first: str, is_back: bool) -> dict[str, None]:
        neighbors: dict[str, list[str]] = {switch: [] for switch in self.switches}
        for link in self.links:
            there, back = link.capacity, link.back_capacity
            if is_back:
                there, back = back, there
            if there > 0:
                neighbors[link.one].append(link.other)
            if back > 0:
                neighbors[link.other].append(link.one)
        reached = {first: None}
        waiting = [first]
        while waiting:
            for switch in neighbors[waiting.pop()]:
                if switch not in reached:
                    reached[switch] = None
                    waiting.append(switch)
        return reached

    @classmethod
    def of_racks(
        cls,
        racks: Mapping[str, Sequence[str]],
        *,
        server: ServerCapacities | None = None,
        link_capacity: int = LINK_CAPACITY,
        store_capacity: int = 0,
    ) -> NetworkModel:
        """One switch per rack, named as the rack; every two of them linked; all servers alike."""
        each = server or ServerCapacities()
        return cls(
            tuple(
                Server(ServerName(name), rack, rack, each)
                for rack, names in racks.items()
                for name in names
            ),
            tuple(racks),
            tuple(_even_link(one, other, link_capacity) for one, other in combinations(racks, 2)),
            store_capacity,
            each,
            link_capacity,
        )

    @classmethod
    def from_dict(cls, entries: Mapping[str, object]) -> NetworkModel:
        """Build a model from plain values, such as a small YAML file holds.

        Args:
            entries: `servers`: a list of entries with `name`, `rack`, and if wished `switch` (as
                the rack) and `send`, `up`, `down`, `receive`. `switches`: names (those that the
                servers name). `links`: a list of entries with `between`, two switches, and if
                wished `capacity` and `back_capacity` (the same). `server_default`: an entry with
                capacities. `link_default`: a capacity. `store`: a capacity.

        Raises:
            LocalProtocolError: an entry is unknown, missing or senseless; the message names it.
        """
        _check_keys("the network", entries, _NETWORK_KEYS)
        given = entries.get("server_default", {})
        given = _mapping("server_default", given, _SERVER_CAPACITIES)
        default = _parsed_capacities("server_default", given, ServerCapacities())
        link_default = _number("link_default", entries.get("link_default", LINK_CAPACITY))
        listed = _listed("servers", entries)
        servers = tuple(_parsed_server(place, entry, default) for place, entry in listed)
        if not servers:
            raise LocalProtocolError("servers: the network has none")
        named = dict.fromkeys(server.switch for server in servers)
        switches = [_text(place, name) for place, name in _listed("switches", entries)]
        links = _listed("links", entries)
        return cls(
            servers,
            tuple(switches or named),
            tuple(_parsed_link(place, entry, link_default) for place, entry in links),
            _number("store", entries.get("store", 0)),
            default,
            link_default,
        )

    def to_dict(self) -> dict[str, object]:
        """Plain values that `from_dict` takes, fit for JSON and YAML."""
        return {
            "servers": [
                {"name": server.name, "rack": server.rack, "switch": server.switch}
                | asdict(server.capacities)
                for server in self.servers
            ],
            "switches": list(self.switches),
            "links": [
                {"between": [link.one, link.other]}
                | {"capacity": link.capacity, "back_capacity": link.back_capacity}
                for link in self.links
            ],
            "server_default": asdict(self.server_default),
            "link_default": self.link_default,
            "store": self.store_capacity,
        }

    def server(self, name: str) -> Server | None:
        """The server of this name. Cost: O(servers)."""
        return next((server for server in self.servers if server.name == name), None)

    def without_server(self, name: str) -> NetworkModel:
        """The network when a server is gone. Raises `LocalProtocolError` if it has none such."""
        if self.server(name) is None:
            raise LocalProtocolError(f"server {name} is not in the network")
        return replace(self, servers=tuple(s for s in self.servers if s.name != name))

    def with_server(self, server: Server) -> NetworkModel:
        """The network with one server more; a new switch is linked with every other one.

        Raises:
            LocalProtocolError: a server of this name is there already.
        """
        switches, links = self.switches, self.links
        if server.switch not in switches:
            links += tuple(_even_link(one, server.switch, self.link_default) for one in switches)
            switches += (server.switch,)
        return replace(self, servers=(*self.servers, server), switches=switches, links=links)

    def joining(self, name: ServerName, rack: str) -> Server:
        """A server with the default capacities, on the switch that the rack's servers use."""
        switch = next((known.switch for known in self.servers if known.rack == rack), rack)
        return Server(name, rack, switch, self.server_default)


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


def _even_link(one: str, other: str, capacity: int) -> Link:
    return Link(one, other, capacity, capacity)


# -- checking -------------------------------------------------------------------------------


def _check_names(kind: str, names: Sequence[str]) -> None:
    seen: dict[str, None] = {}
    for name in names:
        if not name:
            raise LocalProtocolError(f"a {kind} has an empty name")
        if name in seen:
            raise LocalProtocolError(f"{kind} {name} is given twice")
        seen[name] = None


def _check_capacity(place: str, capacity: int) -> None:
    if not 0 <= capacity <= _CAPACITY_MAX:
        raise LocalProtocolError(
            f"{place}: the capacity {capacity} is not from 0 to {_CAPACITY_MAX} chunks per timestep"
        )


def _check_server_capacities(place: str, carries: ServerCapacities) -> None:
    for edge, capacity in asdict(carries).items():
        _check_capacity(f"{place}, {edge}", capacity)


def _check_server(server: Server, switches: Sequence[str]) -> None:
    place = f"server {server.name}"
    if not server.rack:
        raise LocalProtocolError(f"{place} has no rack")
    if server.switch not in switches:
        raise LocalProtocolError(f"{place} is on switch {server.switch}, which is not there")
    _check_server_capacities(place, server.capacities)


def _check_link(link: Link, switches: Sequence[str]) -> None:
    place = f"link between {link.one} and {link.other}"
    for end in (link.one, link.other):
        if end not in switches:
            raise LocalProtocolError(f"{place}: switch {end} is not there")
    if link.one == link.other:
        raise LocalProtocolError(f"{place}: both ends are the same switch")
    _check_capacity(place, link.capacity)
    _check_capacity(f"{place}, back", link.back_capacity)


# -- plain values ---------------------------------------------------------------------------


def _check_keys(place: str, entry: Mapping[str, object], known: Sequence[str]) -> None:
    for key in entry:
        if key not in known:
            raise LocalProtocolError(f"{place}: {key!r} is unknown; known are {', '.join(known)}")


def _mapping(place: str, entry: object, known: Sequence[str]) -> Mapping[str, object]:
    if not isinstance(entry, Mapping):
        raise LocalProtocolError(f"{place} is {entry!r}, not an entry with {', '.join(known)}")
    _check_keys(place, entry, known)
    return entry


def _listed(key: str, entries: Mapping[str, object]) -> list[tuple[str, object]]:
    """The elements of a list, each with its place."""
    elements = entries.get(key, [])
    if not isinstance(elements, list | tuple):
        raise LocalProtocolError(f"{key} is {elements!r}, not a list")
    return [(f"{key}[{index}]", element) for index, element in enumerate(elements)]


def _text(place: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise LocalProtocolError(f"{place} is {value!r}, not a name")
    return value


def _number(place: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise LocalProtocolError(f"{place} is {value!r}, not a whole number")
    return value


def _parsed_capacities(
    place: str, entry: Mapping[str, object], default: ServerCapacities
) -> ServerCapacities:
    given = {edge: entry[edge] for edge in _SERVER_CAPACITIES if edge in entry}
    return replace(default, **{edge: _number(f"{place}, {edge}", n) for edge, n in given.items()})


def _parsed_server(place: str, entry: object, default: ServerCapacities) -> Server:
    entry = _mapping(place, entry, ("name", "rack", "switch", *_SERVER_CAPACITIES))
    name = _text(f"{place}, name", entry.get("name"))
    place = f"{place} ({name})"
    rack = _text(f"{place}, rack", entry.get("rack"))
    switch = _text(f"{place}, switch", entry.get("switch", rack))
    return Server(ServerName(name), rack, switch, _parsed_capacities(place, entry, default))


def _parsed_link(place: str, entry: object, default: int) -> Link:
    entry = _mapping(place, entry, ("between", "capacity", "back_capacity"))
    ends = entry.get("between")
    if not isinstance(ends, list | tuple) or len(ends) != 2:
        raise LocalProtocolError(f"{place}, between is {ends!r}, not a list of two switches")
    one, other = (_text(f"{place}, between", end) for end in ends)
    capacity = _number(f"{place}, capacity", entry.get("capacity", default))
    back = _number(f"{place}, back_capacity", entry.get("back_capacity", capacity))
    return Link(one, other, capacity, back)
