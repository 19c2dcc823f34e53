"""Entries of the coordinator's journal as JSON and back. See docs/formats.md.

An entry is a list of its class's name and its fields (typed_records.py). The name of a restart
point's has the version, `PointNoted3`; in version 2 it had none, and such a point called pass logs
another way. An entry of version 1 is an object: `{"node", "incarnation"}`, `{"node", "point"}`,
`{"instances"}`. All of these are read. Decoding never raises: anything else gives `CorruptRecord`,
with what is wrong. Programs that know earlier versions alone refuse the names, or the lists, of
later ones, rather than pass over a decision that they do not understand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from holdfast.core.coordinator.journal_entries import (
    Ending,
    InstancesDecided,
    JournalEntry,
    NewLife,
    PointNoted,
    RecoveryDecision,
)
from holdfast.core.model.ids import NOBODY, Incarnation, NodeId
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire.frames import CorruptFrame
from holdfast.core.wire.journal_lines import JsonEntry
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.node_words import PLAIN, READERS
from holdfast.core.wire.typed_records import RecordCodec

_READERS: Final = {**READERS, Ending: lambda value: Ending(cast("str", value))}
_CODEC: Final = RecordCodec(JournalEntry.__args__, _READERS, PLAIN)
_POINT, _POINT_3 = PointNoted.__name__, "PointNoted3"


def encode_entry(entry: JournalEntry) -> JsonEntry:
    """One entry, as JSON takes it."""
    kind, *values = _CODEC.named_values(entry)
    return [_POINT_3 if kind == _POINT else kind, *values]


def decode_entries(values: Iterable[JsonEntry]) -> list[JournalEntry] | CorruptRecord:
    """All entries, or why one is none."""
    entries: list[JournalEntry] = []
    for number, value in enumerate(values, 1):
        entry = _decode(value)
        if isinstance(entry, CorruptRecord):
            return CorruptRecord(f"entry {number} is not known: {entry.reason}")
        entries.append(entry)
    return entries


def _decode(value: JsonEntry) -> JournalEntry | CorruptRecord:
    if isinstance(value, dict):
        return _decode_version_1(value)
    if isinstance(value, list) and value[:1] == [_POINT_3]:
        value = [_POINT, *value[1:]]
    entry = cast("JournalEntry | CorruptFrame", _CODEC.from_values(value))
    return CorruptRecord(entry.reason) if isinstance(entry, CorruptFrame) else entry


def _decode_version_1(value: dict[str, object]) -> JournalEntry | CorruptRecord:
    match value:
        case {"node": str(node), "incarnation": int(incarnation), **rest} if not rest and _is_count(
            incarnation
        ):
            return RecoveryDecision((NewLife(NodeId(node), Incarnation(incarnation)),))
        case {"node": str(node), "point": dict(point), **rest} if not rest:
            try:
                return PointNoted(NodeId(node), NOBODY, RestartPoint.from_json(point))
            except (ValueError, RecursionError) as error:
                return CorruptRecord(str(error)[:200])
        case {"instances": dict(instances), **rest} if not rest and _are_counts(instances):
            return InstancesDecided(cast("dict[str, int]", instances))
    return CorruptRecord(f"an object with {sorted(value)[:5]}"[:200])


def _are_counts(instances: dict[object, object]) -> bool:
    return all(_is_count(count) for count in instances.values())


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**63
