"""What others of the host took is counted, and decides alone which run counts."""

from pathlib import Path
from typing import Any

import pytest

from holdfast_bench import disturbance
from holdfast_bench.disturbance import Stolen, undisturbed


def stat(path: Path, used: int, stolen: int) -> None:
    """A file as /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, guests."""
    path.write_text(f"cpu  {used - 6} 1 2 99 98 1 2 {stolen} 7 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "stat"
    monkeypatch.setattr(disturbance, "_STAT", path)
    stat(path, 1_000, 500)
    return path


def test_the_share_is_of_the_time_that_was_wanted_since(proc: Path) -> None:
    stolen = Stolen()
    assert stolen.share == 0.0
    stat(proc, 1_300, 600)
    assert stolen.share == 0.25


def test_without_proc_nothing_is_stolen(proc: Path) -> None:
    proc.unlink()
    assert Stolen().share == 0.0


class Machine:
    """One whose runs lose so much of 100 ticks each."""

    def __init__(self, proc: Path, losses: list[int]) -> None:
        self.proc, self.losses, self.runs = proc, losses, 0
        self.used, self.stolen = 1_000, 500

    def run(self) -> dict[str, Any]:
        loss = self.losses[self.runs]
        self.runs += 1
        self.used += 100 - loss
        self.stolen += loss
        stat(self.proc, self.used, self.stolen)
        return {"run": self.runs}


@pytest.mark.parametrize(
    ("losses", "counts", "runs"),
    [
        ([10], 1, 1),
        ([11, 5], 2, 2),
        ([30, 12, 20], 2, 3),
        ([30, 12, 20, 0], 2, 3),
    ],
)
def test_a_disturbed_run_is_repeated_and_the_least_disturbed_counts(
    proc: Path, losses: list[int], counts: int, runs: int
) -> None:
    host = Machine(proc, losses)
    assert undisturbed(host.run) == {"run": counts, "stolen": losses[counts - 1] / 100}
    assert host.runs == runs
