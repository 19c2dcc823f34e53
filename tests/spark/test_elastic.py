"""Elastic restart: other numbers of instances on the same checkpoints, precise results."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kills import kill
from pyspark.sql import SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.protections import Checkpointed, Coordinated, Protection, UpstreamBackup
from holdfast.api.windows import counting, tumbling
from holdfast.driver.description import claim, described, instances_in, settle, with_instances
from holdfast.driver.query import Query
from holdfast.driver.rescaling import Rescaling
from holdfast.errors import RescalingError
from holdfast.shell.storage.errors import StorageError

pytestmark = pytest.mark.slow
AT = 1_700_000_000
OFTEN = Checkpointed(interval="100 milliseconds")


def put(spark: SparkSession, folder: Path, first: int, last: int) -> None:
    made = spark.sql(
        f"SELECT timestamp_millis({AT}000 + id * 20) AS at, id AS v, "
        f"concat('key ', id % 37) AS k FROM range({first}, {last})"
    )
    made.coalesce(1).write.mode("append").parquet(str(folder))


def totals(spark: SparkSession, folder: Path, trigger: Mapping[str, Any] | None = None) -> Dataflow:
    """Two keyed units in a row, so that edges change at both ends, and an own edge to a sink."""
    stream = spark.readStream.schema("at TIMESTAMP, v BIGINT, k STRING").parquet(str(folder))
    flow = Dataflow("elastic")
    rows = flow.source(stream, name="rows", time="at", trigger=trigger)
    keyed = rows.key_by("k").window(tumbling("100 seconds"))
    keyed.aggregate("sum(v) AS total", "max(k) AS last", name="totals").sink("totals")
    rows.filter("v % 500 = 0").sink("some")
    return flow


def started(
    spark: SparkSession,
    tmp_path: Path,
    parallelism: int,
    protection: Protection = OFTEN,
    trigger: Mapping[str, Any] | None = None,
) -> Query:
    flow = totals(spark, tmp_path / "in", trigger)
    return flow.start(
        spark,
        checkpointLocation=str(tmp_path / "q"),
        protection=protection,
        parallelism=parallelism,
    )


@pytest.mark.parametrize(
    "store", [None, EmbeddedStore(chunk_bytes=1 << 20)], ids=["folder", "data nodes"]
)
def test_results_do_not_show_that_the_parallelism_has_changed(
    spark: SparkSession, tmp_path: Path, store: EmbeddedStore | None
) -> None:
    often = replace(OFTEN, store=store)
    put(spark, tmp_path / "in", 0, 6_000)
    query = started(spark, tmp_path, 1, often)
    query.processAllAvailable()
    kill(query, "totals[0]")
    query.stop()
    put(spark, tmp_path / "in", 6_000, 12_500)
    query = started(spark, tmp_path, 3, often)
    try:
        assert {node for node in query.nodes if node.startswith("totals")} == {
            "totals[0]",
            "totals[1]",
            "totals[2]",
        }
        query.processAllAvailable()
        kill(query, "totals[2]")
        put(spark, tmp_path / "in", 12_500, 15_500)
        query.processAllAvailable()
    finally:
        query.stop()
    put(spark, tmp_path / "in", 15_500, 21_000)
    query = started(spark, tmp_path, 2, often, trigger={"availableNow": True})
    assert query.awaitTermination(200)
    for sink in ("totals", "some"):
        checked = query.verify(sink)
        assert checked.is_identical, checked
    counts = query.to_dataframe("totals").groupBy("window_start").count().collect()
    assert [row["count"] for row in counts] == [37] * 4, "the last window is open"


def test_an_attempt_that_came_to_nothing_can_be_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has written is there already, under the names that the next one uses."""
    put(spark, tmp_path / "in", 0, 6_000)
    query = started(spark, tmp_path, 1)
    query.processAllAvailable()
    query.stop()

    def fail(*_: Any) -> None:
        raise StorageError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Rescaling, "_decide", fail)
        with pytest.raises(StorageError, match="no room"):
            started(spark, tmp_path, 3)
    left = [path.name for path in (tmp_path / "q" / "checkpoint").iterdir()]
    assert any(name.startswith("totals[2]-") for name in left)
    put(spark, tmp_path / "in", 6_000, 6_500)
    query = started(spark, tmp_path, 3, trigger={"availableNow": True})
    assert query.awaitTermination(200)
    checked = query.verify("totals")
    assert checked.is_identical, checked


def held(spark: SparkSession, folder: Path, trigger: Mapping[str, Any] | None) -> Dataflow:
    """Operators whose state is more than groups of windows of time."""
    stream = spark.readStream.schema("at TIMESTAMP, v BIGINT, k STRING").parquet(str(folder))
    flow = Dataflow("held")
    rows = flow.source(stream, name="rows", time="at", trigger=trigger)
    keyed = rows.key_by("k")
    counted = keyed.window(counting(10, 4))
    counted.aggregate("sum(v) AS total", "max(k) AS last", name="tens").sink("tens")
    evened = keyed.resample("v", within="3 seconds", every="1 second", name="evened")
    evened.sink("evened")
    rows.sort("v", slack=50, name="sorted").sink("sorted")
    return flow


def test_state_of_other_kinds_moves_too(spark: SparkSession, tmp_path: Path) -> None:
    folder, location = tmp_path / "in", str(tmp_path / "q")
    one, other = {"rows": 1, "tens": 1, "evened": 2}, {"rows": 2, "tens": 2, "evened": 1}
    for step, parallelism in enumerate((one, other, one)):
        put(spark, folder, step * 2_000, (step + 1) * 2_000)
        trigger = {"availableNow": True} if step == 2 else None
        query = held(spark, folder, trigger).start(
            spark, checkpointLocation=location, protection=OFTEN, parallelism=parallelism
        )
        if step < 2:
            query.processAllAvailable()
            kill(query, "tens[0]")
            query.stop()
    assert query.awaitTermination(200)
    for sink in ("tens", "evened", "sorted"):
        checked = query.verify(sink)
        assert checked.is_identical, checked


def merged(spark: SparkSession, folders: list[Path], trigger: Mapping[str, Any] | None) -> Dataflow:
    """Rows of two folders as they come, counted by key."""
    flow = Dataflow("merged")
    one, other = (
        flow.source(
            spark.readStream.schema("at TIMESTAMP, v BIGINT, k STRING").parquet(str(folder)),
            name=folder.name,
            time="at",
            trigger=trigger,
        )
        for folder in folders
    )
    both = one.union(other, order="arrival")
    both.sink("merged")
    counted = both.key_by("k").window(tumbling("10 seconds"))
    counted.aggregate("count(*) AS n", "sum(v) AS total", name="counts").sink("counts")
    return flow


def test_units_that_recover_together_go_on_from_a_line(spark: SparkSession, tmp_path: Path) -> None:
    """Rounds go on while the location is left, so that its line moves, to the same places."""
    folders, location = [tmp_path / "one", tmp_path / "other"], str(tmp_path / "q")
    rounds = Coordinated(interval="100 milliseconds", aligned=False, kept=2)
    for step, count in enumerate((1, 3, 2)):
        for folder in folders:
            put(spark, folder, step * 2_000, (step + 1) * 2_000)
        trigger = {"availableNow": True} if step == 2 else None
        query = merged(spark, folders, trigger).start(
            spark, checkpointLocation=location, protection=rounds, parallelism=count
        )
        assert sum(node.startswith("counts") for node in query.nodes) == count
        if step < 2:
            query.processAllAvailable()
            kill(query, "counts[0]")
            query.stop()
    assert query.awaitTermination(200)
    for sink in ("merged", "counts"):
        checked = query.verify(sink)
        assert checked.is_identical, checked


def test_what_cannot_change_is_refused_and_stays_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(spark, tmp_path / "in", 0, 100)
    started(spark, tmp_path, 1, UpstreamBackup()).stop()
    with pytest.raises(RescalingError, match=r"need protection=Checkpointed"):
        started(spark, tmp_path, 2, UpstreamBackup())
    started(spark, tmp_path, 1, UpstreamBackup()).stop()


DESCRIPTION = "dataflow a\nsource s in s: (v int64)\nunit s: 1 instances\nunit t: 2 instances\n"


def test_a_description_says_how_many_instances_there_are(tmp_path: Path) -> None:
    assert instances_in(DESCRIPTION) == {"s": 1, "t": 2}
    wanted = with_instances(DESCRIPTION, {"t": 5})
    assert instances_in(wanted) == {"s": 1, "t": 5}
    location = str(tmp_path)
    assert described(location) is None  # Nothing has run there.
    assert settle(None, wanted) is None
    claim(location, DESCRIPTION, None)
    before = described(location)
    assert before == DESCRIPTION
    assert settle(before, DESCRIPTION) is None
    assert settle(before, wanted) == {"s": 1, "t": 2}
    assert settle(before, wanted.replace("v int64", "v int32")) is None  # More differs.
