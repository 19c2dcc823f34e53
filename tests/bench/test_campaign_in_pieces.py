"""A campaign in pieces: what goes on where, and what all of it comes to."""

from collections import Counter
from pathlib import Path

import pytest

from holdfast.sim.campaign import run_all
from holdfast.sim.seeds import Run
from holdfast_bench import pieces, simulation
from holdfast_bench.simulation import CampaignSizes


def test_a_campaign_goes_on_behind_its_last_seed(tmp_path: Path) -> None:
    file = tmp_path / "campaign.json"
    for seeds in (2, 3):
        simulation.run(CampaignSizes(seeds, 0, 40, file, has_scale=False), print)
    kept = pieces.load(file)
    (piece,) = kept["simulated"]
    assert (piece["first_seed"], piece["runs"]) == (40, 5)
    at_once = run_all(map(Run, range(40, 45)), processes=1)
    assert piece["events"] == at_once.events
    assert piece["faults_injected"] == dict(sorted(at_once.faults.items()))
    assert len(piece["pairs_of_faults_met"]) == len(at_once.pairs)
    page = simulation.render({"machine": {}, **kept, "scale": []})
    assert "5 seeds (40 to 44)" in page


def test_other_code_begins_another_piece_and_keeps_what_was_found() -> None:
    campaign: list[pieces.Piece] = []
    found = {"runs": 2, "violations": [{"seed": 8}], "pairs": ["a and b"], "faults": {"kill": 1}}
    pieces.add(campaign, "one", 7, found)
    pieces.add(campaign, "one", 9, found | {"violations": [], "pairs": ["a and c"]})
    pieces.add(campaign, "two", 11, found | {"faults": {"cut": 3}})
    assert [(p["commit"], p["first_seed"], p["runs"]) for p in campaign] == [
        ("one", 7, 4),
        ("two", 11, 2),
    ]
    whole = pieces.total(campaign)
    assert whole["violations"] == [{"seed": 8}, {"seed": 8}]
    assert whole["pairs"] == ["a and b", "a and c"]
    assert whole["faults"] == {"kill": 2, "cut": 3}
    with pytest.raises(ValueError, match="seed 13 comes next"):
        pieces.add(campaign, "two", 20, found)


def test_median_and_maximum_of_what_was_counted() -> None:
    assert pieces.middle_of({}) is None
    assert pieces.middle_of(Counter(["100", "20", "20", "3000", "20"])) == (20, 3000)
    assert pieces.middle_of({"20": 1, "100": 2}) == (100, 100)
