"""Real runs of units that recover together: one of them, and what all of them are made of."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from holdfast_chaos.promises import TOGETHER, protection_named
from holdfast_chaos.runs import KINDS, SOURCES
from holdfast_chaos.together_runs import (
    QUERIES,
    draw_run,
    execute_seed,
    is_driver_killed,
    told,
)

SAMPLE = 2
"""`python -m holdfast_chaos --protection together --seeds 0:100` runs more of them."""


@pytest.mark.slow
def test_killed_stopped_and_held_up_nodes_change_no_result(spark: SparkSession) -> None:
    outcome = execute_seed(spark, SAMPLE)
    assert not outcome.violations, told(outcome)
    assert {"kill", "pause", "hold"} <= set(outcome.struck)


def test_seeds_draw_all_queries_protections_and_faults() -> None:
    runs = [draw_run(seed) for seed in range(200)]
    assert runs[7] == draw_run(7)
    assert {run.query for run in runs} == set(QUERIES)
    assert {run.protection for run in runs} == set(TOGETHER)
    assert {fault.kind for run in runs for fault in run.faults} == set(KINDS)
    assert 10 < sum(map(is_driver_killed, range(200))) < 40
    assert all(len(SOURCES[query]) >= 2 for query in QUERIES if query != "arrival")
    assert len({protection_named(name) for name in TOGETHER}) == len(TOGETHER)
