"""SGuard, section 5: the network model of Figure 5, Algorithm 1 and its worked example."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast.core.machine import Effect, SetTimer
from holdfast.core.peace.messages import (
    ChunkPlacement,
    ChunkWritten,
    GrantWrite,
    PeaceSettings,
    RefuseWrite,
    WriteRequested,
    WriteRequestId,
)
from holdfast.core.peace.network_model import NetworkModel, ServerCapacities, ServerName
from holdfast.core.peace.peace import Peace
from holdfast.core.peace.residual_network import NetworkGraph
from holdfast.shell.stores.chunks import network_file
from holdfast.shell.stores.chunks.network_file import NetworkFileInvalid, read_network_file

FIGURE_5 = """
server_default: {send: 1, up: 1, down: 1, receive: 1}
servers:
  - {name: SVR1.1, rack: rack 1, switch: switch 1}
  - {name: SVR1.2, rack: rack 1, switch: switch 1}
  - {name: SVR2.1, rack: rack 2, switch: switch 2}
  - {name: SVR2.2, rack: rack 2, switch: switch 2}
links:
  - {between: [switch 1, switch 2], capacity: 1}
"""


def figure_5(folder: Path) -> NetworkModel:
    path = folder / "network.yaml"
    path.write_text(FIGURE_5)
    return read_network_file(path)


def asked(writer: str) -> WriteRequested:
    return WriteRequested(WriteRequestId(f"of {writer}"), ServerName(writer), 2, 1)


def without_timers(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if not isinstance(effect, SetTimer)]


# -- Figure 5 -------------------------------------------------------------------------------


def test_figure_5_a_server_has_four_vertices_and_a_switch_one(tmp_path: Path) -> None:
    graph = NetworkGraph(figure_5(tmp_path))
    assert len(graph.outgoing) == 4 * 4 + 2 + 2  # The last two are the outside store's.


def test_figure_5_physical_edges_cost_one_and_inner_ones_nothing(tmp_path: Path) -> None:
    graph = NetworkGraph(figure_5(tmp_path))
    for server in ("SVR1.1", "SVR1.2", "SVR2.1", "SVR2.2"):
        name = ServerName(server)
        (physical_up,) = (graph.edges[number] for number in graph.outgoing[graph.send[name]])
        inner_up = graph.edges[graph.outgoing[physical_up.head][0]]
        (physical_down,) = (graph.edges[number] for number in graph.outgoing[graph.down[name]])
        (inner_down,) = (edge for edge in graph.edges if edge.head == graph.down[name])
        assert (physical_up.cost, inner_up.cost) == (1, 0)
        assert (inner_down.cost, physical_down.cost) == (0, 1)
        assert inner_up.head == inner_down.tail  # The server's switch.
        assert physical_down.head == graph.receive[name]
        assert graph.outgoing[graph.receive[name]] == []


def test_figure_5_the_switches_are_connected_both_ways(tmp_path: Path) -> None:
    model = figure_5(tmp_path)
    alike = NetworkModel.of_racks(
        {"switch 1": ["SVR1.1", "SVR1.2"], "switch 2": ["SVR2.1", "SVR2.2"]},
        server=ServerCapacities(1, 1, 1, 1),
        link_capacity=1,
    )
    assert NetworkGraph(model).edges == NetworkGraph(alike).edges


# -- the worked example ---------------------------------------------------------------------


def with_first_request(model: NetworkModel, second_copy: str) -> Peace:
    """SVR1.1's request is granted, with its second copy where chance put it in the paper."""
    for seed in range(20):
        peace = Peace(model, settings=PeaceSettings(), random=random.Random(seed))
        (grant,) = without_timers(peace.step(asked("SVR1.1"), 0))
        chain = (ServerName("SVR1.2"), ServerName(second_copy))
        if grant == GrantWrite(asked("SVR1.1").request_id, (ChunkPlacement(0, chain),)):
            return peace
    raise AssertionError(f"no seed gives the chain SVR1.2, {second_copy}")


def test_example_the_second_request_is_scheduled_at_the_next_timestep(tmp_path: Path) -> None:
    """SVR1.1 and SVR2.1 each write one chunk with two copies; all capacities are 1."""
    peace = with_first_request(figure_5(tmp_path), second_copy="SVR2.2")
    first, second = asked("SVR1.1"), asked("SVR2.1")
    assert peace.step(second, 0) == [RefuseWrite(second.request_id)]
    assert peace.statistics().timestep == 1
    effects = without_timers(peace.step(ChunkWritten(first.request_id, 0), 1))
    (grant,) = effects
    assert isinstance(grant, GrantWrite)
    assert peace.statistics().timestep == 2
    assert grant.request_id == second.request_id
    assert grant.placements[0].servers[0] == "SVR2.2"
    assert grant.placements[0].servers[1] in ("SVR1.1", "SVR1.2")


def test_example_had_chance_put_the_copy_on_the_second_writer_both_would_fit(
    tmp_path: Path,
) -> None:
    """Equivalent destinations take turns, and the schedule found need not be the best one."""
    peace = with_first_request(figure_5(tmp_path), second_copy="SVR2.1")
    (grant,) = without_timers(peace.step(asked("SVR2.1"), 0))
    chain = (ServerName("SVR2.2"), ServerName("SVR1.1"))
    assert grant == GrantWrite(asked("SVR2.1").request_id, (ChunkPlacement(0, chain),))
    assert peace.statistics().timestep == 1


# -- Algorithm 1 ----------------------------------------------------------------------------


def test_algorithm_1_goes_on_with_the_next_request_when_one_does_not_fit(tmp_path: Path) -> None:
    peace = Peace(figure_5(tmp_path), settings=PeaceSettings(()), random=random.Random(0))
    one = WriteRequested(WriteRequestId("first"), ServerName("SVR1.1"), 1, 1)
    same = WriteRequested(WriteRequestId("same writer"), ServerName("SVR1.1"), 1, 1)
    other = WriteRequested(WriteRequestId("other writer"), ServerName("SVR2.1"), 1, 1)
    peace.step(one, 0)
    assert peace.step(same, 0) == [RefuseWrite(same.request_id)]
    assert [type(effect) for effect in peace.step(other, 0)] == [GrantWrite]


def test_algorithm_1_a_chain_goes_from_each_destination_to_the_next(tmp_path: Path) -> None:
    """With one place on every cable, two copies sent by the writer itself would not fit."""
    peace = Peace(figure_5(tmp_path), settings=PeaceSettings(()), random=random.Random(0))
    request = WriteRequested(WriteRequestId("q"), ServerName("SVR1.1"), 3, 1)
    (grant,) = without_timers(peace.step(request, 0))
    assert isinstance(grant, GrantWrite)
    assert set(grant.placements[0].servers) == {"SVR1.2", "SVR2.1", "SVR2.2"}


def test_section_6_2_a_server_sends_two_chunks_and_takes_two_by_default() -> None:
    assert ServerCapacities() == ServerCapacities(send=2, up=2, down=2, receive=2)


# -- the administrator's file ---------------------------------------------------------------


def test_a_network_file_holds_what_the_model_can_say(tmp_path: Path) -> None:
    model = figure_5(tmp_path)
    assert NetworkModel.from_dict(model.to_dict()) == model
    assert [server.rack for server in model.servers] == ["rack 1"] * 2 + ["rack 2"] * 2
    assert model.servers[0].capacities == ServerCapacities(1, 1, 1, 1)


def test_the_example_in_the_documentation_can_be_read(tmp_path: Path) -> None:
    documented = (network_file.__doc__ or "").split("\n")
    example = [line[4:] for line in documented if line.startswith("    ")]
    path = tmp_path / "network.yaml"
    path.write_text("\n".join(example))
    assert len(read_network_file(path).servers) == 4


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("servers: [{name: a, rack: one, send: -3}]", "server a, send"),
        ("servers: [{name: a, rack: one, rack: two}]", "rack is given twice"),
        ("servers: []\nservers: []", "line 2"),
        ("servers: [", "no YAML"),
        ("servers: !!python/object/apply:os.getcwd []", "no YAML"),
        ("", "no entries"),
        ("- a", "no entries"),
        ("servers: \xff".encode("latin-1"), "no YAML"),
        ("servers: " + "[" * 1_000, "no YAML"),
    ],
)
def test_a_wrong_network_file_is_named_with_its_entry(
    tmp_path: Path, text: str | bytes, named: str
) -> None:
    path = tmp_path / "network.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(NetworkFileInvalid) as caught:
        read_network_file(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)


def test_a_missing_network_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NetworkFileInvalid, match=r"nowhere\.yaml: No such file"):
        read_network_file(tmp_path / "nowhere.yaml")
