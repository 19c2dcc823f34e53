"""No two test files have one name: pytest could not collect both in one run."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_each_file_of_tests_has_a_name_of_its_own() -> None:
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []
