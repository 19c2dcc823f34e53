"""What can go wrong on a running Spark: each case is a clear error, and never a hang."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import ActiveStandby, PassiveStandby, Protection
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.driver.checks import check_session
from holdfast.driver.schemas import schema_from, schema_from_spark
from holdfast.driver.security import InsecureClusterWarning
from holdfast.errors import (
    DataflowChangedError,
    DataflowError,
    InsecureClusterError,
    NotEnoughHostsError,
    NotEnoughSlotsError,
    OptionError,
    QueryFailedError,
    UnsupportedError,
)
from holdfast.shell.storage.errors import LocationInUse

pytestmark = pytest.mark.slow


def rows(spark: SparkSession, count: int = 1000) -> DataFrame:
    return spark.sql(
        "SELECT timestamp_micros(1700000000000000 + id * 1000) AS at, id % 5 AS divisor, id AS v "
        f"FROM range({count})"
    )


def source(spark: SparkSession, flow: Dataflow) -> Stream:
    return flow.source(rows(spark), name="rows", time="at")


def test_a_row_without_a_value_fails_the_query_and_is_shown(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("shares")
    source(spark, flow).select("v", "100 DIV divisor AS share").sink("shares")
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    with pytest.raises(
        QueryFailedError, match=r"select: 100 DIV divisor: .*'divisor': 0.*dead_lett"
    ):
        query.awaitTermination(240)
    assert not query.isActive


def test_dead_letters_take_the_bad_rows_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("shares")
    shares = source(spark, flow).select("v", "100 DIV divisor AS share", dead_letters="bad")
    shares.sink("shares")
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    assert query.awaitTermination(240)
    assert query.to_dataframe("shares").count() == 800
    bad = query.to_dataframe("bad")
    assert bad.where("divisor = 0 AND error LIKE '100 DIV divisor: %zero%'").count() == 200
    assert bad.count() == 200
    assert query.verify("shares").is_identical
    assert query.verify("bad").is_identical


def test_too_few_task_slots_are_an_error_that_says_how_many_are_needed(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("wide")
    stream = flow.source(rows(spark), name="rows", time="at", partitions=20)
    stream.sink("out")
    with pytest.raises(NotEnoughSlotsError, match=r"20 nodes need 20 .* has 8: .*local\[20\]"):
        flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    assert not (tmp_path / "q").exists()


def test_a_dataframe_is_recorded_though_nodes_take_all_slots(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("full")
    stream = source(spark, flow)
    for number in range(7):
        windows = stream.key_by("divisor").window(tumbling("1 second"))
        windows.aggregate("count(*) AS n", name=f"counts{number}").sink(f"counts{number}")
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    assert query.slots.count == 8 == spark.sparkContext.defaultParallelism
    assert query.awaitTermination(240)
    assert query.to_dataframe("counts6").count() == 5


def test_slots_that_another_query_holds_are_not_free(spark: SparkSession, tmp_path: Path) -> None:
    endless = Dataflow("endless")
    stream = spark.readStream.format("rate").load()
    endless.source(stream, name="rate", time="timestamp", partitions=5).sink("out")
    query = endless.start(spark, checkpointLocation=str(tmp_path / "endless"))
    try:
        flow = Dataflow("second")
        flow.source(rows(spark), name="rows", time="at", partitions=3).sink("out")
        held = r"3 nodes need 3 .*has 8, 6 of them held by query 'endless': .*local\[9\]"
        with pytest.raises(NotEnoughSlotsError, match=held):
            flow.start(spark, checkpointLocation=str(tmp_path / "second"))
    finally:
        query.stop()
    assert flow.start(spark, checkpointLocation=str(tmp_path / "second")).awaitTermination(240)


def test_unknown_settings_are_refused_before_anything_starts(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Dataflow("flow")
    source(spark, flow).sink("out")
    with pytest.raises(OptionError, match="unknown setting"):
        flow.start(
            spark, checkpointLocation=str(tmp_path), options={"spark.holdfast.ackIntervall": "5"}
        )


def test_a_location_that_a_query_runs_at_is_in_use(spark: SparkSession, tmp_path: Path) -> None:
    flow = Dataflow("endless")
    stream = spark.readStream.format("rate").load()
    flow.source(stream, name="rate", time="timestamp").sink("out")
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    try:
        with pytest.raises(LocationInUse, match="another query"):
            flow.start(spark, checkpointLocation=str(tmp_path))
    finally:
        query.stop()


def test_one_location_is_for_one_dataflow(spark: SparkSession, tmp_path: Path) -> None:
    def flow(condition: str) -> Dataflow:
        made = Dataflow("flow")
        source(spark, made).filter(condition).sink("out")
        return made

    query = flow("v > 1").start(spark, checkpointLocation=str(tmp_path))
    assert query.awaitTermination(240)
    with pytest.raises(DataflowChangedError, match="v > 2"):
        flow("v > 2").start(spark, checkpointLocation=str(tmp_path))
    again = flow("v > 1").start(spark, checkpointLocation=str(tmp_path))
    assert again.awaitTermination(240)
    assert again.to_dataframe().count() == 998


def test_a_source_that_fails_in_spark_fails_the_query_with_its_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    bad = rows(spark).selectExpr("at", "1 DIV divisor AS v")
    flow = Dataflow("flow")
    flow.source(bad, name="rows", time="at").sink("out")
    query = flow.start(spark, checkpointLocation=str(tmp_path))
    with pytest.raises(QueryFailedError, match=r"source rows: .*[Dd]ivision by zero"):
        query.awaitTermination(240)


def test_a_streaming_source_that_fails_fails_the_query_with_its_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows(spark).write.parquet(str(tmp_path / "incoming"))
    stream = spark.readStream.schema("at TIMESTAMP, divisor BIGINT").parquet(
        str(tmp_path / "incoming")
    )
    flow = Dataflow("flow")
    bad = stream.selectExpr("at", "1 DIV divisor AS v")
    flow.source(bad, name="rows", time="at").sink("out")
    query = flow.start(spark, checkpointLocation=str(tmp_path / "q"))
    with pytest.raises(QueryFailedError, match=r"source rows: .*[Dd]ivision by zero"):
        query.awaitTermination(240)
    assert not query.isActive


def test_sources_need_a_time_and_types_that_streams_can_carry(spark: SparkSession) -> None:
    with pytest.raises(DataflowError, match="no column 'when'"):
        Dataflow("flow").source(rows(spark), name="rows", time="when")
    with pytest.raises(DataflowError, match="no timestamp"):
        Dataflow("flow").source(rows(spark), name="rows", time="v")
    for value, kind in (
        ("INTERVAL '1' DAY", "interval day"),
        ("array(INTERVAL '1' MONTH)", "array<interval month>"),
        ("parse_json('1')", "variant"),
        ("NULL", "void"),
    ):
        with pytest.raises(UnsupportedError, match=f"'it' is {kind}; Holdfast carries"):
            schema_from_spark(spark.sql(f"SELECT {value} AS it").schema)


def test_schemas_are_read_from_ddl(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 1L AS id, 'x' AS name, current_timestamp() AS at")
    assert schema_from("id BIGINT, name STRING, at TIMESTAMP").types == (
        schema_from_spark(frame.schema).types
    )
    with pytest.raises(DataflowError, match="is no schema"):
        schema_from("id NUMBERISH")


SAFE = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}


def _checked(master: str, settings: dict[str, str], *, is_insecure_allowed: bool = False) -> None:
    check_session(master, settings, is_insecure_allowed=is_insecure_allowed)


def test_an_open_cluster_and_speculation_are_refused() -> None:
    _checked("spark://host:7077", SAFE)
    with pytest.raises(InsecureClusterError, match=r"allowInsecureCluster"):
        _checked("spark://host:7077", {})
    unauthenticated = SAFE | {"spark.authenticate": "false"}
    with pytest.warns(InsecureClusterWarning, match=r"spark.authenticate"):
        _checked("spark://host:7077", unauthenticated, is_insecure_allowed=True)
    with pytest.warns(InsecureClusterWarning, match=r"spark.io.encryption"):
        _checked("yarn", SAFE | {"spark.io.encryption.enabled": "false"})
    with pytest.raises(OptionError, match="dynamicAllocation"):
        _checked("yarn", SAFE | {"spark.dynamicAllocation.enabled": "true"})
    with pytest.raises(OptionError, match="speculation"):
        _checked("local[2]", {"spark.speculation": "true"})


@pytest.mark.parametrize("protection", [ActiveStandby(strict=True), PassiveStandby(strict=True)])
def test_replicas_that_must_be_apart_are_refused_on_one_machine(
    spark: SparkSession, tmp_path: Path, protection: Protection
) -> None:
    flow = Dataflow("apart")
    source(spark, flow).filter("v > 1").sink("out")
    with pytest.raises(NotEnoughHostsError, match="strict=True"):
        flow.start(spark, checkpointLocation=str(tmp_path / "q"), protection=protection)
    assert not (tmp_path / "q").exists(), "nothing was begun"


def test_a_range_of_ports_is_not_empty(spark: SparkSession, tmp_path: Path) -> None:
    flow = Dataflow("ports")
    source(spark, flow).filter("v > 1").sink("out")
    options = {"spark.holdfast.portMin": "50000", "spark.holdfast.portMax": "50000"}
    with pytest.raises(OptionError, match="portMin=50000"):
        flow.start(spark, checkpointLocation=str(tmp_path), options=options)
