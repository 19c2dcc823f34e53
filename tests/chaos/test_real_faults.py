"""Real kills, stops and cuts on Spark tasks, by seed; the output must equal Spark SQL's."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from holdfast.shell.spark.launch import Cluster
from holdfast_chaos.proxy import Proxy
from holdfast_chaos.runs import KINDS, draw_run, execute, routed, warm_up

KILLS = 15


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
    assert kinds == set(KINDS)


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
