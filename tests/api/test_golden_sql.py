"""Spark's golden SQL files: of their scalar expressions none is wrong, none fails foreignly."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from golden_sql import golden_expressions
from verdicts import Verdict, judged

RIGHT_AT_LEAST = 4060
OF_ANOTHER_ZONE = ("datetime-formatting.sql", "postgreSQL/text.sql:13")
"""Texts by the clocks of the zone in which the files were made, and one with its digits crossed
out; `tests/spark/test_expressions_equal_spark.py` compares times as texts in UTC."""
CHANGED_SINCE = ("postgreSQL/float8.sql:34", "postgreSQL/float8.sql:35", "postgreSQL/float8.sql:36")
"""Where the pinned Spark answers otherwise than the newest test jar: it fails on ceil(1E200)."""


@pytest.fixture(scope="module")
def jar() -> Path:
    """Spark's test jar, fetched from Maven once."""
    script = Path(__file__).parents[2] / "scripts" / "spark_sql_tests.sh"
    run = subprocess.run([script], capture_output=True, text=True, timeout=800, check=False)
    assert run.returncode == 0, run.stderr.strip()
    return Path(run.stdout.strip())


def test_no_expression_of_the_golden_files_is_wrong(jar: Path) -> None:
    found: Counter[Verdict] = Counter()
    bad = []
    for golden in golden_expressions(jar):
        if golden.place.startswith(OF_ANOTHER_ZONE):
            continue
        verdict, why = judged(golden.text, golden.rows, golden.type, golden.values, golden.beside)
        if golden.place in CHANGED_SINCE and golden.text.startswith(("ceil", "floor")):
            assert "does not fit BIGINT" in why
            continue
        found[verdict] += 1
        if verdict in (Verdict.WRONG, Verdict.FOREIGN):
            bad.append(f"{golden.place} {verdict.value}: {why}")
    print({verdict.value: count for verdict, count in found.items()})
    assert not bad, "\n".join(bad)
    assert found[Verdict.RIGHT] >= RIGHT_AT_LEAST
