"""Who recovers together: those that do not repeat, and what leaves them waits behind a gate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.windows import tumbling
from holdfast.core.haunit.plan import CheckpointPlan, Cuts, NodeLimits, UnitProtection
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import DataflowError
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource
from holdfast.planning.guarantees import recoveries_of
from holdfast.planning.plan import plan_dataflow
from holdfast.planning.regions import _with_empty_channels

_SOURCE = NexmarkSource("bid", 10, NexmarkConfig())
UNCOORDINATED = UnitProtection(
    checkpoints=CheckpointPlan(1_000, kept=2, asks_first=True), cuts=Cuts.UNCOORDINATED
)


def _flow(order: str) -> Dataflow:
    flow = Dataflow("regions")
    bids = flow.source_generator(_SOURCE, name="bids")
    more = flow.source_generator(_SOURCE, name="more")
    one, other = bids.select("price"), more.select("price")
    both = one.union(other, order=order)
    counts = both.window(tumbling("1 second")).aggregate("count(*) AS n", name="counts")
    counts.sink("counts")
    return flow


def _plans(order: str = "arrival", **others: UnitProtection) -> dict[str, object]:
    plan = plan_dataflow(
        _flow(order),
        "/tmp/nowhere",
        parallelism=1,
        limits=NodeLimits(),
        protection=lambda unit: others.get(unit, UNCOORDINATED),
    )
    return {node.unit: node for node in plan.nodes}


def test_who_takes_input_as_it_comes_recovers_with_whoever_reads_it():
    plans = _plans()
    assert {unit: plan.region for unit, plan in plans.items()} == {
        "bids": "",
        "more": "",
        "union": "counts",
        "counts": "counts",
    }
    assert not plans["union"].keeps_passes
    assert plans["union"].checkpoints == CheckpointPlan(1_000, kept=1), "though it has no state"
    assert [spec.is_gated for spec in plans["union"].outputs] == [False]
    assert [spec.is_gated for spec in plans["counts"].outputs] == [True]
    assert plans["union"].changing_streams()
    assert not plans["counts"].changing_streams()


def test_what_leaves_a_region_waits_so_that_its_reader_repeats():
    plans = _plans(counts=UnitProtection())
    assert (plans["union"].region, plans["counts"].region) == ("union", "")
    assert [spec.is_gated for spec in plans["union"].outputs] == [True]


def test_results_that_may_come_again_wait_for_no_line_but_what_others_read_does():
    again = replace(UNCOORDINATED, guarantee=Guarantee.ROLLBACK)
    plans = _plans(union=again, counts=again, bids=again, more=again)
    assert {u for u, plan in plans.items() if plan.region} == {"union", "counts"}
    assert not any(s.is_gated for u in ("union", "counts") for s in plans[u].outputs)
    assert not plans["counts"].changing_streams(), "no marker goes to a sink"
    assert not plans["union"].keeps_passes
    assert not any(plan.rebases for plan in plans.values())
    assert [plans[unit].repeats_results for unit in ("bids", "counts")] == [False, True]
    apart = _plans(union=again, counts=UnitProtection())
    assert [spec.is_gated for spec in apart["union"].outputs] == [True]
    precise = _plans(union=again)
    assert [spec.is_gated for spec in precise["counts"].outputs] == [True], "it goes back, too"


def test_who_repeats_is_given_more_than_at_least_once_and_that_is_said():
    again = replace(UNCOORDINATED, guarantee=Guarantee.ROLLBACK)
    plan = plan_dataflow(
        *(_flow("arrival"), "/tmp/nowhere"),
        parallelism=1,
        limits=NodeLimits(),
        protection=lambda _: again,
    )
    assert [raised.unit for raised in plan.raised] == ["bids", "more"]
    assert "its replacement makes the same tuples" in plan.notes[-1]
    recoveries = {each.unit: each.recovery_type for each in recoveries_of(plan.nodes)}
    assert recoveries == {
        "bids": "precise",
        "more": "precise",
        "union": "divergent",
        "counts": "divergent",
    }


def test_where_all_repeat_every_unit_recovers_alone():
    plans = _plans("time")
    assert not any(plan.region for plan in plans.values())
    assert plans["counts"].checkpoints == UNCOORDINATED.checkpoints
    assert plans["union"].checkpoints is None


def test_a_region_does_not_read_what_may_come_under_other_ids():
    weak = UnitProtection(guarantee=Guarantee.ROLLBACK)
    with pytest.raises(DataflowError, match="'bids'"):
        _plans(bids=weak)


def test_one_round_serves_a_region_and_who_stands_between_its_units_takes_part():
    aligned = UnitProtection(checkpoints=CheckpointPlan(1_000), cuts=Cuts.ALIGNED)
    plans = _plans(union=aligned, counts=aligned)
    assert {plan.cuts for plan in plans.values() if plan.region} == {Cuts.ALIGNED}
    assert [spec.is_from_region for spec in plans["union"].inputs] == [False, False]
    assert [spec.is_from_region for spec in plans["counts"].inputs] == [True]
    apart = _plans(union=aligned)
    assert apart["union"].region == "union", "what else is cut otherwise reads it behind a gate"
    assert not apart["counts"].region
    often = UnitProtection(checkpoints=CheckpointPlan(500), cuts=Cuts.ALIGNED)
    with pytest.raises(DataflowError, match="same settings"):
        _plans(union=aligned, counts=often)


def test_who_can_force_whom_to_cut():
    def induced(*, is_whole: bool) -> UnitProtection:
        plan = CheckpointPlan(1_000)
        return UnitProtection(checkpoints=plan, cuts=Cuts.HMNR, is_scope_whole=is_whole)

    own, whole = induced(is_whole=False), induced(is_whole=True)
    plans = _plans(union=own, counts=own)
    assert plans["union"].scope == ("union[0]",), "there is no cycle"
    plans = _plans(union=whole, counts=whole)
    assert plans["union"].scope == plans["counts"].scope == ("union[0]", "counts[0]")
    with pytest.raises(DataflowError, match="same scope"):
        _plans(union=own, counts=whole)


def test_who_recovers_together_agrees_on_who_goes_back():
    everybody = replace(UNCOORDINATED, all_go_back=True)
    plans = _plans(union=everybody, counts=everybody)
    assert {u for u, plan in plans.items() if plan.all_go_back} == {"union", "counts"}
    with pytest.raises(DataflowError, match="same rolls_back"):
        _plans(union=everybody)
    spare = replace(UNCOORDINATED, lines_kept=2)
    plans = _plans(union=spare, counts=spare)
    assert [plans[unit].checkpoints.kept for unit in ("union", "counts")] == [2, 2]
    with pytest.raises(DataflowError, match="same kept"):
        _plans(union=spare)


def test_an_aligned_round_leaves_channels_empty_but_to_who_merges_by_time():
    aligned = replace(UNCOORDINATED, cuts=Cuts.ALIGNED)
    plans = _plans(union=aligned, counts=aligned, bids=aligned, more=aligned)
    assert [spec.is_empty_at_cuts for spec in plans["union"].outputs] == [True]
    assert not any(spec.is_empty_at_cuts for spec in plans["counts"].outputs), "they are gated"
    assert not any(s.is_empty_at_cuts for plan in _plans().values() for s in plan.outputs)
    waiting = replace(plans["counts"], inputs=plans["counts"].inputs * 2)
    union, _ = _with_empty_channels((plans["union"], waiting))
    assert [spec.is_empty_at_cuts for spec in union.outputs] == [False]
