"""Standby, guarantees and arbitrary units on real Spark tasks: killed, paused, promoted."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from killed_driver import kill_when_journalled
from kills import kill
from pyspark.sql import SparkSession
from test_protocol import EVENTS, MOST, RATE, has_put_in, nexmark, wait_for

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import (
    ActiveStandby,
    Amnesia,
    Checkpointed,
    PassiveStandby,
    Protection,
    UpstreamBackup,
)
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.driver.query import Query
from holdfast.errors import QueryFailedError
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource, now_us
from holdfast_chaos.tap import Tap

pytestmark = pytest.mark.slow
SOME = 12_000
"""Events to begin with, where more have to come after a failure; they come as a test waits."""


@pytest.fixture(scope="module", autouse=True)
def warm(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Python workers are up: the first events come soon after a query's start."""
    query = nexmark("q12", now_us() - 60_000_000).start(
        spark, checkpointLocation=str(tmp_path_factory.mktemp("warm")), protection=ActiveStandby()
    )
    assert query.awaitTermination(240)


def replica(query: Query, node: str, role: str) -> dict[str, object]:
    """What the status says of a replica; empty if there is none at work."""
    found = query.status["nodes"].get(node, {}).get("replicas", [])
    return next((r for r in found if r["role"] == role), {})


def pid(query: Query, node: str, role: str) -> int:
    """The process of a replica."""
    found = replica(query, node, role)["pid"]
    assert isinstance(found, int)
    return found


def wait_for_secondary(query: Query, node: str, *, other_than: int = 0) -> None:
    """Until a secondary is ready to take over."""

    def is_ready() -> bool:
        found = replica(query, node, "secondary")
        return bool(found.get("is_ready")) and found["pid"] != other_than

    wait_for(query, is_ready)


def recovery(query: Query, node: str) -> dict[str, object]:
    """The first recovery of a node; empty if there was none."""
    return next((r for r in query.recoveries if r["node"] == node), {})


def has_recovered(query: Query, node: str) -> Callable[[], bool]:
    return lambda: bool(recovery(query, node))


@pytest.mark.parametrize(
    ("name", "node", "protection"),
    [
        ("q3", "join[0]", ActiveStandby()),
        ("q12", "counts[0]", ActiveStandby()),
        ("q3", "join[0]", PassiveStandby()),
        ("q12", "counts[0]", PassiveStandby()),
        ("q3", "join[0]", PassiveStandby(survives="one failure")),
    ],
)
def test_a_secondary_takes_over_from_a_killed_primary(
    spark: SparkSession, tmp_path: Path, name: str, node: str, protection: Protection
) -> None:
    tap = Tap(tmp_path / "tap", SOME)
    query = nexmark(name, tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=protection
    )
    wait_for_secondary(query, node)
    wait_for(query, has_put_in(query, 8_000))
    roles = [r["role"] for r in query.status["nodes"][node]["replicas"]]
    assert roles == ["primary", "secondary"]
    primary, secondary = pid(query, node, "primary"), pid(query, node, "secondary")
    os.kill(primary, signal.SIGKILL)
    wait_for(query, has_recovered(query, node), tap)
    assert pid(query, node, "primary") == secondary
    assert recovery(query, node)["was_promoted"]
    wait_for_secondary(query, node, other_than=secondary)  # The failed one comes back as such.
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical


@pytest.mark.parametrize(
    "protection", [ActiveStandby(), PassiveStandby()], ids=["active", "passive"]
)
def test_the_secondary_and_then_both_replicas_may_be_killed(
    spark: SparkSession, tmp_path: Path, protection: Protection
) -> None:
    tap = Tap(tmp_path / "tap", MOST)
    query = nexmark("q12", tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=protection
    )
    wait_for_secondary(query, "counts[0]")
    wait_for(query, has_put_in(query, 2_000))
    secondary = pid(query, "counts[0]", "secondary")
    os.kill(secondary, signal.SIGKILL)
    wait_for_secondary(query, "counts[0]", other_than=secondary)
    assert not recovery(query, "counts[0]")  # The primary has gone on.
    for role in ("primary", "secondary"):
        os.kill(pid(query, "counts[0]", role), signal.SIGKILL)
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical


def _of_producers(query: Query, name: str) -> int:
    """What progress says of the units that the join reads, summed."""
    units = query.lastProgress["units"]
    return sum(units[unit][name] for unit in ("persons", "auctions"))


def test_of_a_unit_that_survives_one_failure_producers_keep_little_and_two_end_the_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    tap = Tap(tmp_path / "tap", MOST)
    query = nexmark("q3", tap=tap).start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        protection={"join": PassiveStandby(survives="one failure")},
    )
    assert not [note for note in query.status["notes"] if "never lets go" in note]
    wait_for_secondary(query, "join[0]")
    wait_for(query, has_put_in(query, 8_000))
    kept, put_out = (partial(_of_producers, query, name) for name in ("keptRows", "numOutputRows"))
    wait_for(query, lambda: kept() < put_out(), tap)  # Else they keep all that the join took.
    for role in ("primary", "secondary"):
        os.kill(pid(query, "join[0]", role), signal.SIGKILL)
    with pytest.raises(QueryFailedError, match="join\\[0\\] survives one failure at a time"):
        query.awaitTermination(240)


def test_a_paused_primary_is_fenced_and_waited_for_longer_the_next_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    tap = Tap(tmp_path / "tap", SOME)
    query = nexmark("q12", emit="changes", tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=ActiveStandby()
    )
    wait_for_secondary(query, "counts[0]")
    wait_for(query, has_put_in(query, 4_000))
    paused = pid(query, "counts[0]", "primary")
    os.kill(paused, signal.SIGSTOP)
    wait_for(query, has_recovered(query, "counts[0]"), tap)
    with contextlib.suppress(ProcessLookupError):  # Gone if it was ended as soon as replaced.
        os.kill(paused, signal.SIGCONT)
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert recovery(query, "counts[0]")["was_promoted"]


DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from test_protocol import MOST, nexmark
from holdfast import {protection}
from holdfast.driver.session import session
from holdfast_chaos.tap import Tap
from holdfast.nexmark.source import now_us
spark = session("driver")
spark.sparkContext.parallelize([0], 1).foreach(lambda _: None)  # Its Python daemon is warm.
origin = now_us() + 8_000_000
query = nexmark("q12", origin, tap=Tap({tap!r}, MOST)).start(
    spark, checkpointLocation={location!r}, protection={protection}()
)
print(origin, flush=True)
query.awaitTermination()
"""


@pytest.mark.parametrize("protection", [ActiveStandby, PassiveStandby])
def test_a_killed_driver_goes_on_with_standby_replicas(
    spark: SparkSession, tmp_path: Path, protection: type[Protection]
) -> None:
    location, tap = str(tmp_path / "q"), str(tmp_path / "tap")
    script = DRIVER.format(
        tests=str(Path(__file__).parent),
        location=location,
        tap=tap,
        protection=protection.__name__,
    )
    origin = int(kill_when_journalled(script, location, "PointNoted"))
    query = nexmark("q12", origin, tap=Tap(tap, EVENTS)).start(
        spark, checkpointLocation=location, protection=protection()
    )
    assert query.awaitTermination(240)
    assert query.verify().is_identical


def test_a_secondary_is_promoted_on_request(spark: SparkSession, tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap", MOST)
    query = nexmark("q12", tap=tap).start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        protection={"counts": ActiveStandby()},
    )
    wait_for_secondary(query, "counts[0]")
    wait_for(query, has_put_in(query, 4_000))
    primary, secondary = (pid(query, "counts[0]", role) for role in ("primary", "secondary"))
    query.promote("counts")
    assert pid(query, "counts[0]", "primary") == secondary
    wait_for_secondary(query, "counts[0]", other_than=primary)
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert not query.failures


def test_every_unit_may_be_protected_in_its_own_way(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mixed = {
        "persons": PassiveStandby(),
        "auctions": ActiveStandby(guarantee="rollback"),
        "join": Checkpointed(interval="80 milliseconds"),
    }
    tap = Tap(tmp_path / "tap", MOST)
    query = nexmark("q3", tap=tap).start(
        spark, checkpointLocation=str(tmp_path / "q"), protection=mixed
    )
    given = "unit 'auctions' is recovered with guarantee 'precise', though 'rollback' was asked for"
    query.explain()
    for said in (caplog.messages, query.status["notes"], capsys.readouterr().out.splitlines()):
        assert sum(text.startswith(given) for text in said) == 1
    for node in ("persons[0]", "auctions[0]"):
        wait_for_secondary(query, node)
    wait_for(query, has_put_in(query, 8_000))
    wait_for(query, lambda: None not in query.nodes.values())
    for node in query.nodes:
        query.kill(node)
    tap.open()
    assert query.awaitTermination(240)
    assert query.verify().is_identical
    assert {r["node"] for r in query.recoveries} == set(query.nodes)


def test_rollback_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    tap = Tap(tmp_path / "tap", MOST)
    query = nexmark("q3", tap=tap).start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        protection={"auctions": UpstreamBackup(guarantee="rollback")},
    )
    wait_for(query, has_put_in(query, 8_000))
    kill(query, "auctions[0]")
    tap.open()
    assert query.awaitTermination(240)
    found = query.verify()
    assert (found.lost, found.gaps) == (0, 0)
    assert query.recoveries


def test_amnesia_loses_a_run_of_the_input_and_says_which(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("forgetful")
    tap = Tap(tmp_path / "tap", SOME)
    bids = bids_of(flow, tap)
    bids.unit("middle").select("bidder", "price").unit("last").filter("price >= 0").sink("out")
    query = flow.start(
        spark, checkpointLocation=str(tmp_path / "q"), protection={"middle": Amnesia()}
    )
    wait_for(query, has_put_in(query, 8_000))
    kill(query, "middle[0]")
    wait_for(query, has_recovered(query, "middle[0]"), tap)
    tap.open()
    assert query.awaitTermination(240)
    found = query.verify()
    assert found.lost > 0
    assert (found.doubled, found.gaps) == (0, 0)
    (gap,) = query.lastProgress["gaps"]
    assert 0 < gap["to_id"] - gap["from_id"] < gap["to_id"] <= EVENTS


@pytest.mark.parametrize("kind", ["sample", "clock"])
@pytest.mark.parametrize(
    "protection",
    [UpstreamBackup(), ActiveStandby(), PassiveStandby(), Checkpointed(interval="80 milliseconds")],
    ids=["upstream", "active", "passive", "checkpointed"],
)
def test_what_chance_and_the_clock_decided_holds_over_a_failure(
    spark: SparkSession, tmp_path: Path, protection: Protection, kind: str
) -> None:
    flow = Dataflow("arbitrary")
    tap = Tap(tmp_path / "tap", MOST)
    bids = bids_of(flow, tap)
    if kind == "sample":
        made = bids.unit("chance").sample(0.5)
    else:
        windows = (
            bids.key_by("bidder")
            .unit("chance")
            .window(tumbling("200 milliseconds", time="processing"))
        )
        made = windows.aggregate("count(*) AS bids", name="chance")
    made.sink("out")
    counted = made.unit("counts").window(tumbling("10 seconds"))
    counted.aggregate("count(*) AS n", name="counts").sink("counts")
    location = str(tmp_path / "q")
    query = flow.start(spark, checkpointLocation=location, protection={"chance": protection})
    if isinstance(protection, ActiveStandby | PassiveStandby):
        wait_for_secondary(query, "chance[0]")
    wait_for(query, has_put_in(query, 8_000))
    kill(query, "chance[0]")
    tap.open()
    assert query.awaitTermination(240)
    assert has_recovered(query, "chance[0]")()
    stored = spark.read.format("holdfast").option("metadata", "true")
    out = stored.load(f"{location}/streams/out")
    rows = out.count()
    assert out.selectExpr("max(_tuple_id)").collect()[0][0] == rows - 1
    assert out.select("_tuple_id").distinct().count() == rows
    assert query.to_dataframe("counts").selectExpr("sum(n)").collect()[0][0] == rows
    if kind == "clock":
        assert out.selectExpr("sum(bids)").collect()[0][0] == EVENTS


def test_a_secondary_that_decides_for_itself_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("divergent")
    tap = Tap(tmp_path / "tap", MOST)
    bids = bids_of(flow, tap).key_by("bidder").unit("chance")
    windows = bids.window(tumbling("200 milliseconds", time="processing"))
    windows.aggregate("count(*) AS bids", name="chance").sink("out")
    protection = {"chance": ActiveStandby(guarantee="rollback")}
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=protection)
    wait_for_secondary(query, "chance[0]")
    wait_for(query, has_put_in(query, 8_000))
    kill(query, "chance[0]")
    tap.open()
    assert query.awaitTermination(240)
    assert recovery(query, "chance[0]")["was_promoted"]
    assert not list(tmp_path.rglob("*~passes*"))
    found = query.to_dataframe("out").selectExpr("sum(bids)").collect()[0][0]
    assert EVENTS <= found < 2 * EVENTS


def bids_of(flow: Dataflow, tap: Tap) -> Stream:
    """Bids for about four seconds, as far as the tap lets them."""
    config = NexmarkConfig(events_per_second=2_000)
    generator = NexmarkSource("bid", EVENTS, config, RATE, now_us() + 1_500_000)
    return flow.source_generator(tap.on(generator), name="bids")
