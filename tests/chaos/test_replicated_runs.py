"""Real runs of replicated units: two of them, and what all of them are made of."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.core.model.ids import BEGINNING_US, END_US
from holdfast_chaos.beats import AT_US, STEP_US, Beats, Hand
from holdfast_chaos.replicated_runs import KINDS, ROWS, draw_run, execute, expected, told

SAMPLE = (0, 1)
"""`python -m holdfast_chaos --seeds 0:100` runs more of them."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", SAMPLE)
def test_the_stable_output_is_as_without_failures(spark: SparkSession, seed: int) -> None:
    outcome = execute(spark, draw_run(seed))
    assert not outcome.violations, told(outcome)
    assert outcome.struck


def test_a_seed_draws_all_kinds_of_faults_feeds_and_settings() -> None:
    runs = [draw_run(seed) for seed in range(100)]
    assert runs[7] == draw_run(7)
    assert {fault.kind for run in runs for fault in run.faults} == set(KINDS)
    assert {run.feeds for run in runs} == {"beats", "log", "folder"}
    assert {run.driver for run in runs} == {"", "tentative", "undo"}
    assert {run.protection["replicas"] for run in runs} == {1, 2, 3}
    assert sum(run.protection.get("buffer") == "drop" for run in runs) > 5


def test_a_source_is_held_up_by_hand(tmp_path: Path) -> None:
    hand = Hand(tmp_path)
    reader = Beats(str(tmp_path), 0, 1_000, 800, time.time() - 60).open()
    assert reader.read(0, 10_000).boundary_us == AT_US + 800 * STEP_US
    hand.hold(0, "mute", time.time() + 60)
    (batch,) = reader.read(0, 10_000).batches
    assert (batch.count, batch.boundary_us) == (800, BEGINNING_US)
    hand.hold(0, "silence", time.time() + 60)
    assert not reader.read(0, 10_000).batches
    hand.open()
    assert reader.read(800, 10_000).boundary_us == END_US


def test_however_late_a_driver_comes_there_is_something_to_wait_for_when_a_source_falls_silent(
    tmp_path: Path,
) -> None:
    """Else a run whose driver is killed at the first tentative row would wait for ever for one."""
    hand = Hand(tmp_path)
    sources = [Beats(str(tmp_path), n, 1_000, 800, time.time() - 60, 300).open() for n in (0, 1)]
    assert [source.read(0, 10_000).batches[0].count for source in sources] == [300, 300]
    hand.hold(0, "silence", time.time() + 60)
    hand.let_go()
    assert not sources[0].read(300, 10_000).batches
    assert sources[1].read(300, 10_000).batches[0].count == 500


def test_what_was_dropped_is_expected_of_no_window() -> None:
    run = draw_run(0)
    whole = expected(run, {})
    rows = Counter({window: rows for window, rows, _ in whole})
    assert rows.total() == run.sources * ROWS
    without = expected(run, {1: ((100, 150),)})
    assert {(w, n) for w, n, _ in whole - without} == {(1, 100 * run.sources)}
    assert {(w, n) for w, n, _ in without - whole} == {(1, 100 * run.sources - 50)}
