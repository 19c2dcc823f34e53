"""A campaign in pieces: what goes on where, and what all of it comes to."""

import json
from collections import Counter
from pathlib import Path

import pytest

from holdfast.sim.beside import BESIDE
from holdfast.sim.campaign import run_all
from holdfast.sim.seeds import Run
from holdfast_bench import pieces, simulation
from holdfast_bench.simulation import CampaignSizes


def test_a_campaign_goes_on_behind_its_last_seed(tmp_path: Path) -> None:
    file = tmp_path / "campaign.json"
    for seeds in (2, 4):
        simulation.run(CampaignSizes(seeds, 0, 40, file, scale=()), print)
    kept = pieces.load(file)
    (piece,) = kept["simulated"]
    assert (piece["first_seed"], piece["runs"]) == (40, 6)
    at_once = run_all(map(Run, range(40, 46)), processes=1)
    assert piece["events"] == at_once.events
    assert piece["faults_injected"] == dict(sorted(at_once.faults.items()))
    assert len(piece["pairs_of_faults_met"]) == len(at_once.pairs)
    assert piece["protections"] == dict(sorted(at_once.protections.items()))
    assert piece[pieces.PROBES] == [f"{seed} {at_once.digests[seed][:12]}" for seed in (40, 42)]
    assert piece["beside"] == dict.fromkeys(BESIDE, 1)
    page = simulation.render({"machine": {}, **kept, "counting": kept, "scale": []})
    assert "6 seeds (40 to 45)" in page
    nothing: dict[str, list[pieces.Piece]] = {"simulated": [], "real": []}
    assert "6 seeds" not in simulation.render(
        {"machine": {}, **kept, "counting": nothing, "scale": []}
    )


def test_a_violation_that_is_mended_stays_on_the_page() -> None:
    wrong = {"seed": 41, "text": "I-LIVE", "command": "holdfast simulate --seed 41"}
    assert not simulation.holds(wrong), "the seed violates nothing"
    command = "| `holdfast simulate --seed 41` |"
    assert f"{command} no longer: what was wrong is mended |" in simulation.violations_table(
        [wrong | {"holds": False}]
    )
    assert f"{command}  |" in simulation.violations_table([wrong | {"holds": True}])


def test_the_cost_by_size_may_stay_as_it_was_measured(tmp_path: Path) -> None:
    measured = {"nodes": 10, "events": 5}
    former = {"machine": {"commit": "abc"}, "scale": [measured, measured | {"commit": "def"}]}
    (tmp_path / "simulation.json").write_text(json.dumps(former))
    kept = simulation.with_former_scale({"machine": {"commit": "new"}}, tmp_path)
    assert kept["machine"] == {"commit": "new"}
    assert [each["commit"] for each in kept["scale"]] == ["abc", "def"]
    assert simulation.with_former_scale({}, tmp_path / "none")["scale"] == []


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


def test_a_piece_counts_as_long_as_its_probes_give_the_same_digests() -> None:
    digests = {seed: f"{seed:016}" for seed in range(50, 350)}
    probes = pieces.probes_of(digests)
    assert [probe.split()[0] for probe in probes] == ["50", "100", "200", "300"]
    campaign = {
        "simulated": [
            {"commit": "one", "runs": 300, pieces.PROBES: pieces.probes_of(digests)},
            {"commit": "two", "runs": 1, pieces.PROBES: ["7 another"]},
            {"commit": "three", "runs": 1},
        ],
        "real": [{"commit": "one", "runs": 4}, {"commit": "two", "runs": 4}],
    }
    counts = pieces.counting(campaign, lambda seed: digests.get(seed, "changed since"))
    assert counts == {
        "simulated": campaign["simulated"][:1],
        "real": campaign["real"][:1],
    }


def test_a_damaged_probe_takes_its_whole_piece_out() -> None:
    piece = {"commit": "one", "runs": 300, pieces.PROBES: ["100 same", "200 other"]}
    campaign = {"simulated": [piece], "real": []}
    assert pieces.counting(campaign, lambda _: "same") == {"simulated": [], "real": []}


def test_probes_of_pieces_that_become_one_are_all_kept() -> None:
    done: list[pieces.Piece] = []
    for first in (100, 200):
        found = {"runs": 100, pieces.PROBES: [f"{first} abc"]}
        pieces.add(done, "one", first, found)
    assert [piece[pieces.PROBES] for piece in done] == [["100 abc", "200 abc"]]
