"""A newcomer's path: from the built wheel, in an environment that holds nothing, to a node's death.

Three commands, as they stand in the report. The environment, the home folder and so every cache of
pip and numba are new. Packages come over the network: the time of the second command depends on it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from holdfast.errors import UnsupportedError
from holdfast_bench.reporter import machine_of, table, write_page
from holdfast_bench.spine import machine

ROOT: Final = Path(__file__).parents[2]
TARGET_S: Final = 120.0
COMMANDS_MAX: Final = 3
COMMANDS: Final = (
    "{python} -m venv holdfast",
    "holdfast/bin/pip install --quiet {wheel}",
    "holdfast/bin/holdfast nexmark q12 --emit changes --seconds 8 --kill counts@3s --verify",
)
_KEPT: Final = ("LANG", "JAVA_HOME", "TERM")
_KEPT_BEGINNINGS: Final = ("PIP_", "SSL_", "REQUESTS_")
_SURVIVED: Final = re.compile(r"\bcounts\[0\] back after \d+ ms")
_LOST: Final = "counts[0] failed"
_TIMEOUT_S: Final = 900.0
_INTRODUCTION: Final = """# A newcomer's path

`holdfast bench newcomer` made this page: from the built wheel, in an environment and a home folder
that hold nothing, to the first killed node survived. Only Java and Python were there.

"""


def run(say: Callable[[str], None]) -> dict[str, Any]:
    """Build the wheel, then do what a newcomer does.

    Raises:
        UnsupportedError: A command failed; the message has what it said.
    """
    found: dict[str, Any] = {"machine": machine(), "steps": []}
    with tempfile.TemporaryDirectory(prefix="holdfast-newcomer-") as folder:
        place = Path(folder)
        wheel = built(place / "wheel")
        found["wheel_kb"] = round(wheel.stat().st_size / 1_000)
        home = place / "home"
        home.mkdir()
        for pattern in COMMANDS:
            command = pattern.format(python=sys.executable, wheel=wheel)
            began_s = time.monotonic()
            said = _done(command, home)
            step = {
                "command": pattern.format(python="python3", wheel=wheel.name),
                "took_s": round(time.monotonic() - began_s, 1),
                "said": said,
            }
            found["steps"].append(step)
            say(f"{step['took_s']} s: {step['command']}")
    found["took_s"] = round(sum(step["took_s"] for step in found["steps"]), 1)
    return found


def built(folder: Path) -> Path:
    """The wheel of this checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=_TIMEOUT_S)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _done(command: str, home: Path) -> str:
    """What a command says, both ways, in a folder and an environment of its own."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith(_KEPT_BEGINNINGS)
    }
    # Whatever runs this may itself be in an environment: its programs are not the newcomer's.
    path = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin"))
    java = shutil.which("java")
    if java is not None:
        path = os.pathsep.join((path, str(Path(java).parent)))
    done = subprocess.run(
        command.split(),
        cwd=home,
        env={**kept, "HOME": str(home), "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise UnsupportedError(f"{command}: {done.stdout[-3_000:]}")
    return done.stdout


def is_met(results: dict[str, Any]) -> bool:
    """Whether a node was killed and survived, within the commands and the time that are allowed."""
    return (
        len(results["steps"]) <= COMMANDS_MAX
        and results["took_s"] <= TARGET_S
        and _SURVIVED.search(results["steps"][-1]["said"]) is not None
    )


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write newcomer.md and newcomer.json."""
    return write_page("newcomer", results, render(results), folder)


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    rows = [(f"`{step['command']}`", step["took_s"]) for step in results["steps"]]
    said = results["steps"][-1]["said"].strip()
    last = said[max(0, said.find(_LOST)) :]  # Spark speaks of itself before.
    return "".join(
        [
            _INTRODUCTION,
            f"Machine: {machine_of(results)}. The wheel has {results['wheel_kb']:,} kB.\n\n",
            table(("command", "seconds"), rows),
            f"\n{results['took_s']} s in all; the target is {TARGET_S:.0f} s, and at most "
            f"{COMMANDS_MAX} commands. The last one ends with:\n\n",
            f"```text\n{last}\n```\n",
        ]
    )
