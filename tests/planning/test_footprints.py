"""Which units can have eventual checkpoints, and what is said of the others."""

import re
from collections.abc import Callable
from typing import Any

import pytest

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import Protections
from holdfast.api.streams import Stream
from holdfast.api.windows import AnyWindow, SessionWindow, Window
from holdfast.core.haunit.plan import FootprintPlan, NodeLimits
from holdfast.core.operators.footprinted_aggregate import FootprintedAggregate
from holdfast.core.operators.footprinted_join import FootprintedJoin
from holdfast.core.operators.footprinted_sessions import FootprintedSessions
from holdfast.core.operators.footprinted_windows import FootprintedWindows
from holdfast.core.state.page_manager import PageManager
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource
from holdfast.planning.plan import Plan, plan_dataflow

TUMBLING = hf.tumbling("1 second")


def bids(flow: Dataflow, name: str = "bids") -> Stream:
    source = NexmarkSource("bid", 100, NexmarkConfig(), 1e6, 0)
    return flow.source_generator(source, name=name)


def counted(stream: Stream, windows: AnyWindow, **more: Any) -> Stream:
    return (
        stream.key_by("auction").window(windows).aggregate("count(*) AS n", name="counts", **more)
    )


def planned(flow: Dataflow) -> Plan:
    protection = hf.EventualCheckpoints().of_unit()
    limits = NodeLimits()
    return plan_dataflow(flow, "/q", parallelism=1, limits=limits, protection=lambda _: protection)


@pytest.mark.parametrize(
    "windows",
    [
        TUMBLING,
        hf.sliding("4 seconds", "1 second"),
        hf.tumbling("1 second", alignment="first"),
        hf.counting(9),
        hf.counting(9, 1),
        hf.sessions("1 second"),
    ],
)
def test_windows_of_a_key_leave_footprints_and_let_go_of_their_input(
    windows: AnyWindow,
) -> None:
    flow = Dataflow("any")
    counted(bids(flow), windows).sink("out")
    plan = planned(flow)
    source, counts = plan.nodes
    assert source.footprints is None, "there is no state"
    assert counts.footprints == FootprintPlan()
    assert counts.own_logs == ("counts[0]~footprints",)
    is_by_segments = isinstance(windows, Window) and windows.alignment == "epoch"
    kind = FootprintedAggregate if is_by_segments else FootprintedWindows
    kind = FootprintedSessions if isinstance(windows, SessionWindow) else kind
    assert type(counts.operators[0].build(PageManager())) is kind
    assert plan.never_trims == ()


def joined(flow: Dataflow, emit: str) -> Stream:
    left, right = bids(flow, "left"), bids(flow, "right")
    wanted = ["left.price", "right.bidder"]
    return left.window(TUMBLING).join(right, on="auction", select=wanted, name="pairs", emit=emit)


def test_a_join_whose_windows_close_with_their_results_leaves_footprints() -> None:
    flow = Dataflow("any")
    joined(flow, "final").sink("out")
    *sources, pairs = planned(flow).nodes
    assert all(source.footprints is None for source in sources)
    assert pairs.footprints == FootprintPlan()
    assert isinstance(pairs.operators[0].build(PageManager()), FootprintedJoin)


REFUSED: list[tuple[Callable[[Dataflow], Stream], str]] = [
    (lambda f: counted(bids(f), hf.counting(3, alignment="stream")), "the stream's ids"),
    (lambda f: counted(bids(f), TUMBLING, emit="changes"), "every change"),
    (lambda f: counted(bids(f), hf.tumbling("1 second", timeout="1 second")), "UpstreamBackup()"),
    (lambda f: bids(f).sort("price", slack=3, name="sorted"), "windows that close"),
    (lambda f: joined(f, "changes"), "windows that close"),
]


@pytest.mark.parametrize(("build", "reason"), REFUSED)
def test_other_state_is_refused_by_name_with_a_cure(
    build: Callable[[Dataflow], Stream], reason: str
) -> None:
    flow = Dataflow("any")
    build(flow).sink("out")
    with pytest.raises(hf.DataflowError, match=re.escape(reason)) as raised:
        planned(flow)
    assert "EventualCheckpoints" in str(raised.value)
    assert "Checkpointed()" in str(raised.value)


def test_state_behind_state_is_refused_in_one_unit() -> None:
    flow = Dataflow("any")
    first = (
        bids(flow)
        .unit("u")
        .key_by("auction")
        .window(TUMBLING)
        .aggregate("count(*) AS m", name="first")
    )
    counted(first.unit("u").select("auction").unit("u"), TUMBLING).sink("out")
    with pytest.raises(hf.DataflowError, match="counts keeps state beside that of first"):
        planned(flow)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"share": 0}, "share=0"),
        ({"share": 1.5}, "above 0 and up to 1"),
        ({"extent": "64 MB"}, "one of B, KiB, MiB, GiB"),
        ({"extent": "many"}, "extent='many'"),
        ({"extent": 0}, "1 B to 1 TiB"),
        ({"extent": -5}, "extent=-5"),
        ({"recovery": "10 microseconds"}, "recovery='10 microseconds'"),
        ({"recovery": "soon"}, "no duration"),
        ({"store": "s3://bucket"}, "at the checkpoint location, which may be a URL"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises((hf.OptionError, hf.DataflowError), match=re.escape(text)):
        hf.EventualCheckpoints(**settings).check(Dataflow("any"))


def test_one_store_serves_all_units() -> None:
    flow = Dataflow("any")
    counted(bids(flow), TUMBLING).sink("out")
    store = hf.EmbeddedStore()
    eventual = hf.EventualCheckpoints(store=store)
    assert eventual.of_unit().footprints == FootprintPlan(is_embedded=True)
    for other in (hf.Checkpointed(), hf.EventualCheckpoints(store=hf.EmbeddedStore(copies=1))):
        with pytest.raises(hf.OptionError, match="one store"):
            Protections({"counts": eventual, "bids": other}).check(flow)
    for other in (hf.Checkpointed(store=store), hf.EventualCheckpoints(), hf.UpstreamBackup()):
        both = Protections({"counts": eventual, "bids": other})
        both.check(flow)
        assert both.embedded == store


def test_another_guarantee_than_precise_is_refused() -> None:
    with pytest.raises(hf.UnsupportedError, match="it gives 'precise'"):
        hf.EventualCheckpoints(guarantee="gap").check(Dataflow("any"))


def test_settings_are_what_nodes_are_told() -> None:
    protection = hf.EventualCheckpoints(share=0.1, extent="2 KiB", recovery="1 second").of_unit()
    assert protection.footprints == FootprintPlan(0.1, 2048, 1_000_000)
    assert hf.EventualCheckpoints(extent=77).of_unit().footprints == FootprintPlan(extent_bytes=77)
