"""What the race says of a peer that is wrong, fails, never ends, or cannot be had."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from holdfast_bench.peers import bench, race, recovery
from holdfast_bench.peers import page as peers_page
from holdfast_bench.peers.environment import NoPeer, environment
from holdfast_bench.peers.events import Events
from holdfast_bench.peers.peer import FROM_FILES, HOLDFAST, PEERS, QUERIES, Peer
from holdfast_bench.peers.race import Course, Installed
from holdfast_bench.running import BenchFailed
from holdfast_chaos.kafka_broker import NoBroker

TIMEOUT_S = 300.0
EXPECTED = pa.table(
    {"window_start": [0, 0], "window_end": [10, 10], "bidder": [1, 2], "bids": [3, 4]}
)
TICK_S = 0.01
"""By so much the time of a file may be behind the clock."""
RIGHT = "0,10,1,3\n0,10,2,4\n"


def peer_that(tmp_path: Path, body: str, *, ends: bool = True) -> Peer:
    """A peer whose script runs these lines with `job` and `say` at hand."""
    script = tmp_path / "job.py"
    jobs = Path(race.__file__).parent / "jobs"
    head = f"import sys, time, os\nsys.path.insert(0, {str(jobs)!r})\n"
    head += "from contract import read, say\njob = read()\nos.makedirs(job.output)\n"
    head += "say(started=time.time())\n"
    script.write_text(head + body)
    return Peer("fake", "Fake", job=str(script), output="lines", ends=ends)


def writing(text: str) -> str:
    """Lines of a script that put out a text."""
    return f"open(job.output + '/part_0', 'w').write({text!r})\n"


def run(peer: Peer, tmp_path: Path) -> dict[str, object]:
    """One run of it."""
    python = environment(peer.name, (), tmp_path)
    events = Events(10, 10, {"parquet": {"bid": str(tmp_path)}})
    course = Course("q12", events, EXPECTED)
    return race.run_once(peer, python, course, TIMEOUT_S, tmp_path / "run")


def test_right_output_is_identical(tmp_path: Path) -> None:
    found = run(peer_that(tmp_path, writing(RIGHT) + "say(seconds=2.5)"), tmp_path)
    assert found["seconds"] == 2.5
    assert found["output"] == {"expected": 2, "lost": 0, "surplus": 0}


def test_wrong_output_is_said_to_differ(tmp_path: Path) -> None:
    found = run(peer_that(tmp_path, writing("0,10,1,3\n0,10,2,5\n")), tmp_path)
    assert found["output"] == {"expected": 2, "lost": 1, "surplus": 1}


def test_a_peer_that_knows_no_end_is_ended_when_its_output_is_whole(tmp_path: Path) -> None:
    peer = peer_that(tmp_path, writing(RIGHT) + "time.sleep(60)", ends=False)
    found = run(peer, tmp_path)
    assert found["output"] == {"expected": 2, "lost": 0, "surplus": 0}


def test_results_of_windows_still_open_do_not_make_an_output_whole(tmp_path: Path) -> None:
    late = "open(job.output + '/part_1', 'w').write(" + repr(RIGHT) + ")\n"
    body = writing("10,20,1,3\n10,20,2,4\n") + "time.sleep(1)\n" + late + "time.sleep(60)"
    found = run(peer_that(tmp_path, body, ends=False), tmp_path)
    assert found["output"] == {"expected": 2, "lost": 0, "surplus": 0}


def test_a_script_that_fails_is_reported_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(BenchFailed, match="no broker anywhere"):
        run(peer_that(tmp_path, "raise ValueError('no broker anywhere')"), tmp_path)


def test_what_cannot_be_installed_is_reported_with_pips_reason(tmp_path: Path) -> None:
    wanted = (str(tmp_path / "there-is-no-such-file.whl"),)
    with pytest.raises(NoPeer, match="there-is-no-such-file"):
        environment("missing", wanted, tmp_path / "cache")
    missing = Peer("missing", "Missing", requirements=wanted)
    installed = Installed((missing,), tmp_path / "cache", lambda text: None)
    assert "there-is-no-such-file" in installed.absent["missing"]
    with pytest.raises(BenchFailed, match="there-is-no-such-file"):
        installed.python(missing)


def test_a_peer_gets_the_jars_it_needs_or_the_reason_why_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(cache: Path, name: str, artifact: str) -> Path:
        if "nowhere" in artifact:
            raise NoBroker("no mvn")
        (cache / name).mkdir(parents=True, exist_ok=True)
        (cache / name / "some.jar").touch()
        return cache / name

    monkeypatch.setattr(race, "fetched", fetched)
    installed = Installed((), tmp_path / "cache", print)
    jars = installed.jars(Peer("flink", "Flink", jars=("org:parquet:1", "org:hadoop:2")))
    assert [jar.parent.name for jar in jars] == ["hadoop", "parquet"]
    with pytest.raises(BenchFailed, match="no mvn"):
        installed.jars(Peer("flink", "Flink", jars=("nowhere:parquet:1",)))
    peer = peer_that(tmp_path, writing(RIGHT) + "assert len(job.jars.split(',')) == 2\n")
    events = Events(10, 10, {"parquet": {"bid": str(tmp_path)}})
    course = Course("q12", events, EXPECTED)
    python = environment(peer.name, (), tmp_path)
    found = race.run_once(peer, python, course, TIMEOUT_S, tmp_path / "run", jars)
    assert found["output"]["lost"] == 0


def test_all_who_run_from_files_read_and_write_parquet() -> None:
    assert {peer.input for peer in FROM_FILES} == {"parquet"}
    assert {peer.output for peer in FROM_FILES} == {"parquet", "spark"}
    assert {peer.name for peer in FROM_FILES} <= {peer.name for peer in PEERS}


def entry(rate: int, *, lost: int = 0) -> dict[str, object]:
    """A system's results as the race gives them."""
    output = {"expected": 2, "lost": lost, "surplus": 0}
    return {
        "tuples": 10,
        "tuples_per_s": rate,
        "peak_bytes": 1_000_000,
        "is_identical": not lost,
        "runs": [{"seconds": 1.0, "peak_bytes": 1_000_000, "output": output}],
    }


def results(*, ours_lost: int = 0, theirs_lost: int = 0) -> dict[str, Any]:
    """As `bench.run` gives them."""
    described = {
        "title": "Structured Streaming",
        "requirements": [],
        "quirks": [],
        "refuses": {},
        "absent": "",
    }
    return {
        "machine": {"cores": 2},
        "experiments": {"throughput": {"size": "quick", "seconds": 1.0}},
        "peers": {
            "holdfast": described | {"title": "Holdfast"},
            "spark": described,
            "gone": described | {"title": "Gone", "absent": "pip: no such package"},
        },
        "throughput": {
            "q12": {
                "tuples": 10,
                "systems": {
                    "holdfast": entry(5_000_000, lost=ours_lost),
                    "spark": entry(1_000_000, lost=theirs_lost),
                },
                "failures": {"gone": "pip: no such package"},
            }
        },
    }


def test_the_page_names_wrong_output_missed_goals_and_missing_peers() -> None:
    page = peers_page.PAGE.render(results(theirs_lost=1))
    assert "**not identical**: of 2 rows 1 lost, 0 wrong or doubled" in page
    assert "| throughput of q12 to Structured Streaming | ≥ 25 | 5 | **not met** |" in page
    assert "**Gone** (as the package needs it). **Not run**: pip: no such package" in page


def recovered(ms: float) -> dict[str, object]:
    """A system's kills as `recovery.measure` gives them."""
    output = {"expected": 2, "lost": 0, "surplus": 0}
    times = {"median_ms": ms, "max_ms": ms, "times_ms": [ms]}
    return times | {"output": output, "is_identical": True}


def test_recovery_and_latency_are_set_beside_structured_streaming_and_the_best_peer() -> None:
    measured = results()
    latency = {"tuples_per_s": 9, "p50_ms": 1.0, "max_ms": 9.0, "results": 5}
    measured["latency"] = {
        "q3": {
            "systems": {
                "holdfast": {"50%": latency | {"p99_ms": 5.0}},
                "spark": {"50%": latency | {"p99_ms": 40.0}},
            },
            "failures": {"gone at 50%": "its maximum was not measured"},
        }
    }
    systems = {
        "holdfast": recovered(200.0),
        "holdfast-whole": recovered(9_000.0),
        "spark": recovered(8_000.0),
    }
    measured["recovery"] = {"q3": {"tuples_per_s": 10.0, "systems": systems, "failures": {}}}
    page = peers_page.PAGE.render(measured)
    assert "| p99 of q3 at half of the maximum, Structured Streaming's to Holdfast's" in page
    assert "| ≥ 10 | 8 | **not met** |" in page
    assert "| recovery, Structured Streaming's to Holdfast's | ≥ 10 | 40 | met |" in page
    assert "| Holdfast, driver and all | 9,000 | 9,000 | identical | 9,000 |" in page


def test_only_wrong_output_of_holdfast_fails_the_benchmark() -> None:
    assert not peers_page.has_wrong_output(results(theirs_lost=1))
    assert peers_page.has_wrong_output(results(ours_lost=1))


def test_what_was_not_repeated_stays_with_the_peers_that_were_in_it() -> None:
    new = {"peers": {"other": {}}, "experiments": {"recovery": {}}, "recovery": {"q3": {}}}
    both = peers_page.merged(results(), new)
    assert set(both["peers"]) == {"holdfast", "spark", "gone", "other"}
    assert set(both["experiments"]) == {"throughput", "recovery"}
    assert {"throughput", "recovery"} <= both.keys()


def test_queries_that_were_not_repeated_stay() -> None:
    former = results() | {"latency": {"q3": {"run": 1}, "q12": {"run": 1}}}
    new = {"peers": {}, "experiments": {"latency": {}}, "latency": {"q12": {"run": 2}}}
    assert peers_page.merged(former, new)["latency"] == {"q3": {"run": 1}, "q12": {"run": 2}}


def test_an_experiment_is_kept_query_by_query(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measured(_: Any, __: Any, sizes: Any, *more: Any) -> dict[str, Any]:
        return {query: {"systems": {}} for query in sizes.queries}

    monkeypatch.setattr(bench.latency, "measure", measured)
    monkeypatch.setattr(bench, "use_cores", lambda: None)
    kept: list[set[str]] = []
    bench.run(
        bench.FULL,
        lambda text: None,
        only=("latency",),
        names=(),
        cache=tmp_path,
        keep=lambda found: kept.append(set(found["latency"])),
    )
    queries = bench.QUERIES
    assert kept == [set(queries[: n + 1]) for n in range(len(queries))]


def test_who_cannot_keep_up_is_not_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_expected", lambda sizes, folder: pa.table({}))
    slow = next(peer for peer in PEERS if peer.name == "bytewax")
    maxima = {"q3": {"systems": {"bytewax": {"tuples_per_s": 9_999}}}}
    sizes = bench.FULL.recovery
    installed = SimpleNamespace(python=lambda peer: Path("/nowhere"))
    found = recovery.measure((slow,), installed, sizes, maxima, lambda text: None)  # type: ignore[arg-type]
    assert found["q3"]["failures"] == {"bytewax": "its maximum is 9,999 tuples/s"}
    assert not found["q3"]["systems"]


def test_every_peer_has_its_script_and_refuses_only_queries_there_are() -> None:
    jobs = Path(race.__file__).parent / "jobs"
    for peer in (*PEERS, *FROM_FILES):
        assert (jobs / peer.job).exists()
        assert set(peer.refuses) <= set(QUERIES)
    assert PEERS[0] is HOLDFAST


def test_sizes_of_some_queries_are_those_queries_alone() -> None:
    assert bench.QUICK.of(("q8",)).throughput.tuples == {"q8": bench.FULL.throughput.tuples["q8"]}


def test_from_files_into_files_a_run_takes_until_its_last_file_is_shown(tmp_path: Path) -> None:
    """Whatever the engine says of itself."""
    body = writing(RIGHT) + "say(seconds=0.001)\n"
    peer = peer_that(tmp_path, "time.sleep(0.2)\n" + body)
    python = environment(peer.name, (), tmp_path)
    events = Events(10, 10, {"parquet": {"bid": str(tmp_path)}})
    course = Course("q12", events, EXPECTED, is_with_start=True)
    seconds = race.run_once(peer, python, course, TIMEOUT_S, tmp_path / "run")["seconds"]
    assert seconds >= 0.2 - TICK_S
    shown = tmp_path / "run" / "output" / "part_0"
    os.utime(shown)
    assert race.last_shown_s(shown.parent) == shown.stat().st_ctime
    (tmp_path / "none").mkdir()
    with pytest.raises(BenchFailed, match="no file of results"):
        race.last_shown_s(tmp_path / "none")


def test_the_next_peer_runs_though_making_the_events_failed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[Path] = []

    def course(query: str, tuples: int, folder: Path, formats: tuple[str, ...]) -> Course:
        (folder / "events").mkdir(parents=True)
        tries.append(folder)
        if len(tries) == 1:
            raise BenchFailed("Structured Streaming did not end")
        return Course(query, Events(tuples, 10, {"parquet": {"bid": str(tmp_path)}}), EXPECTED)

    monkeypatch.setattr(race, "course", course)
    peers = tuple(
        replace(peer_that(tmp_path, writing(RIGHT) + "say(seconds=1.5)"), name=name)
        for name in ("first", "second")
    )
    sizes = race.RaceSizes({"q12": 10}, 1, TIMEOUT_S)
    found = race.compare(peers, Installed(peers, tmp_path / "cache", print), sizes, print)["q12"]
    assert found["failures"] == {"first": "Structured Streaming did not end"}
    assert found["systems"].keys() == {"second"}


def test_the_race_from_files_comes_first_on_the_page() -> None:
    given = results()
    given["files"] = given["throughput"]
    given["experiments"]["files"] = given["experiments"]["throughput"] | {"commit": "e8e91caf"}
    page = peers_page.PAGE.render(given)
    assert "an older commit), files (" in page
    assert page.index("## From files into files") < page.index("## Throughput")
    assert "| throughput of q12 from files into files to Structured Streaming | ≥ 20 |" in page
    given["files"]["q12"]["systems"]["holdfast"]["is_identical"] = False
    assert peers_page.has_wrong_output(given)
