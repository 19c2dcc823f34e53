"""The worked example of CONTRIBUTING.md: added to a copy, it runs under simulated faults."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "CONTRIBUTING.md"
_BLOCK = re.compile(
    r"^```python\n# (\S+), (?:new|before: ([^\n]*)|instead of: ([^\n]*))\n(.*?)^```", re.M | re.S
)
BLOCKS = [match.groups() for match in _BLOCK.finditer(PAGE.read_text())]


def added(text: str, anchor: str, code: str, *, is_instead: bool) -> str:
    """A file with a block before, or instead of, the place that begins so."""
    anchor = anchor.replace("\\n", "\n")
    assert text.count(anchor) == 1, f"{anchor!r} is there {text.count(anchor)} times"
    at = text.index(anchor)
    return text[:at] + code + text[at + (len(anchor) if is_instead else 0) :]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("copy")
    # With what is compiled, of all files that stay as they are; not with what is being written.
    beginnings = shutil.ignore_patterns("*.tmp.*", "*.pyc.*")
    shutil.copytree(ROOT / "src", top / "src", ignore=beginnings)
    for name, before, instead_of, code in BLOCKS:
        path = top / name
        if before is None and instead_of is None:
            assert not path.exists()
            path.write_text(code)
            continue
        is_instead = before is None
        code = code.rstrip("\n") if is_instead else code
        text = added(path.read_text(), before or instead_of, code, is_instead=is_instead)
        path.write_text(text)
    return top


def test_there_are_blocks_for_six_places() -> None:
    assert len({name for name, *_ in BLOCKS}) == 6


def test_the_example_survives_faults(copy: Path) -> None:
    script = Path(__file__).with_name("drop_nulls_under_faults.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rows were dropped" in done.stdout
