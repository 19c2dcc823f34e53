"""Entries of the coordinator's journal: all versions are read, and nothing else."""

import pytest

from holdfast.core.coordinator.journal_entries import (
    DataflowDecided,
    Ending,
    InstancesDecided,
    JournalEntry,
    LeaseRenewed,
    LeftAtCut,
    LifeEnded,
    LineMoved,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.model.ids import BEGINNING_US, NOBODY, Incarnation, NodeId, PointId
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire.journal_entries import decode_entries, encode_entry
from holdfast.core.wire.journal_lines import JsonEntry, decode_lines, encode_line
from holdfast.core.wire.log_records import CorruptRecord

A, B = NodeId("a[0]"), NodeId("b[0]")
I2 = Incarnation(2)
POINT = RestartPoint(3, {"s": 1}, {"s": 2}, BEGINNING_US, {"o": 14}, held_from={"o": 9}, round=7)
ENTRIES: list[JournalEntry] = [
    RecoveryDecision((NewLife(A, I2), NewLife(B, I2, PointId(Incarnation(1), 7)))),
    PointNoted(A, I2, POINT),
    PointNoted(A, I2, POINT, keeps_older=True),
    LineMoved({A: PointId(I2, 3), B: PointId(NOBODY, 0)}),
    InstancesDecided({"a": 3}),
    LeftAtCut(),
    DataflowDecided("dataflow a\n"),
    LeaseRenewed(),
    LifeEnded(Ending.LEFT),
]


def test_what_is_written_is_read() -> None:
    lines = decode_lines(b"".join(encode_line(encode_entry(entry)) for entry in ENTRIES))
    assert isinstance(lines, list)
    assert decode_entries(lines) == ENTRIES


def test_entries_of_version_1_are_read() -> None:
    lines: list[JsonEntry] = [
        {"node": "a[0]", "incarnation": 2},
        {"node": "a[0]", "point": POINT.to_json()},
        {"instances": {"a": 3}},
    ]
    assert decode_entries(lines) == [
        RecoveryDecision((NewLife(A, I2),)),
        PointNoted(A, NOBODY, POINT),
        InstancesDecided({"a": 3}),
    ]


def test_points_of_version_2_are_read_and_name_pass_logs_as_today() -> None:
    point = RestartPoint(3, {"s": 1, "n[0]~rounds": 7}, {"s": 2}, 5, {"o": 14, "n[0]~rounds": 9})
    line: JsonEntry = ["PointNoted", "n[0]", 2, point.to_json(), False]
    today = RestartPoint(3, {"s": 1, "n[0]~passes": 7}, {"s": 2}, 5, {"o": 14, "n[0]~passes": 9})
    assert decode_entries([line]) == [PointNoted(NodeId("n[0]"), I2, today)]


def test_who_knows_no_later_version_than_2_refuses_a_point_by_its_name() -> None:
    assert encode_entry(PointNoted(A, I2, POINT))[0] == "PointNoted3"
    known_formerly = [encode_entry(entry)[0] for entry in ENTRIES if type(entry) is not PointNoted]
    assert known_formerly == [type(e).__name__ for e in ENTRIES if type(e) is not PointNoted]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (["SomethingLater", 1], "unknown kind 'SomethingLater'"),
        ([], "no list that begins with a kind"),
        (["PointNoted3", "a[0]", -1, POINT.to_json(), False], "PointNoted.incarnation"),
        (["PointNoted3"], "PointNoted has 4 fields"),
        (["RecoveryDecision", [["a[0]", 2]]], "NewLife has 3 fields"),
        (["LineMoved", {"a[0]": 1}], "LineMoved.line"),
        (["LifeEnded", "well"], "LifeEnded.ending"),
        ({"node": "a[0]", "incarnation": 2, "more": 1}, "an object with"),
        ({"node": "a[0]", "incarnation": -2}, "an object with"),
        ({"node": "a[0]", "incarnation": True}, "an object with"),
        ({"node": "a[0]", "point": {}}, "a restart point needs"),
        ({"instances": {"a": -1}}, "an object with"),
        ({}, "an object with"),
    ],
)
def test_what_no_version_knows_is_refused_by_name(line: JsonEntry, reason: str) -> None:
    good = encode_entry(ENTRIES[0])
    found = decode_entries([good, line])
    assert isinstance(found, CorruptRecord)
    assert found.reason.startswith("entry 2 is not known: ")
    assert reason in found.reason
