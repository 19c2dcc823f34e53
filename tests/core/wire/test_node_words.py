"""Words between nodes and the coordinator: what is one, and who may say it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.node_words import (
    TO_COORDINATOR,
    TO_NODE,
    Task,
    decode_from_coordinator,
    decode_from_node,
    task_of,
)

TASK = Task("counts[0]|3|4711|99", "counts[0]", 3, 4711)
POINT = RestartPoint(3, {"a": 1}, {"a": 2}, 77, {"b": 14}).to_json()
FULL: dict[str, dict[str, Any]] = {
    "hello": {"launch": 3, "former": "", "endpoint": "ipc:///x", "pid": 4711, "host": "h"},
    "alive": {
        "peers": {"bids[0]": 2},
        "secondaries": {},
        "has_joined": False,
        "waits": ["for a broker"],
        "reached": {"bids[0]": {"boundary_us": -(2**63), "furthest_us": 5, "is_idle": True}},
        "statistics": {"input_tuples": 5},
        "latency": {"1000": 7},
        "latency_max_us": 9,
        "late_rows": {"rows[0]": 4},
        "refused": {"frames": 1, "handshakes": 2},
        "processed": {"bids[0]": 5},
        "next_ids": {"counts": 3},
        "source_rows": {"bids[0]": None},
        "boundaries": {"bids[0]": -(2**63)},
        "slowest": {"bids[0]": ""},
        "held_up": {"bids[0]": False},
    },
    "point": {"point": POINT},
    "checkpoint": {
        "checkpoint": 1,
        "failure": None,
        "prepared_us": 5,
        "written_bytes": 6,
        "state_bytes": 7,
        "duration_ms": 8,
    },
    "damage": {"checkpoint": 1, "reason": "r"},
    "gap": {"stream": "s", "from_id": 1, "to_id": 2},
    "caught-up": {"replayed_tuples": 1},
    "failed": {"reason": "r", "is_fatal": True},
}
PEER = {"peer": "bids[0]", "incarnation": 1, "endpoint": "ipc:///y", "secondary": 0}
DOWN: dict[str, dict[str, Any]] = {
    "assign": {
        "epoch": 1,
        "incarnation": 2,
        "point": None,
        "is_secondary": False,
        "peers": [PEER],
    },
    "peer": PEER,
    "promote": {"incarnation": 3, "point": POINT},
    "stored": {"sequence": 4},
    "floor": {"stream": "bids[0]", "floor_us": -1},
}


def up(kind: str, **changed: Any) -> bytes:
    word = {"kind": kind, "node": "counts[0]", "incarnation": 7, **FULL.get(kind, {}), **changed}
    return json.dumps(word).encode()


def test_every_word_of_a_node_is_taken() -> None:
    for kind in TO_COORDINATOR:
        word = decode_from_node([up(kind)], TASK)
        assert isinstance(word, dict), (kind, word)


def test_every_word_of_the_coordinator_is_taken() -> None:
    for kind in TO_NODE:
        word = {"kind": kind, **DOWN.get(kind, {})}
        assert decode_from_coordinator([json.dumps(word).encode()]) == word


@pytest.mark.parametrize("wrong", [None, -1, 1.5, "x", [], {}, True, 2**63, [1], {"a": "b"}])
def test_a_field_of_another_type_is_refused(wrong: object) -> None:
    fits: list[tuple[str, str]] = []
    for kinds, full in ((TO_COORDINATOR, FULL), (TO_NODE, DOWN)):
        for kind, fields in kinds.items():
            for name, is_fit in fields.items():
                word = {"kind": kind, "node": "counts[0]", "incarnation": 7, **full[kind]}
                word[name] = wrong
                data = [json.dumps(word).encode()]
                got = (
                    decode_from_node(data, TASK)
                    if kinds is TO_COORDINATOR
                    else decode_from_coordinator(data)
                )
                if isinstance(got, dict):
                    fits.append((kind, name))
                    assert is_fit(wrong)
    assert len(fits) < 17


def test_a_missing_field_is_refused() -> None:
    for kind, fields in TO_COORDINATOR.items():
        for name in fields:
            word = {"kind": kind, "node": "counts[0]", "incarnation": 7, **FULL[kind]}
            del word[name]
            assert isinstance(decode_from_node([json.dumps(word).encode()], TASK), CorruptFrame)


def test_a_word_in_anothers_name_is_refused() -> None:
    assert isinstance(decode_from_node([up("finished", node="bids[0]")], TASK), CorruptFrame)
    assert isinstance(decode_from_node([up("hello", pid=1)], TASK), CorruptFrame)
    assert isinstance(decode_from_node([up("hello", launch=4)], TASK), CorruptFrame)
    assert isinstance(decode_from_node([up("finished")], None), CorruptFrame)


def test_some_statistics_without_the_others_are_refused() -> None:
    said = ("peers", "secondaries", "has_joined", "waits", "reached")
    bare = {key: FULL["alive"][key] for key in said}
    word = {"kind": "alive", "node": "counts[0]", "incarnation": 7, **bare}
    assert decode_from_node([json.dumps(word).encode()], TASK) == word
    word["late_rows"] = {}
    assert isinstance(decode_from_node([json.dumps(word).encode()], TASK), CorruptFrame)


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


@settings(max_examples=500)
@given(st.lists(st.binary(max_size=100), max_size=3))
def test_any_bytes_are_safe(parts: list[bytes]) -> None:
    assert isinstance(decode_from_node(parts, TASK), CorruptFrame)
    assert isinstance(decode_from_coordinator(parts), CorruptFrame)


def test_nested_and_huge_json_is_safe() -> None:
    for text in (b"[" * 200_000, b'{"kind":' * 50_000, b'{"kind":1' + b"0" * 5_000 + b"}", b"NaN"):
        assert isinstance(decode_from_node([text], TASK), CorruptFrame)
        assert isinstance(decode_from_coordinator([text]), CorruptFrame)
    deep = b'{"kind":"point","node":"counts[0]","incarnation":1,"point":%s}'
    for inner in (b'{"sequence":1,"boundary_us":1,"older":[' * 900 + b"]}" * 900, b"3", b"[]"):
        assert isinstance(decode_from_node([deep % inner], TASK), CorruptFrame)


@settings(max_examples=300)
@given(st.sampled_from(sorted(TO_COORDINATOR)), st.data())
def test_a_flipped_bit_gives_a_word_or_a_refusal(kind: str, data: st.DataObject) -> None:
    text = bytearray(up(kind))
    place = data.draw(st.integers(0, len(text) * 8 - 1))
    text[place // 8] ^= 1 << place % 8
    assert isinstance(decode_from_node([bytes(text)], TASK), dict | CorruptFrame)
