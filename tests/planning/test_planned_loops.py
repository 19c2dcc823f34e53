"""Loops: how they are placed, and what cannot be one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.core.haunit.plan import CheckpointPlan, Cuts, NodeLimits, NodePlan, UnitProtection
from holdfast.errors import DataflowError, UnsupportedError
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource
from holdfast.planning.plan import plan_dataflow

_SOURCE = NexmarkSource("bid", 10, NexmarkConfig())
_COLUMNS = ("auction AS node", "0L AS hops")
TOGETHER = UnitProtection(checkpoints=CheckpointPlan(1_000), cuts=Cuts.UNCOORDINATED)
Body = Callable[[Stream, Stream], Stream]


def joined(reach: Stream, links: Stream) -> Stream:
    """One lap of the loop, its filter in a unit of its own."""
    select = ["left.target AS node", "right.hops AS hops"]
    found = links.join(reach, on=[("source", "node")], select=select, name="found")
    return found.unit("back").filter("hops < 5").select("node", "hops + 1L AS hops")


def planned(
    body: Body = joined,
    protection: Callable[[str], UnitProtection] = lambda _: TOGETHER,
    parallelism: int = 1,
) -> dict[str, NodePlan]:
    flow = Dataflow("looped")
    links = flow.source_generator(_SOURCE, name="links")
    links = links.select("bidder AS source", "auction AS target")
    starts = flow.source_generator(_SOURCE, name="starts").select(*_COLUMNS)
    starts.iterate(lambda reach: body(reach, links), name="reach").sink("reached")
    limits = NodeLimits()
    plan = plan_dataflow(
        flow, "/tmp/nowhere", parallelism=parallelism, limits=limits, protection=protection
    )
    return {node.node: node for node in plan.nodes}


def test_whoever_reads_a_loop_reads_what_goes_in_and_what_comes_back_on_one_port():
    plans = planned()
    inputs = plans["found[0]"].inputs
    assert [(s.producer, s.port, s.is_feedback) for s in inputs] == [
        ("links[0]", 0, False),
        ("starts[0]", 1, False),
        ("back[0]", 1, True),
    ]
    assert {plan.unit for plan in plans.values()} == {"links", "starts", "found", "back"}
    assert [plans[node].is_in_loop for node in ("starts[0]", "found[0]", "back[0]")] == [
        False,
        True,
        True,
    ]


def test_a_loop_recovers_together_and_takes_what_comes_as_it_comes():
    plans = planned(parallelism=2)
    looped = [plans[node] for node in ("found[0]", "found[1]", "back[0]")]
    assert {plan.region for plan in looped} == {"back"}
    assert all(plan.merges_by_arrival and not plan.keeps_passes for plan in looped)
    back = {spec.streams: (spec.is_feedback, spec.is_gated) for spec in plans["back[0]"].outputs}
    assert list(back.values()) == [(True, False), (False, True)]


def _none_back(reach: Stream, links: Stream) -> Stream:
    del reach
    return links.select("target AS node", "0L AS hops")


def _in_one_unit(reach: Stream, links: Stream) -> Stream:
    del links
    return reach.filter("hops < 5")


def _windowed(reach: Stream, links: Stream) -> Stream:
    del links
    counted = reach.key_by("node").window(tumbling("1 second"))
    return counted.aggregate("count(*) AS hops", name="counted").unit("b").select("node", "hops")


def _other_input(reach: Stream, links: Stream) -> Stream:
    more = links.select("target AS node", "0L AS hops")
    return reach.filter("hops < 5").unit("united").union(more)


def _two_entrances(reach: Stream, links: Stream) -> Stream:
    del links
    first = reach.filter("hops < 5")
    return first.unit("both").union(reach).unit("back").select("node", "hops")


def _nested(reach: Stream, links: Stream) -> Stream:
    del links
    first = reach.filter("hops < 5")
    inner = first.loop("inner")
    body = inner.filter("hops < 3").unit("inner_back").select("node", "hops")
    inner.close(body)
    return body.unit("back").select("node", "hops")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (_none_back, "no sink depends on loop reach"),
        (_in_one_unit, "lies within one unit"),
        (_other_input, "from outside of it"),
        (_two_entrances, "read the loop in one place"),
        (_nested, "a loop within a loop is not supported"),
    ],
)
def test_what_is_no_loop_that_can_be_run_is_refused_by_name(body: Body, says: str):
    with pytest.raises(DataflowError, match=says):
        planned(body)


def test_what_a_boundary_closes_cannot_stand_in_a_loop():
    with pytest.raises(UnsupportedError, match=r"counted \(aggregate\) is in loop reach"):
        planned(_windowed)


@pytest.mark.parametrize(
    "protection",
    [
        lambda _: UnitProtection(),
        lambda _: UnitProtection(checkpoints=CheckpointPlan(1_000)),
        lambda unit: TOGETHER if unit == "found" else UnitProtection(),
    ],
)
def test_a_loop_with_another_protection_is_refused_with_those_that_work(
    protection: Callable[[str], UnitProtection],
):
    with pytest.raises(DataflowError, match=r"Uncoordinated\(\), Coordinated"):
        planned(protection=protection)


def test_a_loop_has_to_be_closed_once_with_the_same_columns():
    flow = Dataflow("looped")
    starts = flow.source_generator(_SOURCE, name="starts").select(*_COLUMNS)
    reach = starts.loop("reach")
    back = reach.filter("hops < 5")
    back.sink("reached")
    with pytest.raises(DataflowError, match="not closed"):
        plan_dataflow(flow, "/tmp/nowhere", parallelism=1, limits=NodeLimits())
    with pytest.raises(DataflowError, match="has columns"):
        reach.close(back.select("node"))
    reach.close(back)
    with pytest.raises(DataflowError, match="closed already"):
        reach.close(back)
