"""The model of the network: its checks, its plain form, and its cheapest paths. [SGuard §5]"""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.peace.network_model import (
    Link,
    NetworkModel,
    Server,
    ServerCapacities,
    ServerName,
)
from holdfast.core.peace.residual_network import NetworkGraph, ResidualNetwork

TWO_RACKS = NetworkModel.of_racks({"one": ["a", "b", "c"], "two": ["d", "e"]})


def two_servers(**changed: Any) -> dict[str, Any]:
    entries: dict[str, Any] = {
        "servers": [{"name": "a", "rack": "one"}, {"name": "b", "rack": "two", "receive": 3}],
        "links": [{"between": ["one", "two"], "capacity": 5}],
    }
    return entries | changed


# -- plain form -----------------------------------------------------------------------------


def test_what_is_left_out_has_the_default() -> None:
    model = NetworkModel.from_dict(
        two_servers(server_default={"send": 7}, links=[{"between": ["one", "two"]}], link_default=9)
    )
    assert model.servers == (
        Server(ServerName("a"), "one", "one", ServerCapacities(send=7)),
        Server(ServerName("b"), "two", "two", ServerCapacities(send=7, receive=3)),
    )
    assert model.switches == ("one", "two")
    assert model.links == (Link("one", "two", 9, 9),)
    assert model.store_capacity == 0


capacity = st.integers(0, 9)
capacities = st.builds(ServerCapacities, capacity, capacity, capacity, capacity)


@st.composite
def models(draw: st.DrawFn) -> NetworkModel:
    """Switches in a line and some more links, servers anywhere on them."""
    switches = [f"u{number}" for number in range(draw(st.integers(1, 4)))]
    links = [Link(one, other, draw(st.integers(1, 5)), 1) for one, other in pairwise(switches)]
    if len(switches) > 2 and draw(st.booleans()):
        links.append(Link(switches[-1], switches[0], draw(capacity), draw(capacity)))
    servers = [
        Server(
            ServerName(f"s{number}"),
            draw(st.sampled_from(("r", "q"))),
            draw(st.sampled_from(switches)),
            draw(capacities),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    return NetworkModel(
        tuple(servers), tuple(switches), tuple(links), draw(capacity), draw(capacities), 3
    )


@given(models())
def test_a_model_survives_json(model: NetworkModel) -> None:
    assert NetworkModel.from_dict(json.loads(json.dumps(model.to_dict()))) == model


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"servers": []}, "servers: the network has none"),
        ({"servers": "a"}, "servers is 'a', not a list"),
        ({"servers": ["a"]}, r"servers\[0\] is 'a'"),
        ({"servers": [{"rack": "one"}]}, r"servers\[0\], name is None"),
        ({"servers": [{"name": "a"}]}, r"servers\[0\] \(a\), rack is None"),
        ({"servers": [{"name": "a", "rack": "one", "seend": 1}]}, r"servers\[0\]: 'seend'"),
        ({"servers": [{"name": "a", "rack": "one", "send": -1}], "links": []}, "server a, send"),
        ({"servers": [{"name": "a", "rack": "one", "send": 1.5}]}, r"\(a\), send is 1.5"),
        ({"servers": [{"name": "a", "rack": "one", "send": True}]}, r"\(a\), send is True"),
        ({"servers": [{"name": "a", "rack": "one"}] * 2, "links": []}, "server a is given twice"),
        ({"switches": ["one"]}, "server b is on switch two, which is not there"),
        ({"switches": ["one", "two", "one"]}, "switch one is given twice"),
        ({"links": []}, "switch two has no way from switch one"),
        ({"links": [{"between": ["one", "two"], "capacity": 0}]}, "no way from switch one"),
        (
            {"links": [{"between": ["one", "two"], "capacity": 1, "back_capacity": 0}]},
            "no way to switch one",
        ),
        ({"links": [{"between": ["one"]}]}, r"links\[0\], between"),
        ({"links": [{"between": ["one", "three"]}]}, "link between one and three: switch three"),
        ({"links": [{"between": ["one", "one"]}]}, "both ends"),
        ({"links": [{"between": ["one", "two"], "capacity": -2}]}, "link between one and two"),
        (
            {"links": [{"between": ["one", "two"]}, {"between": ["two", "one"]}]},
            "link between one and two is given twice",
        ),
        ({"store": -1}, "store: the capacity -1"),
        ({"link_default": "5"}, "link_default is '5'"),
        ({"server_default": {"sent": 5}}, "server_default: 'sent' is unknown"),
        ({"server_default": {"up": -5}}, "server_default, up"),
        ({"link_default": -5}, "link_default: the capacity -5"),
        ({"racks": []}, "the network: 'racks' is unknown; known are servers"),
    ],
)
def test_an_error_names_the_entry(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(LocalProtocolError, match=named):
        NetworkModel.from_dict(two_servers(**changed))


# -- servers come and go --------------------------------------------------------------------


def test_a_server_that_joins_a_known_rack_is_on_its_switch() -> None:
    model = NetworkModel.from_dict(
        {"servers": [{"name": "a", "rack": "one", "switch": "u"}], "server_default": {"send": 4}}
    )
    joined = model.joining(ServerName("b"), "one")
    assert joined == Server(ServerName("b"), "one", "u", ServerCapacities(send=4))
    assert model.with_server(joined).server("b") == joined


def test_a_server_that_joins_a_new_rack_brings_a_switch_that_reaches_all_others() -> None:
    model = TWO_RACKS.with_server(TWO_RACKS.joining(ServerName("z"), "three"))
    assert model.switches == ("one", "two", "three")
    assert [(link.one, link.other) for link in model.links] == [
        ("one", "two"),
        ("one", "three"),
        ("two", "three"),
    ]


def test_a_server_leaves_once_and_joins_once() -> None:
    without = TWO_RACKS.without_server("b")
    assert [server.name for server in without.servers] == ["a", "c", "d", "e"]
    with pytest.raises(LocalProtocolError, match="server b is not in the network"):
        without.without_server("b")
    with pytest.raises(LocalProtocolError, match="server a is given twice"):
        without.with_server(TWO_RACKS.servers[0])


# -- paths ----------------------------------------------------------------------------------


def reached(residual: ResidualNetwork, writer: str, seed: int) -> ServerName | None:
    graph = residual.graph
    targets = {vertex: name for vertex, name in graph.receivers.items() if name != writer}
    source = graph.send[ServerName(writer)]
    path = residual.shortest_path([source], targets, random.Random(seed))
    return None if path is None else targets[graph.edges[path[-1]].head]


def test_the_nearest_servers_take_turns() -> None:
    residual = ResidualNetwork(NetworkGraph(TWO_RACKS))
    assert {reached(residual, "a", seed) for seed in range(40)} == {"b", "c"}


def test_of_the_nearest_servers_the_one_with_the_most_room_is_taken() -> None:
    residual = ResidualNetwork(NetworkGraph(TWO_RACKS))
    graph = residual.graph
    source = graph.send[ServerName("b")]
    path = residual.shortest_path([source], [graph.receive[ServerName("c")]], random.Random(0))
    assert path is not None
    residual.take(path)
    assert {reached(residual, "a", seed) for seed in range(40)} == {"b"}


@pytest.mark.parametrize(("is_passed_on", "taken"), [(True, "c"), (False, "b")])
def test_who_can_still_send_passes_chunks_on_and_takes_no_last_copies(
    is_passed_on: bool, taken: str
) -> None:
    residual = ResidualNetwork(NetworkGraph(TWO_RACKS))
    graph = residual.graph
    source = graph.send[ServerName("b")]
    for _ in range(2):
        path = residual.shortest_path([source], [graph.receive[ServerName("d")]], random.Random(0))
        assert path is not None
        residual.take(path)
    near = [graph.receive[ServerName(name)] for name in "bc"]
    for seed in range(20):
        path = residual.shortest_path(
            [graph.send[ServerName("a")]], near, random.Random(seed), is_passed_on=is_passed_on
        )
        assert path is not None
        assert graph.receivers[graph.edges[path[-1]].head] == taken


def test_the_other_rack_is_reached_when_the_own_one_is_closed() -> None:
    residual = ResidualNetwork(NetworkGraph(TWO_RACKS))
    residual.close(ServerName("b"))
    residual.close(ServerName("c"))
    assert {reached(residual, "a", seed) for seed in range(40)} == {"d", "e"}
    residual.close(ServerName("a"))
    assert reached(residual, "a", 0) is None


def test_no_more_goes_through_an_edge_than_it_carries() -> None:
    residual = ResidualNetwork(NetworkGraph(TWO_RACKS))
    graph = residual.graph
    source = graph.send[ServerName("a")]
    paths: list[tuple[int, ...]] = []
    for _ in range(2):
        path = residual.shortest_path([source], graph.receivers, random.Random(0))
        assert path is not None
        residual.take(path)
        paths.append(path)
    assert reached(residual, "a", 0) is None  # Both places on a's cable are taken.
    with pytest.raises(InvariantViolation):
        residual.take(paths[0])


def test_what_is_given_back_is_free_again_and_no_more_than_that() -> None:
    residual = ResidualNetwork(NetworkGraph(TWO_RACKS))
    before = list(residual.left)
    path = residual.shortest_path(
        [residual.graph.send[ServerName("d")]], residual.graph.receivers, random.Random(0)
    )
    assert path is not None
    residual.take(path)
    assert residual.left != before
    residual.give_back(path)
    assert residual.left == before
    assert residual.carried == 0
    with pytest.raises(InvariantViolation):
        residual.give_back(path)


def least_cost(residual: ResidualNetwork, source: int, target: int) -> int | None:
    """By relaxing all edges again and again (Bellman and Ford)."""
    costs = {source: 0}
    for _ in residual.graph.outgoing:
        for number, edge in enumerate(residual.graph.edges):
            if residual.left[number] > 0 and edge.tail in costs:
                cost = costs[edge.tail] + edge.cost
                costs[edge.head] = min(cost, costs.get(edge.head, cost))
    return costs.get(target)


@settings(max_examples=60)
@given(models(), st.integers(0, 99), st.data())
def test_a_path_is_connected_has_room_and_costs_least(
    model: NetworkModel, seed: int, data: st.DataObject
) -> None:
    graph = NetworkGraph(model)
    residual = ResidualNetwork(graph)
    source = graph.send[data.draw(st.sampled_from([server.name for server in model.servers]))]
    target = data.draw(st.sampled_from([graph.store, *graph.receivers]))
    path = residual.shortest_path([source], [target], random.Random(seed))
    least = least_cost(residual, source, target)
    if path is None:
        assert least is None
        return
    edges = [graph.edges[number] for number in path]
    assert edges[0].tail == source
    assert edges[-1].head == target
    assert all(one.head == other.tail for one, other in pairwise(edges))
    assert all(edge.capacity > 0 for edge in edges)
    assert sum(edge.cost for edge in edges) == least
