"""The experiments of the main job's page."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.driver import session
from holdfast_bench import spine
from holdfast_bench.running import BenchFailed


def test_an_experiment_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(name: str, *_: Any) -> dict[str, Any]:
        if name == "frames":
            raise BenchFailed("nothing came")
        return {"runs_s": [1.0, 2.0], "slowest_s": 2.0}

    quiet = SimpleNamespace(setLogLevel=lambda level: None)
    spark = SimpleNamespace(sparkContext=quiet, stop=lambda: None)
    monkeypatch.setattr(session, "session", lambda name: spark)
    monkeypatch.setattr(spine, "use_cores", lambda: None)
    monkeypatch.setattr(spine, "judge", lambda results: [])
    monkeypatch.setattr(spine, "_run_one", measured)
    results = spine.run(("start", "frames", "recovery"), spine.QUICK, lambda text: None)
    assert results["failed"] == {"frames": "nothing came"}
    assert {"start", "recovery"} <= set(results)
    assert "frames" not in results


def test_what_is_not_measured_again_stays_and_a_failure_that_has_been_mended_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spine, "judge", lambda results: [])
    how = {"size": "full", "seconds": 1.0}
    former = {
        "experiments": {"start": how, "latency": how},
        "failed": {"frames": "nothing came"},
        "start": {"max_s": 1.0},
        "latency": {"p50": 1},
    }
    newer = {
        "experiments": {"start": how | {"seconds": 2.0}, "frames": how},
        "failed": {"recovery": "no end"},
        "start": {"max_s": 2.0},
        "frames": {"p50": 3},
    }
    found = spine.merged(former, newer)
    assert found["experiments"] == {"start": how | {"seconds": 2.0}, "latency": how, "frames": how}
    assert found["failed"] == {"recovery": "no end"}
    assert (found["start"], found["latency"], found["frames"]) == (
        {"max_s": 2.0},
        {"p50": 1},
        {"p50": 3},
    )
