"""The examples do what they say."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Callable[[SparkSession, Path], None]:
    run: Callable[[SparkSession, Path], None] = runpy.run_path(str(EXAMPLES / f"{name}.py"))["run"]
    return run


def test_files_to_files(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("files_to_files")(spark, tmp_path)
    assert "zone 0" in capsys.readouterr().out
    hourly = spark.read.parquet(str(tmp_path / "hourly"))
    (found,) = hourly.selectExpr("sum(trips) AS trips", "sum(fares) AS fares").collect()
    assert (found["trips"], found["fares"]) == (80_000, sum(5.0 + n % 40 for n in range(80_000)))


def test_csv_with_bad_rows(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("csv_with_bad_rows")(spark, tmp_path)
    shown = capsys.readouterr().out
    assert "11.7" in shown
    assert "2026-11-25T08:00:10Z,attic,n/a" in shown
    assert "yesterday,attic,19.0" in shown


def test_totals_by_key(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twice as many orders make no more rows."""
    example("totals_by_key")(spark, tmp_path)
    total = sum(number % 500 for number in range(10_000))
    assert f"97 customers, {total} in all" in capsys.readouterr().out
    rows = DeltaTable(tmp_path / "totals").to_pyarrow_table().to_pylist()
    wanted = {who: len(range(who, 10_000, 97)) for who in range(97)}
    assert {row["customer"]: row["orders"] for row in rows} == wanted


def test_files_to_delta(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("files_to_delta")(spark, tmp_path)
    assert "2000 large orders" in capsys.readouterr().out
    table = DeltaTable(tmp_path / "large")
    assert table.metadata().partition_columns == ["country"]


def test_brought_over(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("brought_over")(spark, tmp_path)
    assert "48 results, 0 differ" in capsys.readouterr().out


def test_visits(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example("visits")(spark, tmp_path)
    assert "900 visits; 0 of Structured Streaming's are not" in capsys.readouterr().out
    assert spark.table("visits_before").count() > 800


def test_silent_source(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("silent_source")(spark, tmp_path)
    silent, corrected = capsys.readouterr().out.split("MUC is back")
    alarms = [line for line in silent.splitlines() if line.startswith(("ALARM", "called off"))]
    raised = [line for line in alarms if "2 departures, tentative" in line]
    assert raised
    assert [line.split()[-1] for line in alarms if "called off" in line] == [
        line.split()[2].rstrip(":") for line in raised
    ]
    assert alarms[-1] == "ALARM at 08:08: 2 departures, stable"
    assert "|2         |tentative|MUC[0]  |0.5" in silent
    assert "undo" not in silent
    assert "rec_done" in corrected
    reader = spark.read.format("holdfast").option("stream", "counts")
    counts = reader.load(str(tmp_path / "checkpoints")).orderBy("window_start").collect()
    assert [row["departures"] for row in counts] == [4] * 8 + [2]


def test_escalation(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("escalation")(spark, tmp_path)
    shown = capsys.readouterr().out
    for row in ("database|   1|", "orders|   2|", "shop|   3|", "shop|   1|", "orders|   2|"):
        assert row in shown, row
    assert "billing" not in shown.split("Verification")[0], "what depends no more is not alerted"
    assert "lost=0, doubled=0, gaps=0" in shown


def test_recovery_in_time(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("recovery_in_time")(spark, tmp_path)
    said = capsys.readouterr().out
    assert "counts[0] was lost, and is back" in said
    assert "as without a failure: True" in said
    reader = spark.read.format("holdfast").option("stream", "counts")
    counts = reader.load(str(tmp_path / "checkpoints")).groupBy("readings").count().collect()
    assert {(row["readings"], row["count"]) for row in counts} == {(24, 80), (2, 40)}


def test_every_example_is_run_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_examples*.py"))
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert {name for name in names if f'example("{name}")' not in tests} == set()
