"""The matrix of eventual checkpoints, in small: its tuples, its oracle, its table."""

from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast_bench import cec, cec_matrix, cec_page, cec_targets
from holdfast_bench.cec_states import FAST_US, WORD, Expected, StateSource

RATE = 10_000


def source(windows: int, each_bytes: int, end: str = "") -> StateSource:
    return StateSource(windows, windows * each_bytes, RATE, 0, end)


def results(given: StateSource, total: int, end: str) -> pa.Table:
    """What comes of so many tuples, one after the other."""
    reader, made = replace(given, end_path=end).open(), defaultdict(list)
    at = 0
    while at < total:
        (batch,) = reader.read(at, 300).batches
        for row in batch.batch.to_pylist():
            made[row["__time_us"] // FAST_US * FAST_US, row["key"]].append(row)
        at += batch.batch.num_rows
    return pa.Table.from_pylist(
        [
            {
                "window_start": start,
                "key": key,
                "n": len(rows),
                "total": sum(row["value"] for row in rows),
                "pieces": sum(row["text"] is not None for row in rows),
                "chars": sum(len(row["text"] or "") for row in rows),
                "first": min((int(row["text"][:WORD]) for row in rows if row["text"]), default=0),
                "last": max((int(row["text"][:WORD]) for row in rows if row["text"]), default=0),
            }
            for (start, key), rows in made.items()
        ]
    )


@pytest.mark.parametrize("each_bytes", [100, 5_000])
def test_arithmetic_says_what_comes_of_the_tuples(each_bytes: int, tmp_path: Path) -> None:
    given = source(50, each_bytes)
    assert (given.laps > 1) == (each_bytes > 1_000)
    total = given.filled + 2_000
    (tmp_path / "end").write_text(str(total))
    right = results(given, total, str(tmp_path / "end"))
    expected = Expected(given, total)
    assert expected.difference(right) is None
    assert "slow windows" in (expected.difference(right.slice(1)) or "")
    for column in ("n", "total", "pieces", "chars", "first", "last"):
        at = right.schema.get_field_index(column)
        wrong = right.column(column).to_pylist()
        wrong[0] += 1
        assert expected.difference(right.set_column(at, column, [wrong])), column
    fast = right.slice(0, right.num_rows - 1)
    assert expected.difference(fast)


def test_cells_with_windows_smaller_than_any_are_left_out() -> None:
    cells = cec_matrix.cells_of(cec.FULL)
    assert len(cells) == 8 * 3
    assert cec_matrix.Cell(10, 1_000_000, 100) not in cells
    for cell in cells:
        made = source(cell.windows, (cell.state_mb << 20) // cell.windows)
        bytes_ = made.windows * made.laps * made.text_bytes
        assert bytes_ == 0 or 0.5 < bytes_ / made.state_bytes < 1


def test_a_cell_is_met_foretold_or_missed() -> None:
    kill = {
        "predicted_ms": 50.0,
        "shortfall": None,
        "extent_bytes": 1 << 20,
        "state_bytes": 2 << 20,
        "memory_bytes": 3 << 20,
    }
    each: list[dict[str, Any]] = [kill | {"recovery_ms": ms} for ms in (90, 100, 130, 140)]
    each[3]["shortfall"] = "recovery would take 140 ms, not 100"
    found = cec_matrix.summary(each, 100)
    assert (found["kills"], found["met"], found["said_before"]) == (4, 2, 1)
    assert (found["recovery_ms"], found["p95_ms"]) == (115, 140)
    point = {"state_mb": 10, "windows": 100, "objective_ms": 100, "results": "right"} | found
    sizes = asdict(cec.QUICK)
    page = cec_page.render({"sizes": sizes, "experiments": {}, "matrix": [point]})
    assert "not 100" in page.partition("## Large states")[2]
    failed = {"state_mb": 20, "windows": 100, "objective_ms": 100, "failed": "it broke"}
    reached = cec_targets.targets({"matrix": [point, failed]})
    assert [each.measured for each in reached] == ["2 of 4, 1 of the others foretold", "it broke"]
    assert "medians" in reached[0].limit
    both = cec_page.joined(
        {"matrix": [point | {"met": 0}], "experiments": {}},
        {"matrix": [point, failed], "experiments": {}},
    )
    assert [each.get("met") for each in both["matrix"]] == [2, None]
