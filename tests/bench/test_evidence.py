"""Evidence: quick forms of reports are compared with the committed ones, and reports are young."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast_bench.evidence import REPORTS, compare, names, render, run

COMMITTED: dict[str, Any] = {
    "machine": {"load_before": 0.2},
    "seconds": 60.0,
    "steps": [
        {"step": "read", "ns": 5.0, "tuples": 4_000_000, "read_ns": 6.0},
        {"step": "send", "ns": 9.0, "tuples": 4_000_000, "read_ns": 7.0},
    ],
    "runs": [{"is_identical": True, "lost": 0, "first_output_ms": ms} for ms in (90, 100, 400)],
}


def changed(**paths: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(COMMITTED))
    found["runs"][0].update(paths)
    return found


def test_what_is_as_before_has_not_moved_whatever_the_size_and_the_machine() -> None:
    now = changed(first_output_ms=80)
    now["machine"] = {"load_before": 30.0}
    now["steps"].reverse()
    now["steps"][0]["tuples"] = 500
    found = compare("steps", COMMITTED, now)
    assert found.holds
    assert found.compared == 5


def test_a_median_outside_the_factor_has_moved_in_either_direction() -> None:
    for ms in (1_000, 1):
        now = changed()
        now["runs"] = [{"is_identical": True, "lost": 0, "first_output_ms": ms}]
        found = compare("spine", COMMITTED, now)
        (moved,) = found.moved
        assert not found.holds
        assert moved.figure == "runs / first_output_ms"
        assert (moved.committed, moved.now) == (100, ms)
        assert "runs / first_output_ms" in render([found])
        assert compare("spine", COMMITTED, now, factor=1_000).holds


@pytest.mark.parametrize("broken", [{"is_identical": False}, {"lost": 1}])
def test_a_broken_promise_has_moved_however_much_is_allowed(broken: dict[str, Any]) -> None:
    found = compare("spine", COMMITTED, changed(**broken), factor=1_000)
    assert [moved.allowed for moved in found.moved] == [None]


def test_what_cannot_be_compared_does_not_hold() -> None:
    assert not compare("spine", COMMITTED, {"other_ms": 3}).holds

    def measure(_: str) -> dict[str, Any]:
        raise RuntimeError("no broker")

    said: list[str] = []
    (found,) = run(("view",), said.append, measure=measure)
    assert not found.holds
    assert said == ["view: no broker"]
    assert "no broker" in render([found])


def test_every_committed_report_has_figures_that_are_compared() -> None:
    for name in names():
        committed = json.loads((REPORTS / f"{name}.json").read_text())
        found = compare(name, committed, committed)
        assert found.holds, name


# -- how old reports are ------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
BEHIND_MAX = 200
SPEAKS_OF = {
    "cluster": ("core/coordinator", "shell/spark"),
    "files": ("shell/sources",),
    "growth": ("core/haunit", "core/queues", "core/operators"),
    "newcomer": ("cli", "driver"),
    "ha": ("core/haunit", "core/queues", "core/replication"),
    "hdfs": ("shell/storage", "shell/stores"),
    "kafka": ("shell/sources", "shell/sinks"),
    "peers": ("core/haunit", "core/operators", "shell/sources", "shell/sinks"),
    "security": ("shell/transport", "core/wire"),
    "sguard": ("core/state", "core/chunks", "core/haunit/durability"),
    "simulation": ("core", "sim"),
    "spine": ("core/haunit", "core/queues", "core/operators"),
    "steps": ("core/haunit", "core/queues", "core/operators"),
    "view": ("view",),
}
"""The code of the protocol that a report is about, below src/holdfast; otherwise all of `core`."""
OLD = {
    *("cec", "cluster", "growth", "ha", "kafka", "peers", "sguard"),
    *("security", "hdfs"),
    "spine",
}
"""To be measured again; docs/reports/README.md says of each that it is old."""


def git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def lines_of_reports() -> dict[str, str]:
    """By report, its line in the table of all reports."""
    text = (REPORTS / "README.md").read_text()
    return {m[1]: m[0] for m in re.finditer(r"^\| \[(\w+)\]\(.*$", text, re.MULTILINE)}


def commits_in(found: Any) -> Iterator[str]:
    """The commits that its pieces were measured on, as far as they say so."""
    if isinstance(found, dict):
        if isinstance(said := found.get("commit"), str) and said:
            yield said
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from commits_in(each)


def commit_of(report: str) -> str:
    """The oldest commit that a report names: itself, or in the table of all."""
    said = set(commits_in(json.loads((REPORTS / f"{report}.json").read_text())))
    table = re.findall(r"\| ([0-9a-f]{7}) ", lines_of_reports().get(report, ""))
    ages = {commit.rstrip("+"): behind(commit.rstrip("+"), report) for commit in {*said, *table}}
    return max(ages, key=lambda commit: ages[commit])


def behind(commit: str, report: str) -> int:
    """How many commits the report is older than the newest change of its protocol."""
    paths = [f"src/holdfast/{path}" for path in SPEAKS_OF.get(report, ("core",))]
    newest = git("log", "-1", "--format=%H", "--", *paths)
    assert newest, paths
    counted = git("rev-list", "--count", f"{commit}..{newest}")
    assert counted, f"{report} names {commit}, which is no commit here"
    common = git("merge-base", commit, "HEAD")
    assert common.startswith(commit), f"{report} names {commit}, which HEAD does not come from"
    return int(counted)


@pytest.mark.skipif(
    git("rev-parse", "--is-shallow-repository") != "false", reason="without the whole history"
)
@pytest.mark.parametrize("report", names())
def test_a_report_is_not_much_older_than_the_protocol_that_it_speaks_of(report: str) -> None:
    age = behind(commit_of(report), report)
    if age > BEHIND_MAX:
        assert report in OLD, f"measure it again: holdfast bench {report} --report docs/reports"
        assert "**old**" in lines_of_reports()[report]
