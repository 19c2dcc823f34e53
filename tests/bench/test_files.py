"""The page on a user's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast_bench import files


def results(*, holdfast_s: float, is_identical: bool) -> dict[str, Any]:
    seconds = {"holdfast": holdfast_s, "triggers": 60.0, "at_once": 30.0}
    ratio = {name: round(seconds[name] / holdfast_s, 2) for name in ("triggers", "at_once")}
    found = {
        "tuples": 6_000_000,
        "median_seconds": seconds,
        "ratio": ratio,
        "is_identical": is_identical,
    }
    return {"machine": {"commit": "abc"}, "sizes": {"repeats": 3}, "queries": {"q12": found}}


def test_the_page_says_whether_the_target_is_met() -> None:
    page = files.render(results(holdfast_s=3.0, is_identical=True))
    assert (
        "| Q12 | 6,000,000 | 3.00 | 60.00 | 30.00 | 2.00 M | 20.0 | 10.0 | 20: met | yes |" in page
    )
    assert "commit abc" in page
    assert "20: not met" in files.render(results(holdfast_s=3.1, is_identical=True))


def test_another_output_than_spark_sqls_is_wrong(tmp_path: Path) -> None:
    wrong = results(holdfast_s=3.0, is_identical=False)
    assert files.is_wrong(wrong)
    assert not files.is_wrong(results(holdfast_s=3.0, is_identical=True))
    assert "**no**" in files.write(wrong, tmp_path).read_text()


def test_a_target_stands_for_every_query() -> None:
    assert files.TARGETS.keys() == files.FULL.tuples.keys() >= files.QUICK.tuples.keys()
