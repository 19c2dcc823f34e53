"""Whoever looks at a location finds the newest report of the newest run."""

from pathlib import Path

import pytest

from holdfast.shell.storage.errors import FileDamaged
from holdfast.shell.storage.places import store_at
from holdfast.shell.storage.shown_box import FOLDER, ShownBox, newest_kept


def test_nothing_is_found_where_nothing_ran(tmp_path: Path) -> None:
    assert newest_kept(str(tmp_path)) is None


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_the_newest_report_of_the_newest_run_is_found_and_others_are_deleted(
    tmp_path: Path, scheme: str
) -> None:
    location = f"{scheme}{tmp_path}"
    first = ShownBox(location, 2, {"name": "bids"})
    kept = newest_kept(location)
    assert kept is not None
    assert kept.report is None
    for n in range(12):
        first.report({"n": n})
    kept = newest_kept(location)
    assert kept is not None
    assert (kept.epoch, kept.plan, kept.report) == (2, {"name": "bids"}, {"n": 11})
    assert len(store_at(location).names(FOLDER)) == 2
    second = ShownBox(location, 10, {"name": "bids again"})
    second.report({"n": 0})
    kept = newest_kept(location)
    assert kept is not None
    assert (kept.epoch, kept.plan["name"], kept.report) == (10, "bids again", {"n": 0})
    assert len(store_at(location).names(FOLDER)) == 2


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    ShownBox(str(tmp_path), 1, {"name": "bids"}).report({"n": 0})
    path = tmp_path / FOLDER / "0000000001-0000000000.json"
    path.write_bytes(path.read_bytes().replace(b'"n": 0', b'"n": 1'))
    with pytest.raises(FileDamaged, match="0000000000"):
        newest_kept(str(tmp_path))
