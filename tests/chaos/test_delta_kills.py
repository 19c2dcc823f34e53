"""Kills lose and double nothing in tables of others; and what is looked for there is found."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from holdfast_chaos import delta_kills
from holdfast_chaos.delta_kills import KillsOutcome
from holdfast_chaos.tables import KINDS, DeltaTables

FIRST_US = 1_700_000_000_000_000
ROWS = 40_000
"""Forty seconds of event time."""
KILLS = 6


def tables(folder: Path, ids: list[int], counts: list[int]) -> KillsOutcome:
    """Judge tables with these rows, and with these counts of each key's windows, in order."""
    write_deltalake(str(folder / "out"), pa.table({"v": ids}))
    starts = [FIRST_US + number // 5 * 10_000_000 for number in range(len(counts))]
    counted = {
        "window_start": pa.array(starts, pa.timestamp("us", "UTC")),
        "k": [number % 5 for number in range(len(counts))],
        "n": counts,
    }
    write_deltalake(str(folder / "counted"), pa.table(counted))
    outcome = KillsOutcome(rows=ROWS)
    delta_kills._compare(DeltaTables(folder), outcome)
    return outcome


@pytest.mark.parametrize(
    ("ids", "counts", "found"),
    [
        (list(range(ROWS)), [2_000] * 10, (0, 0, 0)),
        (list(range(1, ROWS)), [2_000] * 10, (1, 0, 0)),
        ([0, *range(ROWS)], [2_000] * 10, (0, 1, 0)),
        (list(range(ROWS)), [2_000] * 9, (1, 0, 0)),
        (list(range(ROWS)), [*[2_000] * 9, 1_999], (0, 0, 1)),
    ],
)
def test_what_tables_lack_and_have_too_many_is_counted(
    tmp_path: Path, ids: list[int], counts: list[int], found: tuple[int, int, int]
) -> None:
    outcome = tables(tmp_path, ids, counts)
    assert (outcome.lost, outcome.doubled, outcome.wrong) == found
    assert outcome.is_right == (found == (0, 0, 0))


def test_files_that_never_began_to_come_can_be_stopped(tmp_path: Path) -> None:
    """Else what has kept them from it would not be told."""
    feed = delta_kills._Feed(tmp_path / "in")
    feed.stop()
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["00000000.parquet"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kills_lose_and_double_no_row(tmp_path: Path, kind: str) -> None:
    found = delta_kills.run(KILLS, 2, tmp_path, kind)
    assert found.is_right, found.to_json()
    assert sum(found.kills.values()) == KILLS
    assert found.rows > 0
    assert found.versions > 1
