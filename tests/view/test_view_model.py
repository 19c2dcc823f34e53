"""The page says what is so: states, warnings, graph, timeline; and changes make it whole."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.view import words
from holdfast.view.changes import calmed, difference
from holdfast.view.layout import places
from holdfast.view.model import Facts, graph_of, page_of
from holdfast_bench import shown_query
from holdfast_bench.shown_query import BEGUN_S, plan, report

NOW_S = BEGUN_S + 61
FACTS = Facts("/data/bids", plan(5), report(5), NOW_S, is_running=True)


def warnings(facts: Facts) -> list[str]:
    return [one["text"] for one in page_of(facts)["warnings"]]


def with_progress(**more: Any) -> Facts:
    return replace(FACTS, report=report(5, **more))


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (FACTS, "running"),
        (replace(FACTS, is_running=None), "running"),
        (replace(FACTS, is_running=False), "died"),
        (replace(FACTS, now_s=NOW_S + 60), "silent"),
        (replace(FACTS, report={**report(5), "isLast": True}, is_running=False), "ended"),
        (replace(FACTS, report={**report(5), "exception": "no room"}), "failed"),
        (replace(FACTS, plan=None, report=None, is_running=False), "unknown"),
        (replace(FACTS, report=None), "unknown"),
    ],
)
def test_the_state_is_told_from_the_report_and_whether_the_location_is_held(
    facts: Facts, word: str
) -> None:
    page = page_of(facts)
    assert page["state"]["word"] == word
    if word in ("failed", "died", "silent"):
        assert page["warnings"][0]["level"] == "error"
    assert json.loads(json.dumps(page)) == page


def test_nothing_is_offered_of_a_query_that_does_not_run() -> None:
    allowed = replace(FACTS, actions=("kill", "promote", "stop"))
    units = [f"unit{n}" for n in range(5)]
    assert page_of(allowed)["actions"] == {"kill": units, "promote": ["unit1"], "stop": [""]}
    assert page_of(replace(allowed, is_running=False))["actions"] == {}
    assert page_of(FACTS)["actions"] == {}


def test_a_standstill_is_a_warning_only_while_rows_wait() -> None:
    still = {"restartPointRows": 900, "ageMs": 25_000}
    assert not warnings(FACTS)
    (said,) = warnings(with_progress(durable=still))
    assert "durable for 25 s, although 30 rows wait" in said
    units = report(5)["progress"]["units"]
    for unit in units.values():
        unit["backlog"] = dict.fromkeys(unit["backlog"], 0)
    assert not warnings(with_progress(durable=still, units=units))


def test_failures_are_counted_and_an_unknown_backlog_is_no_number() -> None:
    sources = report(5)["progress"]["sources"]
    sources[0]["backlogRows"] = None
    recovery = {**report(5)["progress"]["recovery"], "count": 2}
    page = page_of(with_progress(sources=sources, recovery=recovery))
    tile = next(tile for tile in page["tiles"] if tile["name"] == "Failures")
    assert (tile["value"], tile["note"]) == ("1", "recoveries and takeovers: 2")
    box = page["live"]["boxes"][f"source {sources[0]['description']}"]
    assert box["second"] == "backlog unknown"


def test_each_trouble_is_named() -> None:
    units = report(5)["progress"]["units"]
    units["unit1"]["consistency"] |= {"state": "up_failure", "missing": ["bids[0]"]}
    sizes = {"bytes": 1, "tuples": 1, "footprints": 1, "predictedRecoveryMs": 900}
    units["unit2"]["extent"] = {**sizes, "shortfall": "too much state"}
    facts = with_progress(
        units=units,
        checkpoints=[{"node": "unit3[0]", "failure": "no room"}],
        damagedCheckpoints=[{"node": "unit4[0]"}],
    )
    assert facts.report is not None
    facts.report["status"]["nodes"]["unit0[0]"]["state"] = "launching"
    facts.report["status"]["notes"].append("both replicas run on vm")
    assert warnings(facts) == [
        "unit0[0] is launching.",
        "Results of unit1 are tentative without bids[0].",
        "unit2: too much state",
        "A checkpoint of unit3[0] failed: no room",
        "A checkpoint of unit4[0] could not be read; an older one was taken.",
        "both replicas run on vm",
    ]
    page = page_of(facts)
    levels = {key: box["level"] for key, box in page["live"]["boxes"].items()}
    assert levels["unit unit0"] == "down"
    assert levels["unit unit1"] == "tentative"
    assert levels["unit unit2"] == "up"


def test_each_protection_has_its_own_table_with_its_units_alone() -> None:
    units = report(5)["progress"]["units"]
    plain = page_of(FACTS)["tables"]
    own = ("missing", "lines", "rounds", "extents")
    assert all(not plain[name]["rows"] for name in own)
    units["unit0"]["consistency"] = {
        "state": "stabilization",
        "sinceMs": 1_200,
        "missing": ["bids[0]"],
        "tentativeRows": 7,
        "undoneRows": 3,
        "droppedRows": 2,
        "delayMaxMs": 310,
        "correctionDelayMaxMs": 90,
        "stabilizationMs": 0,
    }
    counted = {"checkpoints": 10, "forced": 2, "useless": 1, "rolledPast": 0}
    line = {"ageMs": 900, "waitedMs": None, **counted, "messageOverhead": 1.0204}
    units["unit1"]["line"] = line
    round_ = {"alignmentMs": 20, "standstillMs": 1.5, "durableMs": 50, "roundMs": 80}
    units["unit2"]["round"] = round_
    units["unit3"]["extent"] = {
        "bytes": 4_096,
        "tuples": 12_345,
        "footprints": 9,
        "predictedRecoveryMs": 80.4,
        "shortfall": None,
    }
    shown = page_of(with_progress(units=units))["tables"]
    assert {name: list(shown[name]["rows"].values()) for name in own} == {
        "missing": [
            ["unit0", "stabilization", "1.20 s", "bids[0]", "7", "3", "2", "310 ms", "90 ms", "–"]
        ],
        "lines": [["unit1", "900 ms", "–", "10", "2", "1", "0", "1.020 times"]],
        "rounds": [["unit2", "20 ms", "1.50 ms", "50 ms", "80 ms"]],
        "extents": [["unit3", "9", "4.10 kB", "12.3 k", "80.4 ms", "–"]],
    }
    assert all(
        len(row) == len(shown[n]["columns"]) for n in own for row in shown[n]["rows"].values()
    )


def test_rows_are_offered_of_logs_and_of_what_units_send_while_they_run() -> None:
    labels = [one["label"] for one in page_of(FACTS)["streams"]]
    assert labels == ["sink out", "unit unit0, as sent", "unit unit1, as sent"]
    over = page_of(replace(FACTS, is_running=False))["streams"]
    assert [one["key"] for one in over] == ["out"]


def test_a_recovery_is_shown_with_its_numbers_behind_its_failure() -> None:
    back, failed = page_of(FACTS)["timeline"]
    assert failed["kind"] == "failure"
    assert failed["at"] == words.clock(BEGUN_S + 12)
    assert "signal 9" in failed["text"]
    assert [part["ms"] for part in back["parts"]] == [310, 220, 40, 30]
    assert back["total"] == "600 ms"
    assert "another 300 ms" in back["text"]
    once = {**shown_query.RECOVERY, "caught_up_ms": None}
    back, _ = page_of(with_progress(recoveries=[once]))["timeline"]
    assert "not yet as prompt" in back["text"]


def test_every_edge_of_the_graph_has_its_figures() -> None:
    page = page_of(FACTS)
    assert set(page["live"]["edges"]) == set(page["graph"]["edges"])
    assert set(page["live"]["boxes"]) == set(page["graph"]["boxes"])
    assert page["live"]["edges"]["unit unit4 → sink out"]["label"] == "10/s"


def test_boxes_stand_behind_what_they_read_and_none_on_another() -> None:
    graph = graph_of(plan(300))
    boxes = graph["boxes"]
    for edge in graph["edges"].values():
        assert boxes[edge["from"]]["layer"] < boxes[edge["to"]]["layer"]
    assert len({(box["layer"], box["row"]) for box in boxes.values()}) == len(boxes)


def test_a_circle_is_laid_out_too() -> None:
    placed = places(["a", "b", "c"], [("a", "b"), ("b", "c"), ("c", "b"), ("c", "c")])
    assert [placed[box].layer for box in "abc"] == [0, 1, 2]


def test_two_layers_are_ordered_so_that_their_edges_do_not_cross() -> None:
    placed = places(["a", "b", "x", "y"], [("a", "y"), ("b", "x")])
    assert (placed["a"].row < placed["b"].row) == (placed["y"].row < placed["x"].row)


def pages(depth: int) -> st.SearchStrategy[Any]:
    value = st.integers(0, 2) | st.just("text")
    inner = value | pages(depth - 1) if depth else value
    of_maps = st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    row = st.lists(st.sampled_from("xyz"), min_size=1, max_size=3)
    return st.one_of(of_maps, st.builds(lambda page, cells: {**page, "row": cells}, of_maps, row))


PAGES = pages(2)


def patched(value: Any, patch: Any) -> Any:
    """As RFC 7386 has it, and by places of a list."""
    if not isinstance(patch, dict):
        return patch
    if isinstance(value, list):
        return [patch.get(str(n), old) for n, old in enumerate(value)]
    made = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            made.pop(key, None)
        else:
            made[key] = patched(made.get(key), part)
    return made


@given(PAGES, PAGES)
def test_a_page_and_its_change_make_the_next_page(before: Any, now: Any) -> None:
    assert patched(before, difference(before, now)) == now
    assert difference(now, now) == {}


def test_little_travels_when_little_has_changed() -> None:
    before, now = page_of(FACTS), page_of(replace(FACTS, report=report(5, tick=1)))
    change = difference(before, now)
    assert {"graph", "timeline", "steps", "actions"}.isdisjoint(change)
    (cells,) = {tuple(row) for row in change["tables"]["units"]["rows"].values()}
    assert cells == ("7",)  # The rate of its input alone.


def test_of_a_large_dataflow_little_travels_but_now_and_then_and_all_of_a_small_one() -> None:
    def pages(units: int) -> tuple[dict[str, Any], dict[str, Any]]:
        facts = Facts("/data/bids", plan(units), report(units), NOW_S, is_running=True)
        return page_of(facts), page_of(replace(facts, report=report(units, tick=1)))

    before, now = pages(300)
    calm = calmed(before, now)
    assert calm["live"]["edges"] == before["live"]["edges"] != now["live"]["edges"]
    assert calm["live"]["boxes"] == now["live"]["boxes"]
    units = difference(before, calm)["tables"]["units"]["rows"]
    assert list(units) == [f"unit{n}" for n in range(50)]
    assert patched(calm, difference(calm, now)) == now
    before, now = pages(20)
    assert calmed(before, now) == now
    assert calmed({}, now) == now


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (words.figure(None), "–"),
        (words.figure(950), "950"),
        (words.figure(12_345), "12.3 k"),
        (words.figure(999_990), "1.00 M"),
        (words.rate(0.5), "0.50/s"),
        (words.rate(4_000_000), "4.00 M/s"),
        (words.size(512), "512 B"),
        (words.size(8_192_000), "8.19 MB"),
        (words.milliseconds(0.2), "0.20 ms"),
        (words.milliseconds(12_500), "12.5 s"),
        (words.duration(200), "3 min 20 s"),
    ],
)
def test_figures_have_three_digits_and_a_unit(shown: str, text: str) -> None:
    assert shown == text
