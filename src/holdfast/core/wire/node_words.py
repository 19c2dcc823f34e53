"""What nodes and the coordinator tell each other: JSON objects, checked before anybody looks.

A word names its kind; every kind has fields that must be there and of the declared type. Fields
that are not listed pass: they are for people. Decoding never raises: what is no word of the wanted
direction gives `CorruptFrame`. See docs/formats.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire.frames import CorruptFrame

WORD_BYTES_MAX: Final = 16 << 20
KEEP_ALIVE_SUFFIX: Final = b"|alive"
"""What the identity of a node's keep-alive thread has behind the task's own."""
_TASK_BYTES_MAX: Final = 512

Check = Callable[[Any], bool]
Fields = Mapping[str, Check]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_counts(value: object) -> bool:
    return isinstance(value, dict) and all(_is_count(each) for each in value.values())


def _are_counts_or_none(value: object) -> bool:
    return isinstance(value, dict) and all(
        each is None or _is_count(each) for each in value.values()
    )


def _are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(_is_number(each) for each in value.values())


def _are_texts_by_name(value: object) -> bool:
    return isinstance(value, dict) and all(_is_text(each) for each in value.values())


def _are_flags(value: object) -> bool:
    return isinstance(value, dict) and all(_is_flag(each) for each in value.values())


def _are_buckets(value: object) -> bool:
    return isinstance(value, dict) and all(
        key.isascii() and key.isdigit() and len(key) < 20 and _is_count(each)
        for key, each in value.items()
    )


def _is_point(value: object) -> bool:
    try:
        RestartPoint.from_json(value)
    except (ValueError, RecursionError):
        return False
    return True


def _is_point_or_none(value: object) -> bool:
    return value is None or _is_point(value)


_PEER: Final[Fields] = {
    "peer": _is_text,
    "incarnation": _is_count,
    "endpoint": _is_text,
    "secondary": _is_count,
}


_REACHED: Final[Fields] = {
    "boundary_us": _is_number,
    "furthest_us": _is_number,
    "is_idle": _is_flag,
}


def _are_reached(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, dict) and _misfit(each, _REACHED) is None for each in value.values()
    )


def _are_peers(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, dict) and _misfit(each, _PEER) is None for each in value
    )


_STATISTICS: Final[Fields] = {
    "statistics": _is_object,
    "latency": _are_buckets,
    "latency_max_us": _is_count,
    "late_rows": _are_counts,
    "refused": _are_counts,
    "processed": _are_counts,
    "next_ids": _are_counts,
    "source_rows": _are_counts_or_none,
    "boundaries": _are_numbers,
    "slowest": _are_texts_by_name,
    "held_up": _are_flags,
}
"""Fields of an `alive` that has any of them."""

TO_COORDINATOR: Final[Mapping[str, Fields]] = {
    "hello": {
        "launch": _is_count,
        "former": _is_text,
        "endpoint": _is_text,
        "pid": _is_count,
        "host": _is_text,
    },
    "alive": {
        "peers": _are_counts,
        "secondaries": _are_counts,
        "has_joined": _is_flag,
        "waits": _are_texts,
        "reached": _are_reached,
    },
    "point": {"point": _is_point},
    "checkpoint": {
        "checkpoint": _is_count,
        "failure": _is_text_or_none,
        "prepared_us": _is_number,
        "written_bytes": _is_count,
        "state_bytes": _is_count,
        "duration_ms": _is_number,
    },
    "damage": {"checkpoint": _is_count, "reason": _is_text},
    "gap": {"stream": _is_text, "from_id": _is_number, "to_id": _is_number},
    "write-wanted": {},
    "write-ended": {},
    "promoted": {},
    "caught-up": {"replayed_tuples": _is_count},
    "first-output": {},
    "finished": {},
    "failed": {"reason": _is_text, "is_fatal": _is_flag},
}
"""From a node; all of them name `node`, and all but `hello` its `incarnation`."""

TO_NODE: Final[Mapping[str, Fields]] = {
    "stop": {},
    "fenced": {},
    "die": {},
    "lease": {},
    "write": {},
    "assign": {
        "epoch": _is_count,
        "incarnation": _is_count,
        "point": _is_point_or_none,
        "is_secondary": _is_flag,
        "peers": _are_peers,
    },
    "peer": _PEER,
    "promote": {"incarnation": _is_count, "point": _is_point_or_none},
    "stored": {"sequence": _is_count},
    "floor": {"stream": _is_text, "floor_us": _is_number},
}


@dataclass(frozen=True, slots=True)
class Task:
    """The process that a connection belongs to, as its identity says."""

    name: str
    node: str
    launch: int
    pid: int


def task_of(identity: bytes) -> Task | None:
    """The task behind an identity `<node>|<launch>|<pid>|<time>`, or its keep-alive thread's.

    None: it is nobody's.
    """
    try:
        name = identity.removesuffix(KEEP_ALIVE_SUFFIX).decode()
    except UnicodeDecodeError:
        return None
    node, *numbers = name.split("|")
    if len(identity) > _TASK_BYTES_MAX or len(numbers) != 3 or not node:
        return None
    if not all(n.isascii() and n.isdigit() and len(n) < 20 for n in numbers):
        return None
    return Task(name, node, int(numbers[0]), int(numbers[1]))


def decode_from_node(parts: Sequence[bytes], task: Task | None) -> dict[str, Any] | CorruptFrame:
    """A node's word, or why it is none.

    Args:
        parts: As received, without the identity.
        task: Whose connection it came by: a word speaks for the node at its other end only.
    """
    if task is None:
        return CorruptFrame("from nobody")
    word = _decode(parts, TO_COORDINATOR)
    if isinstance(word, CorruptFrame):
        return word
    if word.get("node") != task.node:
        return CorruptFrame("a word in another node's name")
    if word["kind"] == "hello":
        if (word["launch"], word["pid"]) != (task.launch, task.pid):
            return CorruptFrame("a hello in another task's name")
        return word
    if not _is_count(word.get("incarnation")):
        return CorruptFrame("no incarnation")
    if any(name in word for name in _STATISTICS):
        wrong = _misfit(word, _STATISTICS)
        if wrong is not None:
            return CorruptFrame(f"alive: {wrong}")
    return word


def decode_from_coordinator(parts: Sequence[bytes]) -> dict[str, Any] | CorruptFrame:
    """The coordinator's word, or why it is none."""
    return _decode(parts, TO_NODE)


def _decode(parts: Sequence[bytes], kinds: Mapping[str, Fields]) -> dict[str, Any] | CorruptFrame:
    if len(parts) != 1:
        return CorruptFrame(f"{len(parts)} parts")
    if len(parts[0]) > WORD_BYTES_MAX:
        return CorruptFrame(f"a word of {len(parts[0])} bytes")
    try:
        word = json.loads(parts[0])
    except (ValueError, RecursionError) as error:
        return CorruptFrame(f"no JSON: {str(error)[:200]}")
    if not isinstance(word, dict):
        return CorruptFrame("no object")
    kind = word.get("kind")
    fields = kinds.get(kind) if isinstance(kind, str) else None
    if fields is None:
        return CorruptFrame(f"unknown kind {str(kind)[:100]!r}")
    wrong = _misfit(word, fields)
    return word if wrong is None else CorruptFrame(f"{kind}: {wrong}")


def _misfit(value: Mapping[str, Any], fields: Fields) -> str | None:
    """The first field that is missing or of another type; None: all fit."""
    for name, is_fit in fields.items():
        if name not in value or not is_fit(value[name]):
            return f"no proper {name}"
    return None
