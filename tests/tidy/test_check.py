"""What scripts/check.sh runs is all there is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_slow_tests_are_where_it_looks_for_them() -> None:
    (folders,) = re.findall(r'^slow="(.*)"$', (ROOT / "scripts" / "check.sh").read_text(), re.M)
    marked = {
        str(path.relative_to(ROOT).parent)
        for path in (ROOT / "tests").rglob("test_*.py")
        if "mark.slow" in path.read_text() and path != Path(__file__)
    }
    assert marked == set(folders.split())
