"""The page on a user's own files."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast_bench import cold_start, files, moments, reading
from holdfast_chaos import delta_kills

PROCESS = SimpleNamespace(current=lambda: SimpleNamespace(pid=os.getpid))
JVM = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(ProcessHandle=PROCESS)))


def results(*, holdfast_s: float, is_identical: bool) -> dict[str, Any]:
    seconds = {"holdfast": holdfast_s, "log": 2.0, "triggers": 60.0, "at_once": 30.0}
    ratio = {name: round(seconds[name] / holdfast_s, 2) for name in ("triggers", "at_once")}
    found = {
        "tuples": 6_000_000,
        "median_seconds": seconds,
        "ratio": ratio,
        "is_identical": is_identical,
    }
    return {"machine": {"commit": "abc"}, "sizes": {"repeats": 3}, "queries": {"q12": found}}


def test_the_page_says_whether_the_target_is_met() -> None:
    page = files.render(results(holdfast_s=3.0, is_identical=True))
    assert (
        "| Q12 | 6,000,000 | 3.00 | 2.00 | 60.00 | 30.00 | 2.00 M | 20.0 | 10.0 | 20: met | yes |"
        in page
    )
    assert "commit abc" in page
    assert "20: not met" in files.render(results(holdfast_s=3.1, is_identical=True))


def test_the_page_says_where_the_seconds_of_a_query_go(tmp_path: Path) -> None:
    found = results(holdfast_s=3.0, is_identical=True)
    assert "Where the seconds go" not in files.render(found)
    watched = moments.Watched(SimpleNamespace(sparkContext=SimpleNamespace(_jvm=JVM)))  # type: ignore[arg-type]
    commits = tmp_path / "ingest" / "bids" / "commits"
    commits.mkdir(parents=True)
    shown = [commits / "0.json", tmp_path / "part-0", tmp_path / "part-1"]
    for path in shown:
        path.touch()
    watched.began_s = shown[0].stat().st_ctime - 1.0
    told = watched.shown(str(tmp_path), shown[1:])
    assert told["listed"] == 1.0
    assert told["listed"] <= told["first"] <= told["last"]
    found["queries"]["q12"] |= {"moments": told | {"over": 2.5, "cpu_nodes": 4.0}}
    found["queries"]["q12"] |= {"thousandth_seconds": 0.75}
    seen = " | ".join(f"{told[name]:.2f}" for name in ("listed", "first", "last"))
    assert f"| Q12 | - | - | {seen} | 2.50 | 0.75 | 4.00 | - | - |" in files.render(found)
    found["queries"]["q12"]["pyarrow_cpu_s"] = 1.5
    assert "| 4.00 | - | 1.50 |" in files.render(found)


def test_the_page_says_what_keeps_a_query_from_its_target() -> None:
    found = results(holdfast_s=4.0, is_identical=True)
    found["machine"]["cores"] = 2
    told = {"moments": {"cpu_nodes": 6.0, "cpu_driver": 1.0}, "thousandth_seconds": 0.75}
    found["queries"]["q12"] |= told
    page = files.render(found)
    assert "- Q12 would have to take 3.0 s for its target. Its 7.0 CPU seconds alone" in page
    assert "fill all cores for 3.5 s, and 0.8 s are the same for any size." in page
    met = results(holdfast_s=3.0, is_identical=True)
    met["queries"]["q12"] |= told
    assert "would have to take" not in files.render(met)


def test_pyarrow_alone_reads_and_writes_what_a_query_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(moments.time, "thread_time", lambda: next(ticks))
    for query, kinds in moments.COLUMNS.items():
        made = files._recorded(query, 400, tmp_path / query)
        assert made.keys() == kinds.keys()
        places = {kind: recording.parquet for kind, recording in made.items()}
        read = [path for place in places.values() for path in Path(place).iterdir()]
        for kind, place in places.items():
            assert set(kinds[kind]) <= set(pq.read_schema(next(Path(place).iterdir())).names)
        assert moments.by_pyarrow(query, places, read[:3]) == len(read) + 3


def test_the_page_has_the_readers_and_the_cold_start_once_they_are_measured() -> None:
    found = results(holdfast_s=3.0, is_identical=True)
    assert "Cold start" not in files.render(found)
    seconds = {"holdfast": 0.5, "pyarrow": 0.25}
    found["reading"] = [{"format": "csv", "rows": 10**6, "seconds": seconds, "ratio": 0.5}]
    seconds = {"holdfast": 2.0, "mapInArrow": 1.9}
    found["boundary"] = {"rows": 6 * 10**6, "seconds": seconds, "ratio": 0.95}
    found["cold_start"] = {"seconds": {"holdfast": 9.0, "pyspark": 6.0}, "ratio": 1.5}
    assert "| step |" not in files.render(found)
    said = "@ Python is up 10.5\n+---+\n@ the query's end 12.5\n"
    steps = cold_start.steps_of(said, 10.0, 13.0)
    assert steps == {"Python is up": 0.5, "the query's end": 2.0, "exit": 0.5}
    found["cold_start"]["steps"] = {"holdfast": steps, "pyspark": {"Python is up": 0.25}}
    page = files.render(found)
    assert "| Python is up | 0.50 | 0.25 |" in page
    assert "| the query's end | 2.00 | - |" in page
    assert "Without it" not in page
    found["cold_start"]["steps"]["holdfast"] = steps | {"verify": 3.0, "session": 2.5}
    found["cold_start"]["steps"]["pyspark"] = {"session": 1.5}
    said = "Without it these are 1.00 times. The session alone takes 2.5 and 1.5 s."
    assert said in files.render(found)
    assert "| csv | 1,000,000 | 2.0 M | 4.0 M | 0.50 | 0.6: not met |" in page
    assert "| 6,000,000 | 3.00 M | 3.16 M | 0.95 | 0.9: met |" in page
    assert "| 9.0 | 6.0 | 1.50 | 1.5: met |" in page


def test_the_page_keeps_what_is_not_measured_again() -> None:
    before = results(holdfast_s=3.0, is_identical=True) | {"reading": []}
    again = results(holdfast_s=2.0, is_identical=True)
    again["queries"] = {"q1": again["queries"]["q12"]}
    again["machine"] = {**again["machine"], "commit": "def"}
    found = files.combined(before, again)
    assert "Measured before: q12 on abc, reading on abc." in files.render({**found, "reading": []})
    assert found["queries"].keys() == {"q1", "q12"}
    assert "reading" in found


def test_queries_of_before_that_went_into_the_log_alone_have_no_place_beside(
    tmp_path: Path,
) -> None:
    found = results(holdfast_s=3.0, is_identical=True)
    older = {**found["queries"]["q12"], "median_seconds": {"holdfast": 3.0, "triggers": 60.0}}
    found["queries"] = {"q1": older, "q12": found["queries"]["q12"]}
    (tmp_path / "files.json").write_text(json.dumps(found))
    assert files.former(tmp_path)["queries"].keys() == {"q12"}
    assert files.former(tmp_path / "none") == {}
    files.render(files.combined(files.former(tmp_path), found | {"queries": {}}))


def test_the_page_has_a_table_and_times_to_results_once_they_are_measured() -> None:
    found = results(holdfast_s=3.0, is_identical=True)
    found["delta"] = {"rows": 10**7, "rows_per_s": 2_000_000, "is_identical": False}
    times = {"p50_ms": 40.0, "p99_ms": 55.0, "max_ms": 60.0}
    systems = {"files-to-log": times, "files-to-files": times, "spark": times | {"p99_ms": 500.0}}
    found["visible"] = {"systems": systems, "failures": {"files-to-delta": "it failed"}}
    found["visible"]["fast"] = {"files-to-delta": times | {"p99_ms": 1_200.0}}
    page = files.render(found)
    assert "| Holdfast, into a Delta table, 1,000,000 rows/s | 40 | 1,200 |" in page
    assert "| 10,000,000 | 2.00 M | 1 M: met |" in page
    assert "Spark SQL gives: **no**" in page
    assert files.is_wrong(found)
    assert "| Holdfast, into its log | 40 | 55 | 60 | 60 ms: met |" in page
    assert "| Holdfast, into Parquet files | 40 | 55 | 60 | 50 ms: not met |" in page
    assert "| Holdfast, into a Delta table | - | - | - | it failed |" in page


def test_the_page_tells_what_kills_have_done() -> None:
    found = results(holdfast_s=3.0, is_identical=True)
    outcome = delta_kills.KillsOutcome({"node": 3, "all": 2, "driver": 1}, 1_000, drivers=2)
    found["kills"] = outcome.to_json() | {"is_right": outcome.is_right}
    said = "Of 1,000 rows, and of the windows that had closed, 0 were lost"
    assert files.render(found).count(said) == 1
    assert not files.is_wrong(found)
    iceberg = found | {"iceberg_kills": found["kills"] | {"is_right": False}}
    assert files.render(iceberg).count(said) == 2
    assert files.is_wrong(iceberg)
    outcome.doubled = 1
    assert files.is_wrong(found | {"kills": {"is_right": outcome.is_right}})


def test_the_readers_alone_read_the_same_rows(tmp_path: Path) -> None:
    found = reading.measure(dict.fromkeys(files.READ, 100), 1, tmp_path)
    assert [each["format"] for each in found] == ["parquet", "csv", "json"]
    assert all(each["rows"] == 100 and each["ratio"] > 0 for each in found)


def test_another_output_than_spark_sqls_is_wrong(tmp_path: Path) -> None:
    wrong = results(holdfast_s=3.0, is_identical=False)
    assert files.is_wrong(wrong)
    assert not files.is_wrong(results(holdfast_s=3.0, is_identical=True))
    assert "**no**" in files.write(wrong, tmp_path).read_text()


def test_a_target_stands_for_every_query() -> None:
    assert files.TARGETS.keys() == files.FULL.tuples.keys() >= files.QUICK.tuples.keys()
