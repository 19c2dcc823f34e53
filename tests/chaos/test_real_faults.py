"""Real kills, stops and cuts on Spark tasks, by seed; the output must equal Spark SQL's."""

import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.api.protections import Protections
from holdfast.core.haunit.plan import NodeLimits
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource
from holdfast.planning.plan import plan_dataflow
from holdfast.shell.spark.launch import Cluster
from holdfast_chaos.promises import protection_named
from holdfast_chaos.proxy import Proxy
from holdfast_chaos.runs import (
    KINDS,
    SILENCE,
    draw_run,
    execute,
    flow_of,
    incarnations_astray,
    routed,
    warm_up,
)
from holdfast_chaos.tap import Tap

KILLS = 10


def seeds_with_kills(wanted: int) -> list[int]:
    """The first seeds whose plans hold so many kills."""
    seeds: list[int] = []
    kills = 0
    while kills < wanted:
        seed = len(seeds)
        seeds.append(seed)
        kills += sum(fault.kind in ("kill", "kill-all") for fault in draw_run(seed).faults)
    return seeds


@pytest.mark.slow
@pytest.mark.timeout(3_000)
def test_nothing_is_lost_or_doubled_whatever_is_killed_or_cut(spark: SparkSession) -> None:
    struck: Counter[str] = Counter()
    warm_up(spark)
    for seed in seeds_with_kills(KILLS):
        outcome = execute(spark, draw_run(seed))
        assert not outcome.violations, (seed, outcome.to_json())
        struck.update(outcome.struck)
    assert struck["kill"] + struck["kill-all"] >= KILLS, "input flows until all have struck"
    assert len(struck) >= len(KINDS) - 1


def test_a_seed_draws_the_same_plan_every_time() -> None:
    assert draw_run(5) == draw_run(5)
    assert draw_run(5) != draw_run(6)
    kinds = {fault.kind for seed in range(60) for fault in draw_run(seed).faults}
    assert kinds == {*KINDS, SILENCE}


def test_no_run_is_drawn_that_is_refused_when_it_starts(tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap", 1 << 20)
    runs = {(r.query, r.emit, r.protection): r for r in map(draw_run, range(2_000))}
    for run in runs.values():
        protections = Protections(protection_named(run.protection))
        flow = flow_of(run, 0, tap)
        protections.check(flow)
        plan_dataflow(
            flow,
            "/q",
            parallelism=run.parallelism,
            limits=NodeLimits(),
            protection=lambda unit, of=protections: of.of(unit).of_unit(),  # type: ignore[misc]
        )
    assert len(runs) > 50


@pytest.mark.parametrize(
    ("failed", "astray", "astray_of_two"),
    [((1, 2, 3), 0, 0), ((2, 1, 3), 1, 0), ((1, 1), 1, 1), ((3, 2, 3), 2, 1)],
)
def test_an_incarnation_fails_once_and_of_one_replica_none_behind_its_replacement(
    failed: tuple[int, ...], astray: int, astray_of_two: int
) -> None:
    failures = [{"node": "a[0]", "incarnation": each} for each in failed]
    others = [{"node": "b[0]", "incarnation": 1}]
    assert len(incarnations_astray(others + failures, has_two=False)) == astray
    assert len(incarnations_astray(others + failures, has_two=True)) == astray_of_two


def test_a_silenced_source_gives_nothing_for_a_while(tmp_path: Path) -> None:
    """Its first partition; the others go on."""
    tap = Tap(tmp_path / "tap", 1 << 20)
    tapped = tap.on(NexmarkSource("bid", 10_000, NexmarkConfig(), 1e6, 0))
    first, second = (tapped.spec(number, 2).open() for number in (0, 1))
    assert first.read(0, 10).batches
    assert tap.silence(7, time.time() + 60)
    assert not first.read(10, 10).batches
    assert second.read(0, 10).batches
    tap.silence(7, time.time())
    assert first.read(10, 10).batches


def test_the_proxy_is_gone_afterwards() -> None:
    before = Cluster.__dict__["route"]
    proxy = Proxy()
    try:
        with routed(proxy):
            assert Cluster.route("ipc:///tmp/nobody") != "ipc:///tmp/nobody"
    finally:
        proxy.close()
    assert Cluster.__dict__["route"] is before
    assert object.__new__(Cluster).route("tcp://here:1") == "tcp://here:1"
