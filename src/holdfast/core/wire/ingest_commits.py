"""The commits of an ingest log as bytes: sealed JSON, which blanks may follow."""

from __future__ import annotations

from typing import Any

from holdfast.core.queues.recording import Commit, IngestFile, UserFile
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.sealed_json import decode_sealed, encode_sealed

_FILE_FIELDS = 5
_SPAN_FIELDS = 3
_ENTRY_FIELDS = (_FILE_FIELDS, _FILE_FIELDS + 1, _FILE_FIELDS + 3)
"""A file; with spans of its times; with spans, and the size and version of a user's file."""


def encode_commit(commit: Commit) -> bytes:
    """A commit as it is stored."""
    value: dict[str, object] = {
        "by": commit.by,
        "at_us": commit.at_us,
        "files": [_entry(file) for file in commit.files],
    }
    if commit.watermark_us is not None:
        value["watermark_us"] = commit.watermark_us
    if commit.idle_us is not None:
        value["idle_us"] = commit.idle_us
    if commit.origin:
        value["origin"] = commit.origin
    if commit.ends:
        value["ends"] = True
    return encode_sealed(value)


def decode_commit(data: bytes) -> Commit | CorruptRecord:
    """What a stored commit says. Any bytes may come."""
    value = decode_sealed(data)
    if isinstance(value, CorruptRecord):
        return value
    by, origin, ends = value.get("by"), value.get("origin", ""), value.get("ends", False)
    at_us = value.get("at_us")
    watermark_us, idle_us = value.get("watermark_us"), value.get("idle_us")
    entries = value.get("files")
    if not (
        isinstance(by, str)
        and isinstance(origin, str)
        and isinstance(ends, bool)
        and isinstance(at_us, int)
        and _is_whole(at_us)
        and (watermark_us is None or _is_whole(watermark_us))
        and (idle_us is None or _is_whole(idle_us))
        and isinstance(entries, list)
    ):
        return CorruptRecord("a field is missing or of another kind")
    if not all(_is_file(entry) for entry in entries):
        return CorruptRecord("an entry of its files makes no sense")
    files = tuple(_file(entry) for entry in entries)
    return Commit(by, files, at_us, watermark_us, idle_us, origin, ends)


def _entry(file: IngestFile) -> list[object]:
    times = [file.count, file.min_time_us, file.max_time_us, file.disorder_us]
    user = [] if file.user is None else [file.user.size_bytes, file.user.version]
    spans = [file.spans] if file.spans or user else []
    return [file.name, *times, *spans, *user]


def _file(entry: list[Any]) -> IngestFile:
    name, count, oldest_us, newest_us, disorder_us, *more = entry
    spans = tuple((oldest, newest, rows) for oldest, newest, rows in more[0]) if more else ()
    user = UserFile(name, *more[1:]) if more[1:] else None
    return IngestFile(name, count, oldest_us, newest_us, disorder_us, spans, user)


def _is_file(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) not in _ENTRY_FIELDS:
        return False
    name, *numbers = entry[:_FILE_FIELDS]
    more = entry[_FILE_FIELDS:]
    is_own = isinstance(name, str) and all(map(_is_whole, numbers)) and numbers[0] > 0
    return (
        is_own
        and (not more or _are_spans(more[0]))
        and (not more[1:] or (_is_whole(more[1]) and isinstance(more[2], str)))
    )


def _are_spans(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(span, list) and len(span) == _SPAN_FIELDS and all(map(_is_whole, span))
        for span in value
    )


def _is_whole(value: object) -> bool:
    """Of 64 bits, as all that counts or is a time."""
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
