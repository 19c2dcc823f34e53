"""The benchmark of eventual checkpoints, in small."""

from dataclasses import replace
from pathlib import Path

from holdfast_bench import cec


def test_the_page_says_what_footprints_cost_and_how_soon_a_node_is_back(tmp_path: Path) -> None:
    sizes = replace(
        cec.QUICK, seconds=0.05, keys=500, shares=(0.5,), windows=(300,), objectives_ms=(1, 60_000)
    )
    results = cec.run(sizes, lambda text: None, only=("share", "objective"))
    slow, fast = results["share"]
    assert (slow["kind"], fast["kind"]) == (cec.SLOW, cec.FAST)
    for point in results["share"] + results["objective"]:
        assert 0 < point["extent_bytes"] <= 2 * point["written_bytes"]
        assert point["recovery_ms"] > 0
    assert [point["windows"] for point in results["objective"]] == [300, 300]
    assert results["objective"][1]["shortfall"] == ""
    page = cec.write(results, tmp_path).read_text()
    assert "## Share" in page
    assert "## Beside others" not in page
    assert (tmp_path / "cec-share.png").stat().st_size > 1000
    assert cec.former(tmp_path)["sizes"]["keys"] == 500
