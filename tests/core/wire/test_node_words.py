"""Words between nodes and the coordinator: what is one, and who may say it."""

import json
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.checkpoint.eventual import ExtentSize, ExtentStatistics
from holdfast.core.coordinator import coordinator, reports
from holdfast.core.coordinator import events as c
from holdfast.core.coordinator.admission import AdmitWrite
from holdfast.core.haunit import life, node, told
from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.durability.checkpointed import Checkpointed
from holdfast.core.haunit.durability.coordinated import Coordinated
from holdfast.core.haunit.events import RestartPointStored, TurnGranted, WriteAdmitted
from holdfast.core.haunit.node_figures import NodeStatistics
from holdfast.core.haunit.plan import Assignment
from holdfast.core.machine import Stimulus
from holdfast.core.model.ids import BEGINNING_US, CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.queues.idle_floor import Reached
from holdfast.core.recovery.restart_point import CheckpointRef, RestartPoint
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.wire import node_words as words
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.node_words import Task, decode_from_coordinator, decode_from_node, task_of
from holdfast.shell.spark.task import NodeTask

TASK = Task("counts[0]|3|4711|99", "counts[0]", 3, 4711)
COUNTS, BIDS, STREAM = NodeId("counts[0]"), NodeId("bids[0]"), StreamId("bids[0]")
I7 = Incarnation(7)
CHECKPOINT = CheckpointRef(CheckpointId(2, I7), 2**64 - 1, (CheckpointId(1, I7),))
POINT = RestartPoint(3, {"a": 1}, {"a": 2}, BEGINNING_US, {"b": 14}, CHECKPOINT)
STATISTICS = reports.StatisticsReported(
    COUNTS,
    I7,
    reports.NodeFigures(
        NodeStatistics(input_tuples=5, boundary_us=BEGINNING_US, is_silent=True),
        reports.MeasurementsReported(tuple_cost_us=0.5),
        reports.TrafficReported(ack_bytes=7),
        reports.ConsistencyReported(Consistency.UP_FAILURE, 1, (STREAM,), 2, 3, 4, 5),
        ExtentStatistics(ExtentSize(1, 2, 3), 0.25, "late"),
    ),
    latency={1000: 7},
    latency_max_us=9,
    late_rows={"rows[0]": 4},
    refused={"frames": 1, "handshakes": 2},
    processed={"bids[0]": 5},
    next_ids={"counts": 3},
    sources={
        STREAM: reports.SourceReported(None, "", False, BEGINNING_US, is_idle=True),
        StreamId("b"): reports.SourceReported(3, "partition 1", True, None, is_idle=False),
    },
)
FROM_NODE: list[words.FromNode] = [
    c.HelloReceived(COUNTS, 3, TASK.name, "ipc:///x", "h", "its process was ended by SIGKILL"),
    c.KeepAliveReceived(
        COUNTS,
        I7,
        {BIDS: Incarnation(2)},
        {},
        has_joined=False,
        reached={STREAM: Reached(BEGINNING_US, 5, is_idle=True)},
        waits=("for a broker",),
    ),
    c.RestartPointReceived(COUNTS, I7, replace(POINT, older=(POINT,))),
    c.WriteWanted(COUNTS, I7),
    c.TurnWanted(COUNTS, I7, 3),
    c.TurnLeft(COUNTS, I7),
    c.WriteEnded(COUNTS, I7),
    c.NodePromoted(COUNTS, I7),
    c.NodeCaughtUp(COUNTS, I7, 1),
    c.FirstOutput(COUNTS, I7),
    c.NodeFinished(COUNTS, I7),
    c.NodeHalted(COUNTS, I7, 2, 1, POINT),
    c.RoundWanted(COUNTS, I7),
    c.RoundFailed(COUNTS, I7, 3),
    c.PointDamaged(COUNTS, I7, 3, "r"),
    c.NodeFailed(COUNTS, I7, "r", is_fatal=True),
    STATISTICS,
    reports.CheckpointReported(COUNTS, I7, 1, None, 5, 6, 7, 8),
    reports.CheckpointReported(COUNTS, I7, 1, "no store", 5, 6, 7, 8),
    reports.DamageReported(COUNTS, I7, 1, "r"),
    reports.GapReported(COUNTS, I7, STREAM, 1, 2),
    reports.RowsReported(COUNTS, I7, 3, ("", "to", "n"), (("stable", "sums[0]", "5"),)),
]
PEER = told.PeerTold(BIDS, Incarnation(1), "ipc:///y", Incarnation(0))
TO_NODE: list[words.ToNode] = [
    told.AssignmentReceived(1, I7, None, False, (PEER,)),
    told.AssignmentReceived(1, I7, POINT, True, (), 5),
    PEER,
    told.PromotionReceived(I7, POINT),
    told.FloorTold(STREAM, -1),
    told.HaltTold(2),
    told.GoOnTold(2, {STREAM: told.Resumed(5, I7)}),
    told.RollBackTold(2),
    told.LineTold(4),
    told.RoundTold(6, 5),
    told.CutTold(),
    told.LeaseRenewed(),
    told.Fenced(),
    told.StopReceived(),
    told.KillReceived(),
    told.FiguresWanted(),
    told.RowsWanted(3),
    RestartPointStored(4),
    WriteAdmitted(),
    TurnGranted(3),
]
ALL: list[words.Word] = [*FROM_NODE, *TO_NODE]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def decoded(word: object, text: bytes) -> object:
    """By the receiver that the word is for."""
    if isinstance(word, words.FROM_NODE):
        return decode_from_node([text], TASK)
    return decode_from_coordinator([text])


@pytest.mark.parametrize("word", ALL, ids=lambda word: type(word).__name__)
def test_every_word_comes_out_as_it_went_in(word: words.Word) -> None:
    assert decoded(word, words.encode(word)) == word


def test_these_are_all_the_words() -> None:
    assert {type(word) for word in FROM_NODE} == set(words.FROM_NODE)
    assert {type(word) for word in TO_NODE} == set(words.TO_NODE)


def test_the_coordinator_handles_every_word_but_reports() -> None:
    for kind in words.FROM_NODE:
        assert issubclass(kind, reports.Report) != (kind in coordinator._HANDLERS)
        assert issubclass(kind, reports.Report) != issubclass(kind, Stimulus)


def test_every_word_for_a_node_is_for_its_process_its_life_or_its_machine() -> None:
    sources = SimpleNamespace(tell_floor=None)
    rooms = {"_sources": sources, "_reports": SimpleNamespace(show_rows=None, show_figures=None)}
    task = SimpleNamespace(**rooms, _end_fenced=None, _stop=None)
    of_process = set(NodeTask._all_listeners(cast("NodeTask", task)))
    of_life = set(life._HANDLERS) & set(words.TO_NODE)
    handlers = (
        set(node._HANDLERS)
        | set(Durability.HANDLERS)
        | set(Checkpointed.HANDLERS)
        | set(Coordinated.HANDLERS)
    )
    of_machine = handlers & set(words.TO_NODE)
    assert of_process | of_life | of_machine == set(words.TO_NODE)
    assert len(of_process) + len(of_life) + len(of_machine) == len(words.TO_NODE)


def test_a_word_of_the_other_direction_is_refused_by_name() -> None:
    for word in FROM_NODE:
        got = decode_from_coordinator([words.encode(word)])
        assert got == CorruptFrame(f"unknown kind {type(word).__name__!r}")
    for word in TO_NODE:
        assert isinstance(decode_from_node([words.encode(word)], TASK), CorruptFrame)


@pytest.mark.parametrize("wrong", [None, -1, 1.5, [], {}, True, 2**63, [1], {"a": "b"}])
@pytest.mark.parametrize("word", ALL, ids=lambda word: type(word).__name__)
def test_a_field_of_another_type_is_refused_by_name(word: words.Word, wrong: object) -> None:
    values = json.loads(words.encode(word))
    for place, field in enumerate(fields(word), 1):
        changed = json.dumps([*values[:place], wrong, *values[place + 1 :]]).encode()
        got = decoded(word, changed)
        if isinstance(got, CorruptFrame):
            assert "in another" in got.reason or field.name in got.reason
        else:
            assert json.loads(words.encode(got))[place] == wrong  # It is of the declared type.
            assert repr(wrong) in ("None", "{}", "[]", "True", "-1", "{'a': 'b'}"), field
            assert wrong != -1 or field.name == "floor_us"
            assert wrong != {"a": "b"}
            assert wrong is not True or field.name.startswith(("is_", "has_"))


@pytest.mark.parametrize(
    ("group", "place", "wrong", "field"),
    [
        (0, 0, "5", "input_tuples"),
        (0, 13, 2**63, "boundary_us"),
        (0, 14, 1, "is_silent"),
        (1, 4, True, "tuple_cost_us"),
        (1, 4, "0.5", "tuple_cost_us"),
        (1, 4, float("nan"), "tuple_cost_us"),
        (1, 4, 10**400, "tuple_cost_us"),
        (2, 1, 0.5, "ack_bytes"),
        (3, 0, "steady", "state"),
        (3, 0, ["stable"], "state"),
        (3, 2, "bids[0]", "missing"),
        (4, 0, [1, 2], "size"),
        (4, 1, None, "predicted_ms"),
        (4, 2, 0, "shortfall"),
    ],
)
def test_a_figure_of_another_type_is_refused_by_name(
    group: int, place: int, wrong: object, field: str
) -> None:
    values = json.loads(words.encode(STATISTICS))
    values[3][group][place] = wrong
    got = decoded(STATISTICS, json.dumps(values).encode())
    assert isinstance(got, CorruptFrame)
    assert f".{field}: " in got.reason


def test_a_whole_number_is_a_decimal_too() -> None:
    values = json.loads(words.encode(STATISTICS))
    values[3][1][4] = 3
    got = decoded(STATISTICS, json.dumps(values).encode())
    assert isinstance(got, reports.StatisticsReported)
    assert got.figures.measured.tuple_cost_us == 3.0


@pytest.mark.parametrize("word", ALL, ids=lambda word: type(word).__name__)
def test_a_missing_and_a_further_field_are_refused(word: words.Word) -> None:
    values = json.loads(words.encode(word))
    for changed in (values[:-1], [*values, 1]):
        assert isinstance(decoded(word, json.dumps(changed).encode()), CorruptFrame)


def test_a_word_in_anothers_name_is_refused() -> None:
    hello = c.HelloReceived(COUNTS, 3, TASK.name, "ipc:///x")
    for word, task in (
        (c.NodeFinished(BIDS, I7), TASK),
        (replace(hello, task="counts[0]|3|1|99"), TASK),
        (replace(hello, launch=4), TASK),
        (hello, None),
    ):
        assert isinstance(decode_from_node([words.encode(word)], task), CorruptFrame)


@pytest.mark.parametrize(
    "identity",
    [
        b"",
        b"\x00\x01\x02\x03\x04",
        b"counts[0]",
        b"counts[0]|1|2",
        b"counts[0]|1|2|3|4",
        b"|1|2|3",
        b"counts[0]|1|-2|3",
        b"counts[0]|1|\xd9\xa3|3",
        b"counts[0]|1|" + b"9" * 400 + b"|3",
        b"c" * 600 + b"|1|2|3",
    ],
)
def test_other_identities_are_nobodys(identity: bytes) -> None:
    assert task_of(identity) is None


def test_both_threads_of_a_task_are_the_task() -> None:
    assert task_of(TASK.name.encode()) == TASK
    assert task_of(TASK.name.encode() + b"|alive") == TASK


def test_effects_of_the_coordinator_are_words_for_nodes() -> None:
    peer = c.TellPeer(COUNTS, "t", BIDS, Incarnation(1), "ipc:///y", Incarnation(0))
    assignment = Assignment(1, I7, POINT, {}, is_secondary=True, rounds_over=5)
    expected: list[tuple[words.Telling, words.ToNode]] = [
        (peer, PEER),
        (
            c.SendAssignment(COUNTS, "t", assignment, (peer,)),
            told.AssignmentReceived(1, I7, POINT, True, (PEER,), 5),
        ),
        (c.SendPromotion(COUNTS, "t", I7, POINT), told.PromotionReceived(I7, POINT)),
        (c.TellPointStored(COUNTS, "t", I7, 4), RestartPointStored(4)),
        (c.TellFloor(COUNTS, "t", I7, STREAM, -1), told.FloorTold(STREAM, -1)),
        (AdmitWrite(COUNTS, I7), WriteAdmitted()),
    ]
    for effect, word in expected:
        assert words.word_of(effect) == word


@settings(max_examples=500)
@given(st.lists(st.binary(max_size=100), max_size=3))
def test_any_bytes_are_safe(parts: list[bytes]) -> None:
    assert isinstance(decode_from_node(parts, TASK), CorruptFrame)
    assert isinstance(decode_from_coordinator(parts), CorruptFrame)


@settings(max_examples=500)
@given(st.sampled_from([kind.__name__ for kind in (*words.FROM_NODE, *words.TO_NODE)]), st.data())
def test_any_fields_are_safe(kind: str, data: st.DataObject) -> None:
    text = json.dumps([kind, *data.draw(st.lists(JSON, max_size=9))]).encode()
    assert isinstance(decode_from_node([text], TASK), (*words.FROM_NODE, CorruptFrame))
    assert isinstance(decode_from_coordinator([text]), (*words.TO_NODE, CorruptFrame))


def test_nested_and_huge_json_is_safe() -> None:
    for text in (b"[" * 200_000, b'["a",' * 50_000, b'["a",1' + b"0" * 5_000 + b"]", b"NaN"):
        assert isinstance(decode_from_node([text], TASK), CorruptFrame)
        assert isinstance(decode_from_coordinator([text]), CorruptFrame)
    deep = b'["RestartPointReceived","counts[0]",1,%s]'
    for inner in (b'{"sequence":1,"boundary_us":1,"older":[' * 900 + b"]}" * 900, b"3", b"[]"):
        assert isinstance(decode_from_node([deep % inner], TASK), CorruptFrame)


@settings(max_examples=300)
@given(st.sampled_from(ALL), st.data())
def test_a_flipped_bit_gives_a_word_or_a_refusal(word: words.Word, data: st.DataObject) -> None:
    text = bytearray(words.encode(word))
    place = data.draw(st.integers(0, len(text) * 8 - 1))
    text[place // 8] ^= 1 << place % 8
    got = decoded(word, bytes(text))
    assert isinstance(got, (*words.FROM_NODE, *words.TO_NODE, CorruptFrame))
