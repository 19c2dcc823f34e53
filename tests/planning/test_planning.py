"""Placing a dataflow: units, instances, streams, and what cannot be placed."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.operators import build_operator, is_arbitrary
from holdfast.api.protections import Protections, Replicated
from holdfast.api.streams import Stream
from holdfast.api.windows import counting, tumbling
from holdfast.core.haunit.operator_network import OperatorNetwork
from holdfast.core.haunit.plan import (
    CheckpointPlan,
    DelayPlan,
    NodeLimits,
    Standby,
    UnitProtection,
)
from holdfast.core.model.feed_rows import FEED_COLUMNS
from holdfast.core.model.ids import END_US
from holdfast.core.operators.base import OperatorClass, Rows
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.core.state.page_manager import PageManager
from holdfast.driver.description import claim, describe
from holdfast.errors import (
    DataflowChangedError,
    DataflowError,
    OptionError,
    UnsupportedError,
)
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast.nexmark.source import NexmarkSource
from holdfast.planning.guarantees import UnitClass, recoveries_of, unit_class
from holdfast.planning.plan import Plan, plan_dataflow
from holdfast.shell.kafka.sink import KafkaSinkSpec

CHECKPOINTED = UnitProtection(checkpoints=CheckpointPlan(interval_ms=1_000))


def place(flow: Dataflow, parallelism: int | dict[str, int] = 1) -> Plan:
    return plan_dataflow(flow, "/tmp/nowhere", parallelism=parallelism, limits=NodeLimits())


def protected(flow: Dataflow, protection: UnitProtection) -> Plan:
    return plan_dataflow(
        flow, "/tmp/nowhere", parallelism=1, limits=NodeLimits(), protection=lambda _: protection
    )


def bids(flow: Dataflow, name: str = "bids") -> Stream:
    return flow.source_generator(NexmarkSource("bid", 10, NexmarkConfig()), name=name)


def nexmark(query: str, partitions: int = 1, emit: str = "final") -> Dataflow:
    def source(flow: Dataflow, kind: str) -> Stream:
        generator = NexmarkSource(kind, 100, NexmarkConfig())
        return flow.source_generator(generator, name=f"{kind}s", partitions=partitions)

    return build(query, source, emit=emit)


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


def test_only_what_the_receiving_unit_reads_is_sent() -> None:
    def sent(query: str) -> dict[str, list[str]]:
        outputs = [(node.unit, out) for node in place(nexmark(query)).nodes for out in node.outputs]
        return {unit: out.schema.names for unit, out in outputs if not out.is_sink}

    assert sent("q12") == {"bids": ["bidder"]}
    assert sent("q3") == {"persons": ["id", "name", "city", "state"], "auctions": ["id", "seller"]}
    *_, join = place(nexmark("q3")).nodes
    received = [(spec.producer, spec.schema.names) for spec in join.inputs]
    assert sorted(received) == [(f"{unit}[0]", names) for unit, names in sorted(sent("q3").items())]


def test_expressions_are_those_of_what_is_sent() -> None:
    flow = Dataflow("narrow")
    keyed = bids(flow).key_by("bidder").window(tumbling("1 second"))
    keyed.aggregate("max(price + 1) AS top", name="tops").sink("tops")
    sender, receiver = place(flow).nodes
    assert sender.outputs[0].schema.names == receiver.inputs[0].schema.names == ["bidder", "price"]
    operator = receiver.operators[0].build(PageManager())
    row = pa.RecordBatch.from_pydict(
        {"bidder": [7], "price": [99]}, schema=sender.outputs[0].schema
    )
    rows = Rows(row, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), 0)
    made = operator.process([rows], np.zeros(1, dtype=np.int64), END_US).rows
    assert made is not None
    assert made.batch.select(["bidder", "top"]).to_pylist() == [{"bidder": 7, "top": 100}]


def test_a_unit_that_reads_no_column_is_sent_one() -> None:
    flow = Dataflow("counted")
    bids(flow).window(tumbling("1 second")).aggregate("count(*) AS n", name="all").sink("all")
    assert place(flow).nodes[0].outputs[0].schema.names == ["auction"]


def test_an_operator_that_hands_its_input_on_is_sent_all_columns() -> None:
    flow = Dataflow("sorted")
    bids(flow).sort("price", slack=3).sink("all")
    assert place(flow).nodes[0].outputs[0].schema == bids(Dataflow("other")).schema


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


def test_what_a_secondary_holds_may_be_trimmed_unless_input_is_taken_as_it_comes() -> None:
    one = UnitProtection(standby=Standby.PASSIVE, survives_one=True)
    assert protected(nexmark("q3"), one).never_trims == ()
    flow = Dataflow("by-arrival")
    bids(flow, "a").union(bids(flow, "b"), order="arrival").filter("price > 1").sink("out")
    by_unit = {node.unit: node.survives_one for node in protected(flow, one).nodes}
    assert by_unit["a"]
    assert not all(by_unit.values())


def test_operators_aligned_by_the_first_tuple_never_trim_either() -> None:
    flow = Dataflow("keeping")
    keyed = bids(flow).key_by("bidder")
    keyed.window(counting(10, 5)).aggregate("count(*) AS n", name="tens").sink("a")
    keyed.window(counting(10, 1)).aggregate("count(*) AS n", name="last").sink("b")
    keyed.window(tumbling("1 second", alignment="first")).aggregate(
        "count(*) AS n", name="own"
    ).sink("c")
    assert place(flow).never_trims == ("tens", "own")


@pytest.mark.parametrize(
    ("build_step", "expected"),
    [
        (lambda s: s.filter("price > 1"), UnitClass(OperatorClass.REPEATABLE, "filter")),
        (
            lambda s: s.filter("price > 1").sample(0.5).select("price"),
            UnitClass(OperatorClass.ARBITRARY, "sample"),
        ),
        (
            lambda s: s.window(tumbling("1 second")).aggregate("count(*) AS n"),
            UnitClass(OperatorClass.CONVERGENT_CAPABLE, "aggregate"),
        ),
        (
            lambda s: s.window(tumbling("1 second", alignment="first")).aggregate("count(*) AS n"),
            UnitClass(OperatorClass.DETERMINISTIC, "aggregate"),
        ),
        (
            lambda s: s.window(tumbling("1 second", timeout="1 second")).aggregate("count(*) AS n"),
            UnitClass(OperatorClass.ARBITRARY, "aggregate"),
        ),
        (
            lambda s: s.window(tumbling("1 second", time="processing")).aggregate("count(*) AS n"),
            UnitClass(OperatorClass.ARBITRARY, "aggregate"),
        ),
        (
            lambda s: s.window(counting(4)).aggregate("count(*) AS n"),
            UnitClass(OperatorClass.DETERMINISTIC, "aggregate"),
        ),
        (
            lambda s: s.window(counting(4, alignment="stream")).aggregate("count(*) AS n"),
            UnitClass(OperatorClass.CONVERGENT_CAPABLE, "aggregate"),
        ),
        (lambda s: s.sort(slack=9), UnitClass(OperatorClass.CONVERGENT_CAPABLE, "sort")),
        (
            lambda s: s.resample("price", within="1 second", every="1 second"),
            UnitClass(OperatorClass.CONVERGENT_CAPABLE, "resample"),
        ),
    ],
)
def test_a_unit_has_the_class_of_its_most_general_operator(
    build_step: Callable[[Stream], Stream], expected: UnitClass
) -> None:
    flow = Dataflow("classes")
    build_step(bids(flow)).sink("out")
    assert unit_class(place(flow).nodes[-1]) == expected


def test_a_join_that_forgets_nothing_needs_its_first_tuple_and_one_with_windows_does_not() -> None:
    for windows, expected in (
        (None, OperatorClass.DETERMINISTIC),
        (tumbling("1 second"), OperatorClass.CONVERGENT_CAPABLE),
    ):
        flow = Dataflow("joins")
        left, right = bids(flow, "left"), bids(flow, "right")
        joined = left.join if windows is None else left.window(windows).join
        joined(right, on="auction", select=["left.price AS one", "right.price AS two"]).sink("out")
        assert unit_class(place(flow).nodes[-1]) == UnitClass(expected, "join")


@pytest.mark.parametrize(
    ("build_step", "standby", "guarantee", "expected"),
    [
        (lambda s: s.filter("price > 1"), "none", "precise", "repeatable by filter; precise"),
        (lambda s: s.filter("price > 1"), "none", "rollback", "repeatable by filter; repeating"),
        (
            lambda s: s.window(tumbling("1 second")).aggregate("count(*) AS n"),
            "none",
            "rollback",
            "convergent-capable by aggregate; convergent",
        ),
        (
            lambda s: s.window(counting(4)).aggregate("count(*) AS n"),
            "none",
            "rollback",
            "deterministic by aggregate; divergent",
        ),
        (
            lambda s: s.window(counting(4)).aggregate("count(*) AS n"),
            "active",
            "rollback",
            "deterministic by aggregate; precise",
        ),
        (lambda s: s.sample(0.5), "passive", "rollback", "arbitrary by sample; divergent"),
        (lambda s: s.sample(0.5), "active", "precise", "arbitrary by sample; precise"),
        (lambda s: s.filter("price > 1"), "none", "gap", "repeatable by filter; gap"),
    ],
)
def test_the_recovery_of_a_unit_is_that_of_table_2_or_said_to_be_stronger(
    build_step: Callable[[Stream], Stream], standby: str, guarantee: str, expected: str
) -> None:
    flow = Dataflow("recovery")
    build_step(bids(flow)).sink("out")
    plan = protected(flow, UnitProtection(standby=Standby(standby), guarantee=Guarantee(guarantee)))
    found = recoveries_of(plan.nodes)[-1]
    words, _, recovery = expected.partition("; ")
    assert str(found) == f"unit {found.unit!r}: {words}; recovery {recovery}"
    is_stronger = recovery == "precise" and guarantee != "precise"
    assert [raised.unit for raised in plan.raised if raised.unit == found.unit] == (
        [found.unit] if is_stronger else []
    )


def test_a_unit_without_operators_is_repeatable() -> None:
    flow = Dataflow("classes")
    bids(flow).sink("out")
    assert unit_class(place(flow).nodes[0]) == UnitClass(OperatorClass.REPEATABLE, "")


def test_a_union_by_arrival_is_told_to_the_node_that_merges() -> None:
    for order, expected in (("time", False), ("arrival", True)):
        flow = Dataflow("unions")
        bids(flow, "one").union(bids(flow, "two"), order=order).sink("out")
        plan = place(flow)
        assert [node.merges_by_arrival for node in plan.nodes] == [False, False, expected]
        found = unit_class(plan.nodes[-1]).operator_class
        assert (found is OperatorClass.ARBITRARY) == expected
    flow = Dataflow("unions")
    source = bids(flow)
    cheap = source.filter("price < 9")
    source.filter("price > 1").unit("bids").union(cheap, order="arrival").sink("out")
    (node,) = place(flow).nodes
    assert not node.merges_by_arrival, "one stream only"
    assert unit_class(node).operator_class is OperatorClass.DETERMINISTIC
    (raised,) = protected(
        flow, UnitProtection(standby=Standby.ACTIVE, guarantee=Guarantee.ROLLBACK)
    ).raised
    assert (raised.unit, raised.given) == ("bids", Guarantee.PRECISE)


ARBITRARY: dict[str, Callable[[Stream], Stream]] = {
    "sample": lambda s: s.sample(0.5),
    "union by arrival": lambda s: s.select("*").union(s.select("*"), order="arrival"),
    "processing time": lambda s: s.window(tumbling("1 second", time="processing")).aggregate(
        "count(*) AS n", name="clock"
    ),
    "timeout": lambda s: s.window(counting(4, timeout="1 second")).aggregate(
        "count(*) AS n", name="timeout"
    ),
}
DETERMINISTIC: dict[str, Callable[[Stream], Stream]] = {
    "filter": lambda s: s.filter("price > 1"),
    "union": lambda s: s.union(s.filter("price > 1")),
    "windows": lambda s: s.window(tumbling("1 second")).aggregate("count(*) AS n"),
    "counting": lambda s: s.window(counting(4)).aggregate("count(*) AS n"),
}


@pytest.mark.parametrize("kind", [*ARBITRARY, *DETERMINISTIC])
def test_what_planning_calls_arbitrary_is_of_that_class(kind: str) -> None:
    flow = Dataflow("kinds")
    (ARBITRARY | DETERMINISTIC)[kind](bids(flow)).sink("out")
    step = flow.sinks["out"]
    schemas = tuple(source.schema for source in step.inputs)
    operator = build_operator(step.operation, step.name, schemas)
    is_of_class = operator.operator_class is OperatorClass.ARBITRARY
    assert is_arbitrary(step.operation) == is_of_class == (kind in ARBITRARY)


@pytest.mark.parametrize("kind", ARBITRARY)
def test_what_is_arbitrary_begins_a_unit_and_leaves_the_one_before_it_as_it_is(kind: str) -> None:
    flow = Dataflow("beside")
    merged = bids(flow, "one").union(bids(flow, "two"))
    merged.key_by("bidder").window(counting(7)).aggregate("count(*) AS n", name="sevens").sink("a")
    merged.select("price").sink("b")
    before = {node.node: node.merges_by_arrival or node.keeps_passes for node in place(flow).nodes}
    assert not any(before.values())
    ARBITRARY[kind](merged).sink("peek")
    after = {node.node: node.merges_by_arrival or node.keeps_passes for node in place(flow).nodes}
    (made,) = after.keys() - before.keys()
    assert after == before | {made: True}


BESIDE: dict[str, tuple[Callable[[Stream], object], str]] = {
    "a sink": (lambda s: s.sink("out"), "union there"),
    "another unit": (
        lambda s: s.window(tumbling("1 second")).aggregate("count(*) AS n").sink("out"),
        "union there",
    ),
    "only itself": (lambda s: None, "union there"),
}


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("kind", ["sample", "union by arrival"])
def test_a_unit_in_which_order_would_be_lost_is_refused_by_name(kind: str, beside: str) -> None:
    flow = Dataflow("mixed")
    merged = bids(flow, "one").union(bids(flow, "two"))
    attach, named = BESIDE[beside]
    attach(merged)
    mine = merged.unit(merged.step.unit)
    if kind == "sample":
        mine.sample(0.5).sink("peek")
    else:
        mine.union(bids(flow, "three"), order="arrival").sink("peek")
    with pytest.raises(DataflowError, match=rf"as they come, for (sample|union2), and {named}"):
        place(flow)


def test_what_leads_to_nothing_but_what_is_arbitrary_may_share_its_unit() -> None:
    flow = Dataflow("led")
    one, two = bids(flow, "one").unit("x"), bids(flow, "two").unit("x")
    dear, cheap = one.filter("price > 1"), two.filter("price < 9")
    made = dear.unit("x").union(cheap, order="arrival").select("price")
    made.window(counting(3)).unit("x").aggregate("count(*) AS n").sink("out")
    assert [node.unit for node in place(flow).nodes if node.merges_by_arrival] == ["x"]
    dear.sink("seen")
    with pytest.raises(DataflowError, match="for union, and filter there would depend on that"):
        place(flow)


def test_of_a_single_stream_everything_keeps_its_order_beside_a_sample() -> None:
    flow = Dataflow("single")
    source = bids(flow)
    source.unit("bids").sample(0.5).sink("peek")
    source.filter("price > 1").sink("out")
    (node,) = place(flow).nodes
    assert node.keeps_passes
    assert not node.merges_by_arrival


def test_a_sort_and_windows_of_a_stream_run_once_and_a_keyed_resample_is_split() -> None:
    flow = Dataflow("instances")
    source = bids(flow)
    source.sort("price", slack=5, name="sorted").sink("a")
    source.key_by("bidder").window(counting(5, alignment="stream")).aggregate(
        "count(*) AS n", name="fives"
    ).sink("b")
    source.resample(
        "price AS p", within="1 second", at=source, on="bidder", name="at"
    ).select("bidder").sink("c")  # fmt: skip
    plan = place(flow, 2)
    assert [node.node for node in plan.nodes[1:]] == ["sorted[0]", "fives[0]", "at[0]", "at[1]"]
    assert ("bidder",) in [out.keys for out in plan.nodes[0].outputs]


def test_windows_of_a_stream_need_it_for_themselves() -> None:
    flow = Dataflow("streams")
    source = flow.source_generator(
        NexmarkSource("bid", 10, NexmarkConfig()), name="bids", partitions=2
    )
    counts = source.window(counting(5, alignment="stream")).aggregate("count(*) AS n", name="fives")
    counts.sink("out")
    with pytest.raises(DataflowError, match=r"fives counts the tuples of one stream, but.*reads 2"):
        place(flow)
    flow = Dataflow("filtered")
    filtered = bids(flow).filter("price > 1").unit("bids")
    filtered.window(counting(5, alignment="stream")).aggregate("count(*) AS n").sink("out")
    with pytest.raises(DataflowError, match="alignment='key'"):
        place(flow)


def test_what_is_held_back_is_not_merged_in_the_same_unit() -> None:
    flow = Dataflow("held")
    ordered = bids(flow).sort(slack=5)
    both = ordered.filter("price > 1").union(ordered.filter("price < 9"))
    both.sink("out")
    assert both.step.unit == "union", "a unit of its own"
    place(flow)
    flow = Dataflow("held")
    ordered = bids(flow).sort(slack=5)
    left, right = ordered.filter("price > 1"), ordered.filter("price < 9")
    left.unit("sort").union(right).sink("out")
    with pytest.raises(DataflowError, match="union would merge rows in unit 'sort' that sort"):
        place(flow)


@pytest.mark.parametrize("kind", ["union", "join", "running join"])
def test_closed_windows_have_no_place_among_other_rows_of_one_stream(kind: str) -> None:
    def merged(parts: int, unit: str) -> Dataflow:
        flow = Dataflow("mixed")
        generator = NexmarkSource("bid", 10, NexmarkConfig())
        rows = flow.source_generator(generator, name="bids", partitions=parts).select("bidder AS n")
        windows = rows.window(tumbling("2 seconds")).unit("one")
        counts = (windows if kind == "union" else windows.key_by("n")).aggregate("max(n) AS top")
        closed = counts.select("top AS n" if kind == "union" else "n").unit(unit)
        if kind == "union":
            closed.union(rows).sink("out")
        elif kind == "join":
            closed.join(rows, on="n", select=["left.n"]).sink("out")
        else:
            timed = closed.window(tumbling("10 seconds"))
            timed.join(rows, on="n", select=["left.n"], emit="changes").sink("out")
        return flow

    with pytest.raises(DataflowError, match="results of closed windows in unit 'one'"):
        protected(merged(1, "one"), CHECKPOINTED)
    protected(
        merged(2, "one"), CHECKPOINTED
    )  # The rows of two streams come in the order of their times.
    protected(merged(1, "two"), CHECKPOINTED)


@pytest.mark.parametrize("how", ["filtered", "computed", "joined", "counted", "plain"])
def test_state_may_stand_behind_state_in_one_unit_under_every_approach(how: str) -> None:
    flow = Dataflow("stacked")
    counts = bids(flow).window(tumbling("1 second")).aggregate("count(*) AS n", name="counts")
    counts = counts.unit("counts")
    if how == "joined":
        counts.join(counts, on="n", select=["left.n"], name="tops").sink("out")
    else:
        rare = counts.filter("n < 3").unit("counts") if how == "filtered" else counts
        windows = rare.window(counting(3, 1) if how == "counted" else tumbling("10 seconds"))
        top = "max(10 div n) AS top" if how == "computed" else "max(n) AS top"
        windows.aggregate(top, name="tops").sink("out")
    for standby in Standby:
        (*_, unit) = protected(flow, UnitProtection(standby=standby)).nodes
        assert [spec.name for spec in unit.operators][-1] == "tops"
        assert unit.is_rebuilt_by_replay
        assert OperatorNetwork(unit, PageManager()).taking_part is not None
    (*_, unit) = protected(flow, CHECKPOINTED).nodes
    assert OperatorNetwork(unit, PageManager()).taking_part is None, "nothing is replayed"
    protected(flow, UnitProtection(guarantee=Guarantee.GAP))
    protected(flow, UnitProtection(is_protected=False))


def test_what_is_read_by_key_is_not_held_up_by_a_step_before_it_in_its_unit() -> None:
    flow = Dataflow("split")
    source = flow.source_generator(
        NexmarkSource("bid", 10, NexmarkConfig()), name="bids", partitions=2
    )
    dear = source.unit("counts").filter("price > 1")
    dear.key_by("bidder").window(tumbling("1 second")).aggregate(
        "count(*) AS n", name="counts"
    ).sink("out")
    with pytest.raises(DataflowError, match="by key, as filter comes before it there"):
        place(flow, parallelism=2)
    assert [node.node for node in place(flow).nodes] == ["bids[0]", "bids[1]", "counts[0]"]


def test_a_running_join_is_split_by_its_keys_and_trims() -> None:
    plan = place(nexmark("q8", partitions=2, emit="changes"), parallelism=3)
    assert [node.node for node in plan.nodes if node.unit == "join"] == [
        f"join[{i}]" for i in range(3)
    ]
    assert plan.never_trims == ()


def test_a_stream_may_run_ahead_of_one_that_a_sort_holds_back() -> None:
    flow = Dataflow("diamond")
    source, other = bids(flow), bids(flow, "other")
    source.sort("price", slack=5).union(source, other).sink("out")
    merging = place(flow).nodes[-1]
    waits = {spec.producer: spec.waits_for for spec in merging.inputs}
    held = next(spec.stream for spec in merging.inputs if spec.producer == "sort[0]")
    assert waits == {"sort[0]": (), "bids[0]": (held,), "other[0]": ()}


def test_a_location_belongs_to_one_dataflow(tmp_path: Path) -> None:
    first, other = nexmark("q12"), nexmark("q12", partitions=2)
    claim(str(tmp_path), describe(first, place(first), Protections(None)))
    claim(str(tmp_path), describe(nexmark("q12"), place(nexmark("q12")), Protections(None)))
    with pytest.raises(DataflowChangedError, match=re.escape("+unit bids: 2 instances")):
        claim(str(tmp_path), describe(other, place(other), Protections(None)))


def test_a_step_that_was_in_another_unit_at_a_location_is_named_with_its_unit(
    tmp_path: Path,
) -> None:
    def sampled(unit: str) -> str:
        flow = Dataflow("moved")
        bids(flow).unit(unit).sample(0.5).sink("out")
        return describe(flow, place(flow), Protections(None))

    claim(str(tmp_path), sampled("bids"))
    claim(str(tmp_path), sampled("bids"))
    with pytest.raises(DataflowChangedError, match=re.escape('unit("bids") before sample')):
        claim(str(tmp_path), sampled("sample"))


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


@pytest.mark.parametrize(
    ("guarantees", "loses_input", "may_be_rebased"),
    [
        (("gap", "precise", "precise"), (False, True, True), (True, True, True)),
        (("precise", "gap", "precise"), (False, False, True), (False, True, True)),
        (("rollback", "gap", "precise"), (False, False, False), (True, True, True)),
        (("precise", "rollback", "precise"), (False, False, False), (False, True, True)),
        (("precise", "precise", "precise"), (False, False, False), (False, False, False)),
    ],
)
def test_what_input_may_be_follows_from_all_units_before(
    guarantees: tuple[str, ...], loses_input: tuple[bool, ...], may_be_rebased: tuple[bool, ...]
) -> None:
    flow = Dataflow("chain")
    stream = bids(flow)
    for unit in ("b", "c"):
        stream = stream.unit(unit).filter("price > 0")
    stream.sink("out")
    by_unit = {
        unit: UnitProtection(guarantee=Guarantee(guarantee))
        for unit, guarantee in zip(("bids", "b", "c"), guarantees, strict=True)
    }
    plan = plan_dataflow(
        flow,
        "/tmp/nowhere",
        parallelism=1,
        limits=NodeLimits(),
        protection=by_unit.__getitem__,
    )
    assert tuple(node.loses_input for node in plan.nodes) == loses_input
    assert tuple(node.may_be_rebased for node in plan.nodes) == may_be_rebased


DELAYED = UnitProtection(delays=DelayPlan(2_700, DuringFailure.PROCESS, 300))


def test_a_unit_that_merges_has_a_feed_beside_its_sink_if_it_is_replicated() -> None:
    flow = Dataflow("merged")
    merged = bids(flow, "a").unit("all").union(bids(flow, "b"))
    merged.sink("out")
    plan = protected(flow, DELAYED)
    by_unit = {node.unit: node for node in plan.nodes}
    assert by_unit["a"].delays is None, "with one stream there is none to wait for"
    assert by_unit["all"].delays == DELAYED.delays
    sink, feed = by_unit["all"].outputs
    assert (sink.feed_of, feed.feed_of) == (None, "out[0]")
    assert plan.sink_paths["out~feed[0]"] == "/tmp/nowhere/feeds/out/0"
    assert feed.schema.names == [*sink.schema.names, *FEED_COLUMNS]
    assert all(not output.feed_of for node in place(flow).nodes for output in node.outputs)


def test_a_chain_of_replicated_units_passes_tentative_results_on_and_waits_once() -> None:
    flow = Dataflow("chain")
    first = bids(flow, "a").unit("first").union(bids(flow, "b"))
    second = first.unit("second").filter("price > 0")
    third = second.unit("third").union(bids(flow, "c"))
    third.sink("out")
    third.unit("beside").filter("price > 1").sink("stable")

    def protection(unit: str) -> UnitProtection:
        return DELAYED if unit in ("first", "second", "third") else UnitProtection()

    location, limits = "/tmp/nowhere", NodeLimits()
    nodes = plan_dataflow(flow, location, parallelism=1, limits=limits, protection=protection).nodes
    by_unit = {node.unit: node for node in nodes}
    bounds = {unit: n.delays and n.delays.bound_ms for unit, n in by_unit.items()}
    assert bounds == {
        **dict.fromkeys("abc"),
        "beside": None,
        "first": 2_700,
        "second": 2_800,
        "third": 2_800,
    }
    sends = {
        (unit, spec.receivers[0]): spec.has_tentative
        for unit, node in by_unit.items()
        for spec in node.outputs
        if not spec.is_sink
    }
    assert [edge for edge, has_tentative in sends.items() if has_tentative] == [
        ("first", "second[0]"),
        ("second", "third[0]"),
    ]
    assert ("third", "beside[0]") in sends


def test_what_cannot_be_corrected_is_refused_for_a_replicated_unit() -> None:
    flow = Dataflow("arbitrary")
    bids(flow, "a").unit("all").union(bids(flow, "b"), order="arrival").sink("out")
    with pytest.raises(DataflowError, match="arbitrary: what it puts out could not be corrected"):
        protected(flow, DELAYED)
    flow = Dataflow("named")
    merged = bids(flow, "a").unit("all").union(bids(flow, "b"))
    merged.select("price AS _run").sink("out")
    with pytest.raises(DataflowError, match="has a column '_run'"):
        protected(flow, DELAYED)
    flow = Dataflow("topic")
    merged = bids(flow, "a").unit("all").union(bids(flow, "b"))
    merged.sink_kafka("out", servers="nowhere:1", topic="t")
    with pytest.raises(DataflowError, match="'t', where tentative results have no place"):
        protected(flow, DELAYED)


def test_what_is_tentative_of_a_topic_goes_into_a_topic_of_its_own() -> None:
    flow = Dataflow("topics")
    merged = bids(flow, "a").unit("all").union(bids(flow, "b"))
    merged.sink_kafka("out", servers="nowhere:1", topic="t", key="bidder", tentative="later")
    plan = protected(flow, DELAYED)
    specs = {spec.stream: spec for spec in plan.outside_sinks if isinstance(spec, KafkaSinkSpec)}
    topics = {stream: spec.topic for stream, spec in specs.items()}
    assert topics == {"out[0]": "t", "out~feed[0]": "later"}
    feed = specs["out~feed[0]"]
    assert (feed.encoder.stream, feed.is_exactly_once) == ("out[0]", True)
    assert feed.place != specs["out[0]"].place
    with pytest.raises(DataflowError, match="names a topic for tentative results, and unit 'all'"):
        protected(flow, UnitProtection())
    with pytest.raises(DataflowError, match="is the topic of stable results"):
        merged.sink_kafka("o", servers="nowhere:1", topic="t", tentative="t")


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"replicas": 0}, OptionError, "there are 1 to 3"),
        ({"replicas": 4}, OptionError, "there are 1 to 3"),
        ({"alpha": 0.0}, OptionError, "it lies above 0 and up to 1"),
        ({"delay": "1 microsecond"}, OptionError, "at least 1 millisecond"),
        ({"during_failure": "wait"}, OptionError, "one of process, delay, suspend"),
        ({"during_stabilization": "process"}, UnsupportedError, "cannot process new input while"),
        ({"reconcile": "undo"}, OptionError, "checkpoint/redo, undo/redo"),
        ({"buffer": "spill"}, OptionError, "one of block, drop"),
        ({"chain": "twice"}, OptionError, "Replicated(chain='twice'); one of once, each"),
        ({"buffer": "drop", "replicas": 2}, UnsupportedError, "drop different tuples"),
        ({"guarantee": "gap"}, UnsupportedError, "it gives 'precise'"),
    ],
)
def test_what_replicated_cannot_give_is_refused(
    settings: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        Replicated(**settings).check(Dataflow("any"))


def test_the_bound_is_alpha_times_the_delay() -> None:
    assert Replicated().of_unit() == DELAYED


@pytest.mark.parametrize(
    ("chain", "bounds_ms"), [("once", [2_700, 2_800, 2_900]), ("each", [2_700] * 3)]
)
def test_in_the_papers_scheme_each_unit_of_a_chain_waits_for_the_bound_and_no_longer(
    chain: str, bounds_ms: list[int]
) -> None:
    """A sink's own unit, which replicas have, waits for nothing."""
    flow = Dataflow("chain")
    first = bids(flow, "a").unit("first").union(bids(flow, "b"))
    second = first.unit("second").union(bids(flow, "c"))
    second.unit("third").filter("price > 0").sink("out")
    plans = {
        plan.unit: plan.delays
        for plan in protected(flow, Replicated(chain=chain, replicas=2).of_unit()).nodes
        if plan.delays is not None
    }
    found = [plans[unit] for unit in ("first", "second", "third")]
    assert [delays.bound_ms for delays in found] == bounds_ms
    assert [delays.waits_alone for delays in found] == [chain == "each"] * 3
    assert not plans["out~sink"].waits_alone


def test_replicas_are_nodes_that_read_all_replicas_of_their_producers() -> None:
    """Sources keep their one node, and the sink gets one of its own."""
    flow = Dataflow("replicas")
    merged = bids(flow, "a").unit("all").union(bids(flow, "b"))
    merged.unit("behind").filter("price > 0").sink("out")
    delays = replace(DELAYED.delays, replicas=2) if DELAYED.delays else None
    plans = {plan.node: plan for plan in protected(flow, replace(DELAYED, delays=delays)).nodes}
    assert sorted(plans) == [
        "a[0]", "all[0]", "all[0]+1", "b[0]", "behind[0]", "behind[0]+1", "out~sink[0]",
    ]  # fmt: skip
    (read,) = plans["behind[0]+1"].inputs
    assert [node for _, node in read.senders] == ["all[0]", "all[0]+1"]
    assert plans["all[0]+1"].replicas == ("all[0]", "all[0]+1")
    assert [o.receivers for o in plans["a[0]"].outputs] == [("all[0]",), ("all[0]+1",)]
    assert plans["a[0]"].streams_beside() == {
        "a:a[0]>all[0].0": ("a:a[0]>all[0]+1.0",),
        "a:a[0]>all[0]+1.0": ("a:a[0]>all[0].0",),
    }
    assert plans["out~sink[0]"].streams_beside() == {}
    sink = plans["out~sink[0]"]
    assert [output.is_sink for output in sink.outputs] == [True, True]
    assert not sink.replicas
    assert plans["a[0]"].delays is None


def test_replicas_are_refused_where_they_could_not_agree() -> None:
    flow = Dataflow("own")
    bids(flow, "a").unit("a").union(bids(flow, "b")).sink("out")
    delays = replace(DELAYED.delays, replicas=2) if DELAYED.delays else None
    with pytest.raises(DataflowError, match="a source has one reader"):
        protected(flow, replace(DELAYED, delays=delays))
