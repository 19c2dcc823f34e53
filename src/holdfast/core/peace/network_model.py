"""What the network can carry per timestep: servers, switches, and the links between. [SGuard §5]

A `NetworkModel` is what an administrator states, or `of_racks` assumes: which server stands in
which rack, on which switch, and how many chunks every part carries per timestep. Names are unique;
every switch reaches every other one. `residual_network.py` has it as a graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Final, NewType

from holdfast.core.errors import LocalProtocolError

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
