"""The adviser: from measurements to options, and which one is chosen."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import (
    ActiveStandby,
    Amnesia,
    Checkpointed,
    CommunicationInduced,
    Coordinated,
    EventualCheckpoints,
    PassiveStandby,
    Protection,
    Protections,
    Uncoordinated,
    UpstreamBackup,
)
from holdfast.api.windows import counting, tumbling
from holdfast.cli.main import app
from holdfast.core.coordinator.reports import MeasurementsReported
from holdfast.core.haunit.plan import CheckpointPlan, NodeLimits, Standby, UnitProtection
from holdfast.core.operators.base import OperatorClass
from holdfast.core.recovery.cost_model import (
    Approach,
    Surroundings,
    Together,
    UnitFigures,
    Variant,
    predict,
)
from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.driver.advice import Advice, Objectives, Option, UnitAdvice, advise, refusals
from holdfast.driver.measurements import (
    Measurements,
    Observed,
    UnitMeasurement,
    measure,
)
from holdfast.errors import AdviceError, DataflowError, UnsupportedError
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource
from holdfast.planning.guarantees import unit_class
from holdfast.planning.plan import Plan, plan_dataflow
from holdfast.planning.together import recovering_together
from holdfast.shell.storage.errors import FileDamaged

COUNTS = UnitMeasurement(
    unit="counts",
    instances=2,
    hosts=1,
    protection="UpstreamBackup",
    operator_class="convergent_capable",
    operators=1,
    stateful_operators=1,
    input_streams=1,
    output_streams=1,
    receivers=(),
    input_tuples_per_s=100_000,
    output_tuples_per_s=1_000,
    input_tuple_bytes=40,
    output_tuple_bytes=40,
    tuple_cost_us=1.0,
    replay_cost_us=0.5,
    state_bytes=10e6,
    changed_bytes_per_s=5e6,
    state_tuples=1_000_000,
    replay_tuples=1_010_000,
)
INGEST = replace(
    COUNTS,
    unit="ingest",
    operator_class="repeatable",
    stateful_operators=0,
    receivers=("counts",),
    output_tuples_per_s=100_000,
    state_bytes=0,
    changed_bytes_per_s=0,
    state_tuples=0,
    replay_tuples=1_020_000,
)
MEASURED = Measurements("flow", (INGEST, COUNTS), 1, 50, 260)


def unit(advice: Advice, name: str) -> UnitAdvice:
    return next(u for u in advice.units if u.measured.unit == name)


def option(advice: Advice, name: str, approach: str) -> Option:
    return next(o for o in unit(advice, name).options if o.approach == approach)


# -- options --------------------------------------------------------------------------------


def test_every_approach_that_gives_the_guarantee_is_shown() -> None:
    precise, gap = advise(MEASURED, Objectives()), advise(MEASURED, Objectives(guarantee="gap"))
    standbys = {"PassiveStandby", "ActiveStandby"}
    assert {o.approach for o in unit(precise, "counts").options} == {
        *standbys,
        *("UpstreamBackup", "Checkpointed", "EventualCheckpoints"),
    }
    assert "Amnesia" in {o.approach for o in unit(gap, "counts").options}
    of_ingest = {o.approach for o in unit(precise, "ingest").options}
    assert not {"Checkpointed", "EventualCheckpoints"} & of_ingest, "it has no state"


def test_recovery_counts_from_the_failure_and_is_the_sum_of_its_parts() -> None:
    found = option(advise(MEASURED, Objectives()), "counts", "UpstreamBackup")
    assert found.recovery_ms == pytest.approx(sum(found.parts_ms.values()), abs=0.5)
    assert found.parts_ms["detection"] == 260
    assert found.parts_ms["replay"] == pytest.approx(1_010_000 * 0.5 / 1000, rel=0.01)


def test_what_a_running_upstream_backup_would_replay_is_measured_not_modelled() -> None:
    ingest = option(advise(MEASURED, Objectives()), "ingest", "UpstreamBackup")
    assert ingest.replayed_tuples == 1_020_000


def test_elsewhere_the_state_behind_a_unit_keeps_its_restart_points_back() -> None:
    checkpointed = replace(MEASURED, units=(replace(INGEST, protection="PassiveStandby"), COUNTS))
    ingest = option(advise(checkpointed, Objectives()), "ingest", "UpstreamBackup")
    assert ingest.replayed_tuples == pytest.approx(1_000_000, rel=0.02)
    behind = replace(COUNTS, protection="Checkpointed")
    checkpoints = replace(
        checkpointed, units=(checkpointed.units[0], behind), checkpoint_interval_ms=2_000
    )
    ingest = option(advise(checkpoints, Objectives()), "ingest", "UpstreamBackup")
    assert ingest.replayed_tuples == pytest.approx(100_000 * 1.5 * 2, rel=0.05)


def test_units_of_a_loop_are_advised() -> None:
    joined = replace(
        COUNTS,
        unit="joined",
        operator_class="arbitrary",
        protection="Uncoordinated",
        receivers=("again",),
        together=Together(2, 2),
    )
    again = replace(joined, unit="again", receivers=("joined",))
    units = (replace(INGEST, receivers=("joined",)), joined, again)
    found = advise(replace(MEASURED, units=units, checkpoint_interval_ms=2_000), Objectives())
    assert {o.approach for o in unit(found, "joined").options} >= {"Coordinated"}
    ingest = option(found, "ingest", "PassiveStandby")
    assert ingest.recovery_ms > 0
    upstream = replace(units[0], protection="PassiveStandby")
    units = (upstream, *units[1:])
    found = advise(replace(MEASURED, units=units, checkpoint_interval_ms=2_000), Objectives())
    kept_s = 2 * 1.5
    ingest = option(found, "ingest", "UpstreamBackup")
    assert ingest.replayed_tuples == pytest.approx(100_000 * kept_s, rel=0.1)


def test_chains_of_any_length_are_advised() -> None:
    length = 2_000
    chain = [
        replace(INGEST, unit=f"step-{at}", receivers=(f"step-{at + 1}",)) for at in range(length)
    ]
    last = replace(COUNTS, unit=f"step-{length}")
    found = advise(replace(MEASURED, units=(*chain, last)), Objectives())
    assert len(found.units) == length + 1


def test_eventual_checkpoints_replay_what_comes_until_windows_are_written() -> None:
    by_size = option(advise(MEASURED, Objectives()), "counts", "EventualCheckpoints")
    assert by_size.replayed_tuples == pytest.approx(407_000, rel=0.02), "all is written once"
    small = replace(MEASURED, units=(INGEST, replace(COUNTS, state_bytes=5e6)))
    by_size = option(advise(small, Objectives()), "counts", "EventualCheckpoints")
    assert by_size.replayed_tuples == pytest.approx(260_000, rel=0.04), "half of the extent"
    later = Objectives(recovery_ms=1000)
    in_time = option(advise(MEASURED, later), "counts", "EventualCheckpoints")
    assert in_time.protection == 'EventualCheckpoints(recovery="740 milliseconds")'
    assert in_time.replayed_tuples == pytest.approx(407_000, rel=0.02), "no faster at this share"
    assert in_time.parts_ms["load"] == 100
    assert in_time.recovery_ms < 1000
    assert in_time.overhead_bytes_per_s == pytest.approx(2 * 10e6 / 3.95, rel=0.02)


@pytest.mark.parametrize(("mark_ms", "percent"), [(0, 0), (0.4, 1.2), (5, 3.75), (500, 37.5)])
def test_records_before_restart_points_cost_what_they_take(mark_ms: float, percent: float) -> None:
    """Half of the share at most, unless points were more than two seconds apart then."""
    unit = UnitFigures(100_000, 1_000, state_tuples=1_000, state_bytes=1e5)
    around = Surroundings(footprint_share=0.05, footprint_mark_ms=mark_ms, indicator_cost_us=0)
    found = predict(Approach.EVENTUAL_CHECKPOINTS, "precise", unit, around, Variant.HOLDFAST)
    assert found.run_time.processing_percent == pytest.approx(percent)
    windows = replace(unit, state_tuples=1e9, state_bytes=1e9)
    longer = predict(Approach.EVENTUAL_CHECKPOINTS, "precise", windows, around, Variant.HOLDFAST)
    left = 0.05 - min(percent / 150, 0.025)
    assert longer.failure.replayed_tuples >= 100_000 * 10 / left, "what is left writes windows"


def test_windows_that_close_before_they_are_written_cost_nothing() -> None:
    short = replace(COUNTS, state_tuples=1_000, replay_tuples=4_000)
    found = option(advise(replace(MEASURED, units=(INGEST, short)), Objectives()), "counts",
                   "EventualCheckpoints")  # fmt: skip
    assert found.replayed_tuples <= 4_000
    assert found.parts_ms["load"] == 0
    assert found.overhead_bytes_per_s < 20_000


def test_standbys_need_a_slot_per_instance_and_the_bytes_of_all() -> None:
    found = option(advise(MEASURED, Objectives()), "counts", "ActiveStandby")
    assert found.slots == 2
    assert found.overhead_bytes_per_s == pytest.approx(2 * 100_000 * 40, rel=0.01)


# -- the choice -----------------------------------------------------------------------------


def test_without_objectives_the_cheapest_is_chosen() -> None:
    assert advise(MEASURED, Objectives()).protection == {
        "ingest": "UpstreamBackup()",
        "counts": "UpstreamBackup()",
    }


def test_a_recovery_that_a_replay_is_too_slow_for_needs_checkpoints() -> None:
    quick = replace(MEASURED, checkpoint_interval_ms=1_000.0)
    found = advise(quick, Objectives(recovery_ms=700))
    counts = unit(found, "counts")
    assert counts.choice is not None
    assert counts.choice.approach == "Checkpointed"
    assert option(found, "counts", "UpstreamBackup").misses == ("recovery_ms",)


def test_when_none_meets_the_objectives_that_is_said_with_the_nearest() -> None:
    found = advise(MEASURED, Objectives(recovery_ms=100, overhead_percent=1))
    counts = unit(found, "counts")
    assert counts.choice is None
    assert found.protection["counts"] is None
    assert "none meets all objectives" in counts.reason
    assert "ms" in counts.reason


def test_what_the_dataflow_refuses_is_not_chosen_but_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: ActiveStandby, flow: Dataflow) -> None:
        raise UnsupportedError(f"{flow.name} has a source that cannot be read twice")

    monkeypatch.setattr(ActiveStandby, "check", refuse)
    refused = refusals(bids(), Protections(None), placed)
    assert list(refused) == ["ingest", "counts"]
    for of_unit in refused.values():
        assert list(of_unit) == ['ActiveStandby(guarantee="rollback")', "ActiveStandby()"]
    quick = replace(MEASURED, refused=refused)
    found = unit(advise(quick, Objectives(recovery_ms=400)), "counts")
    assert found.choice is not None
    assert found.choice.approach == "PassiveStandby"
    assert "ActiveStandby() is refused: bids has a source" in found.reason
    none = unit(advise(quick, Objectives(recovery_ms=261 + 5)), "counts")
    assert none.choice is None
    assert none.reason.startswith("nothing else would do, but ActiveStandby() is refused: bids")


def test_a_protection_is_predicted_with_the_period_that_it_is_proposed_with() -> None:
    rare = replace(COUNTS, protection="PassiveStandby", delta_interval_ms=1_000)
    measured = replace(MEASURED, units=(INGEST, rare), checkpoint_interval_ms=2_000)
    advice = advise(measured, Objectives())
    passive = option(advice, "counts", "PassiveStandby")
    assert passive.replayed_tuples == 100_000 * 1_000 / 2 / 1000
    assert passive.protection == 'PassiveStandby(interval="1000 milliseconds")'
    checkpointed = option(advice, "counts", "Checkpointed")
    assert checkpointed.protection == 'Checkpointed(interval="2000 milliseconds")'
    ingest = option(advice, "ingest", "PassiveStandby")
    assert (ingest.replayed_tuples, ingest.protection) == (2_500, "PassiveStandby()")
    fast = advise(replace(measured, ack_interval_ms=10), Objectives())
    assert option(fast, "ingest", "PassiveStandby").replayed_tuples == 2_500, "M is no matter"


def test_the_weaker_guarantee_is_chosen_only_where_it_is_cheaper() -> None:
    found = advise(MEASURED, Objectives(guarantee="gap"))
    assert unit(found, "counts").choice is not None
    assert found.protection["counts"] in ("UpstreamBackup()", "Amnesia()")
    assert "lost_tuples" in json.dumps(found.to_json())


def test_an_arbitrary_unit_may_be_rolled_back_where_a_log_would_delay_it() -> None:
    arbitrary = replace(COUNTS, operator_class="arbitrary")
    advice = advise(replace(MEASURED, units=(arbitrary,)), Objectives(0, 1, None, "rollback"))
    offered = [o for o in unit(advice, "counts").options if o.approach == "UpstreamBackup"]
    assert [(o.guarantee, "delay_ms" in o.misses) for o in offered] == [
        ("rollback", False),
        ("precise", True),
    ]


def test_a_thin_input_does_not_make_an_overhead_of_some_bytes_too_much() -> None:
    thin = replace(COUNTS, input_tuples_per_s=1.0, state_tuples=10, replay_tuples=10)
    found = advise(replace(MEASURED, units=(thin,)), Objectives(overhead_percent=1))
    upstream = option(found, "counts", "UpstreamBackup")
    assert upstream.overhead_percent > 1
    assert upstream.is_enough


def test_nothing_measured_gives_no_advice() -> None:
    idle = replace(MEASURED, units=(replace(COUNTS, input_tuples_per_s=0.0),))
    with pytest.raises(AdviceError, match="no unit has had input"):
        advise(idle, Objectives())


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"guarantee": "perfect"}, "precise"),
        ({"recovery_ms": -1.0}, "recovery_ms=-1"),
        ({"delay_ms": float("nan")}, "delay_ms=nan"),
    ],
)
def test_wrong_objectives_are_refused_by_name(wrong: Mapping[str, float], named: str) -> None:
    with pytest.raises(AdviceError, match=named):
        Objectives(**wrong)  # type: ignore[arg-type]


def test_what_was_measured_and_what_was_assumed_is_said() -> None:
    said = advise(MEASURED, Objectives()).assumptions
    assert "assumed" in said["replacement"]
    failed = replace(MEASURED, replacement_ms=180.0, detection_ms=211.0)
    said = advise(failed, Objectives()).assumptions
    assert said["replacement"] == "180 ms, measured"
    assert said["detection"] == "211 ms, measured"


# -- planning -------------------------------------------------------------------------------

REFUSED = ["EventualCheckpoints()"]


def stacked() -> Dataflow:
    """Two operators with state in unit `counts`, so that closed windows are not replayed into the
    second one; another unit beside.
    """
    flow = Dataflow("stacked")
    generator = NexmarkSource("bid", 100, NexmarkConfig())
    source = flow.source_generator(generator, name="bids", unit="ingest")
    counts = source.key_by("bidder").window(tumbling("10 seconds"))
    counted = counts.aggregate("count(*) AS n", name="counts")
    counted.unit("counts").key_by("bidder").window(counting(3)).aggregate(
        "sum(n) AS n", name="sums"
    ).sink("out")
    source.key_by("auction").window(tumbling("1 second")).aggregate(
        "max(price) AS top", name="tops"
    ).sink("tops")
    return flow


def planner(flow: Dataflow) -> Callable[[Protections], Plan]:
    """What `start` plans a dataflow by."""
    return lambda given: plan_dataflow(
        flow,
        "/nowhere",
        parallelism=1,
        limits=NodeLimits(),
        protection=lambda unit: given.of(unit).of_unit(),
    )


def measured_of(flow: Dataflow, running: Protections) -> Measurements:
    """As a query would measure it."""
    place = planner(flow)
    plan = place(running)
    figures = MeasurementsReported(1_000.0, input_tuple_bytes=40.0, tuple_cost_us=1.0)
    observed = Observed({node.node: figures for node in plan.nodes}, {})
    refused = refusals(flow, running, place)
    together = recovering_together(place(Protections(Uncoordinated())).nodes)
    return measure(
        flow.name, plan, running.of, observed, misses=3, refused=refused, together=together
    )


RUNNING: list[Protection | dict[str, Protection]] = [
    Checkpointed(),
    Checkpointed(interval="2 seconds", store="/checkpoints", kept=3, writers=2),
    {"counts": Checkpointed(store="/checkpoints", workers=5), "tops": ActiveStandby()},
    {"counts": Amnesia(), "ingest": PassiveStandby(interval="1 second")},
]


@pytest.mark.parametrize("running", RUNNING)
def test_what_the_planner_refuses_a_unit_is_not_advised_for_it_but_for_others(
    running: Protection | dict[str, Protection],
) -> None:
    measured = measured_of(stacked(), Protections(running))
    assert measured.refused is not None
    assert {unit: list(found) for unit, found in measured.refused.items()} == {
        "ingest": [],
        "counts": REFUSED,
        "tops": [],
    }
    reasons = dict(measured.refused["counts"])
    assert "give it another unit" in reasons["EventualCheckpoints()"]
    advice = advise(measured, Objectives())
    assert advice.is_planned
    counts = unit(advice, "counts")
    assert counts.choice is not None
    assert counts.choice.approach == "UpstreamBackup"
    assert {option.protection for option in counts.options if option.refused} == set(REFUSED)
    assert advice.protection["tops"] == "UpstreamBackup()"


@pytest.mark.parametrize("guarantee", ["precise", "rollback", "gap"])
@pytest.mark.parametrize("running", RUNNING)
def test_what_is_advised_is_taken_by_start(
    running: Protection | dict[str, Protection], guarantee: str
) -> None:
    """Any of the options that are not refused, unit by unit, and the choices for all of them."""
    flow = stacked()
    advice = advise(measured_of(flow, Protections(running)), Objectives(guarantee=guarantee))
    chosen = {u.measured.unit: written(u.choice) for u in advice.units}
    options = [(u.measured.unit, o) for u in advice.units for o in u.options if not o.refused]
    wholes = [chosen, *({**chosen, name: written(option)} for name, option in options)]
    for whole in map(Protections, wholes):
        whole.check(flow)
        planner(flow)(whole)
    assert len(wholes) > 3


def written(option: Option | None) -> Protection:
    """The protection that somebody gets who writes what was advised."""
    assert option is not None
    standbys = (ActiveStandby, PassiveStandby)
    names = (*standbys, *WITH_OTHERS, Amnesia, Checkpointed, EventualCheckpoints, UpstreamBackup)
    made = eval(option.protection, {each.__name__: each for each in names})
    assert isinstance(made, Protection)
    return made


# -- units that recover together ------------------------------------------------------------

WITH_OTHERS = (Coordinated, Uncoordinated, CommunicationInduced)


def by_arrival() -> Dataflow:
    """A unit that takes its input as it comes, and one behind it."""
    flow = Dataflow("arrival")
    sources = [
        flow.source_generator(NexmarkSource("bid", 100, NexmarkConfig()), name=n, unit=f"in{n}")
        for n in "ab"
    ]
    merged = sources[0].unit("merged").union(sources[1].unit("merged"), order="arrival")
    counts = merged.unit("counts").key_by("bidder").window(tumbling("1 second"))
    counts.aggregate("count(*) AS n", name="n").sink("n")
    return flow


def offered(unit_advice: UnitAdvice) -> dict[str, Option]:
    names = {kind.__name__ for kind in WITH_OTHERS}
    return {o.protection: o for o in unit_advice.options if o.approach in names}


def test_checkpoints_taken_with_others_are_advised_to_units_that_recover_together() -> None:
    flow = by_arrival()
    advice = advise(measured_of(flow, Protections(UpstreamBackup())), Objectives())
    of_merged, of_counts = (offered(unit(advice, name)) for name in ("merged", "counts"))
    assert list(of_merged) == [
        "Coordinated()",
        "Uncoordinated()",
        "CommunicationInduced()",
        "Coordinated(aligned=False)",
    ]
    assert not offered(unit(advice, "ina")), "its output repeats"
    rounds, own = "Coordinated(aligned=False)", "Uncoordinated()"
    assert of_counts[rounds].delay_ms == pytest.approx(of_merged[rounds].delay_ms, rel=0.01)
    assert of_counts[own].delay_ms == pytest.approx(2 * of_merged[own].delay_ms, rel=0.01)
    assert of_counts[own].parts_ms["replay"] > of_counts[rounds].parts_ms["replay"]
    for each in (*of_merged.values(), *of_counts.values()):
        whole = Protections(written(each))
        whole.check(flow)
        planner(flow)(whole)


def test_an_interval_that_a_region_has_is_predicted_with_and_named() -> None:
    running = Protections(Coordinated(interval="1 second"))
    advice = advise(measured_of(by_arrival(), running), Objectives())
    found = offered(unit(advice, "merged"))
    shorter = found['Coordinated(interval="1000 milliseconds")']
    assert 500 < shorter.delay_ms < 600


def test_nothing_is_advised_on_a_circle_whose_line_may_stand_still() -> None:
    alone = Together(members=2, depth=2, circle=1)
    for together, names in (
        (alone, {"Coordinated", "Uncoordinated", "CommunicationInduced"}),
        (replace(alone, circle=2), {"Coordinated", "CommunicationInduced"}),
    ):
        within = replace(COUNTS, operator_class="arbitrary", together=together)
        found = offered(unit(advise(replace(MEASURED, units=(within,)), Objectives()), "counts"))
        assert {o.approach for o in found.values()} == names
        induced = found["CommunicationInduced()"]
        assert (induced.overhead_bytes_per_s > found["Coordinated()"].overhead_bytes_per_s) == (
            together.circle > 1
        ), "it is forced to take more"


def test_units_are_tried_one_by_one_only_where_all_are_refused() -> None:
    def plans(flow: Dataflow) -> int:
        tried: list[Protections] = []
        refusals(flow, Protections(Checkpointed()), lambda g: (tried.append(g), planner(flow)(g)))
        return len(tried)

    assert plans(bids()) == 12
    assert plans(stacked()) == 12 + 3 * len(REFUSED)


def test_options_go_to_the_store_that_there_is() -> None:
    """Two stores would be refused, and another one than before by the location."""
    own = Checkpointed(interval="2 seconds", store="/checkpoints", kept=3, writers=2)
    tried: list[Protections] = []
    running = Protections({"counts": own})
    assert not any(refusals(bids(), running, tried.append).values())
    given = {protections.of(name) for protections in tried for name in ("ingest", "counts")}
    assert [p for p in given if isinstance(p, Checkpointed)] == [own]
    measured = measured_of(stacked(), running)
    assert option(advise(measured, Objectives()), "tops", "Checkpointed").protection == (
        'Checkpointed(interval="2000 milliseconds", store="/checkpoints", kept=3, writers=2)'
    )


def test_the_settings_of_a_unit_are_kept_where_it_is_tried_with_what_it_has() -> None:
    own = PassiveStandby(interval="1 second", strict=True)
    tried: list[Protections] = []
    refusals(bids(), Protections({"counts": own}), tried.append)
    given = {protections.of("counts") for protections in tried}
    assert {p for p in given if isinstance(p, PassiveStandby)} == {
        own,
        replace(own, guarantee="rollback"),
    }


def test_what_is_refused_for_all_units_together_is_advised_for_none() -> None:
    def place(given: Protections) -> None:
        if {type(given.of(name)) for name in ("ingest", "counts")} == {Amnesia}:
            raise DataflowError("nothing would be left")

    refused = refusals(bids(), Protections(None), place)
    of_each = {"Amnesia()": "nothing would be left"}
    assert refused == {"ingest": of_each, "counts": of_each}


def test_an_error_that_is_not_ours_is_no_refusal() -> None:
    def place(given: Protections) -> None:
        raise KeyError(given)

    with pytest.raises(KeyError):
        refusals(bids(), Protections(None), place)


# -- measuring ------------------------------------------------------------------------------


def bids() -> Dataflow:
    flow = Dataflow("bids")
    generator = NexmarkSource("bid", 100, NexmarkConfig())
    source = flow.source_generator(generator, name="bids", unit="ingest")
    counts = source.key_by("bidder").window(tumbling("10 seconds"))
    counts.aggregate("count(*) AS n", name="counts").sink("out")
    return flow


def placed(given: Protections) -> Plan:
    return planner(bids())(given)


def place(protection: Callable[[str], UnitProtection] = lambda _: UnitProtection()) -> Plan:
    return plan_dataflow(
        bids(),
        "/nowhere",
        parallelism={"counts": 2},
        limits=NodeLimits(),
        protection=protection,
    )


def test_a_unit_is_measured_at_its_busiest_instance() -> None:
    observed = Observed(
        {
            "ingest[0]": MeasurementsReported(30.0),
            "counts[0]": MeasurementsReported(10.0, mean_state_bytes=5.0),
            "counts[1]": MeasurementsReported(20.0, mean_state_bytes=7.0),
        },
        {"ingest[0]": "a", "counts[0]": "a", "counts[1]": "b"},
    )
    found = measure("bids", place(), lambda _: UpstreamBackup(), observed, misses=3)
    ingest, counts = found.units
    assert (counts.instances, counts.hosts, counts.input_tuples_per_s) == (2, 2, 20.0)
    assert counts.state_bytes == 7.0
    assert (ingest.receivers, counts.receivers) == (("counts",), ())
    assert (ingest.stateful_operators, counts.stateful_operators) == (0, 1)
    assert counts.operator_class == "convergent_capable"
    assert (found.hosts, found.ack_interval_ms, found.detection_ms) == (2, 50, 260)
    assert (found.replacement_ms, found.store_bytes_per_ms) == (None, None)


def test_failures_and_checkpoints_that_happened_are_used() -> None:
    observed = Observed(
        {},
        {},
        [{"detected_ms": d, "restarted_ms": r} for d, r in ((200, 150), (240, 250), (900, 170))],
        [
            {"written_bytes": 3_000, "duration_ms": 10, "failure": None},
            {"written_bytes": 1_000, "duration_ms": 10, "failure": None},
            {"written_bytes": 0, "duration_ms": 500, "failure": "no room"},
        ],
    )
    plan = place(lambda _: UnitProtection(checkpoints=CheckpointPlan(3_000)))
    found = measure("bids", plan, lambda _: Checkpointed(), observed, misses=3)
    assert (found.detection_ms, found.replacement_ms) == (240, 170)
    assert found.store_bytes_per_ms == 200
    assert found.checkpoint_interval_ms == 3_000
    ingest, counts = found.units
    assert (ingest.protection, counts.protection) == ("UpstreamBackup", "Checkpointed")


def test_the_period_of_differences_is_the_units_own() -> None:
    rare = UnitProtection(standby=Standby.PASSIVE, delta_interval_ms=700)
    plan = place(lambda unit: rare if unit == "counts" else UnitProtection())
    ingest, counts = measure(
        "bids", plan, lambda _: PassiveStandby(), Observed({}, {}), misses=3
    ).units
    assert (ingest.delta_interval_ms, counts.delta_interval_ms) == (50, 700)


def test_the_class_of_a_unit_is_that_of_its_most_general_operator() -> None:
    classes = {node.unit: unit_class(node).operator_class for node in place().nodes}
    assert classes == {
        "ingest": OperatorClass.REPEATABLE,
        "counts": OperatorClass.CONVERGENT_CAPABLE,
    }


def test_what_a_query_leaves_is_read_back_and_damage_is_named(tmp_path: Path) -> None:
    MEASURED.save(str(tmp_path))
    assert Measurements.load(str(tmp_path)) == MEASURED
    path = tmp_path / "measurements.json"
    text = path.read_text()
    for wrong in (text[:-20], "[]", "{}", text.replace('"format": 2', '"format": 9')):
        path.write_text(wrong)
        with pytest.raises(FileDamaged, match=r"measurements\.json"):
            Measurements.load(str(tmp_path))
    path.write_bytes(encode_sealed({"format": 9}))
    with pytest.raises(AdviceError, match=r"measurements\.json has format 9"):
        Measurements.load(str(tmp_path))
    path.unlink()
    with pytest.raises(AdviceError, match="no query has been stopped"):
        Measurements.load(str(tmp_path))


def test_what_an_earlier_version_left_is_read_and_that_nothing_was_planned_is_said(
    tmp_path: Path,
) -> None:
    planned = {"ingest": {}, "counts": {"UpstreamBackup()": "it cannot be replayed"}}
    replace(MEASURED, refused=planned).save(str(tmp_path))
    done = CliRunner().invoke(app, ["advise", str(tmp_path)])
    said = " ".join(done.stdout.split())
    assert "UpstreamBackup() is refused: it cannot be replayed" in said
    assert "start may refuse what is advised" not in said
    assert json.loads(CliRunner().invoke(app, ["advise", str(tmp_path), "--json"]).stdout)[
        "is_planned"
    ]

    old = {**MEASURED.to_json(), "format": 1, "refused": {}}
    del old["checkpoint_settings"]
    (tmp_path / "measurements.json").write_bytes(encode_sealed(old))
    assert Measurements.load(str(tmp_path)) == replace(MEASURED, refused=None)
    done = CliRunner().invoke(app, ["advise", str(tmp_path)])
    assert done.exit_code == 0
    assert "no option was tried by the planner, and start may refuse what is advised" in " ".join(
        done.stdout.split()
    )
    assert not json.loads(CliRunner().invoke(app, ["advise", str(tmp_path), "--json"]).stdout)[
        "is_planned"
    ]
