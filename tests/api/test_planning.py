"""Placing a dataflow: units, instances, streams, and what cannot be placed."""

import re
from pathlib import Path

import pytest

from holdfast.api.dataflow import Dataflow, Stream, tumbling
from holdfast.api.description import claim, describe
from holdfast.api.errors import DataflowChangedError, DataflowError
from holdfast.api.planning import Plan, plan_dataflow
from holdfast.api.protections import Protections
from holdfast.core.haunit.plan import NodeLimits
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast.nexmark.source import NexmarkSource


def place(flow: Dataflow, parallelism: int | dict[str, int] = 1) -> Plan:
    return plan_dataflow(flow, "/tmp/nowhere", parallelism=parallelism, limits=NodeLimits())


def nexmark(query: str, partitions: int = 1) -> Dataflow:
    def source(flow: Dataflow, kind: str) -> Stream:
        generator = NexmarkSource(kind, 100, NexmarkConfig())
        return flow.source_generator(generator, name=f"{kind}s", partitions=partitions)

    return build(query, source)


def test_every_stream_has_one_producer_and_one_receiver() -> None:
    plan = place(nexmark("q8", partitions=2), parallelism=3)
    sent = [
        s for node in plan.nodes for out in node.outputs if not out.is_sink for s in out.streams
    ]
    received = [spec.stream for node in plan.nodes for spec in node.inputs if spec.producer]
    assert sorted(sent) == sorted(received)
    assert len(set(sent)) == len(sent) == 2 * 2 * 3


def test_a_stateful_operator_is_split_by_its_key_and_sources_by_their_partitions() -> None:
    plan = place(nexmark("q12", partitions=2), parallelism={"counts": 3})
    assert [node.node for node in plan.nodes] == [
        "bids[0]",
        "bids[1]",
        "counts[0]",
        "counts[1]",
        "counts[2]",
    ]
    assert [out.keys for out in plan.nodes[0].outputs] == [("bidder",)]


def test_an_aggregate_without_a_key_runs_once() -> None:
    flow = Dataflow("test")
    generator = NexmarkSource("bid", 100, NexmarkConfig())
    bids = flow.source_generator(generator, name="bids", partitions=2)
    bids.window(tumbling("1 second")).aggregate("count(*) AS n", name="all").sink("all")
    assert [node.node for node in place(flow, 4).nodes] == ["bids[0]", "bids[1]", "all[0]"]


def test_steps_that_no_sink_needs_are_not_placed() -> None:
    flow = nexmark("q12")
    generator = NexmarkSource("person", 100, NexmarkConfig())
    flow.source_generator(generator, name="unused")
    assert not any("unused" in node.node for node in place(flow).nodes)


@pytest.mark.parametrize(
    ("parallelism", "message"),
    [(0, "is 0; at least 1"), ({"coutns": 2}, "parallelism names coutns; units are bids, counts")],
)
def test_impossible_parallelism_is_refused(parallelism: int | dict[str, int], message: str) -> None:
    with pytest.raises(DataflowError, match=message):
        place(nexmark("q12"), parallelism)


def test_a_dataflow_without_sink_is_refused() -> None:
    with pytest.raises(DataflowError, match="has no sink"):
        place(Dataflow("test"))


def test_the_incremental_join_is_named_as_one_that_never_trims() -> None:
    assert place(nexmark("q3")).never_trims == ("join",)
    assert place(nexmark("q8")).never_trims == ()


def test_a_location_belongs_to_one_dataflow(tmp_path: Path) -> None:
    first, other = nexmark("q12"), nexmark("q12", partitions=2)
    claim(str(tmp_path), describe(first, place(first), Protections(None)))
    claim(str(tmp_path), describe(nexmark("q12"), place(nexmark("q12")), Protections(None)))
    with pytest.raises(DataflowChangedError, match=re.escape("+unit bids: 2 instances")):
        claim(str(tmp_path), describe(other, place(other), Protections(None)))


def test_units_that_read_from_each_other_in_a_circle_are_refused() -> None:
    flow = Dataflow("circle")
    bids = flow.source_generator(NexmarkSource("bid", 10, NexmarkConfig()), name="bids")
    there = bids.unit("here").select("price")
    back = there.unit("there").filter("price > 1")
    back.unit("here").filter("price > 2").sink("out")
    with pytest.raises(DataflowError, match="here, there read from each other in a circle"):
        place(flow)


def test_every_union_across_units_is_a_unit_of_its_own() -> None:
    flow = Dataflow("unions")
    one, two = (
        flow.source_generator(NexmarkSource("bid", 10, NexmarkConfig()), name=name)
        for name in ("one", "two")
    )
    first = one.union(two)
    first.unit("between").select("price").union(two.select("price")).sink("out")
    assert [node.node for node in place(flow).nodes if node.unit.startswith("union")] == [
        "union[0]",
        "union2[0]",
    ]
