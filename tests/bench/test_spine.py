"""The experiments of the main job's page."""

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.api import session
from holdfast.bench import spine
from holdfast.bench.running import BenchFailed


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
