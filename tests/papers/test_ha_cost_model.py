"""HA, Tables 3 and 4, and the figures of section 7 against the cost model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from holdfast.core.recovery.cost_model import (
    GUARANTEES,
    Approach,
    Guarantee,
    Prediction,
    UnitFigures,
    Variant,
    predict,
)
from holdfast_bench.ha.paper import (
    FIGURE_7_UPSTREAM_BACKUP_MS,
    INTERVALS_MS,
    PRINTED,
    PaperQuery,
    Printed,
    surroundings,
)

AMNESIA, UPSTREAM = Approach.AMNESIA, Approach.UPSTREAM_BACKUP
PASSIVE, ACTIVE, CHECKPOINTED = (
    Approach.PASSIVE_STANDBY,
    Approach.ACTIVE_STANDBY,
    Approach.CHECKPOINTED,
)
AGGREGATE = PaperQuery()
OURS = Variant.HOLDFAST
WINDOWS = (100, 200, 300, 400, 500)


def rollback(approach: Approach, query: PaperQuery = AGGREGATE, m: float = 50) -> Prediction:
    return predict(approach, "rollback", query.figures(), surroundings(m))


def precise(approach: Approach, unit: UnitFigures, m: float = 50) -> Prediction:
    return predict(approach, "precise", unit, surroundings(m))


# -- Table 3: the formulas themselves -------------------------------------------------------


def test_amnesia_stores_restart_points_to_say_what_was_lost() -> None:
    def bytes_per_s(approach: Approach, guarantee: Guarantee) -> float:
        found = predict(approach, guarantee, AGGREGATE.figures(), surroundings(50), OURS)
        return found.run_time.bandwidth_bytes_per_s

    assert bytes_per_s(AMNESIA, "gap") == 3 * 8 * 1000 / 50
    assert bytes_per_s(UPSTREAM, "rollback") == bytes_per_s(AMNESIA, "gap") + 2 * 8 * 1000 / 50


def test_table_3_amnesia_costs_nothing_and_recovers_at_once() -> None:
    found = predict(AMNESIA, "gap", AGGREGATE.figures(), surroundings())
    assert found.failure.recovery_ms == 0
    assert (found.run_time.bandwidth_percent, found.run_time.processing_percent) == (0, 0)
    assert found.run_time.delay_ms == 0
    # Lost: what the state goes back to, and what comes during detection (250) and redirection (40).
    assert found.failure.lost_tuples == pytest.approx(105 + 250 + 40)


def test_table_3_passive_standby_replays_half_an_interval_after_r_and_d() -> None:
    found = rollback(PASSIVE).failure
    assert found.redirect_ms == 40 + 5
    assert found.replayed_tuples == 50 * 1 / 2
    assert found.redundant_tuples == pytest.approx(50 * 0.1)


def test_table_3_upstream_backup_replays_state_an_interval_and_two_delays() -> None:
    found = rollback(UPSTREAM).failure
    assert found.redirect_ms == 40 + 5
    assert found.replayed_tuples == pytest.approx(105 + 50 + 2 * 5)


def test_table_3_active_standby_sends_half_an_interval_and_two_delays_of_output() -> None:
    assert rollback(ACTIVE).failure.redundant_tuples == pytest.approx(2.5 + 1.0)
    assert rollback(ACTIVE).failure.replayed_tuples == 0


@pytest.mark.parametrize("approach", [PASSIVE, UPSTREAM, ACTIVE])
def test_table_3_overheads_grow_as_the_interval_shrinks(approach: Approach) -> None:
    found = [rollback(approach, m=m).run_time for m in INTERVALS_MS]
    percents = [cost.bandwidth_percent for cost in found]
    assert percents == sorted(percents, reverse=True)
    assert len(set(percents)) == len(percents)
    assert found[0].processing_percent > found[-1].processing_percent


def test_table_3_processing_grows_with_operators_and_paths() -> None:
    unit = AGGREGATE.figures()
    for approach in (UPSTREAM, ACTIVE):
        costs = [
            predict(approach, "rollback", more, surroundings()).run_time.processing_percent
            for more in (unit, replace(unit, operators=5), replace(unit, operators=5, paths=3))
        ]
        assert costs[0] < costs[1] < costs[2]


# -- Table 4 and section 6: precise recovery ------------------------------------------------


@pytest.mark.parametrize("approach", [PASSIVE, ACTIVE])
def test_table_4_standbys_of_deterministic_units_are_precise_for_no_bandwidth(
    approach: Approach,
) -> None:
    unit = AGGREGATE.figures()
    was, found = rollback(approach).run_time, precise(approach, unit).run_time
    assert found == was


def test_section_7_2_precise_active_standby_takes_r_longer() -> None:
    found = precise(ACTIVE, AGGREGATE.figures()).failure.recovery_ms
    assert found - rollback(ACTIVE).failure.recovery_ms == pytest.approx(40)


def test_section_7_2_precise_upstream_backup_costs_a_little_over_16_percent() -> None:
    found = precise(UPSTREAM, AGGREGATE.figures())
    assert found.run_time.bandwidth_percent == pytest.approx(16.64)
    assert found.failure.recovery_ms == rollback(UPSTREAM).failure.recovery_ms


def test_table_4_arbitrary_units_wait_for_what_makes_them_repeatable() -> None:
    unit = replace(PaperQuery("union").figures(), determinant_bytes_per_tuple=4)
    for approach, waits_ms in ((PASSIVE, 25 + 10), (ACTIVE, 25 + 10), (UPSTREAM, 25 + 10)):
        found = precise(approach, unit).run_time
        transfer_ms = 0.0
        if approach is PASSIVE:
            transfer_ms = found.bandwidth_bytes_per_s / 1000 * 50 / 2000
        assert found.delay_ms == pytest.approx(waits_ms + transfer_ms)
        was = predict(approach, "rollback", unit, surroundings()).run_time
        added = found.bandwidth_bytes_per_s - was.bandwidth_bytes_per_s
        assert added == pytest.approx(0 if approach is PASSIVE else 4 * 1000)


def test_table_4_upstream_backup_of_a_deterministic_unit_needs_determinants_a_standby_none() -> (
    None
):
    unit = replace(AGGREGATE.figures(), is_convergent_capable=False)
    assert precise(UPSTREAM, unit).run_time.delay_ms > 0
    assert precise(ACTIVE, unit).run_time.delay_ms == 0
    assert precise(PASSIVE, unit).run_time.delay_ms == 0


# -- section 7: the figures -----------------------------------------------------------------

EXCUSED: dict[tuple[str, str, int, int, Approach], str] = {
    ("table6", "filter", 100, 10, ACTIVE): "0.9 ms below 1.8: both negligible",
    ("table6", "aggregate", 100, 10, ACTIVE): "0.02 ms above 0.07: both negligible",
    ("table6", "union", 100, 10, ACTIVE): "0.9 ms below 1.8: both negligible",
    ("table7", "aggregate", 300, 10, UPSTREAM): "15.01 %",
    ("table8", "aggregate", 100, 50, UPSTREAM): "15.2 %: as below",
    ("table8", "aggregate", 100, 100, UPSTREAM): (
        "17.6 ms beyond K are 500 tuples at 35 µs, where Table 3 has at most 210"
    ),
}
"""Recovery times of the paper that its own formulas miss by more than 15 %.

Of the others upstream backup's are 12 to 15 % too low too: even the filter's 2.62 ms beyond K are
75 tuples where `M λ + 2 d λ` is 60. The paper's simulator replayed from further back than its
formula says, about 15 ms, and does not say why.
"""


def key(cell: Printed) -> tuple[str, str, int, int, Approach]:
    query = cell.query
    return cell.table, query.operator, query.window_ms, query.advance_ms, cell.approach


@pytest.mark.parametrize("cell", PRINTED, ids=lambda c: "-".join(map(str, key(c))))
def test_tables_6_7_and_8_are_predicted_within_15_percent(cell: Printed) -> None:
    found = predict(cell.approach, "rollback", cell.query.figures(), surroundings())
    if cell.overhead_percent is not None:
        assert found.run_time.bandwidth_percent == pytest.approx(cell.overhead_percent, abs=0.11)
    if cell.recovery_ms is not None:
        is_near = abs(found.failure.recovery_ms / cell.recovery_ms - 1) <= 0.15
        assert is_near != (key(cell) in EXCUSED)


def test_table_6_active_standby_is_off_by_less_than_a_millisecond() -> None:
    for cell in PRINTED:
        if cell.approach is ACTIVE and cell.recovery_ms is not None:
            found = rollback(ACTIVE, cell.query).failure.recovery_ms
            assert abs(found - cell.recovery_ms) < 1


def test_figure_6_passive_standby_has_its_knee_at_the_window() -> None:
    """Tuples that come and go between two checkpoints are never sent. [§7.1]"""
    overheads = [rollback(PASSIVE, m=m).run_time.bandwidth_percent for m in INTERVALS_MS]
    assert overheads[0] - overheads[2] < 3  # 25 to 100 ms: all that enters is sent
    assert overheads[2] - overheads[3] > 30  # from there on the whole window at most


def test_figure_6_the_order_of_the_approaches() -> None:
    for m in INTERVALS_MS:
        by_time = sorted((UPSTREAM, PASSIVE, ACTIVE), key=lambda a: recovery_at(a, m))
        assert by_time == [ACTIVE, PASSIVE, UPSTREAM]
        assert rollback(UPSTREAM, m=m).run_time.bandwidth_percent < 1.5
        assert rollback(ACTIVE, m=m).run_time.bandwidth_percent > 100


def recovery_at(approach: Approach, m: float) -> float:
    return rollback(approach, m=m).failure.recovery_ms


def test_figure_6_upstream_backup_is_most_sensitive_to_the_interval() -> None:
    spread = {a: recovery_at(a, 200) - recovery_at(a, 25) for a in (UPSTREAM, PASSIVE, ACTIVE)}
    assert spread[UPSTREAM] > spread[PASSIVE] > spread[ACTIVE] > 0


def test_table_7_upstream_backup_grows_with_the_square_of_the_window() -> None:
    """State and cost per tuple both grow: the second differences of the paper are 10 ms."""
    found = [rollback(UPSTREAM, PaperQuery(window_ms=w)).failure.recovery_ms for w in WINDOWS]
    first = [b - a for a, b in pairwise(found)]
    second = [b - a for a, b in pairwise(first)]
    assert second == pytest.approx([10, 10, 10], rel=0.05)


def test_table_7_passive_standby_overhead_does_not_depend_on_the_size_of_the_state() -> None:
    found = {
        round(rollback(PASSIVE, PaperQuery(window_ms=w)).run_time.bandwidth_percent, 6)
        for w in WINDOWS
    }
    assert len(found) == 1


def test_table_8_upstream_backup_is_fastest_at_an_advance_in_between() -> None:
    advances = (100, 50, 25, 10, 5)
    found = [rollback(UPSTREAM, PaperQuery(advance_ms=a)).failure.recovery_ms for a in advances]
    assert found[-1] > found[-2] > min(found[:3])


def test_figure_7_the_trends_of_one_to_five_aggregates() -> None:
    queries = [PaperQuery(aggregates=n) for n in range(1, 6)]
    upstream = [rollback(UPSTREAM, q).failure.recovery_ms for q in queries]
    passive = [rollback(PASSIVE, q) for q in queries]
    active = [rollback(ACTIVE, q) for q in queries]
    assert upstream == sorted(upstream)
    assert upstream[-1] - upstream[0] > 50  # Increases rapidly.
    assert 0 < passive[-1].failure.recovery_ms - passive[0].failure.recovery_ms < 5  # Slightly.
    assert passive[-1].run_time.bandwidth_percent > passive[0].run_time.bandwidth_percent + 30
    assert active[-1].failure.recovery_ms == pytest.approx(active[0].failure.recovery_ms)
    # The paper measured 170 ms for five; like all of upstream backup's this is too low, by 23 %.
    assert upstream[-1] == pytest.approx(FIGURE_7_UPSTREAM_BACKUP_MS[5], rel=0.25)
    assert upstream[-1] < 250  # "still relatively short compared with the detection delay"


def test_figure_7_precise_upstream_backup_costs_a_fraction_of_the_others() -> None:
    unit = PaperQuery(aggregates=5).figures()
    mine = precise(UPSTREAM, unit).run_time.bandwidth_percent
    assert mine < precise(ACTIVE, unit).run_time.bandwidth_percent / 5
    assert mine < precise(PASSIVE, unit).run_time.bandwidth_percent / 5


# -- where Holdfast departs -----------------------------------------------------------------


def test_a_replacement_has_to_come_up_in_holdfast_unless_a_secondary_waits() -> None:
    around = replace(surroundings(), replacement_ms=200)
    unit = AGGREGATE.figures()
    for approach in (AMNESIA, UPSTREAM, CHECKPOINTED):
        guarantee: Guarantee = GUARANTEES[approach][-1]
        assert predict(approach, guarantee, unit, around, OURS).failure.restart_ms == 200
    for approach in (PASSIVE, ACTIVE):
        assert predict(approach, "precise", unit, around, OURS).failure.restart_ms == 0


def test_what_receivers_need_is_replayed_in_holdfast_and_not_in_the_paper() -> None:
    unit, around = AGGREGATE.figures(), surroundings()
    above = replace(unit, below_tuples=1_000)
    paper = [predict(UPSTREAM, "precise", u, around).failure for u in (unit, above)]
    ours = [predict(UPSTREAM, "precise", u, around, OURS).failure for u in (unit, above)]
    assert paper[0] == paper[1]
    assert ours[1].replayed_tuples - ours[0].replayed_tuples == 1_000


def test_ids_without_gaps_spare_the_watermarks_downstream() -> None:
    unit, around = AGGREGATE.figures(), surroundings()
    ours = predict(UPSTREAM, "precise", unit, around, OURS).run_time.bandwidth_percent
    assert ours < predict(UPSTREAM, "precise", unit, around).run_time.bandwidth_percent / 5


def test_a_promotion_is_journalled_and_receivers_are_not_asked() -> None:
    around = replace(surroundings(), sync_ms=4)
    found = predict(ACTIVE, "precise", AGGREGATE.figures(), around, OURS).failure
    assert found.redirect_ms == 4


def test_determinants_wait_for_a_sync_in_holdfast() -> None:
    around = replace(surroundings(), sync_ms=4)
    unit = PaperQuery("union").figures()
    found = predict(ACTIVE, "precise", unit, around, OURS).run_time.delay_ms
    assert found == pytest.approx(6)


def test_checkpoints_trade_what_is_written_for_what_is_replayed() -> None:
    unit = replace(AGGREGATE.figures(), state_bytes=1e9, changed_bytes_per_s=1e5)
    found = [
        predict(CHECKPOINTED, "precise", unit, replace(surroundings(), checkpoint_interval_ms=t))
        for t in (1_000, 10_000)
    ]
    assert found[0].failure.replayed_tuples < found[1].failure.replayed_tuples
    assert found[0].failure.load_ms == found[1].failure.load_ms > 0
    unchanging = replace(unit, state_bytes=1e4)
    often, seldom = (
        predict(
            CHECKPOINTED, "precise", unchanging, replace(surroundings(), checkpoint_interval_ms=t)
        ).run_time.bandwidth_bytes_per_s
        for t in (1_000, 10_000)
    )
    assert often > 5 * seldom  # The same pages change again and again.


@pytest.mark.parametrize("approach", Approach)
def test_what_an_approach_cannot_give_is_refused(approach: Approach) -> None:
    unit = AGGREGATE.figures()
    every: tuple[Guarantee, ...] = ("precise", "rollback", "gap")
    for guarantee in every:
        if guarantee in GUARANTEES[approach]:
            assert predict(approach, guarantee, unit, surroundings()).guarantee == guarantee
        else:
            with pytest.raises(ValueError, match=guarantee):
                predict(approach, guarantee, unit, surroundings())


@pytest.mark.parametrize("approach", Approach)
@pytest.mark.parametrize("variant", Variant)
def test_a_unit_without_input_costs_no_percentage(approach: Approach, variant: Variant) -> None:
    idle = UnitFigures(0, 0)
    for guarantee in GUARANTEES[approach]:
        found = predict(approach, guarantee, idle, surroundings(), variant)
        assert found.failure.outage_ms >= 250
        assert found.run_time.bandwidth_percent == 0
