"""`holdfast simulate` as people and programs call it."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest

from holdfast.cli import main


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "holdfast.cli.main", "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_seeds_give_json_with_what_was_done() -> None:
    """More than one process takes at once, so that some do."""
    done = simulate("--seeds", "0:+9", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["runs"] == 9
    assert result["violations"] == []
    assert result["virtual_seconds"] > 5
    assert sum(result["faults_injected"].values()) > 5


def test_a_trace_is_a_timeline_with_the_plan_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast", "simulate", "--seed", "5", "--trace"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    told = capsys.readouterr().err
    assert not ended.value.code, told
    assert told.startswith("dataflow")
    assert "planned faults" in told
    assert " ms  " in told
    assert "is incarnation 1" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--faults", "earthquake"), "earthquake"),
        (("--seeds", "9:3"), "FROM:TO"),
        (("--seeds", "9:+0"), "FROM:TO"),
        (("--seeds", "+9:+3"), "FROM:TO"),
        (("--keep", "1"), "--seed"),
        (("--seed", "1", "--keep", "one"), "numbers"),
        (("--seed", "1", "--keep", "99"), "numbered from 0"),
        (("--real", "--keep", "1"), "--real"),
        (("--dataflow", "q99"), "flights"),
    ],
)
def test_bad_options_are_refused_with_what_would_work(
    refused: Callable[..., str], arguments: tuple[str, ...], words: str
) -> None:
    assert words in refused("simulate", *arguments)
