"""Commands of a checkout, with one and without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import checkout
from holdfast.errors import UnsupportedError


def test_without_a_checkout_a_command_says_where_it_can_be_had(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"holdfast bench is a command of a checkout.*clone"):
        checkout.load("holdfast_bench.commands", for_command="holdfast bench", top=tmp_path)


def test_processes_that_a_command_starts_find_the_checkout_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in checkout.FOLDERS.values():
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert checkout.enter(tmp_path)
    assert checkout.enter(tmp_path)
    wanted = [str(tmp_path / folder) for folder in checkout.FOLDERS.values()]
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [*wanted, "/elsewhere"]
    assert sys.path[: len(wanted)] == wanted


def test_every_package_of_the_checkout_is_where_it_is_said_to_be() -> None:
    top = Path(__file__).parents[2]
    for package, folder in checkout.FOLDERS.items():
        assert (top / folder / package / "__init__.py").is_file()


def test_help_of_the_benchmarks_is_their_own() -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", "bench", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "holdfast.cli.main bench" in done.stdout
    assert "spine" in done.stdout
